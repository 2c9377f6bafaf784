package netloop

import "math/bits"

// add counts a value, unless the build has no metrics. A negative value, which a clock cannot
// return, counts as 0.
func (h *Histogram) add(value int64) {
	if !countMetrics {
		return
	}
	v := uint64(max(value, 0))
	h.Count++
	h.Sum += v
	h.Max = max(h.Max, v)
	h.Bucket[bucketIndex(v)]++
}

// bucketIndex returns the bucket of a value: eight buckets for each power of two. Larger values
// are in the last bucket.
func bucketIndex(v uint64) int {
	if v < 8 {
		return int(v)
	}
	e := bits.Len64(v) - 1
	return min((e-2)<<3|int(v>>(e-3)&7), Buckets-1)
}

// countReceived counts a receive of n bytes in the metrics.
func (r *Reactor) countReceived(n int) {
	if countMetrics {
		r.shared.Metrics.Reads++
		r.shared.Metrics.BytesReceived += uint64(n)
	}
}

// countSent counts a send of n bytes in the metrics; a send of 0 bytes is not counted.
func (r *Reactor) countSent(n uint64) {
	if countMetrics && n > 0 {
		r.shared.Metrics.Writes++
		r.shared.Metrics.BytesSent += n
	}
}
