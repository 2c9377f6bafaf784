//go:build linux

package simulated

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// udp is a UDP socket. A datagram to an address without a socket is answered by a message that becomes an
// error of the sender if the sender is connected.
type udp struct {
	socket
	connected  bool
	remote     address
	inbox      []piece // received datagrams, oldest first
	inboxSpace int     // buffer space of the inbox
}

// maxUDP is the largest payload of a UDP datagram in bytes.
const maxUDP = 65507

// headers is the number of bytes of a packet without its data, for the bandwidth of a link.
const headers = 40

// newUDP returns an unbound UDP socket of a family, without an owner.
func newUDP(k *Kernel, family int) *udp {
	u := &udp{socket: socket{
		family: family, kind: unix.SOCK_DGRAM, sndbuf: bufferUsual, rcvbuf: bufferUsual,
		local: address{family: family},
	}}
	u.k, u.self = k, u
	return u
}

// poll returns the readiness. A UDP socket is always writable.
func (u *udp) poll() uint32 {
	return outEvents | u.datagramEvents(len(u.inbox))
}

// bind is bind(2).
func (u *udp) bind(a address) syscall.Errno {
	if errno := u.checkBind(&a); errno != 0 {
		return errno
	}
	return u.k.bindPort(&u.socket, a)
}

// ensurePort binds the socket to a free port if it has no port. It returns the errno of bind(2).
func (u *udp) ensurePort() syscall.Errno {
	if u.socket.bound {
		return 0
	}
	return u.k.bindPort(&u.socket, u.local)
}

// connect sets the address to which the socket sends and from which it receives. AF_UNSPEC removes the
// address. The socket gets a port if it has none, also if connect then fails. `bad` is an error in the
// address, and is returned. ENETUNREACH for an address of no host.
func (u *udp) connect(a address, bad syscall.Errno) syscall.Errno {
	if bad == 0 && a.family == unix.AF_UNSPEC {
		u.connected = false
		return 0
	}
	if errno := u.ensurePort(); errno != 0 {
		return errno
	}
	if bad != 0 {
		return bad
	}
	a.replaceWildcard()
	if u.k.hostOf(u.home, &a) == nil {
		return syscall.ENETUNREACH
	}
	u.home.setSource(&u.local, &a)
	u.connected, u.remote = true, a
	return 0
}

// send sends a datagram to an address, or to the connected one if `to` is nil; an unbound socket gets a
// port. It returns len(b) also if the datagram will be lost. EMSGSIZE for a too long datagram,
// EDESTADDRREQ without an address, EAFNOSUPPORT or EINVAL for an address of another family or without a
// port, ENETUNREACH for an address of no host, EPIPE if writing is shut. Of a pending error and EPIPE the
// error is returned, and the datagram is not sent.
func (u *udp) send(b []byte, to *address) (int, syscall.Errno) {
	if errno := u.ensurePort(); errno != 0 {
		return -1, errno
	}
	target := u.remote
	switch {
	case len(b) > 0xffff:
		return -1, syscall.EMSGSIZE
	case to != nil && to.bad != 0:
		return -1, to.bad
	case to != nil && to.family != u.family:
		return -1, syscall.EAFNOSUPPORT
	case to != nil && to.port == 0:
		return -1, syscall.EINVAL
	case to != nil:
		target = *to
		target.replaceWildcard()
	case !u.connected:
		return -1, syscall.EDESTADDRREQ
	}
	other := u.k.hostOf(u.home, &target)
	if other == nil {
		return -1, syscall.ENETUNREACH
	}
	if len(b) > maxUDP {
		return -1, syscall.EMSGSIZE
	}
	if errno := u.takeError(); errno != 0 {
		return -1, errno
	}
	if u.shut&shutWrite != 0 {
		return -1, syscall.EPIPE
	}
	from := u.local
	u.home.setSource(&from, &target)
	p := piece{data: append([]byte(nil), b...), cost: cost(len(b)), from: &u.socket, name: &from}
	u.k.transmitDatagram(&p, target, u.k.linkBetween(u.home, other), other.number)
	u.wake(outEvents)
	return len(b), 0
}

// transmitDatagram transmits a datagram over a link to the host with this number: once, twice or not at
// all. Without latency it arrives within the call. A stalled link keeps the datagram.
func (k *Kernel) transmitDatagram(p *piece, target address, l *link, to int) {
	net := k.network(l)
	switch {
	case l.state == LinkStalled:
		l.delayed = append(l.delayed, func() { k.transmitDatagram(p, target, l, to) })
		return
	case l.state == LinkPartitioned || k.random.chance(net.Loss):
		k.trace.entry(k.now, "lost")
		return
	}
	left := k.departureTime(l, headers+len(p.data))
	times := 1 + intOfBool(k.random.chance(net.Duplicate))
	for range times {
		at := left + k.random.between(net.MinLatency, net.MaxLatency)
		if !k.random.chance(net.Reorder) {
			at = max(at, l.passing)
			l.passing = at
		}
		land := func() { k.hosts[to].runAtArrival(func() { k.deliverDatagram(p, target, k.hosts[to]) }) }
		if at == k.now {
			land()
			continue
		}
		k.schedule(at, "datagram"+k.pathText(p.name, &target, at), land)
	}
}

// deliverDatagram adds a datagram to the inbox of the socket with its destination. Without such a socket, a
// connected sender gets ECONNREFUSED if the link back to it is open. A full inbox drops the datagram.
func (k *Kernel) deliverDatagram(p *piece, target address, h *host) {
	s := h.ports[1].receiver(target, *p.name)
	if s == nil {
		if u := p.from.self.(*udp); u.connected && u.remote == target && k.linkBetween(h, u.home).state == LinkOpen {
			u.err = syscall.ECONNREFUSED
			u.wake(unix.EPOLLERR)
		}
		return
	}
	u := s.self.(*udp)
	if u.inboxSpace+p.cost > u.rcvbuf {
		k.trace.entry(k.now, "dropped")
		return
	}
	u.inboxSpace += p.cost
	u.inbox = append(u.inbox, *p)
	u.wake(inEvents)
}

// receive removes the oldest datagram from the inbox, copies as much as fits into b, discards the rest of
// the datagram, and returns the copied size and the sender. EAGAIN if the inbox is empty. A pending error
// is returned first.
func (u *udp) receive(b []byte) (int, *address, syscall.Errno) {
	if errno := u.takeError(); errno != 0 {
		return -1, nil, errno
	}
	if len(u.inbox) == 0 {
		return -1, nil, syscall.EAGAIN
	}
	p := u.inbox[0]
	u.inbox = u.inbox[1:]
	u.inboxSpace -= p.cost
	return copy(b, p.data), p.name, 0
}

// shutdown shuts down the halves in `how`. It returns ENOTCONN for an unconnected socket, whose halves are
// shut nevertheless.
func (u *udp) shutdown(how uint8) syscall.Errno {
	u.shut |= how
	u.wake(0)
	if !u.connected {
		return syscall.ENOTCONN
	}
	return 0
}

// release is close(2): the port becomes free.
func (u *udp) release() { u.k.releasePort(&u.socket) }

// peerName is getpeername(2). ENOTCONN for an unconnected socket.
func (u *udp) peerName() (address, syscall.Errno) {
	if !u.connected {
		return address{}, syscall.ENOTCONN
	}
	return u.remote, 0
}
