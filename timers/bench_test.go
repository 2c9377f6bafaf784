package timers

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
)

// heapTimers is the usual alternative: container/heap, with the position of each timer stored
// so that it can be cancelled.
type heapTimers struct {
	order []uint32
	at    []int
	key   []int64
}

// newHeapTimers returns a heap for ids below n.
func newHeapTimers(n int) *heapTimers {
	return &heapTimers{at: make([]int, n), key: make([]int64, n)}
}

func (h *heapTimers) Len() int           { return len(h.order) }
func (h *heapTimers) Less(i, j int) bool { return h.key[h.order[i]] < h.key[h.order[j]] }
func (h *heapTimers) Swap(i, j int) {
	h.order[i], h.order[j] = h.order[j], h.order[i]
	h.at[h.order[i]], h.at[h.order[j]] = i, j
}
func (h *heapTimers) Push(x any) {
	id := x.(uint32)
	h.at[id] = len(h.order)
	h.order = append(h.order, id)
}
func (h *heapTimers) Pop() any {
	id := h.order[len(h.order)-1]
	h.order = h.order[:len(h.order)-1]
	return id
}

// Arm adds a timer, which must not be armed.
func (h *heapTimers) Arm(id uint32, deadline int64) {
	h.key[id] = deadline
	heap.Push(h, id)
}

// Cancel removes an armed timer.
func (h *heapTimers) Cancel(id uint32) { heap.Remove(h, h.at[id]) }

// Next returns the earliest deadline. A timer must be armed.
func (h *heapTimers) Next() int64 { return h.key[h.order[0]] }

// PopFirst removes the earliest timer and returns its id.
func (h *heapTimers) PopFirst() uint32 { return heap.Pop(h).(uint32) }

// sizes are the numbers of armed timers of the benchmarks.
var sizes = []int{1e3, 1e5, 1e6}

// minute is a minute in ns.
const minute = 60_000_000_000

// BenchmarkArmCancel arms one timer, reads the next deadline and cancels the timer, while many
// others are armed: the cost of a timeout that does not expire.
func BenchmarkArmCancel(b *testing.B) {
	for _, n := range sizes {
		rng := rand.New(rand.NewPCG(1, 2))
		deadlines := make([]int64, 1<<16)
		for i := range deadlines {
			deadlines[i] = rng.Int64N(minute)
		}
		b.Run(fmt.Sprintf("wheel/%d", n), func(b *testing.B) {
			var w Wheel
			for i := range uint32(n) {
				w.Arm(i, rng.Int64N(minute))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				w.Arm(uint32(n), deadlines[i%len(deadlines)])
				w.Next()
				w.Cancel(uint32(n))
			}
		})
		b.Run(fmt.Sprintf("heap/%d", n), func(b *testing.B) {
			h := newHeapTimers(n + 1)
			for i := range uint32(n) {
				h.Arm(i, rng.Int64N(minute))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				h.Arm(uint32(n), deadlines[i%len(deadlines)])
				h.Next()
				h.Cancel(uint32(n))
			}
		})
	}
}

// BenchmarkTimeouts arms timeouts of one minute and cancels the oldest, as a server does
// for its requests. The cancelled timer is always the earliest.
func BenchmarkTimeouts(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("wheel/%d", n), func(b *testing.B) {
			var w Wheel
			now := int64(1 << 40)
			for i := range uint32(n) {
				now += 10_000
				w.Arm(i, now+minute)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				id := uint32(i % n)
				now += 10_000
				w.Cancel(id)
				w.Arm(id, now+minute)
				w.Next()
			}
		})
		b.Run(fmt.Sprintf("heap/%d", n), func(b *testing.B) {
			h := newHeapTimers(n)
			now := int64(1 << 40)
			for i := range uint32(n) {
				now += 10_000
				h.Arm(i, now+minute)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				id := uint32(i % n)
				now += 10_000
				h.Cancel(id)
				h.Arm(id, now+minute)
				h.Next()
			}
		})
	}
}

// BenchmarkExpire expires the earliest timer and arms it again at a random time, so it goes
// through all timers in order.
func BenchmarkExpire(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("wheel/%d", n), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			var w Wheel
			for i := range uint32(n) {
				w.Arm(i, rng.Int64N(minute))
			}
			buf := make([]uint32, 1)
			b.ReportAllocs()
			for b.Loop() {
				now := w.Next()
				if w.Expire(now, buf) != 1 {
					b.Fatal("nothing was due")
				}
				w.Arm(buf[0], now+rng.Int64N(minute))
			}
		})
		b.Run(fmt.Sprintf("heap/%d", n), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			h := newHeapTimers(n)
			for i := range uint32(n) {
				h.Arm(i, rng.Int64N(minute))
			}
			b.ReportAllocs()
			for b.Loop() {
				now := h.Next()
				h.Arm(h.PopFirst(), now+rng.Int64N(minute))
			}
		})
	}
}
