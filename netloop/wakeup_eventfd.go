//go:build linux && !libkqueue

package netloop

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openWakeup opens the eventfd of a wake-up with token t, which is both ends. It is always
// readable. Its count never changes: it is the low half of the token, which identifies the
// eventfd.
func openWakeup(t uint64) (readFD, writeFD int, errno syscall.Errno) {
	n, _, e := unix.RawSyscall(unix.SYS_EVENTFD2, uintptr(uint32(t)), unix.EFD_CLOEXEC|unix.EFD_NONBLOCK, 0)
	return int(n), int(n), e
}

// writeWakeup makes the poller's wait end: it registers the eventfd `fd` in the epoll `poller`
// again, edge-triggered and with its token t, which causes an event. It returns the errno of
// epoll_ctl. epoll finds the registration by number and file, so the call fails without an effect
// if one of the numbers refers to another file now.
func writeWakeup(poller, fd int, t uint64) syscall.Errno {
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(t), Pad: int32(t >> 32)}
	_, _, e := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(poller), unix.EPOLL_CTL_MOD, uintptr(fd),
		uintptr(unsafe.Pointer(&ev)), 0, 0)
	return e
}

// drainWakeup does nothing, because the eventfd is neither read nor written.
func drainWakeup(int) {}
