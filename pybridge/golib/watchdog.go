package main

/*
#include <signal.h>
#include <stdlib.h>
#include "monitor.h"
#include "runtime_thread.h"

void *goloop_write_stderr(void *unused);

static inline int start_writer(void) { return thread_start(goloop_write_stderr, NULL); }

static inline void name_writer(void) { thread_set_name(STDERR_THREAD_NAME); }

static inline void end_process(int has_written) {
	if (!has_written)
		signal(SIGABRT, SIG_DFL);
	abort();
}

static inline int32_t read_frames(gl_shared *sh, void *thread, gl_raw_frame *to) { return sh->watchdog->read_frames(thread, to, GL_FRAMES); }

static inline void *gil_holder(gl_shared *sh) { return sh->watchdog->gil_holder(); }
*/
import "C"

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/goloop/goloop/netloop"
	"github.com/goloop/goloop/pybridge/golib/blockreport"
	"github.com/goloop/goloop/pybridge/golib/pycode"
	"golang.org/x/sys/unix"
)

// The watchdog reports an iteration of a loop that lasts too long, while it still lasts.
//
//	quiet --now - shared.now > limit--> blocked: a snapshot of the stack; a thread waits for the GIL
//	  ^                                 | ^      to report it
//	  |  the iteration ends, and C      | | at 2, 4 and 8 times the limit
//	  |  reports the end                v |
//	  +------------------------------- escalated: half a limit later the log has no report. A text
//	                                      |      goes to stderr, without the GIL
//	                                      v blocked_end: a last text, and the process aborts
//
// All of it runs on the monitor's thread with the monitor's mutex, so nothing here may block.

const (
	maxText   = 8192 // bytes: two stacks of 48 frames
	maxOutput = 4 * maxText
	// minReportTime is the least time that Python has to log a report: each thread that computes has the
	// GIL for 5 ms at a time.
	minReportTime = 100_000_000 // ns
	// A process that aborts waits crashWaits times crashWait for stderr.
	crashWaits = 100
	crashWait  = 10 * time.Millisecond
	// A stack changes while its thread runs on; then the walk fails and is repeated.
	maxWalks  = 5
	walkPause = 50 * time.Microsecond
	// Longest names in a report, in bytes.
	maxFunction, maxFile = 192, 256
)

// output is the text that stderr has not taken yet. A write to stderr may block: a pipe without a reader, a
// terminal after Ctrl-S. Other processes share stderr, so it can't be made non-blocking. Texts are queued
// here for a thread that lives as long as there are texts. A text for which the queue has no space is
// dropped and counted.
var output struct {
	sync.Mutex
	writing bool // the writer thread runs
	text    []byte
	dropped uint64 // texts dropped since the last one that was queued
}

// goloop_write_stderr is the writer thread: it writes the queued texts to stderr and ends when there are
// none. If a write fails, it drops the texts that it has taken from the queue.
//
//export goloop_write_stderr
func goloop_write_stderr(unsafe.Pointer) unsafe.Pointer {
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

// writeStderr queues a text for stderr and starts the writer thread if it does not run. It does not block.
// If the queue is full or the thread cannot start, it drops the text. json is the format of the line that
// counts dropped texts.
func writeStderr(text []byte, json bool) {
	output.Lock()
	defer output.Unlock()
	var before []byte
	if output.dropped > 0 {
		before = []byte("goloop: dropped reports, because stderr was full: ")
		end := "\n"
		if json {
			before, end = []byte(`{"logger":"goloop","reports_dropped":`), "}\n"
		}
		before = append(strconv.AppendUint(before, output.dropped, 10), end...)
	}
	if len(output.text)+len(before)+len(text) <= maxOutput &&
		(output.writing || C.start_writer() == 0) {
		output.writing = true
		output.text = append(append(output.text, before...), text...)
		output.dropped = 0
	} else {
		output.dropped++
	}
}

// stderrIsWritten reports whether the writer thread has ended, so that all queued texts are written, or
// dropped after a failed write.
func stderrIsWritten() bool {
	output.Lock()
	defer output.Unlock()
	return !output.writing
}

// blockState is the state of a loop's current block, or of its last one.
type blockState struct {
	sync.Mutex                // the monitor writes, Python reads
	since, cpu int64          // start of the iteration, and the thread's processor time then, or -1
	started    uint64         // callbacks started at the last tick
	startedAt  int64          // when the last of these callbacks was first seen
	holder     unsafe.Pointer // the thread that had the GIL at the last snapshot
	gilHeld    bool           // the holder has had the GIL at each tick since the last snapshot
	number     uint64         // number of the block
	callback   int64          // ns that the callback of the last snapshot had run
	snapshots  uint32         // number of snapshots of the block
	escalated  uint32         // number of snapshots for which stderr was considered
	stacks     [netloop.BlockStacks + 1]stackSnapshot
}

// stackSnapshot is a stack, innermost frame first. The last one of a blockState is the stack of the GIL's
// holder.
type stackSnapshot struct {
	ns     int64 // age of the iteration
	frames []blockreport.Frame
}

// callbacksStarted returns the number of callbacks that the loop has started since the poll.
func (l *loop) callbacksStarted() uint64 {
	sh := (*C.gl_shared)(unsafe.Pointer(l.shared))
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(sh.popped))) - atomic.LoadUint64(&l.turnStart.popped) +
		uint64(atomic.LoadUint32((*uint32)(unsafe.Pointer(sh.handed))))
}

