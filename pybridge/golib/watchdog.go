package main

/*
#include <signal.h>
#include <stdlib.h>
#include "monitor.h"
#include "thread.h"

void *goloop_write_texts(void *unused);

static inline int start_writer(void) { return thread_start(goloop_write_texts, NULL); }

static inline void name_writer(void) { thread_set_name(STDERR_THREAD_NAME); }

static inline void end_process(int has_written) {
	if (!has_written)
		signal(SIGABRT, SIG_DFL);
	abort();
}

static inline int32_t walk(gl_shared *sh, void *thread, gl_raw_frame *to) { return sh->watchdog->walk(thread, to, GL_FRAMES); }

static inline void *gil_holder(gl_shared *sh) { return sh->watchdog->holder(); }
*/
import "C"

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/goloop/goloop/netloop"
	"golang.org/x/sys/unix"
)

// The watchdog tells Python of an iteration of a loop that lasts too long, while it lasts.
//
//	quiet --now - shared.now > limit--> seen: the stack is noted, a thread waits for the GIL
//	  ^                                 | ^
//	  |  the iteration ends, and C      | | at 2, 4 and 8 times the limit
//	  |  tells it                       v |
//	  +------------------------------- insisted: half a limit later the log has no report. A text
//	                                      |      goes to stderr, without the GIL
//	                                      v blocked_end: a last text, and the process ends
//
// It runs on the monitor's thread alone, with its lock: so nothing here waits for anybody.

const (
	textMost   = 8192 // bytes: a stack of 48 frames, and another one
	outputMost = 4 * textMost
	// Python has so long to report, at least: each thread that computes keeps the GIL for 5 ms.
	grace = 100_000_000 // ns
	// A process that gives up leaves stderr so many times lastWait.
	lastWords = 100
	lastWait  = 10 * time.Millisecond
	// A chain of frames that breaks, because its thread runs on, is walked again.
	walksMost = 5
	walkPause = 50 * time.Microsecond
	// Bytes of names in a report.
	functionMost, fileMost = 192, 256
)

// output is what stderr is to get. It may take nothing: a pipe that nobody reads, a terminal after
// Ctrl-S. It is other processes', too, so that it can't be made non-blocking. So texts wait here for
// a thread that writes them, as long as there are any; what finds no room is dropped, and counted.
var output struct {
	sync.Mutex
	writing bool // the thread is there
	text    []byte
	dropped uint64 // texts, since the last that found room
}

// goloop_write_texts is that thread.
//
//export goloop_write_texts
func goloop_write_texts(unsafe.Pointer) unsafe.Pointer {
	C.name_writer()
	for {
		output.Lock()
		text := output.text
		output.text = nil
		output.writing = len(text) > 0
		output.Unlock()
		if len(text) == 0 {
			return nil
		}
		for len(text) > 0 {
			n, err := unix.Write(unix.Stderr, text)
			if n <= 0 || err != nil {
				break
			}
			text = text[n:]
		}
	}
}

func writeText(text []byte, json bool) {
	output.Lock()
	defer output.Unlock()
	var before []byte
	if output.dropped > 0 {
		before = []byte("goloop: reports for which stderr had no room: ")
		end := "\n"
		if json {
			before, end = []byte(`{"logger":"goloop","reports_dropped":`), "}\n"
		}
		before = append(strconv.AppendUint(before, output.dropped, 10), end...)
	}
	if len(output.text)+len(before)+len(text) <= outputMost &&
		(output.writing || C.start_writer() == 0) {
		output.writing = true
		output.text = append(append(output.text, before...), text...)
		output.dropped = 0
	} else {
		output.dropped++
	}
}

func textsAreWritten() bool {
	output.Lock()
	defer output.Unlock()
	return !output.writing
}

// spell is what is known of a loop's present block, or of its last.
type spell struct {
	sync.Mutex        // the monitor writes, and Python asks
	since, cpu int64  // the iteration that is watched, and the thread's processor time then, or -1
	begun      uint64 // its callbacks at the last tick,
	begunAt    int64  // and when the last of them was new
	holder     unsafe.Pointer
	held       bool // one thread, the holder, has had the GIL at each tick since the last look
	serial     uint64
	callback   int64 // ns that the callback of the last look had lasted
	looks      uint32
	insisted   uint32 // for so many looks it was asked whether stderr gets a text
	stacks     [netloop.BlockStacks + 1]noted
}

// noted is a stack, innermost first; the last of a spell is the holder's.
type noted struct {
	ns     int64 // since the iteration began
	frames []frame
}

