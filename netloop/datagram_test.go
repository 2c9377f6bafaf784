package netloop

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"

	"github.com/goloop/goloop/transports"
	"golang.org/x/sys/unix"
)

// testEndpoint is an open datagram registration and a socket that sends to it.
type testEndpoint struct {
	id, gen uint32
	fd      int
	peer    int
}

// datagrams opens an endpoint on one end of a pair of Unix datagram sockets. Both ends are closed
// at the end of the test.
func (l *loop) datagrams(want interest) testEndpoint {
	l.t.Helper()
	ends, err := sys.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		l.t.Fatal("socketpair: ", err)
	}
	for _, fd := range ends {
		setNonblockCloexec(l.t, fd)
	}
	l.t.Cleanup(func() { _ = sys.Close(ends[1]) })
	return l.datagramsOver(ends[0], ends[1], want)
}

// setNonblockCloexec makes a descriptor non-blocking and close-on-exec.
func setNonblockCloexec(t testing.TB, fd int) {
	t.Helper()
	sys.CloseOnExec(fd)
	if err := sys.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
}

// boundUDP returns a UDP socket with a port of its own.
func boundUDP(t testing.TB) (fd int, name *unix.SockaddrInet4) {
	t.Helper()
	fd, err := sys.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	setNonblockCloexec(t, fd)
	if err := sys.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	addr, err := sys.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fd, addr.(*unix.SockaddrInet4)
}

// udp opens an endpoint on a bound UDP socket. Its peer is another bound socket, which is
// connected to it. Both are closed at the end of the test.
func (l *loop) udp(want interest) (e testEndpoint, peerPort int) {
	l.t.Helper()
	fd, name := boundUDP(l.t)
	peer, peerName := boundUDP(l.t)
	l.t.Cleanup(func() { _ = sys.Close(peer) })
	if err := sys.Connect(peer, name); err != nil {
		l.t.Fatal(err)
	}
	return l.datagramsOver(fd, peer, want), peerName.Port
}

// datagramsOver opens an endpoint on a datagram socket, which is closed at the end of the test.
// peer is the descriptor from which the test sends.
func (l *loop) datagramsOver(fd, peer int, want interest) testEndpoint {
	l.t.Helper()
	id, gen, err := l.r.DatagramOpen(int32(fd), nil, uint32(want))
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
	return testEndpoint{id, gen, fd, peer}
}

// wantDatagrams replaces the directions of an endpoint.
func (l *loop) wantDatagrams(e testEndpoint, want interest) {
	l.t.Helper()
	if err := l.r.DatagramSet(e.id, e.gen, uint32(want)); err != nil {
		l.t.Fatal(err)
	}
}

// collectDatagrams makes turns until at least n completions have arrived, and returns all of
// them. The test expects datagrams only.
func (l *loop) collectDatagrams(n int) []completion {
	l.t.Helper()
	var all []completion
	for len(all) < n {
		all = append(all, l.turn(-1)...)
	}
	return all
}

func TestDatagramsArriveCompleteAndInOrder(t *testing.T) {
	l := defaultLoop(t)
	e, port := l.udp(readable)
	for _, text := range []string{"one", "", "three"} {
		writePeer(t, e.peer, []byte(text))
	}
	all := l.collectDatagrams(3)
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
	l.expectIdle()
}

func TestDatagramFromASocketWithoutAddress(t *testing.T) {
	l := defaultLoop(t)
	e := l.datagrams(readable)
	writePeer(t, e.peer, []byte("x"))
	if d := l.collectDatagrams(1)[0]; d.from.AddrLen != 0 || string(d.data) != "x" {
		t.Errorf("%+v", d)
	}
}

func TestDatagramsAreLimitedPerTurn(t *testing.T) {
	l := defaultLoop(t)
	e, _ := l.udp(readable)
	const n = transports.DatagramsPerTurn + 5
	for range n {
		writePeer(t, e.peer, []byte("x"))
	}
	if got := len(l.turn(-1)); got != transports.DatagramsPerTurn {
		t.Errorf("the first turn took %d", got)
	}
	if got := len(l.turn(-1)); got != 5 {
		t.Errorf("the second turn took %d", got)
	}
	l.expectIdle()
}

// The slack of the arena has space for the longest datagram, even if the arena is small.
func TestLongDatagramsAreNotTruncated(t *testing.T) {
	for _, arena := range []uint64{minArena, 128 << 10} {
		t.Run(fmt.Sprint(arena), func(t *testing.T) {
			l := newLoop(t, sizes{256, arena}, kernelCalls())
			e := l.datagrams(readable)
			// A datagram that is longer than asyncio's maximum is truncated at asyncio's
			// length.
			for i, size := range []int{1, 1000, 60_000, 150_000, MaxPacket, MaxPacket + 9} {
				if err := sys.SetsockoptInt(e.peer, unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20); err != nil {
					t.Fatal(err)
				}
				message := bytes.Repeat([]byte{byte('a' + i)}, size)
				if n, err := sys.Write(e.peer, message); err == unix.EMSGSIZE && size >= MaxPacket {
					continue // the limit of this system is lower
				} else if n != size || err != nil {
					t.Fatal(n, err)
				}
				d := l.collectDatagrams(1)
				if len(d) != 1 || !bytes.Equal(d[0].data, message[:min(size, MaxPacket)]) {
					t.Errorf("received %[2]d of %[1]d bytes", size, len(d[0].data))
				}
			}
			// Several at once that do not fit together.
			for i := range 5 {
				writePeer(t, e.peer, bytes.Repeat([]byte{byte('a' + i)}, 30_000))
			}
			for i, d := range l.collectDatagrams(5) {
				if !bytes.Equal(d.data, bytes.Repeat([]byte{byte('a' + i)}, 30_000)) {
					t.Errorf("%d: %d bytes", i, len(d.data))
				}
			}
			l.expectIdle()
		})
	}
}

