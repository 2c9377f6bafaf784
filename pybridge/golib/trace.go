package main

/*
#include "monitor.h"
*/
import "C"

import (
	"encoding/binary"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/goloop/goloop/netloop"
	"golang.org/x/sys/unix"
)

// The trace: what loops do, record by record. While a client asks for it, each loop has a ring in which
// C notes (core/observe/trace.c); a thread of C's (monitor.c) comes here again and again, and what is
// new goes to the client as it is. operations/commands/trace.py makes JSON of it.
//
//	after one line of JSON:  frame ... frame
//	frame:  uint32 kind, uint32 length, int32 loop, uint32 thread; then so many bytes
//
// Only what an address names is told here, once a second at most, as the other process can't read it.

const (
	frameEnd     = 0
	frameRecords = 1 // uint64: so many were lost before these; the records
	frameNames   = 2 // JSON: {address: [function, file, line] or text}
	frameClock   = 3 // uint64 ticks, int64 ns of CLOCK_MONOTONIC
	frameHead    = 16

	traceWaitMost = 50   // ms between two looks
	traceLate     = 64   // records that C may be at work on
	traceMost     = 1024 // names that are known at once
	again         = 1_000_000_000

	recordSize = int(unsafe.Sizeof(netloop.Record{}))
	ringSize   = int(unsafe.Sizeof(netloop.Trace{}))
	addresses  = 1<<48 - 1
)

type ring struct {
	memory []byte // of the system; what C may still write to is never given back, but its pages are
	read   uint64
}

func (r *ring) trace() *netloop.Trace { return (*netloop.Trace)(unsafe.Pointer(&r.memory[0])) }

type tracer struct {
	sync.Mutex
	on    bool
	rings map[*loop]*ring
	spare []*ring
	out   []byte
	known map[uint64]struct{} // addresses that were told since `since`
	since int64
	at    int64 // ns: the last look
}

var traced = &tracer{rings: map[*loop]*ring{}, known: map[uint64]struct{}{}}

// opened is called for a loop that is new.
func (t *tracer) opened(l *loop) {
	t.Lock()
	defer t.Unlock()
	if !t.on || l.simulated {
		return
	}
	var r *ring
	if n := len(t.spare); n > 0 {
		r, t.spare = t.spare[n-1], t.spare[:n-1]
	} else if memory, err := unix.Mmap(-1, 0, ringSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_ANON|unix.MAP_PRIVATE); err == nil {
		r = &ring{memory: memory}
	} else {
		return
	}
	trace := r.trace()
	r.read, trace.Written = 0, 0
	if atomic.LoadInt64(&l.shared.Ran) < 0 { // it runs; what it does now has begun before
		kind := uint64(netloop.TraceTurn)
		if atomic.LoadUint32(&l.shared.LoopActive) != 0 {
			kind = netloop.TraceCall
		}
		trace.Record[0] = netloop.Record{Ticks: uint64(C.gl_ticks()), What: kind << 60}
		trace.Written = 1
	}
	t.rings[l] = r
	atomic.StoreUintptr(&l.shared.Trace, uintptr(unsafe.Pointer(trace)))
}

// closed takes what a loop has noted.
func (t *tracer) closed(l *loop) {
	t.Lock()
	defer t.Unlock()
	if r := t.rings[l]; r != nil {
		t.take(l, r)
		t.leave(l, r)
	}
}

func (t *tracer) leave(l *loop, r *ring) {
	atomic.StoreUintptr(&l.shared.Trace, 0)
	delete(t.rings, l)
	_ = unix.Madvise(r.memory, unix.MADV_DONTNEED)
	t.spare = append(t.spare, r)
}

func (t *tracer) frame(kind uint32, number int32, thread uint32) (end func()) {
	at := len(t.out)
	for _, word := range []uint32{kind, 0, uint32(number), thread} {
		t.out = binary.LittleEndian.AppendUint32(t.out, word)
	}
	return func() { binary.LittleEndian.PutUint32(t.out[at+4:], uint32(len(t.out)-at-frameHead)) }
}

func (t *tracer) clock() {
	end := t.frame(frameClock, 0, 0)
	at, apart := uint64(0), uint64(math.MaxUint64)
	for range 3 { // a pair is no good where this thread lost its processor in between
		before := uint64(C.gl_ticks())
		now := monotonic()
		if after := uint64(C.gl_ticks()); after-before < apart {
			at, apart, t.at = before+(after-before)/2, after-before, now
		}
	}
	t.out = binary.LittleEndian.AppendUint64(t.out, at)
	t.out = binary.LittleEndian.AppendUint64(t.out, uint64(t.at))
	end()
}

func monotonic() int64 {
	return int64(C.monitor_now()) // the clock of the other times, where it is not the kernel's
}

// take adds what is new in a ring to the output; it returns how many records that were, lost ones too.
func (t *tracer) take(l *loop, r *ring) uint64 {
	const room, mask = netloop.TraceRecords - traceLate, netloop.TraceRecords - 1
	trace := r.trace()
	written := atomic.LoadUint64(&trace.Written)
	count := written - r.read
	if count == 0 {
		return 0
	}
	lost := uint64(0)
	if count > room {
		lost = count - room
	}
	end := t.frame(frameRecords, int32(atomic.LoadUint32(&l.shared.Number)), l.shared.NativeThread)
	at := len(t.out)
	t.out = binary.LittleEndian.AppendUint64(t.out, 0)
	for i := r.read + lost; i < written; {
		n := min(written-i, netloop.TraceRecords-i&mask)
		first := (*byte)(unsafe.Pointer(&trace.Record[i&mask]))
		t.out = append(t.out, unsafe.Slice(first, int(n)*recordSize)...)
		i += n
	}
	// What C has overwritten meanwhile is lost, too.
	if after := atomic.LoadUint64(&trace.Written); after-r.read > lost+room {
		more := min(after-r.read-room-lost, count-lost)
		t.out = append(t.out[:at+8], t.out[at+8+int(more)*recordSize:]...)
		lost += more
	}
	binary.LittleEndian.PutUint64(t.out[at:], lost)
	end()
	r.read = written
	t.names(l, at+8, len(t.out))
	return count
}

