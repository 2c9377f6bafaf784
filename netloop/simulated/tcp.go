//go:build linux

package simulated

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// tcp is a TCP socket.
//
//	closed --listen--> listening
//	   | connect              | a SYN arrives
//	   v                      v
//	synSent             synReceived (a child)
//	   | SYN-ACK              | ACK: ready to be accepted
//	   '----> connected <-----'
//	            |  finOut: sending has ended; finIn: receiving has ended
//	            |  both, and the peer has our FIN; a reset, sent or received
//	            v
//	          closed
//
// tcp.stage is the separate state of connect(2), the state of Linux's struct socket.
type tcp struct {
	socket
	state  tcpState
	stage  stage
	remote address
	peer   *tcp
	orphan bool // closed by the program; queued data is still sent

	out            []byte // written by the program, not yet transmitted
	bytesInTransit int    // data sent and not yet acknowledged
	inbox          []byte // received, not yet read by the program
	finOut         bool   // sending has ended: a FIN follows the data
	finSent        bool
	finAcked       bool
	finIn          bool      // the peer's FIN has arrived
	refused        bool      // a send found no space: report when there is some
	coalescing     bool      // the next piece waits for more data
	arrives        int64     // when the last packet arrives
	inTransit      int       // packets in transit
	line           []segment // segments that the network does not transmit now
	again          *entry    // time of the retransmission
	lost           int       // number of retransmissions
	epoch          int       // number of the socket's connection
	earlyFin       bool      // the peer's FIN arrived before the connection was complete
	retry          *entry    // time of the next SYN
	tries          int       // number of SYNs sent
	waiting        []*tcp    // connections to accept
	incomplete     int       // number of incomplete connections
	host           *tcp      // the listener of this connection, until it is accepted
	boundPort      bool      // the program chose the port
	boundIP        bool      // the program chose the address
	alive          keepAlive
}

// tcpState is the state of a TCP socket's connection; see tcp.
type tcpState uint8

const (
	closed tcpState = iota
	listening
	synSent     // connecting
	synReceived // a child before the last packet of the handshake
	connected
)

// stage is the progress of connect(2) on a socket. It decides the result of the next connect(2) and
// listen(2).
type stage uint8

const (
	unconnected   stage = iota // no connect(2) is in progress
	connecting                 // connect(2) has not reported its result yet
	joined                     // connect(2) or accept(2) has succeeded
	disconnecting              // shut down while connecting
)

// A SYN is sent synTries times; the first pause is synPause.
const (
	synTries   = 7
	synPause   = 1_000_000_000
	maxSegment = 65483     // largest data of a segment in bytes
	maxHold    = 1_000_000 // longest wait of a piece for the next one
)

// newTCP returns a closed TCP socket of a family, without an owner.
func newTCP(k *Kernel, family int) *tcp {
	t := &tcp{socket: socket{
		family: family, kind: unix.SOCK_STREAM, sndbuf: tcpSendUsual, rcvbuf: tcpReceiveUsual,
		local: address{family: family},
	}}
	t.k, t.self = k, t
	return t
}

// poll returns the readiness. If a connection has no space to send, poll records this, and the
// acknowledgement that makes the socket writable causes an event.
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
		if t.shut&shutWrite != 0 || t.hasSpace() {
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

// hasSpace reports whether the socket is writable: a third of its send buffer is free.
func (t *tcp) hasSpace() bool { return t.sndbuf-t.queued >= t.queued/2 }

// bind is bind(2), with the errors of checkBind and bindPort. EINVAL unless the socket is closed.
func (t *tcp) bind(a address) syscall.Errno {
	if errno := t.checkBind(&a); errno != 0 {
		return errno
	}
	if t.state != closed {
		return syscall.EINVAL
	}
	errno := t.k.bindPort(&t.socket, a)
	if errno == 0 {
		t.remote, t.boundPort, t.boundIP = address{}, a.port != 0, !a.isAny()
	}
	return errno
}

// withAnyPort returns the socket's address with port 0, for bindPort to choose a port.
func (t *tcp) withAnyPort() address {
	a := t.local
	a.port = 0
	return a
}

// listen is listen(2); an unbound socket gets a port, and a second call sets the backlog. EINVAL for a
// socket that is connected or connecting.
func (t *tcp) listen(backlog int) syscall.Errno {
	if t.stage != unconnected || t.state != closed && t.state != listening {
		return syscall.EINVAL
	}
	if !t.bound {
		if errno := t.k.bindPort(&t.socket, t.withAnyPort()); errno != 0 {
			return errno
		}
	}
	t.state, t.listening, t.backlog = listening, true, backlog
	return 0
}

// accept removes the oldest complete connection from the backlog and returns it. EAGAIN if there is none,
// EINVAL if the socket does not listen.
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

// connect sends a SYN and returns EINPROGRESS, or reports the progress of an earlier connect: EALREADY, 0
// once after its success and EISCONN later, or its error, after which the socket is in its initial state.
// An address of AF_UNSPEC disconnects. EINVAL after a shutdown while connecting, EISCONN for a listener,
// ENETUNREACH for an address of no host. bad, an error in the address, is returned if a SYN would be
// sent.
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
	a.replaceWildcard()
	if t.k.hostOf(t.home, &a) == nil {
		return syscall.ENETUNREACH
	}
	if !t.bound {
		if errno := t.k.bindPort(&t.socket, t.withAnyPort()); errno != 0 {
			return errno
		}
	}
	t.home.setSource(&t.local, &a)
	t.remote, t.err, t.peer, t.tries = a, 0, nil, 0
	t.epoch++
	t.state, t.stage, t.finIn = synSent, connecting, false
	t.syn()
	return errno
}

