package transports

import "syscall"

// A listener:
//
//	            out of descriptors or memory,
//	            or nothing but refusals
//	  listening ----------------------------> backing off
//	      |     <----------------------------
//	      |      the delay is over, or early:
//	      |      a descriptor was closed
//	      |
//	      | any error of the listener itself
//	      v
//	   stopped
//
// A listener that backs off is not polled: the connection that could not be accepted
// stays in the kernel's queue and would make the poller spin. Each delay is twice as
// long as the one before, until a connection is accepted.

// BackOffLeast and BackOffMost are how long a listener backs off, in ns. The latter,
// asyncio's ACCEPT_RETRY_DELAY, also lies between two reports.
const (
	BackOffLeast = 10_000_000
	BackOffMost  = 1_000_000_000
)

// refusalsMost is how many connections in a row a firewall or the network may spoil before the
// listener backs off: a filter of system calls that forbids accept4 spoils all of them, and each
// try would be in vain. More than that wait in no usual queue.
const refusalsMost = 128

type listenerState uint8

const (
	listening listenerState = iota
	backingOff
	stopped
)

// Listener accepts the connections of one listening socket.
type Listener struct {
	lease    Lease
	perTurn  int32
	noDelay  bool // its connections are TCP
	state    listenerState
	refusals uint8 // since a connection was accepted, or none was there
	early    bool  // it went on before its delay was over
	reported bool  // at reportAt
	resumeAt int64 // when the delay is over
	delay    int64 // the length of the next
	reportAt int64
}

// NewListener makes a machine for a non-blocking listening socket, which is to
// be asked for at most perTurn connections in one turn. With noDelay each of these
// gets TCP_NODELAY.
func NewListener(l Lease, perTurn int32, noDelay bool) *Listener {
	return &Listener{lease: l, perTurn: max(perTurn, 1), noDelay: noDelay, delay: BackOffLeast}
}

// Held tells whether the descriptor is still its owner's.
func (l *Listener) Held() bool { return l.lease.Held() }

// PerTurn is the most connections to accept in one turn.
func (l *Listener) PerTurn() int { return int(l.perTurn) }

// Interest is what the poller should be asked for.
func (l *Listener) Interest() Interest {
	if l.state == listening {
		return Readable
	}
	return 0
}

// BackingOff tells whether the listener backs off, and until when.
func (l *Listener) BackingOff() (until int64, yes bool) {
	return l.resumeAt, l.state == backingOff
}

// Early tells whether the listener went on before its delay was over.
func (l *Listener) Early() bool { return l.early }

// BackOff stops accepting for a while, and tells whether that is to be reported. A try
// that came early neither puts off the end of the delay nor lengthens the next.
func (l *Listener) BackOff(now int64) (report bool) {
	l.state = backingOff
	if !l.early || l.resumeAt <= now {
		l.resumeAt = now + l.delay
		l.delay = min(2*l.delay, BackOffMost)
	}
	l.early = false
	if l.reported && now-l.reportAt < BackOffMost {
		return false
	}
	l.reported, l.reportAt = true, now
	return true
}

// Resume goes on after a delay.
func (l *Listener) Resume(now int64) {
	if l.state == backingOff {
		l.state, l.early = listening, now < l.resumeAt
	}
}

// Hasten makes the delay a short one: things may have changed.
func (l *Listener) Hasten(now int64) {
	l.resumeAt, l.delay = min(l.resumeAt, now+BackOffLeast), BackOffLeast
}

// Stop ends accepting for good.
func (l *Listener) Stop() { l.state = stopped }

// Accept accepts one connection. The peer's address and its length, which holds
// the room for it beforehand, are at addr and addrLen in C memory. After Exhausted
// the caller calls BackOff; after Failed the listener has stopped. Got comes with an
// errno where TCP_NODELAY could not be set; the connection is the caller's all the same.
func (l *Listener) Accept(c *Calls, addr, addrLen uintptr) (int, Outcome, syscall.Errno) {
	if !l.lease.Held() {
		l.Stop()
		return -1, Failed, syscall.EBADF
	}
	fd, errno := c.Accept(int(l.lease.fd), addr, addrLen)
	refusals := l.refusals
	l.refusals = 0
	switch errno {
	case 0:
		l.early, l.delay = false, BackOffLeast
		if l.noDelay {
			errno = c.NoDelay(fd)
		}
		return fd, Got, errno
	case syscall.EAGAIN, syscall.EINTR:
		return -1, Nothing, 0
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM:
		return -1, Exhausted, errno
	case syscall.ECONNABORTED, syscall.ECONNRESET, syscall.EPERM, syscall.EPROTO,
		syscall.ENOPROTOOPT, syscall.EHOSTDOWN, syscall.EHOSTUNREACH,
		syscall.ENETDOWN, syscall.ENETUNREACH, syscall.EOPNOTSUPP,
		syscall.ETIMEDOUT, errnoNoNet:
		// accept(2), "Error handling": what befell this connection while it was
		// queued, or a firewall's refusal (EPERM); the next one may be well.
		if l.refusals = refusals + 1; l.refusals >= refusalsMost {
			l.refusals = refusalsMost - 1 // one more says that nothing has changed
			return -1, Exhausted, errno
		}
		return -1, Skipped, errno
	default:
		l.Stop()
		return -1, Failed, errno
	}
}
