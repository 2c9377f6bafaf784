package netloop

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// testListener is a registered listening socket.
type testListener struct {
	id, gen uint32
	fd      int
	addr    unix.Sockaddr
}

// listen is listenWith without flags.
func (l *loop) listen(backlog int32) testListener { return l.listenWith(backlog, 0) }

// listenWith opens a listener on a free TCP port. The socket is closed at the end of the test.
func (l *loop) listenWith(backlog int32, flags uint32) testListener {
	l.t.Helper()
	fd, err := sys.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	sys.CloseOnExec(fd)
	if err = sys.SetNonblock(fd, true); err != nil {
		l.t.Fatal(err)
	}
	if err = sys.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		l.t.Fatal(err)
	}
	if err = sys.Listen(fd, 128); err != nil {
		l.t.Fatal(err)
	}
	addr, err := sys.Getsockname(fd)
	if err != nil {
		l.t.Fatal(err)
	}
	id, gen, err := l.r.ListenerOpen(int32(fd), nil, backlog, flags)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		if l.r.registry.find(id, gen) != nil {
			if err := l.deregister(id, gen); err != nil {
				l.t.Error(err)
			}
		}
	})
	return testListener{id, gen, fd, addr}
}

// dial connects n clients. They are closed at the end of the test.
func (ln testListener) dial(t testing.TB, n int) {
	t.Helper()
	for range n {
		fd, err := sys.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sys.Close(fd) })
		if err := sys.Connect(fd, ln.addr); err != nil {
			t.Fatal(err)
		}
	}
}

// accepted closes the descriptors of all accepted connections in the completions and returns
// their number.
func accepted(t testing.TB, all []completion) int {
	t.Helper()
	n := 0
	for _, d := range all {
		if d.Kind == CmpAccept {
			n++
			if err := sys.Close(int(d.Res)); err != nil {
				t.Error("close: ", err)
			}
		}
	}
	return n
}

func TestAcceptReportsDescriptorAndAddresses(t *testing.T) {
	l := defaultLoop(t)
	ln := l.listen(100)
	ln.dial(t, 1)
	d, _ := l.turnUntil(CmpAccept)
	fd := int(d.Res)
	defer sys.Close(fd)
	if d.ID != ln.id || d.Gen != ln.gen {
		t.Errorf("%+v", d)
	}
	flags, err := sys.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("flags %x, %v: not non-blocking", flags, err)
	}
	flags, err = sys.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %x, %v: not close-on-exec", flags, err)
	}
	port := ln.addr.(*unix.SockaddrInet4).Port
	if e := d.ends; e.LocalLen != 16 || e.PeerLen != 16 ||
		int(e.Local[2])<<8|int(e.Local[3]) != port || e.Peer[4] != 127 {
		t.Errorf("addresses %d %v, %d %v", e.LocalLen, e.Local[:16], e.PeerLen, e.Peer[:16])
	}
}

// TCP_NODELAY is set only for a listener that was opened with the flag.
func TestAcceptedConnectionsGetNoDelay(t *testing.T) {
	for flags, want := range []int{0, ListenNoDelay: 1} {
		l := defaultLoop(t)
		ln := l.listenWith(100, uint32(flags))
		ln.dial(t, 1)
		d, all := l.turnUntil(CmpAccept)
		got, err := sys.GetsockoptInt(int(d.Res), unix.IPPROTO_TCP, unix.TCP_NODELAY)
		if err != nil || got != want || d.Arg != 0 {
			t.Errorf("flags %d: TCP_NODELAY is %d, %v; reported %+v", flags, got, err, d)
		}
		accepted(t, all)
	}
}

// C gets the connection and the errno, and drops the connection as asyncio does.
func TestNoDelayErrorIsReportedWithTheAcceptedConnection(t *testing.T) {
	f := newFaults()
	l := newLoop(t, defaultSizes, f.calls)
	ln := l.listenWith(100, ListenNoDelay)
	ln.dial(t, 2)
	f.fail("nodelay", syscall.ENOBUFS)
	var args []int64
	for len(args) < 2 {
		all := l.turn(-1)
		for _, d := range all {
			args = append(args, d.Arg)
		}
		accepted(t, all)
	}
	if args[0] != int64(syscall.ENOBUFS) || args[1] != 0 {
		t.Errorf("reported %v", args)
	}
}

func TestAcceptsAreLimitedPerTurn(t *testing.T) {
	l := defaultLoop(t)
	ln := l.listen(3)
	ln.dial(t, 8)
	var counts []int
	for total := 0; total < 8; {
		n := accepted(t, l.turn(-1))
		counts = append(counts, n)
		total += n
	}
	for _, n := range counts {
		if n > 3 {
			t.Errorf("counts are %v", counts)
		}
	}
	l.expectIdle()
}

