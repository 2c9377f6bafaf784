package netloop

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"

	"github.com/goloop/goloop/transports"
	"golang.org/x/sys/unix"
)

// endpoint is an open datagram registration, and a socket that sends to it.
type endpoint struct {
	id, gen uint32
	fd      int
	peer    int
}

// datagrams opens an endpoint over one end of a pair of Unix datagram sockets.
func (l *loop) datagrams(want interest) endpoint {
	l.t.Helper()
	ends, err := sys.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		l.t.Fatal("socketpair: ", err)
	}
	for _, fd := range ends {
		private(l.t, fd)
	}
	l.t.Cleanup(func() { _ = sys.Close(ends[1]) })
	return l.datagramsOver(ends[0], ends[1], want)
}

// private makes a descriptor non-blocking and close-on-exec.
func private(t testing.TB, fd int) {
	t.Helper()
	sys.CloseOnExec(fd)
	if err := sys.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
}

// bound makes a UDP socket with a port of its own.
func bound(t testing.TB) (fd int, name *unix.SockaddrInet4) {
	t.Helper()
	fd, err := sys.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	private(t, fd)
	if err := sys.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	addr, err := sys.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fd, addr.(*unix.SockaddrInet4)
}

// udp opens an endpoint over a bound UDP socket, whose peer is connected to it.
func (l *loop) udp(want interest) (e endpoint, peerPort int) {
	l.t.Helper()
	fd, name := bound(l.t)
	peer, peerName := bound(l.t)
	l.t.Cleanup(func() { _ = sys.Close(peer) })
	if err := sys.Connect(peer, name); err != nil {
		l.t.Fatal(err)
	}
	return l.datagramsOver(fd, peer, want), peerName.Port
}

func (l *loop) datagramsOver(fd, peer int, want interest) endpoint {
	l.t.Helper()
	id, gen, err := l.r.DatagramOpen(int32(fd), nil, uint32(want))
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
	return endpoint{id, gen, fd, peer}
}

func (l *loop) wantDatagrams(e endpoint, want interest) {
	l.t.Helper()
	if err := l.r.DatagramSet(e.id, e.gen, uint32(want)); err != nil {
		l.t.Fatal(err)
	}
}

// collect turns until n datagrams have come.
func (l *loop) collect(n int) []done {
	l.t.Helper()
	var all []done
	for len(all) < n {
		all = append(all, l.turn(-1)...)
	}
	return all
}

func TestDatagramsComeWholeAndInOrder(t *testing.T) {
	l := usualLoop(t)
	e, port := l.udp(readable)
	for _, text := range []string{"one", "", "three"} {
		say(t, e.peer, []byte(text))
	}
	all := l.collect(3)
	expectKinds(t, all, CmpDatagram, CmpDatagram, CmpDatagram)
	for i, text := range []string{"one", "", "three"} {
		d := all[i]
		if d.ID != e.id || d.Gen != e.gen || string(d.data) != text || d.Arg != int64(len(text)) {
			t.Errorf("%d: %+v %q", i, d.Completion, d.data)
		}
		if a := d.from; a.AddrLen != 16 || int(a.Addr[2])<<8|int(a.Addr[3]) != port || a.Addr[4] != 127 {
			t.Errorf("%d: from %d %v", i, a.AddrLen, a.Addr[:16])
		}
	}
	l.quiet()
}

func TestDatagramFromASocketWithoutAName(t *testing.T) {
	l := usualLoop(t)
	e := l.datagrams(readable)
	say(t, e.peer, []byte("x"))
	if d := l.collect(1)[0]; d.from.AddrLen != 0 || string(d.data) != "x" {
		t.Errorf("%+v", d)
	}
}

func TestDatagramsAreBoundedPerTurn(t *testing.T) {
	l := usualLoop(t)
	e, _ := l.udp(readable)
	const n = transports.DatagramsPerTurn + 5
	for range n {
		say(t, e.peer, []byte("x"))
	}
	if got := len(l.turn(-1)); got != transports.DatagramsPerTurn {
		t.Errorf("the first turn took %d", got)
	}
	if got := len(l.turn(-1)); got != 5 {
		t.Errorf("the second turn took %d", got)
	}
	l.quiet()
}

