package netloop

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// testWatch is the id and the generation of a watch.
type testWatch struct {
	id, gen uint32
}

// watch opens a watch, which ends at the end of the test. The descriptor is the caller's.
func (l *loop) watch(fd int, want, once interest) testWatch {
	l.t.Helper()
	id, gen, err := l.r.WatchOpen(int32(fd), uint32(want), uint32(once))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		if l.r.registry.find(id, gen) != nil {
			if err := l.r.Deregister(id, gen); err != nil {
				l.t.Error(err)
			}
		}
	})
	return testWatch{id, gen}
}

// setWatch replaces both sets of directions.
func (l *loop) setWatch(w testWatch, want, once interest) {
	l.t.Helper()
	if err := l.r.WatchSet(w.id, w.gen, uint32(want), uint32(once)); err != nil {
		l.t.Fatal(err)
	}
}

// expectReady verifies that one turn reports these directions of the watch, or nothing if want
// is 0.
func (l *loop) expectReady(w testWatch, want interest) {
	l.t.Helper()
	got := l.turn(0)
	if want == 0 {
		expectKinds(l.t, got)
		return
	}
	if len(got) != 1 || got[0].Kind != CmpReady || got[0].ID != w.id || got[0].Gen != w.gen ||
		interest(got[0].Res) != want {
		l.t.Fatalf("completed %+v, want READY of directions %d", got, want)
	}
}

// watchedPair returns two connected descriptors that are closed at the end of the test.
func watchedPair(t *testing.T) (a, b int) {
	a, b = pair(t)
	t.Cleanup(func() {
		_ = sys.Close(a)
		_ = sys.Close(b)
	})
	return a, b
}

func TestWantIsReportedInEachTurn(t *testing.T) {
	l := defaultLoop(t)
	a, b := watchedPair(t)
	w := l.watch(a, readable, 0)
	l.expectReady(w, 0)
	writePeer(t, b, []byte("x"))
	l.expectReady(w, readable)
	l.expectReady(w, readable)
	readPeer(t, a)
	l.expectReady(w, 0)
	l.setWatch(w, directions, 0)
	l.expectReady(w, writable)
	writePeer(t, b, []byte("x"))
	l.expectReady(w, directions)
	l.setWatch(w, 0, 0)
	l.expectReady(w, 0)
	if n := l.pendingEvents(); n != 0 {
		t.Errorf("%d events of an idle watch", n)
	}
}

func TestOnceIsReportedOnce(t *testing.T) {
	l := defaultLoop(t)
	a, b := watchedPair(t)
	w := l.watch(a, 0, readable)
	writePeer(t, b, []byte("x"))
	l.expectReady(w, readable)
	l.expectReady(w, 0)
	if n := l.pendingEvents(); n != 0 {
		t.Errorf("%d events of a watch that has fired", n)
	}
	l.setWatch(w, 0, readable)
	l.expectReady(w, readable)
	l.expectReady(w, 0)
	// Both directions, one of them ready: the other stays armed.
	readPeer(t, a)
	l.setWatch(w, 0, directions)
	l.expectReady(w, writable)
	l.expectReady(w, 0)
	writePeer(t, b, []byte("x"))
	l.expectReady(w, readable)
	l.expectReady(w, 0)
}

func TestWantAndOnceOfOneWatch(t *testing.T) {
	l := defaultLoop(t)
	a, b := watchedPair(t)
	w := l.watch(a, readable, writable)
	l.expectReady(w, writable)
	l.expectReady(w, 0)
	writePeer(t, b, []byte("x"))
	l.expectReady(w, readable)
	l.expectReady(w, readable)
	l.setWatch(w, readable, writable)
	l.expectReady(w, directions)
	l.expectReady(w, readable)
	l.setWatch(w, writable, readable)
	l.expectReady(w, directions)
	l.expectReady(w, writable)
}

