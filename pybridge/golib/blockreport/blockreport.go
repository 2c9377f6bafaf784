// Package blockreport writes reports about a blocked loop and stacks of Python as text, without Python.
package blockreport

import (
	"slices"
	"strconv"
	"time"

	"github.com/goloop/goloop/netloop"
	"github.com/goloop/goloop/pybridge/golib/jsontext"
	"golang.org/x/sys/unix"
)

// Frame is one frame of a Python stack. Line is 0 if it is unknown.
type Frame struct {
	Function, File string
	Line           int
}

// WithoutStartFrames returns the stack, innermost frame first, without run_forever() and its callers. A
// stack without run_forever() is returned whole.
func WithoutStartFrames(stack []Frame) []Frame {
	for i := 1; i < len(stack); i++ {
		if stack[i].Function == "Running.run_forever" {
			return stack[:i]
		}
	}
	return stack
}

// IsImporting reports whether the iteration of the loop is inside an import. An import that has called the
// loop does not count; _is_importing in goloop/watchdog.py has the same rule.
func IsImporting(stack []Frame) bool {
	return slices.ContainsFunc(WithoutStartFrames(stack), func(f Frame) bool {
		return f.Function == "_find_and_load" && f.File == "<frozen importlib._bootstrap>"
	})
}

// SameCalls reports whether two stacks have the same functions. Lines may differ, because a loop in a
// function has several.
func SameCalls(a, b []Frame) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Function != b[i].Function || a[i].File != b[i].File {
			return false
		}
	}
	return true
}

// appendStack appends a stack as a JSON array of [function, file, line], innermost last.
func appendStack(to []byte, stack []Frame) []byte {
	to = append(to, '[')
	for i := len(stack) - 1; i >= 0; i-- {
		to = jsontext.AppendPlace(to, stack[i].Function, stack[i].File, int64(stack[i].Line))
		if i > 0 {
			to = append(to, ',')
		}
	}
	return append(to, ']')
}

// Report has the contents of one report.
type Report struct {
	Shared      *netloop.Shared
	NS          int64   // length of the block
	Reason      string  // reason for the report, which continues its first sentence
	Own, Holder []Frame // stacks of the loop's thread and of the thread that has the GIL
}

// Text returns the report as lines of text: the block, then the stacks in the format of a traceback.
func (b *Report) Text() []byte {
	t := strconv.AppendInt([]byte("goloop: the event loop of process "), int64(unix.Getpid()), 10)
	t = strconv.AppendFloat(append(t, " has been blocked for "...), float64(b.NS)/1e9, 'f', 3, 64)
	t = append(append(t, " s"...), b.Reason...)
	t = strconv.AppendUint(append(t, " [loop "...), uint64(b.Shared.Number), 10)
	t = strconv.AppendUint(append(t, ", thread "...), uint64(b.Shared.NativeThread), 10)
	t = strconv.AppendUint(append(t, ", block "...), b.Shared.Metrics.BlockedSpells, 10)
	t = appendLines(append(t, "]\n"...), b.Own)
	if len(b.Own) == 0 {
		t = append(t, "  (its Python stack can't be read)\n"...)
	}
	if len(b.Holder) > 0 {
		t = appendLines(append(t, "another thread holds the GIL:\n"...), b.Holder)
	}
	return t
}

// appendLines appends a stack in the format of a traceback, innermost frame last.
func appendLines(to []byte, stack []Frame) []byte {
	for i := len(stack) - 1; i >= 0; i-- {
		to = append(append(to, "  File \""...), stack[i].File...)
		to = strconv.AppendInt(append(to, "\", line "...), int64(stack[i].Line), 10)
		to = append(append(append(to, ", in "...), stack[i].Function...), '\n')
	}
	return to
}

// JSON returns the report as a line of JSON, with the keys of goloop's JSON log.
func (b *Report) JSON() []byte {
	var at Frame
	if len(b.Own) > 0 {
		at = b.Own[0]
	}
	seconds := strconv.FormatFloat(float64(b.NS)/1e9, 'f', 3, 64)
	t := time.Now().UTC().AppendFormat([]byte(`{"time":"`), "2006-01-02T15:04:05.000Z")
	t = append(t, `","level":"WARNING","logger":"goloop","message":`...)
	t = jsontext.AppendString(t, "the event loop of process "+strconv.Itoa(unix.Getpid())+" has been blocked for "+seconds+" s"+b.Reason)
	t = append(append(t, `,"goloop_seconds":`...), seconds...)
	for _, each := range []struct {
		name  string
		value uint64
	}{
		{"process", uint64(unix.Getpid())}, {"goloop_loop", uint64(b.Shared.Number)},
		{"goloop_native_thread", uint64(b.Shared.NativeThread)}, {"goloop_block", b.Shared.Metrics.BlockedSpells},
		{"goloop_line", uint64(at.Line)},
	} {
		t = append(jsontext.AppendString(append(t, ','), each.name), ':')
		t = strconv.AppendUint(t, each.value, 10)
	}
	t = jsontext.AppendString(append(t, `,"goloop_function":`...), at.Function)
	t = jsontext.AppendString(append(t, `,"goloop_file":`...), at.File)
	t = appendStack(append(t, `,"stack":`...), b.Own)
	t = appendStack(append(t, `,"gil_holder":`...), b.Holder)
	return append(t, "}\n"...)
}

// AppendFrames appends a line for each frame, innermost last, which goloop/_internal/frames.py parses. Names
// have no control characters.
func AppendFrames(t []byte, frames []Frame) []byte {
	for i := len(frames) - 1; i >= 0; i-- {
		t = append(append(append(append(t, frames[i].Function...), '\t'), frames[i].File...), '\t')
		t = append(strconv.AppendInt(t, int64(frames[i].Line), 10), '\n')
	}
	return t
}
