// Command golib is the c-shared library libgoloop: the reactor behind the table
// of functions that pybridge/abi.h describes. It is built by
//
//	go build -buildmode=c-shared -trimpath -buildvcs=false \
//	    -ldflags "-w -X runtime.godebugDefault=asyncpreemptoff=1,containermaxprocs=0,profstackdepth=0
//	        -extldflags=-Wl,--wrap=pthread_getattr_np,--version-script=$PWD/pybridge/golib/exports.map" \
//	    -o libgoloop.so.1 ./pybridge/golib
//
// and exports the one symbol goloop_table (see table.c and exports.map; what is wrapped is
// in stack.c). Without asyncpreemptoff Go would preempt by SIGURG, which belongs to Python.
//
// This file turns C's arguments into Go's and Go's errors into -errno; the work
// is done in netloop. It includes no Python.h, handles no signals, and keeps no
// pointer beyond what abi.h says.
package main

/*
#cgo CFLAGS: -std=c11 -D_GNU_SOURCE -I${SRCDIR}/..
#include "abi.h"
*/
import "C"

import (
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/goloop/goloop/netloop"
)

func main() {}

// place is where a reactor lives. Its number is the index in the low half and
// a count of the place's uses above, so that the number of a closed reactor is
// not mistaken for that of the next in its place.
type place struct {
	loop   *loop
	number int32
}

// loop is what a number stands for.
type loop struct {
	*netloop.Reactor
	shared *netloop.Shared
	pace   pace
	ran    ran
	spell  spell
	// simulated: what happens comes from a seed, so that no other thread may do anything.
	simulated bool
}

const (
	indexBits = 16
	maxPlaces = 1 << indexBits
	uses      = 1 << (31 - indexBits)
)

// places are read without a lock; a change stores a changed copy.
var (
	places   atomic.Pointer[[]place]
	placesMu sync.Mutex
)

// find returns the reactor of a number, or nil.
func find(number C.int32_t) *loop {
	all := places.Load()
	if all == nil || number < 0 {
		return nil
	}
	i := int(number) % maxPlaces
	if i >= len(*all) || (*all)[i].number != int32(number) {
		return nil
	}
	return (*all)[i].loop
}

// enter gives a reactor a number, or -EMFILE where all places are taken.
func enter(r *netloop.Reactor, shared *netloop.Shared, simulated bool) C.int32_t {
	l := &loop{Reactor: r, shared: shared, simulated: simulated}
	r.OnSlowIteration = l.slow
	placesMu.Lock()
	defer placesMu.Unlock()
	var all []place
	if now := places.Load(); now != nil {
		all = slices.Clone(*now)
	}
	i := slices.IndexFunc(all, func(p place) bool { return p.loop == nil })
	switch {
	case i >= 0:
		use := (all[i].number/maxPlaces + 1) % uses
		all[i] = place{l, use*maxPlaces + int32(i)}
	case len(all) == maxPlaces:
		return -C.int32_t(syscall.EMFILE)
	default:
		i = len(all)
		all = append(all, place{l, int32(i)})
	}
	places.Store(&all)
	traced.opened(l)
	live := 0
	for _, p := range all {
		if p.loop != nil {
			live++
		}
	}
	paceReactors(live)
	return C.int32_t(all[i].number)
}

// leave takes the reactor of a number out, and returns it or nil.
func leave(number C.int32_t) *loop {
	placesMu.Lock()
	defer placesMu.Unlock()
	r := find(number)
	if r == nil {
		return nil
	}
	all := slices.Clone(*places.Load())
	all[int(number)%maxPlaces].loop = nil
	places.Store(&all)
	return r
}

const badReactor = -C.int32_t(syscall.EBADF)

// result is 0 or -errno.
func result(err error) C.int32_t {
	if err == nil {
		return 0
	}
	return -C.int32_t(netloop.ErrnoOf(err))
}

//export goloop_reactor_new
func goloop_reactor_new(shared *C.gl_shared) C.int32_t {
	block := (*netloop.Shared)(unsafe.Pointer(shared))
	r, simulated, err := newReactor(block)
	if err != nil {
		return result(err)
	}
	number := enter(r, block, simulated)
	if number < 0 {
		r.Close()
	}
	return number
}

//export goloop_reactor_close
func goloop_reactor_close(reactor C.int32_t) C.int32_t {
	r := leave(reactor)
	if r == nil {
		return badReactor
	}
	traced.closed(r)
	r.Close()
	return 0
}

