package netloop

import "unsafe"

// decode takes the submissions over, in order. Nothing is sent here. What makes
// no sense (an unknown operation, the name of something gone) is counted and passed
// over: most of it is C being late, not wrong.
func (r *Reactor) decode() {
	n := min(r.shared.SubLen, r.shared.SubCap)
	r.shared.SubLen = 0
	r.shared.Unsent = 0
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
				r.ignored++
			}
			r.armed = min(r.armed, sub.Arg)
		case SubTimerCancel:
			r.wheel.Cancel(sub.ID)
		case SubStream:
			s := r.registry.findKind(sub.ID, sub.Gen, kindStream)
			if s == nil {
				r.ignored++
				continue
			}
			s.stream.IO().Listed = 0
			if !s.dirty {
				s.dirty = true
				r.dirty = append(r.dirty, makeToken(sub.ID, sub.Gen))
			}
		case SubWatchWait:
			if s := r.registry.findKind(sub.ID, sub.Gen, kindWatch); s != nil {
				r.await(makeToken(sub.ID, sub.Gen), s, interest(sub.Arg)&directions)
			} else {
				r.ignored++
			}
		default:
			r.ignored++
		}
	}
}
