//go:build linux && !libkqueue

package netloop

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// madeTime is a clock and a poller without a kernel: a poll takes pollTime ns and returns an event
// if eventAt has been reached; a sleep takes until eventAt.
type madeTime struct {
	now, pollTime, eventAt int64
	never                  bool // there is no event
	polls, sleeps          int
	errno                  syscall.Errno // of the next poll
	preemptions            int64
	used, sleepCost        int64 // ns of processor time; for a sleep
}

// event returns the number of events at this time, at most one, which it stores in events.
func (m *madeTime) event(events []unix.EpollEvent) int {
	if m.never || m.now < m.eventAt {
		return 0
	}
	events[0] = unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(timerToken.id()), Pad: int32(timerToken.gen())}
	return 1
}

// calls returns system calls with this clock and this poller.
func (m *madeTime) calls() Calls {
	calls := SystemCalls()
	calls.Clock = func() int64 { return m.now }
	calls.ThreadTime = func() int64 { return m.used }
	calls.Preemptions = func() int64 { return m.preemptions }
	calls.Poll.Poll = func(_ int, events []unix.EpollEvent) (int, syscall.Errno) {
		m.polls++
		m.now += m.pollTime
		if m.errno != 0 {
			return 0, m.errno
		}
		return m.event(events), 0
	}
	sleep := func(events []unix.EpollEvent) (int, syscall.Errno) {
		m.sleeps++
		m.used += m.sleepCost
		m.now = max(m.now+m.sleepCost, m.eventAt)
		return m.event(events), 0
	}
	calls.Poll.Wait = func(_ int, events []unix.EpollEvent, _ int) (int, syscall.Errno) { return sleep(events) }
	calls.Poll.WaitExact = func(_ int, events []unix.EpollEvent, _ *unix.Timespec) (int, syscall.Errno) {
		return sleep(events)
	}
	return calls
}

// busyLoop returns a loop with a made time that polls busily for 50 µs, after an event.
func busyLoop(t *testing.T) (*loop, *madeTime) {
	m := &madeTime{now: 1_000_000_000, pollTime: 300}
	l := newLoop(t, defaultSizes, m.calls())
	l.sh.BusyPoll = 50_000
	l.next(m, 0)
	m.polls, m.sleeps = 0, 0
	return l, m
}

// next waits for an event that comes after `delay` ns.
func (l *loop) next(m *madeTime, delay int64) {
	l.t.Helper()
	m.eventAt = m.now + delay
	if n, errno := l.r.wait(-1); n != 1 || errno != 0 {
		l.t.Fatalf("wait returned %d, %v", n, errno)
	}
}

func TestBusyPollFindsAnEarlyEventWithoutSleep(t *testing.T) {
	l, m := busyLoop(t)
	l.next(m, 10_000)
	if m.sleeps != 0 {
		t.Error("the loop slept")
	}
	if got := l.sh.Metrics; got.BusyPolls != 1 || got.BusyPollHits != 1 || got.BusyPollTime < 10_000 {
		t.Errorf("%d attempts, %d hits, %d ns", got.BusyPolls, got.BusyPollHits, got.BusyPollTime)
	}
}

func TestBusyPollEndsAfterItsTimeAndSleeps(t *testing.T) {
	l, m := busyLoop(t)
	l.next(m, 1_000_000)
	if m.sleeps != 1 {
		t.Errorf("%d sleeps", m.sleeps)
	}
	got := l.sh.Metrics
	if got.BusyPolls != 1 || got.BusyPollHits != 0 || got.BusyPollTime < 50_000 || got.BusyPollTime > 51_000 {
		t.Errorf("%d attempts, %d hits, %d ns", got.BusyPolls, got.BusyPollHits, got.BusyPollTime)
	}
}

func TestBusyPollIsOffByDefaultAndWithoutWait(t *testing.T) {
	l, m := busyLoop(t)
	if n, errno := l.r.wait(0); n != 1 || errno != 0 || m.polls != 1 {
		t.Errorf("wait(0) returned %d, %v after %d polls", n, errno, m.polls)
	}
	l.sh.BusyPoll = 0
	l.next(m, 10_000)
	if m.polls != 1 || m.sleeps != 1 || l.sh.Metrics.BusyPolls != 0 {
		t.Errorf("%d polls, %d sleeps, %d attempts", m.polls, m.sleeps, l.sh.Metrics.BusyPolls)
	}
}

