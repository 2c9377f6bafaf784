package timers

import "math/bits"

// The two arenas of a wheel. Both hand out places by index from chunks that
// hold no Go pointers, and give a chunk back when the last place in it is free.
// A few empty chunks are kept aside, so that a load which hovers about the edge
// of a chunk does not allocate.

const (
	timerChunkBits = 10
	timerChunkSize = 1 << timerChunkBits
	dialChunkBits  = 6
	dialChunkSize  = 1 << dialChunkBits
	spareChunks    = 4
)

// timer is one armed timer: a link in the ring of its slot.
type timer struct {
	key        uint64 // the deadline, see key
	next, prev uint32 // ring of the slot, in order of arming
	dial       uint32 // the dial it hangs on; 0: not armed
}

type timerChunk struct {
	armed  int
	timers [timerChunkSize]timer
}

// timerArena holds the timers by id, which the wheel's caller chooses.
type timerArena struct {
	chunks []*timerChunk // by id >> timerChunkBits; nil: nothing armed there
	spares []*timerChunk
	held   int // chunks that are not nil
	most   int // of them, since the last Emptied
}

// at returns the timer of an id whose chunk is known to exist.
func (a *timerArena) at(id uint32) *timer {
	return &a.chunks[id>>timerChunkBits].timers[id%timerChunkSize]
}

// find returns the timer of any id, or nil.
func (a *timerArena) find(id uint32) *timer {
	i := id >> timerChunkBits
	if int(i) >= len(a.chunks) || a.chunks[i] == nil {
		return nil
	}
	return &a.chunks[i].timers[id%timerChunkSize]
}

// claim returns the timer of any id, and makes its chunk where there is none.
func (a *timerArena) claim(id uint32) *timer {
	i := int(id >> timerChunkBits)
	for len(a.chunks) <= i {
		a.chunks = append(a.chunks, nil)
	}
	c := a.chunks[i]
	if c == nil {
		if n := len(a.spares); n > 0 {
			c = a.spares[n-1]
			a.spares[n-1] = nil
			a.spares = a.spares[:n-1]
		} else {
			c = new(timerChunk)
		}
		a.chunks[i] = c
		a.held++
		a.most = max(a.most, a.held)
	}
	return &c.timers[id%timerChunkSize]
}

// keep counts a timer that becomes armed, release one that no longer is.
func (a *timerArena) keep(id uint32) { a.chunks[id>>timerChunkBits].armed++ }

func (a *timerArena) release(id uint32) {
	i := id >> timerChunkBits
	c := a.chunks[i]
	if c.armed--; c.armed > 0 {
		return
	}
	a.chunks[i] = nil
	a.held--
	if len(a.spares) < spareChunks {
		a.spares = append(a.spares, c)
	}
}

// dial is one wheel face of 64 slots.
type dial struct {
	taken      uint64        // slots that hold a timer or lead to a finer dial
	opened     uint64        // those of them that lead to a finer dial
	slot       [slots]uint32 // the first timer, or the finer dial
	count      [slots]uint8  // timers in the list; not kept at level 0
	parent     uint32
	parentSlot uint8
	level      uint8
}

type dialChunk struct {
	free  uint64 // a bit for each dial that is not in use
	room  int    // position in dialArena.room while free != 0
	dials [dialChunkSize]dial
}

// dialArena hands out dials; index 0 means none, so places count from 1.
type dialArena struct {
	chunks []*dialChunk
	room   []uint32 // chunks with a free dial
	gone   []uint32 // indices whose chunk was given back
	spare  *dialChunk
}

func (a *dialArena) at(i uint32) *dial {
	i--
	return &a.chunks[i>>dialChunkBits].dials[i%dialChunkSize]
}

// take returns an empty dial under slot of parent.
func (a *dialArena) take(parent uint32, slot, level uint8) uint32 {
	if len(a.room) == 0 {
		a.grow()
	}
	ci := a.room[len(a.room)-1]
	c := a.chunks[ci]
	di := uint32(bits.TrailingZeros64(c.free))
	c.free &^= 1 << di
	if c.free == 0 {
		a.room = a.room[:len(a.room)-1]
	}
	d := &c.dials[di]
	d.taken, d.opened = 0, 0
	d.parent, d.parentSlot, d.level = parent, slot, level
	return ci<<dialChunkBits + di + 1
}

func (a *dialArena) grow() {
	c := a.spare
	a.spare = nil
	if c == nil {
		c = new(dialChunk)
	}
	c.free = 1<<dialChunkSize - 1
	var ci uint32
	if n := len(a.gone); n > 0 {
		ci = a.gone[n-1]
		a.gone = a.gone[:n-1]
		a.chunks[ci] = c
	} else {
		ci = uint32(len(a.chunks))
		a.chunks = append(a.chunks, c)
	}
	c.room = len(a.room)
	a.room = append(a.room, ci)
}

// drop gives a dial back, and its chunk where that was the last one in it.
func (a *dialArena) drop(i uint32) {
	i--
	ci := i >> dialChunkBits
	c := a.chunks[ci]
	if c.free == 0 {
		c.room = len(a.room)
		a.room = append(a.room, ci)
	}
	c.free |= 1 << (i % dialChunkSize)
	if c.free != 1<<dialChunkSize-1 {
		return
	}
	last := len(a.room) - 1
	moved := a.room[last]
	a.room[c.room] = moved
	a.chunks[moved].room = c.room
	a.room = a.room[:last]
	a.chunks[ci] = nil
	a.gone = append(a.gone, ci)
	if a.spare == nil {
		a.spare = c
	}
}
