package netloop

import (
	"syscall"
	"unsafe"

	"github.com/goloop/goloop/transports"
)

// ListenerOpen registers a listening, non-blocking socket and returns the id and the generation
// of the registration. At most backlog connections are accepted in a turn. The only flag is
// ListenNoDelay. owner is described at transports.Lease. After an error (EBADF for a negative
// number, or the poller's errno) there is no registration.
func (r *Reactor) ListenerOpen(fd int32, owner *int32, backlog int32, flags uint32) (id, gen uint32, err error) {
	if fd < 0 {
		return 0, 0, errnoError("listener_open", syscall.EBADF)
	}
	id, s := r.registry.open(kindListener, fd)
	s.listener = transports.NewListener(transports.NewLease(fd, owner), backlog, flags&ListenNoDelay != 0)
	if errno := r.setInterest(id, s, readable); errno != 0 {
		r.registry.release(id, s)
		return 0, 0, errnoError("epoll_ctl", errno)
	}
	return id, s.gen, nil
}

// Listeners have a share of the time of a turn, as handshakes have
// (goloop/_internal/tls/handshakes.py): a quarter (acceptShare) of the time since the last poll
// without the time of accepting itself, but at least acceptMinTime. C measures the time to
// start a connection, up to the callbacks of its first bytes. All listeners together have this
// time. Each of them accepts at least one connection, and at most its backlog, which is asyncio's
// limit. Other connections stay in the kernel's queue, from which another process may accept them
// if this one stops.
const (
	acceptShare       = 4
	acceptMinTime     = 500_000 // ns
	acceptInitialCost = 250_000 // assumed ns per connection before the first measurement
)

// acceptBudget is the listeners' share of the time of a turn.
type acceptBudget struct {
	recentTime     float64 // sum of the ns spent on connections; older turns count less
	recentAccepts  float64 // sum of accepted connections, with the same weights
	acceptedBefore uint64  // Metrics.ConnectionsAccepted at the start of the last turn
	timeBefore     int64   // Shared.Accepting at the start of the last turn
	acceptsLeft    int64   // connections that may still be accepted in this turn
}

// assumeCost replaces the measurements by one connection that took cost ns.
func (a *acceptBudget) assumeCost(cost int64) {
	a.recentTime, a.recentAccepts = float64(cost), 1
}

// costPerAccept returns the average ns per connection, at least 1. A loop that starts connections
// which others have accepted (goloop.SharedListener) may have spent time without an accept.
func (a *acceptBudget) costPerAccept() int64 {
	return max(int64(a.recentTime/max(a.recentAccepts, 1)), 1)
}

// beginTurn computes acceptsLeft for this turn and updates the average cost of a connection.
// elapsed is the ns since the last poll, with the time that C spent on accepted connections. Most
// of a connection's time is spent in the iteration after its accept, so the sums of
// several turns give the average.
func (a *acceptBudget) beginTurn(sh *Shared, elapsed int64) {
	accepted, timeSpent := int64(sh.Metrics.ConnectionsAccepted-a.acceptedBefore), sh.Accepting-a.timeBefore
	a.acceptedBefore, a.timeBefore = sh.Metrics.ConnectionsAccepted, sh.Accepting
	if accepted > 0 || timeSpent > 0 {
		a.recentTime = a.recentTime/2 + float64(timeSpent)
		a.recentAccepts = a.recentAccepts/2 + float64(accepted)
	}
	a.acceptsLeft = max((elapsed-timeSpent)/acceptShare, acceptMinTime) / a.costPerAccept()
}

// serveListener accepts and reports connections until the kernel's queue is empty or the
// listener's share is used. It returns false, and the listener stays ready, if the space for
// completions or addresses ran out before. Without descriptors or memory the listener backs off,
// which is reported once a second at most. After another error, which is reported, the listener
// has stopped for good.
func (r *Reactor) serveListener(t token, s *slot) bool {
	l := s.listener
	if l.Interest() == 0 {
		return true
	}
	for i := range l.MaxPerTurn() {
		if i > 0 && r.acceptBudget.acceptsLeft <= 0 {
			break
		}
		if r.out.completionSpace() == 0 || r.out.arenaSpace() < unsafe.Sizeof(Endpoints{}) {
			return false
		}
		ends := (*Endpoints)(r.out.arenaNext())
		ends.PeerLen, ends.LocalLen = MaxSockaddr, MaxSockaddr
		fd, outcome, errno := l.Accept(&r.calls.Calls,
			uintptr(unsafe.Pointer(&ends.Peer)), uintptr(unsafe.Pointer(&ends.PeerLen)))
		switch outcome {
		case transports.OK:
			r.shared.Metrics.ConnectionsAccepted++
			r.acceptBudget.acceptsLeft--
			r.putAccept(t, fd, errno, ends)
		case transports.Skipped:
		case transports.WouldBlock:
			return true
		case transports.Exhausted:
			r.setInterest(t.id(), s, 0)
			r.backOff(t, l)
			if l.BackOff(r.shared.Now) {
				r.putAcceptError(t, errno, 1)
			}
			return true
		case transports.Failed:
			r.setInterest(t.id(), s, 0)
			r.putAcceptError(t, errno, 0)
			return true
		}
	}
	return true // the poller reports the remaining connections
}

