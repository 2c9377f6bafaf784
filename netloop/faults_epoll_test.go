//go:build linux && !libkqueue

package netloop

import (
	"math"
	"slices"
	"syscall"
	"testing"

	"github.com/goloop/goloop/transports"
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
	c.Wait = func(epfd int, evs []unix.EpollEvent, ms int) (int, syscall.Errno) {
		if e := f.take("wait"); e != 0 {
			return -1, e
		}
		return real.Poll.Wait(epfd, evs, ms)
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
	if l.r.poller.timerfd < 0 {
		f.fail("pwait2", syscall.EINTR)
	} else { // no epoll_pwait2 here
		f.fail("wait", syscall.EINTR)
	}
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
		_ = sys.Close(a)
		_ = sys.Close(b)
	}
}

// A pipe that is full again and again is enlarged; where the kernel refuses, nothing is
// lost by it.
func TestBusyPipeIsEnlarged(t *testing.T) {
	for name, errno := range map[string]syscall.Errno{"enlarged": 0, "refused": syscall.EPERM} {
		t.Run(name, func(t *testing.T) {
			f := newFaults()
			f.fail("setpipe", errno)
			l := newLoop(t, usual, f.calls)
			var ends [2]int
			if err := sys.Pipe2(ends[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = sys.Close(ends[0]) })
			before, _ := f.calls.PipeSize(ends[0])
			w := l.open(ends[1], OpenWatchEnd)
			const size = 4 << 20
			l.write(w, memory(t, size))
			heard := 0
			for heard < size {
				l.turn(0)
				heard += len(hear(t, ends[0]))
			}
			if f.count("setpipe") != 1 || heard != size || w.pending() != 0 {
				t.Errorf("set %d times, %d bytes heard", f.count("setpipe"), heard)
			}
			after, _ := f.calls.PipeSize(ends[0])
			if (after == before) != (errno != 0) && unix.Geteuid() == 0 {
				t.Errorf("the pipe's size is %d, was %d", after, before)
			}
		})
	}
}

// What C has come back from by the time of the turn, the kernel never hears of.
func TestPauseAndResumeBetweenTurnsCostNothing(t *testing.T) {
	f := newFaults()
	l := newLoop(t, usual, f.calls)
	s := l.stream(0)
	l.quiet()
	before, submissions := f.count("ctl"), l.sh.SubLen
	for range 3 {
		l.pause(s)
		l.resume(s)
	}
	if n := l.sh.SubLen - submissions; n != 1 {
		t.Errorf("%d submissions", n)
	}
	l.quiet()
	if n := f.count("ctl") - before; n != 0 {
		t.Errorf("the poller was called %d times", n)
	}
	l.pause(s)
	l.quiet()
	if n := f.count("ctl") - before; n != 1 {
		t.Errorf("a pause made %d calls", n)
	}
	say(t, s.peer, []byte("unheard"))
	l.quiet()
}

// Pieces that come while a stream is blocked are sent behind the others without a word
// of C's.
func TestWhatIsAppendedToABlockedStreamGoesWithTheRest(t *testing.T) {
	l := usualLoop(t)
	s := l.stream(openPaused)
	small(t, int(s.fd))
	l.write(s, memory(t, 300_000))
	l.turn(0)
	if s.io.State&transports.StateBlocked == 0 {
		t.Fatal("the kernel took all: the test proves nothing")
	}
	s.push(inC(t, []byte("tail")))
	var heard []byte
	for len(heard) < 300_004 {
		l.turn(0)
		heard = append(heard, hear(t, s.peer)...)
	}
	if string(heard[300_000:]) != "tail" || s.pending() != 0 || s.io.State != 0 {
		t.Errorf("%d bytes heard, %d pending, state %d", len(heard), s.pending(), s.io.State)
	}
	l.turn(0)
	l.quiet()
}

func TestListenerThatCannotBePolledAgain(t *testing.T) {
	f := newFaults()
	l := newLoop(t, usual, f.calls)
	ln := l.listen(10)
	ln.dial(t, 1)
	f.fail("accept", syscall.EMFILE)
	l.until(CmpAcceptError)
	backOff := func() { l.r.registry.find(ln.id, ln.gen).listener.BackOff(l.sh.Now - 2_000_000_000) }
	backOff()
	f.fail("add", syscall.ENOMEM) // backs off again, and tells nobody
	l.quiet()
	if left := l.sh.NextDeadline - l.sh.Now; left <= 0 {
		t.Errorf("the second delay ends in %d ns", left)
	}
	backOff()
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

// A sandbox may forbid the timerfd, too: waits are whole milliseconds then, as asyncio's.
func TestWaitsWithoutTimerfdAreWholeMilliseconds(t *testing.T) {
	for _, late := range []bool{false, true} {
		f := newFaults()
		var waits []int
		wait := f.calls.Poll.Wait
		f.calls.Poll.Wait = func(epfd int, evs []unix.EpollEvent, ms int) (int, syscall.Errno) {
			waits = append(waits, ms)
			return wait(epfd, evs, ms)
		}
		if !late {
			f.fail("pwait2", syscall.EPERM)
			f.fail("timerfd", syscall.EPERM)
		}
		l := newLoop(t, usual, f.calls)
		if late {
			if l.r.poller.timerfd >= 0 {
				continue // no epoll_pwait2 here that could be forbidden
			}
			f.fail("pwait2", syscall.EPERM)
			f.fail("timerfd", syscall.EPERM)
		}
		for _, timeout := range []int64{1, 1_000_000, 1_000_001} {
			expectKinds(t, l.turn(timeout))
		}
		if !slices.Equal(waits, []int{1, 1, 2}) {
			t.Errorf("the waits were %v ms", waits)
		}
		if got := l.r.Facts().Poller; got != "epoll, milliseconds" {
			t.Errorf("the poller is %q", got)
		}
		s := l.stream(0)
		say(t, s.peer, []byte("x"))
		expectKinds(t, l.turn(math.MaxInt64), CmpData)
		if last := waits[len(waits)-1]; last != math.MaxInt32 {
			t.Errorf("the longest wait was %d ms", last)
		}
	}
}

func TestATimerfdThatCannotBePolledIsClosed(t *testing.T) {
	checkDescriptors(t)
	block := *usualLoop(t).sh
	f := newFaults()
	f.fail("pwait2", syscall.ENOSYS)
	f.fail("ctl", syscall.ENOMEM)
	if _, err := NewWithCalls(&block, f.calls); ErrnoOf(err) != syscall.ENOMEM {
		t.Errorf("the timerfd was added: %v", err)
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
	if err := sys.EpollCtl(l.r.poller.epfd, unix.EPOLL_CTL_DEL, a, nil); err != nil {
		t.Fatal(err)
	}
	l.ready(w, 0)
	l.set(w, readable, 0)
	l.ready(w, readable)
}
