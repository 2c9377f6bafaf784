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
		return 0, 0, failed("watch_open", syscall.EBADF)
	}
	id, s := r.registry.open(kindWatch, fd)
	if errno := r.setWatch(id, s, interest(want)&directions, interest(once)&directions); errno != 0 {
		r.registry.release(id, s)
		return 0, 0, failed("epoll_ctl", errno)
	}
	return id, s.gen, nil
}

// WatchSet replaces both sets of directions.
func (r *Reactor) WatchSet(id, gen, want, once uint32) error {
	s := r.registry.findKind(id, gen, kindWatch)
	if s == nil {
		return failed("watch_set", syscall.ENOENT)
	}
	// What became ready for the old sets is told afresh if it still holds.
	s.ready = 0
	return failed("epoll_ctl", r.setWatch(id, s, interest(want)&directions, interest(once)&directions))
}

// isTransports tells whether a watch's number belongs to a transport now, which must not go
// deaf.
func (r *Reactor) isTransports(fd int32) bool {
	return r.registry.taken(fd) && r.poller.knows(fd)
}

func (r *Reactor) setWatch(id uint32, s *slot, want, once interest) syscall.Errno {
	if r.isTransports(s.fd) {
		return syscall.EEXIST
	}
	s.watch = watch{want, once}
	s.lost = false
	held := want | once
	switch {
	case held == 0 && s.held&(oneShot|edge) != 0:
		return 0
	case want == 0 && once != 0:
		held |= oneShot
	}
	return r.setHeld(id, s, held)
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
	trustedCrowd = 8  // events of a poll
	trustedMost  = 64 // turns
	ignoredMost  = 8  // events for nobody, after which an edge is silenced
)

// await has a direction reported one time, in which the kernel has just refused a call.
func (r *Reactor) await(t token, s *slot, direction interest) {
	w := &s.watch
	w.once |= direction
	s.ignored, s.lost = 0, false
	if s.alone >= aloneMost && w.want == 0 && s.held == w.once|edge && r.poller.knows(s.fd) {
		return // the edge tells of more than the error that no call brings to light
	}
	if w.want != 0 || s.held != w.once|edge || !r.crowded {
		r.hold(t, s)
	} else if !s.trusted {
		s.trusted = true
		r.trusted = append(r.trusted, t)
	}
}

// hold tells the poller what a watch with a waiter is interested in. If that
// fails, the waiter is woken, and finds the reason by the next call.
func (r *Reactor) hold(t token, s *slot) {
	w := &s.watch
	held := w.want | w.once
	if w.want == 0 {
		held |= edge
	}
	errno := syscall.EEXIST
	if !r.isTransports(s.fd) {
		errno = r.setHeld(t.id(), s, held)
	}
	if errno == 0 {
		return
	}
	s.ready |= w.once
	if !s.queued {
		s.queued = true
		r.ready.push(t)
	}
}

// serveWatch reports the directions that are ready and asked for.
func (r *Reactor) serveWatch(t token, s *slot) {
	w := &s.watch
	res := s.ready & (w.want | w.once)
	if res == 0 {
		r.ignore(t, s)
		return
	}
	if s.ready&errorAlone != 0 {
		s.alone = min(s.alone+1, aloneMost)
	} else {
		s.alone = 0
	}
	lost := int64(0)
	if s.lost && w.want != 0 {
		lost = 1
	}
	r.out.put(Completion{Kind: CmpReady, ID: t.id(), Gen: t.gen(), Res: int32(res), Arg: lost})
	w.once &^= res
	if s.lost {
		*w = watch{}
		return
	}
	if s.reports++; s.reports == 0 && w.want != 0 {
		r.checkNumber(t, s)
	}
	held := w.want | w.once
	if w.want == 0 && held != 0 {
		held |= oneShot
	}
	switch {
	case s.held&edge != 0: // and a remaining waiter is told by an edge as well
	case held == s.held && !s.spent:
	case held == 0 && s.spent:
	default:
		// An error means that the descriptor was closed, and then it has no
		// readiness to tell.
		_ = r.setHeld(t.id(), s, held)
	}
}

// checkNumber looks, once in 256 reports, whether the number still names what is watched. Its owner may have
// closed it without a word while a duplicate lives, and then the watch would be ready for ever.
func (r *Reactor) checkNumber(t token, s *slot) {
	if s.held == 0 {
		return
	}
	if errno := r.poller.modify(s.fd, t, s.held, s.held); errno == syscall.ENOENT || errno == syscall.EBADF {
		r.isStuck()
	}
}

// ignore counts an event that nobody waits for. An edge that tells of many would wake a loop
// that sleeps, again and again.
func (r *Reactor) ignore(t token, s *slot) {
	if s.held&edge == 0 {
		return
	}
	if s.ignored++; s.ignored >= ignoredMost {
		s.ignored = 0
		_ = r.setHeld(t.id(), s, 0)
	}
}
