// Package timers implements the hierarchical timer wheel of a reactor. A Wheel stores armed
// timers, returns the earliest deadline exactly, and expires timers in the exact order of their
// deadlines.
//
// # The nodes
//
// A Wheel is a tree of nodes with 64 slots each. A slot of a node either has a list of up to
// eight timers, or was split: then it has a child node that divides the slot's span by 64. Time
// is counted in nanoseconds. Every int64 is a valid deadline, in the past and in the far
// future.
//
//	level  one slot spans   one node spans
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
// # Why timers do not cascade as time passes
//
// The classic timer wheel numbers its slots from the present. Each time the present reaches a
// coarse slot, the timers of the slot cascade to finer slots. A wheel without cascading (Linux
// since 4.8) avoids this work, but rounds deadlines to a slot. This wheel numbers its slots
// absolutely, so it needs neither ticks nor work when time passes. A slot is split when its
// list overflows, not when its time approaches. Therefore a timer that is cancelled before its
// deadline (nearly all timers are) is rarely touched a second time. The earliest deadline is
// found by following the first used slot of each node. Timers inside a slot are ordered by the
// exact deadline, never by the slot.
//
// # Costs
//
// Arm and Cancel walk at most eleven nodes, independent of the number of timers. A timer moves
// at most once per level in its life. Next is cached; without the cached value it examines at
// most eleven bitmaps and eight timers. Timers of equal deadlines share a slot of level 0. The
// list of such a slot is in the order of arming and has no length limit.
//
// # Memory
//
// Timers and nodes are stored in chunks and refer to each other by index, so the garbage
// collector sees a few pointers to chunks and no pointers inside them. A chunk is freed when it
// is empty.
//
// A Wheel is used by one goroutine or thread at a time. It does not read a clock.
package timers

import (
	"math"
	"math/bits"
)

const (
	// NoDeadline is the value that Next returns when no timer is armed.
	NoDeadline = math.MaxInt64

	// MaxID is the largest timer id. C uses every id except GL_NO_TIMER, which means "no
	// timer", so Arm never refuses a timer of a program. Ids should be dense from 0, because
	// memory is allocated for ranges of ids: a single high id costs up to 32 MB of chunk
	// pointers.
	MaxID = math.MaxUint32 - 1

	levelBits = 6
	topLevel  = 10
	slotCount = 1 << levelBits

	// maxListLength is the number of timers in a slot's list above which the slot is split.
	maxListLength = 8

	// releaseThreshold is the number of timer chunks above which memory is worth returning to
	// the system: the chunks of 65,536 timers.
	releaseThreshold = 64
)

// Wheel stores armed timers. The zero value is ready for use.
type Wheel struct {
	timers timerArena
	nodes  nodeArena
	root   uint32
	live   int

	// first is the earliest timer if firstKnown is set. It is cached because Next is called in
	// every turn.
	first      uint32
	firstKnown bool
}

// ShouldReleaseMemory reports that a wheel that had many timers has few left. It returns true
// once for each such decline, because it then forgets the earlier maximum. The wheel's chunks are
// garbage then: about a hundred bytes for each timer that was armed. The caller may ask the Go
// runtime to return this memory to the system. A process that allocates little else would
// otherwise keep it until it exits.
func (w *Wheel) ShouldReleaseMemory() bool {
	a := &w.timers
	if a.peak < releaseThreshold || a.allocated > a.peak/8 {
		return false
	}
	a.peak = a.allocated
	return true
}

// Len returns the number of armed timers.
func (w *Wheel) Len() int { return w.live }

// key converts a deadline to an unsigned number with the same order.
func key(deadline int64) uint64 { return uint64(deadline) ^ 1<<63 }

// slotIndex returns the slot of a key in a node of this level.
func slotIndex(key uint64, level uint8) uint {
	return uint(key>>(uint(level)*levelBits)) % slotCount
}

// Arm sets the deadline of timer id, in ns of any clock that the caller uses consistently.
// Arming a timer that is already armed replaces its deadline and moves the timer to the end of
// the timers with the same deadline. Arm returns false and changes nothing if id is above
// MaxID.
func (w *Wheel) Arm(id uint32, deadline int64) bool {
	if id > MaxID {
		return false
	}
	if w.root == 0 {
		w.root = w.nodes.alloc(0, 0, topLevel)
	}
	t := w.timers.findOrCreate(id)
	if t.node != 0 {
		w.unlink(id, t)
	} else {
		w.timers.addArmed(id)
		w.live++
	}
	t.key = key(deadline)
	w.insert(id, t)
	if w.firstKnown && t.key < w.timers.at(w.first).key {
		w.first = id
	} else if w.live == 1 {
		w.first, w.firstKnown = id, true
	}
	return true
}

