package netloop

import (
	"sync/atomic"
	"syscall"

	"github.com/goloop/goloop/timers"
	"github.com/goloop/goloop/transports"
)

// Reactor serves one event loop. It is used by one thread at a time; Wake may be
// called by any.
type Reactor struct {
	// Slow is called for each iteration that took Shared.SlowLimit or longer, at its end; or nil.
	// It gets the limit, because another thread may set a new one at any time.
	Slow func(began, length, limit int64)

	shared   *Shared
	calls    Calls
	clock    clock
	poller   poller
	wakeup   wakeup
	registry registry
	wheel    timers.Wheel
	out      output
	scratch  transports.Scratch
	ring     ring
	batch    batch
	few      bool // no batch is made of what is ready now

	datagrams datagramBatch

	dirty   []token // streams to flush or adjust
	reports tokens  // streams with something to report
	urgent  int     // of them, those that somebody waits for
	ready   tokens  // what the poller told of and was not served yet

	accepting accepting

	backingOff     []token // listeners
	closesSeen     uint64  // of calls.closes.count, while a listener backs off
	closedAt       uint64  // the turn before which a registration last ended
	earlyTries     int     // turns in which they are tried before their time
	listenerErrors []token // listeners that could not go on

	trusted      []token // watches whose registration was not looked at; watches.go
	trustedTurns int     // since one of them came on the list
	crowded      bool    // the last poll brought many events

	due   [256]uint32 // timers on their way into the completions
	fired int         // of the last turn
	armed int64       // the earliest deadline that was armed since
	ahead int         // registrations that may be served before the timers that are due; 0: none waits

	readyMost, timersMost recent

	ignored uint64 // submissions that made no sense
	stale   uint64 // events of registrations that are gone

	stuck   bool   // one of these will come again: see renewPoller
	renewAt uint64 // the turn before which it isn't tried again
}

// New makes a reactor over the shared block of a loop, and sets its WakeFD.
func New(shared *Shared) (*Reactor, error) {
	return NewWithCalls(shared, SystemCalls())
}

// NewWithCalls is New with other system calls than the kernel's.
func NewWithCalls(shared *Shared, calls Calls) (*Reactor, error) {
	if shared == nil || shared.Cmp == nil || shared.Arena == nil ||
		shared.CmpCap < minCompletions || shared.ArenaCap < minArena {
		return nil, failed("reactor_new", syscall.EINVAL)
	}
	r := &Reactor{shared: shared, calls: calls}
	var err error
	if r.clock, err = newClock(calls.Clock); err != nil {
		return nil, err
	}
	if err = r.poller.open(&r.calls.Poll); err != nil {
		return nil, err
	}
	r.wakeup.token = newWakeToken(r.clock.now())
	var errno syscall.Errno
	if r.wakeup.readFD, r.wakeup.writeFD, errno = r.calls.WakeOpen(uint64(r.wakeup.token)); errno != 0 {
		r.poller.close()
		return nil, failed("eventfd", errno)
	}
	if err = r.poller.addWakeup(r.wakeup.readFD, r.wakeup.token); err != nil {
		r.poller.close()
		r.closeWakeup()
		return nil, err
	}
	r.accepting.cost = acceptFirst
	shared.WakePending = 0
	shared.WakeFD = int32(r.wakeup.writeFD)
	shared.WakeToken, shared.PollFD = uint64(r.wakeup.token), int32(r.poller.number())
	shared.NextDeadline = DeadlineNone
	shared.Now = r.clock.now()
	r.closedAt = shared.Metrics.Turns - earlyTries
	return r, nil
}

// Close gives the reactor's own descriptors back. Those that were registered are
// left alone.
func (r *Reactor) Close() {
	r.calls.closes.leave(r)
	r.wakeup.shut()
	r.shared.WakeFD, r.shared.PollFD = -1, -1
	r.closeFDs()
	r.datagrams.close(r)
}

func (r *Reactor) closeFDs() {
	if !r.poller.isOurs() {
		return // what the other numbers name now can't be told
	}
	if r.batch.state == ringOpen {
		r.closeRing()
	}
	wakeup := r.poller.holds(r.wakeup.readFD)
	r.poller.close()
	if wakeup {
		r.closeWakeup()
	}
}

func (r *Reactor) closeWakeup() {
	_ = r.calls.Close(r.wakeup.readFD)
	if r.wakeup.writeFD != r.wakeup.readFD {
		_ = r.calls.Close(r.wakeup.writeFD)
	}
}

// look tells whether the reactor's own descriptors are still its own. Without the poller
// and the wakeup, which know each other, nothing is left to go on with: EBADF.
func (r *Reactor) look() error {
	r.shared.Flags &^= Look
	if !r.poller.knowsItself() {
		return failed("look", syscall.EBADF)
	}
	r.renewPoller()
	if atomic.LoadUint32(&r.shared.WakePending) != 0 {
		_ = r.calls.WakeWrite(r.poller.number(), r.wakeup.writeFD, uint64(r.wakeup.token))
	}
	if r.batch.state == ringOpen && r.batch.held && !r.poller.holds(r.ring.number()) {
		r.ring.close(false)
		r.batch.state = ringUnknown
	}
	return r.poller.mend()
}

// isStuck notes that the poller has a registration that can't be ended; the next turn renews it.
func (r *Reactor) isStuck() {
	r.stuck = true
	r.shared.Flags |= Look
}

