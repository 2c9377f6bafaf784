package netloop

// windowLength is the length of a window, in ns.
const windowLength = 60_000_000_000

// windowedMax is the maximum of the values in the last one to two windows: the current window
// and the previous one.
type windowedMax struct {
	windowEnd         int64
	current, previous uint64
}

// add adds a value at time now (ns) and returns the maximum of the current and the previous
// window.
func (w *windowedMax) add(now int64, value uint64) uint64 {
	if now >= w.windowEnd {
		w.previous = w.current
		if now >= w.windowEnd+windowLength {
			w.previous = 0 // the previous window is too old
		}
		w.current, w.windowEnd = 0, now+windowLength
	}
	w.current = max(w.current, value)
	return max(w.current, w.previous)
}
