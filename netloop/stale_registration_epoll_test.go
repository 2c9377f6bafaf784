//go:build linux && !libkqueue

package netloop

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// duplicate duplicates a descriptor. The duplicate is closed at the end of the test.
func duplicate(t *testing.T, fd int) int {
	t.Helper()
	dup, err := sys.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	sys.CloseOnExec(dup)
	t.Cleanup(func() { _ = sys.Close(dup) })
	return dup
}

// The owner of a transport's socket detaches the descriptor, and data for the new owner
// arrives.
func TestDetachedDescriptorIsNotPolled(t *testing.T) {
	l := defaultLoop(t)
	for _, end := range []string{"deregistered", "found by a call"} {
		s, word := l.ownedStream()
		*word = -1
		writePeer(t, s.peer, []byte("the new owner's"))
		if end == "found by a call" {
			expectKinds(t, l.turn(0), CmpReadError)
		} else if err := l.r.Deregister(s.id, s.gen); err != nil {
			t.Fatal(err)
		}
		if n := l.pendingEvents(); n != 0 {
			t.Errorf("%s: %d events of a descriptor that is not the loop's", end, n)
		}
		if left := readPeer(t, int(s.fd)); string(left) != "the new owner's" {
			t.Errorf("%s: unread bytes: %q", end, left)
		}
	}
}

// leaveStaleRegistration closes a stream's number while a duplicate is open, and then
// deregisters the stream.
func leaveStaleRegistration(t *testing.T, l *loop) {
	t.Helper()
	s := l.stream(0)
	duplicate(t, int(s.fd))
	writePeer(t, s.peer, []byte("for the duplicate"))
	_ = sys.Close(int(s.fd))
	if err := l.r.Deregister(s.id, s.gen); err != nil {
		t.Fatal(err)
	}
	if l.pendingEvents() != 1 {
		t.Fatal("the kernel has dropped the registration: the test does not prove anything")
	}
}

func TestPollerWithStaleRegistrationIsRenewed(t *testing.T) {
	f := newFaults()
	for _, forbidden := range []bool{false, true} { // with true, a timerfd times the waits
		if forbidden {
			f.fail("pwait2", unix.ENOSYS)
		}
		l := newLoop(t, defaultSizes, f.calls)
		leaveStaleRegistration(t, l)
		s, reader, waiter, silent := l.stream(0), l.stream(0), l.stream(openPaused), l.stream(openPaused)
		a, b := watchedPair(t)
		c, d := watchedPair(t)
		level, once := l.watch(a, readable, 0), l.watch(c, 0, readable)
		e := l.datagrams(readable)
		ln := l.listen(5)
		number, stale := l.r.poller.descriptor(), l.r.staleEvents
		_ = l.turn(0) // processes the stale event
		if err := l.r.Wake(); err != nil {
			t.Fatal(err)
		}
		wakeups := l.sh.Wakeups
		l.turn(-1)
		if l.sh.Wakeups != wakeups+1 {
			t.Error("a wake was lost")
		}
		if l.r.staleEvents != stale+1 || l.r.poller.descriptor() != number || l.pendingEvents() != 0 {
			t.Fatalf("%d stale events, poller %d for %d, %d events", l.r.staleEvents-stale, l.r.poller.descriptor(), number, l.pendingEvents())
		}
		// All other registrations still work.
		l.expectIdle()
		writePeer(t, b, []byte("x"))
		l.expectReady(level, readable)
		readPeer(t, a)
		writePeer(t, d, []byte("x"))
		l.expectReady(once, readable)
		l.expectReady(once, 0)
		for _, each := range []testStream{s, reader} {
			writePeer(t, each.peer, []byte("x"))
			expectKinds(t, l.turn(0), CmpData)
		}
		for _, each := range []testStream{waiter, silent} {
			writePeer(t, each.peer, []byte("x"))
			l.expectIdle()
			l.resume(each)
			expectKinds(t, l.turn(0), CmpData)
		}
		writePeer(t, e.peer, []byte("x"))
		expectKinds(t, l.turn(0), CmpDatagram)
		ln.dial(t, 1)
		accepted(t, l.turn(0))
		if _, err := l.r.Turn(1000); err != nil {
			t.Error(err)
		}
		l.sh.Flags |= CheckFDs
		l.expectIdle()
	}
}

func TestFailedRenewalIsTriedAgain(t *testing.T) {
	f := newFaults()
	l := newLoop(t, defaultSizes, f.calls)
	leaveStaleRegistration(t, l)
	f.fail("create", unix.EMFILE)
	for range 3 {
		l.turn(0)
	}
	if l.pendingEvents() != 1 {
		t.Error("the poller was renewed without a descriptor")
	}
	for range renewalRetryTurns {
		l.turn(0)
	}
	if l.pendingEvents() != 0 {
		t.Error("the renewal was not tried again")
	}
}

