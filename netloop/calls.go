package netloop

import (
	"runtime/debug"
	"syscall"

	"github.com/goloop/goloop/transports"
	"golang.org/x/sys/unix"
)

// Calls are what a reactor has of a kernel: all its system calls, so that a test can make each fail,
// the clock, and what the kernel's descriptors have in common. A reactor on the calls of
// SimulatedCalls touches nothing else.
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

	// Clock is CLOCK_MONOTONIC in ns. nil: the host's, see clock.go.
	Clock func() int64
	// FreeMemory gives what Go's collector finds back to the host, and does not wait for that.
	FreeMemory func()

	closes *closeCounter // of those that can run out of the same descriptors
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

		FreeMemory: func() { go debug.FreeOSMemory() },

		closes: &processCloses,
	}
}
