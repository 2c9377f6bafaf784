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

// What a thread does, in words: for stderr where the log does not have the report of a block, and for
// those who ask while the GIL is held. All that is here runs on the monitor's thread or with its
// mutex, and needs no Python.

// frame is one call, as C has read it.
type frame struct {
	function, file string
	line           int
}

// belowTheLoop is the stack without the frames of the program's start.
func belowTheLoop(stack []frame) []frame {
	for i := 1; i < len(stack); i++ {
		if stack[i].function == "Running.run_forever" {
			return stack[:i]
		}
	}
	return stack
}

// imports reports whether an import is in progress; goloop/watchdog.py has the same rule.
func imports(stack []frame) bool {
	return slices.ContainsFunc(belowTheLoop(stack), func(f frame) bool {
		return f.function == "_find_and_load" && f.file == "<frozen importlib._bootstrap>"
	})
}

// sameCalls reports whether two stacks are of one place: a loop in a function has many lines.
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

// appendString adds a string as JSON has it. C has replaced control characters.
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

// appendStack adds a stack as a JSON array of [function, file, line], innermost last.
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

// block is what a text tells.
type block struct {
	shared      *netloop.Shared
	ns          int64
	why         string
	own, holder []frame
}

func (b *block) text() []byte {
	t := strconv.AppendInt([]byte("goloop: the event loop of process "), int64(unix.Getpid()), 10)
	t = strconv.AppendFloat(append(t, " has been blocked for "...), float64(b.ns)/1e9, 'f', 3, 64)
	t = append(append(t, " s"...), b.why...)
	t = strconv.AppendUint(append(t, " [loop "...), uint64(b.shared.Number), 10)
	t = strconv.AppendUint(append(t, ", thread "...), uint64(b.shared.NativeThread), 10)
	t = strconv.AppendUint(append(t, ", block "...), b.shared.Metrics.BlockedSpells, 10)
	t = appendLines(append(t, "]\n"...), b.own)
	if len(b.own) == 0 {
		t = append(t, "  (its Python stack can't be told)\n"...)
	}
	if len(b.holder) > 0 {
		t = appendLines(append(t, "another thread keeps the GIL:\n"...), b.holder)
	}
	return t
}

// appendLines adds a stack as a traceback has it.
func appendLines(to []byte, stack []frame) []byte {
	for i := len(stack) - 1; i >= 0; i-- {
		to = append(append(to, "  File \""...), stack[i].file...)
		to = strconv.AppendInt(append(to, "\", line "...), int64(stack[i].line), 10)
		to = append(append(append(to, ", in "...), stack[i].function...), '\n')
	}
	return to
}

func (b *block) json() []byte {
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

// why is the reason for a text: no more than what was seen.
func (s *spell) why(told uint32, givesUp bool) string {
	switch {
	case givesUp:
		return "; the process gives up (GOLOOP_WATCHDOG_ABORT)"
	case told == netloop.ReportRequested:
		return ", and its report waits for the log"
	case s.held:
		return ", and the GIL is held"
	}
	return ", and its report has not come yet"
}

// blockText is what stderr gets about a block that has lasted ns; nothing for a later look that shows
// the calls of the one before, nor while modules are imported before the loop's first event, as by a
// server that loads its application: no client waits yet.
func (l *loop) blockText(ns int64, told uint32, givesUp bool) []byte {
	s := &l.spell
	b := &block{shared: l.shared, ns: ns, why: s.why(told, givesUp)}
	look := s.looks - 1
	if givesUp {
		look = netloop.BlockStacks - 1
	}
	b.own = s.stacks[look].frames
	if !givesUp && s.insisted > 0 && len(b.own) > 0 && sameCalls(b.own, s.stacks[look-1].frames) {
		return nil
	}
	if !givesUp && imports(b.own) && atomic.LoadUint64(&l.shared.Metrics.EventsPerTurn.Sum) == 0 {
		return nil
	}
	b.own = belowTheLoop(b.own)
	if s.held {
		b.holder = s.stacks[netloop.BlockStacks].frames
	}
	for {
		text := b.text
		if l.shared.Flags&netloop.JSON != 0 {
			text = b.json
		}
		if t := text(); len(t) < textMost {
			return t
		}
		// The outermost calls tell least.
		b.own, b.holder = b.own[:len(b.own)*3/4], b.holder[:len(b.holder)*3/4]
	}
}
