package netloop

import "syscall"

// The contract of a poller backend. A backend is one file (poller_epoll.go,
// poller_kqueue.go) that defines a type `poller` with the methods below, a type PollCalls
// with its system calls, and systemPollCalls. It does not contain logic of the reactor and does
// not interpret tokens.
//
//	open(c *PollCalls) error
//	    opens the kernel's object, close-on-exec.
//	close()
//	    closes it.
//	descriptor() int
//	    returns the number of the kernel's object.
//	isValid() bool
//	    reports whether this number still refers to the object. Must be called after addWakeup.
//	isValidQuick() bool
//	    reports whether the numbers of the object and of the wake-up still refer to them, in
//	    a time that does not depend on the number of registrations. It may undo a wake-up.
//	isValidInThread() bool
//	    reports the same for the descriptor table of the calling thread, which may differ
//	    from the loop thread's table (unshare with CLONE_FILES). It does not undo a wake-up.
//	stillRefers(fd int) bool
//	    reports whether the number still refers to the wake-up that was passed to addWakeup.
//	    The call may undo a wake-up.
//	repairTimer() error
//	    reopens other descriptors of the backend that were closed.
//	add(fd int32, t token, in interest) syscall.Errno
//	    registers a descriptor that is not registered; EEXIST if it is registered, EPERM if
//	    the file cannot be polled. Level-triggered. With oneShot the registration stays but
//	    does not report after one event, until modify. With edge it reports the current
//	    readiness and then each change to ready.
//	modify(fd int32, t token, registered, in interest) syscall.Errno
//	    replaces a registration and re-enables a oneShot; ENOENT if the kernel does not have
//	    the registration (the descriptor was closed in the meantime).
//	remove(fd int32, registered interest) syscall.Errno
//	    removes a registration. It must precede close(2): another process may have a
//	    duplicate of the descriptor, and then its events would continue forever.
//	isRegistered(fd int32) bool
//	    reports whether the kernel has a registration of this descriptor; false if the
//	    number was reused. True if this is unknown.
//	renew(register func(isKnown func(fd int32, t token, in interest) bool)) syscall.Errno
//	    removes every registration that cannot be removed by its number any more, because
//	    the number was closed while a duplicate is open. register adds the other
//	    registrations again. It may ask isKnown whether a number still refers to the
//	    registered file.
//	addWakeup(fd int, t token) error
//	    registers the descriptor of the wake-up for reading, possibly edge-triggered.
//	wait(timeout int64) (int, syscall.Errno)
//	    waits for events for up to timeout ns: 0 does not wait and must be cheap, < 0 waits
//	    without limit. The wait is exact to the kernel's timer slack, never rounded to
//	    milliseconds and never short. Go's scheduler must know of a blocking wait
//	    (syscall.Syscall, not RawSyscall), because a stop-the-world waits for threads
//	    that it believes to be running Go code.
//	event(i int) (token, interest)
//	    returns event i of the last wait. An error or hang-up counts as both directions, so
//	    that the next call returns the error. An error without another event is
//	    errorOnly, too.
//	describe() string
//	    returns the kernel's mechanism and the clock of its waits, in a few words.
//
// Code outside the reactor may close the reactor's own descriptors (os.closerange in a
// program that becomes a daemon), and then the numbers refer to files that are opened later.
// Therefore the numbers are checked before they are closed and when the loop starts to run
// (checkOwnFDs). A number that refers to another file is not touched. If this is unknown, the
// descriptor is assumed to be the reactor's.
//
// The portable code calls add, modify and remove through setInterest.

// setInterest changes the poller's registration of a slot to want, immediately, and makes the
// slot the owner of its number. With 0 it removes the registration and returns 0, also if the
// kernel does not have the registration any more. After an errno the slot is not registered.
//
// After the slot's lease has ended, the number may refer to another file: EBADF, unless want is
// 0. The registration is removed nevertheless, because its descriptor may have a duplicate, and
// then its events would continue forever. epoll finds a registration by number and file, so
// another file's registration is safe. If this reactor has registered another file under the same
// number, registered was set to 0.
func (r *Reactor) setInterest(id uint32, s *slot, want interest) syscall.Errno {
	t := makeToken(id, s.gen)
	var errno syscall.Errno
	switch {
	case want == 0:
		r.endRegistration(s)
		return 0
	case !s.leaseValid():
		errno = syscall.EBADF
	case s.registered == 0:
		errno = r.poller.add(s.fd, t, want)
		if errno == syscall.EEXIST {
			errno = r.poller.modify(s.fd, t, directions, want)
		}
	default:
		errno = r.poller.modify(s.fd, t, s.registered, want)
		if errno == syscall.ENOENT {
			errno = r.poller.add(s.fd, t, want)
		}
	}
	if errno != 0 {
		r.endRegistration(s)
		return errno
	}
	s.registered, s.oneShotFired = want, false
	r.registry.setOwner(id, s.fd)
	return 0
}

