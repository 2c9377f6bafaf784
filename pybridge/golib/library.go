// Command golib is the c-shared library libgoloop: the reactor and the API table that pybridge/abi.h
// describes. The build command is
//
//	go build -buildmode=c-shared -trimpath -buildvcs=false \
//	    -ldflags "-w -X runtime.godebugDefault=asyncpreemptoff=1,containermaxprocs=0,profstackdepth=0,
//	        gcshrinkstackoff=1
//	        -extldflags=-Wl,--wrap=pthread_getattr_np,--wrap=pthread_create,--wrap=mmap,--wrap=munmap,--version-script=$PWD/pybridge/golib/exports.map" \
//	    -o libgoloop.so.1 ./pybridge/golib
//
// The library exports one symbol, goloop_table (library_table.c, exports.map). runtime_first_thread_stack.c,
// runtime_thread.c and runtime_mapped_memory.c have the wrapped functions. Without asyncpreemptoff Go would
// preempt goroutines by SIGURG, which belongs to Python.
//
// The files of this folder are one package, because cgo needs that; the beginning of a name is the subject:
//
//	library_        the API table and the reactors; the mirror of abi.h; the lock shared with the monitor
//	runtime_        Go's runtime as a guest: threads, stacks, mapped memory, GOMAXPROCS; _runtime has changed
//	                files of Go's
//	monitor_        the thread that flushes late writes and takes samples, its alarms, lock and helper threads
//	watchdog        reports of iterations that last too long; package blockreport has the texts
//	profile         the samples' way into package profile, which has the profile and the flight recorder
//	introspection_  answers to clients, such as goloop top, without Python
//	trace           the trace of all loops for one client
//	system          systems other than the operating system, for threads that ask for one
//	pycode          a package: names and lines of Python's code objects, read without the GIL
//	jsontext        a package: strings as JSON
//
// This file converts C's arguments to Go's and Go's errors to -errno; netloop does the work. The file
// includes no Python.h, handles no signals and stores no pointer for longer than abi.h allows.
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

// main is required by a c-shared library and never runs.
func main() {}

// slot has a reactor. A reactor's number is the slot's index in the low half and a count of the slot's uses
// above, so the number of a closed reactor is never taken for the number of the slot's next reactor.
type slot struct {
	loop   *loop
	number int32
}

// loop is a reactor with the library's own state for it.
type loop struct {
	*netloop.Reactor
	shared     *netloop.Shared
	turnStart  turnCounters
	blockState blockState
	// isolated reactors have a system of one thread and with a clock of its own (newReactor): no other thread
	// may change anything.
	isolated bool
}

const (
	indexBits = 16
	maxSlots  = 1 << indexBits
	slotUses  = 1 << (31 - indexBits)
)

// slots is read without a lock. A change stores a changed copy.
var (
	slots   atomic.Pointer[[]slot]
	slotsMu sync.Mutex
)

// findReactor returns the reactor with a number, or nil.
func findReactor(number C.int32_t) *loop {
	all := slots.Load()
	if all == nil || number < 0 {
		return nil
	}
	i := int(number) % maxSlots
	if i >= len(*all) || (*all)[i].number != int32(number) {
		return nil
	}
	return (*all)[i].loop
}

// addReactor stores a reactor and returns its number, or -EMFILE if all slots are in use: the caller then
// closes the reactor. It also raises GOMAXPROCS if necessary, and a running trace records the new loop.
func addReactor(r *netloop.Reactor, shared *netloop.Shared, isolated bool) C.int32_t {
	l := &loop{Reactor: r, shared: shared, isolated: isolated}
	r.OnSlowIteration = l.recordSlowIteration
	slotsMu.Lock()
	defer slotsMu.Unlock()
	var all []slot
	if now := slots.Load(); now != nil {
		all = slices.Clone(*now)
	}
	i := slices.IndexFunc(all, func(p slot) bool { return p.loop == nil })
	switch {
	case i >= 0:
		use := (all[i].number/maxSlots + 1) % slotUses
		all[i] = slot{l, use*maxSlots + int32(i)}
	case len(all) == maxSlots:
		return -C.int32_t(syscall.EMFILE)
	default:
		i = len(all)
		all = append(all, slot{l, int32(i)})
	}
	slots.Store(&all)
	processTrace.openLoop(l)
	live := 0
	for _, p := range all {
		if p.loop != nil {
			live++
		}
	}
	raiseGOMAXPROCS(live)
	return C.int32_t(all[i].number)
}

