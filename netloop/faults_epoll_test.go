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

// wrapPollCalls makes the poller's calls fail on demand. Their names are create, poll, pwait2,
// wait and timerfd; ctl for each epoll_ctl, and add, mod or del for one operation of it.
func (f *faults) wrapPollCalls(real *Calls) {
	c := &f.calls.Poll
	c.Create = func() (int, syscall.Errno) {
		if e := f.nextErrno("create"); e != 0 {
			return -1, e
		}
		return real.Poll.Create()
	}
	c.Ctl = func(epfd, op int, fd int32, ev *unix.EpollEvent) syscall.Errno {
		name := map[int]string{unix.EPOLL_CTL_ADD: "add", unix.EPOLL_CTL_MOD: "mod", unix.EPOLL_CTL_DEL: "del"}[op]
		if e := f.nextErrno("ctl"); e != 0 {
			return e
		}
		if e := f.nextErrno(name); e != 0 {
			return e
		}
		return real.Poll.Ctl(epfd, op, fd, ev)
	}
	c.Poll = func(epfd int, evs []unix.EpollEvent) (int, syscall.Errno) {
		if e := f.nextErrno("poll"); e != 0 {
			return -1, e
		}
		return real.Poll.Poll(epfd, evs)
	}
	c.WaitExact = func(epfd int, evs []unix.EpollEvent, ts *unix.Timespec) (int, syscall.Errno) {
		if e := f.nextErrno("pwait2"); e != 0 {
			return -1, e
		}
		return real.Poll.WaitExact(epfd, evs, ts)
	}
	c.Wait = func(epfd int, evs []unix.EpollEvent, ms int) (int, syscall.Errno) {
		if e := f.nextErrno("wait"); e != 0 {
			return -1, e
		}
		return real.Poll.Wait(epfd, evs, ms)
	}
	c.TimerCreate = func() (int, syscall.Errno) {
		if e := f.nextErrno("timerfd"); e != 0 {
			return -1, e
		}
		return real.Poll.TimerCreate()
	}
}

func TestInterruptedWaitEndsEarly(t *testing.T) {
	f := newFaults()
	l := newLoop(t, defaultSizes, f.calls)
	f.fail("wait", syscall.EINTR)
	expectKinds(t, l.turn(-1))
	if l.r.poller.timerfd < 0 {
		f.fail("pwait2", syscall.EINTR)
	} else { // the kernel does not have epoll_pwait2
		f.fail("wait", syscall.EINTR)
	}
	expectKinds(t, l.turn(3600_000_000_000))
	f.fail("poll", syscall.EINTR)
	expectKinds(t, l.turn(0))
	// Completions that do not depend on the poller are delivered nevertheless.
	s := l.stream(0)
	l.write(s, copyToC(t, []byte("x")))
	f.fail("poll", syscall.EINTR)
	expectKinds(t, l.turn(-1), CmpWrote)
}

func TestFailedWaitIsReturnedAndLosesNothing(t *testing.T) {
	f := newFaults()
	l := newLoop(t, defaultSizes, f.calls)
	s := l.stream(0)
	l.write(s, copyToC(t, []byte("x")))
	f.fail("poll", syscall.EBADF)
	if n, err := l.r.Turn(-1); n != 0 || ErrnoOf(err) != syscall.EBADF {
		t.Errorf("Turn = %d, %v", n, err)
	}
	if l.sh.CmpLen != 0 {
		t.Error("completions of a failed turn")
	}
	expectKinds(t, l.turn(-1), CmpWrote)
}

