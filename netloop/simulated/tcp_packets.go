//go:build linux

package simulated

import (
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// The packets of TCP. Those of one direction stay in order. What takes no time arrives within the
// call that sends it, as on Linux's loopback. What the network loses is sent again, see transmit.

// segment is a packet; run is what it does where it arrives, unless `to` is in another connection by
// then.
type segment struct {
	name  string
	size  int
	to    *tcp
	epoch int
	run   func()
}

// repeats tells whether it is sent again where it is lost. The program's SYN and probes have retries of
// their own.
func (p *segment) repeats() bool {
	return p.name != "syn" && p.name != "reset" && p.name != "probe" && p.name != "probed"
}

// answers tells whether it is an acknowledgement, which comes again when what it answers is sent again.
func (p *segment) answers() bool { return p.name == "ack" || p.name == "window" }

// packet sends a segment, or puts it behind what the network does not take now.
func (t *tcp) packet(name string, size int, to *tcp, run func()) {
	t.transmit(segment{name, size, to, to.epoch, run})
}

// far is the host of the peer.
func (t *tcp) far() *host {
	if h := t.k.hostOf(t.home, &t.remote); h != nil {
		return h
	}
	return t.k.current(t.home)
}

func (t *tcp) network() *Network { return t.k.network(t.k.between(t.home, t.far())) }

// transmit sends a segment, or keeps it: a link that is held until it is open, and what a partition
// or a host without power loses until a retransmission.
func (t *tcp) transmit(p segment) {
	there := t.far()
	l := t.k.between(t.home, there)
	lost := l.way == Partitioned || there.dead
	switch {
	case lost && !p.repeats(), there.dead && p.answers():
		t.k.trace.entry(t.k.now, "lost")
	case lost || l.way == Held || len(t.line) > 0:
		t.keep(p, l.way == Held)
	default:
		t.launch(p, l, there)
	}
}

func (t *tcp) launch(p segment, l *link, there *host) {
	net := t.k.network(l)
	at := t.k.leaves(l, headers+p.size) + t.k.random.between(net.LatencyLeast, net.LatencyMost)
	for i := 0; i < retries && t.k.random.chance(net.Loss); i++ {
		if t.k.trace.entry(t.k.now, "lost"); !p.repeats() {
			return
		}
		at += retryPause(i)
	}
	t.arrives = max(t.arrives, at)
	if t.arrives == t.k.now && t.onTheWay == 0 {
		t.deliver(p, there.number)
		return
	}
	t.onTheWay++
	e := t.k.at(t.arrives, p.name+t.k.journey(&t.local, &t.remote, t.arrives), func() {
		t.onTheWay--
		t.deliver(p, there.number)
	})
	if p.name == "probe" || p.name == "probed" {
		e.vain = t.answers
	}
}

// deliver is the arrival at a host, whatever runs there by now.
func (t *tcp) deliver(p segment, number int) {
	there := t.k.hosts[number]
	switch {
	case there.dead:
		if p.repeats() && !p.answers() && !t.home.dead {
			t.keep(p, false)
		}
	case p.to.home.dead: // it was started again, and does not know the connection
		if p.name != "reset" && p.name != "syn" {
			t.isRefused()
		}
	default:
		there.arrive(func() {
			if p.to.epoch == p.epoch {
				p.to.hears()
				p.run()
			}
		})
	}
}

// keep puts a segment into the line, which goes on by itself, or where it is held with the link.
func (t *tcp) keep(p segment, held bool) {
	if t.again != nil && !p.answers() && !slices.ContainsFunc(t.line, func(p segment) bool { return !p.answers() }) {
		t.again.cancel()
		t.again, t.lost = nil, 0 // its own retransmissions begin
	}
	t.line = append(t.line, p)
	switch {
	case held:
		t.k.stalled = append(t.k.stalled, t)
	case t.again == nil:
		t.again = t.k.at(t.k.now+retryPause(t.lost), "retransmission from "+t.local.String(), t.retransmit)
	}
}

func (t *tcp) retransmit() {
	t.again = nil
	if t.lost++; t.lost > retries {
		t.giveUp()
	} else {
		t.goOn()
	}
}

// goOn sends what has waited.
func (t *tcp) goOn() {
	line := t.line
	t.line = nil
	for _, p := range line {
		t.transmit(p)
	}
	if len(t.line) == 0 {
		t.lost = 0
	}
}

// giveUp ends the connection of what has not got through: this one, and where that were
// acknowledgements, the peer that has waited for them.
func (t *tcp) giveUp() {
	line := t.line
	t.quiet()
	for _, p := range line {
		waits := t
		if p.answers() {
			waits = p.to
		}
		if waits.state != closed && p.to.epoch == p.epoch {
			waits.fail(syscall.ETIMEDOUT)
		}
	}
}

// quiet drops what would be sent.
func (t *tcp) quiet() {
	t.retry.cancel()
	t.alive.timer.cancel()
	t.again.cancel()
	t.line, t.again, t.lost = nil, nil, 0
}

// silence ends the socket of a host without power.
func (t *tcp) silence() {
	t.quiet()
	t.state = closed
}

// isRefused has the peer's host answer by a reset.
func (t *tcp) isRefused() {
	there := t.far()
	l := t.k.between(there, t.home)
	net := t.k.network(l)
	if l.way != Open || t.k.random.chance(net.Loss) {
		t.k.trace.entry(t.k.now, "lost")
		return
	}
	epoch := t.epoch
	arrive := func() {
		t.home.arrive(func() {
			if t.epoch == epoch {
				t.resetArrives()
			}
		})
	}
	at := t.k.leaves(l, headers) + t.k.random.between(net.LatencyLeast, net.LatencyMost)
	if at == t.k.now && t.onTheWay == 0 {
		arrive()
		return
	}
	t.k.at(at, "refusal to "+t.local.String(), arrive)
}

// syn asks for a connection, again and again while nobody answers.
func (t *tcp) syn() {
	if t.tries++; t.tries > synTries {
		t.fail(syscall.ETIMEDOUT)
		return
	}
	pause := int64(synPause) << (t.tries - 1)
	t.retry = t.k.at(t.k.now+pause, "retransmission from "+t.local.String(), t.syn)
	t.packet("syn", 0, t, t.synArrives)
}

func (t *tcp) synArrives() {
	if t.state != synSent || t.peer != nil {
		return
	}
	s := t.far().ports[0].at(t.remote, t.local)
	if s == nil {
		t.isRefused()
		return
	}
	host := s.self.(*tcp)
	if len(host.waiting)+host.embryos > host.backlog {
		t.k.trace.entry(t.k.now, "dropped")
		return
	}
	child := newTCP(t.k, t.family)
	child.state, child.host, child.peer, t.peer = synReceived, host, t, child
	child.owner = host.owner
	child.local, child.remote, child.askedPort = t.remote, t.local, false
	child.sndbuf, child.rcvbuf, child.reuse = host.sndbuf, host.rcvbuf, host.reuse
	child.shut = host.shut
	child.lingers, child.linger = host.lingers, host.linger
	child.options = append(child.options, host.options...)
	p := t.k.portsOf(&child.socket)
	child.bound = true
	p.taken[child.local.port] = append(p.taken[child.local.port], &child.socket)
	host.embryos++
	child.packet("syn-ack", 0, t, func() { t.synAckArrives(child) })
}

func (t *tcp) synAckArrives(child *tcp) {
	if t.state != synSent || t.peer != child {
		child.orphan = true
		child.fail(syscall.ECONNRESET)
		return
	}
	t.retry.cancel()
	t.state = connected
	t.keepAliveBegins()
	t.wake(0)
	t.packet("ack", 0, child, child.ackArrives)
}

// ackArrives completes a child, at once or in a storm.
func (t *tcp) ackArrives() {
	if net := t.network(); net.StormEvery > 0 && t.k.random.chance(net.Storm) {
		t.k.at((t.k.now/net.StormEvery+1)*net.StormEvery, "storm", t.completes)
		return
	}
	t.completes()
}

// completes makes a child wait to be accepted.
func (t *tcp) completes() {
	host := t.host
	if t.state != synReceived {
		return
	}
	host.embryos--
	if !host.listening {
		t.orphan = true
		t.abort()
		return
	}
	t.state = connected
	t.keepAliveBegins()
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
	net, p := t.network(), t.peer
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
		t.packet("data", len(data), p, func() { p.dataArrives(data) })
	}
	if t.finOut && !t.finSent {
		t.finSent = true
		t.packet("fin", 0, p, p.finArrives)
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
	t.packet("ack", 0, p, func() { p.ackedData(len(data)) })
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
	t.packet("ack", 0, p, func() {
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
	t.alive.timer.cancel()
	t.state, t.shut = closed, shutBoth
	t.out, t.flying, t.queued = nil, 0, 0
	if t.orphan || !t.askedPort {
		t.k.leavePort(&t.socket)
	}
	t.wake(0)
}

// fail ends it by an error.
func (t *tcp) fail(errno syscall.Errno) {
	if t.state == synReceived {
		t.host.embryos--
		t.orphan = true
	}
	t.quiet()
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

// reset tells the peer that the connection is gone, and before whatever still waited to be sent.
func (t *tcp) reset() {
	t.quiet()
	if p := t.peer; p != nil {
		t.packet("reset", 0, p, p.resetArrives)
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