// removeReactor removes the reactor with a number and returns it, or nil if there is none. The caller
// closes the reactor.
func removeReactor(number C.int32_t) *loop {
	slotsMu.Lock()
	defer slotsMu.Unlock()
	r := findReactor(number)
	if r == nil {
		return nil
	}
	all := slices.Clone(*slots.Load())
	all[int(number)%maxSlots].loop = nil
	slots.Store(&all)
	return r
}

// badReactor is the result of a function that gets the number of a closed reactor.
const badReactor = -C.int32_t(syscall.EBADF)

// negativeErrno converts an error to 0 or -errno.
func negativeErrno(err error) C.int32_t {
	if err == nil {
		return 0
	}
	return -C.int32_t(netloop.ErrnoOf(err))
}

// goloop_reactor_new creates a reactor for a shared block and returns its number or -errno. It is
// gl_table.reactor_new of abi.h; the functions below are the members of gl_table with the same names.
//
//export goloop_reactor_new
func goloop_reactor_new(shared *C.gl_shared) C.int32_t {
	block := (*netloop.Shared)(unsafe.Pointer(shared))
	r, isolated, err := newReactor(block)
	if err != nil {
		return negativeErrno(err)
	}
	number := addReactor(r, block, isolated)
	if number < 0 {
		r.Close()
	}
	return number
}

// goloop_reactor_close ends a reactor: its number becomes invalid, and its own descriptors are closed.
// Registered descriptors stay open. It returns 0 or -EBADF.
//
//export goloop_reactor_close
func goloop_reactor_close(reactor C.int32_t) C.int32_t {
	r := removeReactor(reactor)
	if r == nil {
		return badReactor
	}
	processTrace.closeLoop(r)
	r.Close()
	return 0
}

// goloop_turn makes one turn and returns the number of completions or -errno. timeout is in ns; < 0:
// without limit. Before the turn it adds pending samples to the profile.
//
//export goloop_turn
func goloop_turn(reactor C.int32_t, timeout C.int64_t) C.int32_t {
	r := findReactor(reactor)
	if r == nil {
		return badReactor
	}
	countSamples()
	n, err := r.Turn(int64(timeout))
	r.turnStart.endTurn(r.shared, n)
	if err != nil {
		return negativeErrno(err)
	}
	return C.int32_t(n)
}

// goloop_flush_stream decodes all submissions and sends the pending writes of all streams. It returns 0, or
// -errno if this stream's send failed; -ENOENT if its registration has ended.
//
//export goloop_flush_stream
func goloop_flush_stream(reactor C.int32_t, id, gen C.uint32_t) C.int32_t {
	r := findReactor(reactor)
	if r == nil {
		return badReactor
	}
	defer r.lockShared().unlockShared()
	return negativeErrno(r.FlushStream(uint32(id), uint32(gen)))
}

// goloop_flush_late decodes all submissions and sends the pending writes, for the monitor, which has locked
// the shared block. It does nothing for a closed or an isolated reactor.
//
//export goloop_flush_late
func goloop_flush_late(reactor C.int32_t) {
	if r := findReactor(reactor); r != nil && !r.isolated {
		r.FlushFromMonitor()
	}
}

// goloop_flush decodes all submissions and sends the pending writes of all streams. It returns 0 or -EBADF;
// the next turn reports errors of streams.
//
//export goloop_flush
func goloop_flush(reactor C.int32_t) C.int32_t {
	r := findReactor(reactor)
	if r == nil {
		return badReactor
	}
	defer r.lockShared().unlockShared()
	r.Flush()
	return 0
}

// storeIDs stores the id and the generation of a new registration and returns 0. If there is an error, it
// stores nothing and returns -errno.
func storeIDs(id, gen uint32, err error, outID, outGen *C.uint32_t) C.int32_t {
	if err != nil {
		return negativeErrno(err)
	}
	*outID, *outGen = C.uint32_t(id), C.uint32_t(gen)
	return 0
}