// cpu returns the processor time of the loop's thread in ns, or -1 if it is unknown.
func (l *loop) cpu() int64 {
	var t unix.Timespec
	clock := atomic.LoadInt32(&l.shared.Clock)
	if clock == 0 || unix.ClockGettime(clock, &t) != nil {
		return -1
	}
	return t.Nano()
}

// updateBlockState updates the state at each tick, for the next snapshot: the start of the iteration and of
// its present callback, and whether one thread has had the GIL since the last snapshot. since is the start
// of the iteration and now the time of the tick, both in ns.
func (l *loop) updateBlockState(since, now int64) {
	s, started := &l.blockState, l.callbacksStarted()
	holder := C.gil_holder((*C.gl_shared)(unsafe.Pointer(l.shared)))
	s.Lock()
	defer s.Unlock()
	if s.since != since {
		s.since, s.startedAt, s.cpu = since, since, l.cpu()
	} else if started != s.started {
		s.startedAt = now
	}
	s.started = started
	s.gilHeld = s.gilHeld && holder == s.holder
}

// stackOf reads the stack of a thread, which is a PyThreadState, innermost frame first. It repeats a read
// that failed. A stack that is still unreadable is empty. It returns false if Python has ended.
func stackOf(shared *C.gl_shared, thread unsafe.Pointer) ([]blockreport.Frame, bool) {
	var raw [C.GL_FRAMES]netloop.RawFrame
	for range maxWalks {
		n := int(C.read_frames(shared, thread, (*C.gl_raw_frame)(unsafe.Pointer(&raw[0]))))
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

// nameFrames reads the names of frames and skips frames without Python code. It returns nil and false if a
// frame is invalid, because the stack has changed.
func nameFrames(py *netloop.Python, raw []netloop.RawFrame) (frames []blockreport.Frame, ok bool) {
	for _, f := range raw {
		c, state := pycode.Read(py, f.Code, maxFunction, maxFile)
		switch state {
		case pycode.IsInvalid:
			return nil, false
		case pycode.IsCode:
			line := pycode.Line(py, &c, f.Code, f.Instruction)
			frames = append(frames, blockreport.Frame{Function: c.Function, File: c.File, Line: int(line)})
		}
	}
	return frames, true
}

// recordStack records the stack of the loop's thread as the snapshot of this index, with the number of its
// block and the holder of the GIL. With index BlockStacks it records the stack of another thread that has
// the GIL instead, which is empty if there is none. It returns false if Python has ended: then nothing is
// recorded or reported any more.
func (l *loop) recordStack(block uint64, index uint32) bool {
	s, shared := &l.blockState, (*C.gl_shared)(unsafe.Pointer(l.shared))
	holder, thread := C.gil_holder(shared), atomic.LoadPointer((*unsafe.Pointer)(unsafe.Pointer(&l.shared.Thread)))
	if index == netloop.BlockStacks {
		if holder == thread {
			holder = nil
		}
		thread = holder
	}
	frames, lives := []blockreport.Frame(nil), true
	if thread != nil {
		frames, lives = stackOf(shared, thread)
	}
	if !lives {
		return false
	}
	now := monotonic()
	s.Lock()
	defer s.Unlock()
	if index < netloop.BlockStacks {
		s.number, s.snapshots = block, index+1
		s.holder, s.gilHeld = holder, holder != nil
		s.callback = now - s.startedAt
		s.stacks[netloop.BlockStacks] = stackSnapshot{}
	}
	s.stacks[index] = stackSnapshot{now - s.since, frames}
	return true
}

// goloop_check_iteration checks a loop whose iteration has lasted for some time. It takes the snapshots
// that are due, writes to stderr if a report was not logged in time, and aborts the process after
// blocked_end. `began` is the value of shared.now that the monitor read, and `ns` is the part of the time
// since then for which the loop is responsible. The iteration may have ended meanwhile, so shared.now is
// not read again. It does nothing for a closed reactor.
//
//export goloop_check_iteration
func goloop_check_iteration(reactor C.int32_t, began, ns, now C.int64_t) {
	l := findReactor(reactor)
	if l == nil {
		return
	}
	sh, s := l.shared, &l.blockState
	limit, end := atomic.LoadInt64(&sh.BlockedLimit), atomic.LoadInt64(&sh.BlockedEnd)
	since, lasted := int64(began), int64(ns)
	if end > 0 && lasted >= end {
		l.abort(lasted)
	}
	if limit <= 0 {
		return
	}
	l.updateBlockState(since, int64(now))
	known, snapshots := atomic.LoadInt64(&sh.BlockedSince) == since, uint32(0)
	if known {
		snapshots = s.snapshots
	}
	due := limit
	if s.escalated > 0 {
		due = limit << (snapshots - 1)
	}
	if snapshots < netloop.BlockStacks && lasted >= limit<<snapshots {
		l.takeSnapshot(reactor, since, snapshots)
	} else if known && s.escalated < snapshots && lasted >= due+max(limit/2, minReportTime) {
		if reportState := atomic.LoadUint32(&sh.ReportState); reportState != netloop.ReportLogged {
			l.escalate(lasted, reportState, false)
		}
		s.escalated = snapshots
	}
}

// takeSnapshot records the stack of the loop's thread as the snapshot of this index, and starts a thread
// that reports the snapshot unless such a thread still waits for the GIL. Index 0 begins and counts a new
// block. since is the start of the iteration in ns. It does nothing if Python has ended.
func (l *loop) takeSnapshot(reactor C.int32_t, since int64, index uint32) {
	sh := l.shared
	block, reportState := sh.Metrics.BlockedSpells, uint32(netloop.ReportLogged)
	if index == 0 {
		block++
	} else {
		reportState = atomic.LoadUint32(&sh.ReportState)
	}
	if !l.recordStack(block, index) {
		return
	}
	atomic.StoreUint64(&sh.Metrics.BlockedSpells, block)
	if index == 0 {
		l.blockState.escalated = 0
	}
	if reportState == netloop.ReportLogged {
		atomic.StoreUint32(&sh.ReportState, 0)
	}
	atomic.StoreInt64(&sh.BlockedSince, since)
	if reportState != 0 { // 0: the report thread of the last snapshot still waits for the GIL
		C.monitor_start_report(reactor, (*C.gl_shared)(unsafe.Pointer(sh)))
	}
}

// escalate queues a report about a block that has lasted ns for stderr, unless blockText leaves the report
// out. If one thread has had the GIL since the last snapshot, its stack is recorded first. reportState is
// shared.report_state; aborts: the process ends afterwards.
func (l *loop) escalate(ns int64, reportState uint32, aborts bool) {
	if l.blockState.gilHeld {
		l.recordStack(l.shared.Metrics.BlockedSpells, netloop.BlockStacks)
	}
	if text := l.blockText(ns, reportState, aborts); len(text) > 0 {
		writeStderr(text, l.shared.Flags&netloop.JSON != 0)
	}
}

// abort writes last reports and aborts the process, because an iteration has lasted ns. It waits for stderr
// for a limited time only. It returns only if Python has ended.
func (l *loop) abort(ns int64) {
	if !l.recordStack(l.shared.Metrics.BlockedSpells, netloop.BlockStacks-1) {
		return // Python has ended, so there are no iterations any more
	}
	l.escalate(ns, atomic.LoadUint32(&l.shared.ReportState), true)
	processProfile.Lock()
	processProfile.AddPending()
	text := processProfile.CrashReport()
	processProfile.Unlock()
	writeStderr(text, false)
	for i := 0; i < crashWaits && !stderrIsWritten(); i++ {
		time.Sleep(crashWait)
	}
	written := C.int(0)
	if stderrIsWritten() {
		written = 1
	}
	C.end_process(written) // without a written text SIGABRT's default applies: faulthandler would block on stderr, too
}

// why returns the reason for a report on stderr, as the end of its first sentence, limited to facts that
// were observed. reportState is shared.report_state; aborts: the process ends after the report.
func (s *blockState) why(reportState uint32, aborts bool) string {
	switch {
	case aborts:
		return "; aborting the process (GOLOOP_WATCHDOG_ABORT)"
	case reportState == netloop.ReportRequested:
		return ", and a log handler delays the log message"
	case s.gilHeld:
		return ", and the GIL is held"
	}
	return ", and the log message has not been written yet"
}

// blockText returns the report for stderr about a block that has lasted ns. aborts: the process ends after
// the report, which is never left out then. Otherwise blockText returns nil if the snapshot has the same
// calls as the one before, and while modules are imported before the loop's first event: for example a
// server that imports its application and has no clients yet. A report longer than maxText loses its
// outermost calls.
func (l *loop) blockText(ns int64, reportState uint32, aborts bool) []byte {
	s := &l.blockState
	b := &blockreport.Report{Shared: l.shared, NS: ns, Reason: s.why(reportState, aborts)}
	snapshot := s.snapshots - 1
	if aborts {
		snapshot = netloop.BlockStacks - 1
	}
	b.Own = s.stacks[snapshot].frames
	if !aborts && s.escalated > 0 && len(b.Own) > 0 && blockreport.SameCalls(b.Own, s.stacks[snapshot-1].frames) {
		return nil
	}
	if !aborts && blockreport.IsImporting(b.Own) && atomic.LoadUint64(&l.shared.Metrics.EventsPerTurn.Sum) == 0 {
		return nil
	}
	b.Own = blockreport.WithoutStartFrames(b.Own)
	if s.gilHeld {
		b.Holder = s.stacks[netloop.BlockStacks].frames
	}
	for {
		text := b.Text
		if l.shared.Flags&netloop.JSON != 0 {
			text = b.JSON
		}
		if t := text(); len(t) < maxText {
			return t
		}
		// Drop the outermost calls first: they say least.
		b.Own, b.Holder = b.Own[:len(b.Own)*3/4], b.Holder[:len(b.Holder)*3/4]
	}
}

// ---- texts for Python ----

// goloop_block_report writes at most `size` bytes of the report of a loop's current block, or of its last
// one (blockReport), and returns the length of the whole text, 0 for a closed reactor, or -EINVAL as
// copyText does.
//
//export goloop_block_report
func goloop_block_report(reactor C.int32_t, out *C.char, size C.int32_t) C.int32_t {
	return copyText(out, size, blockReport(reactor))
}

// goloop_stack_text writes a line for each frame of a stack, as stackText returns them, and returns the
// length of the whole text, or -EINVAL as copyText does.
//
//export goloop_stack_text
func goloop_stack_text(stack *C.gl_stack, out *C.char, size C.int32_t) C.int32_t {
	return copyText(out, size, stackText((*netloop.Stack)(unsafe.Pointer(stack))))
}

// blockReport returns the report of a loop's current or last block: the block's number, the number of its
// callbacks, ns of the last snapshot's callback, ns on a processor or -1; then the stack of each snapshot
// and of the GIL's holder, each after "\x1e", the iteration's age in ns and a newline. It returns nil for a
// closed reactor.
func blockReport(reactor C.int32_t) []byte {
	l := findReactor(reactor)
	if l == nil {
		return nil
	}
	s := &l.blockState
	s.Lock()
	defer s.Unlock()
	cpu := int64(-1)
	if s.cpu >= 0 {
		cpu = l.cpu() - s.cpu
	}
	t := strconv.AppendUint(nil, s.number, 10)
	t = strconv.AppendUint(append(t, ' '), l.callbacksStarted(), 10)
	t = strconv.AppendInt(append(t, ' '), s.callback, 10)
	t = strconv.AppendInt(append(t, ' '), cpu, 10)
	for i := uint32(0); s.snapshots > 0 && i <= s.snapshots; i++ {
		of := &s.stacks[i]
		if i == s.snapshots {
			of = &s.stacks[netloop.BlockStacks]
		}
		t = append(strconv.AppendInt(append(t, '\x1e'), of.ns, 10), '\n')
		t = blockreport.AppendFrames(t, of.frames)
	}
	return t
}

// stackText returns a line for each frame of a stack, as blockreport.AppendFrames. It returns nil if the
// stack could not be read or a frame is invalid.
func stackText(of *netloop.Stack) []byte {
	if of.Frames < 0 {
		return nil
	}
	py := (*netloop.Python)(*(*unsafe.Pointer)(unsafe.Pointer(&of.Python)))
	frames, _ := nameFrames(py, of.Frame[:of.Frames])
	return blockreport.AppendFrames(nil, frames)
}
