package timers

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// model is the reference behaviour of a Wheel: a sorted list.
type model struct {
	armed []armed
	count int
}

// armed is an armed timer; order counts the calls of arm.
type armed struct {
	id       uint32
	deadline int64
	order    int
}

// arm is Wheel.Arm.
func (m *model) arm(id uint32, deadline int64) {
	m.cancel(id)
	m.count++
	a := armed{id, deadline, m.count}
	i, _ := slices.BinarySearchFunc(m.armed, a, func(x, y armed) int {
		switch {
		case x.deadline != y.deadline && x.deadline < y.deadline:
			return -1
		case x.deadline != y.deadline:
			return 1
		default:
			return x.order - y.order
		}
	})
	m.armed = slices.Insert(m.armed, i, a)
}

// cancel is Wheel.Cancel.
func (m *model) cancel(id uint32) bool {
	i := slices.IndexFunc(m.armed, func(a armed) bool { return a.id == id })
	if i < 0 {
		return false
	}
	m.armed = slices.Delete(m.armed, i, i+1)
	return true
}

// next is Wheel.Next.
func (m *model) next() int64 {
	if len(m.armed) == 0 {
		return NoDeadline
	}
	return m.armed[0].deadline
}

// expire is Wheel.Expire with at most `capacity` timers.
func (m *model) expire(now int64, capacity int) []uint32 {
	var due []uint32
	for len(m.armed) > 0 && len(due) < capacity && m.armed[0].deadline <= now {
		due = append(due, m.armed[0].id)
		m.armed = m.armed[1:]
	}
	return due
}

// pair applies the same operations to a wheel and its model and compares them after each step.
type pair struct {
	t     testing.TB
	wheel Wheel
	model model
}

// arm arms a timer in both.
func (p *pair) arm(id uint32, deadline int64) {
	if !p.wheel.Arm(id, deadline) {
		p.t.Fatalf("Arm(%d) was refused", id)
	}
	p.model.arm(id, deadline)
	p.compare("Arm")
}

// cancel cancels a timer in both.
func (p *pair) cancel(id uint32) {
	if got, want := p.wheel.Cancel(id), p.model.cancel(id); got != want {
		p.t.Fatalf("Cancel(%d) = %v, want %v", id, got, want)
	}
	p.compare("Cancel")
}

// expire expires timers in both and compares their order.
func (p *pair) expire(now int64, capacity int) {
	buf := make([]uint32, capacity)
	got := buf[:p.wheel.Expire(now, buf)]
	if want := p.model.expire(now, capacity); !slices.Equal(got, want) {
		p.t.Fatalf("Expire(%d) = %v, want %v", now, got, want)
	}
	p.compare("Expire")
}

// compare compares the next deadline and the number of timers; `after` names the operation
// before.
func (p *pair) compare(after string) {
	if got, want := p.wheel.Next(), p.model.next(); got != want {
		p.t.Fatalf("after %s: Next() = %d, want %d", after, got, want)
	}
	if got, want := p.wheel.Len(), len(p.model.armed); got != want {
		p.t.Fatalf("after %s: Len() = %d, want %d", after, got, want)
	}
}

// checkInvariants verifies the internal consistency of lists, counts, bitmaps and arenas.
func (w *Wheel) checkInvariants(t testing.TB) {
	t.Helper()
	timers, nodes := 0, 0
	var walk func(at uint32)
	walk = func(at uint32) {
		nodes++
		n := w.nodes.at(at)
		if n.split&^n.used != 0 {
			t.Fatalf("node %d: split slots %b are not among the used slots %b", at, n.split, n.used)
		}
		if n.used == 0 && at != w.root {
			t.Fatalf("node %d is empty", at)
		}
		for s := range uint(slotCount) {
			if n.used&(1<<s) == 0 {
				continue
			}
			if n.split&(1<<s) != 0 {
				c := w.nodes.at(n.slots[s])
				if c.parent != at || uint(c.parentSlot) != s || c.level != n.level-1 {
					t.Fatalf("node %d has a wrong parent", n.slots[s])
				}
				walk(n.slots[s])
				continue
			}
			length := 0
			for id := n.slots[s]; ; {
				e := w.timers.at(id)
				if e.node != at || slotIndex(e.key, n.level) != s {
					t.Fatalf("timer %d is in the wrong slot", id)
				}
				if w.timers.at(e.next).prev != id {
					t.Fatalf("timer %d: broken list", id)
				}
				length++
				if id = e.next; id == n.slots[s] {
					break
				}
			}
			if n.level != 0 && length != int(n.counts[s]) {
				t.Fatalf("node %d slot %d: %d timers in the list, count is %d", at, s, length, n.counts[s])
			}
			if n.level != 0 && length > maxListLength {
				t.Fatalf("node %d slot %d: %d timers in a list", at, s, length)
			}
			timers += length
		}
	}
	if w.root != 0 {
		walk(w.root)
	}
	if timers != w.live {
		t.Fatalf("%d timers are in lists, %d are armed", timers, w.live)
	}
	allocated := 0
	for _, c := range w.nodes.chunks {
		if c != nil {
			allocated += nodeChunkSize - bits.OnesCount64(c.free)
		}
	}
	if allocated != nodes {
		t.Fatalf("%d nodes are allocated, %d are in use", allocated, nodes)
	}
}

// spans are the time scales of random deadlines: within one slot of each level, and beyond.
var spans = []int64{1, 10, 64, 5_000, 300_000, 20_000_000, 2_000_000_000,
	100_000_000_000, 7_200_000_000_000, 1 << 56, math.MaxInt64 / 2}

func TestWheelAgreesWithSortedList(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		p := &pair{t: t}
		ids := uint32(1 + rng.IntN(400))
		now := rng.Int64N(1 << 50)
		deadline := func() int64 {
			span := spans[rng.IntN(len(spans))]
			switch rng.IntN(20) {
			case 0:
				return now - rng.Int64N(span) // past
			case 1:
				return int64(rng.Uint64()) // any value, including negative ones
			default:
				return now + rng.Int64N(span)
			}
		}
		for range 3000 {
			switch rng.IntN(10) {
			case 0, 1, 2, 3, 4:
				p.arm(rng.Uint32N(ids), deadline())
			case 5, 6:
				p.cancel(rng.Uint32N(ids))
			case 7:
				// Advance to the next deadline or 1 ns before it. Other cases advance far
				// beyond it.
				if next := p.model.next(); next != NoDeadline && next > now {
					now = next - int64(rng.IntN(2))
				}
				p.expire(now, rng.IntN(20))
			default:
				now += rng.Int64N(spans[rng.IntN(7)])
				p.expire(now, rng.IntN(20))
			}
		}
		p.wheel.checkInvariants(t)
		p.expire(math.MaxInt64, int(ids))
		p.wheel.checkInvariants(t)
	}
}

func FuzzWheel(f *testing.F) {
	f.Add([]byte{0, 1, 3, 9, 1, 2, 0, 0, 3, 4, 5, 6})
	f.Add([]byte("arm, cancel and expire in some order or other"))
	f.Fuzz(func(t *testing.T, program []byte) {
		p := &pair{t: t}
		now := int64(1 << 40)
		for len(program) >= 4 {
			op, id, scale, x := program[0], uint32(program[1]), program[2], int64(program[3])
			program = program[4:]
			at := now + (x-64)<<(scale%56)
			switch op % 4 {
			case 0, 1:
				p.arm(id, at)
			case 2:
				p.cancel(id)
			default:
				now = max(now, at)
				p.expire(now, int(x))
			}
		}
		p.wheel.checkInvariants(t)
	})
}
