package netloop

import (
	"runtime/debug"
	"syscall"

	"github.com/goloop/goloop/transports"
	"golang.org/x/sys/unix"
)

// Calls are all system calls of a reactor, its clock, and the state that the reactors of one
// kernel share. A test can replace each call to make it fail. A reactor on the Calls of
// another kernel does not access the host's.
type Calls struct {
	transports.Calls
	Poll PollCalls

	// Map allocates zeroed memory outside of Go's heap, which is not backed by pages until it
	// is used. Unmap frees it.
	Map   func(size int) ([]byte, error)
	Unmap func(memory []byte) error

	// WakeOpen, WakeWrite and WakeDrain are openWakeup, writeWakeup and drainWakeup; t is the
	// token of the wake-up.
	WakeOpen  func(t uint64) (readFD, writeFD int, errno syscall.Errno)
	WakeWrite func(poller, fd int, t uint64) syscall.Errno
	WakeDrain func(fd int)

	// Clock returns CLOCK_MONOTONIC in ns. nil: the host's clock, see clock.go.
	Clock func() int64
	// ThreadTime returns the processor time of the calling thread in ns.
	ThreadTime func() int64
	// Preemptions returns how often another thread has taken the processor from this thread.
	Preemptions func() int64
	// FreeMemory starts returning unused memory of Go's heap to the host and does not wait for
	// the end.
	FreeMemory func()

	closes *closeCounter // shared by the reactors that use the same descriptor table
}

// SystemCalls returns the calls of the host's kernel.
func SystemCalls() Calls {
	return Calls{
		Calls: transports.SystemCalls(),
		Poll:  systemPollCalls(),
		Map: func(size int) ([]byte, error) {
			return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		},
		Unmap:     unix.Munmap,
		WakeOpen:  openWakeup,
		WakeWrite: writeWakeup,
		WakeDrain: drainWakeup,

		ThreadTime:  threadTime,
		Preemptions: preemptions,
		FreeMemory:  func() { go debug.FreeOSMemory() },

		closes: &processCloses,
	}
}