func TestCancelledOnceIsNotReported(t *testing.T) {
	l := defaultLoop(t)
	a, b := watchedPair(t)
	w := l.watch(a, 0, readable)
	l.setWatch(w, 0, 0)
	writePeer(t, b, []byte("x"))
	l.expectReady(w, 0)
	l.expectReady(w, 0)
	if n := l.pendingEvents(); n != 0 {
		t.Errorf("%d events of an idle watch", n)
	}
	l.setWatch(w, readable, 0)
	l.expectReady(w, readable)
	l.expectReady(w, readable)
}

func TestHangUpIsReportedForBothDirections(t *testing.T) {
	l := defaultLoop(t)
	a, b := pair(t)
	defer sys.Close(a)
	w := l.watch(a, readable, 0)
	_ = sys.Close(b)
	l.expectReady(w, readable) // only the requested direction
	l.setWatch(w, writable, 0)
	l.expectReady(w, writable)
	l.setWatch(w, 0, directions)
	l.expectReady(w, directions)
	l.expectReady(w, 0)
}

func TestWatchOnADescriptorClosedByItsOwner(t *testing.T) {
	l := defaultLoop(t)
	a, b := watchedPair(t)
	fd, err := sys.Dup(a)
	if err != nil {
		t.Fatal(err)
	}
	// The kernel's registration stays with the duplicate a, under a number that no longer
	// refers to it. A watch that reports once ends it nevertheless.
	w := l.watch(fd, 0, readable)
	_ = sys.Close(fd)
	writePeer(t, b, []byte("x"))
	l.turn(0)
	if n := l.pendingEvents(); n != 0 {
		t.Errorf("%d events of a descriptor that is closed", n)
	}
	if err := l.r.Deregister(w.id, w.gen); err != nil {
		t.Error(err)
	}
	if err := l.r.Deregister(w.id, w.gen); ErrnoOf(err) != syscall.ENOENT {
		t.Errorf("closing twice: %v", err)
	}
}

func TestWatchSetRegistersAReusedFD(t *testing.T) {
	l := defaultLoop(t)
	a, b := pair(t)
	w := l.watch(a, readable, 0)
	_ = sys.Close(a)
	_ = sys.Close(b)
	c, d := watchedPair(t)
	if c != a {
		t.Fatalf("the number %d was not used again", a)
	}
	writePeer(t, d, []byte("x"))
	l.expectReady(w, 0)
	l.setWatch(w, readable, 0)
	l.expectReady(w, readable)
	_ = sys.Dup2(d, c) // the number refers to another file again
	l.setWatch(w, 0, writable)
	l.expectReady(w, writable)
}

// Deregistering a watch whose number now belongs to a stream neither removes the stream's
// registration nor replaces it.
func TestDeregisteredWatchLeavesTheNextStreamOfItsFDRegistered(t *testing.T) {
	l := defaultLoop(t)
	a, b := pair(t)
	w := l.watch(a, readable, 0)
	_ = sys.Close(a)
	_ = sys.Close(b)
	s := l.stream(0)
	if int(s.fd) != a {
		t.Fatalf("the number %d was not used again", a)
	}
	if err := l.r.WatchSet(w.id, w.gen, uint32(writable), 0); ErrnoOf(err) != syscall.EEXIST {
		t.Errorf("watch_set of a stream's number: %v", err)
	}
	if err := l.r.Deregister(w.id, w.gen); err != nil {
		t.Error(err)
	}
	writePeer(t, s.peer, []byte("still heard"))
	l.turnUntil(CmpData)
}

// A watch may be left on a descriptor that becomes a stream.
func TestStreamReplacesTheRegistrationOfAWatch(t *testing.T) {
	l := defaultLoop(t)
	a, b := pair(t)
	defer sys.Close(b)
	w := l.watch(a, directions, 0)
	writePeer(t, b, []byte("x"))
	s := l.open(a, 0)
	d, all := l.turnUntil(CmpData)
	if len(all) != 1 || d.ID != s.id {
		t.Errorf("%+v", all)
	}
	if err := l.r.Deregister(w.id, w.gen); err != nil {
		t.Error(err)
	}
	writePeer(t, b, []byte("y"))
	l.turnUntil(CmpData)
}