//export goloop_turn
func goloop_turn(reactor C.int32_t, timeout C.int64_t) C.int32_t {
	r := find(reactor)
	if r == nil {
		return badReactor
	}
	r.pace.turn(r.Now())
	countSamples()
	n, err := r.Turn(int64(timeout))
	r.ran.turned(r.shared, n)
	if err != nil {
		return result(err)
	}
	return C.int32_t(n)
}

//export goloop_flush_stream
func goloop_flush_stream(reactor C.int32_t, id, gen C.uint32_t) C.int32_t {
	r := find(reactor)
	if r == nil {
		return badReactor
	}
	defer r.hold().letGo()
	return result(r.FlushStream(uint32(id), uint32(gen)))
}

// goloop_flush_late is goloop_flush for the monitor, which has the reactor to itself.
//
//export goloop_flush_late
func goloop_flush_late(reactor C.int32_t) {
	if r := find(reactor); r != nil && !r.simulated {
		r.FlushFromMonitor()
	}
}

//export goloop_flush
func goloop_flush(reactor C.int32_t) C.int32_t {
	r := find(reactor)
	if r == nil {
		return badReactor
	}
	defer r.hold().letGo()
	r.Flush()
	return 0
}

// opened stores the name of a new registration.
func opened(id, gen uint32, err error, outID, outGen *C.uint32_t) C.int32_t {
	if err != nil {
		return result(err)
	}
	*outID, *outGen = C.uint32_t(id), C.uint32_t(gen)
	return 0
}

//export goloop_stream_open
func goloop_stream_open(reactor, fd C.int32_t, io *C.gl_stream_io, flags C.uint32_t, outID, outGen *C.uint32_t) C.int32_t {
	r := find(reactor)
	if r == nil {
		return badReactor
	}
	defer r.hold().letGo()
	id, gen, err := r.StreamOpen(int32(fd), (*netloop.StreamIO)(unsafe.Pointer(io)), uint32(flags))
	return opened(id, gen, err, outID, outGen)
}

//export goloop_unregister
func goloop_unregister(reactor C.int32_t, id, gen C.uint32_t) C.int32_t {
	r := find(reactor)
	if r == nil {
		return badReactor
	}
	defer r.hold().letGo()
	return result(r.Deregister(uint32(id), uint32(gen)))
}

//export goloop_datagram_open
func goloop_datagram_open(reactor, fd C.int32_t, owner *C.int32_t, want C.uint32_t, outID, outGen *C.uint32_t) C.int32_t {
	r := find(reactor)
	if r == nil {
		return badReactor
	}
	defer r.hold().letGo()
	id, gen, err := r.DatagramOpen(int32(fd), (*int32)(owner), uint32(want))
	return opened(id, gen, err, outID, outGen)
}

//export goloop_datagram_set
func goloop_datagram_set(reactor C.int32_t, id, gen, want C.uint32_t) C.int32_t {
	r := find(reactor)
	if r == nil {
		return badReactor
	}
	defer r.hold().letGo()
	return result(r.DatagramSet(uint32(id), uint32(gen), uint32(want)))
}

//export goloop_listener_open
func goloop_listener_open(reactor, fd C.int32_t, owner *C.int32_t, backlog C.int32_t, flags C.uint32_t, outID, outGen *C.uint32_t) C.int32_t {
	r := find(reactor)
	if r == nil {
		return badReactor
	}
	defer r.hold().letGo()
	id, gen, err := r.ListenerOpen(int32(fd), (*int32)(owner), int32(backlog), uint32(flags))
	return opened(id, gen, err, outID, outGen)
}

//export goloop_watch_open
func goloop_watch_open(reactor, fd C.int32_t, want, once C.uint32_t, outID, outGen *C.uint32_t) C.int32_t {
	r := find(reactor)
	if r == nil {
		return badReactor
	}
	defer r.hold().letGo()
	id, gen, err := r.WatchOpen(int32(fd), uint32(want), uint32(once))
	return opened(id, gen, err, outID, outGen)
}

//export goloop_watch_set
func goloop_watch_set(reactor C.int32_t, id, gen, want, once C.uint32_t) C.int32_t {
	r := find(reactor)
	if r == nil {
		return badReactor
	}
	defer r.hold().letGo()
	return result(r.WatchSet(uint32(id), uint32(gen), uint32(want), uint32(once)))
}
