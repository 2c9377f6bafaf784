//go:build darwin || libkqueue

package netloop

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// openWakeup opens the pipe of a wake-up, non-blocking and close-on-exec. Only the eventfd needs
// the token.
func openWakeup(uint64) (readFD, writeFD int, errno syscall.Errno) {
	var ends [2]int
	if err := unix.Pipe(ends[:]); err != nil {
		return -1, -1, ErrnoOf(err)
	}
	for _, fd := range ends {
		unix.CloseOnExec(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			_ = unix.Close(ends[0])
			_ = unix.Close(ends[1])
			return -1, -1, ErrnoOf(err)
		}
	}
	return ends[0], ends[1], 0
}

// wakeBytes are the bytes of one wake-up, the same as gl_wake_up of abi.h writes.
var wakeBytes = []byte{1, 0, 0, 0, 0, 0, 0, 0}

// writeWakeup writes to the pipe, so that the poller's wait ends. Only the eventfd needs the
// poller and the token. It returns EAGAIN if the pipe is full; then the pipe is readable
// already.
func writeWakeup(_, fd int, _ uint64) syscall.Errno {
	if _, err := unix.Write(fd, wakeBytes); err != nil {
		return ErrnoOf(err)
	}
	return 0
}

// drainWakeup empties the pipe, so that the poller does not report it again.
func drainWakeup(fd int) {
	var buf [512]byte
	for {
		if n, err := unix.Read(fd, buf[:]); n < len(buf) || err != nil {
			return
		}
	}
}
