package netloop

import "syscall"

// watch holds the directions that C asked for. What the poller holds follows:
//
//	want   once   in the poller
//	some   any    want|once, level-triggered; once is dropped as it is reported
//	none   some   once, oneShot: after an event the kernel is silent by itself,
//	              which spares a call, and which ends the events of a descriptor
//	              that its owner closed while a copy of it lives.
//	              Or, where the kernel has just refused a call, edge: see await
//	none   none   not registered, or a oneShot that was left alone: silent once
//	              it has fired, and its event is not reported. An edge is silenced
//	              where it tells again and again
type watch struct {
	want, once interest
}

// WatchOpen registers any pollable descriptor. want are directions to report
// in each turn while they are ready, once those to report one time.
func (r *Reactor) WatchOpen(fd int32, want, once uint32) (id, gen uint32, err error) {
	if fd < 0 {
		return 0, 0, errnoError("watch_open", syscall.EBADF)
	}
	id, s := r.registry.open(kindWatch, fd)
	if errno := r.setWatch(id, s, interest(want)&directions, interest(once)&directions); errno != 0 {
		r.registry.release(id, s)
		return 0, 0, errnoError("epoll_ctl", errno)
	}
	return id, s.gen, nil
}

// WatchSet replaces both sets of directions.
func (r *Reactor) WatchSet(id, gen, want, once uint32) error {
	s := r.registry.findKind(id, gen, kindWatch)
	if s == nil {
		return errnoError("watch_set", syscall.ENOENT)
	}
	// What became ready for the old sets is told afresh if it still holds.
	s.ready = 0
	return errnoError("epoll_ctl", r.setWatch(id, s, interest(want)&directions, interest(once)&directions))
}

// isTransports tells whether a watch's number belongs to a transport now, which must not go
// deaf.
func (r *Reactor) usedByTransport(fd int32) bool {
	return r.registry.hasTransport(fd) && r.poller.isRegistered(fd)
}

func (r *Reactor) setWatch(id uint32, s *slot, want, once interest) syscall.Errno {
	if r.usedByTransport(s.fd) {
		return syscall.EEXIST
	}
	s.watch = watch{want, once}
	s.fdLost = false
	registered := want | once
	switch {
	case registered == 0 && s.registered&(oneShot|edge) != 0:
		return 0
	case want == 0 && once != 0:
		registered |= oneShot
	}
	return r.setInterest(id, s, registered)
}

// Waits that follow a refused call, as those of sock_recv and sock_sendall, come one after
// the other on the same descriptor, and each would cost a call to the poller. They need none
// where the poller holds an edge from the wait before: whatever comes after the refusal is an
// event of its own.
//
// But C may have closed the descriptor in between, and its number may name another file, of
// which the poller knows nothing. So such a wait is trusted for a while only: before the
// reactor would block, and after trustedMost turns, the poller is told once more of each. That
// is worth its calls only in a crowd, where a turn seldom has to block.
const (
	busyEvents           = 8  // events of a poll
	maxAssumedArmedTurns = 64 // turns
	maxIgnoredEvents     = 8  // events for nobody, after which an edge is silenced
)

// await has a direction reported one time, in which the kernel has just refused a call.
func (r *Reactor) rearmAfterEAGAIN(t token, s *slot, direction interest) {
	w := &s.watch
	w.once |= direction
	s.ignoredEvents, s.fdLost = 0, false
	if s.errorOnlyEvents >= maxErrorOnlyEvents && w.want == 0 && s.registered == w.once|edge && r.poller.isRegistered(s.fd) {
		return // the edge tells of more than the error that no call brings to light
	}
	if w.want != 0 || s.registered != w.once|edge || !r.busy {
		r.arm(t, s)
	} else if !s.assumedArmed {
		s.assumedArmed = true
		r.assumedArmed = append(r.assumedArmed, t)
	}
}

// hold tells the poller what a watch with a waiter is interested in. If that
// fails, the waiter is woken, and finds the reason by the next call.
func (r *Reactor) arm(t token, s *slot) {
	w := &s.watch
	registered := w.want | w.once
	if w.want == 0 {
		registered |= edge
	}
	errno := syscall.EEXIST
	if !r.usedByTransport(s.fd) {
		errno = r.setInterest(t.id(), s, registered)
	}
	if errno == 0 {
		return
	}
	s.ready |= w.once
	if !s.inReady {
		s.inReady = true
		r.ready.push(t)
	}
}

// serveWatch reports the directions that are ready and asked for.
func (r *Reactor) serveWatch(t token, s *slot) {
	w := &s.watch
	res := s.ready & (w.want | w.once)
	if res == 0 {
		r.countIgnoredEvent(t, s)
		return
	}
	if s.ready&errorOnly != 0 {
		s.errorOnlyEvents = min(s.errorOnlyEvents+1, maxErrorOnlyEvents)
	} else {
		s.errorOnlyEvents = 0
	}
	lost := int64(0)
	if s.fdLost && w.want != 0 {
		lost = 1
	}
	r.out.put(Completion{Kind: CmpReady, ID: t.id(), Gen: t.gen(), Res: int32(res), Arg: lost})
	w.once &^= res
	if s.fdLost {
		*w = watch{}
		return
	}
	if s.reportCount++; s.reportCount == 0 && w.want != 0 {
		r.checkWatchedFD(t, s)
	}
	registered := w.want | w.once
	if w.want == 0 && registered != 0 {
		registered |= oneShot
	}
	switch {
	case s.registered&edge != 0: // and a remaining waiter is told by an edge as well
	case registered == s.registered && !s.oneShotFired:
	case registered == 0 && s.oneShotFired:
	default:
		// An error means that the descriptor was closed, and then it has no
		// readiness to tell.
		_ = r.setInterest(t.id(), s, registered)
	}
}

// checkNumber looks, once in 256 reports, whether the number still names what is watched. Its owner may have
// closed it without a word while a duplicate lives, and then the watch would be ready for ever.
func (r *Reactor) checkWatchedFD(t token, s *slot) {
	if s.registered == 0 {
		return
	}
	if errno := r.poller.modify(s.fd, t, s.registered, s.registered); errno == syscall.ENOENT || errno == syscall.EBADF {
		r.requestRenewal()
	}
}

// ignore counts an event that nobody waits for. An edge that tells of many would wake a loop
// that sleeps, again and again.
func (r *Reactor) countIgnoredEvent(t token, s *slot) {
	if s.registered&edge == 0 {
		return
	}
	if s.ignoredEvents++; s.ignoredEvents >= maxIgnoredEvents {
		s.ignoredEvents = 0
		_ = r.setInterest(t.id(), s, 0)
	}
}
