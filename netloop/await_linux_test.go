package netloop

import (
	"syscall"
	"testing"
	"time"
)

// crowd is several watches, of which the reactor has just seen events for all.
type crowd struct {
	l     *loop
	f     *faults
	w     []watched
	ours  []int
	peers []int
	told  int
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	f := newFaults()
	c := &crowd{l: newLoop(t, usual, f.calls), f: f}
	for range trustedCrowd {
		a, b := watchedPair(t)
		c.ours, c.peers = append(c.ours, a), append(c.peers, b)
		c.w = append(c.w, c.l.watch(a, 0, readable))
	}
	c.sayAll()
	c.expect(trustedCrowd)
	c.hearAll()
	return c
}

func (c *crowd) await(i int, direction interest) {
	c.l.submit(SubWatchWait, c.w[i].id, c.w[i].gen, int64(direction))
}

func (c *crowd) awaitAll() {
	for i := range c.w {
		c.await(i, readable)
	}
}

func (c *crowd) sayAll() {
	for _, peer := range c.peers {
		say(c.l.t, peer, []byte("x"))
	}
}

func (c *crowd) hearAll() {
	for _, fd := range c.ours {
		hear(c.l.t, fd)
	}
}

// expect has one turn report so many directions.
func (c *crowd) expect(n int) {
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

// calls is how often the poller was told of a descriptor since the last call.
func (c *crowd) calls() int {
	before := c.told
	c.told = c.f.count("ctl")
	return c.told - before
}

func TestWaitsBehindARefusalNeedNoCallInACrowd(t *testing.T) {
	c := newCrowd(t)
	c.awaitAll() // the poller held a oneShot
	c.sayAll()
	c.expect(trustedCrowd)
	c.hearAll()
	c.calls()
	for range 5 {
		c.awaitAll()
		c.sayAll()
		c.expect(trustedCrowd)
		c.expect(0) // each is reported one time
		c.sayAll()  // nobody waits
		c.expect(0)
		c.hearAll()
		c.awaitAll()
		c.sayAll()
		c.expect(trustedCrowd)
		c.hearAll()
	}
	if n := c.calls(); n != 0 {
		t.Errorf("%d calls to the poller", n)
	}
}

func TestAWaitOfFewIsToldToThePoller(t *testing.T) {
	c := newCrowd(t)
	c.awaitAll()
	c.expect(0)
	c.calls()
	c.await(0, readable)
	c.expect(0)
	if n := c.calls(); n != 1 {
		t.Errorf("%d calls for a wait behind a turn without events", n)
	}
}

// another puts another file under the number of one that waits, unknown to the reactor.
func (c *crowd) another(i int) {
	a, b := pair(c.l.t)
	if err := sys.Dup2(a, c.ours[i]); err != nil {
		c.l.t.Fatal(err)
	}
	_ = sys.Close(a)
	say(c.l.t, b, []byte("of another"))
	_ = sys.Close(b)
}

func (c *crowd) trusted(t *testing.T) {
	t.Helper()
	c.awaitAll()
	c.sayAll()
	c.expect(trustedCrowd)
	c.hearAll()
	c.awaitAll()
	c.calls()
	c.expect(0)
	if n := c.calls(); n != 0 {
		t.Fatalf("%d calls to the poller", n)
	}
}

func TestNobodyWaitsOnTrustWhileTheReactorBlocks(t *testing.T) {
	c := newCrowd(t)
	c.trusted(t)
	c.another(3)
	got := c.l.turn(time.Hour.Nanoseconds())
	if len(got) != 1 || got[0].ID != c.w[3].id {
		t.Errorf("completed %+v", got)
	}
	if n := c.calls(); n < trustedCrowd {
		t.Errorf("%d calls to the poller, want one for each that waits", n)
	}
}

func TestNobodyWaitsOnTrustForManyTurns(t *testing.T) {
	c := newCrowd(t)
	c.trusted(t)
	c.another(3)
	for range trustedMost {
		if got := c.l.turn(0); len(got) > 0 {
			if len(got) != 1 || got[0].ID != c.w[3].id {
				t.Errorf("completed %+v", got)
			}
			return
		}
	}
	t.Error("the watch has gone deaf")
}

func TestAWaitThatCannotBeToldIsReported(t *testing.T) {
	c := newCrowd(t)
	c.trusted(t)
	c.f.fail("mod", syscall.ENOMEM)
	got := c.l.turn(time.Hour.Nanoseconds())
	if len(got) != 1 || got[0].Kind != CmpReady {
		t.Errorf("completed %+v", got)
	}
}

func TestAnEdgeThatNobodyWaitsForFallsSilent(t *testing.T) {
	c := newCrowd(t)
	c.awaitAll()
	c.sayAll()
	c.expect(trustedCrowd)
	for range ignoredMost {
		say(t, c.peers[0], []byte("y"))
		c.expect(0)
	}
	say(t, c.peers[0], []byte("y"))
	if n := c.l.events(); n != 0 {
		t.Errorf("%d events of an edge that nobody waits for", n)
	}
	hear(t, c.ours[0])
	c.await(0, readable)
	c.expect(0)
	say(t, c.peers[0], []byte("z"))
	c.expect(1)
}

func TestAWaitBesideOneOfTheOtherDirection(t *testing.T) {
	c := newCrowd(t)
	c.trusted(t)
	c.await(0, writable)
	got := c.l.turn(0)
	if len(got) != 1 || interest(got[0].Res) != writable {
		t.Errorf("completed %+v", got)
	}
	say(t, c.peers[0], []byte("x"))
	c.expect(1)
	// And beside a level that is watched in each turn.
	c.l.set(c.w[1], writable, 0)
	c.await(1, readable)
	say(t, c.peers[1], []byte("x"))
	got = c.l.turn(0)
	if len(got) != 1 || interest(got[0].Res) != directions {
		t.Errorf("completed %+v", got)
	}
}

func TestAWaitOfAWatchThatIsGone(t *testing.T) {
	c := newCrowd(t)
	c.trusted(t)
	c.await(2, readable)
	if err := c.l.r.Forget(c.w[2].id, c.w[2].gen); err != nil {
		t.Fatal(err)
	}
	ignored := c.l.r.ignored
	c.sayAll()
	c.expect(trustedCrowd - 1)
	if n := c.l.r.ignored - ignored; n != 1 {
		t.Errorf("%d submissions were ignored, want 1", n)
	}
}
