package timers

import (
	"math"
	"slices"
	"testing"
)

// expireAll expires up to 1000 timers and returns their ids.
func expireAll(w *Wheel, now int64) []uint32 {
	buf := make([]uint32, 1000)
	return buf[:w.Expire(now, buf)]
}

func TestEqualDeadlinesExpireInOrderOfArming(t *testing.T) {
	var w Wheel
	var want []uint32
	// Far more timers than a list of another level may have, with other timers between them.
	for i := range uint32(300) {
		id := (i*7 + 3) % 300
		w.Arm(id, 1_000_000)
		want = append(want, id)
		w.Arm(300+i, 1_000_000+int64(i)*17+1)
	}
	w.checkInvariants(t)
	if got := expireAll(&w, 1_000_000); !slices.Equal(got, want) {
		t.Errorf("order is %v, want %v", got, want)
	}
}

func TestRearmReplacesDeadlineAndMovesToTheEnd(t *testing.T) {
	var w Wheel
	w.Arm(0, 50)
	w.Arm(1, 50)
	w.Arm(0, 50)
	w.Arm(2, 10)
	w.Arm(2, 60)
	if w.Len() != 3 || w.Next() != 50 {
		t.Fatalf("Len() = %d, Next() = %d", w.Len(), w.Next())
	}
	if got := expireAll(&w, 100); !slices.Equal(got, []uint32{1, 0, 2}) {
		t.Errorf("order is %v", got)
	}
}

func TestPastAndFarDeadlinesExpireInOrder(t *testing.T) {
	var w Wheel
	year := int64(365 * 24 * 3600 * 1e9)
	w.Arm(0, 250*year)
	w.Arm(1, -5)
	w.Arm(2, math.MinInt64)
	w.Arm(3, 0)
	w.Arm(4, math.MaxInt64)
	if w.Next() != math.MinInt64 {
		t.Errorf("Next() = %d", w.Next())
	}
	if got := expireAll(&w, 0); !slices.Equal(got, []uint32{2, 1, 3}) {
		t.Errorf("past deadlines expire in order %v", got)
	}
	if w.Next() != 250*year {
		t.Errorf("Next() = %d", w.Next())
	}
	if got := expireAll(&w, 250*year-1); len(got) != 0 {
		t.Errorf("expired early: %v", got)
	}
	if got := expireAll(&w, math.MaxInt64); !slices.Equal(got, []uint32{0, 4}) {
		t.Errorf("far deadlines expire in order %v", got)
	}
}

func TestTimersNeverExpireEarly(t *testing.T) {
	for _, d := range []int64{1, 63, 64, 65, 4096, 1 << 20, 1<<30 - 1, 1 << 45} {
		var w Wheel
		w.Arm(0, d)
		if got := expireAll(&w, d-1); len(got) != 0 {
			t.Errorf("deadline %d expired at %d", d, d-1)
		}
		if got := expireAll(&w, d); len(got) != 1 {
			t.Errorf("deadline %d did not expire at %d", d, d)
		}
	}
}

func TestExpireWithShortBufferLeavesTheRestArmed(t *testing.T) {
	var w Wheel
	for i := range uint32(10) {
		w.Arm(i, int64(10-i))
	}
	buf := make([]uint32, 4)
	if n := w.Expire(100, buf); n != 4 || !slices.Equal(buf, []uint32{9, 8, 7, 6}) {
		t.Fatalf("first %d: %v", n, buf)
	}
	if w.Next() != 5 || w.Len() != 6 {
		t.Errorf("Next() = %d, Len() = %d", w.Next(), w.Len())
	}
}

func TestArmRefusesIDsAboveMaxID(t *testing.T) {
	var w Wheel
	if w.Arm(MaxID+1, 1) {
		t.Error("an id above MaxID was armed")
	}
	if w.Cancel(0) || w.Cancel(math.MaxUint32) {
		t.Error("an unknown id was found")
	}
	if len(w.timers.chunks) != 0 {
		t.Error("an id above MaxID allocated memory")
	}
	if !w.Arm(MaxID, 1) || !w.Cancel(MaxID) {
		t.Error("the largest id was refused")
	}
}

// allocatedChunks returns the number of chunks that a wheel has allocated, including its spares.
func allocatedChunks(w *Wheel) (timers, nodes int) {
	for _, c := range w.timers.chunks {
		if c != nil {
			timers++
		}
	}
	for _, c := range w.nodes.chunks {
		if c != nil {
			nodes++
		}
	}
	if w.nodes.spare != nil {
		nodes++
	}
	return timers + len(w.timers.spares), nodes
}

func TestMemoryIsFreedAfterManyCancels(t *testing.T) {
	var w Wheel
	const n = 200_000
	for round := range 3 {
		for i := range uint32(n) {
			w.Arm(i, int64(i)*12_345_678%60_000_000_000)
		}
		timers, nodes := allocatedChunks(&w)
		if timers < n/timerChunkSize || nodes < 10 {
			t.Fatalf("round %d: %d and %d chunks are too few for %d timers", round, timers, nodes, n)
		}
		for i := range uint32(n) {
			w.Cancel(i * 7919 % n) // random order; 7919 and n have no common factor
		}
		w.checkInvariants(t)
		if timers, nodes = allocatedChunks(&w); timers > spareChunks || nodes > 2 {
			t.Errorf("round %d: %d and %d chunks were not freed", round, timers, nodes)
		}
	}
}

func TestShouldReleaseMemoryReportsOnceAfterManyCancels(t *testing.T) {
	var w Wheel
	const n = releaseThreshold * timerChunkSize
	for range 2 {
		for i := range uint32(n) {
			w.Arm(i, int64(i))
			if w.ShouldReleaseMemory() {
				t.Fatalf("reported with %d timers armed", i+1)
			}
		}
		reported := 0
		for i := range uint32(n) {
			w.Cancel(n - 1 - i)
			if !w.ShouldReleaseMemory() {
				continue
			}
			if reported++; w.Len() > n/8 || w.Len() == 0 {
				t.Errorf("reported with %d of %d timers left", w.Len(), n)
			}
		}
		if reported != 1 {
			t.Errorf("reported %d times, want once", reported)
		}
	}
	for i := range uint32(n - timerChunkSize) {
		w.Arm(i, 0)
	}
	if expireAll(&w, 0); w.ShouldReleaseMemory() {
		t.Error("reported below the threshold")
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	var w Wheel
	now := int64(1 << 40)
	for i := range uint32(2000) {
		w.Arm(i, now+int64(i)*1_000_000)
	}
	buf := make([]uint32, 16)
	i := uint32(0)
	step := func() {
		id := 2000 + i%100
		w.Arm(id, now+30_000_000_000+int64(i))
		w.Next()
		w.Cancel(id)
		now += 1000
		for _, id := range buf[:w.Expire(now, buf)] {
			w.Arm(id, now+2_000_000_000)
		}
		i++
	}
	for range 10_000 {
		step()
	}
	if allocs := testing.AllocsPerRun(10_000, step); allocs != 0 {
		t.Errorf("%v allocations per step", allocs)
	}
}
