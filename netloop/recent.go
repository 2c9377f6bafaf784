package netloop

// recentTime is how long a window lasts, in ns.
const recentTime = 60_000_000_000

// recent is the most of something in the last one to two windows: that which is on, and the one
// before it.
type recent struct {
	ends            int64
	current, before uint64
}

// most notes a value and tells the most.
func (w *recent) most(now int64, value uint64) uint64 {
	if now >= w.ends {
		w.before = w.current
		if now >= w.ends+recentTime {
			w.before = 0 // of a window before the one before
		}
		w.current, w.ends = 0, now+recentTime
	}
	w.current = max(w.current, value)
	return max(w.current, w.before)
}
