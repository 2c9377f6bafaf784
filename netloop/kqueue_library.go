//go:build linux && libkqueue

package netloop

// #cgo pkg-config: libkqueue
// #include <sys/event.h>
import "C"

import (
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kqueue backend on Linux, implemented by libkqueue, only for tests: `make check
// CHECKS=kqueue`. Builds of the product do not have this tag.

// kevent has the layout of C's struct kevent, and the field names of unix.Kevent_t on darwin.
type kevent struct {
	Ident  uint64
	Filter int16
	Flags  uint16
	Fflags uint32
	Data   int64
	Udata  uintptr
}

var _ = [1]struct{}{}[unsafe.Sizeof(kevent{})-C.sizeof_struct_kevent]

const (
	evfiltRead  = C.EVFILT_READ
	evfiltWrite = C.EVFILT_WRITE

	evAdd      = C.EV_ADD
	evClear    = C.EV_CLEAR
	evDelete   = C.EV_DELETE
	evDispatch = C.EV_DISPATCH
	evEnable   = C.EV_ENABLE
	evError    = C.EV_ERROR
	evEOF      = C.EV_EOF
)

// makeKevent returns a change of one filter of a descriptor. flags are EV_ADD, EV_DELETE and the
// like.
func makeKevent(fd int32, filter, flags int) kevent {
	return kevent{Ident: uint64(fd), Filter: int16(filter), Flags: uint16(flags)}
}

// systemPollCalls returns the calls of libkqueue.
func systemPollCalls() PollCalls {
	return PollCalls{Create: createLibkqueue, Kevent: callLibkqueue, Close: unix.Close}
}

// createLibkqueue is kqueue(2).
func createLibkqueue() (int, error) {
	kq, err := C.kqueue()
	if kq >= 0 {
		err = nil
	}
	return int(kq), err
}

// callLibkqueue is kevent(2). It copies the arguments, because C must not access memory that
// contains Go pointers.
func callLibkqueue(kq int, changes, events []kevent, ts *unix.Timespec) (int, error) {
	given, got := slices.Clone(changes), make([]kevent, len(events))
	n, err := C.kevent(C.int(kq), array(given), C.int(len(given)), array(got), C.int(len(got)),
		(*C.struct_timespec)(unsafe.Pointer(ts)))
	if n < 0 {
		return -1, err
	}
	copy(events, got[:n])
	return int(n), nil
}

// array returns the address of the first event as C's type.
func array(events []kevent) *C.struct_kevent {
	return (*C.struct_kevent)(unsafe.Pointer(unsafe.SliceData(events)))
}
