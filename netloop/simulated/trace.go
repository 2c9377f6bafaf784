//go:build linux

package simulated

import (
	"io"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// trace writes a line for each call and each entry of the agenda:
//
//	1000 socket(2, 1) = 3
//	2000 recv(3, 100) = EAGAIN
//	2500 * syn 127.0.0.1:9
//
// A line has the time in ns, then a call with its descriptor, its numbers and its result, or a star and an
// entry of the agenda.
type trace struct {
	to   io.Writer
	line []byte
}

// call writes the line of a call. errno replaces the result if it is not 0.
func (t *trace) call(now int64, name string, fd int, args []int, result int, errno syscall.Errno) {
	if t.to == nil {
		return
	}
	b := strconv.AppendInt(t.line[:0], now, 10)
	b = append(append(append(b, ' '), name...), '(')
	b = strconv.AppendInt(b, int64(fd), 10)
	for _, arg := range args {
		b = strconv.AppendInt(append(b, ", "...), int64(arg), 10)
	}
	b = append(b, ") = "...)
	if errno != 0 {
		b = append(b, unix.ErrnoName(errno)...)
	} else {
		b = strconv.AppendInt(b, int64(result), 10)
	}
	t.write(b)
}

// pathText returns the trace's text for a packet: source, destination, and time in transit.
func (k *Kernel) pathText(from, to *address, arrives int64) string {
	return " from " + from.String() + " to " + to.String() + " in " + strconv.FormatInt(arrives-k.now, 10) + " ns"
}

// entry writes the line of an entry of the agenda, or of another event with this name.
func (t *trace) entry(now int64, name string) {
	if t.to == nil {
		return
	}
	t.write(append(append(strconv.AppendInt(t.line[:0], now, 10), " * "...), name...))
}

// write writes a line, to which it adds the newline. The buffer is reused.
func (t *trace) write(b []byte) {
	t.line = append(b, '\n')
	_, _ = t.to.Write(t.line)
}
