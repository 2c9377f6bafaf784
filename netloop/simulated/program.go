//go:build linux

package simulated

import (
	"encoding/binary"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Program provides the calls of a kernel under the names and with the types of golang.org/x/sys/unix, for
// tests and programs in Go. Each method has the results of its namesake; parameters without a name are
// ignored.
type Program struct{ *Kernel }

// failure converts an errno to an error, 0 to nil.
func failure(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// result converts a kernel's result to the one of golang.org/x/sys/unix.
func result(n int, errno syscall.Errno) (int, error) { return n, failure(errno) }

// RawName returns an address in the kernel's format; nil becomes an address of AF_UNSPEC. A name that
// begins with "@" is abstract.
func RawName(sa unix.Sockaddr) []byte {
	var a address
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		a = address{family: unix.AF_INET, port: uint16(sa.Port)}
		copy(a.ip[:], sa.Addr[:])
	case *unix.SockaddrInet6:
		a = address{family: unix.AF_INET6, port: uint16(sa.Port), ip: sa.Addr}
	case *unix.SockaddrUnix:
		a = address{family: unix.AF_UNIX, name: sa.Name}
		if strings.HasPrefix(a.name, "@") {
			a.name = "\x00" + a.name[1:]
		}
	default:
		return binary.NativeEndian.AppendUint16(nil, unix.AF_UNSPEC)
	}
	return a.encode()
}

// sockaddrOf converts an address in the kernel's format to the type of golang.org/x/sys/unix. It returns
// nil for fewer than two bytes.
func sockaddrOf(raw []byte) unix.Sockaddr {
	if len(raw) < 2 {
		return nil
	}
	family := int(binary.NativeEndian.Uint16(raw))
	a, _ := parseAddress(raw, family)
	switch family {
	case unix.AF_INET:
		return &unix.SockaddrInet4{Port: int(a.port), Addr: [4]byte(a.ip[:])}
	case unix.AF_INET6:
		return &unix.SockaddrInet6{Port: int(a.port), Addr: a.ip}
	}
	if a.name == "" || a.name[0] == 0 { // as in x/sys/unix, which ignores the length
		a.name = "@" + a.name[min(1, len(a.name)):]
	}
	return &unix.SockaddrUnix{Name: a.name}
}

func (p Program) Close(fd int) error                  { return failure(p.Kernel.Close(fd)) }
func (p Program) Read(fd int, b []byte) (int, error)  { return result(p.Kernel.Read(fd, b)) }
func (p Program) Write(fd int, b []byte) (int, error) { return result(p.Kernel.Write(fd, b)) }
func (p Program) Dup(fd int) (int, error)             { return result(p.Kernel.Dup(fd, 0, false)) }
func (p Program) Dup2(from, to int) error             { return failure(p.Kernel.Dup3(from, to, false)) }
func (p Program) Shutdown(fd, how int) error          { return failure(p.Kernel.Shutdown(fd, how)) }
func (p Program) Listen(fd, backlog int) error        { return failure(p.Kernel.Listen(fd, backlog)) }
func (p Program) Unlink(path string) error            { return failure(p.Kernel.Unlink(path)) }
func (p Program) EpollCreate1(flags int) (int, error) { return result(p.Kernel.EpollCreate(flags)) }
func (p Program) Eventfd(n uint, flags int) (int, error) {
	return result(p.Kernel.Eventfd(uint32(n), flags))
}

func (p Program) Bind(fd int, sa unix.Sockaddr) error {
	return failure(p.Kernel.Bind(fd, RawName(sa)))
}

func (p Program) Connect(fd int, sa unix.Sockaddr) error {
	return failure(p.Kernel.Connect(fd, RawName(sa)))
}

func (p Program) Sendto(fd int, b []byte, flags int, to unix.Sockaddr) error {
	_, errno := p.Kernel.SendTo(fd, b, flags, RawName(to))
	return failure(errno)
}

// SendmsgN ignores ancillary data. Without an address it is sendmsg(2) in the trace, else sendto(2).
func (p Program) SendmsgN(fd int, b, _ []byte, to unix.Sockaddr, flags int) (int, error) {
	if to == nil {
		return result(p.Kernel.SendVectors(fd, b, flags))
	}
	return result(p.Kernel.SendTo(fd, b, flags, RawName(to)))
}

func (p Program) TimerfdCreate(_, flags int) (int, error) {
	return result(p.Kernel.TimerfdCreate(flags))
}

func (p Program) TimerfdSettime(fd, _ int, spec, _ *unix.ItimerSpec) error {
	return failure(p.Kernel.TimerfdSet(fd, spec.Value.Nano()))
}

func (p Program) Recvfrom(fd int, b []byte, flags int) (int, unix.Sockaddr, error) {
	n, from, errno := p.Kernel.RecvFrom(fd, b, flags)
	return n, sockaddrOf(from), failure(errno)
}

func (p Program) Getsockname(fd int) (unix.Sockaddr, error) {
	name, errno := p.Kernel.Getsockname(fd)
	return sockaddrOf(name), failure(errno)
}

func (p Program) Getpeername(fd int) (unix.Sockaddr, error) {
	name, errno := p.Kernel.Getpeername(fd)
	return sockaddrOf(name), failure(errno)
}

func (p Program) Accept(fd int) (int, unix.Sockaddr, error) { return p.Accept4(fd, 0) }

func (p Program) Accept4(fd, flags int) (int, unix.Sockaddr, error) {
	n, from, errno := p.Kernel.Accept(fd, flags)
	return n, sockaddrOf(from), failure(errno)
}

func (p Program) Socket(domain, kind, _ int) (int, error) {
	return result(p.Kernel.Socket(domain, kind))
}

func (p Program) Socketpair(domain, kind, _ int) ([2]int, error) {
	a, b, errno := p.Kernel.Socketpair(domain, kind)
	return [2]int{a, b}, failure(errno)
}

func (p Program) Pipe(ends []int) error { return p.Pipe2(ends, 0) }

// Pipe2 stores the reading end and the writing end in ends, or nothing after an error.
func (p Program) Pipe2(ends []int, flags int) (err error) {
	reads, writes, errno := p.Kernel.Pipe(flags)
	if errno == 0 {
		ends[0], ends[1] = reads, writes
	}
	return failure(errno)
}

// Open opens a file that cannot be polled, with any name: there are no other files.
func (p Program) Open(_ string, flags int, _ uint32) (int, error) {
	return result(p.Kernel.OpenNull(flags))
}

func (p Program) Dup3(from, to, flags int) error {
	return failure(p.Kernel.Dup3(from, to, flags&unix.O_CLOEXEC != 0))
}

func (p Program) FcntlInt(fd uintptr, command, arg int) (int, error) {
	return result(p.Kernel.Fcntl(int(fd), command, arg))
}

func (p Program) CloseOnExec(fd int) { _, _ = p.Kernel.Fcntl(fd, unix.F_SETFD, unix.FD_CLOEXEC) }

func (p Program) SetNonblock(fd int, on bool) error {
	_, errno := p.Kernel.Fcntl(fd, unix.F_SETFL, intOfBool(on)*unix.O_NONBLOCK)
	return failure(errno)
}

func (p Program) SetsockoptInt(fd, level, name, value int) error {
	return failure(p.Kernel.Setsockopt(fd, level, name, value))
}

func (p Program) GetsockoptInt(fd, level, name int) (int, error) {
	return result(p.Kernel.Getsockopt(fd, level, name))
}

func (p Program) SetsockoptLinger(fd, _, _ int, l *unix.Linger) error {
	return failure(p.Kernel.SetLinger(fd, l.Onoff != 0, int(l.Linger)))
}

func (p Program) EpollCtl(epfd, op, fd int, ev *unix.EpollEvent) error {
	return failure(p.Kernel.EpollCtl(epfd, op, fd, ev))
}

// EpollWait waits up to ms milliseconds; < 0 waits without a limit. It returns the number of events,
// 0 after the timeout, or ETIME or EDEADLK if the simulation cannot go on (Kernel.EpollWait).
func (p Program) EpollWait(epfd int, events []unix.EpollEvent, ms int) (int, error) {
	timeout := int64(ms)
	if ms > 0 {
		timeout *= 1_000_000
	}
	return result(p.Kernel.EpollWait(epfd, events, timeout))
}
