package netloop

import "unsafe"

// output fills the completion queue and the arena of one turn. Both belong to C
// and are of fixed size; whoever fills asks for room first.
type output struct {
	cmp   []Completion
	n     int
	limit int // completions allowed in the present step of the turn

	large     *[LargeMax]uintptr
	largeSize uintptr
	largeNext int

	arena     unsafe.Pointer
	arenaSize uintptr
	arenaUsed uintptr
}

const (
	// minCompletions and minArena are the least that a reactor works with: a
	// stream may yield stepRoom completions at once, and half of the queue is
	// open to reports alone.
	minCompletions = 16
	minArena       = 4096
	stepRoom       = 4

	// maxReceive is asked of one recv at most, and leastReceive is how much
	// room must be left for one (a quarter of a small arena).
	maxReceive   = 256 << 10
	leastReceive = 64 << 10

	// A stream that received largeReceive bytes at once gets a buffer of its own
	// for the next.
	largeReceive = 32 << 10

	// arenaAlign keeps the pieces of the arena apart by a cache line, and
	// Endpoints aligned.
	arenaAlign = 64
)

// begin empties the queues for a turn.
func (o *output) begin(sh *Shared) {
	o.cmp = unsafe.Slice(sh.Cmp, sh.CmpCap)
	o.n = 0
	o.limit = len(o.cmp)
	o.arena = unsafe.Pointer(sh.Arena)
	o.arenaSize = uintptr(sh.ArenaCap)
	o.arenaUsed = 0
	o.large = &sh.Large
	o.largeSize = uintptr(sh.LargeSize)
	o.largeNext = 0
}

// largeBuffer is the next buffer for a large receive, or 0 where there is none.
func (o *output) largeBuffer() uintptr {
	if o.largeNext == LargeMax {
		return 0
	}
	return o.large[o.largeNext]
}

// room is how many completions may still be put.
func (o *output) room() int { return o.limit - o.n }

// put appends a completion; there must be room.
func (o *output) put(c Completion) {
	o.cmp[o.n] = c
	o.n++
}

// arenaRoom is how many bytes of the arena are left.
func (o *output) arenaRoom() uintptr { return o.arenaSize - o.arenaUsed }

// receiveRoom is how much one recv may ask for, or 0 if too little is left.
func (o *output) receiveRoom() uintptr {
	room := o.arenaRoom()
	if room < min(leastReceive, o.arenaSize/4) {
		return 0
	}
	return min(room, maxReceive)
}

// arenaNext is the next free place of the arena.
func (o *output) arenaNext() unsafe.Pointer { return unsafe.Add(o.arena, o.arenaUsed) }

// use takes n bytes of the arena.
func (o *output) use(n uintptr) {
	o.arenaUsed = min((o.arenaUsed+n+arenaAlign-1)&^(arenaAlign-1), o.arenaSize)
}
