//go:build linux

package simulated

import (
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// TCP packets. Packets of one direction stay in order. A packet without latency arrives within the call
// that sends it, as on Linux's loopback. Lost packets are retransmitted, see transmit.

// segment is a packet. run is its effect on arrival, unless `to` belongs to another connection by then.
type segment struct {
	name  string
	size  int
	to    *tcp
	epoch int
	run   func()
}

// isRetransmitted reports whether the segment is retransmitted if it is lost. SYNs and probes have their
// own retries; a lost reset is not repeated.
func (p *segment) isRetransmitted() bool {
	return p.name != "syn" && p.name != "reset" && p.name != "probe" && p.name != "probed"
}

// isAcknowledgement reports whether the segment acknowledges data. It is repeated when its data is sent
// again.
func (p *segment) isAcknowledgement() bool { return p.name == "ack" || p.name == "window" }

// packet sends a segment of `size` bytes of data to the socket `to`, where run is its effect. It queues the
// segment after others that the network does not transmit now.
func (t *tcp) packet(name string, size int, to *tcp, run func()) {
	t.transmit(segment{name, size, to, to.epoch, run})
}

// peerHost returns the host of the remote address, or the socket's own host if there is none.
func (t *tcp) peerHost() *host {
	if h := t.k.hostOf(t.home, &t.remote); h != nil {
		return h
	}
	return t.k.current(t.home)
}

// network returns the network properties from the socket's host to its peer's.
func (t *tcp) network() *Network { return t.k.network(t.k.linkBetween(t.home, t.peerHost())) }

// transmit sends a segment, or queues it: on a stalled link until the state of the link changes, after a
// loss by a partition or by a host without power until a retransmission, and always if other segments are
// queued already. A lost segment that is not retransmitted, and an acknowledgement to a host without
// power, are dropped.
func (t *tcp) transmit(p segment) {
	there := t.peerHost()
	l := t.k.linkBetween(t.home, there)
	lost := l.state == LinkPartitioned || there.dead
	switch {
	case lost && !p.isRetransmitted(), there.dead && p.isAcknowledgement():
		t.k.trace.entry(t.k.now, "lost")
	case lost || l.state == LinkStalled || len(t.line) > 0:
		t.queueSegment(p, l.state == LinkStalled)
	default:
		t.launch(p, l, there)
	}
}

// launch puts a segment on a link: it decides latency, loss and retransmissions at once, and schedules
// the arrival, or delivers the segment now if there is no latency. A segment that is not retransmitted
// may be lost; others arrive, after the times of up to `retries` retransmissions.
func (t *tcp) launch(p segment, l *link, there *host) {
	net := t.k.network(l)
	at := t.k.departureTime(l, headers+p.size) + t.k.random.between(net.MinLatency, net.MaxLatency)
	for i := 0; i < retries && t.k.random.chance(net.Loss); i++ {
		if t.k.trace.entry(t.k.now, "lost"); !p.isRetransmitted() {
			return
		}
		at += retryPause(i)
	}
	t.arrives = max(t.arrives, at)
	if t.arrives == t.k.now && t.inTransit == 0 {
		t.deliver(p, there.number)
		return
	}
	t.inTransit++
	e := t.k.schedule(t.arrives, p.name+t.k.pathText(&t.local, &t.remote, t.arrives), func() {
		t.inTransit--
		t.deliver(p, there.number)
	})
	if p.name == "probe" || p.name == "probed" {
		e.isVain = t.answers
	}
}

// deliver is the arrival of a segment at the host with this number. If the host has no power, the segment
// is lost; if it is retransmitted, it is queued for that. If the host was restarted since the connection
// was made, it answers with a reset, but not to a reset or a SYN. A paused host keeps the segment. A
// segment of an earlier connection of the socket has no effect.
func (t *tcp) deliver(p segment, number int) {
	there := t.k.hosts[number]
	switch {
	case there.dead:
		if p.isRetransmitted() && !p.isAcknowledgement() && !t.home.dead {
			t.queueSegment(p, false)
		}
	case p.to.home.dead: // a restarted host does not know the connection
		if p.name != "reset" && p.name != "syn" {
			t.refuse()
		}
	default:
		there.runAtArrival(func() {
			if p.to.epoch == p.epoch {
				p.to.noteReceived()
				p.run()
			}
		})
	}
}

// queueSegment queues a segment that the network does not transmit now: until its stalled link changes
// its state if stalled is true, else until a retransmission, whose timer it starts. The first queued
// segment that is not an acknowledgement restarts the count of retransmissions.
func (t *tcp) queueSegment(p segment, stalled bool) {
	if t.again != nil && !p.isAcknowledgement() && !slices.ContainsFunc(t.line, func(p segment) bool { return !p.isAcknowledgement() }) {
		t.again.cancel()
		t.again, t.lost = nil, 0 // retransmissions of this side begin
	}
	t.line = append(t.line, p)
	switch {
	case stalled:
		t.k.stalled = append(t.k.stalled, t)
	case t.again == nil:
		t.again = t.k.schedule(t.k.now+retryPause(t.lost), "retransmission from "+t.local.String(), t.retransmit)
	}
}

// retransmit is called when the timer of the queued segments expires. It sends them again, or ends the
// connection after the last attempt.
func (t *tcp) retransmit() {
	t.again = nil
	if t.lost++; t.lost > retries {
		t.retransmissionFailed()
	} else {
		t.sendQueued()
	}
}

// sendQueued sends the queued segments again. Segments that are not transmitted now either return to the
// queue; if there are none, the count of retransmissions starts again.
func (t *tcp) sendQueued() {
	line := t.line
	t.line = nil
	for _, p := range line {
		t.transmit(p)
	}
	if len(t.line) == 0 {
		t.lost = 0
	}
}

// retransmissionFailed drops the queued segments and ends their connection with ETIMEDOUT: this one, or for
// acknowledgements the peer's, which has waited for them.
func (t *tcp) retransmissionFailed() {
	line := t.line
	t.dropQueued()
	for _, p := range line {
		waits := t
		if p.isAcknowledgement() {
			waits = p.to
		}
		if waits.state != closed && p.to.epoch == p.epoch {
			waits.fail(syscall.ETIMEDOUT)
		}
	}
}

// dropQueued drops the segments that wait for the network and stops all timers of the connection.
func (t *tcp) dropQueued() {
	t.retry.cancel()
	t.alive.timer.cancel()
	t.again.cancel()
	t.line, t.again, t.lost = nil, nil, 0
}

// endWithoutPower closes the socket of a host that has lost its power, without sending anything.
func (t *tcp) endWithoutPower() {
	t.dropQueued()
	t.state = closed
}

// refuse sends a reset from the peer's host to this socket, because that host does not have the
// connection. The reset is lost if the link is not open, or by chance (Network.Loss). It has no effect if
// the socket has another connection when it arrives.
func (t *tcp) refuse() {
	there := t.peerHost()
	l := t.k.linkBetween(there, t.home)
	net := t.k.network(l)
	if l.state != LinkOpen || t.k.random.chance(net.Loss) {
		t.k.trace.entry(t.k.now, "lost")
		return
	}
	epoch := t.epoch
	arrive := func() {
		t.home.runAtArrival(func() {
			if t.epoch == epoch {
				t.resetArrives()
			}
		})
	}
	at := t.k.departureTime(l, headers) + t.k.random.between(net.MinLatency, net.MaxLatency)
	if at == t.k.now && t.inTransit == 0 {
		arrive()
		return
	}
	t.k.schedule(at, "refusal to "+t.local.String(), arrive)
}

// syn requests a connection, and schedules itself to repeat the request until it is answered. After
// synTries requests it ends the attempt with ETIMEDOUT.
func (t *tcp) syn() {
	if t.tries++; t.tries > synTries {
		t.fail(syscall.ETIMEDOUT)
		return
	}
	pause := int64(synPause) << (t.tries - 1)
	t.retry = t.k.schedule(t.k.now+pause, "retransmission from "+t.local.String(), t.syn)
	t.packet("syn", 0, t, t.synArrives)
}

// synArrives is the arrival of this socket's SYN at the peer's host: a child of the listener answers with a
// SYN-ACK, a full backlog drops the SYN, a port without a listener refuses the connection. A SYN that was
// repeated has no effect.
func (t *tcp) synArrives() {
	if t.state != synSent || t.peer != nil {
		return
	}
	s := t.peerHost().ports[0].receiver(t.remote, t.local)
	if s == nil {
		t.refuse()
		return
	}
	host := s.self.(*tcp)
	if len(host.waiting)+host.incomplete > host.backlog {
		t.k.trace.entry(t.k.now, "dropped")
		return
	}
	child := newTCP(t.k, t.family)
	child.state, child.host, child.peer, t.peer = synReceived, host, t, child
	child.owner = host.owner
	child.local, child.remote, child.boundPort = t.remote, t.local, false
	child.sndbuf, child.rcvbuf, child.reuse = host.sndbuf, host.rcvbuf, host.reuse
	child.shut = host.shut
	child.waitLinger, child.linger = host.waitLinger, host.linger
	child.options = append(child.options, host.options...)
	p := t.k.portsOf(&child.socket)
	child.bound = true
	p.taken[child.local.port] = append(p.taken[child.local.port], &child.socket)
	host.incomplete++
	child.packet("syn-ack", 0, t, func() { t.synAckArrives(child) })
}

// synAckArrives is the arrival of a child's SYN-ACK at the connecting socket, which is connected from now
// on. A child of an earlier attempt ends.
func (t *tcp) synAckArrives(child *tcp) {
	if t.state != synSent || t.peer != child {
		child.orphan = true
		child.fail(syscall.ECONNRESET)
		return
	}
	t.retry.cancel()
	t.state = connected
	t.startKeepAlive()
	t.wake(0)
	t.packet("ack", 0, child, child.ackArrives)
}

// ackArrives is the arrival of the last packet of the handshake at a child: it becomes ready to be
// accepted, now or in a storm.
func (t *tcp) ackArrives() {
	if net := t.network(); net.StormEvery > 0 && t.k.random.chance(net.Storm) {
		t.k.schedule((t.k.now/net.StormEvery+1)*net.StormEvery, "storm", t.addToBacklog)
		return
	}
	t.addToBacklog()
}

// addToBacklog adds a child to its listener's connections to accept, or resets it if the listener has
// ended. It does nothing if the child has ended meanwhile.
func (t *tcp) addToBacklog() {
	host := t.host
	if t.state != synReceived {
		return
	}
	host.incomplete--
	if !host.listening {
		t.orphan = true
		t.abort()
		return
	}
	t.state = connected
	t.startKeepAlive()
	host.waiting = append(host.waiting, t)
	host.wake(inEvents)
	if t.earlyFin {
		t.finArrives()
	}
}

// transmitSendBuffer transmits the data of the send buffer for which the peer has space, then a FIN if
// sending has ended. now: no piece waits for more data (Network.Coalesce). It does nothing unless the socket
// is connected.
func (t *tcp) transmitSendBuffer(now bool) {
	if t.state != connected || t.peer == nil || t.coalescing && !now {
		return
	}
	net, p := t.network(), t.peer
	for len(t.out) > 0 {
		n := min(len(t.out), p.rcvbuf/2-len(p.inbox)-t.bytesInTransit, maxSegment)
		if n <= 0 {
			return
		}
		if !now && t.k.random.chance(net.Coalesce) {
			t.coalescing = true
			t.k.schedule(t.k.now+t.k.random.between(1, max(net.MaxLatency, maxHold)), "coalesced", func() {
				t.coalescing = false
				t.transmitSendBuffer(true)
			})
			return
		}
		if n > 1 && t.k.random.chance(net.Fragment) {
			n = int(t.k.random.between(1, int64(n-1)))
		}
		data := t.out[:n:n]
		t.out = t.out[n:]
		t.bytesInTransit += n
		t.packet("data", len(data), p, func() { p.dataArrives(data) })
	}
	if t.finOut && !t.finSent {
		t.finSent = true
		t.packet("fin", 0, p, p.finArrives)
	}
}

// dataArrives is the arrival of data: it is added to the receive buffer and acknowledged, or answered with
// a reset if the program cannot read it any more.
func (t *tcp) dataArrives(data []byte) {
	p := t.peer
	switch {
	case t.state != connected && t.state != synReceived:
		t.reset()
		return
	case t.finOut && t.shut&shutRead != 0: // unread forever
		t.reset()
		t.fail(syscall.ECONNRESET)
		return
	}
	t.inbox = append(t.inbox, data...)
	t.wake(inEvents)
	t.packet("ack", 0, p, func() { p.ackedData(len(data)) })
}

// ackedData is the arrival of the acknowledgement of n bytes. It frees their space in the send buffer and
// sends more.
func (t *tcp) ackedData(n int) {
	if t.state != connected {
		return
	}
	t.bytesInTransit -= n
	t.queued -= n
	if t.refused && t.hasSpace() {
		t.refused = false
		t.wake(outEvents)
	}
	t.transmitSendBuffer(false)
}

// finArrives is the arrival of the peer's FIN: receiving has ended, and the FIN is acknowledged. A
// connection whose own FIN is acknowledged too is closed. At a child whose handshake is incomplete, the
// FIN is stored (earlyFin) and takes effect in addToBacklog.
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
		p.closeIfFinished()
	})
	t.closeIfFinished()
}

