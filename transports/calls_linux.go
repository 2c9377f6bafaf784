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

// sendFlags prevent a send from blocking and from raising SIGPIPE. A send could block because
// O_NONBLOCK is shared with duplicates of the descriptor in other processes, which may
// clear it.
const sendFlags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL

// Scratch is working memory of SendVectors. It is part of the reactor, because a local variable
// would be allocated on the heap in each call.
type Scratch struct{ header unix.Msghdr }

// SystemCalls returns the system calls of the host's kernel. Nearly all are raw system
// calls: they cannot block, and notifying Go's scheduler of each would cost as much as the
// call.
func SystemCalls() Calls {
	return Calls{
		Recv: func(fd int, base, size uintptr) (int, syscall.Errno) {
			n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), base, size, unix.MSG_DONTWAIT, 0, 0)
			return int(n), e
		},
		Read: func(fd int, base, size uintptr) (int, syscall.Errno) {
			n, _, e := unix.RawSyscall(unix.SYS_READ, uintptr(fd), base, size)
			return int(n), e
		},
		RecvFrom: func(fd int, base, size, addr, addrLen uintptr) (int, syscall.Errno) {
			n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), base, size, unix.MSG_DONTWAIT, addr, addrLen)
			return int(n), e
		},
		Recvmmsg: func(fd int, headers unsafe.Pointer, n int) (int, syscall.Errno) {
			got, _, e := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(headers), uintptr(n),
				unix.MSG_DONTWAIT, 0, 0)
			return int(got), e
		},
		Send: func(fd int, base, size uintptr) (int, syscall.Errno) {
			n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), base, size, sendFlags, 0, 0)
			return int(n), e
		},
		SendVectors: func(fd int, v []Vector, scratch *Scratch) (int, syscall.Errno) {
			h := &scratch.header
			h.Iov = (*unix.Iovec)(unsafe.Pointer(&v[0]))
			h.SetIovlen(len(v))
			n, _, e := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(h)), sendFlags)
			h.Iov = nil
			return int(n), e
		},
		Writev: func(fd int, v []Vector) (int, syscall.Errno) {
			n, _, e := unix.RawSyscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&v[0])), uintptr(len(v)))
			return int(n), e
		},
		Shutdown: func(fd int) syscall.Errno {
			_, _, e := unix.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0)
			return e
		},
		Accept: func(fd int, addr, addrLen uintptr) (int, syscall.Errno) {
			n, _, e := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), addr, addrLen,
				unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
			return int(n), e
		},
		NoDelay: func(fd int) syscall.Errno {
			_, _, e := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY,
				uintptr(unsafe.Pointer(&enabled)), unsafe.Sizeof(enabled), 0)
			return e
		},
		Sockname: func(fd int, addr, addrLen uintptr) syscall.Errno {
			_, _, e := unix.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), addr, addrLen)
			return e
		},
		PipeSize: func(fd int) (int, syscall.Errno) {
			n, _, e := unix.RawSyscall(unix.SYS_FCNTL, uintptr(fd), unix.F_GETPIPE_SZ, 0)
			return int(n), e
		},
		SetPipeSize: func(fd, size int) syscall.Errno {
			// Not raw, because the call allocates and may take long.
			_, _, e := unix.Syscall(unix.SYS_FCNTL, uintptr(fd), unix.F_SETPIPE_SZ, uintptr(size))
			return e
		},
		Close: func(fd int) syscall.Errno {
			// Not raw, because close may block (SO_LINGER).
			_, _, e := unix.Syscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
			return e
		},
	}
}
