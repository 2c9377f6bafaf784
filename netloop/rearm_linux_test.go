package netloop

import (
	"syscall"
	"testing"
	"time"
)

// busyWatches are several watches. The reactor has just reported an event for each of them.
type busyWatches struct {
	l         *loop
	f         *faults
	w         []testWatch
	ours      []int
	peers     []int
	callsSeen int
}

// newBusyWatches returns busyEvents watches whose last turn reported all of them, so that the
// loop is busy.
func newBusyWatches(t *testing.T) *busyWatches {
	t.Helper()
	f := newFaults()
	c := &busyWatches{l: newLoop(t, defaultSizes, f.calls), f: f}
	for range busyEvents {
		a, b := watchedPair(t)
		c.ours, c.peers = append(c.ours, a), append(c.peers, b)
		c.w = append(c.w, c.l.watch(a, 0, readable))
	}
	c.writeAll()
	c.expectReady(busyEvents)
	c.readAll()
	return c
}

// wait submits a wait after EAGAIN for watch i.
func (c *busyWatches) wait(i int, direction interest) {
	c.l.submit(SubWatchWait, c.w[i].id, c.w[i].gen, int64(direction))
}

// waitAll submits a wait for readability for each watch.
func (c *busyWatches) waitAll() {
	for i := range c.w {
		c.wait(i, readable)
	}
}

// writeAll makes all watched descriptors readable.
func (c *busyWatches) writeAll() {
	for _, peer := range c.peers {
		writePeer(c.l.t, peer, []byte("x"))
	}
}

// readAll reads all watched descriptors until EAGAIN.
func (c *busyWatches) readAll() {
	for _, fd := range c.ours {
		readPeer(c.l.t, fd)
	}
}

// expectReady verifies that one turn reports n watches as readable.
func (c *busyWatches) expectReady(n int) {
	c.l.t.Helper()
	got := c.l.turn(0)
	for _, d := range got {
		if d.Kind != CmpReady || interest(d.Res) != readable {
			c.l.t.Fatalf("completed %+v", d)
		}
	}
	if len(got) != n {
		c.l.t.Fatalf("%d are ready, want %d", len(got), n)
	}
}

// pollerCalls returns the number of changes in the poller since the last call.
func (c *busyWatches) pollerCalls() int {
	before := c.callsSeen
	c.callsSeen = c.f.count("ctl")
	return c.callsSeen - before
}

func TestRearmAfterEAGAINNeedsNoCallInABusyLoop(t *testing.T) {
	c := newBusyWatches(t)
	c.waitAll() // the poller had a oneShot
	c.writeAll()
	c.expectReady(busyEvents)
	c.readAll()
	c.pollerCalls()
	for range 5 {
		c.waitAll()
		c.writeAll()
		c.expectReady(busyEvents)
		c.expectReady(0) // each is reported once
		c.writeAll()     // no watch waits now
		c.expectReady(0)
		c.readAll()
		c.waitAll()
		c.writeAll()
		c.expectReady(busyEvents)
		c.readAll()
	}
	if n := c.pollerCalls(); n != 0 {
		t.Errorf("%d calls to the poller", n)
	}
}

func TestRearmAfterEAGAINArmsInAnIdleLoop(t *testing.T) {
	c := newBusyWatches(t)
	c.waitAll()
	c.expectReady(0)
	c.pollerCalls()
	c.wait(0, readable)
	c.expectReady(0)
	if n := c.pollerCalls(); n != 1 {
		t.Errorf("%d calls for a wait after a turn without events, want 1", n)
	}
}

// replaceFD makes the number of a waiting watch refer to another file, without the reactor's
// knowledge. The other file is a socket with data to read, whose peer is closed.
func (c *busyWatches) replaceFD(i int) {
	a, b := pair(c.l.t)
	if err := sys.Dup2(a, c.ours[i]); err != nil {
		c.l.t.Fatal(err)
	}
	_ = sys.Close(a)
	writePeer(c.l.t, b, []byte("other data"))
	_ = sys.Close(b)
}

