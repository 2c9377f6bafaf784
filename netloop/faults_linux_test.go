package netloop

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// poll puts the faults in front of the poller's calls.
func (f *faults) poll(real *Calls) {
	c := &f.calls.Poll
	c.Create = func() (int, syscall.Errno) {
		if e := f.take("create"); e != 0 {
			return -1, e
		}
		return real.Poll.Create()
	}
	c.Ctl = func(epfd, op int, fd int32, ev *unix.EpollEvent) syscall.Errno {
		name := map[int]string{unix.EPOLL_CTL_ADD: "add", unix.EPOLL_CTL_MOD: "mod", unix.EPOLL_CTL_DEL: "del"}[op]
		if e := f.take("ctl"); e != 0 {
			return e
		}
		if e := f.take(name); e != 0 {
			return e
		}
		return real.Poll.Ctl(epfd, op, fd, ev)
	}
	c.Poll = func(epfd int, evs []unix.EpollEvent) (int, syscall.Errno) {
		if e := f.take("poll"); e != 0 {
			return -1, e
		}
		return real.Poll.Poll(epfd, evs)
	}
	c.WaitExact = func(epfd int, evs []unix.EpollEvent, ts *unix.Timespec) (int, syscall.Errno) {
		if e := f.take("pwait2"); e != 0 {
			return -1, e
		}
		return real.Poll.WaitExact(epfd, evs, ts)
	}
	c.WaitForever = func(epfd int, evs []unix.EpollEvent) (int, syscall.Errno) {
		if e := f.take("wait"); e != 0 {
			return -1, e
		}
		return real.Poll.WaitForever(epfd, evs)
	}
	c.TimerCreate = func() (int, syscall.Errno) {
		if e := f.take("timerfd"); e != 0 {
			return -1, e
		}
		return real.Poll.TimerCreate()
	}
}

func TestInterruptedWaitEndsEarly(t *testing.T) {
	f := newFaults()
	l := newLoop(t, usual, f.calls)
	f.fail("wait", syscall.EINTR)
	expectKinds(t, l.turn(-1))
	f.fail("pwait2", syscall.EINTR)
	expectKinds(t, l.turn(3600_000_000_000))
	f.fail("poll", syscall.EINTR)
	expectKinds(t, l.turn(0))
	// What does not come from the poller is delivered all the same.
	s := l.stream(0)
	l.write(s, inC(t, []byte("x")))
	f.fail("poll", syscall.EINTR)
	expectKinds(t, l.turn(-1), CmpWrote)
}

func TestFailedWaitIsReportedAndLosesNothing(t *testing.T) {
	f := newFaults()
	l := newLoop(t, usual, f.calls)
	s := l.stream(0)
	l.write(s, inC(t, []byte("x")))
	f.fail("poll", syscall.EBADF)
	if n, err := l.r.Turn(-1); n != 0 || ErrnoOf(err) != syscall.EBADF {
		t.Errorf("Turn = %d, %v", n, err)
	}
	if l.sh.CmpLen != 0 {
		t.Error("completions of a failed turn")
	}
	expectKinds(t, l.turn(-1), CmpWrote)
}

// A poller that takes no more registrations makes a stream deaf: both halves are
// told.
func TestStreamThatCannotBePolledFails(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.ENOSPC} {
		f := newFaults()
		l := newLoop(t, usual, f.calls)
		s := l.stream(openPaused)
		f.fail("add", errno)
		l.resume(s)
		d := l.turn(-1)
		expectKinds(t, d, CmpReadError)
		if syscall.Errno(d[0].Res) != errno {
			t.Errorf("%+v", d[0])
		}
		f.fail("add", errno)
		f.fail("send", syscall.EAGAIN)
		l.write(s, inC(t, []byte("x")))
		d = l.turn(-1)
		expectKinds(t, d, CmpWriteError)
		if syscall.Errno(d[0].Res) != errno {
			t.Errorf("%+v", d[0])
		}
		l.quiet()
		a, b := pair(t)
		f.fail("add", errno)
		if _, _, err := l.r.StreamOpen(int32(a), reading(), 0); ErrnoOf(err) != errno {
			t.Errorf("open: %v", err)
		}
		f.fail("add", errno)
		if _, _, err := l.r.WatchOpen(int32(a), 1, 0); ErrnoOf(err) != errno {
			t.Errorf("open: %v", err)
		}
		_ = unix.Close(a)
		_ = unix.Close(b)
	}
}

func TestListenerThatCannotBePolledAgain(t *testing.T) {
	f := newFaults()
	l := newLoop(t, usual, f.calls)
	ln := l.listen(10)
	ln.dial(t, 1)
	f.fail("accept", syscall.EMFILE)
	l.until(CmpAcceptError)
	rest := func() { l.r.registry.find(ln.id, ln.gen).listener.Rest(l.sh.Now - 2_000_000_000) }
	rest()
	f.fail("add", syscall.ENOMEM) // rests again, and tells nobody
	l.quiet()
	if left := l.sh.NextDeadline - l.sh.Now; left <= 0 {
		t.Errorf("the second rest ends in %d ns", left)
	}
	rest()
	f.fail("add", syscall.EBADF)
	d, _ := l.until(CmpAcceptError)
	if syscall.Errno(d.Res) != syscall.EBADF || d.Arg != 0 {
		t.Errorf("%+v", d)
	}
	l.quiet()
}

// The fallback for kernels and sandboxes without epoll_pwait2.
func TestTimerfdWaits(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSYS, syscall.EPERM} {
		f := newFaults()
		f.fail("pwait2", errno)
		l := newLoop(t, usual, f.calls)
		if got := l.r.Facts().Poller; got != "epoll, timerfd" {
			t.Fatalf("the poller is %q", got)
		}
		waitsAreExact(t, l)
		// A wait that an event ended leaves the timer armed: it must neither end
		// the next wait too soon for good nor be told of.
		s := l.stream(0)
		say(t, s.peer, []byte("x"))
		l.turn(50_000_000)
		say(t, s.peer, []byte("y"))
		expectKinds(t, l.turn(-1), CmpData)
		if l.r.poller.timerArmed || l.r.poller.spec.Value != (unix.Timespec{}) {
			t.Error("the timer of the wait before is still armed")
		}
		if f.count("pwait2") != 1 {
			t.Errorf("epoll_pwait2 was tried %d times", f.count("pwait2"))
		}
	}
	f := newFaults()
	f.fail("pwait2", syscall.ENOSYS)
	f.fail("timerfd", syscall.EMFILE)
	block := *usualLoop(t).sh
	if _, err := NewWithCalls(&block, f.calls); ErrnoOf(err) != syscall.EMFILE {
		t.Errorf("without a timerfd: %v", err)
	}
}

func TestAddAndModifyStandInForEachOther(t *testing.T) {
	f := newFaults()
	l := newLoop(t, usual, f.calls)
	a, b := watchedPair(t)
	w := l.watch(a, readable, 0)
	// The reactor comes to believe that the kernel has no registration, and is
	// told otherwise.
	f.fail("mod", syscall.EBADF)
	if err := l.r.WatchSet(w.id, w.gen, uint32(writable), 0); ErrnoOf(err) != syscall.EBADF {
		t.Errorf("watch_set: %v", err)
	}
	l.set(w, readable, 0)
	say(t, b, []byte("x"))
	l.ready(w, readable)
	// And the other way round.
	if err := unix.EpollCtl(l.r.poller.epfd, unix.EPOLL_CTL_DEL, a, nil); err != nil {
		t.Fatal(err)
	}
	l.ready(w, 0)
	l.set(w, readable, 0)
	l.ready(w, readable)
}