// A socket that fills the arena in each turn is not served first in each turn.
func TestDatagramFloodLeavesSpaceForOthers(t *testing.T) {
	l := newLoop(t, sizes{256, minArena}, kernelCalls())
	e := l.datagrams(readable)
	other := l.stream(0)
	flood := make([]byte, 2*minArena)
	writePeer(t, e.peer, flood)
	writePeer(t, e.peer, flood)
	l.turn(-1) // the endpoint becomes ready before the stream
	writePeer(t, other.peer, []byte("x"))
	for i := 0; ; i++ {
		if i == 4 {
			t.Fatal("the stream is starved")
		}
		writePeer(t, e.peer, flood)
		var received bool
		for _, d := range l.turn(-1) {
			received = received || d.Kind == CmpData
		}
		if received {
			break
		}
	}
}

// An endpoint that found no space is served first in the next turn.
func TestFloodedEndpointsAreServedAlternately(t *testing.T) {
	l := newLoop(t, sizes{256, minArena}, kernelCalls())
	flood := make([]byte, 2*minArena)
	var floods [3]testEndpoint
	for i := range floods {
		floods[i] = l.datagrams(readable)
	}
	received := map[uint32]int{}
	for range 3 * len(floods) {
		for _, e := range floods {
			if _, err := sys.Write(e.peer, flood); err != nil && err != unix.EAGAIN && err != unix.ENOBUFS {
				t.Fatal(err)
			}
		}
		for _, d := range l.turn(-1) {
			received[d.ID]++
		}
	}
	for _, e := range floods {
		if received[e.id] != 3 {
			t.Errorf("received %v", received)
			break
		}
	}
}

func TestDatagramsWaitForSpaceInTheQueue(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	e := l.datagrams(readable)
	for i := range 9 {
		writePeer(t, e.peer, []byte{byte(i)})
	}
	f := l.datagrams(readable)
	for i := range 9 {
		writePeer(t, f.peer, []byte{byte(i)})
	}
	next := map[uint32]byte{}
	for _, d := range l.collectDatagrams(18) {
		if d.data[0] != next[d.ID] {
			t.Errorf("%d: received %d, want %d", d.ID, d.data[0], next[d.ID])
		}
		next[d.ID]++
	}
	l.expectIdle()
}

// receiveCalls are the names of the calls that may receive the first datagrams of a socket.
func receiveCalls() []string {
	if kernelCalls().Recvmmsg != nil {
		return []string{"recvfrom", "recvmmsg"}
	}
	return []string{"recvfrom"}
}

// receivingBy returns faults whose calls receive datagrams by this call.
func receivingBy(call string) *faults {
	f := newFaults()
	if call == "recvfrom" {
		f.calls.Recvmmsg = nil
	}
	return f
}

func TestDatagramErrorsAreReportedAndNotFinal(t *testing.T) {
	for _, call := range receiveCalls() {
		for _, errno := range append(fatalErrnos, syscall.ECONNREFUSED, syscall.EHOSTUNREACH) {
			f := receivingBy(call)
			l := newLoop(t, defaultSizes, f.calls)
			e, _ := l.udp(readable)
			writePeer(t, e.peer, []byte("x"))
			f.fail(call, errno)
			all := l.turn(-1)
			expectKinds(t, all, CmpDatagramError)
			if d := all[0]; d.ID != e.id || d.Gen != e.gen || syscall.Errno(d.Res) != errno {
				t.Errorf("%s, %v: %+v", call, errno, d)
			}
			if d := l.collectDatagrams(1); len(d) != 1 || string(d[0].data) != "x" {
				t.Errorf("%s, %v: afterwards %+v", call, errno, d)
			}
		}
	}
}

// An error of a real kernel: the destination port is closed.
func TestDatagramToAClosedPortReportsAnError(t *testing.T) {
	l := defaultLoop(t)
	e, _ := l.udp(readable)
	gone, name := boundUDP(t)
	_ = sys.Close(gone)
	if err := sys.Connect(e.fd, name); err != nil {
		t.Fatal(err)
	}
	writePeer(t, e.fd, []byte("x"))
	if d, _ := l.turnUntil(CmpDatagramError); syscall.Errno(d.Res) != syscall.ECONNREFUSED {
		t.Errorf("%+v", d)
	}
	l.expectIdle()
}

