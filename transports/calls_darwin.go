package transports

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MaxVectors is the maximum number of vectors of one call (IOV_MAX).
const MaxVectors = 1024

// enabled is the value of a socket option that is set. The kernel only reads it.
var enabled int32 = 1

// Scratch is working memory of SendVectors. Darwin does not need any.
type Scratch struct{}

// SystemCalls returns the system calls of the host's kernel. Darwin has neither raw system
// calls nor MSG_NOSIGNAL; CPython ignores SIGPIPE.
func SystemCalls() Calls {
	writev := func(fd int, v []Vector) (int, syscall.Errno) {
		n, _, e := unix.Syscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&v[0])), uintptr(len(v)))
		return int(n), e
	}
	return Calls{
		Recv: func(fd int, base, size uintptr) (int, syscall.Errno) {
			n, _, e := unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), base, size, unix.MSG_DONTWAIT, 0, 0)
			return int(n), e
		},
		Read: func(fd int, base, size uintptr) (int, syscall.Errno) {
			n, _, e := unix.Syscall(unix.SYS_READ, uintptr(fd), base, size)
			return int(n), e
		},
		RecvFrom: func(fd int, base, size, addr, addrLen uintptr) (int, syscall.Errno) {
			n, _, e := unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), base, size, unix.MSG_DONTWAIT, addr, addrLen)
			return int(n), e
		},
		Send: func(fd int, base, size uintptr) (int, syscall.Errno) {
			n, _, e := unix.Syscall6(unix.SYS_SENDTO, uintptr(fd), base, size, unix.MSG_DONTWAIT, 0, 0)
			return int(n), e
		},
		SendVectors: func(fd int, v []Vector, _ *Scratch) (int, syscall.Errno) {
			return writev(fd, v)
		},
		Writev: writev,
		Shutdown: func(fd int) syscall.Errno {
			_, _, e := unix.Syscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0)
			return e
		},
		Accept: func(fd int, addr, addrLen uintptr) (int, syscall.Errno) {
			n, _, e := unix.Syscall(unix.SYS_ACCEPT, uintptr(fd), addr, addrLen)
			if e != 0 {
				return -1, e
			}
			unix.CloseOnExec(int(n))
			if err := unix.SetNonblock(int(n), true); err != nil {
				_ = unix.Close(int(n))
				return -1, unix.EINVAL
			}
			return int(n), 0
		},
		NoDelay: func(fd int) syscall.Errno {
			_, _, e := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY,
				uintptr(unsafe.Pointer(&enabled)), unsafe.Sizeof(enabled), 0)
			return e
		},
		Sockname: func(fd int, addr, addrLen uintptr) syscall.Errno {
			_, _, e := unix.Syscall(unix.SYS_GETSOCKNAME, uintptr(fd), addr, addrLen)
			return e
		},
		// Darwin enlarges a pipe automatically.
		PipeSize:    func(int) (int, syscall.Errno) { return -1, unix.ENOSYS },
		SetPipeSize: func(int, int) syscall.Errno { return unix.ENOSYS },
		Close: func(fd int) syscall.Errno {
			_, _, e := unix.Syscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
			return e
		},
	}
}
