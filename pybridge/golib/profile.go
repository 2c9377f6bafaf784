package main

/*
#include "monitor.h"

static void probe_slow(uint32_t loop, uint64_t ns) { GL_PROBE(iteration_slow, loop, ns); }
*/
import "C"

import (
	"sync/atomic"
	"unsafe"

	"github.com/goloop/goloop/netloop"
	"github.com/goloop/goloop/pybridge/golib/profile"
)

// The profile and the flight recorder of this process: package profile has both. A loop's thread adds the
// pending samples at the beginning of its next turn, and records its slow iterations.

// samples is a queue of samples: the monitor fills it, the profile empties it.
var samples = (*netloop.Samples)(unsafe.Pointer(&C.monitor_samples))

// processProfile is the only profile of the process.
var processProfile = profile.New(samples, findPython)

// findPython returns the layout of Python's objects, which is equal for all loops, or nil while no loop is
// open.
func findPython() *netloop.Python {
	for _, each := range *slots.Load() {
		if l := each.loop; l != nil {
			return (*netloop.Python)(unsafe.Pointer((*C.gl_shared)(unsafe.Pointer(l.shared)).python))
		}
	}
	return nil
}

// countSamples adds the pending samples to the profile. It does nothing if there are none, as in most
// turns, or if another thread has locked the profile; a later turn adds them then. It is called in each
// turn.
func countSamples() {
	if atomic.LoadUint32(&samples.Written) != atomic.LoadUint32(&samples.Counted) && processProfile.TryLock() {
		processProfile.AddPending()
		processProfile.Unlock()
	}
}

// goloop_count_samples adds the pending samples to the profile, and waits for the profile's lock. The
// monitor calls it, with its own mutex, when the queue of samples is full.
//
//export goloop_count_samples
func goloop_count_samples() {
	processProfile.Lock()
	processProfile.AddPending()
	processProfile.Unlock()
}

// goloop_profile_text writes at most `size` bytes of the profile of this process as JSON, and returns the
// length of the whole text, or -EINVAL as copyText does.
//
//export goloop_profile_text
func goloop_profile_text(out *C.char, size C.int32_t) C.int32_t {
	return copyText(out, size, processProfile.Text())
}

// turnCounters are a loop's counters at the end of its last turn, from which recordSlowIteration computes
// the differences.
type turnCounters struct {
	popped uint64 // entries of the ready queue that were run
	handed uint64 // completions that the turn returned
	waited uint64 // ns of waiting for the GIL
}

// endTurn stores the counters after a turn that returned this number of completions, or < 0 after an error.
// It does nothing for a reactor without a Python loop.
func (r *turnCounters) endTurn(sh *netloop.Shared, completions int) {
	if popped := (*C.gl_shared)(unsafe.Pointer(sh)).popped; popped != nil {
		atomic.StoreUint64(&r.popped, uint64(*popped)) // atomic, because the monitor reads it
		r.handed = uint64(max(completions, 0))
		r.waited = sh.Metrics.GILWait.Sum
	}
}

// recordSlowIteration records an iteration that has just ended and took at least limit, which is > 0, with
// all samples that are pending. It runs on the loop's thread, in its turn. It does nothing for a reactor
// without a Python loop.
func (l *loop) recordSlowIteration(began, length, limit int64) {
	sh := (*C.gl_shared)(unsafe.Pointer(l.shared))
	if sh.popped == nil {
		return // a reactor without a Python loop
	}
	record := profile.SlowIteration{
		Loop: int32(atomic.LoadUint32(&l.shared.Number)), Began: began, Length: length,
		Callbacks: uint64(*sh.popped) - l.turnStart.popped + l.turnStart.handed,
		GC:        max(atomic.LoadInt64((*int64)(unsafe.Pointer(sh.gc)))-int64(sh.gc_before), 0),
		GILWait:   int64(l.shared.Metrics.GILWait.Sum - l.turnStart.waited),
	}
	C.probe_slow(C.uint32_t(record.Loop), C.uint64_t(length))
	processProfile.Lock()
	processProfile.AddPending()
	processProfile.AddSlow(&record, limit)
	processProfile.Unlock()
}
