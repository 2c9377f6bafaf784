//go:build linux

package simulated

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// The packets of TCP. Those of one direction stay in order. What takes no time arrives within the
// call that sends it, as on Linux's loopback.

// packet sends one; run is what it does where it arrives: unless that is in another connection by
// then.
func (t *tcp) packet(name string, to *tcp, run func()) {
	net := &t.k.options.Network
	at := t.k.now + t.k.random.between(net.LatencyLeast, net.LatencyMost)
	t.arrives = max(t.arrives, at)
	if t.arrives == t.k.now && t.onTheWay == 0 {
		run()
		return
	}
	t.onTheWay++
	epoch := to.epoch
	t.k.at(t.arrives, name+" from "+t.local.String(), func() {
		t.onTheWay--
		if to.epoch == epoch {
			run()
		}
	})
}

// syn asks for a connection, again and again while nobody answers.
func (t *tcp) syn() {
	if t.tries++; t.tries > synTries {
		t.fail(syscall.ETIMEDOUT)
		return
	}
	pause := int64(synPause) << (t.tries - 1)
	t.retry = t.k.at(t.k.now+pause, "retransmission from "+t.local.String(), t.syn)
	t.packet("syn", t, t.synArrives)
}

func (t *tcp) synArrives() {
	if t.state != synSent || t.peer != nil {
		return
	}
	s := t.k.ports[0].at(t.remote, t.local)
	if s == nil {
		t.packet("refusal", t, t.resetArrives)
		return
	}
	host := s.self.(*tcp)
	if len(host.waiting)+host.embryos > host.backlog {
		t.k.trace.entry(t.k.now, "dropped")
		return
	}
	child := newTCP(t.k, t.family)
	child.state, child.host, child.peer, t.peer = synReceived, host, t, child
	child.local, child.remote, child.askedPort = t.remote, t.local, false
	child.sndbuf, child.rcvbuf, child.reuse = host.sndbuf, host.rcvbuf, host.reuse
	child.shut = host.shut
	child.lingers, child.linger = host.lingers, host.linger
	child.options = append(child.options, host.options...)
	p := t.k.portsOf(&child.socket)
	child.bound = true
	p.taken[child.local.port] = append(p.taken[child.local.port], &child.socket)
	host.embryos++
	child.packet("syn-ack", t, func() { t.synAckArrives(child) })
}

func (t *tcp) synAckArrives(child *tcp) {
	if t.state != synSent || t.peer != child {
		child.host.embryos--
		child.orphan = true
		child.fail(syscall.ECONNRESET)
		return
	}
	t.retry.cancel()
	t.state = connected
	t.wake(0)
	t.packet("ack", child, child.ackArrives)
}

// ackArrives completes a child, at once or in a storm.
func (t *tcp) ackArrives() {
	if net := &t.k.options.Network; net.StormEvery > 0 && t.k.random.chance(net.Storm) {
		t.k.at((t.k.now/net.StormEvery+1)*net.StormEvery, "storm", t.completes)
		return
	}
	t.completes()
}

// completes makes a child wait to be accepted.
func (t *tcp) completes() {
	host := t.host
	host.embryos--
	if t.state != synReceived || !host.listening {
		t.orphan = true
		t.abort()
		return
	}
	t.state = connected
	host.waiting = append(host.waiting, t)
	host.wake(inEvents)
	if t.earlyFin {
		t.finArrives()
	}
}

// pump puts on its way what the peer has room for. now: nothing is held back.
func (t *tcp) pump(now bool) {
	if t.state != connected || t.peer == nil || t.held && !now {
		return
	}
	net, p := &t.k.options.Network, t.peer
	for len(t.out) > 0 {
		n := min(len(t.out), p.rcvbuf/2-len(p.inbox)-t.flying, segmentMost)
		if n <= 0 {
			return
		}
		if !now && t.k.random.chance(net.Coalesce) {
			t.held = true
			t.k.at(t.k.now+t.k.random.between(1, max(net.LatencyMost, holdMost)), "coalesced", func() {
				t.held = false
				t.pump(true)
			})
			return
		}
		if n > 1 && t.k.random.chance(net.Fragment) {
			n = int(t.k.random.between(1, int64(n-1)))
		}
		data := t.out[:n:n]
		t.out = t.out[n:]
		t.flying += n
		t.packet("data", p, func() { p.dataArrives(data) })
	}
	if t.finOut && !t.finSent {
		t.finSent = true
		t.packet("fin", p, p.finArrives)
	}
}

func (t *tcp) dataArrives(data []byte) {
	p := t.peer
	switch {
	case t.state != connected && t.state != synReceived:
		t.reset()
		return
	case t.finOut && t.shut&shutRead != 0: // nobody will read it
		t.reset()
		t.fail(syscall.ECONNRESET)
		return
	}
	t.inbox = append(t.inbox, data...)
	t.wake(inEvents)
	t.packet("ack", p, func() { p.ackedData(len(data)) })
}

func (t *tcp) ackedData(n int) {
	if t.state != connected {
		return
	}
	t.flying -= n
	t.queued -= n
	if t.refused && t.roomy() {
		t.refused = false
		t.wake(outEvents)
	}
	t.pump(false)
}

func (t *tcp) finArrives() {
	if t.state != connected {
		t.earlyFin = t.state == synReceived
		return
	}
	p := t.peer
	t.finIn = true
	t.shut |= shutRead
	t.wake(0)
	t.packet("ack", p, func() {
		p.finAcked = true
		p.settle()
	})
	t.settle()
}

// settle ends a connection of which both directions are over.
func (t *tcp) settle() {
	if t.state == connected && t.finIn && t.finAcked {
		t.end()
	}
}

// end makes a connection closed.
func (t *tcp) end() {
	t.retry.cancel()
	t.state, t.shut = closed, shutBoth
	t.out, t.flying, t.queued = nil, 0, 0
	if t.orphan || !t.askedPort {
		t.k.leavePort(&t.socket)
	}
	t.wake(0)
}

// fail ends it by an error.
func (t *tcp) fail(errno syscall.Errno) {
	t.err = errno
	t.end()
	t.wake(unix.EPOLLERR)
}

// abort ends it here, and the peer gets a reset.
func (t *tcp) abort() {
	if t.state == closed {
		return
	}
	t.reset()
	t.end()
}

func (t *tcp) reset() {
	if p := t.peer; p != nil {
		t.packet("reset", p, p.resetArrives)
	}
}

func (t *tcp) resetArrives() {
	switch {
	case t.state == closed || t.state == listening:
	case t.state == synSent:
		t.fail(syscall.ECONNREFUSED)
	case t.finIn && !t.finOut:
		t.fail(syscall.EPIPE)
	default:
		t.fail(syscall.ECONNRESET)
	}
}