// The rows are consecutive turns: the time that C reports, and the number of connections that
// may be accepted.
func TestAcceptsHaveAShareOfTime(t *testing.T) {
	const ms = 1_000_000
	sh := &Shared{}
	a := acceptBudget{}
	a.assumeCost(acceptInitialCost)
	for i, c := range []struct {
		elapsed, took int64 // since the last poll: in total, and for accepting
		accepted      uint64
		left          int64
	}{
		{0, 0, 0, 2},                 // the minimum time at the initial cost
		{1 * ms, ms / 2, 2, 2},       // the measured cost
		{40 * ms, 0, 0, 40},          // a quarter of 40 ms
		{50 * ms, 10 * ms, 40, 40},   // the time of accepting itself does not count
		{41 * ms, 1 * ms, 40, 98},    // 25 µs; older connections count less
		{0, 0, 0, 4},                 // no other work was done
		{1 * ms, 1 * ms, 0, 3},       // the callbacks of the first bytes came later
		{1000 * ms, 1000 * ms, 1, 0}, // an accept took a second: only one per listener for a while
		{100 * ms, ms / 10, 1, 0},
	} {
		sh.Metrics.ConnectionsAccepted += c.accepted
		sh.Accepting += c.took
		a.beginTurn(sh, c.elapsed)
		if a.acceptsLeft != c.left {
			t.Errorf("turn %d: %d may be accepted at %d ns, not %d", i, a.acceptsLeft, a.costPerAccept(), c.left)
		}
	}
}

func TestEachListenerAcceptsAtLeastOne(t *testing.T) {
	l := defaultLoop(t)
	all := []testListener{l.listen(100), l.listen(100), l.listen(100)}
	for _, ln := range all {
		ln.dial(t, 3)
	}
	for range 3 {
		l.r.acceptBudget.assumeCost(1 << 60)
		got := l.turn(0)
		from := map[uint32]int{}
		for _, d := range got {
			from[d.ID]++
		}
		if accepted(t, got) != 3 || len(from) != 3 {
			t.Errorf("accepted by %v", from)
		}
	}
	l.expectIdle()
}

func TestListenersShareTheAcceptTimeOfATurn(t *testing.T) {
	l := defaultLoop(t)
	for range 2 {
		l.listen(100).dial(t, 8)
	}
	l.r.acceptBudget.assumeCost(acceptMinTime / 5)
	l.sh.Now = l.r.clock.now() // otherwise a pause of the test would increase the share
	n := accepted(t, l.turn(0))
	if n != 6 { // five, and one of the other listener
		t.Errorf("%d were accepted", n)
	}
	for n < 16 {
		n += accepted(t, l.turn(0))
	}
	l.expectIdle()
}

func TestAcceptsBeyondTheSpaceAreMadeLater(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	ln := l.listen(100)
	ln.dial(t, 60)
	for total := 0; total < 60; {
		total += accepted(t, l.turn(-1))
	}
	l.expectIdle()
}

// A listener without descriptors backs off: one error report, no events, no accept calls, and a
// wait of the poller that ends with the delay.
func TestListenerBacksOffAndResumes(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		t.Run(errno.Error(), func(t *testing.T) {
			f := newFaults()
			l := newLoop(t, defaultSizes, f.calls)
			ln := l.listen(100)
			ln.dial(t, 2)
			f.fail("accept", errno)
			d, _ := l.turnUntil(CmpAcceptError)
			if d.ID != ln.id || syscall.Errno(d.Res) != errno || d.Arg != 1 {
				t.Errorf("reported %+v", d)
			}
			accepts := f.count("accept")
			l.expectIdle()
			if n := l.pendingEvents(); n != 0 {
				t.Errorf("%d events of a listener that backs off", n)
			}
			if f.count("accept") != accepts {
				t.Error("a listener that backs off accepted")
			}
			if left := l.sh.NextDeadline - l.sh.Now; left > 10_000_000 {
				t.Errorf("the delay ends in %d ns", left)
			}
			// The delay ends.
			l.r.registry.find(ln.id, ln.gen).listener.RetrySoon(0)
			total := 0
			for total < 2 {
				total += accepted(t, l.turn(-1))
			}
			if l.sh.NextDeadline != DeadlineNone {
				t.Error("a deadline remains")
			}
		})
	}
}