// putAccept reports an accepted connection; there must be space. noDelay is the errno of setting
// TCP_NODELAY, or 0. ends has the peer's address; putAccept adds the socket's own.
func (r *Reactor) putAccept(t token, fd int, noDelay syscall.Errno, ends *Endpoints) {
	errno := r.calls.Sockname(fd, uintptr(unsafe.Pointer(&ends.Local)), uintptr(unsafe.Pointer(&ends.LocalLen)))
	if errno != 0 {
		ends.LocalLen = 0
	}
	// The kernel returns the untruncated length.
	ends.PeerLen = min(ends.PeerLen, MaxSockaddr)
	ends.LocalLen = min(ends.LocalLen, MaxSockaddr)
	r.out.put(Completion{Kind: CmpAccept, ID: t.id(), Gen: t.gen(), Res: int32(fd),
		Ptr: uintptr(unsafe.Pointer(ends)), Arg: int64(noDelay)})
	r.out.commitArena(unsafe.Sizeof(Endpoints{}))
}

// putAcceptError reports an error of a listener. willRetry is 1 if the listener will retry.
func (r *Reactor) putAcceptError(t token, errno syscall.Errno, willRetry int64) {
	r.out.put(Completion{Kind: CmpAcceptError, ID: t.id(), Gen: t.gen(), Res: int32(errno), Arg: willRetry})
}

// backOff adds a listener, which is out of the poller, to the listeners that back off. The first
// one also makes closes in other reactors wake this one, and permits early retries if
// registrations have ended in the last earlyRetryTurns turns, unless it has just made such a
// retry.
func (r *Reactor) backOff(t token, l *transports.Listener) {
	if len(r.backingOff) == 0 {
		closeCount := r.calls.closes.addWaiter(r)
		if !l.RetriedEarly() {
			// The descriptors of recently ended registrations will be closed in the next turns.
			turnsSinceClose := r.shared.Metrics.Turns - r.lastCloseTurn
			r.seenCloseCount, r.earlyRetriesLeft = closeCount, int(earlyRetryTurns-min(turnsSinceClose, earlyRetryTurns))
		}
	}
	r.backingOff = append(r.backingOff, t)
}

// earlyRetryTurns is the number of turns in which backed-off listeners are retried after a
// registration has ended. C closes the descriptor up to two turns later.
const earlyRetryTurns = 3

// retryBackedOff resumes backed-off listeners before their delay ends if a descriptor was
// closed. It is called in each turn while there are such listeners.
func (r *Reactor) retryBackedOff() {
	now := r.clock.now()
	if n := r.calls.closes.count.Load(); n != r.seenCloseCount {
		r.seenCloseCount, r.earlyRetriesLeft = n, earlyRetryTurns
		for _, t := range r.backingOff {
			if s := r.registry.find(t.id(), t.gen()); s != nil {
				s.listener.RetrySoon(now)
			}
		}
	}
	if r.earlyRetriesLeft > 0 {
		r.earlyRetriesLeft--
		r.resumeListeners(now, true)
	}
}

// resumeListeners resumes the listeners whose delay is over, or with early all listeners. A
// listener that the poller refuses backs off again if the poller is out of memory or watches, and
// else stops and is added to failedListeners. When no listener backs off any more, closes in other
// reactors do not wake this one.
func (r *Reactor) resumeListeners(now int64, early bool) {
	remaining := r.backingOff[:0]
	for _, t := range r.backingOff {
		s := r.registry.find(t.id(), t.gen())
		if s == nil {
			continue
		}
		if until, _ := s.listener.BackingOff(); until > now && !early {
			remaining = append(remaining, t)
			continue
		}
		s.listener.Resume(now)
		if errno := r.setInterest(t.id(), s, readable); errno != 0 {
			// The poller is out of memory or watches, too: back off again. Other errors are
			// errors of the descriptor itself.
			if errno == syscall.ENOMEM || errno == syscall.ENOSPC {
				s.listener.BackOff(now)
				remaining = append(remaining, t)
				continue
			}
			s.listener.Stop()
			s.readError = errno32(errno)
			r.failedListeners = append(r.failedListeners, t)
		}
	}
	r.backingOff = remaining
	if len(remaining) == 0 {
		r.calls.closes.removeWaiter(r)
	}
}

// reportFailedListeners reports listeners that could not be registered after a delay. Listeners
// for which there is no space are reported in the next turn.
func (r *Reactor) reportFailedListeners() {
	remaining := r.failedListeners[:0]
	for _, t := range r.failedListeners {
		s := r.registry.find(t.id(), t.gen())
		switch {
		case s == nil:
		case r.out.completionSpace() == 0:
			remaining = append(remaining, t)
		default:
			r.putAcceptError(t, syscall.Errno(s.readError), 0)
		}
	}
	r.failedListeners = remaining
}

// nextBackOffEnd returns the earliest time at which a listener's back-off delay ends, or
// DeadlineNone.
func (r *Reactor) nextBackOffEnd() int64 {
	earliest := int64(DeadlineNone)
	for _, t := range r.backingOff {
		if s := r.registry.find(t.id(), t.gen()); s != nil {
			until, _ := s.listener.BackingOff()
			earliest = min(earliest, until)
		}
	}
	return earliest
}
