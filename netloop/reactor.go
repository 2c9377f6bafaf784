package netloop

import (
	"sync/atomic"
	"syscall"

	"github.com/goloop/goloop/timers"
	"github.com/goloop/goloop/transports"
)

// Reactor does the input and output of one event loop. It is used by one thread at a time. Only
// Wake may be called by any thread.
type Reactor struct {
	// OnSlowIteration is called at the end of each iteration that took Shared.SlowLimit or
	// longer; it may be nil. The limit is an argument because another thread may change it at
	// any time.
	OnSlowIteration func(began, length, limit int64)

	shared   *Shared
	calls    Calls
	clock    clock
	poller   poller
	wakeup   wakeup
	registry registry
	wheel    timers.Wheel
	out      output
	scratch  transports.Scratch

	sendPolicy sendPolicy
	eagerLimit int  // largest number of ready registrations of an eager turn
	eagerTurn  bool // the turn is eager

	datagrams datagramBatch

	dirty          []token    // streams to flush, or with an interest to update
	pendingReports tokenQueue // streams with bytes sent or errors to report
	ready          tokenQueue // registrations with events that are not served yet

	acceptBudget acceptBudget

	backingOff       []token // listeners that back off
	seenCloseCount   uint64  // value of calls.closes.count at the last retry of listeners
	lastCloseTurn    uint64  // turn of the last deregistration
	earlyRetriesLeft int     // turns left with early retries of backed-off listeners
	failedListeners  []token // listeners that could not be registered again

	assumedArmed      []token // watches that are assumed to be armed in the poller; see watches.go
	assumedArmedTurns int     // turns since assumedArmed became non-empty
	busy              bool    // the last poll returned many events
	busyPoll          busyPoll

	expiredIDs         [256]uint32 // buffer for the ids of expired timers
	timersFired        int         // number of timers that expired in the last turn
	earliestArmed      int64       // earliest deadline that was armed since the last expiry
	servesBeforeTimers int         // registrations to serve before the due timers; see deferTimers

	readyMax, timersMax windowedMax

	ignoredSubmissions uint64 // submissions with an unknown operation or a stale generation
	staleEvents        uint64 // events of ended registrations

	renewalNeeded   bool   // the poller has a stale registration; see renewPoller
	nextRenewalTurn uint64 // first turn in which the renewal is tried again
}

// New returns a reactor for the shared block of a loop and sets the block's fields of the
// wake-up, the poller and the clock. The block must exist until Close. An error leaves nothing
// open: EINVAL for a block without completion queue or arena or with too small ones, else the
// error of a system call.
func New(shared *Shared) (*Reactor, error) {
	return NewWithCalls(shared, SystemCalls())
}

// NewWithCalls is New with the given system calls.
func NewWithCalls(shared *Shared, calls Calls) (*Reactor, error) {
	if shared == nil || shared.Cmp == nil || shared.Arena == nil ||
		shared.CmpCap < minCompletions || shared.ArenaCap < minArena {
		return nil, errnoError("reactor_new", syscall.EINVAL)
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
		return nil, errnoError("eventfd", errno)
	}
	if err = r.poller.addWakeup(r.wakeup.readFD, r.wakeup.token); err != nil {
		r.poller.close()
		r.closeWakeup()
		return nil, err
	}
	r.acceptBudget.assumeCost(acceptInitialCost)
	r.sendPolicy = newSendPolicy()
	switch {
	case shared.FixedEagerLimit >= 0:
		r.sendPolicy = fixedSendPolicy(int(shared.FixedEagerLimit))
	case calls.Clock != nil: // a clock of its own shows no costs
		r.sendPolicy = fixedSendPolicy(eagerLevels[defaultLevel])
	}
	shared.WakePending = 0
	shared.WakeFD = int32(r.wakeup.writeFD)
	shared.WakeToken, shared.PollFD = uint64(r.wakeup.token), int32(r.poller.descriptor())
	shared.NextDeadline = DeadlineNone
	shared.Now = r.clock.now()
	r.lastCloseTurn = shared.Metrics.Turns - earlyRetryTurns
	return r, nil
}

// Close closes the reactor's own descriptors, except for numbers that refer to other files now.
// Before that it waits until wake-ups that other threads have begun are done; later wake-ups fail.
// WakeFD and PollFD of the shared block become -1. Registered descriptors stay open.
func (r *Reactor) Close() {
	r.calls.closes.removeWaiter(r)
	r.wakeup.close()
	r.shared.WakeFD, r.shared.PollFD = -1, -1
	r.closeFDs()
	r.datagrams.close(r)
}

