//go:build linux

package simulated

import (
	"encoding/binary"
	"syscall"
)

// eventFD is an eventfd(2), a counter.
type eventFD struct {
	watchers
	count uint64
}

// maxEventCount is the largest count of an eventfd.
const maxEventCount = ^uint64(0) - 1

// release does nothing.
func (e *eventFD) release() {}

// poll returns the readiness: readable if the count is not 0, writable if it can grow by 1.
func (e *eventFD) poll() uint32 {
	var events uint32
	if e.count > 0 {
		events |= inEvents
	}
	if e.count < maxEventCount {
		events |= outEvents
	}
	return events
}

// read stores the count in the first 8 bytes of b and sets it to 0. EAGAIN if it is 0 already, EINVAL if b
// is too short.
func (e *eventFD) read(b []byte) (int, syscall.Errno) {
	n, errno := takeCount(b, &e.count)
	if errno == 0 {
		e.wake(outEvents)
	}
	return n, errno
}

// takeCount stores the count of an eventfd or a timerfd in the first 8 bytes of b, sets it to 0 and returns
// 8. EAGAIN if the count is 0, EINVAL if b is too short.
func takeCount(b []byte, count *uint64) (int, syscall.Errno) {
	switch {
	case len(b) < 8:
		return -1, syscall.EINVAL
	case *count == 0:
		return -1, syscall.EAGAIN
	}
	binary.NativeEndian.PutUint64(b, *count)
	*count = 0
	return 8, 0
}

// write adds the number in the first 8 bytes of b to the count. EAGAIN if the count would exceed maxEventCount,
// EINVAL if b is too short or the number itself exceeds maxEventCount.
func (e *eventFD) write(b []byte) (int, syscall.Errno) {
	if len(b) < 8 {
		return -1, syscall.EINVAL
	}
	add := binary.NativeEndian.Uint64(b)
	switch {
	case add > maxEventCount:
		return -1, syscall.EINVAL
	case add > maxEventCount-e.count:
		return -1, syscall.EAGAIN
	}
	e.count += add
	e.wake(inEvents)
	return 8, 0
}

// Eventfd is eventfd(2).
func (k *Kernel) Eventfd(count uint32, flags int) (int, syscall.Errno) {
	c, errno := k.begin("eventfd", -1)
	if errno != 0 {
		return c.end(-1, errno)
	}
	return c.end(k.install(&eventFD{count: uint64(count)}, flags))
}
