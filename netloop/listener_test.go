package netloop

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

type listening struct {
	id, gen uint32
	fd      int
	addr    unix.Sockaddr
}

func (l *loop) listen(backlog int32) listening { return l.listenWith(backlog, 0) }

func (l *loop) listenWith(backlog int32, flags uint32) listening {
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
			if err := l.end(id, gen); err != nil {
				l.t.Error(err)
			}
		}
	})
	return listening{id, gen, fd, addr}
}

// dial connects n clients, which are closed with the test.
func (ln listening) dial(t testing.TB, n int) {
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

// accepted closes the descriptors among the completions, and counts them.
func accepted(t testing.TB, all []done) int {
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

func TestAcceptGivesDescriptorAndAddresses(t *testing.T) {
	l := usualLoop(t)
	ln := l.listen(100)
	ln.dial(t, 1)
	d, _ := l.until(CmpAccept)
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

// Only a listener that was opened with the flag sets TCP_NODELAY.
func TestAcceptedConnectionsGetNoDelay(t *testing.T) {
	for flags, want := range []int{0, ListenNoDelay: 1} {
		l := usualLoop(t)
		ln := l.listenWith(100, uint32(flags))
		ln.dial(t, 1)
		d, all := l.until(CmpAccept)
		got, err := sys.GetsockoptInt(int(d.Res), unix.IPPROTO_TCP, unix.TCP_NODELAY)
		if err != nil || got != want || d.Arg != 0 {
			t.Errorf("flags %d: TCP_NODELAY is %d, %v; reported %+v", flags, got, err, d)
		}
		accepted(t, all)
	}
}

// C gets the connection and the errno, and drops it as asyncio does.
func TestNoDelayThatFailsIsReportedWithTheConnection(t *testing.T) {
	f := newFaults()
	l := newLoop(t, usual, f.calls)
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

func TestAcceptsAreBoundedPerTurn(t *testing.T) {
	l := usualLoop(t)
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
	l.quiet()
}

// The numbers are of one turn after another: what C says, and how many may be accepted.
func TestAcceptsHaveAShareOfTime(t *testing.T) {
	const ms = 1_000_000
	sh := &Shared{}
	a := accepting{cost: acceptFirst}
	for i, c := range []struct {
		elapsed, took int64 // since the last poll, in all and for accepting
		accepted      uint64
		left          int64
	}{
		{0, 0, 0, 2},                 // the least, at what one takes first
		{1 * ms, ms / 2, 2, 2},       // it takes that
		{40 * ms, 0, 0, 40},          // a quarter of 40 ms
		{50 * ms, 10 * ms, 40, 40},   // accepting itself is no time of the others'
		{41 * ms, 1 * ms, 40, 72},    // 25 µs; the half of what it was, and of that
		{0, 0, 0, 3},                 // nothing else was done
		{1000 * ms, 1000 * ms, 1, 0}, // one took a second: none for a while, but one
		{100 * ms, ms / 10, 1, 0},
	} {
		sh.Metrics.ConnectionsAccepted += c.accepted
		sh.Accepting += c.took
		a.begin(sh, c.elapsed)
		if a.left != c.left {
			t.Errorf("turn %d: %d may be accepted at %d ns, not %d", i, a.left, a.cost, c.left)
		}
	}
}

func TestEachListenerAcceptsOneInAnyCase(t *testing.T) {
	l := usualLoop(t)
	all := []listening{l.listen(100), l.listen(100), l.listen(100)}
	for _, ln := range all {
		ln.dial(t, 3)
	}
	for range 3 {
		l.r.accepting.cost = 1 << 60
		got := l.turn(0)
		from := map[uint32]int{}
		for _, d := range got {
			from[d.ID]++
		}
		if accepted(t, got) != 3 || len(from) != 3 {
			t.Errorf("accepted by %v", from)
		}
	}
	l.quiet()
}

func TestListenersShareTheTimeOfATurn(t *testing.T) {
	l := usualLoop(t)
	for range 2 {
		l.listen(100).dial(t, 8)
	}
	l.r.accepting.cost = acceptLeast / 5
	l.sh.Now = l.r.clock.now() // a share of the time since then would be more, after a pause
	n := accepted(t, l.turn(0))
	if n != 6 { // five, and the other listener's one
		t.Errorf("%d were accepted", n)
	}
	for n < 16 {
		n += accepted(t, l.turn(0))
	}
	l.quiet()
}

func TestAcceptsBeyondTheRoomAreKept(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	ln := l.listen(100)
	ln.dial(t, 60)
	for total := 0; total < 60; {
		total += accepted(t, l.turn(-1))
	}
	l.quiet()
}

// Out of descriptors, a listener backs off: one report, no event, no accept, and a
// wait of the poller that ends with the delay.
func TestListenerBacksOffAndGoesOn(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		t.Run(errno.Error(), func(t *testing.T) {
			f := newFaults()
			l := newLoop(t, usual, f.calls)
			ln := l.listen(100)
			ln.dial(t, 2)
			f.fail("accept", errno)
			d, _ := l.until(CmpAcceptError)
			if d.ID != ln.id || syscall.Errno(d.Res) != errno || d.Arg != 1 {
				t.Errorf("reported %+v", d)
			}
			accepts := f.count("accept")
			l.quiet()
			if n := l.events(); n != 0 {
				t.Errorf("%d events of a listener that backs off", n)
			}
			if f.count("accept") != accepts {
				t.Error("a listener that backs off accepted")
			}
			if left := l.sh.NextDeadline - l.sh.Now; left > 10_000_000 {
				t.Errorf("the delay ends in %d ns", left)
			}
			// Let the delay pass.
			l.r.registry.find(ln.id, ln.gen).listener.RetrySoon(0)
			total := 0
			for total < 2 {
				total += accepted(t, l.turn(-1))
			}
			if l.sh.NextDeadline != DeadlineNone {
				t.Error("a deadline is left")
			}
		})
	}
}

func TestListenerThatBacksOffEndsTheWaitItself(t *testing.T) {
	f := newFaults()
	l := newLoop(t, usual, f.calls)
	ln := l.listen(100)
	ln.dial(t, 1)
	f.fail("accept", syscall.EMFILE)
	l.until(CmpAcceptError)
	// Nothing but the end of the delay can end this.
	total := 0
	for total < 1 {
		total += accepted(t, l.turn(-1))
	}
}

// longDelay makes the listener back off for a second, and keeps the reactor from trying early.
func longDelay(l *loop, ln listening) {
	machine := l.r.registry.find(ln.id, ln.gen).listener
	for range 7 {
		until, _ := machine.BackingOff()
		machine.Resume(until)
		machine.BackOff(until)
	}
}

// A registration that ends lets the listener go on at once, a second before its time.
func TestDelayEndsWhenADescriptorIsClosed(t *testing.T) {
	for _, others := range []bool{false, true} {
		f := newFaults()
		l := newLoop(t, usual, f.calls)
		closer := l
		if others {
			closer = usualLoop(t)
		}
		ln := l.listen(100)
		near := closer.stream(0)
		ln.dial(t, 1)
		f.fail("accept", syscall.EMFILE)
		l.until(CmpAcceptError)
		longDelay(l, ln)
		until := l.sh.NextDeadline
		_ = l.turn(0)
		closer.close(near)
		for total := 0; total < 1; {
			total += accepted(t, l.turn(-1))
		}
		if l.sh.Now >= until+900_000_000 {
			t.Error("the delay was slept through")
		}
		if l.sh.NextDeadline != DeadlineNone || l.r.calls.closes.waiting.Load() != 0 {
			t.Error("the reactor still waits for descriptors")
		}
	}
}

func TestFailingEarlyDoesNotSpin(t *testing.T) {
	f := newFaults()
	l := newLoop(t, usual, f.calls)
	ln := l.listen(100)
	ln.dial(t, 1)
	near := l.stream(0)
	for range 1000 {
		f.fail("accept", syscall.EMFILE)
	}
	l.until(CmpAcceptError)
	longDelay(l, ln)
	accepts := f.count("accept")
	l.close(near)
	for range 20 {
		if d := l.turn(0); len(d) != 0 {
			t.Fatalf("completed %+v", d)
		}
	}
	if tries := f.count("accept") - accepts; tries < 1 || tries > earlyTries+3 {
		t.Errorf("%d tries", tries)
	}
}

func TestClosingAListenerThatBacksOff(t *testing.T) {
	f := newFaults()
	l := newLoop(t, usual, f.calls)
	ln := l.listen(100)
	ln.dial(t, 1)
	f.fail("accept", syscall.EMFILE)
	l.until(CmpAcceptError)
	if err := l.end(ln.id, ln.gen); err != nil {
		t.Fatal(err)
	}
	l.quiet()
	if l.sh.NextDeadline != DeadlineNone {
		t.Error("a closed listener has a deadline")
	}
}

func TestConnectionThatIsGoneIsPassedOver(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ECONNABORTED, syscall.EPROTO, syscall.EPERM, syscall.ENETDOWN} {
		f := newFaults()
		l := newLoop(t, usual, f.calls)
		ln := l.listen(100)
		ln.dial(t, 1)
		f.fail("accept", errno)
		_, all := l.until(CmpAccept)
		if accepted(t, all) != 1 || len(all) != 1 {
			t.Errorf("%v: completed %+v", errno, all)
		}
	}
}

func TestBrokenListenerStops(t *testing.T) {
	f := newFaults()
	l := newLoop(t, usual, f.calls)
	ln := l.listen(100)
	ln.dial(t, 1)
	f.fail("accept", syscall.EINVAL)
	d, _ := l.until(CmpAcceptError)
	if syscall.Errno(d.Res) != syscall.EINVAL || d.Arg != 0 {
		t.Errorf("reported %+v", d)
	}
	l.quiet()
	if n := l.events(); n != 0 {
		t.Errorf("%d events of a stopped listener", n)
	}
}

func TestClosedListenerAcceptsNothing(t *testing.T) {
	l := usualLoop(t)
	ln := l.listen(100)
	ln.dial(t, 1)
	if err := l.end(ln.id, ln.gen); err != nil {
		t.Fatal(err)
	}
	l.quiet()
	if err := l.end(ln.id, ln.gen); ErrnoOf(err) != syscall.ENOENT {
		t.Errorf("closing twice: %v", err)
	}
}
