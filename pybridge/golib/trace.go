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
	"github.com/goloop/goloop/pybridge/golib/jsontext"
	"github.com/goloop/goloop/pybridge/golib/pycode"
	"golang.org/x/sys/unix"
)

// The trace records the actions of loops. While a client asks for it, each loop has a ring of records,
// which C fills (core/observe/trace.c). A C thread (monitor_helper_threads.c) repeatedly calls this file,
// which sends the new records unchanged. goloop/operations/commands/trace.py converts them to JSON in the
// client's process.
//
//	after one line of JSON:  frame ... frame
//	frame:  uint32 kind, uint32 length, int32 loop, uint32 thread; then the bytes
//
// Only the names of addresses are added here, once a second at most for each, because the client's process
// can't read this process's memory.

const (
	frameEnd     = 0
	frameRecords = 1 // uint64: number of records lost before these; the records
	frameNames   = 2 // JSON: {address: [function, file, line] or text}
	frameClock   = 3 // uint64 ticks, int64 ns of CLOCK_MONOTONIC
	frameHead    = 16

	maxTraceWait      = 50   // ms between two parts
	unreadableRecords = 64   // records that C may be writing
	maxKnownNames     = 1024 // names remembered at one time
	namesInterval     = 1_000_000_000

	recordSize = int(unsafe.Sizeof(netloop.Record{}))
	ringSize   = int(unsafe.Sizeof(netloop.Trace{}))
	addresses  = 1<<48 - 1
)

// ring is the ring of records of one loop.
type ring struct {
	memory []byte // from mmap; never unmapped, because C may still write to it, but its pages are freed
	read   uint64 // number of records that were sent
}

// trace returns the ring's memory as C uses it.
func (r *ring) trace() *netloop.Trace { return (*netloop.Trace)(unsafe.Pointer(&r.memory[0])) }

// tracer is the trace of the process. The mutex protects all fields.
type tracer struct {
	sync.Mutex
	on    bool // a client traces the process
	rings map[*loop]*ring
	spare []*ring             // rings of closed loops, for the next ones
	out   []byte              // bytes to send
	known map[uint64]struct{} // addresses with names that were sent after `since`
	since int64
	at    int64 // ns: time of the last part
}

// processTrace is the only trace of the process.
var processTrace = &tracer{rings: map[*loop]*ring{}, known: map[uint64]struct{}{}}

