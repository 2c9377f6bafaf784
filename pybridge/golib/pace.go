package main

import "runtime"

// A thread that calls Go from C holds one of Go's processors (a P) also while it
// is back in C, as if C were a long system call. Go's monitor thread takes a P
// away from such a call, after 20 µs or after 10 ms, and both ways are hot here:
// Python runs for tens of microseconds between two turns, thousands of times a
// second. When the P is taken and none is in use, the monitor sleeps until the
// next turn wakes it with a futex, and so on: three context switches a turn.
// Measured on one core with 14 µs of work in C between two turns: 18.3 µs of
// processor time a turn, 14.9 µs with what this file does.
//
// The monitor waits 10 ms instead of 20 µs (runtime.retake, Go 1.26) if
//
//   - another P is idle: so there are always two at least;
//   - a goroutine was scheduled on this P within the last 10 ms: so a busy
//     reactor yields once in 8 ms. That costs two context switches.
//
// Where a later Go decides otherwise, this does no harm.

func init() {
	// Setting it also ends the look at the machine's limits once a second.
	runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))
}

const (
	paceInterval = 8_000_000 // ns
	// paceTurns in an interval make a reactor busy: for fewer, being taken off
	// the P is the lesser cost.
	paceTurns = 8
)

// pace decides when the turns of one reactor yield.
type pace struct {
	turns int
	since int64
}

// turn is called at the start of each turn with the time of the last one's poll.
func (p *pace) turn(now int64) {
	p.turns++
	if now-p.since < paceInterval {
		return
	}
	busy := p.turns >= paceTurns
	p.turns, p.since = 0, now
	if busy {
		runtime.Gosched()
	}
}
