package netloop

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openWakeup makes an eventfd, which is both ends, and always readable.
func openWakeup() (readFD, writeFD int, errno syscall.Errno) {
	n, _, e := unix.RawSyscall(unix.SYS_EVENTFD2, 1, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK, 0)
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