// goloop_stream_open registers a stream. The only flag is GL_OPEN_WATCH_END. It stores the new
// registration's id and generation in outID and outGen and returns 0, or returns -errno.
//
//export goloop_stream_open
func goloop_stream_open(reactor, fd C.int32_t, io *C.gl_stream_io, flags C.uint32_t, outID, outGen *C.uint32_t) C.int32_t {
	r := findReactor(reactor)
	if r == nil {
		return badReactor
	}
	defer r.lockShared().unlockShared()
	id, gen, err := r.StreamOpen(int32(fd), (*netloop.StreamIO)(unsafe.Pointer(io)), uint32(flags))
	return storeIDs(id, gen, err, outID, outGen)
}

// goloop_unregister ends a registration of any kind. Pending writes are not sent. It returns 0, or -ENOENT
// if the registration has already ended.
//
//export goloop_unregister
func goloop_unregister(reactor C.int32_t, id, gen C.uint32_t) C.int32_t {
	r := findReactor(reactor)
	if r == nil {
		return badReactor
	}
	defer r.lockShared().unlockShared()
	return negativeErrno(r.Deregister(uint32(id), uint32(gen)))
}

// goloop_datagram_open registers a datagram socket. want: GL_READABLE receives, GL_WRITABLE reports
// readiness to send. It stores the registration in outID and outGen and returns 0, or returns -errno.
//
//export goloop_datagram_open
func goloop_datagram_open(reactor, fd C.int32_t, owner *C.int32_t, want C.uint32_t, outID, outGen *C.uint32_t) C.int32_t {
	r := findReactor(reactor)
	if r == nil {
		return badReactor
	}
	defer r.lockShared().unlockShared()
	id, gen, err := r.DatagramOpen(int32(fd), (*int32)(owner), uint32(want))
	return storeIDs(id, gen, err, outID, outGen)
}

// goloop_datagram_set replaces the directions of a datagram socket. It returns 0 or -errno: -ENOENT if the
// registration has ended.
//
//export goloop_datagram_set
func goloop_datagram_set(reactor C.int32_t, id, gen, want C.uint32_t) C.int32_t {
	r := findReactor(reactor)
	if r == nil {
		return badReactor
	}
	defer r.lockShared().unlockShared()
	return negativeErrno(r.DatagramSet(uint32(id), uint32(gen), uint32(want)))
}

// goloop_listener_open registers a listening socket. The only flag is GL_LISTEN_NODELAY. It stores the
// registration in outID and outGen and returns 0, or returns -errno.
//
//export goloop_listener_open
func goloop_listener_open(reactor, fd C.int32_t, owner *C.int32_t, backlog C.int32_t, flags C.uint32_t, outID, outGen *C.uint32_t) C.int32_t {
	r := findReactor(reactor)
	if r == nil {
		return badReactor
	}
	defer r.lockShared().unlockShared()
	id, gen, err := r.ListenerOpen(int32(fd), (*int32)(owner), int32(backlog), uint32(flags))
	return storeIDs(id, gen, err, outID, outGen)
}

// goloop_watch_open registers a watch. want: directions to report in each turn; once: directions to report
// a single time. It stores the registration's id and generation in outID and outGen and returns 0, or
// returns -errno.
//
//export goloop_watch_open
func goloop_watch_open(reactor, fd C.int32_t, want, once C.uint32_t, outID, outGen *C.uint32_t) C.int32_t {
	r := findReactor(reactor)
	if r == nil {
		return badReactor
	}
	defer r.lockShared().unlockShared()
	id, gen, err := r.WatchOpen(int32(fd), uint32(want), uint32(once))
	return storeIDs(id, gen, err, outID, outGen)
}

// goloop_watch_set replaces both sets of directions of a watch. It returns 0 or -errno: -ENOENT if the
// registration has ended, -EEXIST if the number belongs to a transport now.
//
//export goloop_watch_set
func goloop_watch_set(reactor C.int32_t, id, gen, want, once C.uint32_t) C.int32_t {
	r := findReactor(reactor)
	if r == nil {
		return badReactor
	}
	defer r.lockShared().unlockShared()
	return negativeErrno(r.WatchSet(uint32(id), uint32(gen), uint32(want), uint32(once)))
}
