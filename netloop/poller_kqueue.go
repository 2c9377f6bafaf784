//go:build darwin || libkqueue

package netloop

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// PollCalls are the system calls of the kqueue backend.
type PollCalls struct {
	Create func() (int, error)
	Kevent func(kq int, changes, events []kevent, ts *unix.Timespec) (int, error)
	Close  func(fd int) error
}

// maxEvents is the maximum number of events of one wait.
const maxEvents = 512

// poller polls with kqueue, which registers the two directions of a descriptor separately.
// Udata is not as wide as a token on every system, so tokens are found by descriptor.
type poller struct {
	calls   *PollCalls
	kq      int
	events  [maxEvents]kevent
	changes [2]kevent
	ts      unix.Timespec
	tokens  map[uint64]token
}

// open creates the kqueue, close-on-exec. p is not open after an error.
func (p *poller) open(c *PollCalls) error {
	p.calls = c
	p.tokens = map[uint64]token{}
	kq, err := c.Create()
	if err != nil {
		return wrapError("kqueue", err)
	}
	unix.CloseOnExec(kq)
	p.kq = kq
	return nil
}

// close closes the kqueue.
func (p *poller) close() { _ = p.calls.Close(p.kq) }

// descriptor returns the number of the kqueue.
func (p *poller) descriptor() int { return p.kq }

// isValid returns true: a kqueue's number cannot be verified.
func (p *poller) isValid() bool { return true }

// isValidQuick returns true; see isValid.
func (p *poller) isValidQuick() bool { return true }

// isValidInThread returns true; see isValid.
func (p *poller) isValidInThread() bool { return true }

// stillRefers returns true; see isValid.
func (p *poller) stillRefers(int) bool { return true }

// repairTimer does nothing: this backend has one descriptor only.
func (p *poller) repairTimer() error { return nil }

// apply submits changes of one descriptor: the directions to register with setFlags, and the
// directions to delete if they are not in set. Deleting a registration that does not exist is not
// an error. It returns the errno of the first change that the kernel refuses; later changes are
// then not made.
func (p *poller) apply(fd int32, set interest, setFlags int, end interest) syscall.Errno {
	n := 0
	change := func(in, direction interest, filter, flags int) {
		if in&direction != 0 {
			p.changes[n] = makeKevent(fd, filter, flags)
			n++
		}
	}
	change(set, readable, evfiltRead, setFlags)
	change(set, writable, evfiltWrite, setFlags)
	change(end&^set, readable, evfiltRead, evDelete)
	change(end&^set, writable, evfiltWrite, evDelete)
	for i := range n {
		// Each call makes one change, so that an error of the first does not hide an error of the
		// second.
		if _, err := p.calls.Kevent(p.kq, p.changes[i:i+1], nil, nil); err != nil {
			if errno := ErrnoOf(err); errno != syscall.ENOENT || p.changes[i].Flags&evDelete == 0 {
				return errno
			}
		}
	}
	return 0
}

// add registers a descriptor. EPERM if the file cannot be polled.
func (p *poller) add(fd int32, t token, in interest) syscall.Errno {
	return p.modify(fd, t, 0, in)
}

// modify registers the directions in `in`, re-enables a oneShot, deletes the other directions of
// `registered`, and stores the token, also if the kernel refuses. EPERM if the file cannot be
// polled.
func (p *poller) modify(fd int32, t token, registered, in interest) syscall.Errno {
	flags := evAdd | evEnable
	if in&oneShot != 0 {
		flags |= evDispatch
	}
	if in&edge != 0 {
		flags |= evClear
	}
	p.tokens[uint64(fd)] = t
	errno := p.apply(fd, in, flags, registered)
	if errno == syscall.EINVAL || errno == syscall.ENODEV {
		return syscall.EPERM // epoll's errno for a file that cannot be polled
	}
	return errno
}

// remove deletes the directions of a registration.
func (p *poller) remove(fd int32, registered interest) syscall.Errno {
	delete(p.tokens, uint64(fd))
	return p.apply(fd, 0, 0, registered)
}

// isRegistered returns true, for unknown: kqueue replaces a registration without an error.
func (p *poller) isRegistered(int32) bool { return true }

// renew does nothing: kqueue removes a descriptor's registrations when its number is closed.
func (p *poller) renew(func(func(int32, token, interest) bool)) syscall.Errno { return 0 }

// addWakeup registers the reading end of the wake-up's pipe, edge-triggered, with its token.
func (p *poller) addWakeup(fd int, t token) error {
	p.tokens[uint64(fd)] = t
	return errnoError("kevent", p.apply(int32(fd), readable, evAdd|evClear, 0))
}

// wait waits for up to timeout ns (< 0: without limit) and returns the number of events, which
// event() decodes. EINTR if a signal ended the wait.
func (p *poller) wait(timeout int64) (int, syscall.Errno) {
	ts := &p.ts
	if timeout < 0 {
		ts = nil
	} else {
		p.ts = unix.NsecToTimespec(timeout)
	}
	n, err := p.calls.Kevent(p.kq, nil, p.events[:], ts)
	if err != nil {
		return 0, ErrnoOf(err)
	}
	return n, 0
}

// event returns the token and the readiness of event i of the last wait, in the reactor's bits.
func (p *poller) event(i int) (token, interest) {
	ev := &p.events[i]
	in := readable
	if ev.Filter == evfiltWrite {
		in = writable
	}
	if ev.Flags&evError != 0 {
		in = directions
	}
	if ev.Flags&evEOF != 0 {
		in |= broken
	}
	return p.tokens[uint64(ev.Ident)], in
}

// describe names the mechanism, for diagnostics.
func (p *poller) describe() string { return "kqueue" }
