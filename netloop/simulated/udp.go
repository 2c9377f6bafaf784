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
	connected bool
	remote    address
	inbox     []piece
	held      int // buffer space of the inbox
}

const udpMost = 65507

// headers is the overhead of a packet.
const headers = 40

func newUDP(k *Kernel, family int) *udp {
	u := &udp{socket: socket{
		family: family, kind: unix.SOCK_DGRAM, sndbuf: bufferUsual, rcvbuf: bufferUsual,
		local: address{family: family},
	}}
	u.k, u.self = k, u
	return u
}

func (u *udp) poll() uint32 {
	return outEvents | u.datagramEvents(len(u.inbox))
}

func (u *udp) bind(a address) syscall.Errno {
	if errno := u.mayBind(&a); errno != 0 {
		return errno
	}
	return u.k.bindPort(&u.socket, a)
}

// withPort binds the socket to a port if it has none.
func (u *udp) ensurePort() syscall.Errno {
	if u.socket.bound {
		return 0
	}
	return u.k.bindPort(&u.socket, u.local)
}

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
	a.loopback()
	if u.k.hostOf(u.home, &a) == nil {
		return syscall.ENETUNREACH
	}
	u.home.source(&u.local, &a)
	u.connected, u.remote = true, a
	return 0
}

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
		target.loopback()
	case !u.connected:
		return -1, syscall.EDESTADDRREQ
	}
	other := u.k.hostOf(u.home, &target)
	if other == nil {
		return -1, syscall.ENETUNREACH
	}
	if len(b) > udpMost {
		return -1, syscall.EMSGSIZE
	}
	if errno := u.takeError(); errno != 0 {
		return -1, errno
	}
	if u.shut&shutWrite != 0 {
		return -1, syscall.EPIPE
	}
	from := u.local
	u.home.source(&from, &target)
	p := piece{data: append([]byte(nil), b...), cost: cost(len(b)), from: &u.socket, name: &from}
	u.k.travel(&p, target, u.k.between(u.home, other), other.number)
	u.wake(outEvents)
	return len(b), 0
}

// travel transmits a datagram: once, twice or not at all.
func (k *Kernel) travel(p *piece, target address, l *link, to int) {
	net := k.network(l)
	switch {
	case l.state == LinkStalled:
		l.held = append(l.held, func() { k.travel(p, target, l, to) })
		return
	case l.state == LinkPartitioned || k.random.chance(net.Loss):
		k.trace.entry(k.now, "lost")
		return
	}
	left := k.departureTime(l, headers+len(p.data))
	times := 1 + truth(k.random.chance(net.Duplicate))
	for range times {
		at := left + k.random.between(net.LatencyLeast, net.LatencyMost)
		if !k.random.chance(net.Reorder) {
			at = max(at, l.passing)
			l.passing = at
		}
		land := func() { k.hosts[to].arrive(func() { k.land(p, target, k.hosts[to]) }) }
		if at == k.now {
			land()
			continue
		}
		k.at(at, "datagram"+k.pathText(p.name, &target, at), land)
	}
}

// land adds a datagram to the inbox of the socket with its destination.
func (k *Kernel) land(p *piece, target address, h *host) {
	s := h.ports[1].at(target, *p.name)
	if s == nil {
		if u := p.from.self.(*udp); u.connected && u.remote == target && k.between(h, u.home).state == LinkOpen {
			u.err = syscall.ECONNREFUSED
			u.wake(unix.EPOLLERR)
		}
		return
	}
	u := s.self.(*udp)
	if u.held+p.cost > u.rcvbuf {
		k.trace.entry(k.now, "dropped")
		return
	}
	u.held += p.cost
	u.inbox = append(u.inbox, *p)
	u.wake(inEvents)
}

func (u *udp) receive(b []byte) (int, *address, syscall.Errno) {
	if errno := u.takeError(); errno != 0 {
		return -1, nil, errno
	}
	if len(u.inbox) == 0 {
		return -1, nil, syscall.EAGAIN
	}
	p := u.inbox[0]
	u.inbox = u.inbox[1:]
	u.held -= p.cost
	return copy(b, p.data), p.name, 0
}

func (u *udp) shutdown(how uint8) syscall.Errno {
	u.shut |= how
	u.wake(0)
	if !u.connected {
		return syscall.ENOTCONN
	}
	return 0
}

func (u *udp) release() { u.k.releasePort(&u.socket) }

func (u *udp) peerName() (address, syscall.Errno) {
	if !u.connected {
		return address{}, syscall.ENOTCONN
	}
	return u.remote, 0
}
