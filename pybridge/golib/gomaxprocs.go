package main

import (
	"runtime"
	"sync"
)

// GOMAXPROCS for a Go library that C calls thousands of times a second.
//
// A thread that calls Go from C has one of Go's processors (a P) also while it is back in C, as if C were a
// long system call. Go's monitor thread takes the P away from such a call, after 20 µs or after 10 ms, and
// both are frequent here: Python runs for tens of microseconds between two turns. If the P was taken and no
// P is in use, Go's monitor sleeps until the next turn wakes it with a futex: three context switches a
// turn. Measured on one core with 14 µs of work in C between two turns: 18.3 µs of processor time a turn,
// and 14.9 µs with this file.
//
// Go's monitor waits 10 ms instead of 20 µs (runtime.retake, Go 1.26) if
//
//   - another P is idle: so there is one P more than there are reactors;
//   - a goroutine was scheduled on this P within the last 10 ms: so a busy
//     reactor yields once in 8 ms. That costs two context switches.
//
// If a later Go decides differently, this file does no harm.
//
// More Ps would only mean more threads. Go starts a thread when it has work and an idle P, at any time, and
// aborts the process if the system refuses one. So the number of Ps follows the number of reactors. The
// threads for two Ps are started when the library starts, after limits.c has checked that there is space for
// them.

// procs is the maximum of GOMAXPROCS: the value of GOLOOP_GOMAXPROCS or of the program if one is set, else
// the number of cores or minProcsLimit, whichever is larger. A reactor without a P waits until Go's monitor
// has taken one from another reactor, as late as timers of Go's threads may be (slack.c).
var procs = func() int {
	n := runtime.GOMAXPROCS(0)
	if n == runtime.NumCPU() {
		n = max(n, minProcsLimit)
	}
	return n
}()

// minProcsLimit is the smallest maximum, for many reactors on a machine with few cores.
const minProcsLimit = 64

// startThreads is the number of threads for two Ps, each with a thread that is about to sleep.
const startThreads = 3

// nameThread names the calling thread; see thread_names.go.
var nameThread = func() {}

// init starts the threads for two Ps when the library is loaded.
func init() {
	runtime.GOMAXPROCS(2)
	// Each goroutine locks a thread until all have one. The threads stay idle afterwards.
	var all, here sync.WaitGroup
	all.Add(startThreads)
	here.Add(startThreads)
	for range startThreads {
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

// raiseGOMAXPROCS sets GOMAXPROCS for n reactors. The caller has locked slotsMu.
func raiseGOMAXPROCS(n int) {
	// GOMAXPROCS stops the world, so it is only ever raised.
	if want := min(n+1, procs); want > runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(want)
	}
}

const (
	yieldInterval = 8_000_000 // ns
	// busyTurns is the number of turns in an interval from which on a reactor counts as busy. With fewer
	// turns, losing the P costs less than yielding.
	busyTurns = 8
)

// yielder decides in which turns a reactor yields to Go's scheduler.
type yielder struct {
	turns int
	since int64
}

// beginTurn is called at the start of each turn with the time of the previous turn's poll, in ns. It may
// yield.
func (y *yielder) beginTurn(now int64) {
	y.turns++
	if now-y.since < yieldInterval {
		return
	}
	busy := y.turns >= busyTurns
	y.turns, y.since = 0, now
	if busy {
		runtime.Gosched()
	}
}
