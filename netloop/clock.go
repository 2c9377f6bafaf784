package netloop

import (
	"time"

	"golang.org/x/sys/unix"
)

// clock reads CLOCK_MONOTONIC in ns, as C and Python's time.monotonic() do. With a read
// function it reads that clock instead.
//
// The documented way to read this clock through the vDSO is time.Since, which returns the
// distance from an instant. So the clock stores one instant in both scales. The instant is
// taken shortly after its absolute reading, so the clock can only be late, by a fraction of a
// microsecond: timers are never early.
type clock struct {
	instant   time.Time
	instantNs int64
	read      func() int64
}

// newClock returns a clock of the host, or of read if it is not nil. It returns the error of
// clock_gettime.
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
		// The attempt with the smallest gap was interrupted least.
		if gap := after - before; bestGap < 0 || gap < bestGap {
			best, bestGap = clock{instant: instant, instantNs: before}, gap
		}
	}
	return best, nil
}

// monotonic reads the host's CLOCK_MONOTONIC in ns, with a system call.
func monotonic() (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, wrapError("clock_gettime", err)
	}
	return ts.Nano(), nil
}

// threadTime returns the processor time of the calling thread in ns, by a system call; 0 if the
// call fails.
func threadTime() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) != nil {
		return 0
	}
	return ts.Nano()
}

// now returns the current time in ns.
func (c *clock) now() int64 {
	if c.read != nil {
		return c.read()
	}
	return c.instantNs + int64(time.Since(c.instant))
}