// If the poller refuses a registration, both halves of the stream get an error.
func TestStreamThatCannotBePolledFails(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.ENOSPC} {
		f := newFaults()
		l := newLoop(t, defaultSizes, f.calls)
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
		l.write(s, copyToC(t, []byte("x")))
		d = l.turn(-1)
		expectKinds(t, d, CmpWriteError)
		if syscall.Errno(d[0].Res) != errno {
			t.Errorf("%+v", d[0])
		}
		l.expectIdle()
		a, b := pair(t)
		f.fail("add", errno)
		if _, _, err := l.r.StreamOpen(int32(a), readingRecord(), 0); ErrnoOf(err) != errno {
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

// A pipe that is often full is enlarged. If the kernel refuses, the stream still works.
func TestBusyPipeIsEnlarged(t *testing.T) {
	for name, errno := range map[string]syscall.Errno{"enlarged": 0, "refused": syscall.EPERM} {
		t.Run(name, func(t *testing.T) {
			f := newFaults()
			f.fail("setpipe", errno)
			l := newLoop(t, defaultSizes, f.calls)
			var ends [2]int
			if err := sys.Pipe2(ends[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = sys.Close(ends[0]) })
			before, _ := f.calls.PipeSize(ends[0])
			w := l.open(ends[1], OpenWatchEnd)
			const size = 4 << 20
			l.write(w, mapMemory(t, size))
			received := 0
			for received < size {
				l.turn(0)
				received += len(readPeer(t, ends[0]))
			}
			if f.count("setpipe") != 1 || received != size || w.pending() != 0 {
				t.Errorf("set %d times, %d bytes received", f.count("setpipe"), received)
			}
			after, _ := f.calls.PipeSize(ends[0])
			if (after == before) != (errno != 0) && unix.Geteuid() == 0 {
				t.Errorf("the pipe's size is %d, was %d", after, before)
			}
		})
	}
}

// Changes that C has undone before the turn do not cause system calls.
func TestPauseAndResumeBetweenTurnsCauseNoCalls(t *testing.T) {
	f := newFaults()
	l := newLoop(t, defaultSizes, f.calls)
	s := l.stream(0)
	l.expectIdle()
	before, submissions := f.count("ctl"), l.sh.SubLen
	for range 3 {
		l.pause(s)
		l.resume(s)
	}
	if n := l.sh.SubLen - submissions; n != 1 {
		t.Errorf("%d submissions", n)
	}
	l.expectIdle()
	if n := f.count("ctl") - before; n != 0 {
		t.Errorf("the poller was called %d times", n)
	}
	l.pause(s)
	l.expectIdle()
	if n := f.count("ctl") - before; n != 1 {
		t.Errorf("a pause made %d calls", n)
	}
	writePeer(t, s.peer, []byte("unheard"))
	l.expectIdle()
}

// Pieces that are queued while a stream is blocked are sent after the others without another
// submission.
func TestWritesToABlockedStreamAreSentWithTheRest(t *testing.T) {
	l := defaultLoop(t)
	s := l.stream(openPaused)
	shrinkBuffers(t, int(s.fd))
	l.write(s, mapMemory(t, 300_000))
	l.turn(0)
	if s.io.State&transports.StateBlocked == 0 {
		t.Fatal("the kernel took all: the test proves nothing")
	}
	s.push(copyToC(t, []byte("tail")))
	var received []byte
	for len(received) < 300_004 {
		l.turn(0)
		received = append(received, readPeer(t, s.peer)...)
	}
	if string(received[300_000:]) != "tail" || s.pending() != 0 || s.io.State != 0 {
		t.Errorf("%d bytes received, %d pending, state %d", len(received), s.pending(), s.io.State)
	}
	l.turn(0)
	l.expectIdle()
}

func TestListenerThatCannotBePolledAfterBackOff(t *testing.T) {
	f := newFaults()
	l := newLoop(t, defaultSizes, f.calls)
	ln := l.listen(10)
	ln.dial(t, 1)
	f.fail("accept", syscall.EMFILE)
	l.turnUntil(CmpAcceptError)
	backOff := func() { l.r.registry.find(ln.id, ln.gen).listener.BackOff(l.sh.Now - 2_000_000_000) }
	backOff()
	f.fail("add", syscall.ENOMEM) // backs off again without a report
	l.expectIdle()
	if left := l.sh.NextDeadline - l.sh.Now; left <= 0 {
		t.Errorf("the second delay ends in %d ns", left)
	}
	backOff()
	f.fail("add", syscall.EBADF)
	d, _ := l.turnUntil(CmpAcceptError)
	if syscall.Errno(d.Res) != syscall.EBADF || d.Arg != 0 {
		t.Errorf("%+v", d)
	}
	l.expectIdle()
}

// The fallback for kernels and sandboxes without epoll_pwait2.
func TestTimerfdTimesWaits(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSYS, syscall.EPERM} {
		f := newFaults()
		f.fail("pwait2", errno)
		l := newLoop(t, defaultSizes, f.calls)
		if got := l.r.Stats().Poller; got != "epoll, timerfd" {
			t.Fatalf("the poller is %q", got)
		}
		checkTimerAccuracy(t, l)
		// After a wait that an event ended, the timer is still armed. It must neither end the
		// next wait early nor be reported.
		s := l.stream(0)
		writePeer(t, s.peer, []byte("x"))
		l.turn(50_000_000)
		writePeer(t, s.peer, []byte("y"))
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
	block := *defaultLoop(t).sh
	if _, err := NewWithCalls(&block, f.calls); ErrnoOf(err) != syscall.EMFILE {
		t.Errorf("without a timerfd: %v", err)
	}
}

// A sandbox may forbid the timerfd, too. Then waits are rounded to milliseconds, as asyncio's
// are.
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
		l := newLoop(t, defaultSizes, f.calls)
		if late {
			if l.r.poller.timerfd >= 0 {
				continue // the kernel does not have epoll_pwait2, so it cannot be forbidden
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
		if got := l.r.Stats().Poller; got != "epoll, milliseconds" {
			t.Errorf("the poller is %q", got)
		}
		s := l.stream(0)
		writePeer(t, s.peer, []byte("x"))
		expectKinds(t, l.turn(math.MaxInt64), CmpData)
		if last := waits[len(waits)-1]; last != math.MaxInt32 {
			t.Errorf("the longest wait was %d ms", last)
		}
	}
}

func TestTimerfdThatCannotBePolledIsClosed(t *testing.T) {
	checkDescriptors(t)
	block := *defaultLoop(t).sh
	f := newFaults()
	f.fail("pwait2", syscall.ENOSYS)
	f.fail("ctl", syscall.ENOMEM)
	if _, err := NewWithCalls(&block, f.calls); ErrnoOf(err) != syscall.ENOMEM {
		t.Errorf("the timerfd was added: %v", err)
	}
}

func TestSetInterestFallsBackBetweenAddAndModify(t *testing.T) {
	f := newFaults()
	l := newLoop(t, defaultSizes, f.calls)
	a, b := watchedPair(t)
	w := l.watch(a, readable, 0)
	// The call fails, so the reactor assumes that the registration is gone, but the kernel
	// has it.
	f.fail("mod", syscall.EBADF)
	if err := l.r.WatchSet(w.id, w.gen, uint32(writable), 0); ErrnoOf(err) != syscall.EBADF {
		t.Errorf("watch_set: %v", err)
	}
	l.setWatch(w, readable, 0)
	writePeer(t, b, []byte("x"))
	l.expectReady(w, readable)
	// The opposite case.
	if err := sys.EpollCtl(l.r.poller.epfd, unix.EPOLL_CTL_DEL, a, nil); err != nil {
		t.Fatal(err)
	}
	l.expectReady(w, 0)
	l.setWatch(w, readable, 0)
	l.expectReady(w, readable)
}