// However small the arena, what is behind it makes room for the longest.
func TestLongDatagramsAreNotCutOff(t *testing.T) {
	for _, arena := range []uint64{minArena, 128 << 10} {
		t.Run(fmt.Sprint(arena), func(t *testing.T) {
			l := newLoop(t, sizes{256, arena}, kernelCalls())
			e := l.datagrams(readable)
			// A longer one than asyncio takes is cut off where asyncio cuts it.
			for i, size := range []int{1, 1000, 60_000, 150_000, PacketMax, PacketMax + 9} {
				if err := sys.SetsockoptInt(e.peer, unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20); err != nil {
					t.Fatal(err)
				}
				message := bytes.Repeat([]byte{byte('a' + i)}, size)
				if n, err := sys.Write(e.peer, message); err == unix.EMSGSIZE && size >= PacketMax {
					continue // this system's limit is lower
				} else if n != size || err != nil {
					t.Fatal(n, err)
				}
				d := l.collect(1)
				if len(d) != 1 || !bytes.Equal(d[0].data, message[:min(size, PacketMax)]) {
					t.Errorf("of %d came %d", size, len(d[0].data))
				}
			}
			// Several at once, which do not fit together.
			for i := range 5 {
				say(t, e.peer, bytes.Repeat([]byte{byte('a' + i)}, 30_000))
			}
			for i, d := range l.collect(5) {
				if !bytes.Equal(d.data, bytes.Repeat([]byte{byte('a' + i)}, 30_000)) {
					t.Errorf("%d: %d bytes", i, len(d.data))
				}
			}
			l.quiet()
		})
	}
}

// A socket that fills the arena in each turn does not stand first in each turn.
func TestAFloodLeavesRoomForOthers(t *testing.T) {
	l := newLoop(t, sizes{256, minArena}, kernelCalls())
	e := l.datagrams(readable)
	other := l.stream(0)
	flood := make([]byte, 2*minArena)
	say(t, e.peer, flood)
	say(t, e.peer, flood)
	l.turn(-1) // the endpoint is known to be ready before the stream
	say(t, other.peer, []byte("x"))
	for i := 0; ; i++ {
		if i == 4 {
			t.Fatal("the stream is starved")
		}
		say(t, e.peer, flood)
		var heard bool
		for _, d := range l.turn(-1) {
			heard = heard || d.Kind == CmpData
		}
		if heard {
			break
		}
	}
}

// Who found no room comes first in the next turn.
func TestFloodsTakeTurns(t *testing.T) {
	l := newLoop(t, sizes{256, minArena}, kernelCalls())
	flood := make([]byte, 2*minArena)
	var floods [3]endpoint
	for i := range floods {
		floods[i] = l.datagrams(readable)
	}
	heard := map[uint32]int{}
	for range 3 * len(floods) {
		for _, e := range floods {
			if _, err := sys.Write(e.peer, flood); err != nil && err != unix.EAGAIN && err != unix.ENOBUFS {
				t.Fatal(err)
			}
		}
		for _, d := range l.turn(-1) {
			heard[d.ID]++
		}
	}
	for _, e := range floods {
		if heard[e.id] != 3 {
			t.Errorf("heard %v", heard)
			break
		}
	}
}

func TestDatagramsWaitForRoomInTheQueue(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	e := l.datagrams(readable)
	for i := range 9 {
		say(t, e.peer, []byte{byte(i)})
	}
	f := l.datagrams(readable)
	for i := range 9 {
		say(t, f.peer, []byte{byte(i)})
	}
	next := map[uint32]byte{}
	for _, d := range l.collect(18) {
		if d.data[0] != next[d.ID] {
			t.Errorf("%d: %d came, not %d", d.ID, d.data[0], next[d.ID])
		}
		next[d.ID]++
	}
	l.quiet()
}

