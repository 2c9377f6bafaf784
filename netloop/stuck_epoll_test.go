//go:build linux && !libkqueue

package netloop

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// keep makes a duplicate of a descriptor, which lives to the end of the test.
func keep(t *testing.T, fd int) int {
	t.Helper()
	kept, err := sys.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	sys.CloseOnExec(kept)
	t.Cleanup(func() { _ = sys.Close(kept) })
	return kept
}

// The owner of a transport's socket takes the descriptor away, and its bytes come.
func TestADetachedDescriptorLeavesThePoller(t *testing.T) {
	l := usualLoop(t)
	for _, end := range []string{"forgotten", "found by a call"} {
		s, word := l.owned()
		*word = -1
		say(t, s.peer, []byte("the new owner's"))
		if end == "found by a call" {
			expectKinds(t, l.turn(0), CmpReadError)
		} else if err := l.r.Forget(s.id, s.gen); err != nil {
			t.Fatal(err)
		}
		if n := l.events(); n != 0 {
			t.Errorf("%s: %d events of a descriptor that is not the loop's", end, n)
		}
		if left := hear(t, int(s.fd)); string(left) != "the new owner's" {
			t.Errorf("%s: left to read: %q", end, left)
		}
	}
}

// stuckStream has a number closed without a word while a duplicate lives, and ends its stream.
func stuckStream(t *testing.T, l *loop) {
	t.Helper()
	s := l.stream(0)
	keep(t, int(s.fd))
	say(t, s.peer, []byte("for the duplicate"))
	_ = sys.Close(int(s.fd))
	if err := l.r.Forget(s.id, s.gen); err != nil {
		t.Fatal(err)
	}
	if l.events() != 1 {
		t.Fatal("the kernel has forgotten it: the test proves nothing")
	}
}

func TestAPollerIsRenewedWhoseEventsBelongToNothing(t *testing.T) {
	f := newFaults()
	for _, forbidden := range []bool{false, true} { // then a timerfd times the waits
		if forbidden {
			f.fail("pwait2", unix.ENOSYS)
		}
		l := newLoop(t, usual, f.calls)
		stuckStream(t, l)
		s, reader, waiter, silent := l.stream(0), l.stream(0), l.stream(openPaused), l.stream(openPaused)
		a, b := watchedPair(t)
		c, d := watchedPair(t)
		level, once := l.watch(a, readable, 0), l.watch(c, 0, readable)
		e := l.datagrams(readable)
		ln := l.listen(5)
		number, stale := l.r.poller.number(), l.r.stale
		_ = l.turn(0) // which notes the event
		if err := l.r.Wake(); err != nil {
			t.Fatal(err)
		}
		wakeups := l.sh.Wakeups
		l.turn(-1)
		if l.sh.Wakeups != wakeups+1 {
			t.Error("a wake was lost")
		}
		if l.r.stale != stale+1 || l.r.poller.number() != number || l.events() != 0 {
			t.Fatalf("%d stale events, poller %d for %d, %d events", l.r.stale-stale, l.r.poller.number(), number, l.events())
		}
		// All others are as before.
		l.quiet()
		say(t, b, []byte("x"))
		l.ready(level, readable)
		hear(t, a)
		say(t, d, []byte("x"))
		l.ready(once, readable)
		l.ready(once, 0)
		for _, each := range []stream{s, reader} {
			say(t, each.peer, []byte("x"))
			expectKinds(t, l.turn(0), CmpData)
		}
		for _, each := range []stream{waiter, silent} {
			say(t, each.peer, []byte("x"))
			l.quiet()
			l.resume(each)
			expectKinds(t, l.turn(0), CmpData)
		}
		say(t, e.peer, []byte("x"))
		expectKinds(t, l.turn(0), CmpDatagram)
		ln.dial(t, 1)
		accepted(t, l.turn(0))
		if _, err := l.r.Turn(1000); err != nil {
			t.Error(err)
		}
		l.sh.Flags |= Look
		l.quiet()
	}
}

func TestARenewalThatIsRefusedIsTriedAgain(t *testing.T) {
	f := newFaults()
	l := newLoop(t, usual, f.calls)
	stuckStream(t, l)
	f.fail("create", unix.EMFILE)
	for range 3 {
		l.turn(0)
	}
	if l.events() != 1 {
		t.Error("it was renewed without a descriptor")
	}
	for range renewEvery {
		l.turn(0)
	}
	if l.events() != 0 {
		t.Error("it was not tried again")
	}
}

