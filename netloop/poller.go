package netloop

import "syscall"

// The contract of a poller. A backend is one file (poller_epoll.go,
// poller_kqueue.go) that defines a type `poller` with the methods below, a type
// PollCalls with its system calls, and systemPollCalls. It holds no logic of the
// reactor: it does not know what a token names.
//
//	open(c *PollCalls) error
//	    makes the kernel's object, close-on-exec.
//	close()
//	    gives it back.
//	number() int
//	    is the number of the kernel's object.
//	isOurs() bool
//	    tells whether its number still names it; the wakeup has been added.
//	knowsItself() bool
//	    tells whether the numbers of it and of the wakeup still name them, in a time
//	    that doesn't depend on how much is polled. It may undo a wake.
//	isSeenHere() bool
//	    tells the same of the table of descriptors that the calling thread has, which
//	    need not be that of the loop's thread (unshare with CLONE_FILES). It undoes
//	    no wake.
//	hold(fd int) bool
//	    notes a descriptor of the reactor's own, besides the wakeup, without polling it.
//	holds(fd int) bool
//	    tells whether the number still names what was given to hold or addWakeup. To ask
//	    of the wakeup may undo a wake.
//	mend() error
//	    opens anew what else the backend has, where its number names it no more.
//	add(fd int32, t token, in interest) syscall.Errno
//	    registers a descriptor that is not registered; EEXIST where it is, EPERM
//	    where it cannot be polled. Level-triggered; with oneShot the registration
//	    stays but is silent after one event, until modify; with edge it tells what is
//	    ready now, and then of what becomes ready anew.
//	modify(fd int32, t token, held, in interest) syscall.Errno
//	    replaces a registration, and wakes up a silent one; ENOENT where the kernel
//	    has none (the descriptor was closed meanwhile).
//	remove(fd int32, held interest) syscall.Errno
//	    ends a registration. Always before close(2): another process may hold a
//	    copy of the descriptor, and then its events would go on for ever.
//	knows(fd int32) bool
//	    tells whether the kernel has a registration of this descriptor: none where the
//	    number has been used again. True where that can't be found out.
//	renew(register func(isKnown func(fd int32, t token, in interest) bool)) syscall.Errno
//	    ends every registration whose descriptor can't be named any more, because its
//	    number was closed while a duplicate lives. register adds the others once more,
//	    and may ask whether a number still names what was registered under it.
//	addWakeup(fd int, t token) error
//	    registers the descriptor of the wakeup, for reading. The backend may do
//	    this edge-triggered.
//	wait(timeout int64) (int, syscall.Errno)
//	    waits for events up to timeout ns: 0 doesn't wait and must be cheap, < 0
//	    is for ever. The wait is exact to the kernel's timer slack, never rounded
//	    to milliseconds and never short. While it blocks, Go's scheduler must know
//	    (syscall.Syscall, not RawSyscall), for a stop-the-world waits for
//	    threads that it believes to be running Go code.
//	event(i int) (token, interest)
//	    the i-th event of the last wait. An error or hang-up counts as both
//	    directions: the call that is made next brings it to light. An error
//	    without anything else is errorAlone, too.
//	describe() string
//	    the kernel's mechanism and the clock of its waits, in a few words.
//
// Somebody may close the reactor's own descriptors (os.closerange in a program that
// makes itself a daemon), and the numbers then name what is opened next. So they are
// looked at before they are closed, and when the loop begins to run (look): somebody
// else's is left alone. Where that can't be told the descriptor is taken for ours.
//
// add, modify and remove are made through setHeld, which is the portable half.

// setHeld brings the poller's registration of a slot to want, at once. It is no
// error for a registration that ends that the kernel has already forgotten it.
// Once the slot's lease is over the number may be another's: EBADF, where anything
// was wanted. The registration ends all the same, for its descriptor may live on, and
// its events would come for ever. It is found by number and file, so that of another
// file is safe; and one that this reactor has made under the same number has set held to 0.
func (r *Reactor) setHeld(id uint32, s *slot, want interest) syscall.Errno {
	t := makeToken(id, s.gen)
	var errno syscall.Errno
	switch {
	case want == 0:
		r.endHeld(s)
		return 0
	case !s.hasNumber():
		errno = syscall.EBADF
	case s.held == 0:
		errno = r.poller.add(s.fd, t, want)
		if errno == syscall.EEXIST {
			errno = r.poller.modify(s.fd, t, directions, want)
		}
	default:
		errno = r.poller.modify(s.fd, t, s.held, want)
		if errno == syscall.ENOENT {
			errno = r.poller.add(s.fd, t, want)
		}
	}
	if errno != 0 {
		r.endHeld(s)
		return errno
	}
	s.held, s.spent = want, false
	r.registry.setOwner(id, s.fd)
	return 0
}

