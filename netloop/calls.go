package netloop

import (
	"syscall"

	"github.com/goloop/goloop/transports"
	"golang.org/x/sys/unix"
)

// Calls are all the system calls of a reactor, so that a test can make each fail.
type Calls struct {
	transports.Calls
	Poll PollCalls
	Ring RingCalls

	// Map returns fresh memory, untouched and outside of Go's heap, and Unmap gives it back.
	Map   func(size int) ([]byte, error)
	Unmap func(memory []byte) error

	WakeOpen  func(t uint64) (readFD, writeFD int, errno syscall.Errno)
	WakeWrite func(poller, fd int, t uint64) syscall.Errno
	WakeDrain func(fd int)
}

// SystemCalls returns the calls as the kernel has them.
func SystemCalls() Calls {
	return Calls{
		Calls: transports.SystemCalls(),
		Poll:  systemPollCalls(),
		Ring:  systemRingCalls(),
		Map: func(size int) ([]byte, error) {
			return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		},
		Unmap:     unix.Munmap,
		WakeOpen:  openWakeup,
		WakeWrite: writeWakeup,
		WakeDrain: drainWakeup,
	}
}
