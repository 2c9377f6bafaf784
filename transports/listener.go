package transports

import "syscall"

// States of a listener:
//
//	            out of descriptors or memory,
//	            or only refused connections
//	  listening ----------------------------> backing off
//	      |     <----------------------------
//	      |      the delay is over, or a retry before
//	      |      that: a descriptor was closed
//	      |
//	      | any error of the listener itself
//	      v
//	   stopped
//
// A listener that backs off is not polled, because the connection that could not be accepted
// stays in the kernel's queue and would make the poller spin. Each delay is twice as long as
// the previous delay, until a connection is accepted.

// BackOffMin and MaxBackOff are the limits of a back-off delay, in ns. MaxBackOff equals
// asyncio's ACCEPT_RETRY_DELAY. It is also the minimum time between two error reports.
const (
	BackOffMin = 10_000_000
	MaxBackOff = 1_000_000_000
)

// maxRefusals is the number of consecutive failed connections after which the listener backs
// off. A firewall or the network can make connections fail, and a system-call filter that
// forbids accept4 makes all of them fail, so that further attempts would be useless. The usual
// kernel queues are not longer.
const maxRefusals = 128

// listenerState is the state of a Listener, as in the diagram above.
type listenerState uint8

const (
	listening listenerState = iota
	backingOff
	stopped
)

// Listener accepts the connections of one listening socket.
type Listener struct {
	lease         Lease
	maxPerTurn    int32
	noDelay       bool // accepted connections are TCP
	state         listenerState
	refusedInARow uint8 // consecutive failures since a connection was accepted or the queue was empty
	retriedEarly  bool  // resumed before the delay was over
	reported      bool  // an error was reported, at lastReport
	resumeAt      int64 // end of the delay
	delay         int64 // length of the next delay
	lastReport    int64
}

// NewListener returns a listener for a non-blocking listening socket. It accepts at most
// maxPerTurn connections in one turn. With noDelay it sets TCP_NODELAY on each connection.
func NewListener(lease Lease, maxPerTurn int32, noDelay bool) *Listener {
	return &Listener{lease: lease, maxPerTurn: max(maxPerTurn, 1), noDelay: noDelay, delay: BackOffMin}
}

// LeaseValid reports whether the descriptor still belongs to its owner.
func (l *Listener) LeaseValid() bool { return l.lease.Valid() }

// MaxPerTurn returns the maximum number of connections to accept in one turn.
func (l *Listener) MaxPerTurn() int { return int(l.maxPerTurn) }

// Interest returns the directions that must be polled.
func (l *Listener) Interest() Interest {
	if l.state == listening {
		return Readable
	}
	return 0
}

// BackingOff reports whether the listener backs off, and until when, in ns of the reactor's
// clock.
func (l *Listener) BackingOff() (until int64, yes bool) {
	return l.resumeAt, l.state == backingOff
}

// RetriedEarly reports whether the listener resumed before its delay was over.
func (l *Listener) RetriedEarly() bool { return l.retriedEarly }

// BackOff stops accepting for a delay that begins now (ns), and doubles the next delay. It
// reports whether the error should be reported: at most once in MaxBackOff. After an early retry
// it neither extends the current delay nor lengthens the next delay.
func (l *Listener) BackOff(now int64) (report bool) {
	l.state = backingOff
	if !l.retriedEarly || l.resumeAt <= now {
		l.resumeAt = now + l.delay
		l.delay = min(2*l.delay, MaxBackOff)
	}
	l.retriedEarly = false
	if l.reported && now-l.lastReport < MaxBackOff {
		return false
	}
	l.reported, l.lastReport = true, now
	return true
}

// Resume continues accepting after a delay, or before its end (an early retry). now is in ns. It
// does nothing for a listener that does not back off.
func (l *Listener) Resume(now int64) {
	if l.state == backingOff {
		l.state, l.retriedEarly = listening, now < l.resumeAt
	}
}

// RetrySoon shortens the delay, and the delays after it, to BackOffMin, because descriptors may
// be available again.
func (l *Listener) RetrySoon(now int64) {
	l.resumeAt, l.delay = min(l.resumeAt, now+BackOffMin), BackOffMin
}

// Stop ends accepting permanently. The listener's Interest is 0 from now on.
func (l *Listener) Stop() { l.state = stopped }

// Accept accepts one connection and returns its descriptor, or -1. The peer's address is written
// to addr. The value at addrLen is the capacity of addr before the call and the length of the
// address afterwards. Both are in C memory. The outcomes:
//
// OK: a connection; with an errno if TCP_NODELAY could not be set. WouldBlock: the kernel's queue
// is empty. Skipped: one connection failed, and the next may succeed. Exhausted: no descriptors
// or memory, or maxRefusals failed connections in a row; the caller must call BackOff. Failed: an
// error of the listener, which has stopped; EBADF if the lease has ended.
func (l *Listener) Accept(c *Calls, addr, addrLen uintptr) (int, Outcome, syscall.Errno) {
	if !l.lease.Valid() {
		l.Stop()
		return -1, Failed, syscall.EBADF
	}
	fd, errno := c.Accept(int(l.lease.fd), addr, addrLen)
	refusals := l.refusedInARow
	l.refusedInARow = 0
	switch errno {
	case 0:
		l.retriedEarly, l.delay = false, BackOffMin
		if l.noDelay {
			errno = c.NoDelay(fd)
		}
		return fd, OK, errno
	case syscall.EAGAIN, syscall.EINTR:
		return -1, WouldBlock, 0
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM:
		return -1, Exhausted, errno
	case syscall.ECONNABORTED, syscall.ECONNRESET, syscall.EPERM, syscall.EPROTO,
		syscall.ENOPROTOOPT, syscall.EHOSTDOWN, syscall.EHOSTUNREACH,
		syscall.ENETDOWN, syscall.ENETUNREACH, syscall.EOPNOTSUPP,
		syscall.ETIMEDOUT, errnoNoNet:
		// accept(2), "Error handling": an error of this connection while it was queued, or a
		// firewall's refusal (EPERM). The next connection may succeed.
		if l.refusedInARow = refusals + 1; l.refusedInARow >= maxRefusals {
			l.refusedInARow = maxRefusals - 1 // back off again after one more failure
			return -1, Exhausted, errno
		}
		return -1, Skipped, errno
	default:
		l.Stop()
		return -1, Failed, errno
	}
}