// endHeld ends the poller's registration of a slot.
func (r *Reactor) endHeld(s *slot) {
	if s.held != 0 {
		_ = r.poller.remove(s.fd, s.held)
		r.registry.dropOwner(s.fd)
		s.held = 0
	}
}

// A registration whose number was closed while a duplicate of its descriptor lives, in a child perhaps, can't be
// named any more, and its events come in each poll. Where one comes the poller is renewed. Then a slot whose
// number is its own no more is ready for the last time: a transport finds that by its next call, and a watch is
// reported as lost.
func (r *Reactor) renewPoller() {
	turns := r.shared.Metrics.Turns
	if !r.stuck || turns < r.renewAt {
		return
	}
	errno := r.poller.renew(func(isKnown func(int32, token, interest) bool) {
		for id := range r.registry.opened {
			if s := r.registry.slot(id); s.held != 0 {
				r.registerAgain(id, s, isKnown)
			}
		}
		if r.batch.state == ringOpen {
			r.batch.held = r.poller.hold(r.ring.number())
		}
	})
	r.stuck = errno != 0
	if errno != 0 {
		r.renewAt = turns + renewEvery // there is no free descriptor
	}
}

// renewEvery is in how many turns a renewal that failed is tried once.
const renewEvery = 64

func (r *Reactor) registerAgain(id uint32, s *slot, isKnown func(int32, token, interest) bool) {
	t, held := makeToken(id, s.gen), s.held
	if s.spent || s.kind == kindWatch && s.watch.want|s.watch.once == 0 {
		held = 0 // it is silent, and the next wait registers it
	} else if s.hasNumber() && isKnown(s.fd, t, held) && r.poller.add(s.fd, t, held) == 0 {
		return
	}
	r.registry.dropOwner(s.fd)
	s.held, s.spent = 0, false
	if held == 0 {
		return
	}
	s.lost = s.kind == kindWatch
	s.ready |= held & directions
	if !s.queued {
		s.queued = true
		r.ready.push(t)
	}
}

// aloneMost is how many events in a row may be errorAlone until the poller is asked for new events only.
const aloneMost = 16

// settle is called when a transport's event was served. An error that no call brings to light would come in each
// poll: such a transport is registered for edges, and once more after each event of another kind, so that
// it is reported as before while there is data or room.
func (r *Reactor) settle(t token, s *slot) {
	if s.ready&errorAlone == 0 {
		s.alone = 0
		if s.quiet && s.held != 0 {
			_ = r.setHeld(t.id(), s, s.held)
		}
		return
	}
	if s.alone++; s.alone >= aloneMost && !s.quiet {
		s.quiet = true
		if s.held != 0 {
			_ = r.setHeld(t.id(), s, s.held|edge)
		}
	}
}

// polled is what the poller is asked for where a transport has this interest.
func (s *slot) polled(in interest) interest {
	if s.quiet && in != 0 {
		in |= edge
	}
	return in
}

// poll waits for events. Before it blocks, and after trustedMost turns, the poller is told anew of
// each watch that is trusted (watches.go).
func (r *Reactor) poll(timeout int64) (int, syscall.Errno) {
	if len(r.trusted) == 0 {
		return r.poller.wait(timeout)
	}
	if r.trustedTurns++; r.trustedTurns < trustedMost {
		if events, errno := r.poller.wait(0); timeout == 0 || events != 0 || errno != 0 {
			return events, errno
		}
	}
	for _, t := range r.trusted {
		s := r.registry.find(t.id(), t.gen())
		if s == nil {
			continue
		}
		s.trusted = false
		if s.watch.once != 0 {
			r.hold(t, s)
		}
	}
	r.trusted, r.trustedTurns = r.trusted[:0], 0
	if r.ready.n > 0 {
		timeout = 0 // the registration of one has failed
	}
	return r.poller.wait(timeout)
}
