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
		syscall.EMFILE:       Resting,
		syscall.ENFILE:       Resting,
		syscall.ENOBUFS:      Resting,
		syscall.ENOMEM:       Resting,
		syscall.EBADF:        Failed,
		syscall.EINVAL:       Failed,
		syscall.ENOTSOCK:     Failed,
	} {
		c := Calls{Accept: func(int, uintptr, uintptr) (int, syscall.Errno) { return 9, errno }}
		l := NewListener(NewLease(3, nil), 100)
		fd, outcome, got := l.Accept(&c, 0, 0)
		if outcome != want || want != Nothing && got != errno || (fd == 9) != (want == Got) {
			t.Errorf("%v: %d, outcome %d, %v", errno, fd, outcome, got)
		}
		if (l.Interest() == 0) != (want == Failed) {
			t.Errorf("%v: interest is %d", errno, l.Interest())
		}
	}
}

func TestRest(t *testing.T) {
	l := NewListener(NewLease(3, nil), 0)
	if l.PerTurn() != 1 || l.Interest() != Readable {
		t.Errorf("%d accepts a turn, interest %d", l.PerTurn(), l.Interest())
	}
	if !l.Rest(5) {
		t.Error("the first rest is not reported")
	}
	if until, yes := l.Resting(); until != 5+RestLeast || !yes || l.Interest() != 0 {
		t.Errorf("rests until %d: %v", until, yes)
	}
	l.Resume(5 + RestLeast)
	if _, yes := l.Resting(); yes || l.Interest() != Readable {
		t.Error("does not go on")
	}
	l.Stop()
	l.Resume(RestMost)
	if l.Interest() != 0 {
		t.Error("goes on after it has stopped")
	}
}

// rested is how long a listener rests after a failure at the given time.
func rested(l *Listener, now int64) int64 {
	l.Rest(now)
	until, _ := l.Resting()
	return until - now
}

func TestRestsGrowUntilAConnectionIsAccepted(t *testing.T) {
	l := NewListener(NewLease(3, nil), 1)
	now := int64(1)
	for _, want := range []int64{1, 2, 4, 8, 16, 32, 64, 100, 100} {
		if got := rested(l, now); got != want*RestLeast {
			t.Errorf("rests for %d ns, want %d", got, want*RestLeast)
		}
		now, _ = l.Resting()
		l.Resume(now)
	}
	c := Calls{Accept: func(int, uintptr, uintptr) (int, syscall.Errno) { return 9, 0 }}
	l.Accept(&c, 0, 0)
	if got := rested(l, now); got != RestLeast {
		t.Errorf("rests for %d ns after a success", got)
	}
}

func TestAnEarlyTryLeavesTheRestAsItIs(t *testing.T) {
	l := NewListener(NewLease(3, nil), 1)
	l.Rest(0)
	until, _ := l.Resting()
	l.Resume(until)
	l.Rest(until) // for twice as long
	until, _ = l.Resting()
	l.Resume(until - 1)
	l.Rest(until - 1)
	if again, _ := l.Resting(); again != until {
		t.Errorf("rests until %d, not %d", again, until)
	}
	l.Resume(until)
	if got := rested(l, until); got != 4*RestLeast {
		t.Errorf("rests for %d ns", got)
	}
	l.Hasten(until)
	if again, _ := l.Resting(); again != until+RestLeast {
		t.Errorf("hastened: rests until %d, not %d", again, until+RestLeast)
	}
}

func TestReportsAreASecondApart(t *testing.T) {
	l := NewListener(NewLease(3, nil), 1)
	reports := 0
	for now := int64(7); now < 7+10*RestMost; now += RestLeast {
		if l.Rest(now) {
			reports++
		}
		l.Resume(now)
	}
	if reports != 10 {
		t.Errorf("%d reports in 10 s", reports)
	}
}
