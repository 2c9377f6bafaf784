//go:build linux

package simulated

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// unixStream is a Unix socket of type SOCK_STREAM. Pieces wait in the receiver's queue and count against
// the sender's buffer until they are read.
//
//	closed --connect--> connected --the peer is closed--> connected, both halves shut
//	   '----listen----> listening
type unixStream struct {
	socket
	peer       *unixStream // nil once it is closed
	formerPeer *unixStream // the peer, also after it is closed
	connected  bool
	inbox      []piece
	waiting    []*unixStream // connections to accept
	host       *unixStream   // the listener of this connection, until it is accepted
}

// piece is the data of one send in a queue.
type piece struct {
	data []byte
	cost int // buffer space, see cost()
	from *socket
	name *address // sender of a datagram
}

// maxPiece is the largest piece of a stream, in bytes.
const maxPiece = 48832

// newUnixStream returns an unnamed, unconnected socket without an owner.
func newUnixStream(k *Kernel) *unixStream {
	u := &unixStream{socket: socket{
		family: unix.AF_UNIX, kind: unix.SOCK_STREAM, sndbuf: bufferUsual, rcvbuf: bufferUsual,
		local: address{family: unix.AF_UNIX},
	}}
	u.k, u.self = k, u
	return u
}

// join connects two sockets.
func (u *unixStream) join(other *unixStream) {
	u.peer, other.peer = other, u
	u.formerPeer, other.formerPeer = other, u
	u.connected, other.connected = true, true
}

// poll returns the readiness; see node.
func (u *unixStream) poll() uint32 {
	var events uint32
	if u.err != 0 {
		events |= unix.EPOLLERR
	}
	if u.shut == shutBoth {
		events |= unix.EPOLLHUP
	}
	if u.shut&shutRead != 0 {
		events |= inEvents | unix.EPOLLRDHUP
	}
	if len(u.inbox) > 0 || len(u.waiting) > 0 {
		events |= inEvents
	}
	if !u.connected && !u.listening {
		events |= unix.EPOLLHUP
	}
	if !u.listening && u.hasSpace() {
		events |= outEvents
	}
	return events
}

// hasSpace reports whether a Unix socket is writable: at most a quarter of its buffer is in use.
func (s *socket) hasSpace() bool { return 4*s.queued <= s.sndbuf }

// returnSpace returns the buffer space of a piece, which was read or discarded, to its sender.
func (s *socket) returnSpace(p *piece) {
	if p.from.queued -= p.cost; p.from.hasSpace() {
		p.from.wake(outEvents)
	}
}

// bind is bind(2).
func (u *unixStream) bind(a address) syscall.Errno { return u.k.bindName(&u.socket, a) }

// listen is listen(2); a second call sets the backlog. EINVAL for a socket without a name and for a
// connected socket.
func (u *unixStream) listen(backlog int) syscall.Errno {
	if u.local.name == "" || u.connected {
		return syscall.EINVAL
	}
	u.listening, u.backlog = true, backlog
	return 0
}

// connect creates the other end in the listener's backlog. The connection is established at once, so it
// never returns EINPROGRESS. EAGAIN if the backlog is full, ECONNREFUSED if the named socket does not
// listen, EISCONN for a connected socket, EINVAL for a listener; else the errors of socketByName.
func (u *unixStream) connect(a address, bad syscall.Errno) syscall.Errno {
	if bad != 0 {
		return bad
	}
	if a.family != unix.AF_UNIX {
		return syscall.EINVAL
	}
	s, errno := u.home.socketByName(a, unix.SOCK_STREAM)
	if errno != 0 {
		return errno
	}
	host := s.self.(*unixStream)
	switch {
	case !host.listening || host.shut&shutRead != 0:
		return syscall.ECONNREFUSED
	case len(host.waiting) > host.backlog:
		return syscall.EAGAIN
	case u.listening:
		return syscall.EINVAL
	case u.connected:
		return syscall.EISCONN
	}
	child := newUnixStream(u.k)
	child.local = host.local
	child.host, child.owner = host, host.owner
	child.join(u)
	host.waiting = append(host.waiting, child)
	host.wake(inEvents)
	return 0
}

// accept removes the oldest connection from the backlog and returns it. EAGAIN if there is none, EINVAL if
// the socket does not listen.
func (u *unixStream) accept() (endpoint, syscall.Errno) {
	switch {
	case !u.listening:
		return nil, syscall.EINVAL
	case len(u.waiting) == 0:
		return nil, syscall.EAGAIN
	}
	child := u.waiting[0]
	u.waiting, child.host = u.waiting[1:], nil
	u.wake(outEvents)
	return child, 0
}

