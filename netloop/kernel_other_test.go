//go:build !linux

package netloop

import "golang.org/x/sys/unix"

// sys makes the system calls of the tests themselves; see also kernel_linux_test.go.
var sys host

// testKernel is the kernel on which the tests run.
var testKernel = struct {
	now         func() (int64, error)
	descriptors func() int
}{monotonic, func() int { return -1 }} // unknown on this system

// kernelCalls returns the calls of a reactor on this machine's kernel.
func kernelCalls() Calls { return SystemCalls() }

// host has the system calls of this machine under the names of golang.org/x/sys/unix.
type host struct{}

func (host) Accept(fd int) (int, unix.Sockaddr, error) { return unix.Accept(fd) }
func (host) Bind(fd int, sa unix.Sockaddr) error       { return unix.Bind(fd, sa) }
func (host) Close(fd int) error                        { return unix.Close(fd) }
func (host) CloseOnExec(fd int)                        { unix.CloseOnExec(fd) }
func (host) Connect(fd int, sa unix.Sockaddr) error    { return unix.Connect(fd, sa) }
func (host) Dup(fd int) (int, error)                   { return unix.Dup(fd) }
func (host) Dup2(from, to int) error                   { return unix.Dup2(from, to) }
func (host) FcntlInt(fd uintptr, command, arg int) (int, error) {
	return unix.FcntlInt(fd, command, arg)
}
func (host) Getsockname(fd int) (unix.Sockaddr, error) { return unix.Getsockname(fd) }
func (host) GetsockoptInt(fd, level, name int) (int, error) {
	return unix.GetsockoptInt(fd, level, name)
}
func (host) Listen(fd, backlog int) error { return unix.Listen(fd, backlog) }
func (host) Open(path string, flags int, mode uint32) (int, error) {
	return unix.Open(path, flags, mode)
}
func (host) Pipe(ends []int) error               { return unix.Pipe(ends) }
func (host) Read(fd int, b []byte) (int, error)  { return unix.Read(fd, b) }
func (host) SetNonblock(fd int, on bool) error   { return unix.SetNonblock(fd, on) }
func (host) Shutdown(fd, how int) error          { return unix.Shutdown(fd, how) }
func (host) Write(fd int, b []byte) (int, error) { return unix.Write(fd, b) }
func (host) Socket(domain, kind, protocol int) (int, error) {
	return unix.Socket(domain, kind, protocol)
}
func (host) Socketpair(domain, kind, protocol int) ([2]int, error) {
	return unix.Socketpair(domain, kind, protocol)
}
func (host) SetsockoptInt(fd, level, name, value int) error {
	return unix.SetsockoptInt(fd, level, name, value)
}
