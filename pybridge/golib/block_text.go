//go:build cgo

package main

import (
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/goloop/goloop/netloop"
	"golang.org/x/sys/unix"
)

// Texts about a blocked loop: for stderr if the log did not take the report, and for clients while the GIL
// is held. All of this runs on the monitor's thread or with its mutex, and needs no Python.

// frame is one frame of a Python stack. line is 0 if it is unknown.
type frame struct {
	function, file string
	line           int
}

// withoutStartFrames returns the stack, innermost frame first, without run_forever() and its callers. A
// stack without run_forever() is returned whole.
func withoutStartFrames(stack []frame) []frame {
	for i := 1; i < len(stack); i++ {
		if stack[i].function == "Running.run_forever" {
			return stack[:i]
		}
	}
	return stack
}

// isImporting reports whether the iteration of the loop is inside an import. An import that has called the
// loop does not count; _is_importing in goloop/watchdog.py has the same rule.
func isImporting(stack []frame) bool {
	return slices.ContainsFunc(withoutStartFrames(stack), func(f frame) bool {
		return f.function == "_find_and_load" && f.file == "<frozen importlib._bootstrap>"
	})
}

// sameCalls reports whether two stacks have the same functions. Lines may differ, because a loop in a
// function has several.
func sameCalls(a, b []frame) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].function != b[i].function || a[i].file != b[i].file {
			return false
		}
	}
	return true
}

// appendString appends a string as JSON. readStr has replaced control characters.
func appendString(to []byte, s string) []byte {
	to = append(to, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			to = append(to, '\\')
		}
		to = append(to, s[i])
	}
	return append(to, '"')
}

// appendStack appends a stack as a JSON array of [function, file, line], innermost last.
func appendStack(to []byte, stack []frame) []byte {
	to = append(to, '[')
	for i := len(stack) - 1; i >= 0; i-- {
		to = appendString(append(to, '['), stack[i].function)
		to = appendString(append(to, ','), stack[i].file)
		to = append(strconv.AppendInt(append(to, ','), int64(stack[i].line), 10), ']')
		if i > 0 {
			to = append(to, ',')
		}
	}
	return append(to, ']')
}

// blockReporter has the contents of one report.
type blockReporter struct {
	shared      *netloop.Shared
	ns          int64   // length of the block
	why         string  // reason for the report, for its first sentence
	own, holder []frame // stacks of the loop's thread and of the thread that has the GIL
}

// text returns the report as lines of text: the block, then the stacks in the format of a traceback.
func (b *blockReporter) text() []byte {
	t := strconv.AppendInt([]byte("goloop: the event loop of process "), int64(unix.Getpid()), 10)
	t = strconv.AppendFloat(append(t, " has been blocked for "...), float64(b.ns)/1e9, 'f', 3, 64)
	t = append(append(t, " s"...), b.why...)
	t = strconv.AppendUint(append(t, " [loop "...), uint64(b.shared.Number), 10)
	t = strconv.AppendUint(append(t, ", thread "...), uint64(b.shared.NativeThread), 10)
	t = strconv.AppendUint(append(t, ", block "...), b.shared.Metrics.BlockedSpells, 10)
	t = appendLines(append(t, "]\n"...), b.own)
	if len(b.own) == 0 {
		t = append(t, "  (its Python stack can't be read)\n"...)
	}
	if len(b.holder) > 0 {
		t = appendLines(append(t, "another thread holds the GIL:\n"...), b.holder)
	}
	return t
}

// appendLines appends a stack in the format of a traceback, innermost frame last.
func appendLines(to []byte, stack []frame) []byte {
	for i := len(stack) - 1; i >= 0; i-- {
		to = append(append(to, "  File \""...), stack[i].file...)
		to = strconv.AppendInt(append(to, "\", line "...), int64(stack[i].line), 10)
		to = append(append(append(to, ", in "...), stack[i].function...), '\n')
	}
	return to
}

// json returns the report as a line of JSON, with the keys of goloop's JSON log.
func (b *blockReporter) json() []byte {
	var at frame
	if len(b.own) > 0 {
		at = b.own[0]
	}
	seconds := strconv.FormatFloat(float64(b.ns)/1e9, 'f', 3, 64)
	t := time.Now().UTC().AppendFormat([]byte(`{"time":"`), "2006-01-02T15:04:05.000Z")
	t = append(t, `","level":"WARNING","logger":"goloop","message":`...)
	t = appendString(t, "the event loop of process "+strconv.Itoa(unix.Getpid())+" has been blocked for "+seconds+" s"+b.why)
	t = append(append(t, `,"goloop_seconds":`...), seconds...)
	for _, each := range []struct {
		name  string
		value uint64
	}{
		{"process", uint64(unix.Getpid())}, {"goloop_loop", uint64(b.shared.Number)},
		{"goloop_native_thread", uint64(b.shared.NativeThread)}, {"goloop_block", b.shared.Metrics.BlockedSpells},
		{"goloop_line", uint64(at.line)},
	} {
		t = append(appendString(append(t, ','), each.name), ':')
		t = strconv.AppendUint(t, each.value, 10)
	}
	t = appendString(append(t, `,"goloop_function":`...), at.function)
	t = appendString(append(t, `,"goloop_file":`...), at.file)
	t = appendStack(append(t, `,"stack":`...), b.own)
	t = appendStack(append(t, `,"gil_holder":`...), b.holder)
	return append(t, "}\n"...)
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
	b := &blockReporter{shared: l.shared, ns: ns, why: s.why(reportState, aborts)}
	snapshot := s.snapshots - 1
	if aborts {
		snapshot = netloop.BlockStacks - 1
	}
	b.own = s.stacks[snapshot].frames
	if !aborts && s.escalated > 0 && len(b.own) > 0 && sameCalls(b.own, s.stacks[snapshot-1].frames) {
		return nil
	}
	if !aborts && isImporting(b.own) && atomic.LoadUint64(&l.shared.Metrics.EventsPerTurn.Sum) == 0 {
		return nil
	}
	b.own = withoutStartFrames(b.own)
	if s.gilHeld {
		b.holder = s.stacks[netloop.BlockStacks].frames
	}
	for {
		text := b.text
		if l.shared.Flags&netloop.JSON != 0 {
			text = b.json
		}
		if t := text(); len(t) < maxText {
			return t
		}
		// Drop the outermost calls first: they say least.
		b.own, b.holder = b.own[:len(b.own)*3/4], b.holder[:len(b.holder)*3/4]
	}
}
