// Package timers is the clockwork of a reactor: it holds armed timers, knows
// the earliest deadline exactly, and hands out what is due in exact order.
//
// # The dials
//
// A Wheel is a hierarchy of dials of 64 slots. A slot of one dial either holds
// up to eight timers in a list, or has been opened into a finer dial of its own
// that divides the slot's span by 64. Time is counted in nanoseconds; every
// deadline an int64 can name has its place, past and far future alike.
//
//	level  one slot spans   one dial spans
//	   0          1 ns            64 ns
//	   1         64 ns           4.1 µs
//	   2        4.1 µs           262 µs
//	   3        262 µs          16.8 ms
//	   4       16.8 ms           1.07 s
//	   5        1.07 s           68.7 s
//	   6        68.7 s            73 min
//	   7        73 min          78.2 h
//	   8        78.2 h           208 days
//	   9       208 days           36 years
//	  10        36 years     all of int64 (16 slots in use)
//
// # Why nothing cascades as time goes by
//
// The classic wheel has a hand: slots are numbered from the present, and each
// time the hand passes a coarse slot, its timers are carried to finer ones. A
// wheel without cascading (Linux since 4.8) spares that and pays with deadlines
// rounded to a slot. Here the slots are numbered absolutely, so that there is
// no hand, no tick and no work when time passes; and a slot is opened when it
// overflows, not when it comes near. A timer that is cancelled before it is due
// (nearly all are) is then rarely touched a second time, the earliest deadline
// is found by following the first taken slot of each dial, and order inside a
// slot is by the exact deadline, never by the slot.
//
// # Costs
//
// Arm and Cancel walk at most eleven dials, whatever the number of timers; a
// timer moves at most once per level in its life. Next is cached, and else looks
// at eleven bitmaps and at most eight timers. Timers of an equal deadline share a
// slot of level 0, whose list is in the order of arming and of any length.
//
// # Memory
//
// Timers and dials live in chunks and name each other by index, so the garbage
// collector sees a few pointers to chunks and nothing inside. A chunk is given
// back when it is empty.
//
// A Wheel is used by one goroutine or thread at a time. It reads no clock.
package timers

import (
	"math"
	"math/bits"
)

const (
	// None is what Next returns when no timer is armed.
	None = math.MaxInt64

	// MaxID is the largest timer id: C gives out every id but the one that
	// stands for none (GL_NO_TIMER), so that no timer of a program is ever
	// refused here. Ids are expected to be dense from 0, since memory is held by
	// ranges of ids; a stray one costs up to 32 MB of chunk pointers.
	MaxID = math.MaxUint32 - 1

	levelBits = 6
	topLevel  = 10
	slots     = 1 << levelBits

	// crowd is the number of timers that a slot holds before it is opened.
	crowd = 8

	// manyChunks is how many chunks of timers are worth a look at the memory:
	// those of 65,536 timers.
	manyChunks = 64
)

// Wheel holds armed timers. The zero value is ready for use.
type Wheel struct {
	timers timerArena
	dials  dialArena
	root   uint32
	live   int

	// first is the earliest timer, where known: finding it is worth keeping,
	// because Next is called in every turn.
	first      uint32
	firstKnown bool
}

// Emptied tells, once, that a wheel which had many timers has few left. Its
// chunks are garbage then, some hundred bytes for each timer that was armed,
// and the caller may ask the runtime to give that memory back to the system:
// a process that allocates little else would keep it for good.
func (w *Wheel) Emptied() bool {
	a := &w.timers
	if a.most < manyChunks || a.held > a.most/8 {
		return false
	}
	a.most = a.held
	return true
}

// Len returns the number of armed timers.
func (w *Wheel) Len() int { return w.live }

// key turns a deadline into a number whose unsigned order is the order of time.
func key(deadline int64) uint64 { return uint64(deadline) ^ 1<<63 }

func slotOf(key uint64, level uint8) uint {
	return uint(key>>(uint(level)*levelBits)) % slots
}

// Arm sets timer id to become due at deadline (ns of whatever clock the caller
// uses throughout). A timer that is armed already is replaced, and takes its
// place behind those of the same deadline. It returns false, and does nothing,
// for an id above MaxID.
func (w *Wheel) Arm(id uint32, deadline int64) bool {
	if id > MaxID {
		return false
	}
	if w.root == 0 {
		w.root = w.dials.take(0, 0, topLevel)
	}
	t := w.timers.claim(id)
	if t.dial != 0 {
		w.unlink(id, t)
	} else {
		w.timers.keep(id)
		w.live++
	}
	t.key = key(deadline)
	w.place(id, t)
	if w.firstKnown && t.key < w.timers.at(w.first).key {
		w.first = id
	} else if w.live == 1 {
		w.first, w.firstKnown = id, true
	}
	return true
}

