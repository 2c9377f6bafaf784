package netloop

import (
	"testing"
)

// reuseFD closes a stream's descriptor as its owner does, and opens a pair of sockets, one of
// which gets the same number.
func (l *loop) reuseFD() (old testStream, peer int) {
	l.t.Helper()
	old, word := l.ownedStream()
	*word = -1
	_ = sys.Close(int(old.fd))
	a, b := pair(l.t)
	if int32(a) != old.fd {
		l.t.Fatalf("the kernel gave %d, not %d", a, old.fd)
	}
	l.t.Cleanup(func() { _ = sys.Close(b) }) // a has the number of the stream, which ownedStream closes
	return old, b
}

// A stream whose lease has ended must not affect the new file of its number by any operation.
func TestStreamWithoutLeaseLeavesTheNextStreamOfItsFDRegistered(t *testing.T) {
	l := defaultLoop(t)
	old, peer := l.reuseFD()
	id, gen, err := l.r.WatchOpen(old.fd, 0, uint32(readable))
	if err != nil {
		t.Fatal(err)
	}
	l.write(old, copyToC(t, []byte("too late")))
	for _, c := range l.turn(0) {
		if c.ID == id {
			t.Errorf("the watch got %+v", c)
		}
	}
	l.turn(0)
	if err := l.r.Deregister(old.id, old.gen); err != nil {
		t.Error(err)
	}
	writePeer(t, peer, []byte("x"))
	got := l.turn(0)
	expectKinds(t, got, CmpReady)
	if got[0].ID != id {
		t.Errorf("got %+v, not the watch", got[0])
	}
	_ = l.r.Deregister(id, gen)
}
