package netloop

import "unsafe"

// applySubmissions processes the submissions in order and empties their queue. It arms and cancels
// timers, adds streams to the dirty list, and arms watches. It does not send. It clears
// SendsPending and the Listed mark of each stream. Submissions with an unknown operation, a stale
// generation, or an invalid id of a timer to arm are counted and skipped: most of them were late,
// not wrong. Canceling a timer that is not armed has no effect.
func (r *Reactor) applySubmissions() {
	n := min(r.shared.SubLen, r.shared.SubCap)
	r.shared.SubLen = 0
	r.shared.SendsPending = 0
	if n == 0 || r.shared.Sub == nil {
		return
	}
	subs := unsafe.Slice(r.shared.Sub, n)
	for i := range subs {
		sub := &subs[i]
		switch sub.Op {
		case SubNop:
		case SubTimerArm:
			if !r.wheel.Arm(sub.ID, sub.Arg) {
				r.ignoredSubmissions++
			}
			r.earliestArmed = min(r.earliestArmed, sub.Arg)
		case SubTimerCancel:
			r.wheel.Cancel(sub.ID)
		case SubStream:
			s := r.registry.findKind(sub.ID, sub.Gen, kindStream)
			if s == nil {
				r.ignoredSubmissions++
				continue
			}
			s.stream.IO().Listed = 0
			if !s.inDirty {
				s.inDirty = true
				r.dirty = append(r.dirty, makeToken(sub.ID, sub.Gen))
			}
		case SubWatchWait:
			if s := r.registry.findKind(sub.ID, sub.Gen, kindWatch); s != nil {
				r.rearmAfterEAGAIN(makeToken(sub.ID, sub.Gen), s, interest(sub.Arg)&directions)
			} else {
				r.ignoredSubmissions++
			}
		default:
			r.ignoredSubmissions++
		}
	}
}