// Cancel disarms timer id. It returns false if the timer was not armed.
func (w *Wheel) Cancel(id uint32) bool {
	t := w.timers.find(id)
	if t == nil || t.node == 0 {
		return false
	}
	w.remove(id, t)
	return true
}

// Next returns the earliest armed deadline, or NoDeadline.
func (w *Wheel) Next() int64 {
	if w.live == 0 {
		return NoDeadline
	}
	return int64(w.timers.at(w.earliest()).key ^ 1<<63)
}

// Expire disarms the timers with a deadline at or before now and writes their ids to due,
// ordered by deadline and then by the order of arming. It returns the number of ids. If due is
// too short, the other timers stay armed and Next returns their earliest deadline.
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

// insert adds an unlinked timer to the slot of its key. It splits a full slot before.
func (w *Wheel) insert(id uint32, t *timer) {
	at := w.root
	for {
		n := w.nodes.at(at)
		s := slotIndex(t.key, n.level)
		switch {
		case n.used&(1<<s) == 0:
			n.used |= 1 << s
			n.slots[s] = id
			n.counts[s] = 1
			t.next, t.prev, t.node = id, id, at
			return
		case n.split&(1<<s) != 0:
			at = n.slots[s]
		case n.level == 0 || n.counts[s] < maxListLength:
			if n.level != 0 {
				n.counts[s]++
			}
			w.appendToList(n.slots[s], id, t)
			t.node = at
			return
		default:
			at = w.split(at, s)
		}
	}
}

// appendToList adds a timer at the end of the circular list that starts at head.
func (w *Wheel) appendToList(head, id uint32, t *timer) {
	h := w.timers.at(head)
	tail := h.prev
	w.timers.at(tail).next = id
	h.prev = id
	t.prev, t.next = tail, head
}

// split replaces the list of slot s of node at by a child node and returns the child. The
// timers are moved in list order, which preserves the order of arming.
func (w *Wheel) split(at uint32, s uint) uint32 {
	n := w.nodes.at(at)
	child := w.nodes.alloc(at, uint8(s), n.level-1)
	c := w.nodes.at(child)
	head := n.slots[s]
	n.split |= 1 << s
	n.slots[s] = child
	for id := head; ; {
		t := w.timers.at(id)
		next := t.next
		p := slotIndex(t.key, c.level)
		if c.used&(1<<p) == 0 {
			c.used |= 1 << p
			c.slots[p] = id
			c.counts[p] = 1
			t.next, t.prev = id, id
		} else {
			c.counts[p]++
			w.appendToList(c.slots[p], id, t)
		}
		t.node = child
		if next == head {
			return child
		}
		id = next
	}
}

// unlink removes an armed timer from its slot and frees nodes that become empty. t.node stays, so
// the caller must insert the timer again or set t.node to 0.
func (w *Wheel) unlink(id uint32, t *timer) {
	if w.first == id {
		w.firstKnown = false
	}
	n := w.nodes.at(t.node)
	s := slotIndex(t.key, n.level)
	if t.next != id {
		w.timers.at(t.prev).next = t.next
		w.timers.at(t.next).prev = t.prev
		if n.slots[s] == id {
			n.slots[s] = t.next
		}
		if n.level != 0 {
			n.counts[s]--
		}
		return
	}
	n.used &^= 1 << s
	for at := t.node; n.used == 0 && at != w.root; {
		parent, ps := n.parent, n.parentSlot
		w.nodes.free(at)
		at = parent
		n = w.nodes.at(at)
		n.used &^= 1 << ps
		n.split &^= 1 << ps
	}
}

// remove disarms an armed timer and may free its chunk; t must not be used any more.
func (w *Wheel) remove(id uint32, t *timer) {
	w.unlink(id, t)
	t.node = 0
	w.live--
	w.timers.removeArmed(id)
}

// earliest returns the id of the timer with the earliest deadline and caches it. At least one
// timer must be armed.
func (w *Wheel) earliest() uint32 {
	if w.firstKnown {
		return w.first
	}
	n := w.nodes.at(w.root)
	s := bits.TrailingZeros64(n.used)
	for n.split&(1<<s) != 0 {
		n = w.nodes.at(n.slots[s])
		s = bits.TrailingZeros64(n.used)
	}
	head := n.slots[s]
	first := head
	if n.level != 0 {
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
