//go:build linux

package simulated

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// unixDatagram is a Unix socket of type SOCK_DGRAM.
type unixDatagram struct {
	socket
	peer     *unixDatagram // set by connect(2) or socketpair(2)
	inbox    []piece       // received datagrams, oldest first
	released bool          // closed
}

// maxInbox is the limit of datagrams in an inbox from senders that are not its peer
// (net.unix.max_dgram_qlen).
const maxInbox = 10

// newUnixDatagram returns an unnamed socket without an owner.
func newUnixDatagram(k *Kernel) *unixDatagram {
	u := &unixDatagram{socket: socket{
		family: unix.AF_UNIX, kind: unix.SOCK_DGRAM, sndbuf: bufferUsual, rcvbuf: bufferUsual,
		local: address{family: unix.AF_UNIX},
	}}
	u.k, u.self = k, u
	return u
}

// poll returns the readiness. The socket is writable if its buffer has space and the peer's inbox is not
// full; the inbox of a peer that is connected to this socket has no limit.
func (u *unixDatagram) poll() uint32 {
	events := u.datagramEvents(len(u.inbox))
	if u.hasSpace() && (u.peer == nil || u.peer.peer == u || len(u.peer.inbox) <= maxInbox) {
		events |= outEvents
	}
	return events
}

// bind is bind(2).
func (u *unixDatagram) bind(a address) syscall.Errno { return u.k.bindName(&u.socket, a) }

// connect sets the peer by its name. AF_UNSPEC removes the peer. EPERM if the other socket has another
// peer, else the errors of socketByName.
func (u *unixDatagram) connect(a address, bad syscall.Errno) syscall.Errno {
	if bad != 0 {
		return bad
	}
	if a.family == unix.AF_UNSPEC {
		u.setPeer(nil)
		return 0
	}
	other, errno := u.find(a)
	if errno != 0 {
		return errno
	}
	if other.peer != nil && other.peer != u {
		return syscall.EPERM
	}
	u.setPeer(other)
	return 0
}

// setPeer sets another peer; nil: none. If this replaces a peer and datagrams in this socket's inbox are
// unread, they are discarded, and the earlier peer gets ECONNRESET if it is connected to this socket.
func (u *unixDatagram) setPeer(other *unixDatagram) {
	last := u.peer
	u.peer = other
	if last == nil || last == other || len(u.inbox) == 0 {
		return
	}
	u.drain()
	if last.peer == u && !last.released {
		last.err = syscall.ECONNRESET
		last.wake(unix.EPOLLERR)
	}
}

// find returns the datagram socket with a name on the same host.
func (u *unixDatagram) find(a address) (*unixDatagram, syscall.Errno) {
	s, errno := u.home.socketByName(a, unix.SOCK_DGRAM)
	if errno != 0 {
		return nil, errno
	}
	return s.self.(*unixDatagram), 0
}

// send appends a datagram to the inbox of the socket with the address `to`, or of the peer if `to` is
// nil. EMSGSIZE if it is longer than the buffer; else the pending error; EPIPE if this side's writing or
// the receiver's reading is shut; EAGAIN if either side has no space; ENOTCONN without a peer;
// ECONNREFUSED if the receiver is closed, and a closed peer is then removed; EPERM if the receiver has
// another peer; else the errors of socketByName.
func (u *unixDatagram) send(b []byte, to *address) (int, syscall.Errno) {
	other := u.peer
	if to != nil && to.bad != 0 {
		return -1, to.bad
	}
	if len(b) > u.sndbuf-32 {
		return -1, syscall.EMSGSIZE
	}
	if errno := u.takeError(); errno != 0 {
		return -1, errno
	}
	switch {
	case u.shut&shutWrite != 0:
		return -1, syscall.EPIPE
	case u.queued >= u.sndbuf:
		return -1, syscall.EAGAIN
	}
	if to != nil {
		var errno syscall.Errno
		if other, errno = u.find(*to); errno != 0 {
			return -1, errno
		}
	}
	switch {
	case other == nil:
		return -1, syscall.ENOTCONN
	case other.released:
		if other == u.peer {
			u.setPeer(nil)
		}
		return -1, syscall.ECONNREFUSED
	case other.peer != nil && other.peer != u:
		return -1, syscall.EPERM
	case other.shut&shutRead != 0:
		return -1, syscall.EPIPE
	case other != u && other.peer != u && len(other.inbox) > maxInbox:
		return -1, syscall.EAGAIN
	}
	p := piece{data: append([]byte(nil), b...), cost: cost(len(b)), from: &u.socket}
	u.queued += p.cost
	other.inbox = append(other.inbox, p)
	other.wake(inEvents)
	return len(b), 0
}

// receive removes the oldest datagram from the inbox, copies as much as fits into b, discards the rest of
// the datagram, and returns the copied size and the sender's address, nil if the sender has no name.
// EAGAIN if the inbox is empty. A pending error is returned first.
func (u *unixDatagram) receive(b []byte) (int, *address, syscall.Errno) {
	if errno := u.takeError(); errno != 0 {
		return -1, nil, errno
	}
	if len(u.inbox) == 0 {
		return -1, nil, syscall.EAGAIN
	}
	p := u.inbox[0]
	u.inbox = u.inbox[1:]
	u.returnSpace(&p)
	if p.from.local.name != "" { // the sender may have got its name after it sent
		p.name = &p.from.local
	}
	return copy(b, p.data), p.name, 0
}

// shutdown shuts down the halves in `how` of this socket only.
func (u *unixDatagram) shutdown(how uint8) syscall.Errno {
	u.shut |= how
	u.wake(0)
	return 0
}

// release is close(2): the name is freed and pending datagrams are discarded. Sends to the socket fail from
// now on.
func (u *unixDatagram) release() {
	u.released = true
	u.k.releaseName(&u.socket)
	if other := u.peer; other != nil {
		u.peer = nil
		if other.peer == u {
			other.wake(outEvents)
		}
	}
	u.drain()
}

// drain discards the inbox and returns its buffer space to the senders.
func (u *unixDatagram) drain() {
	inbox := u.inbox
	u.inbox = nil
	for i := range inbox {
		u.returnSpace(&inbox[i])
	}
}

// peerName is getpeername(2). ENOTCONN without a peer. The address of an unnamed peer has an empty name.
func (u *unixDatagram) peerName() (address, syscall.Errno) {
	if u.peer == nil {
		return address{}, syscall.ENOTCONN
	}
	return u.peer.local, 0
}
