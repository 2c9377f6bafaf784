package netloop

import (
	"time"

	"golang.org/x/sys/unix"
)

// clock reads CLOCK_MONOTONIC in ns, as C and Python's time.monotonic() do; with a function to
// read, that of a kernel that is not the host's.
//
// The documented way to read that clock through the vDSO is time.Since, which
// tells the distance from an instant; so the clock remembers one instant in both
// scales. The instant is taken a little after its absolute reading, so that the
// clock can only lag, by a fraction of a microsecond: a timer is never early.
type clock struct {
	instant time.Time
	at      int64
	read    func() int64
}

func newClock(read func() int64) (clock, error) {
	if read != nil {
		return clock{read: read}, nil
	}
	var best clock
	bestGap := int64(-1)
	for range 8 {
		before, err := monotonic()
		if err != nil {
			return clock{}, err
		}
		instant := time.Now()
		after, err := monotonic()
		if err != nil {
			return clock{}, err
		}
		// The smallest gap is the try that was least disturbed.
		if gap := after - before; bestGap < 0 || gap < bestGap {
			best, bestGap = clock{instant: instant, at: before}, gap
		}
	}
	return best, nil
}

func monotonic() (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, callError("clock_gettime", err)
	}
	return ts.Nano(), nil
}

func (c *clock) now() int64 {
	if c.read != nil {
		return c.read()
	}
	return c.at + int64(time.Since(c.instant))
}
