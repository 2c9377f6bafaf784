package netloop

// Times at which the reactor must run: the deadlines of timers and the ends of listeners'
// delays.

// pollTimeout returns the timeout of the poll in ns: the requested one (< 0: without limit),
// limited by the next deadline, and 0 if there are leftovers.
func (r *Reactor) pollTimeout(requested, now int64) int64 {
	if requested == 0 || r.hasLeftovers() {
		return 0
	}
	next := r.nextDeadline()
	if next == DeadlineNone {
		return requested
	}
	wait := r.timerWait(next, now)
	if requested < 0 {
		return wait
	}
	return min(requested, wait)
}

// Timers with close deadlines share a turn. If the last turn expired at least timerGroup
// timers, and the next deadline is within timerSlack or was reached while their callbacks ran,
// the poll waits a little longer, so that later timers expire in the same turn. The kernel's
// wake-ups have the same slack. A single timer, or a timer that is farther away, is waited for
// exactly. Timers are never early.
//
// The wait grows with the number of expired timers, up to maxTimerSlack after the next
// deadline. Every timer of asyncio and uvloop may be as late as that. Only a loop with about
// eighty timers per millisecond reaches this maximum and so has few turns, each of which costs
// 5 to 20 µs of processor time. A loop that is later than that does not wait. Neither does a
// loop with a timer that was due when it was armed, such as call_later(0).
const (
	timerSlack    = 50_000 // ns; prctl(2), PR_SET_TIMERSLACK
	maxTimerSlack = 20 * timerSlack
	timerGroup    = 4
)

// timerWait returns the ns to wait for a timer with this deadline: the exact time, or a little
// longer for a group of timers.
func (r *Reactor) timerWait(deadline, now int64) int64 {
	wait := deadline - now
	if r.timersFired >= timerGroup && wait <= timerSlack && r.earliestArmed > now {
		wait += min(timerSlack/timerGroup*int64(r.timersFired), maxTimerSlack)
	}
	return max(wait, 0)
}

// nextDeadline returns the next time at which the reactor must run without an event, or
// DeadlineNone.
func (r *Reactor) nextDeadline() int64 {
	if len(r.backingOff) == 0 {
		return r.wheel.Next()
	}
	return min(r.wheel.Next(), r.nextBackOffEnd())
}

// deferTimers reports whether timers that are due must wait for descriptors that were ready
// before them. It counts the served registrations, so it must be called once in each turn. served
// is the number of registrations that this turn served; full: the poll returned as many events as
// it can.
//
// asyncio processes all events of a poll before it runs timers: after a long callback, data that
// has arrived is received before the timeout that guards it expires. One turn may not have space
// for all events, and one poll may not return all events (full). So timers wait until no event is
// left, or until as many registrations were served as exist. Thus descriptors that are always
// ready do not delay timers indefinitely.
func (r *Reactor) deferTimers(served int, full bool) bool {
	if r.wheel.Next() > r.shared.Now {
		r.servesBeforeTimers = 0
		return false
	}
	if r.servesBeforeTimers == 0 {
		r.servesBeforeTimers = r.registry.live
	}
	r.servesBeforeTimers = max(r.servesBeforeTimers-max(served, 1), 0)
	if r.ready.n == 0 && !full {
		r.servesBeforeTimers = 0
	}
	return r.servesBeforeTimers > 0
}

// expireTimers disarms the timers that are due and reports them. Timers for which there is no
// space stay armed. It also records the number of expired timers for timerWait.
func (r *Reactor) expireTimers() {
	r.timersFired, r.earliestArmed = 0, DeadlineNone
	for r.out.completionSpace() > 0 && r.wheel.Next() <= r.shared.Now {
		n := r.wheel.Expire(r.shared.Now, r.expiredIDs[:min(len(r.expiredIDs), r.out.completionSpace())])
		for _, id := range r.expiredIDs[:n] {
			r.out.put(Completion{Kind: CmpTimer, ID: id})
		}
		r.timersFired += n
	}
}
