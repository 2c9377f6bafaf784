package netloop

// When the reactor has to be awake: the timers, and the delays of listeners that back off.

// timeout bounds the wait by what is due and by what is left over.
func (r *Reactor) timeout(asked, now int64) int64 {
	if asked == 0 || r.leftovers() {
		return 0
	}
	next := r.nextDeadline()
	if next == DeadlineNone {
		return asked
	}
	left := r.until(next, now)
	if asked < 0 {
		return left
	}
	return min(asked, left)
}

// Timers in a crowd share a turn: where the last one fired timerCrowd of them and the next
// is due within timerSlack, or already while they ran, it is waited for that much longer, and
// those behind it come along. The kernel has as much slack in its own wake-ups, so a lone
// timer, or one that is farther away, is waited for as exactly as can be; and none is ever
// early. A larger crowd waits longer in proportion, up to timerSlackMost behind the next
// deadline, which is how late each timer of asyncio's and uvloop's may be: a turn costs 5 to
// 20 µs of processor time, so only a loop with some eighty timers a millisecond has so few
// of them. A loop that is behind by more has no time to wait. A timer that was due when it was
// armed (call_later(0) is one) is not waited for.
const (
	timerSlack     = 50_000 // ns; prctl(2), PR_SET_TIMERSLACK
	timerSlackMost = 20 * timerSlack
	timerCrowd     = 4
)

// until is how long to wait for a timer.
func (r *Reactor) until(deadline, now int64) int64 {
	left := deadline - now
	if r.fired >= timerCrowd && left <= timerSlack && r.armed > now {
		left += min(timerSlack/timerCrowd*int64(r.fired), timerSlackMost)
	}
	return max(left, 0)
}

// nextDeadline is when the reactor has something to do by itself.
func (r *Reactor) nextDeadline() int64 {
	if len(r.backingOff) == 0 {
		return r.wheel.Next()
	}
	return min(r.wheel.Next(), r.backOffEnds())
}

// timersWait tells whether timers that are due wait for descriptors that were ready before them.
//
// asyncio hands out all that a poll has found, and then timers: after a long callback, data that
// has arrived is received before the timeout that guards it. One turn may have no room for all,
// and one poll may not find all (full). So timers wait until nothing is left, or until as many
// registrations were served as there are: descriptors that are always ready don't hold them up.
func (r *Reactor) timersWait(served int, full bool) bool {
	if r.wheel.Next() > r.shared.Now {
		r.ahead = 0
		return false
	}
	if r.ahead == 0 {
		r.ahead = r.registry.live
	}
	r.ahead = max(r.ahead-max(served, 1), 0)
	if r.ready.n == 0 && !full {
		r.ahead = 0
	}
	return r.ahead > 0
}

// expire reports the timers that are due.
func (r *Reactor) expire() {
	r.fired, r.armed = 0, DeadlineNone
	for r.out.room() > 0 && r.wheel.Next() <= r.shared.Now {
		n := r.wheel.Expire(r.shared.Now, r.due[:min(len(r.due), r.out.room())])
		for _, id := range r.due[:n] {
			r.out.put(Completion{Kind: CmpTimer, ID: id})
		}
		r.fired += n
	}
}
