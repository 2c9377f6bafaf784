//go:build linux

package simulated

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// tcp is a stream of the internet.
//
//	closed --listen--> listening
//	   | connect              | a SYN arrives
//	   v                      v
//	synSent             synReceived (a child)
//	   | SYN-ACK              | ACK: to be accepted
//	   '----> connected <-----'
//	            |  finOut: no more is sent; finIn: no more comes
//	            |  both, and the peer has ours; a reset, sent or received
//	            v
//	          closed
//
// stage is what connect(2) remembers beside that (struct socket's state).
type tcp struct {
	socket
	state  tcpState
	stage  stage
	remote address
	peer   *tcp
	orphan bool // closed by the program; the rest goes out by itself

	out       []byte // sent by the program, not yet on its way
	flying    int    // bytes on their way
	inbox     []byte
	finOut    bool
	finSent   bool
	finAcked  bool
	finIn     bool
	refused   bool      // a send found no room: the next room is told
	held      bool      // the next piece waits for more
	arrives   int64     // when the last packet arrives
	onTheWay  int       // packets
	line      []segment // what the network does not take now
	again     *entry    // when that is tried again
	lost      int       // how often it was
	epoch     int       // counts its connections
	earlyFin  bool      // the peer's end came before the connection was complete
	retry     *entry
	tries     int
	waiting   []*tcp // connections to accept
	embryos   int    // that are not complete
	host      *tcp   // where this one waits to be accepted
	askedPort bool   // the program chose the port
	askedIP   bool   // and the address
	alive     keepAlive
}

type tcpState uint8

const (
	closed tcpState = iota
	listening
	synSent
	synReceived
	connected
)

type stage uint8

const (
	unconnected stage = iota
	connecting
	joined
	disconnecting
)

// A SYN is sent synTries times, the first pause being synPause.
const (
	synTries    = 7
	synPause    = 1_000_000_000
	segmentMost = 65483
	holdMost    = 1_000_000 // how long a piece waits for the one behind it
)

func newTCP(k *Kernel, family int) *tcp {
	t := &tcp{socket: socket{
		family: family, kind: unix.SOCK_STREAM, sndbuf: tcpSendUsual, rcvbuf: tcpReceiveUsual,
		local: address{family: family},
	}}
	t.k, t.self = k, t
	return t
}

func (t *tcp) poll() uint32 {
	var events uint32
	if t.state == listening {
		if len(t.waiting) > 0 {
			events = inEvents
		}
		return events
	}
	if t.shut == shutBoth || t.state == closed {
		events |= unix.EPOLLHUP
	}
	if t.shut&shutRead != 0 {
		events |= inEvents | unix.EPOLLRDHUP
	}
	if t.state != synSent && t.state != synReceived {
		if len(t.inbox) > 0 {
			events |= inEvents
		}
		if t.shut&shutWrite != 0 || t.roomy() {
			events |= outEvents
		} else {
			t.refused = true
		}
	}
	if t.err != 0 {
		events |= unix.EPOLLERR
	}
	return events
}

// roomy tells whether a third of the buffer is free.
func (t *tcp) roomy() bool { return t.sndbuf-t.queued >= t.queued/2 }

func (t *tcp) bind(a address) syscall.Errno {
	if errno := t.mayBind(&a); errno != 0 {
		return errno
	}
	if t.state != closed {
		return syscall.EINVAL
	}
	errno := t.k.bindPort(&t.socket, a)
	if errno == 0 {
		t.remote, t.askedPort, t.askedIP = address{}, a.port != 0, !a.isAny()
	}
	return errno
}

// anyPort is the socket's address, with a port that is to be chosen.
func (t *tcp) anyPort() address {
	a := t.local
	a.port = 0
	return a
}

func (t *tcp) listen(backlog int) syscall.Errno {
	if t.stage != unconnected || t.state != closed && t.state != listening {
		return syscall.EINVAL
	}
	if !t.bound {
		if errno := t.k.bindPort(&t.socket, t.anyPort()); errno != 0 {
			return errno
		}
	}
	t.state, t.listening, t.backlog = listening, true, backlog
	return 0
}

func (t *tcp) accept() (endpoint, syscall.Errno) {
	switch {
	case t.state != listening:
		return nil, syscall.EINVAL
	case len(t.waiting) == 0:
		return nil, syscall.EAGAIN
	}
	child := t.waiting[0]
	t.waiting, child.host, child.stage = t.waiting[1:], nil, joined
	return child, 0
}

func (t *tcp) connect(a address, bad syscall.Errno) syscall.Errno {
	if bad == 0 && a.family == unix.AF_UNSPEC {
		t.disconnect()
		return 0
	}
	errno := syscall.EINPROGRESS
	switch t.stage {
	case joined:
		return syscall.EISCONN
	case disconnecting:
		return syscall.EINVAL
	case connecting:
		if t.state == synSent || t.state == synReceived {
			return syscall.EALREADY
		}
		if t.state == closed {
			if errno = t.takeError(); errno == 0 {
				errno = syscall.ECONNABORTED
			}
			t.disconnect()
			return errno
		}
		t.stage = joined
		return 0
	}
	if t.state != closed {
		return syscall.EISCONN
	}
	if bad != 0 {
		return bad
	}
	a.loopback()
	if t.k.hostOf(t.home, &a) == nil {
		return syscall.ENETUNREACH
	}
	if !t.bound {
		if errno := t.k.bindPort(&t.socket, t.anyPort()); errno != 0 {
			return errno
		}
	}
	t.home.source(&t.local, &a)
	t.remote, t.err, t.peer, t.tries = a, 0, nil, 0
	t.epoch++
	t.state, t.stage, t.finIn = synSent, connecting, false
	t.syn()
	return errno
}