// receiveWays are the calls that may receive the first datagrams of a socket, and the flags
// of the loop with which they do.
func receiveWays() map[string]uint32 {
	ways := map[string]uint32{"recvfrom": NoRing}
	if kernelCalls().Recvmmsg != nil {
		ways["recvmmsg"] = 0
	}
	return ways
}

func TestDatagramErrorsAreToldAndEndNothing(t *testing.T) {
	for call, flags := range receiveWays() {
		for _, errno := range append(fatal, syscall.ECONNREFUSED, syscall.EHOSTUNREACH) {
			f := newFaults()
			l := newLoop(t, usual, f.calls)
			l.sh.Flags = flags
			e, _ := l.udp(readable)
			say(t, e.peer, []byte("x"))
			f.fail(call, errno)
			all := l.turn(-1)
			expectKinds(t, all, CmpDatagramError)
			if d := all[0]; d.ID != e.id || d.Gen != e.gen || syscall.Errno(d.Res) != errno {
				t.Errorf("%s, %v: %+v", call, errno, d)
			}
			if d := l.collect(1); len(d) != 1 || string(d[0].data) != "x" {
				t.Errorf("%s, %v: afterwards %+v", call, errno, d)
			}
		}
	}
}

// The real thing: nobody listens where the socket has sent to.
func TestDatagramToNobody(t *testing.T) {
	l := usualLoop(t)
	e, _ := l.udp(readable)
	gone, name := bound(t)
	_ = sys.Close(gone)
	if err := sys.Connect(e.fd, name); err != nil {
		t.Fatal(err)
	}
	say(t, e.fd, []byte("x"))
	if d, _ := l.until(CmpDatagramError); syscall.Errno(d.Res) != syscall.ECONNREFUSED {
		t.Errorf("%+v", d)
	}
	l.quiet()
}

func TestInterruptedDatagramCallsAreMadeAgain(t *testing.T) {
	for call, flags := range receiveWays() {
		for _, errno := range []syscall.Errno{syscall.EINTR, syscall.EAGAIN} {
			f := newFaults()
			l := newLoop(t, usual, f.calls)
			l.sh.Flags = flags
			e := l.datagrams(readable)
			say(t, e.peer, []byte("x"))
			f.fail(call, errno, errno)
			if d := l.collect(1); len(d) != 1 || string(d[0].data) != "x" || f.pending(call) {
				t.Errorf("%s, %v: %+v", call, errno, d)
			}
			l.quiet()
		}
	}
}

func TestASilentEndpointLeavesThePoller(t *testing.T) {
	l := usualLoop(t)
	e := l.datagrams(readable)
	say(t, e.peer, []byte("x"))
	l.wantDatagrams(e, 0)
	l.quiet()
	if n := l.events(); n != 0 {
		t.Errorf("%d events of a silent endpoint", n)
	}
	l.wantDatagrams(e, readable)
	expectKinds(t, l.turn(-1), CmpDatagram)
	silent := l.datagrams(0)
	say(t, silent.peer, []byte("x"))
	l.quiet()
}