// callbacksBegun tells how many callbacks the loop has begun since the poll.
func (l *loop) callbacksBegun() uint64 {
	sh := (*C.gl_shared)(unsafe.Pointer(l.shared))
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(sh.popped))) - atomic.LoadUint64(&l.ran.popped) +
		uint64(atomic.LoadUint32((*uint32)(unsafe.Pointer(sh.handed))))
}

// cpu is the processor time of the loop's thread in ns, or -1.
func (l *loop) cpu() int64 {
	var t unix.Timespec
	clock := atomic.LoadInt32(&l.shared.Clock)
	if clock == 0 || unix.ClockGettime(clock, &t) != nil {
		return -1
	}
	return t.Nano()
}

// watch notes at each tick what a later look tells.
func (l *loop) watch(since, now int64) {
	s, begun := &l.spell, l.callbacksBegun()
	holder := C.gil_holder((*C.gl_shared)(unsafe.Pointer(l.shared)))
	s.Lock()
	defer s.Unlock()
	if s.since != since {
		s.since, s.begunAt, s.cpu = since, since, l.cpu()
	} else if begun != s.begun {
		s.begunAt = now
	}
	s.begun = begun
	s.held = s.held && holder == s.holder
}

// stackOf reads a thread's stack, innermost first; false: Python has ended.
func stackOf(shared *C.gl_shared, thread unsafe.Pointer) ([]frame, bool) {
	var raw [C.GL_FRAMES]netloop.RawFrame
	for range walksMost {
		n := int(C.walk(shared, thread, (*C.gl_raw_frame)(unsafe.Pointer(&raw[0]))))
		if n == -2 {
			return nil, false
		}
		if n >= 0 {
			if frames, ok := nameFrames((*netloop.Python)(unsafe.Pointer(shared.python)), raw[:n]); ok {
				return frames, true
			}
		}
		time.Sleep(walkPause)
	}
	return nil, true
}

// nameFrames leaves out those that are none of Python's; false where one is nonsense.
func nameFrames(py *netloop.Python, raw []netloop.RawFrame) (frames []frame, ok bool) {
	for _, f := range raw {
		c, state := readCode(py, f.Code, functionMost, fileMost)
		switch state {
		case isNonsense:
			return nil, false
		case isCode:
			line := readLine(py, &c, f.Code, f.Instruction)
			frames = append(frames, frame{c.function, c.file, int(line)})
		}
	}
	return frames, true
}

// note notes what the thread does as the look of that number, or as number BlockStacks what another one
// does that has the GIL. False where Python has ended: nothing is to be reported any more.
func (l *loop) note(serial uint64, look uint32) bool {
	s, shared := &l.spell, (*C.gl_shared)(unsafe.Pointer(l.shared))
	holder, thread := C.gil_holder(shared), atomic.LoadPointer((*unsafe.Pointer)(unsafe.Pointer(&l.shared.Thread)))
	if look == netloop.BlockStacks {
		if holder == thread {
			holder = nil
		}
		thread = holder
	}
	frames, lives := []frame(nil), true
	if thread != nil {
		frames, lives = stackOf(shared, thread)
	}
	if !lives {
		return false
	}
	now := monotonic()
	s.Lock()
	defer s.Unlock()
	if look < netloop.BlockStacks {
		s.serial, s.looks = serial, look+1
		s.holder, s.held = holder, holder != nil
		s.callback = now - s.begunAt
		s.stacks[netloop.BlockStacks] = noted{}
	}
	s.stacks[look] = noted{now - s.since, frames}
	return true
}

// goloop_watch looks at a loop whose iteration has lasted for some time: `began` is what shared.now
// was when the monitor read it, and ns of the time since then are the loop's to blame. The iteration
// may have ended meanwhile, so shared.now is not read a second time.
//
//export goloop_watch
func goloop_watch(reactor C.int32_t, began, ns, now C.int64_t) {
	l := find(reactor)
	if l == nil {
		return
	}
	sh, s := l.shared, &l.spell
	limit, end := atomic.LoadInt64(&sh.BlockedLimit), atomic.LoadInt64(&sh.BlockedEnd)
	since, lasted := int64(began), int64(ns)
	if end > 0 && lasted >= end {
		l.giveUp(lasted)
	}
	if limit <= 0 {
		return
	}
	l.watch(since, int64(now))
	known, looks := atomic.LoadInt64(&sh.BlockedSince) == since, uint32(0)
	if known {
		looks = s.looks
	}
	due := limit
	if s.insisted > 0 {
		due = limit << (looks - 1)
	}
	if looks < netloop.BlockStacks && lasted >= limit<<looks {
		l.look(reactor, since, looks)
	} else if known && s.insisted < looks && lasted >= due+max(limit/2, grace) {
		if told := atomic.LoadUint32(&sh.ReportState); told != netloop.ReportLogged {
			l.insist(lasted, told, false)
		}
		s.insisted = looks
	}
}

