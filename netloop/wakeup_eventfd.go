//go:build linux && !libkqueue

package netloop

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openWakeup makes an eventfd, which is both ends. It is always readable: its count, which
// nobody changes, is the token, by which it is known.
func openWakeup(t uint64) (readFD, writeFD int, errno syscall.Errno) {
	n, _, e := unix.RawSyscall(unix.SYS_EVENTFD2, uintptr(uint32(t)), unix.EFD_CLOEXEC|unix.EFD_NONBLOCK, 0)
	return int(n), int(n), e
}

// writeWakeup registers the eventfd anew, edge-triggered: that is an event. epoll knows it
// by its number and by the file, so this does nothing to what has either number by now.
func writeWakeup(poller, fd int, t uint64) syscall.Errno {
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(t), Pad: int32(t >> 32)}
	_, _, e := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(poller), unix.EPOLL_CTL_MOD, uintptr(fd),
		uintptr(unsafe.Pointer(&ev)), 0, 0)
	return e
}

// drainWakeup has nothing to do: nobody reads or writes the eventfd.
func drainWakeup(int) {}