func TestBusyPollNeedsAnEventSinceTheLastSleep(t *testing.T) {
	for _, c := range []struct {
		timer, event bool
		attempts     uint64
	}{{false, false, 1}, {true, false, 0}, {true, true, 1}} {
		l, m := busyLoop(t)
		if c.timer { // a sleep without an event
			l.sh.BusyPoll, m.never = 0, true
			if n, errno := l.r.wait(1000); n != 0 || errno != 0 {
				t.Fatalf("wait(1000) returned %d, %v", n, errno)
			}
			l.sh.BusyPoll, m.never = 50_000, false
		}
		if c.event {
			m.eventAt = 0
			l.r.wait(0)
		}
		// A loop whose ready queue is not empty polls in this way.
		m.eventAt = m.now + 3600_000_000_000
		if n, errno := l.r.wait(0); n != 0 || errno != 0 {
			t.Fatalf("wait(0) returned %d, %v", n, errno)
		}
		l.next(m, 10_000)
		if got := l.sh.Metrics.BusyPolls; got != c.attempts {
			t.Errorf("%+v: %d attempts", c, got)
		}
	}
}

func TestBusyPollIsNotLongerThanTheTimeout(t *testing.T) {
	l, m := busyLoop(t)
	m.eventAt = m.now + 3600_000_000_000
	begun := m.now
	m.pollTime = 1000
	if _, errno := l.r.spin(begun, min(l.sh.BusyPoll, 5000)); errno != 0 || m.now-begun != 5000 {
		t.Errorf("%v, %d ns", errno, m.now-begun)
	}
}

func TestBusyPollPausesWhenTheThreadWasPreempted(t *testing.T) {
	l, m := busyLoop(t)
	m.pollTime = maxSpinGap + 1
	l.next(m, 10_000_000)
	if m.polls != 1 || m.sleeps != 1 {
		t.Errorf("%d polls, %d sleeps", m.polls, m.sleeps)
	}
	m.pollTime = 300
	for pause := int64(minSpinPause); pause < 4*maxSpinPause; pause *= 2 {
		want := min(pause, maxSpinPause)
		if l.r.busyPoll.pause != want {
			t.Fatalf("pause of %d ns instead of %d", l.r.busyPoll.pause, want)
		}
		attempts := l.sh.Metrics.BusyPolls
		l.next(m, want/2)
		if l.sh.Metrics.BusyPolls != attempts {
			t.Fatal("an attempt in the pause")
		}
		l.next(m, want)
		m.pollTime = maxSpinGap + 1
		l.next(m, 10_000_000)
		m.pollTime = 300
		if l.sh.Metrics.BusyPolls != attempts+1 {
			t.Fatal("no attempt after the pause")
		}
	}
}

func TestBusyPollPausesAfterASampleWithFewHits(t *testing.T) {
	for _, c := range []struct{ every, pauses int }{{4, 0}, {5, 1}} {
		l, m := busyLoop(t)
		for i := range spinSample {
			if i%c.every == 0 {
				l.next(m, 10_000)
			} else {
				l.next(m, 100_000)
			}
		}
		attempts := l.sh.Metrics.BusyPolls
		if attempts != spinSample {
			t.Fatalf("%d attempts", attempts)
		}
		l.next(m, 10_000)
		if paused := int(attempts + 1 - l.sh.Metrics.BusyPolls); paused != c.pauses {
			t.Errorf("a hit in %d attempts: %d pauses", c.every, paused)
		}
	}
}

func TestBusyPollPausesIfOthersNeedTheProcessor(t *testing.T) {
	for _, c := range []struct {
		preemptions int64
		pauses      uint64
	}{{spinSample/4 - 1, 0}, {spinSample / 4, 1}} {
		l, m := busyLoop(t)
		m.preemptions = 1000
		l.next(m, 10_000)
		m.preemptions += c.preemptions
		for range spinSample {
			l.next(m, 10_000)
		}
		if paused := spinSample + 1 - l.sh.Metrics.BusyPolls; paused != c.pauses {
			t.Errorf("%d preemptions: %d pauses", c.preemptions, paused)
		}
	}
}

func TestBusyPollEndsAPauseForGoodAfterASampleOfHits(t *testing.T) {
	l, m := busyLoop(t)
	m.pollTime = maxSpinGap + 1
	l.next(m, 10_000_000)
	m.pollTime = 300
	l.next(m, minSpinPause)
	for range spinSample {
		l.next(m, 10_000)
	}
	if l.r.busyPoll.pause != 0 {
		t.Errorf("the next pause would be longer than %d ns", l.r.busyPoll.pause)
	}
}

