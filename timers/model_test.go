package timers

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// model is what a Wheel must behave like: a sorted list.
type model struct {
	armed []armed
	count int
}

type armed struct {
	id       uint32
	deadline int64
	order    int
}

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

func (m *model) cancel(id uint32) bool {
	i := slices.IndexFunc(m.armed, func(a armed) bool { return a.id == id })
	if i < 0 {
		return false
	}
	m.armed = slices.Delete(m.armed, i, i+1)
	return true
}

func (m *model) next() int64 {
	if len(m.armed) == 0 {
		return None
	}
	return m.armed[0].deadline
}

func (m *model) expire(now int64, room int) []uint32 {
	var due []uint32
	for len(m.armed) > 0 && len(due) < room && m.armed[0].deadline <= now {
		due = append(due, m.armed[0].id)
		m.armed = m.armed[1:]
	}
	return due
}

// pair drives a wheel and its model alike, and compares them after each step.
type pair struct {
	t     testing.TB
	wheel Wheel
	model model
}

func (p *pair) arm(id uint32, deadline int64) {
	if !p.wheel.Arm(id, deadline) {
		p.t.Fatalf("Arm(%d) was refused", id)
	}
	p.model.arm(id, deadline)
	p.compare("Arm")
}

func (p *pair) cancel(id uint32) {
	if got, want := p.wheel.Cancel(id), p.model.cancel(id); got != want {
		p.t.Fatalf("Cancel(%d) = %v, want %v", id, got, want)
	}
	p.compare("Cancel")
}

func (p *pair) expire(now int64, room int) {
	buf := make([]uint32, room)
	got := buf[:p.wheel.Expire(now, buf)]
	if want := p.model.expire(now, room); !slices.Equal(got, want) {
		p.t.Fatalf("Expire(%d) = %v, want %v", now, got, want)
	}
	p.compare("Expire")
}

func (p *pair) compare(after string) {
	if got, want := p.wheel.Next(), p.model.next(); got != want {
		p.t.Fatalf("after %s: Next() = %d, want %d", after, got, want)
	}
	if got, want := p.wheel.Len(), len(p.model.armed); got != want {
		p.t.Fatalf("after %s: Len() = %d, want %d", after, got, want)
	}
}

// check verifies the inner order: lists, counts, bitmaps and the books of the
// arenas.
func (w *Wheel) check(t testing.TB) {
	t.Helper()
	timers, dials := 0, 0
	var walk func(at uint32)
	walk = func(at uint32) {
		dials++
		d := w.dials.at(at)
		if d.opened&^d.taken != 0 {
			t.Fatalf("dial %d: opened slots %b that are not taken %b", at, d.opened, d.taken)
		}
		if d.taken == 0 && at != w.root {
			t.Fatalf("dial %d is empty", at)
		}
		for s := range uint(slots) {
			if d.taken&(1<<s) == 0 {
				continue
			}
			if d.opened&(1<<s) != 0 {
				f := w.dials.at(d.slot[s])
				if f.parent != at || uint(f.parentSlot) != s || f.level != d.level-1 {
					t.Fatalf("dial %d does not know its parent", d.slot[s])
				}
				walk(d.slot[s])
				continue
			}
			n := 0
			for id := d.slot[s]; ; {
				e := w.timers.at(id)
				if e.dial != at || slotOf(e.key, d.level) != s {
					t.Fatalf("timer %d is in the wrong place", id)
				}
				if w.timers.at(e.next).prev != id {
					t.Fatalf("timer %d: broken ring", id)
				}
				n++
				if id = e.next; id == d.slot[s] {
					break
				}
			}
			if d.level != 0 && n != int(d.count[s]) {
				t.Fatalf("dial %d slot %d: %d timers, counted %d", at, s, n, d.count[s])
			}
			if d.level != 0 && n > crowd {
				t.Fatalf("dial %d slot %d: %d timers in a list", at, s, n)
			}
			timers += n
		}
	}
	if w.root != 0 {
		walk(w.root)
	}
	if timers != w.live {
		t.Fatalf("%d timers hang on the dials, %d are armed", timers, w.live)
	}
	taken := 0
	for _, c := range w.dials.chunks {
		if c != nil {
			taken += dialChunkSize - bits.OnesCount64(c.free)
		}
	}
	if taken != dials {
		t.Fatalf("%d dials are taken, %d are in use", taken, dials)
	}
}

// spans are the scales on which random deadlines are spread: within one slot of
// each level, and beyond.
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
				return int64(rng.Uint64()) // anything, negative ones too
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
				// To just before or at the next deadline, or well beyond it.
				if next := p.model.next(); next != None && next > now {
					now = next - int64(rng.IntN(2))
				}
				p.expire(now, rng.IntN(20))
			default:
				now += rng.Int64N(spans[rng.IntN(7)])
				p.expire(now, rng.IntN(20))
			}
		}
		p.wheel.check(t)
		p.expire(math.MaxInt64, int(ids))
		p.wheel.check(t)
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
		p.wheel.check(t)
	})
}
