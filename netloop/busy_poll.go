package netloop

import (
	"sync/atomic"
	"syscall"
)

// Busy polling: before a loop that was busy sleeps, it polls without sleeping for up to
// Shared.BusyPoll ns, because a wake-up of a sleeping thread costs the peer's sender and this
// thread several microseconds each. It is off (0) by default: it trades processor time for latency.
//
// A loop does not poll busily while that does not pay:
//
//   - The last poll returned no event: the loop ran for a timer.
//   - The thread stood still: between two polls, which take less than a microsecond, more than
//     maxSpinGap has passed. It was preempted for long, or a quota has stopped the process. This
//     also ends the attempt.
//   - Less than a quarter of the last spinSample attempts found an event.
//   - Other threads need the processor: they preempted this thread during a quarter of these
//     attempts or more. A peer on the same processor can answer only if it preempts the loop.
//
// The last three pause busy polling for minSpinPause, and for twice as long each time, up to maxSpinPause,
// until a sample of attempts succeeds again.
const (
	maxSpinGap   = 200_000 // ns
	minPollTime  = 50      // ns; a system call takes longer
	spinSample   = 32
	minSpinPause = 100_000_000   // ns
	maxSpinPause = 3_200_000_000 // ns
)

// busyPoll is the state of a reactor's busy polling.
type busyPoll struct {
	hadEvents   bool  // the last poll returned an event
	pausedUntil int64 // ns of the reactor's clock; no attempt before it
	pause       int64 // ns of the last pause; 0: the last sample succeeded
	preemptions int64 // value of Calls.Preemptions at the start of the sample
	attempts    int64 // of the current sample
	hits        int64 // attempts of the sample that found an event
}

// wait waits for events like poller.wait, and polls without sleeping before that for as long as
// busy polling allows. It returns the number of events, or the poller's errno.
func (r *Reactor) wait(timeout int64) (int, syscall.Errno) {
	limit := atomic.LoadInt64(&r.shared.BusyPoll)
	if timeout > 0 {
		limit = min(limit, timeout)
	}
	if timeout == 0 || limit <= 0 {
		events, errno := r.poller.wait(timeout)
		r.busyPoll.hadEvents = events > 0
		return events, errno
	}
	begun := r.clock.now()
	if r.busyPoll.hadEvents && begun >= r.busyPoll.pausedUntil {
		if events, errno := r.spin(begun, limit); events != 0 || errno != 0 {
			return events, errno // hadEvents stays true
		}
		if timeout > 0 {
			timeout = max(timeout-(r.clock.now()-begun), 0)
		}
	}
	events, errno := r.poller.wait(timeout)
	r.busyPoll.hadEvents = events > 0
	return events, errno
}

// spin polls without sleeping until there is an event, `limit` ns have passed since `begun`, or
// the thread did not have the processor. It returns the number of events, or the poller's errno,
// and counts the attempt.
func (r *Reactor) spin(begun, limit int64) (events int, errno syscall.Errno) {
	if r.busyPoll.attempts == 0 {
		r.busyPoll.preemptions = r.calls.Preemptions()
	}
	stopped := false
	now := begun
	// A clock that stands still must not keep the thread here.
	for polls := limit/minPollTime + 1; polls > 0; polls-- {
		if events != 0 || errno != 0 || stopped || now-begun >= limit {
			break
		}
		last := now
		events, errno = r.poller.wait(0)
		now = r.clock.now()
		stopped = now-last > maxSpinGap
	}
	m := &r.shared.Metrics
	m.BusyPolls++
	m.BusyPollTime += uint64(now - begun)
	if events > 0 {
		m.BusyPollHits++
	}
	r.countAttempt(now, events > 0, stopped)
	return events, errno
}

// countAttempt adds an attempt that ended at `now` to the sample, and begins a pause if the thread
// stood still (`stopped`), or if the sample is complete and shows that busy polling does not pay.
func (r *Reactor) countAttempt(now int64, hit, stopped bool) {
	b := &r.busyPoll
	b.attempts++
	if hit {
		b.hits++
	}
	if !stopped && b.attempts < spinSample {
		return
	}
	preemptions := r.calls.Preemptions() - b.preemptions
	if !stopped && 4*b.hits >= b.attempts && 4*preemptions < b.attempts {
		b.pause = 0
	} else {
		b.pause = min(max(2*b.pause, minSpinPause), maxSpinPause)
		b.pausedUntil = now + b.pause
	}
	b.attempts, b.hits = 0, 0
}