func TestWatchOpenRefusesFilesThatCannotBePolled(t *testing.T) {
	l := defaultLoop(t)
	fd, err := sys.Open("watch_test.go", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(fd)
	if _, _, err := l.r.WatchOpen(int32(fd), uint32(readable), 0); ErrnoOf(err) != syscall.EPERM {
		t.Errorf("a regular file: %v", err)
	}
	if _, _, err := l.r.WatchOpen(-1, uint32(readable), 0); ErrnoOf(err) != syscall.EBADF {
		t.Errorf("descriptor -1: %v", err)
	}
}

// Each wait of asyncio's sock_* methods costs one system call, and a cancelled wait costs none.
func TestOnceCostsOneCall(t *testing.T) {
	f := newFaults()
	l := newLoop(t, defaultSizes, f.calls)
	a, b := watchedPair(t)
	writePeer(t, b, []byte("x"))
	before := f.count("ctl")
	w := l.watch(a, 0, readable)
	l.expectReady(w, readable)
	for range 9 {
		l.setWatch(w, 0, readable)
		l.setWatch(w, 0, 0)
		l.setWatch(w, 0, readable)
		l.expectReady(w, readable)
	}
	if n := f.count("ctl") - before; n != 19 {
		t.Errorf("%d calls for 19 waits", n)
	}
}

// overflowWatches opens more ready once-watches than one turn has space for. It returns the
// watches that the first turn did not report, and the descriptors.
func overflowWatches(t *testing.T, l *loop) (left map[uint32]testWatch, fds map[uint32]int) {
	left, fds = map[uint32]testWatch{}, map[uint32]int{}
	for range 2 * minCompletions {
		a, _ := watchedPair(t)
		w := l.watch(a, 0, writable)
		left[w.id], fds[w.id] = w, a
	}
	for _, d := range l.turn(-1) {
		delete(left, d.ID)
	}
	if len(left) == 0 || l.sh.More == 0 {
		t.Fatal("all watches were reported")
	}
	return left, fds
}

// The kernel reports a once-watch only once, so unreported watches must stay in the ready list.
func TestWatchesBeyondTheSpaceAreReportedLater(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	left, _ := overflowWatches(t, l)
	for len(left) > 0 {
		for _, d := range l.turn(-1) {
			delete(left, d.ID)
		}
	}
	l.expectIdle()
}

func TestWatchSetDropsUnreportedReadiness(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	left, fds := overflowWatches(t, l)
	for id, w := range left {
		// Fill the socket, so that it is not writable when it is polled again.
		for {
			if _, err := sys.Write(fds[id], make([]byte, 1<<16)); err != nil {
				break
			}
		}
		l.setWatch(w, 0, writable)
	}
	l.expectIdle()
}

func TestReadinessOfAReusedFDIsDropped(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	left, fds := overflowWatches(t, l)
	for id := range left {
		a, b := pair(t)
		if err := sys.Dup2(a, fds[id]); err != nil {
			t.Fatal(err)
		}
		_ = sys.Close(a)
		s := l.open(fds[id], 0)
		writePeer(t, b, []byte("heard"))
		_ = sys.Close(b)
		for range 2 * minCompletions {
			for _, d := range l.turn(0) {
				if d.ID == id {
					t.Fatalf("%+v is of a descriptor that is closed", d)
				}
				if d.ID == s.id && d.Kind == CmpData {
					l.close(s)
					// The cleanup of watchedPair closes the number.
					if err := sys.Dup2(0, fds[id]); err != nil {
						t.Fatal(err)
					}
					return
				}
			}
		}
		t.Fatal("the stream was not reported")
	}
}
