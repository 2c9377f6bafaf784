//go:build linux

package simulated

import "golang.org/x/sys/unix"

// System has the calls of a kernel under the names and with the types of golang.org/x/sys/unix: a
// test that makes its calls by a System runs on Linux and on a simulated kernel.
type System interface {
	Accept(fd int) (int, unix.Sockaddr, error)
	Accept4(fd, flags int) (int, unix.Sockaddr, error)
	Bind(fd int, sa unix.Sockaddr) error
	Close(fd int) error
	CloseOnExec(fd int)
	Connect(fd int, sa unix.Sockaddr) error
	Dup(fd int) (int, error)
	Dup2(from, to int) error
	Dup3(from, to, flags int) error
	EpollCreate1(flags int) (int, error)
	EpollCtl(epfd, op, fd int, ev *unix.EpollEvent) error
	EpollWait(epfd int, events []unix.EpollEvent, ms int) (int, error)
	Eventfd(count uint, flags int) (int, error)
	FcntlInt(fd uintptr, command, arg int) (int, error)
	Getpeername(fd int) (unix.Sockaddr, error)
	Getsockname(fd int) (unix.Sockaddr, error)
	GetsockoptInt(fd, level, name int) (int, error)
	Listen(fd, backlog int) error
	Open(path string, flags int, mode uint32) (int, error)
	Pipe(ends []int) error
	Pipe2(ends []int, flags int) error
	Read(fd int, b []byte) (int, error)
	Recvfrom(fd int, b []byte, flags int) (int, unix.Sockaddr, error)
	SendmsgN(fd int, b, oob []byte, to unix.Sockaddr, flags int) (int, error)
	Sendto(fd int, b []byte, flags int, to unix.Sockaddr) error
	SetNonblock(fd int, on bool) error
	SetsockoptInt(fd, level, name, value int) error
	SetsockoptLinger(fd, level, name int, l *unix.Linger) error
	Shutdown(fd, how int) error
	Socket(domain, kind, protocol int) (int, error)
	Socketpair(domain, kind, protocol int) ([2]int, error)
	TimerfdCreate(clock, flags int) (int, error)
	TimerfdSettime(fd, flags int, spec, old *unix.ItimerSpec) error
	Unlink(path string) error
	Write(fd int, b []byte) (int, error)
}

// Linux is the host's kernel.
type Linux struct{}

var _, _ System = Linux{}, Program{}

// Accept is accept(2).
func (Linux) Accept(fd int) (int, unix.Sockaddr, error) { return unix.Accept(fd) }

// Accept4 is accept4(2).
func (Linux) Accept4(fd, flags int) (int, unix.Sockaddr, error) { return unix.Accept4(fd, flags) }

// Bind is bind(2).
func (Linux) Bind(fd int, sa unix.Sockaddr) error { return unix.Bind(fd, sa) }

// Close is close(2).
func (Linux) Close(fd int) error { return unix.Close(fd) }

// CloseOnExec is fcntl(2) with F_SETFD.
func (Linux) CloseOnExec(fd int) { unix.CloseOnExec(fd) }

// Connect is connect(2).
func (Linux) Connect(fd int, sa unix.Sockaddr) error { return unix.Connect(fd, sa) }

// Dup is dup(2).
func (Linux) Dup(fd int) (int, error) { return unix.Dup(fd) }

// Dup2 is dup2(2).
func (Linux) Dup2(from, to int) error { return unix.Dup2(from, to) }

// Dup3 is dup3(2).
func (Linux) Dup3(from, to, flags int) error { return unix.Dup3(from, to, flags) }

// EpollCreate1 is epoll_create1(2).
func (Linux) EpollCreate1(flags int) (int, error) { return unix.EpollCreate1(flags) }

// EpollCtl is epoll_ctl(2).
func (Linux) EpollCtl(epfd, op, fd int, ev *unix.EpollEvent) error {
	return unix.EpollCtl(epfd, op, fd, ev)
}