func TestBackOffDelayEndsTheWait(t *testing.T) {
	f := newFaults()
	l := newLoop(t, defaultSizes, f.calls)
	ln := l.listen(100)
	ln.dial(t, 1)
	f.fail("accept", syscall.EMFILE)
	l.turnUntil(CmpAcceptError)
	// Only the end of the delay can end this wait.
	total := 0
	for total < 1 {
		total += accepted(t, l.turn(-1))
	}
}

// backOffLong makes the listener back off for a second and prevents early retries.
func backOffLong(l *loop, ln testListener) {
	machine := l.r.registry.find(ln.id, ln.gen).listener
	for range 7 {
		until, _ := machine.BackingOff()
		machine.Resume(until)
		machine.BackOff(until)
	}
}

// The end of a registration makes the listener retry immediately, a second before its delay
// ends.
func TestBackOffDelayEndsWhenADescriptorIsClosed(t *testing.T) {
	for _, others := range []bool{false, true} {
		f := newFaults()
		l := newLoop(t, defaultSizes, f.calls)
		closer := l
		if others {
			closer = defaultLoop(t)
		}
		ln := l.listen(100)
		near := closer.stream(0)
		ln.dial(t, 1)
		f.fail("accept", syscall.EMFILE)
		l.turnUntil(CmpAcceptError)
		backOffLong(l, ln)
		until := l.sh.NextDeadline
		_ = l.turn(0)
		closer.close(near)
		for total := 0; total < 1; {
			total += accepted(t, l.turn(-1))
		}
		if l.sh.Now >= until+900_000_000 {
			t.Error("the delay was slept through")
		}
		if l.sh.NextDeadline != DeadlineNone || l.r.calls.closes.waiters.Load() != 0 {
			t.Error("the reactor still waits for descriptors")
		}
	}
}

func TestFailedEarlyRetryDoesNotSpin(t *testing.T) {
	f := newFaults()
	l := newLoop(t, defaultSizes, f.calls)
	ln := l.listen(100)
	ln.dial(t, 1)
	near := l.stream(0)
	for range 1000 {
		f.fail("accept", syscall.EMFILE)
	}
	l.turnUntil(CmpAcceptError)
	backOffLong(l, ln)
	accepts := f.count("accept")
	l.close(near)
	for range 20 {
		if d := l.turn(0); len(d) != 0 {
			t.Fatalf("completed %+v", d)
		}
	}
	if tries := f.count("accept") - accepts; tries < 1 || tries > earlyRetryTurns+3 {
		t.Errorf("%d tries", tries)
	}
}

func TestDeregisterAListenerThatBacksOff(t *testing.T) {
	f := newFaults()
	l := newLoop(t, defaultSizes, f.calls)
	ln := l.listen(100)
	ln.dial(t, 1)
	f.fail("accept", syscall.EMFILE)
	l.turnUntil(CmpAcceptError)
	if err := l.deregister(ln.id, ln.gen); err != nil {
		t.Fatal(err)
	}
	l.expectIdle()
	if l.sh.NextDeadline != DeadlineNone {
		t.Error("a closed listener has a deadline")
	}
}

func TestAcceptSkipsAConnectionThatIsGone(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ECONNABORTED, syscall.EPROTO, syscall.EPERM, syscall.ENETDOWN} {
		f := newFaults()
		l := newLoop(t, defaultSizes, f.calls)
		ln := l.listen(100)
		ln.dial(t, 1)
		f.fail("accept", errno)
		_, all := l.turnUntil(CmpAccept)
		if accepted(t, all) != 1 || len(all) != 1 {
			t.Errorf("%v: completed %+v", errno, all)
		}
	}
}

func TestBrokenListenerStops(t *testing.T) {
	f := newFaults()
	l := newLoop(t, defaultSizes, f.calls)
	ln := l.listen(100)
	ln.dial(t, 1)
	f.fail("accept", syscall.EINVAL)
	d, _ := l.turnUntil(CmpAcceptError)
	if syscall.Errno(d.Res) != syscall.EINVAL || d.Arg != 0 {
		t.Errorf("reported %+v", d)
	}
	l.expectIdle()
	if n := l.pendingEvents(); n != 0 {
		t.Errorf("%d events of a stopped listener", n)
	}
}

func TestDeregisteredListenerDoesNotAccept(t *testing.T) {
	l := defaultLoop(t)
	ln := l.listen(100)
	ln.dial(t, 1)
	if err := l.deregister(ln.id, ln.gen); err != nil {
		t.Fatal(err)
	}
	l.expectIdle()
	if err := l.deregister(ln.id, ln.gen); ErrnoOf(err) != syscall.ENOENT {
		t.Errorf("closing twice: %v", err)
	}
}