// openLoop gives a ring to a loop if a client traces the process. C writes records from now on. An isolated
// loop is not traced, and a loop without a ring for lack of memory neither.
func (t *tracer) openLoop(l *loop) {
	t.Lock()
	defer t.Unlock()
	if !t.on || l.isolated {
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
	if atomic.LoadInt64(&l.shared.Ran) < 0 { // the loop runs, and its current action began before
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

// closeLoop copies the last records of a loop that is closed, and takes its ring away. It does nothing for
// a loop without a ring.
func (t *tracer) closeLoop(l *loop) {
	t.Lock()
	defer t.Unlock()
	if r := t.rings[l]; r != nil {
		t.copyRecords(l, r)
		t.stopRing(l, r)
	}
}

// stopRing takes a loop's ring away: C writes no more records, and the next loop may use the ring. The
// caller has locked the tracer.
func (t *tracer) stopRing(l *loop, r *ring) {
	atomic.StoreUintptr(&l.shared.Trace, 0)
	delete(t.rings, l)
	_ = unix.Madvise(r.memory, unix.MADV_DONTNEED)
	t.spare = append(t.spare, r)
}

// beginFrame appends the head of a frame to the output. number is the loop's. The caller appends the bytes
// of the frame and then calls end, which stores their length.
func (t *tracer) beginFrame(kind uint32, number int32, thread uint32) (end func()) {
	at := len(t.out)
	for _, word := range []uint32{kind, 0, uint32(number), thread} {
		t.out = binary.LittleEndian.AppendUint32(t.out, word)
	}
	return func() { binary.LittleEndian.PutUint32(t.out[at+4:], uint32(len(t.out)-at-frameHead)) }
}

// addClock appends a frame with one instant in both clocks, ticks and CLOCK_MONOTONIC, and sets t.at.
func (t *tracer) addClock() {
	end := t.beginFrame(frameClock, 0, 0)
	at, apart := uint64(0), uint64(math.MaxUint64)
	for range 3 { // use the closest pair: the thread may lose its processor between the two clocks
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

// monotonic returns the time of the monitor's clock in ns.
func monotonic() int64 {
	return int64(C.monitor_now()) // the clock of all other times, also if it is not the kernel's
}

// copyRecords appends the new records of a loop's ring and the names in them to the output. It returns the
// number of new records, including lost ones. The caller has locked the tracer.
func (t *tracer) copyRecords(l *loop, r *ring) uint64 {
	const readable, mask = netloop.TraceRecords - unreadableRecords, netloop.TraceRecords - 1
	trace := r.trace()
	written := atomic.LoadUint64(&trace.Written)
	count := written - r.read
	if count == 0 {
		return 0
	}
	lost := uint64(0)
	if count > readable {
		lost = count - readable
	}
	end := t.beginFrame(frameRecords, int32(atomic.LoadUint32(&l.shared.Number)), l.shared.NativeThread)
	at := len(t.out)
	t.out = binary.LittleEndian.AppendUint64(t.out, 0)
	for i := r.read + lost; i < written; {
		n := min(written-i, netloop.TraceRecords-i&mask)
		first := (*byte)(unsafe.Pointer(&trace.Record[i&mask]))
		t.out = append(t.out, unsafe.Slice(first, int(n)*recordSize)...)
		i += n
	}
	// Records that C has overwritten during the copy are lost, too.
	if after := atomic.LoadUint64(&trace.Written); after-r.read > lost+readable {
		more := min(after-r.read-readable-lost, count-lost)
		t.out = append(t.out[:at+8], t.out[at+8+int(more)*recordSize:]...)
		lost += more
	}
	binary.LittleEndian.PutUint64(t.out[at:], lost)
	end()
	r.read = written
	t.addNames(l, at+8, len(t.out))
	return count
}

// addNames appends a frame with the names of the addresses in the records between two offsets of the
// output, except for names that were sent recently. Without such addresses it appends nothing.
func (t *tracer) addNames(l *loop, from, to int) {
	if t.at-t.since > namesInterval || len(t.known) > maxKnownNames {
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
			c, state := pycode.Read(py, word, pycode.MaxName, 2*pycode.MaxName)
			if state != pycode.IsCode {
				c.Function = "?"
			}
			text = jsontext.AppendPlace(text, c.Function, c.File, int64(c.Head[3]))
		} else {
			text = jsontext.AppendString(text, readName(word))
		}
	}
	if len(text) > 0 {
		end := t.beginFrame(frameNames, 0, 0)
		t.out = append(append(t.out, '{'), append(text[1:], '}')...)
		end()
	}
}

// readName reads a C string, cut to about pycode.MaxName bytes. If a part cannot be read, it returns the part
// before.
func readName(address uint64) string {
	var text []byte
	for len(text) < pycode.MaxName {
		var part [16]byte
		n := 16 - address%16 // never across a page
		if !pycode.ReadMemory(address, part[:n]) {
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

// goloop_trace_start starts a thread that sends a trace to a connected client and closes the connection at
// the end. It returns 0, or -errno if the thread cannot be started: then the connection stays open and
// belongs to the caller.
//
//export goloop_trace_start
func goloop_trace_start(fd C.int32_t) C.int32_t {
	return -C.int32_t(C.monitor_start_trace(fd))
}

// goloop_trace_begin starts a trace for a connected client. It returns as goloop_trace_continue does.
//
//export goloop_trace_begin
func goloop_trace_begin(fd C.int32_t) C.int32_t { return beginTrace(int(fd)) }

// beginTrace starts a trace for a connected client and sends the first part, or answers with an error and
// closes the connection if another client has a trace. It returns as goloop_trace_continue does.
func beginTrace(client int) C.int32_t {
	head := strconv.AppendInt([]byte(`{"protocol":1,"pid":`), int64(unix.Getpid()), 10)
	processTrace.Lock()
	busy := processTrace.on
	processTrace.on = true
	processTrace.Unlock()
	if busy {
		sendAll(client, append(head, `,"error":"a trace of this process is already running, and a process can have only one"}`...))
		closeClient(client)
		return -1
	}
	processTrace.Lock()
	processTrace.out = append(head, ",\"trace\":1}\n"...)
	processTrace.since = 0
	processTrace.addClock()
	processTrace.Unlock()
	slotsMu.Lock()
	if all := slots.Load(); all != nil {
		for _, each := range *all {
			if each.loop != nil {
				processTrace.openLoop(each.loop)
			}
		}
	}
	slotsMu.Unlock()
	return goloop_trace_continue(C.int32_t(client), 0)
}

// goloop_trace_continue sends the new records. `ended` is not 0 if the client has sent something or has
// closed the connection: then it sends the last records. At the end of a trace, also if the client is gone
// or does not read, it takes the rings of all loops away and closes the connection. It returns the ms to
// wait for the client before the next call, or -1 at the end of the trace.
//
//export goloop_trace_continue
func goloop_trace_continue(fd, ended C.int32_t) C.int32_t {
	t := processTrace
	t.Lock()
	before, maxRecords := t.at, uint64(1)
	if ended != 0 {
		for l := range t.rings {
			atomic.StoreUintptr(&l.shared.Trace, 0)
		}
	}
	t.addClock()
	for l, r := range t.rings {
		maxRecords = max(maxRecords, t.copyRecords(l, r))
	}
	if ended != 0 {
		t.beginFrame(frameEnd, 0, 0)
	}
	out := t.out
	t.out = nil
	wait := (t.at - before) / 1_000_000 * (netloop.TraceRecords / 4) / int64(maxRecords)
	t.Unlock()
	if sendAll(int(fd), out) && ended == 0 {
		return C.int32_t(min(max(wait, 1), maxTraceWait))
	}
	t.Lock()
	for l, r := range t.rings {
		t.stopRing(l, r)
	}
	t.on, t.out = false, nil
	clear(t.known)
	t.Unlock()
	closeClient(int(fd))
	return -1
}