// assumeAllArmed makes all watches wait a second time and verifies that the reactor assumes them
// to be armed: it makes no call to the poller for them.
func (c *busyWatches) assumeAllArmed(t *testing.T) {
	t.Helper()
	c.waitAll()
	c.writeAll()
	c.expectReady(busyEvents)
	c.readAll()
	c.waitAll()
	c.pollerCalls()
	c.expectReady(0)
	if n := c.pollerCalls(); n != 0 {
		t.Fatalf("%d calls to the poller", n)
	}
}

func TestAssumedWatchesAreArmedBeforeTheReactorBlocks(t *testing.T) {
	c := newBusyWatches(t)
	c.assumeAllArmed(t)
	c.replaceFD(3)
	got := c.l.turn(time.Hour.Nanoseconds())
	if len(got) != 1 || got[0].ID != c.w[3].id {
		t.Errorf("completed %+v", got)
	}
	if n := c.pollerCalls(); n < busyEvents {
		t.Errorf("%d calls to the poller, want one for each that waits", n)
	}
}

func TestAssumedWatchesAreArmedAfterManyTurns(t *testing.T) {
	c := newBusyWatches(t)
	c.assumeAllArmed(t)
	c.replaceFD(3)
	for range maxAssumedArmedTurns {
		if got := c.l.turn(0); len(got) > 0 {
			if len(got) != 1 || got[0].ID != c.w[3].id {
				t.Errorf("completed %+v", got)
			}
			return
		}
	}
	t.Error("the watch was not reported")
}

func TestWatchThatCannotBeArmedIsReportedAsReady(t *testing.T) {
	c := newBusyWatches(t)
	c.assumeAllArmed(t)
	c.f.fail("mod", syscall.ENOMEM)
	got := c.l.turn(time.Hour.Nanoseconds())
	if len(got) != 1 || got[0].Kind != CmpReady {
		t.Errorf("completed %+v", got)
	}
}

func TestEdgeOfAnIdleWatchIsRemoved(t *testing.T) {
	c := newBusyWatches(t)
	c.waitAll()
	c.writeAll()
	c.expectReady(busyEvents)
	for range maxIgnoredEvents {
		writePeer(t, c.peers[0], []byte("y"))
		c.expectReady(0)
	}
	writePeer(t, c.peers[0], []byte("y"))
	if n := c.l.pendingEvents(); n != 0 {
		t.Errorf("%d events of an idle watch", n)
	}
	readPeer(t, c.ours[0])
	c.wait(0, readable)
	c.expectReady(0)
	writePeer(t, c.peers[0], []byte("z"))
	c.expectReady(1)
}

func TestRearmAfterEAGAINWithBothDirections(t *testing.T) {
	c := newBusyWatches(t)
	c.assumeAllArmed(t)
	c.wait(0, writable)
	got := c.l.turn(0)
	if len(got) != 1 || interest(got[0].Res) != writable {
		t.Errorf("completed %+v", got)
	}
	writePeer(t, c.peers[0], []byte("x"))
	c.expectReady(1)
	// The other direction is level-triggered.
	c.l.setWatch(c.w[1], writable, 0)
	c.wait(1, readable)
	writePeer(t, c.peers[1], []byte("x"))
	got = c.l.turn(0)
	if len(got) != 1 || interest(got[0].Res) != directions {
		t.Errorf("completed %+v", got)
	}
}

func TestRearmOfADeregisteredWatchIsIgnored(t *testing.T) {
	c := newBusyWatches(t)
	c.assumeAllArmed(t)
	c.wait(2, readable)
	if err := c.l.r.Deregister(c.w[2].id, c.w[2].gen); err != nil {
		t.Fatal(err)
	}
	ignored := c.l.r.ignoredSubmissions
	c.writeAll()
	c.expectReady(busyEvents - 1)
	if n := c.l.r.ignoredSubmissions - ignored; n != 1 {
		t.Errorf("%d submissions were ignored, want 1", n)
	}
}
