package netloop

import (
	"syscall"
	"unsafe"

	"github.com/goloop/goloop/transports"
)

// ListenerOpen registers a listening, non-blocking socket; at most backlog
// connections are accepted in a turn. The flag is ListenNoDelay, owner is of transports.Lease.
func (r *Reactor) ListenerOpen(fd int32, owner *int32, backlog int32, flags uint32) (id, gen uint32, err error) {
	if fd < 0 {
		return 0, 0, failed("listener_open", syscall.EBADF)
	}
	id, s := r.registry.open(kindListener, fd)
	s.listener = transports.NewListener(transports.NewLease(fd, owner), backlog, flags&ListenNoDelay != 0)
	if errno := r.setHeld(id, s, readable); errno != 0 {
		r.registry.release(id, s)
		return 0, 0, failed("epoll_ctl", errno)
	}
	return id, s.gen, nil
}

// Listeners have a share of time in a turn, as handshakes have (goloop/_internal/net/handshakes.py):
// of what was done since the last poll, but for accepting itself, an acceptShare-th, and
// acceptLeast where that is more. C measures what it takes to begin with a connection, which
// is far more with TLS. All listeners together have that time, each of them accepts one in any
// case, and its backlog, asyncio's bound, is the most. The others stay in the kernel's queue.
const (
	acceptShare = 4
	acceptLeast = 500_000 // ns
	acceptFirst = 250_000 // what one takes, until that is known
)

type accepting struct {
	cost    int64  // ns of one, lately
	accepts uint64 // Shared.Metrics.ConnectionsAccepted and Shared.Accepting when the last turn began
	took    int64
	left    int64 // how many the time is enough for, in this turn
}

// begin is called in each turn, with the time since the last poll.
func (a *accepting) begin(sh *Shared, elapsed int64) {
	n, took := int64(sh.Metrics.ConnectionsAccepted-a.accepts), sh.Accepting-a.took
	a.accepts, a.took = sh.Metrics.ConnectionsAccepted, sh.Accepting
	if n > 0 {
		a.cost = max((a.cost+took/n)/2, 1)
	}
	a.left = max((elapsed-took)/acceptShare, acceptLeast) / a.cost
}

// serveListener accepts until nothing is left or the listener has had its share.
// It returns false, and leaves the listener ready, where room ran out before that.
func (r *Reactor) serveListener(t token, s *slot) bool {
	l := s.listener
	if l.Interest() == 0 {
		return true
	}
	for i := range l.MaxPerTurn() {
		if i > 0 && r.accepting.left <= 0 {
			break
		}
		if r.out.room() == 0 || r.out.arenaRoom() < unsafe.Sizeof(Endpoints{}) {
			return false
		}
		ends := (*Endpoints)(r.out.arenaNext())
		ends.PeerLen, ends.LocalLen = SockaddrMax, SockaddrMax
		fd, outcome, errno := l.Accept(&r.calls.Calls,
			uintptr(unsafe.Pointer(&ends.Peer)), uintptr(unsafe.Pointer(&ends.PeerLen)))
		switch outcome {
		case transports.OK:
			r.shared.Metrics.ConnectionsAccepted++
			r.accepting.left--
			r.putAccept(t, fd, errno, ends)
		case transports.Skipped:
		case transports.WouldBlock:
			return true
		case transports.Exhausted:
			r.setHeld(t.id(), s, 0)
			r.backOff(t, l)
			if l.BackOff(r.shared.Now) {
				r.putAcceptError(t, errno, 1)
			}
			return true
		case transports.Failed:
			r.setHeld(t.id(), s, 0)
			r.putAcceptError(t, errno, 0)
			return true
		}
	}
	return true // the poller tells of what is left
}