func TestBusyPollWithAClockThatStandsStillEnds(t *testing.T) {
	l, m := busyLoop(t)
	m.pollTime = 0
	l.next(m, 1)
	if m.sleeps != 1 || m.polls > 1001 {
		t.Errorf("%d sleeps, %d polls", m.sleeps, m.polls)
	}
}

func TestBusyPollReportsAnErrno(t *testing.T) {
	l, m := busyLoop(t)
	m.eventAt, m.errno = m.now+10_000, syscall.EBADF
	if n, errno := l.r.wait(-1); n != 0 || errno != syscall.EBADF || m.sleeps != 0 {
		t.Errorf("wait returned %d, %v after %d sleeps", n, errno, m.sleeps)
	}
	m.errno = 0
}

// adaptiveLoop returns a loop with a made time that polls busily for twice as long as a sleep costs.
// It has measured that this is 8 µs.
func adaptiveLoop(t *testing.T) (*loop, *madeTime) {
	l, m := busyLoop(t)
	l.sh.BusyPoll, m.sleepCost = -1, 8000
	l.next(m, 100_000)
	l.next(m, 100_000)
	if l.r.busyPoll.sleepCost != 8000 || l.sh.Metrics.BusyPolls != 1 || m.sleeps != 2 {
		t.Fatalf("a sleep costs %d ns, %d attempts", l.r.busyPoll.sleepCost, l.sh.Metrics.BusyPolls)
	}
	return l, m
}

func TestBusyPollLastsTwiceAsLongAsASleepCosts(t *testing.T) {
	for _, c := range []struct {
		delay  int64
		sleeps int
	}{{15_000, 0}, {17_000, 1}} {
		l, m := adaptiveLoop(t)
		m.sleeps = 0
		l.next(m, c.delay)
		if m.sleeps != c.sleeps || l.sh.Metrics.BusyPolls != 2 {
			t.Errorf("after %d ns: %d sleeps, %d attempts", c.delay, m.sleeps, l.sh.Metrics.BusyPolls)
		}
	}
}

func TestBusyPollMeasuresOneSleepOfMany(t *testing.T) {
	l, m := adaptiveLoop(t)
	m.sleepCost = 10_000
	for sleep := 2; sleep <= sleepSample; sleep++ {
		if l.r.busyPoll.sleepCost != 8000 {
			t.Fatalf("sleep %d was measured", sleep)
		}
		l.next(m, 100_000)
	}
	if got := l.r.busyPoll.sleepCost; got != 8500 {
		t.Errorf("a sleep costs %d ns", got)
	}
	// The cost is limited, and a poll that did not sleep is not measured.
	m.sleepCost = 1_000_000
	l.r.busyPoll.untilSleep = 0
	l.next(m, 10_000_000)
	if got := l.r.busyPoll.sleepCost; got != 9375 {
		t.Errorf("a sleep costs %d ns", got)
	}
	l.r.busyPoll.untilSleep = 0
	l.r.busyPoll.pausedUntil = m.now + 1_000_000
	m.sleepCost = 500
	l.next(m, 500)
	if got := l.r.busyPoll; got.sleepCost != 9375 || got.untilSleep != 0 {
		t.Errorf("a sleep costs %d ns, %d sleeps until the next measurement", got.sleepCost, got.untilSleep)
	}
}

func TestBusyPollPausesIfItCostsMoreThanTheSleeps(t *testing.T) {
	// An attempt in vain takes 16.1 µs, one with a hit 1.2 µs of the 8 µs that a sleep takes.
	// Each sample counts alone.
	for _, c := range []struct{ samples, hits, pauses int }{{2, 23, 0}, {1, 22, 1}} {
		l, m := adaptiveLoop(t)
		l.r.busyPoll.attempts, l.r.busyPoll.spent = 0, 0
		before := l.sh.Metrics.BusyPolls
		for i := range c.samples * spinSample {
			if i%spinSample < c.hits {
				l.next(m, 1000)
			} else {
				l.next(m, 100_000)
			}
		}
		attempts := l.sh.Metrics.BusyPolls - before
		if attempts != uint64(c.samples*spinSample) {
			t.Fatalf("%d attempts", attempts)
		}
		l.next(m, 1000)
		if paused := int(attempts + 1 + before - l.sh.Metrics.BusyPolls); paused != c.pauses {
			t.Errorf("%d hits: %d pauses", c.hits, paused)
		}
	}
}
