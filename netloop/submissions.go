package netloop

import "unsafe"

// maxWrite bounds the length of one write, so that no sum of lengths overflows.
const maxWrite = 1 << 40

// decode takes the submissions over, in order. Nothing is sent here. What makes
// no sense (an unknown operation, the name of something gone, a length of 0) is
// counted and passed over: most of it is C being late, not wrong.
func (r *Reactor) decode() {
	n := min(r.shared.SubLen, r.shared.SubCap)
	r.shared.SubLen = 0
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
		case SubTimerCancel:
			r.wheel.Cancel(sub.ID)
		case SubWrite, SubShutWrite, SubReadStop, SubReadStart, SubReadDirect, SubOwner:
			s := r.registry.findKind(sub.ID, sub.Gen, kindStream)
			if s == nil {
				r.ignored++
				continue
			}
			r.decodeStream(s, sub)
			if !s.dirty {
				s.dirty = true
				r.dirty = append(r.dirty, makeToken(sub.ID, sub.Gen))
			}
		default:
			r.ignored++
		}
	}
}

func (r *Reactor) decodeStream(s *slot, sub *Submission) {
	switch sub.Op {
	case SubWrite:
		if sub.Arg <= 0 || sub.Arg > maxWrite || sub.Ptr == 0 {
			r.ignored++
			return
		}
		s.stream.Push(sub.Ptr, uintptr(sub.Arg))
		if sub.Flags&WriteQuiet == 0 {
			s.awaited = true
		}
	case SubShutWrite:
		s.stream.CloseWriting(&r.calls.Calls)
	case SubReadStop:
		s.stream.PauseReading()
	case SubReadStart:
		s.stream.ResumeReading()
	case SubReadDirect:
		s.direct = sub.Arg != 0
	case SubOwner:
		// Memory of C, which the field holds as a number.
		s.stream.SetOwner(*(**int32)(unsafe.Pointer(&sub.Ptr)))
	}
}
