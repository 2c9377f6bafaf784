package timers

import "math/bits"

// The two arenas of a wheel allocate timers and nodes by index from chunks that have no Go
// pointers. A chunk is freed when its last entry is freed. A few empty chunks are kept as
// spares, so that a load that varies around a chunk boundary does not allocate.

const (
	timerChunkBits = 10
	timerChunkSize = 1 << timerChunkBits
	nodeChunkBits  = 6
	nodeChunkSize  = 1 << nodeChunkBits
	spareChunks    = 4
)

// timer is one armed timer, an element of the circular list of its slot.
type timer struct {
	key        uint64 // the deadline as returned by key()
	next, prev uint32 // circular list of the slot, in order of arming
	node       uint32 // the node that has the timer in its list; 0: not armed
}

// timerChunk has the timers of consecutive ids. armed is the number of armed ones.
type timerChunk struct {
	armed  int
	timers [timerChunkSize]timer
}

// timerArena stores the timers by id. The wheel's caller chooses the ids.
type timerArena struct {
	chunks    []*timerChunk // by id >> timerChunkBits; nil if no timer of the chunk is armed
	spares    []*timerChunk
	allocated int // number of chunks that are not nil
	peak      int // maximum of allocated since ShouldReleaseMemory last returned true
}

// at returns the timer of an id whose chunk exists.
func (a *timerArena) at(id uint32) *timer {
	return &a.chunks[id>>timerChunkBits].timers[id%timerChunkSize]
}

// find returns the timer of any id, or nil if its chunk does not exist.
func (a *timerArena) find(id uint32) *timer {
	i := id >> timerChunkBits
	if int(i) >= len(a.chunks) || a.chunks[i] == nil {
		return nil
	}
	return &a.chunks[i].timers[id%timerChunkSize]
}

// findOrCreate returns the timer of any id. It allocates the chunk if it does not exist.
func (a *timerArena) findOrCreate(id uint32) *timer {
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
		a.allocated++
		a.peak = max(a.peak, a.allocated)
	}
	return &c.timers[id%timerChunkSize]
}

// addArmed counts a timer that becomes armed. Its chunk must exist.
func (a *timerArena) addArmed(id uint32) { a.chunks[id>>timerChunkBits].armed++ }

// removeArmed counts a timer that is no longer armed. If it was the last one of its chunk, the
// chunk is freed or becomes a spare.
func (a *timerArena) removeArmed(id uint32) {
	i := id >> timerChunkBits
	c := a.chunks[i]
	if c.armed--; c.armed > 0 {
		return
	}
	a.chunks[i] = nil
	a.allocated--
	if len(a.spares) < spareChunks {
		a.spares = append(a.spares, c)
	}
}

// node is one node of the wheel, with 64 slots.
type node struct {
	used       uint64            // slots that have a list of timers or a child node
	split      uint64            // used slots that have a child node
	slots      [slotCount]uint32 // the first timer of the list, or the child node
	counts     [slotCount]uint8  // length of each list; not maintained at level 0
	parent     uint32
	parentSlot uint8
	level      uint8
}

// nodeChunk has nodes of consecutive indices.
type nodeChunk struct {
	free     uint64 // a bit for each unused node
	position int    // index in nodeArena.withFree while free != 0
	nodes    [nodeChunkSize]node
}

// nodeArena allocates nodes. Index 0 means no node, so indices count from 1.
type nodeArena struct {
	chunks      []*nodeChunk
	withFree    []uint32 // chunks with an unused node
	freeIndices []uint32 // unused indices of chunks
	spare       *nodeChunk
}

// at returns the node with index i.
func (a *nodeArena) at(i uint32) *node {
	i--
	return &a.chunks[i>>nodeChunkBits].nodes[i%nodeChunkSize]
}

// alloc returns the index of an empty node of this level that belongs to a slot of parent. It
// adds a chunk if no node is free.
func (a *nodeArena) alloc(parent uint32, slot, level uint8) uint32 {
	if len(a.withFree) == 0 {
		a.grow()
	}
	ci := a.withFree[len(a.withFree)-1]
	c := a.chunks[ci]
	di := uint32(bits.TrailingZeros64(c.free))
	c.free &^= 1 << di
	if c.free == 0 {
		a.withFree = a.withFree[:len(a.withFree)-1]
	}
	n := &c.nodes[di]
	n.used, n.split = 0, 0
	n.parent, n.parentSlot, n.level = parent, slot, level
	return ci<<nodeChunkBits + di + 1
}

// grow adds a chunk of unused nodes, which is the spare one if there is one.
func (a *nodeArena) grow() {
	c := a.spare
	a.spare = nil
	if c == nil {
		c = new(nodeChunk)
	}
	c.free = 1<<nodeChunkSize - 1
	var ci uint32
	if n := len(a.freeIndices); n > 0 {
		ci = a.freeIndices[n-1]
		a.freeIndices = a.freeIndices[:n-1]
		a.chunks[ci] = c
	} else {
		ci = uint32(len(a.chunks))
		a.chunks = append(a.chunks, c)
	}
	c.position = len(a.withFree)
	a.withFree = append(a.withFree, ci)
}

// free frees a node. If no other node of the chunk is in use, the chunk is freed or becomes the
// spare.
func (a *nodeArena) free(i uint32) {
	i--
	ci := i >> nodeChunkBits
	c := a.chunks[ci]
	if c.free == 0 {
		c.position = len(a.withFree)
		a.withFree = append(a.withFree, ci)
	}
	c.free |= 1 << (i % nodeChunkSize)
	if c.free != 1<<nodeChunkSize-1 {
		return
	}
	last := len(a.withFree) - 1
	moved := a.withFree[last]
	a.withFree[c.position] = moved
	a.chunks[moved].position = c.position
	a.withFree = a.withFree[:last]
	a.chunks[ci] = nil
	a.freeIndices = append(a.freeIndices, ci)
	if a.spare == nil {
		a.spare = c
	}
}
