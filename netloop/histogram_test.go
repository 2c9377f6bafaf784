package netloop

import "testing"

func TestHistogramBucketsAreContiguous(t *testing.T) {
	if !countMetrics {
		t.Skip("metrics are compiled out")
	}
	// The first value of each bucket is the last value of the previous bucket plus one.
	last := -1
	for v := uint64(0); v < 1<<16; v++ {
		b := bucketIndex(v)
		if b != last && b != last+1 {
			t.Fatalf("%d lies in bucket %d, and %d in %d", v-1, last, v, b)
		}
		last = b
	}
	for b, v := range map[int]uint64{0: 0, 7: 7, 8: 8, 15: 15, 16: 16, 17: 18, 23: 30, 24: 32} {
		if got := bucketIndex(v); got != b {
			t.Errorf("%d lies in bucket %d, want %d", v, got, b)
		}
	}
	if got := bucketIndex(1<<64 - 1); got != Buckets-1 {
		t.Errorf("the greatest value lies in bucket %d", got)
	}
}

func TestHistogramCountsSumAndMaximum(t *testing.T) {
	if !countMetrics {
		t.Skip("metrics are compiled out")
	}
	var h Histogram
	for _, v := range []int64{5, 1, -7, 100} {
		h.add(v)
	}
	if h.Count != 4 || h.Sum != 106 || h.Max != 100 {
		t.Errorf("%d values, sum %d, max %d", h.Count, h.Sum, h.Max)
	}
	sum := uint64(0)
	for _, n := range h.Bucket {
		sum += n
	}
	if sum != 4 || h.Bucket[0] != 1 || h.Bucket[bucketIndex(100)] != 1 {
		t.Errorf("buckets %v", h.Bucket)
	}
}

// The metrics of a turn count its transfers.
func TestTurnCountsItsTransfers(t *testing.T) {
	if !countMetrics {
		t.Skip("metrics are compiled out")
	}
	l := defaultLoop(t)
	m := &l.sh.Metrics
	s := l.stream(0)
	turns, busy := m.PollTime.Count, m.IterationTime.Count
	writePeer(t, s.peer, make([]byte, 300))
	l.turn(-1)
	l.write(s, copyToC(t, make([]byte, 200)))
	l.turn(0)
	if m.Reads != 1 || m.BytesReceived != 300 || m.Writes != 1 || m.BytesSent != 200 {
		t.Errorf("%d reads of %d bytes, %d writes of %d", m.Reads, m.BytesReceived, m.Writes, m.BytesSent)
	}
	if m.PollTime.Count != turns+2 || m.IterationTime.Count != busy+2 {
		t.Errorf("%d polls and %d iterations more", m.PollTime.Count-turns, m.IterationTime.Count-busy)
	}
	if m.EventsPerTurn.Sum == 0 {
		t.Error("no events were counted")
	}
}

// The time in the poll is idle time; the time outside is busy time.
func TestPollTimeIsTheWaitingTime(t *testing.T) {
	if !countMetrics {
		t.Skip("metrics are compiled out")
	}
	l := defaultLoop(t)
	before := l.sh.Metrics.PollTime.Sum
	for l.sh.Metrics.PollTime.Sum-before < 2_000_000 { // a signal may end a wait
		l.turn(1_000_000)
	}
	if longest := l.sh.Metrics.PollTime.Max; longest < 500_000 {
		t.Errorf("the longest poll took %d ns", longest)
	}
}