// reportArgs makes turns until a watch is not reported any more, and returns the arguments
// of its reports.
func reportArgs(l *loop, w testWatch) (args []int64) {
	l.t.Helper()
	for range 1000 {
		got := l.turn(0)
		if len(got) == 0 && l.pendingEvents() == 0 {
			return args
		}
		for _, d := range got {
			if d.Kind != CmpReady || d.ID != w.id {
				l.t.Fatalf("completed %+v", d)
			}
			args = append(args, d.Arg)
		}
	}
	l.t.Fatal("the watch is reported forever")
	return nil
}

func TestWatchOnAClosedFDIsReportedAsLostOnce(t *testing.T) {
	for _, again := range []bool{false, true} {
		l := defaultLoop(t)
		a, b := pair(t)
		duplicate(t, a)
		writePeer(t, b, []byte("x"))
		w := l.watch(a, readable, 0)
		l.expectReady(w, readable)
		_ = sys.Close(a)
		c, d := 0, 0
		if again {
			if c, d = watchedPair(t); c != a {
				t.Fatalf("the kernel gave %d, not %d", c, a)
			}
		}
		args := reportArgs(l, w)
		if slices.Index(args, 1) != len(args)-1 {
			t.Errorf("lost: %v", args)
		}
		if again {
			writePeer(t, d, []byte("x"))
			l.expectReady(w, 0) // the new file of the number is not watched
			l.setWatch(w, readable, 0)
			l.expectReady(w, readable)
			l.setWatch(w, 0, 0)
		}
		_ = sys.Close(b)
	}
}

// A waiting task is woken and gets the error by its next call.
func TestOnceWatchOnAClosedFDIsReported(t *testing.T) {
	l := defaultLoop(t)
	leaveStaleRegistration(t, l)
	a, b := pair(t)
	duplicate(t, a)
	w := l.watch(a, 0, readable)
	_ = sys.Close(a)
	l.turn(0)
	got := l.turn(0)
	expectKinds(t, got, CmpReady)
	if got[0].ID != w.id || got[0].Arg != 0 {
		t.Errorf("completed %+v", got[0])
	}
	l.expectIdle()
	_ = sys.Close(b)
}

// errorQueue returns a UDP socket with an error in its error queue, which the test does not
// read.
func errorQueue(t *testing.T) (fd int, name *unix.SockaddrInet4) {
	t.Helper()
	if testKernel.name != hostKernel.name {
		t.Skip("a simulated kernel does not have error queues")
	}
	fd, name = boundUDP(t)
	nowhere, closed := boundUDP(t)
	_ = sys.Close(nowhere)
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.Sendto(fd, []byte("x"), 0, closed); err != nil {
		t.Fatal(err)
	}
	return fd, name
}

func TestUnreadErrorQueueDoesNotMakeAnEndpointSpin(t *testing.T) {
	l := defaultLoop(t)
	fd, name := errorQueue(t)
	peer, _ := boundUDP(t)
	defer func() { _ = sys.Close(peer) }()
	if err := sys.Connect(peer, name); err != nil {
		t.Fatal(err)
	}
	e := l.datagramsOver(fd, peer, readable)
	for range maxErrorOnlyEvents + 2 {
		l.turn(0)
	}
	for range 3 {
		if n := l.pendingEvents(); n != 0 {
			t.Fatalf("%d events", n)
		}
		for range 3 {
			writePeer(t, e.peer, []byte("x"))
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

func TestUnreadErrorQueueDoesNotMakeAWatchSpin(t *testing.T) {
	l := defaultLoop(t)
	fd, _ := errorQueue(t)
	defer func() { _ = sys.Close(fd) }()
	w := l.watch(fd, 0, readable)
	for range maxErrorOnlyEvents + 2 {
		l.turn(0)
		l.submit(SubWatchWait, w.id, w.gen, int64(readable)) // as sock_recv does after EAGAIN
	}
	l.turn(0)
	if n := l.pendingEvents(); n != 0 {
		t.Errorf("%d events", n)
	}
	peer, _ := boundUDP(t)
	name, err := sys.Getsockname(fd)
	if err == nil {
		err = sys.Connect(peer, name)
	}
	if err != nil {
		t.Fatal(err)
	}
	writePeer(t, peer, []byte("x"))
	l.expectReady(w, readable)
	_ = sys.Close(peer)
}
