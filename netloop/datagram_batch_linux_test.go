package netloop

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"

	"github.com/goloop/goloop/transports"
)

// numbered is a datagram of this length that no other equals.
func numbered(i, size int) []byte {
	return append(fmt.Appendf(nil, "%d:", i), bytes.Repeat([]byte{byte('a' + i%26)}, size)...)
}

// expectNumbered collects what numbered() has made with these sizes, in this order.
func (l *loop) expectNumbered(e endpoint, sizes ...int) {
	l.t.Helper()
	for i, d := range l.collect(len(sizes)) {
		if d.ID != e.id || !bytes.Equal(d.data, numbered(i, sizes[i])) {
			l.t.Errorf("%d: %d bytes, %.9q", i, len(d.data), d.data)
		}
	}
}

func TestManyDatagramsAreReceivedByFewCalls(t *testing.T) {
	f := newFaults()
	l := newLoop(t, usual, f.calls)
	e, port := l.udp(readable)
	sizes := make([]int, transports.DatagramsPerTurn-1)
	for round := range 2 {
		for i := range sizes {
			sizes[i] = i * 20
			say(t, e.peer, numbered(i, sizes[i]))
		}
		before := f.count("recvmmsg")
		all := l.turn(-1)
		if len(all) != len(sizes) {
			t.Errorf("a turn took %d", len(all))
		}
		for i, d := range all {
			if !bytes.Equal(d.data, numbered(i, sizes[i])) {
				t.Errorf("%d: %d bytes", i, len(d.data))
			}
			if a := d.from; a.AddrLen != 16 || int(a.Addr[2])<<8|int(a.Addr[3]) != port || a.Addr[4] != 127 {
				t.Errorf("%d: from %d %v", i, a.AddrLen, a.Addr[:16])
			}
		}
		// The first turn doesn't know yet how many to expect.
		if calls := f.count("recvmmsg") - before; calls > 6-2*round {
			t.Errorf("round %d: %d calls", round, calls)
		}
	}
	if n := f.count("recvfrom"); n != 0 {
		t.Errorf("%d calls of recvfrom", n)
	}
	// A lone one takes one call, which says also that no more is there.
	l.quiet()
	say(t, e.peer, []byte("x"))
	l.turn(-1)
	before := f.count("recvmmsg")
	say(t, e.peer, []byte("x"))
	l.turn(-1)
	if n := f.count("recvmmsg") - before; n != 1 {
		t.Errorf("%d calls for one", n)
	}
	l.quiet()
}

func TestLongDatagramsAmongShortOnesAreNotCutOff(t *testing.T) {
	f := newFaults()
	l := newLoop(t, usual, f.calls)
	e, _ := l.udp(readable)
	short := int(packetShort)
	sizes := []int{5, 60_000, 0, short - 3, short - 2, short - 1, 20_000, 7}
	for range 3 {
		for i, size := range sizes {
			say(t, e.peer, numbered(i, size))
		}
		l.expectNumbered(e, sizes...)
	}
	l.quiet()
	// One by one from then on, for no tail is touched without need, until they are short again.
	before := f.count("recvmmsg")
	for range 3 {
		say(t, e.peer, []byte("x"))
		l.turn(-1)
	}
	if n := f.count("recvmmsg"); n != before {
		t.Errorf("%d calls for several after long ones", n-before)
	}
	for range 64 {
		say(t, e.peer, []byte("x"))
		l.turn(-1)
	}
	if n := f.count("recvmmsg"); n == before {
		t.Error("no call for several any more")
	}
}

// C reads what came when all sockets have been served: the tails hold one batch.
func TestLongDatagramsOfTwoSocketsInOneTurn(t *testing.T) {
	l := usualLoop(t)
	var ends [3]endpoint
	for i := range ends {
		ends[i] = l.datagrams(readable)
		for k := range 3 {
			say(t, ends[i].peer, numbered(3*i+k, 9_000))
		}
	}
	seen := map[uint32]int{}
	for _, d := range l.turn(-1) {
		for i, e := range ends {
			if e.id == d.ID {
				if want := numbered(3*i+seen[d.ID], 9_000); !bytes.Equal(d.data, want) {
					t.Errorf("socket %d, %d: %d bytes, %.9q", i, seen[d.ID], len(d.data), d.data)
				}
			}
		}
		seen[d.ID]++
	}
	for _, e := range ends {
		if seen[e.id] != 3 {
			t.Errorf("heard %v", seen)
		}
	}
	l.quiet()
}

func TestDatagramsWhereNoCallForSeveralIs(t *testing.T) {
	for name, prepare := range map[string]func(f *faults){
		"ENOSYS":    func(f *faults) { f.fail("recvmmsg", syscall.ENOSYS) },
		"EPERM":     func(f *faults) { f.fail("recvmmsg", syscall.EPERM) },
		"no memory": func(f *faults) { f.calls.Map = func(int) ([]byte, error) { return nil, syscall.ENOMEM } },
		"no call":   func(f *faults) { f.calls.Recvmmsg = nil },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFaults()
			prepare(f)
			l := newLoop(t, usual, f.calls)
			e, _ := l.udp(readable)
			for range 2 {
				for i := range 5 {
					say(t, e.peer, numbered(i, 10))
				}
				l.expectNumbered(e, 10, 10, 10, 10, 10)
			}
			if n := f.count("recvmmsg"); n > 1 {
				t.Errorf("refused, and asked %d times", n)
			}
			l.quiet()
		})
	}
}

func TestNoDatagramsInBatchesWhereTheyAreSwitchedOff(t *testing.T) {
	f := newFaults()
	l := newLoop(t, usual, f.calls)
	l.sh.Flags = NoRing
	e, _ := l.udp(readable)
	say(t, e.peer, numbered(0, 10))
	l.expectNumbered(e, 10)
	if n := f.count("recvmmsg"); n != 0 {
		t.Errorf("asked %d times", n)
	}
}

func TestATailsMemoryIsGivenBack(t *testing.T) {
	f := newFaults()
	mapped := 0
	open, shut := f.calls.Map, f.calls.Unmap
	f.calls.Map = func(size int) ([]byte, error) { mapped++; return open(size) }
	f.calls.Unmap = func(b []byte) error { mapped--; return shut(b) }
	t.Run("loop", func(t *testing.T) {
		l := newLoop(t, usual, f.calls)
		e, _ := l.udp(readable)
		say(t, e.peer, numbered(0, 10))
		l.expectNumbered(e, 10)
		if mapped != 1 {
			t.Errorf("%d mappings", mapped)
		}
	})
	if mapped != 0 {
		t.Errorf("%d mappings are left", mapped)
	}
}
