package netloop

import (
	"syscall"

	"github.com/goloop/goloop/transports"
)

// Calls are all the system calls of a reactor, so that a test can make each fail.
type Calls struct {
	transports.Calls
	Poll PollCalls
	Ring RingCalls

	WakeOpen  func() (readFD, writeFD int, errno syscall.Errno)
	WakeWrite func(fd int) syscall.Errno
	WakeDrain func(fd int)
}

// SystemCalls returns the calls as the kernel has them.
func SystemCalls() Calls {
	return Calls{
		Calls:     transports.SystemCalls(),
		Poll:      systemPollCalls(),
		Ring:      systemRingCalls(),
		WakeOpen:  openWakeup,
		WakeWrite: writeWakeup,
		WakeDrain: drainWakeup,
	}
}
