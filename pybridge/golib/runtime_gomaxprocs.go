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
//   - a goroutine was scheduled on this P within the last 10 ms. The library's runtime leaves this condition
//     out while a P is idle, and its monitor sleeps for 100 ms instead of 10 ms at a time then (GO_CHANGES in
//     build_backend/goloop_build/commands.py). So a P is taken only from a thread that has made no call for
//     10 ms or more: its loop waits, or its Python code computes.
//
// A reactor that yielded to Go's scheduler once in 8 ms would need no changed runtime, but each yield wakes
// another thread and waits for it: 250 context switches a second.
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