// Cancel disarms timer id, and returns false where it was not armed.
func (w *Wheel) Cancel(id uint32) bool {
	t := w.timers.find(id)
	if t == nil || t.dial == 0 {
		return false
	}
	w.remove(id, t)
	return true
}

// Armed tells whether timer id is armed.
func (w *Wheel) Armed(id uint32) bool {
	t := w.timers.find(id)
	return t != nil && t.dial != 0
}

// Next returns the earliest armed deadline, or None.
func (w *Wheel) Next() int64 {
	if w.live == 0 {
		return None
	}
	return int64(w.timers.at(w.earliest()).key ^ 1<<63)
}

// Expire disarms the timers whose deadline is at or before now and writes their
// ids into due, by deadline and, where deadlines are equal, by order of arming.
// It returns how many; where due was too short, Next tells that more are left.
func (w *Wheel) Expire(now int64, due []uint32) int {
	limit := key(now)
	n := 0
	for n < len(due) && w.live > 0 {
		id := w.earliest()
		t := w.timers.at(id)
		if t.key > limit {
			break
		}
		w.remove(id, t)
		due[n] = id
		n++
	}
	return n
}

// place hangs an unlinked timer into the slot for its key.
func (w *Wheel) place(id uint32, t *timer) {
	at := w.root
	for {
		d := w.dials.at(at)
		s := slotOf(t.key, d.level)
		switch {
		case d.taken&(1<<s) == 0:
			d.taken |= 1 << s
			d.slot[s] = id
			d.count[s] = 1
			t.next, t.prev, t.dial = id, id, at
			return
		case d.opened&(1<<s) != 0:
			at = d.slot[s]
		case d.level == 0 || d.count[s] < crowd:
			if d.level != 0 {
				d.count[s]++
			}
			w.append(d.slot[s], id, t)
			t.dial = at
			return
		default:
			at = w.open(at, s)
		}
	}
}

// append puts a timer at the end of the ring that starts at head.
func (w *Wheel) append(head, id uint32, t *timer) {
	h := w.timers.at(head)
	tail := h.prev
	w.timers.at(tail).next = id
	h.prev = id
	t.prev, t.next = tail, head
}

// open replaces the list of slot s of dial at by a finer dial, and returns it.
// The timers go over in list order, which keeps the order of arming.
func (w *Wheel) open(at uint32, s uint) uint32 {
	d := w.dials.at(at)
	finer := w.dials.take(at, uint8(s), d.level-1)
	f := w.dials.at(finer)
	head := d.slot[s]
	d.opened |= 1 << s
	d.slot[s] = finer
	for id := head; ; {
		t := w.timers.at(id)
		next := t.next
		p := slotOf(t.key, f.level)
		if f.taken&(1<<p) == 0 {
			f.taken |= 1 << p
			f.slot[p] = id
			f.count[p] = 1
			t.next, t.prev = id, id
		} else {
			f.count[p]++
			w.append(f.slot[p], id, t)
		}
		t.dial = finer
		if next == head {
			return finer
		}
		id = next
	}
}

// unlink takes an armed timer out of its slot and closes dials that are empty.
func (w *Wheel) unlink(id uint32, t *timer) {
	if w.first == id {
		w.firstKnown = false
	}
	d := w.dials.at(t.dial)
	s := slotOf(t.key, d.level)
	if t.next != id {
		w.timers.at(t.prev).next = t.next
		w.timers.at(t.next).prev = t.prev
		if d.slot[s] == id {
			d.slot[s] = t.next
		}
		if d.level != 0 {
			d.count[s]--
		}
		return
	}
	d.taken &^= 1 << s
	for at := t.dial; d.taken == 0 && at != w.root; {
		parent, ps := d.parent, d.parentSlot
		w.dials.drop(at)
		at = parent
		d = w.dials.at(at)
		d.taken &^= 1 << ps
		d.opened &^= 1 << ps
	}
}

// remove disarms an armed timer.
func (w *Wheel) remove(id uint32, t *timer) {
	w.unlink(id, t)
	t.dial = 0
	w.live--
	w.timers.release(id)
}

// earliest returns the timer that is due first; at least one is armed.
func (w *Wheel) earliest() uint32 {
	if w.firstKnown {
		return w.first
	}
	d := w.dials.at(w.root)
	s := bits.TrailingZeros64(d.taken)
	for d.opened&(1<<s) != 0 {
		d = w.dials.at(d.slot[s])
		s = bits.TrailingZeros64(d.taken)
	}
	head := d.slot[s]
	first := head
	if d.level != 0 {
		least := w.timers.at(head).key
		for id := w.timers.at(head).next; id != head; {
			t := w.timers.at(id)
			if t.key < least {
				first, least = id, t.key
			}
			id = t.next
		}
	}
	w.first, w.firstKnown = first, true
	return first
}
