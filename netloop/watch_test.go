package netloop

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

type watched struct {
	id, gen uint32
}

func (l *loop) watch(fd int, want, once interest) watched {
	l.t.Helper()
	id, gen, err := l.r.WatchOpen(int32(fd), uint32(want), uint32(once))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		if l.r.registry.find(id, gen) != nil {
			if err := l.r.Forget(id, gen); err != nil {
				l.t.Error(err)
			}
		}
	})
	return watched{id, gen}
}

func (l *loop) set(w watched, want, once interest) {
	l.t.Helper()
	if err := l.r.WatchSet(w.id, w.gen, uint32(want), uint32(once)); err != nil {
		l.t.Fatal(err)
	}
}

// ready expects one turn that reports these directions of the watch, 0 for a
// turn that reports nothing.
func (l *loop) ready(w watched, want interest) {
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

func watchedPair(t *testing.T) (a, b int) {
	a, b = pair(t)
	t.Cleanup(func() {
		_ = sys.Close(a)
		_ = sys.Close(b)
	})
	return a, b
}

func TestWantIsReportedInEachTurn(t *testing.T) {
	l := usualLoop(t)
	a, b := watchedPair(t)
	w := l.watch(a, readable, 0)
	l.ready(w, 0)
	say(t, b, []byte("x"))
	l.ready(w, readable)
	l.ready(w, readable)
	hear(t, a)
	l.ready(w, 0)
	l.set(w, directions, 0)
	l.ready(w, writable)
	say(t, b, []byte("x"))
	l.ready(w, directions)
	l.set(w, 0, 0)
	l.ready(w, 0)
	if n := l.events(); n != 0 {
		t.Errorf("%d events of a silent watch", n)
	}
}

func TestOnceIsReportedOnce(t *testing.T) {
	l := usualLoop(t)
	a, b := watchedPair(t)
	w := l.watch(a, 0, readable)
	say(t, b, []byte("x"))
	l.ready(w, readable)
	l.ready(w, 0)
	if n := l.events(); n != 0 {
		t.Errorf("%d events of a watch that has fired", n)
	}
	l.set(w, 0, readable)
	l.ready(w, readable)
	l.ready(w, 0)
	// Both directions, one of which is ready: the other is still awaited.
	hear(t, a)
	l.set(w, 0, directions)
	l.ready(w, writable)
	l.ready(w, 0)
	say(t, b, []byte("x"))
	l.ready(w, readable)
	l.ready(w, 0)
}

func TestWantAndOnceTogether(t *testing.T) {
	l := usualLoop(t)
	a, b := watchedPair(t)
	w := l.watch(a, readable, writable)
	l.ready(w, writable)
	l.ready(w, 0)
	say(t, b, []byte("x"))
	l.ready(w, readable)
	l.ready(w, readable)
	l.set(w, readable, writable)
	l.ready(w, directions)
	l.ready(w, readable)
	l.set(w, writable, readable)
	l.ready(w, directions)
	l.ready(w, writable)
}

func TestCancelledOnceIsNotReported(t *testing.T) {
	l := usualLoop(t)
	a, b := watchedPair(t)
	w := l.watch(a, 0, readable)
	l.set(w, 0, 0)
	say(t, b, []byte("x"))
	l.ready(w, 0)
	l.ready(w, 0)
	if n := l.events(); n != 0 {
		t.Errorf("%d events of a silent watch", n)
	}
	l.set(w, readable, 0)
	l.ready(w, readable)
	l.ready(w, readable)
}

func TestHangUpIsBothDirections(t *testing.T) {
	l := usualLoop(t)
	a, b := pair(t)
	defer sys.Close(a)
	w := l.watch(a, readable, 0)
	_ = sys.Close(b)
	l.ready(w, readable) // only what was asked for
	l.set(w, writable, 0)
	l.ready(w, writable)
	l.set(w, 0, directions)
	l.ready(w, directions)
	l.ready(w, 0)
}

func TestDescriptorClosedByItsOwner(t *testing.T) {
	l := usualLoop(t)
	a, b := watchedPair(t)
	fd, err := sys.Dup(a)
	if err != nil {
		t.Fatal(err)
	}
	// The kernel's registration lives on with the copy a, under a number that
	// can no longer be named; a watch that fires once ends it all the same.
	w := l.watch(fd, 0, readable)
	_ = sys.Close(fd)
	say(t, b, []byte("x"))
	l.turn(0)
	if n := l.events(); n != 0 {
		t.Errorf("%d events of a descriptor that is closed", n)
	}
	if err := l.r.Forget(w.id, w.gen); err != nil {
		t.Error(err)
	}
	if err := l.r.Forget(w.id, w.gen); ErrnoOf(err) != syscall.ENOENT {
		t.Errorf("closing twice: %v", err)
	}
}

func TestWatchSetRegistersANumberAfresh(t *testing.T) {
	l := usualLoop(t)
	a, b := pair(t)
	w := l.watch(a, readable, 0)
	_ = sys.Close(a)
	_ = sys.Close(b)
	c, d := watchedPair(t)
	if c != a {
		t.Fatalf("the number %d was not used again", a)
	}
	say(t, d, []byte("x"))
	l.ready(w, 0)
	l.set(w, readable, 0)
	l.ready(w, readable)
	_ = sys.Dup2(d, c) // another file under the number again
	l.set(w, 0, writable)
	l.ready(w, writable)
}

// A watch whose descriptor was closed by its owner, and whose number belongs to a
// stream now, neither takes the stream's registration away nor over.
func TestForgottenWatchLeavesItsSuccessorAlone(t *testing.T) {
	l := usualLoop(t)
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
	if err := l.r.Forget(w.id, w.gen); err != nil {
		t.Error(err)
	}
	say(t, s.peer, []byte("still heard"))
	l.until(CmpData)
}

// A watch may be left behind on a descriptor that becomes a stream.
func TestStreamTakesOverAWatchedDescriptor(t *testing.T) {
	l := usualLoop(t)
	a, b := pair(t)
	defer sys.Close(b)
	w := l.watch(a, directions, 0)
	say(t, b, []byte("x"))
	s := l.open(a, 0)
	d, all := l.until(CmpData)
	if len(all) != 1 || d.ID != s.id {
		t.Errorf("%+v", all)
	}
	if err := l.r.Forget(w.id, w.gen); err != nil {
		t.Error(err)
	}
	say(t, b, []byte("y"))
	l.until(CmpData)
}

func TestWatchRefusesWhatCannotBePolled(t *testing.T) {
	l := usualLoop(t)
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

// What asyncio's sock_* methods do for each wait costs one call of the kernel, and
// a wait that is cancelled costs none.
func TestOnceCostsOneCall(t *testing.T) {
	f := newFaults()
	l := newLoop(t, usual, f.calls)
	a, b := watchedPair(t)
	say(t, b, []byte("x"))
	before := f.count("ctl")
	w := l.watch(a, 0, readable)
	l.ready(w, readable)
	for range 9 {
		l.set(w, 0, readable)
		l.set(w, 0, 0)
		l.set(w, 0, readable)
		l.ready(w, readable)
	}
	if n := f.count("ctl") - before; n != 19 {
		t.Errorf("%d calls for 19 waits", n)
	}
}

// manyReady opens more once-watches that are ready than one turn has room for,
// and returns those that were left out of the first, and their descriptors.
func manyReady(t *testing.T, l *loop) (left map[uint32]watched, fds map[uint32]int) {
	left, fds = map[uint32]watched{}, map[uint32]int{}
	for range 2 * minCompletions {
		a, _ := watchedPair(t)
		w := l.watch(a, 0, writable)
		left[w.id], fds[w.id] = w, a
	}
	for _, d := range l.turn(-1) {
		delete(left, d.ID)
	}
	if len(left) == 0 || l.sh.More == 0 {
		t.Fatal("nothing was left out")
	}
	return left, fds
}

// The kernel tells of a once-watch one time only: those that were left out must
// come by themselves.
func TestWatchesBeyondTheRoomAreKept(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	left, _ := manyReady(t, l)
	for len(left) > 0 {
		for _, d := range l.turn(-1) {
			delete(left, d.ID)
		}
	}
	l.quiet()
}

func TestWatchSetForgetsReadinessThatWasNotReported(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	left, fds := manyReady(t, l)
	for id, w := range left {
		// Full: no longer writable when it is asked for again.
		for {
			if _, err := sys.Write(fds[id], make([]byte, 1<<16)); err != nil {
				break
			}
		}
		l.set(w, 0, writable)
	}
	l.quiet()
}

func TestReadinessOfANumberThatIsAnothersNow(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	left, fds := manyReady(t, l)
	for id := range left {
		a, b := pair(t)
		if err := sys.Dup2(a, fds[id]); err != nil {
			t.Fatal(err)
		}
		_ = sys.Close(a)
		s := l.open(fds[id], 0)
		say(t, b, []byte("heard"))
		_ = sys.Close(b)
		for range 2 * minCompletions {
			for _, d := range l.turn(0) {
				if d.ID == id {
					t.Fatalf("%+v is of a descriptor that is closed", d)
				}
				if d.ID == s.id && d.Kind == CmpData {
					l.close(s)
					// The cleanup of watchedPair closes the number again.
					if err := sys.Dup2(0, fds[id]); err != nil {
						t.Fatal(err)
					}
					return
				}
			}
		}
		t.Fatal("the stream has gone deaf")
	}
}