func (t *tcp) send(b []byte, _ *address) (int, syscall.Errno) {
	switch {
	case t.state == synSent || t.state == synReceived:
		return -1, syscall.EAGAIN
	case t.state != connected || t.err != 0 || t.finOut || t.shut&shutWrite != 0:
		if errno := t.takeError(); errno != 0 {
			return -1, errno
		}
		return -1, syscall.EPIPE
	case len(b) == 0:
		return 0, 0
	case t.queued >= t.sndbuf:
		t.refused = true
		return -1, syscall.EAGAIN
	}
	n := min(t.k.writePart(t, len(b)), t.sndbuf-t.queued)
	t.refused = t.refused || n < len(b)
	t.out = append(t.out, b[:n]...)
	t.queued += n
	t.pump(false)
	return n, 0
}

func (t *tcp) receive(b []byte) (int, *address, syscall.Errno) {
	if t.state == listening {
		return -1, nil, syscall.ENOTCONN
	}
	if len(t.inbox) == 0 {
		switch {
		case t.finIn:
			return 0, nil, 0
		case t.err != 0:
			return -1, nil, t.takeError()
		case t.shut&shutRead != 0:
			return 0, nil, 0
		case t.state == closed:
			return -1, nil, syscall.ENOTCONN
		}
		return -1, nil, syscall.EAGAIN
	}
	n := copy(b, t.inbox[:t.k.readPart(t, min(len(b), len(t.inbox)))])
	if t.inbox = t.inbox[n:]; len(t.inbox) == 0 {
		t.inbox = nil
	}
	if p := t.peer; n > 0 && p != nil && len(p.out) > 0 {
		if net := t.network(); t.k.random.chance(net.SlowReader) {
			t.k.at(t.k.now+t.k.random.between(1, net.SlowMost), "slow reader "+t.local.String(), func() { p.pump(false) })
		} else {
			t.packet("window", 0, p, func() { p.pump(false) })
		}
	}
	return n, nil, 0
}

func (t *tcp) shutdown(how uint8) syscall.Errno {
	if t.stage == connecting {
		if t.stage = joined; t.state == synSent || t.state == closed {
			t.stage = disconnecting
		}
	}
	var errno syscall.Errno
	switch t.state {
	case closed:
		errno = syscall.ENOTCONN
		t.shut |= how
	case listening:
		if how&shutRead != 0 {
			t.disconnect()
		}
	case synSent:
		t.disconnect()
		t.err = syscall.ECONNRESET
	default:
		t.shut |= how
		if how&shutWrite != 0 {
			t.finOut = true
			t.pump(true)
		}
	}
	t.wake(0)
	return errno
}

// disconnect makes the socket as new, but for its options.
func (t *tcp) disconnect() {
	t.quiet()
	wasOpen := t.state != closed
	if t.state == listening {
		t.unlisten()
	} else if t.state == connected || t.state == synReceived {
		t.abort()
		t.err = syscall.ECONNRESET
	}
	t.epoch++
	t.state, t.stage, t.shut = closed, unconnected, 0
	t.out, t.inbox, t.flying, t.queued, t.peer = nil, nil, 0, 0, nil
	t.finOut, t.finSent, t.finAcked, t.finIn = false, false, false, false
	t.remote = address{}
	if !t.askedPort && wasOpen {
		t.k.leavePort(&t.socket)
	}
	if !t.askedIP {
		t.local.ip = [16]byte{}
	}
}

func (t *tcp) unlisten() {
	t.listening = false
	for _, child := range t.waiting {
		child.orphan = true
		child.abort()
	}
	t.waiting = nil
}

// release is close(2). What was sent still goes out, unless bytes are left unread or the program
// wants none to linger: then the peer gets a reset.
func (t *tcp) release() {
	t.orphan = true
	switch t.state {
	case listening:
		t.state = closed
		t.unlisten()
	case synSent:
		t.quiet()
		t.state = closed
	case synReceived, connected:
		t.shut = shutBoth
		if len(t.inbox) > 0 || t.lingers && t.linger == 0 {
			t.abort()
			break
		}
		t.finOut = true
		t.pump(true)
		if t.lingers {
			t.k.lingers(t)
		}
	}
	if t.state == closed {
		t.k.leavePort(&t.socket)
	}
}

// lingers waits until the peer has all, at most for the time that the program has set.
func (k *Kernel) lingers(t *tcp) {
	deadline := k.now + t.linger
	for t.state != closed && !t.finAcked {
		if ended, errno := k.idle(deadline); ended || errno != 0 {
			return
		}
	}
}

func (t *tcp) breakOff(errno syscall.Errno) {
	if t.state == connected {
		t.abort()
		t.err = errno
		t.wake(0)
	}
}

func (t *tcp) peerName() (address, syscall.Errno) {
	if t.remote.port == 0 || t.state == closed || t.state == synSent {
		return address{}, syscall.ENOTCONN
	}
	return t.remote, 0
}
