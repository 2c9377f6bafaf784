package netloop

import "syscall"

// watch has the directions that C requested. The poller's registration depends on them:
//
//	want   once   registration in the poller
//	some   any    want|once, level-triggered; once is removed when it is reported
//	none   some   once with oneShot: the kernel disables it after an event, which saves a
//	              call and also ends the events of a descriptor that its owner closed
//	              while a duplicate is open. With edge instead, if the kernel has just
//	              returned EAGAIN: see rearmAfterEAGAIN
//	none   none   not registered, or an unused oneShot, which reports at most once more;
//	              this event is ignored. An edge that reports repeatedly is removed
type watch struct {
	want, once interest
}

// WatchOpen registers any pollable descriptor and returns the id and the generation of the
// registration. want are the directions to report in each turn while they are ready, once the
// directions to report one time. After an error there is no registration: EBADF for a negative
// number, EEXIST if the number belongs to a transport, or the poller's errno (EPERM for a file
// that cannot be polled).
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

// WatchSet replaces both sets of directions and drops readiness that was not reported yet. ENOENT
// if the registration has ended. EEXIST if the number belongs to a transport now: the directions
// stay, but the readiness is dropped. After an errno of the poller the watch is not polled.
func (r *Reactor) WatchSet(id, gen, want, once uint32) error {
	s := r.registry.findKind(id, gen, kindWatch)
	if s == nil {
		return errnoError("watch_set", syscall.ENOENT)
	}
	// The poller reports the new directions again if they are still ready.
	s.ready = 0
	return errnoError("epoll_ctl", r.setWatch(id, s, interest(want)&directions, interest(once)&directions))
}

// usedByTransport reports whether a watch's number now belongs to a transport or listener, whose
// registration must not be replaced.
func (r *Reactor) usedByTransport(fd int32) bool {
	return r.registry.hasTransport(fd) && r.poller.isRegistered(fd)
}

// setWatch sets the directions of a watch and updates its registration in the poller (see the
// table at watch). It returns the poller's errno, or EEXIST without any change if the number
// belongs to a transport.
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

// The sock_* methods, such as sock_recv and sock_sendall, wait for readiness after EAGAIN.
// Waits on the same descriptor follow each other, and each would cost a call to the poller. The
// call is not necessary if the poller still has an edge-triggered registration from the
// previous wait, because readiness after EAGAIN is a new edge.
//
// However, C may have closed the descriptor in between, and its number may refer to another
// file that the poller does not know. So the registration is assumed to exist for a limited
// time only: each assumed watch is armed before the reactor would block, and after
// maxAssumedArmedTurns turns. This saves calls only if the loop is busy, so that turns rarely
// have to block.
const (
	busyEvents           = 8  // a poll with this many events makes the loop busy
	maxAssumedArmedTurns = 64 // turns before assumed watches are armed
	maxIgnoredEvents     = 8  // ignored events after which an edge is removed
)

// rearmAfterEAGAIN makes the reactor report a direction one time, when it becomes ready. The
// kernel has just returned EAGAIN for it. The watch is registered now, or assumed to be
// registered (see above).
func (r *Reactor) rearmAfterEAGAIN(t token, s *slot, direction interest) {
	w := &s.watch
	w.once |= direction
	s.ignoredEvents, s.fdLost = 0, false
	if s.errorOnlyEvents >= maxErrorOnlyEvents && w.want == 0 && s.registered == w.once|edge && r.poller.isRegistered(s.fd) {
		return // the edge reports more than the error that calls do not return
	}
	if w.want != 0 || s.registered != w.once|edge || !r.busy {
		r.arm(t, s)
	} else if !s.assumedArmed {
		s.assumedArmed = true
		r.assumedArmed = append(r.assumedArmed, t)
	}
}

// arm registers a watch in the poller. If this fails, or the number belongs to a transport now,
// the watch becomes ready, so that the waiting task makes its call again and gets the error.
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

// serveWatch reports the requested directions that are ready, removes the reported ones from
// once, and updates the registration in the poller. If the number was lost, the watch ends, and
// the report says so unless want is empty. An event without a requested direction is counted
// only.
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
	case s.registered&edge != 0: // the edge also reports the remaining direction
	case registered == s.registered && !s.oneShotFired:
	case registered == 0 && s.oneShotFired:
	default:
		// An error means that the descriptor was closed. Then there is no readiness to report.
		_ = r.setInterest(t.id(), s, registered)
	}
}

// checkWatchedFD verifies, once in 256 reports, that the number still refers to the watched file.
// If it does not, the next turn renews the poller: the owner may have closed the number while a
// duplicate is open, and then the watch would be ready forever.
func (r *Reactor) checkWatchedFD(t token, s *slot) {
	if s.registered == 0 {
		return
	}
	if errno := r.poller.modify(s.fd, t, s.registered, s.registered); errno == syscall.ENOENT || errno == syscall.EBADF {
		r.requestRenewal()
	}
}

// countIgnoredEvent counts an event of an idle watch. An edge with many such events is removed,
// because it would wake an idle loop again and again.
func (r *Reactor) countIgnoredEvent(t token, s *slot) {
	if s.registered&edge == 0 {
		return
	}
	if s.ignoredEvents++; s.ignoredEvents >= maxIgnoredEvents {
		s.ignoredEvents = 0
		_ = r.setInterest(t.id(), s, 0)
	}
}