// Turn does one turn, see the package's head. It waits for at most timeout ns (< 0:
// until something happens) and returns the number of completions. An error is
// the poller's, and loses nothing.
func (r *Reactor) Turn(timeout int64) (int, error) {
	sh := r.shared
	sh.Metrics.Turns++
	sh.CmpLen, sh.Events = 0, 0
	r.out.begin(sh)

	if sh.Flags&Look != 0 {
		if err := r.look(); err != nil {
			sh.NextDeadline = r.nextDeadline()
			return 0, err
		}
	}
	r.decode()
	r.flushDirty()

	if len(r.backingOff) > 0 {
		r.tryEarly()
	}

	sh.Polls++
	before := r.clock.now()
	r.accepting.begin(sh, before-sh.Now)
	sh.Busy += before
	sh.Metrics.IterationTime.add(before - sh.Now)
	sh.Metrics.ReadyMax = r.readyMost.most(before, sh.ReadyMost)
	sh.Metrics.TimersMax = r.timersMost.most(before, sh.TimersMost)
	sh.ReadyMost, sh.TimersMost = 0, uint64(r.wheel.Len())
	if limit := atomic.LoadInt64(&sh.SlowLimit); limit > 0 && before-sh.Now >= limit && r.Slow != nil {
		r.Slow(sh.Now, before-sh.Now, limit)
	}
	events, errno := r.poll(r.timeout(timeout, before))
	sh.Now = r.clock.now()
	sh.Busy -= sh.Now
	sh.Metrics.PollTime.add(sh.Now - before)
	if errno != 0 && errno != syscall.EINTR {
		sh.NextDeadline = r.nextDeadline()
		if errno == syscall.EINVAL {
			errno = syscall.EBADF // its number names something else
		}
		return 0, failed("wait of the poller", errno)
	}
	if errno == 0 {
		r.note(events)
		r.crowded = events >= trustedCrowd
	}

	whole := len(r.out.cmp)
	r.out.limit = whole / 2
	r.reportAll()
	r.out.limit = whole
	if r.wheel.Next() <= sh.Now {
		// However busy the descriptors are, timers get a quarter of the queue.
		r.out.limit -= whole / 4
	}
	ready := r.ready.n
	r.serve()
	served := ready - r.ready.n
	if len(r.backingOff) > 0 {
		r.resume(sh.Now, false)
	}
	if len(r.listenerErrors) > 0 {
		r.reportListeners()
	}
	sh.Events = uint32(r.out.n)
	r.out.limit = whole
	if !r.timersWait(served, errno == 0 && events == maxEvents) {
		r.expire()
	}
	if r.wheel.ShouldReleaseMemory() {
		r.calls.FreeMemory()
	}

	sh.NextDeadline = r.nextDeadline()
	sh.More = 0
	if r.leftovers() || sh.NextDeadline <= sh.Now {
		sh.More = 1
	}
	sh.CmpLen = uint32(r.out.n)
	sh.Metrics.EventsPerTurn.add(int64(r.out.n))
	return r.out.n, nil
}

// Now returns the time of the last turn's poll.
func (r *Reactor) Now() int64 { return r.shared.Now }

// leftovers tells whether there is work that needs no event.
func (r *Reactor) leftovers() bool {
	return r.ready.n > 0 || r.urgent > 0 || len(r.listenerErrors) > 0
}

// note enters the poller's events into the list of what is ready.
func (r *Reactor) note(events int) {
	for i := range events {
		t, in := r.poller.event(i)
		if t == r.wakeup.token {
			r.seenWakeup()
			continue
		}
		s := r.registry.find(t.id(), t.gen())
		if s == nil || s.held == 0 {
			// It may be another poller that has the number.
			r.stale++
			r.isStuck()
			continue
		}
		if s.held&oneShot != 0 {
			s.spent = true
		}
		if s.ready != 0 && (s.ready&in)&errorAlone == 0 {
			s.ready, in = s.ready&^errorAlone, in&^errorAlone
		}
		s.ready |= in
		if !s.queued {
			s.queued = true
			r.ready.push(t)
		}
	}
}

// serve does the work of what is ready, each once, until room runs out. Whoever is
// left out stays first in the list.
func (r *Reactor) serve() {
	r.few = r.ready.n < ringLeast
	for n := r.ready.n; n > 0 && r.out.room() >= stepRoom; n-- {
		if n >= ringLeast {
			if k := r.receiveBatch(n); k > 0 {
				n -= k - 1
				continue
			}
		}
		t := r.ready.first()
		if s := r.registry.find(t.id(), t.gen()); s != nil {
			done := true
			switch s.kind {
			case kindStream:
				done = r.serveStream(t, s)
			case kindListener:
				done = r.serveListener(t, s)
			case kindWatch:
				r.serveWatch(t, s)
			case kindDatagram:
				done = r.serveDatagram(t, s)
			}
			if !done {
				return
			}
			if s.kind == kindStream || s.kind == kindDatagram {
				r.settle(t, s)
			}
			s.queued, s.ready = false, 0
		}
		r.ready.pop()
	}
}

// Facts are a reactor's figures, for diagnostics.
type Facts struct {
	Poller        string
	Registrations int
	Timers        int
	Ignored       uint64
	Stale         uint64
	Batches       uint64
	Polls         uint64
	Recvs         uint64
	Sends         uint64
	Wakeups       uint64
	Fences        uint32
}

// Facts tells the figures. It is called by the thread that uses the reactor.
func (r *Reactor) Facts() Facts {
	poller := r.poller.describe()
	if r.batch.state == ringOpen {
		poller += ", io_uring"
	}
	sh := r.shared
	return Facts{
		poller, r.registry.live, r.wheel.Len(), r.ignored, r.stale, r.batch.runs,
		sh.Polls, sh.Recvs, sh.Sends, sh.Wakeups, atomic.LoadUint32(&sh.Fenced),
	}
}
