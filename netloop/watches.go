package netloop

import "syscall"

// watch holds the directions that C asked for. What the poller holds follows:
//
//	want   once   in the poller
//	some   any    want|once, level-triggered; once is dropped as it is reported
//	none   some   once, oneShot: after an event the kernel is silent by itself,
//	              which spares a call, and which ends the events of a descriptor
//	              that its owner closed while a copy of it lives
//	none   none   not registered, or a oneShot that was left alone: silent once
//	              it has fired, and its event is not reported
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

// WatchClose ends a watch. It is no error that the descriptor is closed already.
func (r *Reactor) WatchClose(id, gen uint32) error {
	s := r.registry.findKind(id, gen, kindWatch)
	if s == nil {
		return failed("watch_close", syscall.ENOENT)
	}
	return r.closeSlot(id, s, 0)
}

func (r *Reactor) setWatch(id uint32, s *slot, want, once interest) syscall.Errno {
	if r.registry.taken(s.fd) && r.poller.knows(s.fd) {
		// The number belongs to a transport now, which must not go deaf.
		return syscall.EEXIST
	}
	s.watch = watch{want, once}
	held := want | once
	switch {
	case held == 0 && s.held&oneShot != 0:
		return 0
	case want == 0 && once != 0:
		held |= oneShot
	}
	return r.setHeld(id, s, held)
}

// serveWatch reports the directions that are ready and asked for.
func (r *Reactor) serveWatch(t token, s *slot) {
	w := &s.watch
	res := s.ready & (w.want | w.once)
	if res == 0 {
		return
	}
	r.out.put(Completion{Kind: CmpReady, ID: t.id(), Gen: t.gen(), Res: int32(res)})
	w.once &^= res
	held := w.want | w.once
	if w.want == 0 && held != 0 {
		held |= oneShot
	}
	switch {
	case held == s.held && !s.spent:
	case held == 0 && s.spent:
	default:
		// An error means that the descriptor was closed, and then it has no
		// readiness to tell.
		_ = r.setHeld(t.id(), s, held)
	}
}
