package netloop

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// reused closes a stream's descriptor as its owner does, and opens a pair of sockets of
// which one has its number.
func (l *loop) reused() (old stream, peer int) {
	l.t.Helper()
	old, word := l.owned()
	*word = -1
	_ = sys.Close(int(old.fd))
	a, b := pair(l.t)
	if int32(a) != old.fd {
		l.t.Fatalf("the kernel gave %d, not %d", a, old.fd)
	}
	l.t.Cleanup(func() { _ = sys.Close(b) }) // a is closed by owned, under its number
	return old, b
}

// A stream whose owner has gone has no say about who has the number now, whatever it is
// asked to do.
func TestAStreamWhoseOwnerHasGoneLeavesTheNextOneOfItsNumberRegistered(t *testing.T) {
	l := usualLoop(t)
	old, peer := l.reused()
	id, gen, err := l.r.WatchOpen(old.fd, 0, uint32(readable))
	if err != nil {
		t.Fatal(err)
	}
	l.write(old, inC(t, []byte("too late")))
	for _, c := range l.turn(0) {
		if c.ID == id {
			t.Errorf("the watch was told %+v", c)
		}
	}
	l.turn(0)
	if err := l.r.Forget(old.id, old.gen); err != nil {
		t.Error(err)
	}
	say(t, peer, []byte("x"))
	got := l.turn(0)
	expectKinds(t, got, CmpReady)
	if got[0].ID != id {
		t.Errorf("told %+v, not the watch", got[0])
	}
	_ = l.r.Forget(id, gen)
}

// A watch has no lease: it may outlive its descriptor, whose number the reactor itself
// may get.
func TestAWatchThatOutlivesItsDescriptorLeavesTheRingAlone(t *testing.T) {
	l := usualLoop(t)
	var streams []stream
	for range ringLeast {
		streams = append(streams, l.stream(0))
	}
	a, b := pair(t)
	id, gen, err := l.r.WatchOpen(int32(a), uint32(readable), 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = sys.Close(a)
	for _, s := range streams {
		l.write(s, inC(t, []byte("x")))
	}
	l.turn(0)
	if l.r.batch.state != ringOpen {
		_, _ = l.r.Forget(id, gen), sys.Close(b)
		t.Skip("the kernel has no ring for us")
	}
	if l.r.ring.number() != a {
		t.Fatalf("the ring is %d, not %d", l.r.ring.number(), a)
	}
	if err := l.r.Forget(id, gen); err != nil {
		t.Error(err)
	}
	l.r.Close()
	if _, err := sys.FcntlInt(uintptr(a), unix.F_GETFD, 0); err != syscall.EBADF {
		t.Error("the ring was left open")
		_ = sys.Close(a)
	}
	_ = sys.Close(b)
}
