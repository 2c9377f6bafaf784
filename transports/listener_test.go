package transports

import (
	"syscall"
	"testing"
)

func TestAcceptReturnsOutcomeOfErrno(t *testing.T) {
	for errno, want := range map[syscall.Errno]Outcome{
		0:                    OK,
		syscall.EAGAIN:       WouldBlock,
		syscall.EINTR:        WouldBlock,
		syscall.ECONNABORTED: Skipped,
		syscall.EPROTO:       Skipped,
		syscall.EPERM:        Skipped,
		syscall.EHOSTUNREACH: Skipped,
		syscall.EMFILE:       Exhausted,
		syscall.ENFILE:       Exhausted,
		syscall.ENOBUFS:      Exhausted,
		syscall.ENOMEM:       Exhausted,
		syscall.EBADF:        Failed,
		syscall.EINVAL:       Failed,
		syscall.ENOTSOCK:     Failed,
	} {
		c := Calls{Accept: func(int, uintptr, uintptr) (int, syscall.Errno) { return 9, errno }}
		l := NewListener(NewLease(3, nil), 100, false)
		fd, outcome, got := l.Accept(&c, 0, 0)
		if outcome != want || want != WouldBlock && got != errno || (fd == 9) != (want == OK) {
			t.Errorf("%v: %d, outcome %d, %v", errno, fd, outcome, got)
		}
		if (l.Interest() == 0) != (want == Failed) {
			t.Errorf("%v: interest is %d", errno, l.Interest())
		}
	}
}

// A system-call filter that forbids accept4 must not make the loop spin.
func TestListenerBacksOffAfterManyFailedAccepts(t *testing.T) {
	errno := syscall.EPERM
	c := Calls{Accept: func(int, uintptr, uintptr) (int, syscall.Errno) { return 9, errno }}
	l := NewListener(NewLease(3, nil), 100, false)
	skipped := func() (n int) {
		for ; n < 1000; n++ {
			if _, outcome, _ := l.Accept(&c, 0, 0); outcome != Skipped {
				return n
			}
		}
		return n
	}
	if n := skipped(); n != maxRefusals-1 {
		t.Errorf("backs off after %d failures", n)
	}
	if n := skipped(); n != 0 {
		t.Errorf("tries %d times after it resumed", n)
	}
	errno = 0
	l.Accept(&c, 0, 0)
	errno = syscall.ECONNABORTED
	if n := skipped(); n != maxRefusals-1 {
		t.Errorf("after a connection it backs off after %d failures", n)
	}
}

// The connection is returned in both cases, with the errno if the option could not be set.
func TestNoDelayIsSetOnAcceptedConnections(t *testing.T) {
	for _, errno := range []syscall.Errno{0, syscall.EOPNOTSUPP} {
		var set []int
		accepts := []syscall.Errno{0, syscall.ECONNABORTED, syscall.EAGAIN}
		c := Calls{
			Accept: func(int, uintptr, uintptr) (int, syscall.Errno) {
				e := accepts[0]
				accepts = accepts[1:]
				return 9, e
			},
			NoDelay: func(fd int) syscall.Errno {
				set = append(set, fd)
				return errno
			},
		}
		l := NewListener(NewLease(3, nil), 1, true)
		if fd, outcome, got := l.Accept(&c, 0, 0); fd != 9 || outcome != OK || got != errno {
			t.Errorf("%v: %d, outcome %d, %v", errno, fd, outcome, got)
		}
		l.Accept(&c, 0, 0)
		l.Accept(&c, 0, 0)
		if len(set) != 1 || set[0] != 9 {
			t.Errorf("TCP_NODELAY was set on %v", set)
		}
	}
}

func TestBackOffStopsPollingUntilResume(t *testing.T) {
	l := NewListener(NewLease(3, nil), 0, false)
	if l.MaxPerTurn() != 1 || l.Interest() != Readable {
		t.Errorf("%d accepts a turn, interest %d", l.MaxPerTurn(), l.Interest())
	}
	if !l.BackOff(5) {
		t.Error("the first failure is not reported")
	}
	if until, yes := l.BackingOff(); until != 5+BackOffMin || !yes || l.Interest() != 0 {
		t.Errorf("backs off until %d: %v", until, yes)
	}
	l.Resume(5 + BackOffMin)
	if _, yes := l.BackingOff(); yes || l.Interest() != Readable {
		t.Error("does not resume")
	}
	l.Stop()
	l.Resume(MaxBackOff)
	if l.Interest() != 0 {
		t.Error("resumes after it has stopped")
	}
}

// backOffDelay returns the delay after a failure at the given time.
func backOffDelay(l *Listener, now int64) int64 {
	l.BackOff(now)
	until, _ := l.BackingOff()
	return until - now
}

func TestBackOffDelayDoublesUntilAConnectionIsAccepted(t *testing.T) {
	l := NewListener(NewLease(3, nil), 1, false)
	now := int64(1)
	for _, want := range []int64{1, 2, 4, 8, 16, 32, 64, 100, 100} {
		if got := backOffDelay(l, now); got != want*BackOffMin {
			t.Errorf("backs off for %d ns, want %d", got, want*BackOffMin)
		}
		now, _ = l.BackingOff()
		l.Resume(now)
	}
	c := Calls{Accept: func(int, uintptr, uintptr) (int, syscall.Errno) { return 9, 0 }}
	l.Accept(&c, 0, 0)
	if got := backOffDelay(l, now); got != BackOffMin {
		t.Errorf("backs off for %d ns after a success", got)
	}
}

func TestEarlyRetryKeepsTheDelay(t *testing.T) {
	l := NewListener(NewLease(3, nil), 1, false)
	l.BackOff(0)
	until, _ := l.BackingOff()
	l.Resume(until)
	l.BackOff(until) // twice as long as the first delay
	until, _ = l.BackingOff()
	l.Resume(until - 1)
	l.BackOff(until - 1)
	if again, _ := l.BackingOff(); again != until {
		t.Errorf("backs off until %d, not %d", again, until)
	}
	l.Resume(until)
	if got := backOffDelay(l, until); got != 4*BackOffMin {
		t.Errorf("backs off for %d ns", got)
	}
	l.RetrySoon(until)
	if again, _ := l.BackingOff(); again != until+BackOffMin {
		t.Errorf("after RetrySoon: backs off until %d, not %d", again, until+BackOffMin)
	}
}

func TestBackOffReportsOncePerSecond(t *testing.T) {
	l := NewListener(NewLease(3, nil), 1, false)
	reports := 0
	for now := int64(7); now < 7+10*MaxBackOff; now += BackOffMin {
		if l.BackOff(now) {
			reports++
		}
		l.Resume(now)
	}
	if reports != 10 {
		t.Errorf("%d reports in 10 s", reports)
	}
}
