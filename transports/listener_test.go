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
	l.Rest(5)
	if until, yes := l.Resting(); until != 5+RestTime || !yes || l.Interest() != 0 {
		t.Errorf("rests until %d: %v", until, yes)
	}
	l.Resume()
	if _, yes := l.Resting(); yes || l.Interest() != Readable {
		t.Error("does not go on")
	}
	l.Stop()
	l.Resume()
	if l.Interest() != 0 {
		t.Error("goes on after it has stopped")
	}
}
