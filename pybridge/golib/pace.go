package main

import (
	"runtime"
	"sync"
)

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
//   - another P is idle: so there is one more than there are reactors;
//   - a goroutine was scheduled on this P within the last 10 ms: so a busy
//     reactor yields once in 8 ms. That costs two context switches.
//
// Where a later Go decides otherwise, this does no harm.
//
// Each further P would only be a further thread. Go makes a thread when it has work and a
// P to spare, at any time, and ends the process where the system refuses one. So the
// number of Ps follows the number of reactors. The threads that two Ps need are made when
// the library starts, after limits.c has found room for them.

// procs bounds the Ps: by GOLOOP_GOMAXPROCS where the environment or the program has set it, else
// by the number of cores or mostProcs, whichever is more. A reactor that finds no P waits
// until Go's monitor has taken one from another, which lasts as long as Go's threads may be
// late (slack.c).
var procs = func() int {
	n := runtime.GOMAXPROCS(0)
	if n == runtime.NumCPU() {
		n = max(n, mostProcs)
	}
	return n
}()

// mostProcs are the Ps for many reactors on a machine of fewer cores.
const mostProcs = 64

// threads are enough for two Ps, each with a thread that is about to sleep.
const threads = 3

// nameThread names the calling thread; see names.go.
var nameThread = func() {}

func init() {
	runtime.GOMAXPROCS(2)
	// Goroutines that hold a thread each, all at one time. The threads stay idle.
	var all, here sync.WaitGroup
	all.Add(threads)
	here.Add(threads)
	for range threads {
		go func() {
			runtime.LockOSThread()
			nameThread()
			here.Done()
			here.Wait()
			runtime.UnlockOSThread()
			all.Done()
		}()
	}
	all.Wait()
}

// paceReactors is told how many reactors there are; with the lock of places.
func paceReactors(n int) {
	// Setting it stops the world, so it never goes down again.
	if want := min(n+1, procs); want > runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(want)
	}
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