// closeFDs closes the reactor's own descriptors if their numbers still refer to them. It closes
// none if the poller's number does not.
func (r *Reactor) closeFDs() {
	if !r.poller.isValid() {
		return // the numbers of the other descriptors cannot be verified
	}
	ownsWakeup := r.poller.stillRefers(r.wakeup.readFD)
	r.poller.close()
	if ownsWakeup {
		r.closeWakeup()
	}
}

// closeWakeup closes both ends of the wake-up, which may be one descriptor.
func (r *Reactor) closeWakeup() {
	_ = r.calls.Close(r.wakeup.readFD)
	if r.wakeup.writeFD != r.wakeup.readFD {
		_ = r.calls.Close(r.wakeup.writeFD)
	}
}

// checkOwnFDs verifies that the numbers of the reactor's own descriptors still refer to them, and
// clears CheckFDs, with which C or the reactor requested this. A timerfd that was closed is
// opened again. If a renewal of the poller was requested, it is made here. It returns EBADF if the
// poller or the wake-up was closed, because the reactor cannot continue without them, or the error
// of opening the timerfd.
func (r *Reactor) checkOwnFDs() error {
	r.shared.Flags &^= CheckFDs
	if !r.poller.isValidQuick() {
		return errnoError("check of the poller", syscall.EBADF)
	}
	r.renewPoller()
	if atomic.LoadUint32(&r.shared.WakePending) != 0 { // the checks may have undone a wake-up
		_ = r.calls.WakeWrite(r.poller.descriptor(), r.wakeup.writeFD, uint64(r.wakeup.token))
	}
	return r.poller.repairTimer()
}

// requestRenewal notes that the poller has a registration that cannot be removed. The next turn
// renews the poller (renewPoller).
func (r *Reactor) requestRenewal() {
	r.renewalNeeded = true
	r.shared.Flags |= CheckFDs
}

// Turn makes one turn as described in the package comment. It waits for events for at most
// timeout ns (< 0: without limit) and returns the number of completions. A signal (EINTR) ends
// the wait without an error. An error is an error of the poller: there are no completions then,
// but queued events and reports stay for the next turn.
func (r *Reactor) Turn(timeout int64) (int, error) {
	sh := r.shared
	sh.Metrics.Turns++
	sh.CmpLen, sh.Events = 0, 0
	r.out.begin(sh)

	if sh.Flags&CheckFDs != 0 {
		if err := r.checkOwnFDs(); err != nil {
			sh.NextDeadline = r.nextDeadline()
			return 0, err
		}
	}
	r.applySubmissions()
	r.flushDirty()

	if len(r.backingOff) > 0 {
		r.retryBackedOff()
	}

	sh.Polls++
	before := r.clock.now()
	r.acceptBudget.beginTurn(sh, before-sh.Now)
	sh.Busy += before
	sh.Metrics.IterationTime.add(before - sh.Now)
	sh.Metrics.ReadyMax = r.readyMax.add(before, sh.MaxReady)
	sh.Metrics.TimersMax = r.timersMax.add(before, sh.MaxTimers)
	sh.MaxReady, sh.MaxTimers = 0, uint64(r.wheel.Len())
	if limit := atomic.LoadInt64(&sh.SlowLimit); limit > 0 && before-sh.Now >= limit && r.OnSlowIteration != nil {
		r.OnSlowIteration(sh.Now, before-sh.Now, limit)
	}
	events, errno := r.poll(r.pollTimeout(timeout, before))
	sh.Now = r.clock.now()
	sh.Busy -= sh.Now
	sh.Metrics.PollTime.add(sh.Now - before)
	if errno != 0 && errno != syscall.EINTR {
		sh.NextDeadline = r.nextDeadline()
		if errno == syscall.EINVAL {
			errno = syscall.EBADF // the number refers to another file
		}
		return 0, errnoError("wait of the poller", errno)
	}
	if errno == 0 {
		r.queueEvents(events)
		r.busy = events >= busyEvents
	}

	capacity := len(r.out.cmp)
	r.out.limit = capacity / 2
	r.reportPending()
	r.out.limit = capacity
	if r.wheel.Next() <= sh.Now {
		// Timers get a quarter of the queue, even if the descriptors are busy.
		r.out.limit -= capacity / 4
	}
	ready := r.ready.n
	r.eagerLimit = r.sendPolicy.turnLimit(r.currentMeasurement)
	r.eagerTurn = ready <= r.eagerLimit
	r.serve()
	served := ready - r.ready.n
	if len(r.backingOff) > 0 {
		r.resumeListeners(sh.Now, false)
	}
	if len(r.failedListeners) > 0 {
		r.reportFailedListeners()
	}
	sh.Events = uint32(r.out.n)
	// The reports of sent bytes do not count: else turns that deferred could not become eager.
	sh.EagerSends = 0
	if r.eagerTurn {
		sh.EagerSends = uint32(r.eagerLimit)
	}
	r.out.limit = capacity
	if !r.deferTimers(served, errno == 0 && events == maxEvents) {
		r.expireTimers()
	}
	if r.wheel.ShouldReleaseMemory() {
		r.calls.FreeMemory()
	}

	sh.NextDeadline = r.nextDeadline()
	sh.More = 0
	if r.hasLeftovers() || sh.NextDeadline <= sh.Now {
		sh.More = 1
	}
	sh.CmpLen = uint32(r.out.n)
	sh.Metrics.EventsPerTurn.add(int64(r.out.n))
	return r.out.n, nil
}