// look notes what the loop's thread does, and has it reported.
func (l *loop) look(reactor C.int32_t, since int64, number uint32) {
	sh := l.shared
	serial, told := sh.Metrics.BlockedSpells, uint32(netloop.ReportLogged)
	if number == 0 {
		serial++
	} else {
		told = atomic.LoadUint32(&sh.ReportState)
	}
	if !l.note(serial, number) {
		return
	}
	atomic.StoreUint64(&sh.Metrics.BlockedSpells, serial)
	if number == 0 {
		l.spell.insisted = 0
	}
	if told == netloop.ReportLogged {
		atomic.StoreUint32(&sh.ReportState, 0)
	}
	atomic.StoreInt64(&sh.BlockedSince, since)
	if told != 0 { // else the thread of the last look still waits
		C.monitor_reports(reactor, (*C.gl_shared)(unsafe.Pointer(sh)))
	}
}

// insist writes a text to stderr; told is shared.report_state.
func (l *loop) insist(ns int64, told uint32, givesUp bool) {
	if l.spell.held {
		l.note(l.shared.Metrics.BlockedSpells, netloop.BlockStacks)
	}
	if text := l.blockText(ns, told, givesUp); len(text) > 0 {
		writeText(text, l.shared.Flags&netloop.JSON != 0)
	}
}

// giveUp ends the process, whether stderr takes a text or not.
func (l *loop) giveUp(ns int64) {
	if !l.note(l.shared.Metrics.BlockedSpells, netloop.BlockStacks-1) {
		return // Python has ended, and with it all iterations
	}
	l.insist(ns, atomic.LoadUint32(&l.shared.ReportState), true)
	profiled.Lock()
	profiled.count()
	text := profiled.lastWords()
	profiled.Unlock()
	writeText(text, false)
	for i := 0; i < lastWords && !textsAreWritten(); i++ {
		time.Sleep(lastWait)
	}
	written := C.int(0)
	if textsAreWritten() {
		written = 1
	}
	C.end_process(written) // else without a handler: faulthandler's would write there, too
}

// ---- for Python: goloop/_internal/frames.py reads both -----------------------------------

// addFrames adds a line for each frame, innermost last; a name has no control characters.
func addFrames(t []byte, frames []frame) []byte {
	for i := len(frames) - 1; i >= 0; i-- {
		t = append(append(append(append(t, frames[i].function...), '\t'), frames[i].file...), '\t')
		t = append(strconv.AppendInt(t, int64(frames[i].line), 10), '\n')
	}
	return t
}

// goloop_block_report returns the report of a loop's current block, or of its last one.
//
//export goloop_block_report
func goloop_block_report(reactor C.int32_t, out *C.char, size C.int32_t) C.int32_t {
	return copyText(out, size, blockReport(reactor))
}

// goloop_stack_text returns the names of the frames of a stack.
//
//export goloop_stack_text
func goloop_stack_text(stack *C.gl_stack, out *C.char, size C.int32_t) C.int32_t {
	return copyText(out, size, stackText((*netloop.Stack)(unsafe.Pointer(stack))))
}

// blockReport is the block's number, its callbacks, ns of the last look's callback, ns on a processor
// or -1; a stack for each look, and the GIL's holder's, each after "\x1e", ns and the end of a line.
func blockReport(reactor C.int32_t) []byte {
	l := find(reactor)
	if l == nil {
		return nil
	}
	s := &l.spell
	s.Lock()
	defer s.Unlock()
	cpu := int64(-1)
	if s.cpu >= 0 {
		cpu = l.cpu() - s.cpu
	}
	t := strconv.AppendUint(nil, s.serial, 10)
	t = strconv.AppendUint(append(t, ' '), l.callbacksBegun(), 10)
	t = strconv.AppendInt(append(t, ' '), s.callback, 10)
	t = strconv.AppendInt(append(t, ' '), cpu, 10)
	for i := uint32(0); s.looks > 0 && i <= s.looks; i++ {
		of := &s.stacks[i]
		if i == s.looks {
			of = &s.stacks[netloop.BlockStacks]
		}
		t = append(strconv.AppendInt(append(t, '\x1e'), of.ns, 10), '\n')
		t = addFrames(t, of.frames)
	}
	return t
}

// stackText has a line for each frame.
func stackText(of *netloop.Stack) []byte {
	if of.Frames < 0 {
		return nil
	}
	py := (*netloop.Python)(*(*unsafe.Pointer)(unsafe.Pointer(&of.Python)))
	frames, _ := nameFrames(py, of.Frame[:of.Frames])
	return addFrames(nil, frames)
}
