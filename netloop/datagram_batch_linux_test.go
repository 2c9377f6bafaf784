package netloop

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"

	"github.com/goloop/goloop/transports"
)

// numberedDatagram returns a datagram of this length that differs from all others.
func numberedDatagram(i, size int) []byte {
	return append(fmt.Appendf(nil, "%d:", i), bytes.Repeat([]byte{byte('a' + i%26)}, size)...)
}

// expectNumbered collects the datagrams of numberedDatagram with these sizes, in this order.
func (l *loop) expectNumbered(e testEndpoint, sizes ...int) {
	l.t.Helper()
	for i, d := range l.collectDatagrams(len(sizes)) {
		if d.ID != e.id || !bytes.Equal(d.data, numberedDatagram(i, sizes[i])) {
			l.t.Errorf("%d: %d bytes, %.9q", i, len(d.data), d.data)
		}
	}
}

// takeInOneTurn sends datagrams of these sizes and makes a turn, again until the turn takes all:
// a busy kernel delivers some of them later, in a thread of its own. It returns the turn's
// completions and its number of recvmmsg calls.
func (l *loop) takeInOneTurn(f *faults, peer int, sizes []int) ([]completion, int) {
	l.t.Helper()
	for range 20 {
		for i, size := range sizes {
			writePeer(l.t, peer, numberedDatagram(i, size))
		}
		before := f.count("recvmmsg")
		all := l.turn(-1)
		if len(all) == len(sizes) {
			return all, f.count("recvmmsg") - before
		}
		l.t.Logf("a turn took %d", len(all))
		l.collectDatagrams(len(sizes) - len(all))
	}
	l.t.Fatal("no turn took all datagrams")
	return nil, 0
}

func TestManyDatagramsAreReceivedByFewCalls(t *testing.T) {
	f := newFaults()
	l := newLoop(t, defaultSizes, f.calls)
	e, port := l.udp(readable)
	sizes := make([]int, transports.DatagramsPerTurn-1)
	for i := range sizes {
		sizes[i] = i * 20
	}
	for round := range 2 {
		all, calls := l.takeInOneTurn(f, e.peer, sizes)
		for i, d := range all {
			if !bytes.Equal(d.data, numberedDatagram(i, sizes[i])) {
				t.Errorf("%d: %d bytes", i, len(d.data))
			}
			if a := d.from; a.AddrLen != 16 || int(a.Addr[2])<<8|int(a.Addr[3]) != port || a.Addr[4] != 127 {
				t.Errorf("%d: from %d %v", i, a.AddrLen, a.Addr[:16])
			}
		}
		// The first turn does not know yet how many to expect.
		if calls > 6-2*round {
			t.Errorf("round %d: %d calls", round, calls)
		}
	}
	if n := f.count("recvfrom"); n != 0 {
		t.Errorf("%d calls of recvfrom", n)
	}
	// A single datagram takes one call, which also shows that there are no more.
	l.expectIdle()
	writePeer(t, e.peer, []byte("x"))
	l.turn(-1)
	before := f.count("recvmmsg")
	writePeer(t, e.peer, []byte("x"))
	l.turn(-1)
	if n := f.count("recvmmsg") - before; n != 1 {
		t.Errorf("%d calls for one", n)
	}
	l.expectIdle()
}

func TestLongDatagramsInABatchAreNotTruncated(t *testing.T) {
	f := newFaults()
	l := newLoop(t, defaultSizes, f.calls)
	e, _ := l.udp(readable)
	short := int(maxPacketHead)
	sizes := []int{5, 60_000, 0, short - 3, short - 2, short - 1, 20_000, 7}
	for range 3 {
		for i, size := range sizes {
			writePeer(t, e.peer, numberedDatagram(i, size))
		}
		l.expectNumbered(e, sizes...)
	}
	l.expectIdle()
	// Single receives from now on, so that tails are not used needlessly, until the datagrams
	// are short again.
	before := f.count("recvmmsg")
	for range 3 {
		writePeer(t, e.peer, []byte("x"))
		l.turn(-1)
	}
	if n := f.count("recvmmsg"); n != before {
		t.Errorf("%d calls for several after long ones", n-before)
	}
	for range 64 {
		writePeer(t, e.peer, []byte("x"))
		l.turn(-1)
	}
	if n := f.count("recvmmsg"); n == before {
		t.Error("recvmmsg is not used any more")
	}
}

// C reads the datagrams after all sockets were served, so the tails can be used by one batch.
func TestLongDatagramsOfTwoSocketsInOneTurn(t *testing.T) {
	l := defaultLoop(t)
	var ends [3]testEndpoint
	for i := range ends {
		ends[i] = l.datagrams(readable)
		for k := range 3 {
			writePeer(t, ends[i].peer, numberedDatagram(3*i+k, 9_000))
		}
	}
	seen := map[uint32]int{}
	for _, d := range l.turn(-1) {
		for i, e := range ends {
			if e.id == d.ID {
				if want := numberedDatagram(3*i+seen[d.ID], 9_000); !bytes.Equal(d.data, want) {
					t.Errorf("socket %d, %d: %d bytes, %.9q", i, seen[d.ID], len(d.data), d.data)
				}
			}
		}
		seen[d.ID]++
	}
	for _, e := range ends {
		if seen[e.id] != 3 {
			t.Errorf("received %v", seen)
		}
	}
	l.expectIdle()
}

func TestDatagramsWithoutRecvmmsg(t *testing.T) {
	for name, prepare := range map[string]func(f *faults){
		"ENOSYS":      func(f *faults) { f.fail("recvmmsg", syscall.ENOSYS) },
		"EPERM":       func(f *faults) { f.fail("recvmmsg", syscall.EPERM) },
		"no memory":   func(f *faults) { f.calls.Map = func(int) ([]byte, error) { return nil, syscall.ENOMEM } },
		"no recvmmsg": func(f *faults) { f.calls.Recvmmsg = nil },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFaults()
			prepare(f)
			l := newLoop(t, defaultSizes, f.calls)
			e, _ := l.udp(readable)
			for range 2 {
				for i := range 5 {
					writePeer(t, e.peer, numberedDatagram(i, 10))
				}
				l.expectNumbered(e, 10, 10, 10, 10, 10)
			}
			if n := f.count("recvmmsg"); n > 1 {
				t.Errorf("refused, and called %d times", n)
			}
			l.expectIdle()
		})
	}
}

func TestDatagramsAreReceivedWithoutRecvmmsg(t *testing.T) {
	f := newFaults()
	f.calls.Recvmmsg = nil
	l := newLoop(t, defaultSizes, f.calls)
	e, _ := l.udp(readable)
	writePeer(t, e.peer, numberedDatagram(0, 10))
	l.expectNumbered(e, 10)
	if n := f.count("recvmmsg"); n != 0 {
		t.Errorf("called %d times", n)
	}
}

func TestTailMemoryIsFreed(t *testing.T) {
	f := newFaults()
	mapped := 0
	open, shut := f.calls.Map, f.calls.Unmap
	f.calls.Map = func(size int) ([]byte, error) { mapped++; return open(size) }
	f.calls.Unmap = func(b []byte) error { mapped--; return shut(b) }
	t.Run("loop", func(t *testing.T) {
		l := newLoop(t, defaultSizes, f.calls)
		e, _ := l.udp(readable)
		writePeer(t, e.peer, numberedDatagram(0, 10))
		l.expectNumbered(e, 10)
		if mapped != 1 {
			t.Errorf("%d mappings", mapped)
		}
	})
	if mapped != 0 {
		t.Errorf("%d mappings were not freed", mapped)
	}
}