// send appends bytes to the peer's inbox, in pieces, and returns the number of bytes. EAGAIN if the buffer
// is full, EPIPE if the peer is closed or a half is shut, ENOTCONN without a peer. `to` must be nil:
// EISCONN or EOPNOTSUPP.
func (u *unixStream) send(b []byte, to *address) (int, syscall.Errno) {
	switch {
	case to != nil && u.connected:
		return -1, syscall.EISCONN
	case to != nil:
		return -1, syscall.EOPNOTSUPP
	case !u.connected:
		return -1, syscall.ENOTCONN
	case u.shut&shutWrite != 0:
		return -1, syscall.EPIPE
	}
	b = b[:u.k.writeSize(u, len(b))]
	n := 0
	for n < len(b) {
		if errno := u.takeError(); errno != 0 {
			return -1, errno
		}
		if u.queued >= u.sndbuf {
			break
		}
		if u.peer == nil || u.peer.shut&shutRead != 0 {
			return -1, syscall.EPIPE
		}
		size := min(len(b)-n, u.sndbuf/2-64, maxPiece)
		p := piece{data: append([]byte(nil), b[n:n+size]...), cost: cost(size), from: &u.socket}
		u.queued += p.cost
		u.peer.inbox = append(u.peer.inbox, p)
		u.peer.wake(inEvents)
		n += size
	}
	if n == 0 && len(b) > 0 {
		return -1, syscall.EAGAIN
	}
	return n, 0
}

// receive reads from the inbox, also across pieces. 0 is the end of the stream. EAGAIN if the inbox is
// empty, EINVAL for an unconnected socket, or the pending error.
func (u *unixStream) receive(b []byte) (int, *address, syscall.Errno) {
	if !u.connected {
		return -1, nil, syscall.EINVAL
	}
	if len(u.inbox) == 0 {
		if errno := u.takeError(); errno != 0 {
			return -1, nil, errno
		}
		if u.shut&shutRead != 0 {
			return 0, nil, 0
		}
		return -1, nil, syscall.EAGAIN
	}
	b = b[:u.k.readSize(u, len(b))]
	n := 0
	for n < len(b) && len(u.inbox) > 0 {
		first := &u.inbox[0]
		copied := copy(b[n:], first.data)
		n += copied
		if first.data = first.data[copied:]; len(first.data) == 0 {
			p := u.inbox[0]
			u.inbox = u.inbox[1:]
			u.returnSpace(&p)
		}
	}
	return n, nil, 0
}

// shutdown shuts down the halves in `how`, and the opposite halves of the peer.
func (u *unixStream) shutdown(how uint8) syscall.Errno {
	u.shut |= how
	if u.peer != nil {
		u.peer.shut |= how>>1 | how<<1&shutBoth
		u.peer.wake(0)
	}
	u.wake(0)
	return 0
}

// release is close(2): the peer reads the end of the stream, or ECONNRESET if this side had unread bytes.
// The peers of connections in the backlog get ECONNRESET. A path stays until it is unlinked.
func (u *unixStream) release() {
	u.k.releaseName(&u.socket)
	u.disconnect(syscall.ECONNRESET)
	for _, child := range u.waiting {
		child.disconnect(syscall.ECONNRESET)
		child.drain()
	}
	u.waiting = nil
	u.drain()
}

// disconnect separates both sides; it does nothing without a peer. The other side is shut, and gets the
// errno if this side has unread bytes or was not accepted.
func (u *unixStream) disconnect(errno syscall.Errno) {
	other := u.peer
	if other == nil {
		return
	}
	u.peer, other.peer = nil, nil
	other.shut = shutBoth
	if len(u.inbox) > 0 || u.host != nil {
		other.err = errno
	}
	other.wake(0)
}

// drain discards the inbox and returns its buffer space to the sender.
func (u *unixStream) drain() {
	inbox := u.inbox
	u.inbox = nil
	for i := range inbox {
		u.returnSpace(&inbox[i])
	}
}

// breakConnection makes the connection fail with an errno on this side and ends the other side. ETIMEDOUT
// has no effect.
func (u *unixStream) breakConnection(errno syscall.Errno) {
	if u.peer != nil && errno != syscall.ETIMEDOUT { // Unix sockets have no timeouts
		u.host = nil
		u.err, u.shut = errno, shutBoth
		u.disconnect(syscall.ECONNRESET)
		u.wake(0)
	}
}

// peerName is getpeername(2). It still returns the address after the peer is closed. ENOTCONN for a
// socket that was never connected.
func (u *unixStream) peerName() (address, syscall.Errno) {
	if !u.connected {
		return address{}, syscall.ENOTCONN
	}
	return u.formerPeer.local, 0
}