// Room is told in each turn in which somebody wants to hear of it, behind what
// was received.
func TestRoomForDatagramsIsTold(t *testing.T) {
	l := usualLoop(t)
	e := l.datagrams(readable | writable)
	say(t, e.peer, []byte("x"))
	all := l.turn(-1)
	expectKinds(t, all, CmpDatagram, CmpReady)
	if d := all[1]; d.ID != e.id || d.Gen != e.gen || interest(d.Res) != writable {
		t.Errorf("%+v", d)
	}
	expectKinds(t, l.turn(-1), CmpReady)
	// Full: silence until the peer reads.
	n := 0
	for {
		if _, err := sys.Write(e.fd, []byte("x")); err == unix.EAGAIN {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		n++
	}
	l.quiet()
	hear(t, e.peer)
	expectKinds(t, l.turn(-1), CmpReady)
	l.wantDatagrams(e, readable)
	l.quiet()
}

// What is not wanted any more is not reported, though the poller has told of it.
func TestWantIsLookedAtWhenItIsServed(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	first, _ := l.udp(readable)
	for range minCompletions {
		say(t, first.peer, []byte("x"))
	}
	second := l.datagrams(readable | writable)
	l.turn(-1) // the queue is full before the second's turn
	if s := l.r.registry.find(second.id, second.gen); s.ready != writable {
		t.Fatalf("ready is %d", s.ready)
	}
	l.wantDatagrams(first, 0)
	l.wantDatagrams(second, readable)
	l.quiet()
}

func TestClosedEndpointIsSilent(t *testing.T) {
	l := usualLoop(t)
	e := l.datagrams(readable)
	say(t, e.peer, []byte("x"))
	if err := l.end(e.id, e.gen); err != nil {
		t.Fatal(err)
	}
	l.quiet()
	if err := l.end(e.id, e.gen); ErrnoOf(err) != syscall.ENOENT {
		t.Errorf("closing twice: %v", err)
	}
	if err := l.r.DatagramSet(e.id, e.gen, uint32(readable)); ErrnoOf(err) != syscall.ENOENT {
		t.Errorf("set after close: %v", err)
	}
	// The next registration in its slot is another.
	f := l.datagrams(readable)
	if f.id != e.id || f.gen == e.gen {
		t.Errorf("%d.%d after %d.%d", f.id, f.gen, e.id, e.gen)
	}
}

func TestDatagramOpenReportsWhatFailed(t *testing.T) {
	f := newFaults()
	l := newLoop(t, usual, f.calls)
	if _, _, err := l.r.DatagramOpen(-1, nil, uint32(readable)); ErrnoOf(err) != syscall.EBADF {
		t.Errorf("a negative descriptor: %v", err)
	}
	f.fail("add", syscall.ENOSPC)
	e := l.datagrams(0)
	if err := l.r.DatagramSet(e.id, e.gen, uint32(readable)); ErrnoOf(err) != syscall.ENOSPC {
		t.Errorf("set: %v", err)
	}
	f.fail("add", syscall.ENOMEM)
	g := l.datagrams(0)
	if _, _, err := l.r.DatagramOpen(int32(g.fd), nil, uint32(readable)); ErrnoOf(err) != syscall.ENOMEM {
		t.Errorf("open: %v", err)
	}
	if n := l.r.registry.live; n != 2 {
		t.Errorf("%d registrations are live", n)
	}
}

// A watch on the number of an endpoint would make it deaf.
func TestAWatchDoesNotTakeAnEndpointsPlace(t *testing.T) {
	l := usualLoop(t)
	e := l.datagrams(readable)
	if _, _, err := l.r.WatchOpen(int32(e.fd), uint32(readable), 0); ErrnoOf(err) != syscall.EEXIST {
		t.Errorf("watch_open: %v", err)
	}
	say(t, e.peer, []byte("x"))
	expectKinds(t, l.turn(-1), CmpDatagram)
}

func datagramStep(tb testing.TB, l *loop, e endpoint, message []byte) {
	for range 3 {
		if n, err := sys.Write(e.peer, message); n != len(message) || err != nil {
			tb.Fatal(n, err)
		}
	}
	// A busy kernel may deliver what was written a moment later.
	for got := 0; got < 3; {
		n, err := l.r.Turn(-1)
		if err != nil {
			tb.Fatal(err)
		}
		got += n
	}
	for _, want := range []interest{readable | writable, 0, readable} {
		if err := l.r.DatagramSet(e.id, e.gen, uint32(want)); err != nil {
			tb.Fatal(err)
		}
	}
}

func TestSteadyDatagramsDoNotAllocate(t *testing.T) {
	l := usualLoop(t)
	e, _ := l.udp(readable)
	message := make([]byte, 512)
	step := func() { datagramStep(t, l, e, message) }
	for range 100 {
		step()
	}
	if allocs := testing.AllocsPerRun(1000, step); allocs != 0 {
		t.Errorf("%v allocations a turn", allocs)
	}
}

func BenchmarkDatagrams512(b *testing.B) {
	l := usualLoop(b)
	e, _ := l.udp(readable)
	message := make([]byte, 512)
	b.ReportAllocs()
	for b.Loop() {
		datagramStep(b, l, e, message)
	}
}
