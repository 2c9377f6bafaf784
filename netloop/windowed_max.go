package netloop

// recentTime is how long a window lasts, in ns.
const windowLength = 60_000_000_000

// recent is the most of something in the last one to two windows: that which is on, and the one
// before it.
type windowedMax struct {
	windowEnd         int64
	current, previous uint64
}

// most notes a value and tells the most.
func (w *windowedMax) observe(now int64, value uint64) uint64 {
	if now >= w.windowEnd {
		w.previous = w.current
		if now >= w.windowEnd+windowLength {
			w.previous = 0 // of a window before the one before
		}
		w.current, w.windowEnd = 0, now+windowLength
	}
	w.current = max(w.current, value)
	return max(w.current, w.previous)
}