// currentMeasurement returns the counters that sendPolicy compares.
func (r *Reactor) currentMeasurement() measurement {
	return measurement{r.shared.Now, r.calls.ThreadTime(), r.shared.Recvs}
}

// Now returns the time of the last turn's poll.
func (r *Reactor) Now() int64 { return r.shared.Now }

// hasLeftovers reports whether there is work that does not wait for an event, so that the next
// turn must not block.
func (r *Reactor) hasLeftovers() bool {
	return r.ready.n > 0 || r.pendingReports.n > 0 || len(r.failedListeners) > 0
}

// queueEvents adds the registrations of the poller's first `events` events to the ready list. It
// processes the wake-up's event itself. An event of an ended registration requests a renewal of
// the poller, which would otherwise report it in each poll.
func (r *Reactor) queueEvents(events int) {
	for i := range events {
		t, in := r.poller.event(i)
		if t == r.wakeup.token {
			r.clearWakeup()
			continue
		}
		s := r.registry.find(t.id(), t.gen())
		if s == nil || s.registered == 0 {
			// The registration may be in another poller under this number.
			r.staleEvents++
			r.requestRenewal()
			continue
		}
		if s.registered&oneShot != 0 {
			s.oneShotFired = true
		}
		if s.ready != 0 && (s.ready&in)&errorOnly == 0 {
			s.ready, in = s.ready&^errorOnly, in&^errorOnly
		}
		s.ready |= in
		if !s.inReady {
			s.inReady = true
			r.ready.push(t)
		}
	}
}

// serve serves each ready registration once, until the space for completions or received bytes
// runs out. The remaining registrations stay at the front of the list.
func (r *Reactor) serve() {
	for n := r.ready.n; n > 0 && r.out.completionSpace() >= maxPerStep; n-- {
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
				break
			}
			if s.kind == kindStream || s.kind == kindDatagram {
				r.updateEdgeMode(t, s)
			}
			s.inReady, s.ready = false, 0
		}
		r.ready.pop()
	}
}

// Stats are the counters of a reactor, for diagnostics.
type Stats struct {
	Poller        string // mechanism of the waits
	Registrations int    // present registrations
	Timers        int    // armed timers
	Ignored       uint64 // submissions with an unknown operation or a stale generation
	Stale         uint64 // events of ended registrations
	SendPolicy    string // choice of sendPolicy
	Polls         uint64 // turns that polled
	Recvs         uint64 // receives of streams and datagrams
	Sends         uint64 // sends of streams
	ExposedSends  uint64 // Shared.ExposedSends
	Wakeups       uint64 // wake-ups that a turn has processed
	Fences        uint32 // Shared.FenceState
}

// Stats returns the counters. It must be called by the thread that uses the reactor.
func (r *Reactor) Stats() Stats {
	sh := r.shared
	return Stats{
		r.poller.describe(), r.registry.live, r.wheel.Len(), r.ignoredSubmissions, r.staleEvents,
		r.sendPolicy.String(),
		sh.Polls, sh.Recvs, sh.Sends, sh.ExposedSends, sh.Wakeups, atomic.LoadUint32(&sh.FenceState),
	}
}
