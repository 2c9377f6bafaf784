package transports

import (
	"syscall"
	"testing"
)

func TestAcceptOutcomes(t *testing.T) {
	for errno, want := range map[syscall.Errno]Outcome{
		0:                    Got,
		syscall.EAGAIN:       Nothing,
		syscall.EINTR:        Nothing,
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
		if outcome != want || want != Nothing && got != errno || (fd == 9) != (want == Got) {
			t.Errorf("%v: %d, outcome %d, %v", errno, fd, outcome, got)
		}
		if (l.Interest() == 0) != (want == Failed) {
			t.Errorf("%v: interest is %d", errno, l.Interest())
		}
	}
}

// A filter of system calls that forbids accept4 must not make the loop spin.
func TestAcceptsThatAreRefusedForeverBackOff(t *testing.T) {
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
	if n := skipped(); n != refusalsMost-1 {
		t.Errorf("backs off behind %d refusals", n)
	}
	if n := skipped(); n != 0 {
		t.Errorf("tries %d times once it goes on", n)
	}
	errno = 0
	l.Accept(&c, 0, 0)
	errno = syscall.ECONNABORTED
	if n := skipped(); n != refusalsMost-1 {
		t.Errorf("behind a connection it backs off behind %d refusals", n)
	}
}

// The connection is handed out in any case, with the errno of what it lacks.
func TestNoDelayIsSetOnWhatIsAccepted(t *testing.T) {
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
		if fd, outcome, got := l.Accept(&c, 0, 0); fd != 9 || outcome != Got || got != errno {
			t.Errorf("%v: %d, outcome %d, %v", errno, fd, outcome, got)
		}
		l.Accept(&c, 0, 0)
		l.Accept(&c, 0, 0)
		if len(set) != 1 || set[0] != 9 {
			t.Errorf("TCP_NODELAY was set on %v", set)
		}
	}
}

func TestBackOff(t *testing.T) {
	l := NewListener(NewLease(3, nil), 0, false)
	if l.PerTurn() != 1 || l.Interest() != Readable {
		t.Errorf("%d accepts a turn, interest %d", l.PerTurn(), l.Interest())
	}
	if !l.BackOff(5) {
		t.Error("the first delay is not reported")
	}
	if until, yes := l.BackingOff(); until != 5+BackOffLeast || !yes || l.Interest() != 0 {
		t.Errorf("backs off until %d: %v", until, yes)
	}
	l.Resume(5 + BackOffLeast)
	if _, yes := l.BackingOff(); yes || l.Interest() != Readable {
		t.Error("does not go on")
	}
	l.Stop()
	l.Resume(BackOffMost)
	if l.Interest() != 0 {
		t.Error("goes on after it has stopped")
	}
}

// delayed is how long a listener backs off after a failure at the given time.
func delayed(l *Listener, now int64) int64 {
	l.BackOff(now)
	until, _ := l.BackingOff()
	return until - now
}

func TestDelaysGrowUntilAConnectionIsAccepted(t *testing.T) {
	l := NewListener(NewLease(3, nil), 1, false)
	now := int64(1)
	for _, want := range []int64{1, 2, 4, 8, 16, 32, 64, 100, 100} {
		if got := delayed(l, now); got != want*BackOffLeast {
			t.Errorf("backs off for %d ns, want %d", got, want*BackOffLeast)
		}
		now, _ = l.BackingOff()
		l.Resume(now)
	}
	c := Calls{Accept: func(int, uintptr, uintptr) (int, syscall.Errno) { return 9, 0 }}
	l.Accept(&c, 0, 0)
	if got := delayed(l, now); got != BackOffLeast {
		t.Errorf("backs off for %d ns after a success", got)
	}
}

func TestAnEarlyTryLeavesTheDelayAsItIs(t *testing.T) {
	l := NewListener(NewLease(3, nil), 1, false)
	l.BackOff(0)
	until, _ := l.BackingOff()
	l.Resume(until)
	l.BackOff(until) // for twice as long
	until, _ = l.BackingOff()
	l.Resume(until - 1)
	l.BackOff(until - 1)
	if again, _ := l.BackingOff(); again != until {
		t.Errorf("backs off until %d, not %d", again, until)
	}
	l.Resume(until)
	if got := delayed(l, until); got != 4*BackOffLeast {
		t.Errorf("backs off for %d ns", got)
	}
	l.Hasten(until)
	if again, _ := l.BackingOff(); again != until+BackOffLeast {
		t.Errorf("hastened: backs off until %d, not %d", again, until+BackOffLeast)
	}
}

func TestReportsAreASecondApart(t *testing.T) {
	l := NewListener(NewLease(3, nil), 1, false)
	reports := 0
	for now := int64(7); now < 7+10*BackOffMost; now += BackOffLeast {
		if l.BackOff(now) {
			reports++
		}
		l.Resume(now)
	}
	if reports != 10 {
		t.Errorf("%d reports in 10 s", reports)
	}
}