// names tells what the addresses in records of the output name, which begin and end there.
func (t *tracer) names(l *loop, from, to int) {
	if t.at-t.since > again || len(t.known) > traceMost {
		clear(t.known)
		t.since = t.at
	}
	var text []byte
	before := uint64(0)
	for ; from < to; from += recordSize {
		word := binary.NativeEndian.Uint64(t.out[from+8:])
		kind := word >> 60
		switch {
		case kind != netloop.TraceMore:
		case before == netloop.TraceTask:
			word = binary.NativeEndian.Uint64(t.out[from:])
		case before == netloop.TraceMade || before == netloop.TraceLost:
			word = binary.NativeEndian.Uint64(t.out[from:]) | netloop.TraceNative<<60
		}
		before = kind
		kind, word = word>>60, word&addresses
		if kind != netloop.TraceCall && kind != netloop.TraceNative && kind != netloop.TraceEvent || word == 0 {
			continue
		}
		if _, ok := t.known[word]; ok {
			continue
		}
		t.known[word] = struct{}{}
		text = append(strconv.AppendUint(append(text, `,"`...), word, 10), `":`...)
		if kind == netloop.TraceCall {
			py := (*netloop.Python)(unsafe.Pointer((*C.gl_shared)(unsafe.Pointer(l.shared)).python))
			c, state := readCode(py, word, nameRoom, 2*nameRoom)
			if state != isCode {
				c.function = "?"
			}
			text = appendPlace(text, c.function, c.file, int64(c.head[3]))
		} else {
			text = appendJSON(text, readName(word))
		}
	}
	if len(text) > 0 {
		end := t.frame(frameNames, 0, 0)
		t.out = append(append(t.out, '{'), append(text[1:], '}')...)
		end()
	}
}

// readName reads a string of C, cut; nobody knows whether it is one.
func readName(address uint64) string {
	var text []byte
	for len(text) < nameRoom {
		var part [16]byte
		n := 16 - address%16 // never beyond a page
		if !readMemory(address, part[:n]) {
			break
		}
		for _, c := range part[:n] {
			if c == 0 {
				return string(text)
			}
			text = append(text, c)
		}
		address += n
	}
	return string(text)
}

// goloop_trace_start starts a thread that sends a trace to a connected client. Returns 0 or -errno.
//
//export goloop_trace_start
func goloop_trace_start(fd C.int32_t) C.int32_t {
	return -C.int32_t(C.monitor_start_trace(fd))
}

// goloop_trace_begin sends the head of a trace. Returns as goloop_trace_goes_on does.
//
//export goloop_trace_begin
func goloop_trace_begin(fd C.int32_t) C.int32_t { return beginTrace(int(fd)) }

// beginTrace gives a client a trace; as goloop_trace_goes_on.
func beginTrace(asker int) C.int32_t {
	head := strconv.AppendInt([]byte(`{"protocol":1,"pid":`), int64(unix.Getpid()), 10)
	traced.Lock()
	busy := traced.on
	traced.on = true
	traced.Unlock()
	if busy {
		sendAll(asker, append(head, `,"error":"somebody traces it already"}`...))
		hangUp(asker)
		return -1
	}
	traced.Lock()
	traced.out = append(head, ",\"trace\":1}\n"...)
	traced.since = 0
	traced.clock()
	traced.Unlock()
	placesMu.Lock()
	if all := places.Load(); all != nil {
		for _, each := range *all {
			if each.loop != nil {
				traced.opened(each.loop)
			}
		}
	}
	placesMu.Unlock()
	return goloop_trace_goes_on(C.int32_t(asker), 0)
}

// goloop_trace_goes_on sends what is new. It returns how many ms to wait for the client, or -1 for the
// end, which has come where the client has sent or closed something.
//
//export goloop_trace_goes_on
func goloop_trace_goes_on(fd, ended C.int32_t) C.int32_t {
	t := traced
	t.Lock()
	before, most := t.at, uint64(1)
	if ended != 0 {
		for l := range t.rings {
			atomic.StoreUintptr(&l.shared.Trace, 0)
		}
	}
	t.clock()
	for l, r := range t.rings {
		most = max(most, t.take(l, r))
	}
	if ended != 0 {
		t.frame(frameEnd, 0, 0)
	}
	out := t.out
	t.out = nil
	wait := (t.at - before) / 1_000_000 * (netloop.TraceRecords / 4) / int64(most)
	t.Unlock()
	if sendAll(int(fd), out) && ended == 0 {
		return C.int32_t(min(max(wait, 1), traceWaitMost))
	}
	t.Lock()
	for l, r := range t.rings {
		t.leave(l, r)
	}
	t.on, t.out = false, nil
	clear(t.known)
	t.Unlock()
	hangUp(int(fd))
	return -1
}
