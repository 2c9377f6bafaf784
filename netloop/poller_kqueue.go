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

func (p *poller) close() { _ = p.calls.Close(p.kq) }

func (p *poller) descriptor() int { return p.kq }

func (p *poller) isValid() bool { return true }

func (p *poller) isValidQuick() bool { return true }

func (p *poller) isValidInThread() bool { return true }

func (p *poller) track(int) bool { return true }

func (p *poller) tracks(int) bool { return true }

func (p *poller) repair() error { return nil }

// apply submits changes of one descriptor: the filters to set and the filters to delete.
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

func (p *poller) add(fd int32, t token, in interest) syscall.Errno {
	return p.modify(fd, t, 0, in)
}

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

func (p *poller) remove(fd int32, registered interest) syscall.Errno {
	delete(p.tokens, uint64(fd))
	return p.apply(fd, 0, 0, registered)
}

// isRegistered cannot find out: kqueue replaces a registration without an error.
func (p *poller) isRegistered(int32) bool { return true }

// renew is empty: kqueue removes a descriptor's registrations when its number is closed.
func (p *poller) renew(func(func(int32, token, interest) bool)) syscall.Errno { return 0 }

func (p *poller) addWakeup(fd int, t token) error {
	p.tokens[uint64(fd)] = t
	return errnoError("kevent", p.apply(int32(fd), readable, evAdd|evClear, 0))
}

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

func (p *poller) describe() string { return "kqueue" }
