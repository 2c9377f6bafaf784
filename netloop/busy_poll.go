package netloop

import (
	"sync/atomic"
	"syscall"
)

// Busy polling: before a loop that was busy sleeps, it polls without sleeping for a short time. A
// sleep costs this thread processor time, and the sender of the next message, which has to wake
// it; on a virtual machine each of them pays several microseconds.
//
// Shared.BusyPoll is the longest time of an attempt in ns. 0 disables busy polling. If it is
// negative, which is the default of a loop, an attempt lasts at most twice the processor time of a
// sleep, which the loop measures. Within this time the peers that were woken by the last messages
// answer; then they find the loop awake, and it finds them awake.
//
// A loop does not poll busily while that does not pay:
//
//   - No poll has returned an event since the last one that could sleep: the loop ran for a timer.
//   - The thread stood still: between two polls, which take less than a microsecond, more than
//     maxSpinGap has passed. It was preempted for long, or a quota has stopped the process. This
//     also ends the attempt.
//   - The last spinSample attempts, or the first probeSample after a pause, took more processor time
//     than the sleeps that they saved; or, if the time of an attempt was set, less than a quarter of
//     them found an event.
//   - Other threads need the processor: they preempted this thread during a quarter of these
//     attempts or more. A peer on the same processor can answer only if it preempts the loop.
//
// The last three pause busy polling for minSpinPause, and for twice as long each time, up to maxSpinPause,
// until a sample of attempts succeeds again.
const (
	maxSpinGap   = 200_000 // ns
	minPollTime  = 50      // ns; a system call takes longer
	spinSample   = 32
	probeSample  = 8             // after a pause
	minSpinPause = 100_000_000   // ns
	maxSpinPause = 3_200_000_000 // ns

	// Sleeps for each one that is measured.
	sleepSample = 64
	// A poll that waited for at most this time, ns, besides its processor time did not sleep.
	minSleep = 1000
	// Limit of a sleep's cost, ns: a sleep that took more was interrupted.
	maxSleepCost = 12_000
)

// busyPoll is the state of a reactor's busy polling.
type busyPoll struct {
	hadEvents   bool  // a poll has returned an event since, or in, the last one that could sleep
	pausedUntil int64 // ns of the reactor's clock; no attempt before it
	pause       int64 // ns of the last pause; 0: the last sample succeeded
	preemptions int64 // value of Calls.Preemptions at the start of the sample
	attempts    int64 // of the current sample
	hits        int64 // attempts of the sample that found an event
	spent       int64 // ns that the attempts of the sample took
	untilSleep  int   // sleeps until the next one that is measured
	sleepCost   int64 // mean processor time of a sleep in ns; 0: not known yet
}

// wait waits for events like poller.wait, and polls without sleeping before that for as long as
// busy polling allows. It returns the number of events, or the poller's errno.
func (r *Reactor) wait(timeout int64) (int, syscall.Errno) {
	setting := atomic.LoadInt64(&r.shared.BusyPoll)
	if timeout == 0 || setting == 0 || !r.busyPoll.hadEvents {
		events, errno := r.poller.wait(timeout)
		if timeout != 0 || events > 0 {
			r.busyPoll.hadEvents = events > 0
		}
		return events, errno
	}
	begun := r.clock.now()
	limit := setting
	if setting < 0 {
		limit = 2 * r.busyPoll.sleepCost
	}
	if timeout > 0 {
		limit = min(limit, timeout)
	}
	if limit > 0 && begun >= r.busyPoll.pausedUntil {
		if events, errno := r.spin(begun, limit); events != 0 || errno != 0 {
			return events, errno // hadEvents stays true
		}
		if timeout > 0 {
			timeout = max(timeout-(r.clock.now()-begun), 0)
		}
	}
	var events int
	var errno syscall.Errno
	if setting < 0 && r.busyPoll.untilSleep == 0 {
		events, errno = r.measureSleep(timeout)
	} else {
		r.busyPoll.untilSleep = max(r.busyPoll.untilSleep-1, 0)
		events, errno = r.poller.wait(timeout)
	}
	r.busyPoll.hadEvents = events > 0
	return events, errno
}

// measureSleep waits like poller.wait, and adds the processor time of a sleep to their mean. A poll
// that did not sleep does not count: the next one is measured instead.
func (r *Reactor) measureSleep(timeout int64) (int, syscall.Errno) {
	used, begun := r.calls.ThreadTime(), r.clock.now()
	events, errno := r.poller.wait(timeout)
	passed, cost := r.clock.now()-begun, r.calls.ThreadTime()-used
	b := &r.busyPoll
	if passed-cost <= minSleep {
		return events, errno
	}
	b.untilSleep = sleepSample - 1
	cost = min(cost, maxSleepCost)
	if b.sleepCost == 0 {
		b.sleepCost = cost
	} else {
		b.sleepCost += (cost - b.sleepCost) / 4
	}
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
	r.busyPoll.spent += now - begun
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
	sample := int64(spinSample)
	if b.pause > 0 {
		sample = probeSample
	}
	if !stopped && b.attempts < sample {
		return
	}
	preemptions := r.calls.Preemptions() - b.preemptions
	if !stopped && r.spinPays() && 4*preemptions < b.attempts {
		b.pause = 0
	} else {
		b.pause = min(max(2*b.pause, minSpinPause), maxSpinPause)
		b.pausedUntil = now + b.pause
	}
	b.attempts, b.hits, b.spent = 0, 0, 0
}

// spinPays returns whether the attempts of the sample found enough events.
func (r *Reactor) spinPays() bool {
	b := &r.busyPoll
	if atomic.LoadInt64(&r.shared.BusyPoll) < 0 {
		return b.spent <= b.hits*b.sleepCost
	}
	return 4*b.hits >= b.attempts
}