func TestInterruptedDatagramCallsAreMadeAgain(t *testing.T) {
	for _, call := range receiveCalls() {
		for _, errno := range []syscall.Errno{syscall.EINTR, syscall.EAGAIN} {
			f := receivingBy(call)
			l := newLoop(t, defaultSizes, f.calls)
			e := l.datagrams(readable)
			writePeer(t, e.peer, []byte("x"))
			f.fail(call, errno, errno)
			if d := l.collectDatagrams(1); len(d) != 1 || string(d[0].data) != "x" || f.isPending(call) {
				t.Errorf("%s, %v: %+v", call, errno, d)
			}
			l.expectIdle()
		}
	}
}

func TestEndpointWithoutInterestIsNotPolled(t *testing.T) {
	l := defaultLoop(t)
	e := l.datagrams(readable)
	writePeer(t, e.peer, []byte("x"))
	l.wantDatagrams(e, 0)
	l.expectIdle()
	if n := l.pendingEvents(); n != 0 {
		t.Errorf("%d events of an endpoint without interest", n)
	}
	l.wantDatagrams(e, readable)
	expectKinds(t, l.turn(-1), CmpDatagram)
	silent := l.datagrams(0)
	writePeer(t, silent.peer, []byte("x"))
	l.expectIdle()
}

// Space to send is reported in each turn while it is requested, after received datagrams.
func TestSpaceForDatagramsIsReported(t *testing.T) {
	l := defaultLoop(t)
	e := l.datagrams(readable | writable)
	writePeer(t, e.peer, []byte("x"))
	all := l.turn(-1)
	expectKinds(t, all, CmpDatagram, CmpReady)
	if d := all[1]; d.ID != e.id || d.Gen != e.gen || interest(d.Res) != writable {
		t.Errorf("%+v", d)
	}
	expectKinds(t, l.turn(-1), CmpReady)
	// Full: the endpoint is not reported until the peer reads.
	n := 0
	for {
		if _, err := sys.Write(e.fd, []byte("x")); err == unix.EAGAIN {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		n++
	}
	l.expectIdle()
	readPeer(t, e.peer)
	expectKinds(t, l.turn(-1), CmpReady)
	l.wantDatagrams(e, readable)
	l.expectIdle()
}

// Directions that are not wanted any more are not reported, even if the poller has reported
// them.
func TestUnwantedDirectionsAreNotReported(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	first, _ := l.udp(readable)
	for range minCompletions {
		writePeer(t, first.peer, []byte("x"))
	}
	second := l.datagrams(readable | writable)
	l.turn(-1) // the completion queue is full before the second is served
	if s := l.r.registry.find(second.id, second.gen); s.ready != writable {
		t.Fatalf("ready is %d", s.ready)
	}
	l.wantDatagrams(first, 0)
	l.wantDatagrams(second, readable)
	l.expectIdle()
}

func TestDeregisteredEndpointIsNotReported(t *testing.T) {
	l := defaultLoop(t)
	e := l.datagrams(readable)
	writePeer(t, e.peer, []byte("x"))
	if err := l.deregister(e.id, e.gen); err != nil {
		t.Fatal(err)
	}
	l.expectIdle()
	if err := l.deregister(e.id, e.gen); ErrnoOf(err) != syscall.ENOENT {
		t.Errorf("closing twice: %v", err)
	}
	if err := l.r.DatagramSet(e.id, e.gen, uint32(readable)); ErrnoOf(err) != syscall.ENOENT {
		t.Errorf("set after close: %v", err)
	}
	// The next registration in its slot must not be affected.
	f := l.datagrams(readable)
	if f.id != e.id || f.gen == e.gen {
		t.Errorf("%d.%d after %d.%d", f.id, f.gen, e.id, e.gen)
	}
}

func TestDatagramOpenReturnsErrors(t *testing.T) {
	f := newFaults()
	l := newLoop(t, defaultSizes, f.calls)
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
		t.Errorf("%d registrations were not released", n)
	}
}

// A watch on the number of an endpoint must not replace the endpoint's registration.
func TestWatchDoesNotReplaceAnEndpointsRegistration(t *testing.T) {
	l := defaultLoop(t)
	e := l.datagrams(readable)
	if _, _, err := l.r.WatchOpen(int32(e.fd), uint32(readable), 0); ErrnoOf(err) != syscall.EEXIST {
		t.Errorf("watch_open: %v", err)
	}
	writePeer(t, e.peer, []byte("x"))
	expectKinds(t, l.turn(-1), CmpDatagram)
}

// datagramStep is one round of a benchmark: the peer sends three datagrams, turns receive them,
// and the directions of the endpoint change three times.
func datagramStep(tb testing.TB, l *loop, e testEndpoint, message []byte) {
	for range 3 {
		if n, err := sys.Write(e.peer, message); n != len(message) || err != nil {
			tb.Fatal(n, err)
		}
	}
	// A busy kernel may deliver datagrams a moment later.
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
	l := defaultLoop(t)
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
	l := defaultLoop(b)
	e, _ := l.udp(readable)
	message := make([]byte, 512)
	b.ReportAllocs()
	for b.Loop() {
		datagramStep(b, l, e, message)
	}
}