// reportsOf turns until a watch is not reported any more; the arguments of its reports.
func reportsOf(l *loop, w watched) (args []int64) {
	l.t.Helper()
	for range 1000 {
		got := l.turn(0)
		if len(got) == 0 && l.events() == 0 {
			return args
		}
		for _, d := range got {
			if d.Kind != CmpReady || d.ID != w.id {
				l.t.Fatalf("completed %+v", d)
			}
			args = append(args, d.Arg)
		}
	}
	l.t.Fatal("it is reported for ever")
	return nil
}

func TestAWatchWhoseNumberWasClosedIsReportedAsLostOnce(t *testing.T) {
	for _, again := range []bool{false, true} {
		l := usualLoop(t)
		a, b := pair(t)
		keep(t, a)
		say(t, b, []byte("x"))
		w := l.watch(a, readable, 0)
		l.ready(w, readable)
		_ = sys.Close(a)
		c, d := 0, 0
		if again {
			if c, d = watchedPair(t); c != a {
				t.Fatalf("the kernel gave %d, not %d", c, a)
			}
		}
		args := reportsOf(l, w)
		if slices.Index(args, 1) != len(args)-1 {
			t.Errorf("lost: %v", args)
		}
		if again {
			say(t, d, []byte("x"))
			l.ready(w, 0) // the number's new owner is not watched
			l.set(w, readable, 0)
			l.ready(w, readable)
			l.set(w, 0, 0)
		}
		_ = sys.Close(b)
	}
}

// A wait is woken, and finds by its next call what has happened.
func TestAWaitWhoseNumberWasClosedEnds(t *testing.T) {
	l := usualLoop(t)
	stuckStream(t, l)
	a, b := pair(t)
	keep(t, a)
	w := l.watch(a, 0, readable)
	_ = sys.Close(a)
	l.turn(0)
	got := l.turn(0)
	expectKinds(t, got, CmpReady)
	if got[0].ID != w.id || got[0].Arg != 0 {
		t.Errorf("completed %+v", got[0])
	}
	l.quiet()
	_ = sys.Close(b)
}

// errorQueue makes a UDP socket with an error in its error queue, which nothing reads.
func errorQueue(t *testing.T) (fd int, name *unix.SockaddrInet4) {
	t.Helper()
	if on.name != hostKernel.name {
		t.Skip("a simulated kernel has no error queues")
	}
	fd, name = bound(t)
	nowhere, closed := bound(t)
	_ = sys.Close(nowhere)
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.Sendto(fd, []byte("x"), 0, closed); err != nil {
		t.Fatal(err)
	}
	return fd, name
}

func TestAnErrorQueueThatIsNotReadEndsNoWaitForEver(t *testing.T) {
	l := usualLoop(t)
	fd, name := errorQueue(t)
	peer, _ := bound(t)
	defer func() { _ = sys.Close(peer) }()
	if err := sys.Connect(peer, name); err != nil {
		t.Fatal(err)
	}
	e := l.datagramsOver(fd, peer, readable)
	for range aloneMost + 2 {
		l.turn(0)
	}
	for range 3 {
		if n := l.events(); n != 0 {
			t.Fatalf("%d events", n)
		}
		for range 3 {
			say(t, e.peer, []byte("x"))
		}
		got := l.turn(0)
		for len(got) < 3 {
			got = append(got, l.turn(0)...)
		}
		expectKinds(t, got, CmpDatagram, CmpDatagram, CmpDatagram)
		l.turn(0)
		l.wantDatagrams(e, directions)
		expectKinds(t, l.turn(0), CmpReady)
		expectKinds(t, l.turn(0), CmpReady)
		l.wantDatagrams(e, 0)
		l.wantDatagrams(e, readable)
		l.turn(0)
	}
}

func TestAnErrorQueueThatIsNotReadWakesNoWaitForEver(t *testing.T) {
	l := usualLoop(t)
	fd, _ := errorQueue(t)
	defer func() { _ = sys.Close(fd) }()
	w := l.watch(fd, 0, readable)
	for range aloneMost + 2 {
		l.turn(0)
		l.submit(SubWatchWait, w.id, w.gen, int64(readable)) // what a refused call asks for
	}
	l.turn(0)
	if n := l.events(); n != 0 {
		t.Errorf("%d events", n)
	}
	peer, _ := bound(t)
	name, err := sys.Getsockname(fd)
	if err == nil {
		err = sys.Connect(peer, name)
	}
	if err != nil {
		t.Fatal(err)
	}
	say(t, peer, []byte("x"))
	l.ready(w, readable)
	_ = sys.Close(peer)
}
