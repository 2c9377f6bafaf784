package netloop

import "unsafe"

// output fills the completion queue and the arena of one turn. Both belong to C and have a
// fixed size. Callers must check for space before they add to them.
type output struct {
	cmp   []Completion
	n     int // number of completions in cmp
	limit int // maximum of n in the current step of the turn

	large     *[MaxLarge]uintptr // buffers of C for large receives; 0: none
	largeSize uintptr            // size of each
	largeNext int                // index of the next unused buffer

	arena     unsafe.Pointer
	arenaSize uintptr
	arenaUsed uintptr
}

const (
	// minCompletions and minArena are the minimum sizes: serving one registration may add
	// maxPerStep completions, and reports may use only half of the queue.
	minCompletions = 16
	minArena       = 4096
	maxPerStep     = 4

	// maxReceive is the maximum size of one recv. minReceive is the space that must be left for
	// a recv (or a quarter of a small arena).
	maxReceive = 256 << 10
	minReceive = 64 << 10

	// largeReceive is the number of received bytes from which a stream's next receive gets a
	// large buffer.
	largeReceive = 32 << 10

	// arenaAlign separates the blocks of the arena by cache lines and aligns Endpoints.
	arenaAlign = 64
)

// begin empties the completion queue and the arena of the shared block for a new turn.
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

// largeBuffer returns the next unused buffer for a large receive. It returns 0 if all are used in
// this turn, or if C has not supplied one.
func (o *output) largeBuffer() uintptr {
	if o.largeNext == MaxLarge {
		return 0
	}
	return o.large[o.largeNext]
}

// completionSpace returns the number of completions that may still be added.
func (o *output) completionSpace() int { return o.limit - o.n }

// put appends a completion; there must be space.
func (o *output) put(c Completion) {
	o.cmp[o.n] = c
	o.n++
}

// arenaSpace returns the number of unused bytes of the arena.
func (o *output) arenaSpace() uintptr { return o.arenaSize - o.arenaUsed }

// receiveSpace returns the maximum size of one recv, or 0 if the arena is too full.
func (o *output) receiveSpace() uintptr {
	space := o.arenaSpace()
	if space < min(minReceive, o.arenaSize/4) {
		return 0
	}
	return min(space, maxReceive)
}

// arenaNext returns the address of the unused part of the arena.
func (o *output) arenaNext() unsafe.Pointer { return unsafe.Add(o.arena, o.arenaUsed) }

// commitArena marks n bytes of the arena as used, and the bytes up to the next multiple of
// arenaAlign.
func (o *output) commitArena(n uintptr) {
	o.arenaUsed = min((o.arenaUsed+n+arenaAlign-1)&^(arenaAlign-1), o.arenaSize)
}