// endRegistration removes the poller's registration of a slot, if there is one. The slot stays.
func (r *Reactor) endRegistration(s *slot) {
	if s.registered != 0 {
		_ = r.poller.remove(s.fd, s.registered)
		r.registry.clearOwner(s.fd)
		s.registered = 0
	}
}

// renewPoller replaces the poller if requestRenewal was called. If this fails, requests of the
// next renewalRetryTurns turns have no effect.
//
// A registration cannot be removed if its number was closed while a duplicate of its descriptor
// is open, in a child process for example. Its events are reported in each poll. The first such
// event requests a renewal. After the renewal, a slot with a reused number is reported as ready
// once more: a transport gets the error by its next call, and a watch is reported as lost.
func (r *Reactor) renewPoller() {
	turns := r.shared.Metrics.Turns
	if !r.renewalNeeded || turns < r.nextRenewalTurn {
		return
	}
	errno := r.poller.renew(func(isKnown func(int32, token, interest) bool) {
		for id := range r.registry.slotsUsed {
			if s := r.registry.slot(id); s.registered != 0 {
				r.reregister(id, s, isKnown)
			}
		}
	})
	r.renewalNeeded = errno != 0
	if errno != 0 {
		r.nextRenewalTurn = turns + renewalRetryTurns // no descriptor was available
	}
}

// renewalRetryTurns is the number of turns between attempts to renew the poller.
const renewalRetryTurns = 64

// reregister adds a slot to the renewed poller. A slot whose number was reused, or which the
// poller refuses, becomes ready instead, in the directions that it had registered; a watch is also
// marked as lost, and ends with that report. A slot that reports nothing at present stays
// unregistered. A slot that is not added does not own its number any longer. isKnown reports whether the old poller has a registration of this number and its
// present file.
func (r *Reactor) reregister(id uint32, s *slot, isKnown func(int32, token, interest) bool) {
	t, registered := makeToken(id, s.gen), s.registered
	if s.oneShotFired || s.kind == kindWatch && s.watch.want|s.watch.once == 0 {
		registered = 0 // the poller does not report it, and the next wait registers it
	} else if s.leaseValid() && isKnown(s.fd, t, registered) && r.poller.add(s.fd, t, registered) == 0 {
		return
	}
	r.registry.clearOwner(s.fd)
	s.registered, s.oneShotFired = 0, false
	if registered == 0 {
		return
	}
	s.fdLost = s.kind == kindWatch
	s.ready |= registered & directions
	if !s.inReady {
		s.inReady = true
		r.ready.push(t)
	}
}

// maxErrorOnlyEvents is the number of consecutive errorOnly events after which a transport is
// registered edge-triggered.
const maxErrorOnlyEvents = 16

// updateEdgeMode is called after a transport's event was served. An error that calls do not
// return would be reported in each poll. Such a transport is registered with edge. It is
// registered again after each event of another kind, so that data and space are reported as
// if it were level-triggered.
func (r *Reactor) updateEdgeMode(t token, s *slot) {
	if s.ready&errorOnly == 0 {
		s.errorOnlyEvents = 0
		if s.edgeTriggered && s.registered != 0 {
			_ = r.setInterest(t.id(), s, s.registered)
		}
		return
	}
	if s.errorOnlyEvents++; s.errorOnlyEvents >= maxErrorOnlyEvents && !s.edgeTriggered {
		s.edgeTriggered = true
		if s.registered != 0 {
			_ = r.setInterest(t.id(), s, s.registered|edge)
		}
	}
}

// pollInterest returns the poller's interest mask for a transport with this interest: with edge
// if the transport is registered edge-triggered and the interest is not empty.
func (s *slot) pollInterest(in interest) interest {
	if s.edgeTriggered && in != 0 {
		in |= edge
	}
	return in
}

// poll waits for events for up to timeout ns (< 0: without limit) and returns their number, or
// the poller's errno. Before it blocks, and after maxAssumedArmedTurns turns, it arms each watch
// of assumedArmed (watches.go). It does not wait if this makes a registration ready.
func (r *Reactor) poll(timeout int64) (int, syscall.Errno) {
	if len(r.assumedArmed) == 0 {
		return r.wait(timeout)
	}
	if r.assumedArmedTurns++; r.assumedArmedTurns < maxAssumedArmedTurns {
		if events, errno := r.wait(0); timeout == 0 || events != 0 || errno != 0 {
			return events, errno
		}
	}
	for _, t := range r.assumedArmed {
		s := r.registry.find(t.id(), t.gen())
		if s == nil {
			continue
		}
		s.assumedArmed = false
		if s.watch.once != 0 {
			r.arm(t, s)
		}
	}
	r.assumedArmed, r.assumedArmedTurns = r.assumedArmed[:0], 0
	if r.ready.n > 0 {
		timeout = 0 // the registration of a watch has failed
	}
	return r.wait(timeout)
}