// EpollWait is epoll_wait(2).
func (Linux) EpollWait(epfd int, events []unix.EpollEvent, ms int) (int, error) {
	return unix.EpollWait(epfd, events, ms)
}

// Eventfd is eventfd(2).
func (Linux) Eventfd(count uint, flags int) (int, error) { return unix.Eventfd(count, flags) }

// FcntlInt is fcntl(2).
func (Linux) FcntlInt(fd uintptr, command, arg int) (int, error) {
	return unix.FcntlInt(fd, command, arg)
}

// Getpeername is getpeername(2).
func (Linux) Getpeername(fd int) (unix.Sockaddr, error) { return unix.Getpeername(fd) }

// Getsockname is getsockname(2).
func (Linux) Getsockname(fd int) (unix.Sockaddr, error) { return unix.Getsockname(fd) }

// GetsockoptInt is getsockopt(2).
func (Linux) GetsockoptInt(fd, level, name int) (int, error) {
	return unix.GetsockoptInt(fd, level, name)
}

// Listen is listen(2).
func (Linux) Listen(fd, backlog int) error { return unix.Listen(fd, backlog) }

// Open is open(2).
func (Linux) Open(path string, flags int, mode uint32) (int, error) {
	return unix.Open(path, flags, mode)
}

// Pipe is pipe(2).
func (Linux) Pipe(ends []int) error { return unix.Pipe(ends) }

// Pipe2 is pipe2(2).
func (Linux) Pipe2(ends []int, flags int) error { return unix.Pipe2(ends, flags) }

// Read is read(2).
func (Linux) Read(fd int, b []byte) (int, error) { return unix.Read(fd, b) }

// Recvfrom is recvfrom(2).
func (Linux) Recvfrom(fd int, b []byte, flags int) (int, unix.Sockaddr, error) {
	return unix.Recvfrom(fd, b, flags)
}

// SendmsgN is sendmsg(2).
func (Linux) SendmsgN(fd int, b, oob []byte, to unix.Sockaddr, flags int) (int, error) {
	return unix.SendmsgN(fd, b, oob, to, flags)
}

// Sendto is sendto(2).
func (Linux) Sendto(fd int, b []byte, flags int, to unix.Sockaddr) error {
	return unix.Sendto(fd, b, flags, to)
}

// SetNonblock is fcntl(2) with F_SETFL.
func (Linux) SetNonblock(fd int, on bool) error { return unix.SetNonblock(fd, on) }

// SetsockoptInt is setsockopt(2).
func (Linux) SetsockoptInt(fd, level, name, value int) error {
	return unix.SetsockoptInt(fd, level, name, value)
}

// SetsockoptLinger is setsockopt(2) of SO_LINGER.
func (Linux) SetsockoptLinger(fd, level, name int, l *unix.Linger) error {
	return unix.SetsockoptLinger(fd, level, name, l)
}

// Shutdown is shutdown(2).
func (Linux) Shutdown(fd, how int) error { return unix.Shutdown(fd, how) }

// Socket is socket(2).
func (Linux) Socket(domain, kind, protocol int) (int, error) {
	return unix.Socket(domain, kind, protocol)
}

// Socketpair is socketpair(2).
func (Linux) Socketpair(domain, kind, protocol int) ([2]int, error) {
	return unix.Socketpair(domain, kind, protocol)
}

// TimerfdCreate is timerfd_create(2).
func (Linux) TimerfdCreate(clock, flags int) (int, error) { return unix.TimerfdCreate(clock, flags) }

// TimerfdSettime is timerfd_settime(2).
func (Linux) TimerfdSettime(fd, flags int, spec, old *unix.ItimerSpec) error {
	return unix.TimerfdSettime(fd, flags, spec, old)
}

// Unlink is unlink(2).
func (Linux) Unlink(path string) error { return unix.Unlink(path) }

// Write is write(2).
func (Linux) Write(fd int, b []byte) (int, error) { return unix.Write(fd, b) }