// send copies bytes into the send buffer and transmits as much as the peer has space for. It returns the
// number of copied bytes. EAGAIN if the buffer is full or the connection is not established yet; else the
// pending error of an ended connection, or EPIPE. The address is ignored.
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
	n := min(t.k.writeSize(t, len(b)), t.sndbuf-t.queued)
	t.refused = t.refused || n < len(b)
	t.out = append(t.out, b[:n]...)
	t.queued += n
	t.transmitSendBuffer(false)
	return n, 0
}

// receive reads from the receive buffer and lets the peer send more. 0 is the end of the stream. EAGAIN if
// the buffer is empty, the pending error of an ended connection, or ENOTCONN for a listener or a socket
// without connection.
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
	n := copy(b, t.inbox[:t.k.readSize(t, min(len(b), len(t.inbox)))])
	if t.inbox = t.inbox[n:]; len(t.inbox) == 0 {
		t.inbox = nil
	}
	if p := t.peer; n > 0 && p != nil && len(p.out) > 0 {
		if net := t.network(); t.k.random.chance(net.SlowReader) {
			t.k.schedule(t.k.now+t.k.random.between(1, net.MaxSlow), "slow reader "+t.local.String(), func() { p.transmitSendBuffer(false) })
		} else {
			t.packet("window", 0, p, func() { p.transmitSendBuffer(false) })
		}
	}
	return n, nil, 0
}

// shutdown shuts down the halves in `how` (shutRead, shutWrite). A FIN follows the data of the send buffer.
// A listener is closed by shutRead, and a connecting socket is disconnected with a pending ECONNRESET.
// ENOTCONN for a closed socket, whose halves are shut nevertheless.
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
			t.transmitSendBuffer(true)
		}
	}
	t.wake(0)
	return errno
}

// disconnect ends a connection or a listener, with resets to the peers, and returns the socket to its
// initial state, except for its options. A port that the program has chosen stays bound.
func (t *tcp) disconnect() {
	t.dropQueued()
	wasOpen := t.state != closed
	if t.state == listening {
		t.unlisten()
	} else if t.state == connected || t.state == synReceived {
		t.abort()
		t.err = syscall.ECONNRESET
	}
	t.epoch++
	t.state, t.stage, t.shut = closed, unconnected, 0
	t.out, t.inbox, t.bytesInTransit, t.queued, t.peer = nil, nil, 0, 0, nil
	t.finOut, t.finSent, t.finAcked, t.finIn = false, false, false, false
	t.remote = address{}
	if !t.boundPort && wasOpen {
		t.k.releasePort(&t.socket)
	}
	if !t.boundIP {
		t.local.ip = [16]byte{}
	}
}

// unlisten ends the connections that wait to be accepted, with resets to their peers.
func (t *tcp) unlisten() {
	t.listening = false
	for _, child := range t.waiting {
		child.orphan = true
		child.abort()
	}
	t.waiting = nil
}

// release is close(2). Written data is still sent, unless received data is unread or the program has
// disabled lingering: then the peer gets a reset.
func (t *tcp) release() {
	t.orphan = true
	switch t.state {
	case listening:
		t.state = closed
		t.unlisten()
	case synSent:
		t.dropQueued()
		t.state = closed
	case synReceived, connected:
		t.shut = shutBoth
		if len(t.inbox) > 0 || t.waitLinger && t.linger == 0 {
			t.abort()
			break
		}
		t.finOut = true
		t.transmitSendBuffer(true)
		if t.waitLinger {
			t.k.waitLinger(t)
		}
	}
	if t.state == closed {
		t.k.releasePort(&t.socket)
	}
}

// waitLinger waits until the peer has received all data and the FIN, or the connection has ended, at most
// for the time of SO_LINGER.
func (k *Kernel) waitLinger(t *tcp) {
	deadline := k.now + t.linger
	for t.state != closed && !t.finAcked {
		if ended, errno := k.stepWait(deadline); ended || errno != 0 {
			return
		}
	}
}

// breakConnection makes an established connection fail with an errno, and sends a reset to the peer.
func (t *tcp) breakConnection(errno syscall.Errno) {
	if t.state == connected {
		t.abort()
		t.err = errno
		t.wake(0)
	}
}

// peerName is getpeername(2). ENOTCONN unless the connection is established.
func (t *tcp) peerName() (address, syscall.Errno) {
	if t.remote.port == 0 || t.state == closed || t.state == synSent {
		return address{}, syscall.ENOTCONN
	}
	return t.remote, 0
}
