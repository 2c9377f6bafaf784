package netloop

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openWakeup makes an eventfd, which is both ends.
func openWakeup() (readFD, writeFD int, errno syscall.Errno) {
	n, _, e := unix.RawSyscall(unix.SYS_EVENTFD2, 0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK, 0)
	return int(n), int(n), e
}

var one uint64 = 1

func writeWakeup(fd int) syscall.Errno {
	_, _, e := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), 8)
	return e
}

// drainWakeup has nothing to do: the poller takes each write for an event of its
// own (addWakeup), and a counter of 64 bits does not fill up.
func drainWakeup(int) {}