// closeIfFinished closes a connection when both directions have ended.
func (t *tcp) closeIfFinished() {
	if t.state == connected && t.finIn && t.finAcked {
		t.end()
	}
}

// end closes the socket's side of a connection, stops its timers, drops unsent data and wakes its
// watchers. It frees the port if the program has closed the socket or did not choose the port. It sends
// nothing, and queued segments stay (dropQueued).
func (t *tcp) end() {
	t.retry.cancel()
	t.alive.timer.cancel()
	t.state, t.shut = closed, shutBoth
	t.out, t.bytesInTransit, t.queued = nil, 0, 0
	if t.orphan || !t.boundPort {
		t.k.releasePort(&t.socket)
	}
	t.wake(0)
}

// fail closes the socket's side with an errno, which the next call returns, and drops the queued
// segments. It sends nothing. A child whose handshake is incomplete leaves its listener's count, and its
// port is freed.
func (t *tcp) fail(errno syscall.Errno) {
	if t.state == synReceived {
		t.host.incomplete--
		t.orphan = true
	}
	t.dropQueued()
	t.err = errno
	t.end()
	t.wake(unix.EPOLLERR)
}

// abort closes the socket's side and sends a reset to the peer. A closed socket stays as it is.
func (t *tcp) abort() {
	if t.state == closed {
		return
	}
	t.reset()
	t.end()
}

// reset drops the queued segments and sends a reset to the peer, which arrives after the packets in
// transit. It does not change this side's state.
func (t *tcp) reset() {
	t.dropQueued()
	if p := t.peer; p != nil {
		t.packet("reset", 0, p, p.resetArrives)
	}
}

// resetArrives is the arrival of a reset. It ends the connection with ECONNREFUSED if it was being
// established, with EPIPE if the peer has ended its side and this socket has not, else with ECONNRESET. A
// closed or listening socket ignores it.
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