func (r *Reactor) putAccept(t token, fd int, noDelay syscall.Errno, ends *Endpoints) {
	errno := r.calls.Sockname(fd, uintptr(unsafe.Pointer(&ends.Local)), uintptr(unsafe.Pointer(&ends.LocalLen)))
	if errno != 0 {
		ends.LocalLen = 0
	}
	// The kernel tells the length it would have needed.
	ends.PeerLen = min(ends.PeerLen, SockaddrMax)
	ends.LocalLen = min(ends.LocalLen, SockaddrMax)
	r.out.put(Completion{Kind: CmpAccept, ID: t.id(), Gen: t.gen(), Res: int32(fd),
		Ptr: uintptr(unsafe.Pointer(ends)), Arg: int64(noDelay)})
	r.out.use(unsafe.Sizeof(Endpoints{}))
}

func (r *Reactor) putAcceptError(t token, errno syscall.Errno, goesOn int64) {
	r.out.put(Completion{Kind: CmpAcceptError, ID: t.id(), Gen: t.gen(), Res: int32(errno), Arg: goesOn})
}

// backOff enters a listener into the list of those that back off.
func (r *Reactor) backOff(t token, l *transports.Listener) {
	if len(r.backingOff) == 0 {
		seen := r.calls.closes.enter(r)
		if !l.RetriedEarly() {
			// What has just ended here has yet to be closed.
			past := r.shared.Metrics.Turns - r.closedAt
			r.closesSeen, r.earlyTries = seen, int(earlyTries-min(past, earlyTries))
		}
	}
	r.backingOff = append(r.backingOff, t)
}

// earlyTries is in how many turns the listeners that back off are tried after a descriptor
// was closed: C closes it for good up to two turns after its registration has ended.
const earlyTries = 3

// tryEarly lets the listeners that back off go on where a descriptor has come free.
func (r *Reactor) tryEarly() {
	now := r.clock.now()
	if n := r.calls.closes.count.Load(); n != r.closesSeen {
		r.closesSeen, r.earlyTries = n, earlyTries
		for _, t := range r.backingOff {
			if s := r.registry.find(t.id(), t.gen()); s != nil {
				s.listener.RetrySoon(now)
			}
		}
	}
	if r.earlyTries > 0 {
		r.earlyTries--
		r.resume(now, true)
	}
}

// resume lets listeners go on whose delay is over, or all of them.
func (r *Reactor) resume(now int64, early bool) {
	left := r.backingOff[:0]
	for _, t := range r.backingOff {
		s := r.registry.find(t.id(), t.gen())
		if s == nil {
			continue
		}
		if until, _ := s.listener.BackingOff(); until > now && !early {
			left = append(left, t)
			continue
		}
		s.listener.Resume(now)
		if errno := r.setHeld(t.id(), s, readable); errno != 0 {
			// The poller has no memory or no room for it either: back off again,
			// unless the descriptor itself is at fault.
			if errno == syscall.ENOMEM || errno == syscall.ENOSPC {
				s.listener.BackOff(now)
				left = append(left, t)
				continue
			}
			s.listener.Stop()
			s.readError = errno32(errno)
			r.listenerErrors = append(r.listenerErrors, t)
		}
	}
	r.backingOff = left
	if len(left) == 0 {
		r.calls.closes.leave(r)
	}
}

// reportListeners tells of listeners that could not go on after a delay.
func (r *Reactor) reportListeners() {
	left := r.listenerErrors[:0]
	for _, t := range r.listenerErrors {
		s := r.registry.find(t.id(), t.gen())
		switch {
		case s == nil:
		case r.out.room() == 0:
			left = append(left, t)
		default:
			r.putAcceptError(t, syscall.Errno(s.readError), 0)
		}
	}
	r.listenerErrors = left
}

// backOffEnds is when the first delay ends, or DeadlineNone.
func (r *Reactor) backOffEnds() int64 {
	first := int64(DeadlineNone)
	for _, t := range r.backingOff {
		if s := r.registry.find(t.id(), t.gen()); s != nil {
			until, _ := s.listener.BackingOff()
			first = min(first, until)
		}
	}
	return first
}
