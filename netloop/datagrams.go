package netloop

import (
	"syscall"
	"unsafe"

	"github.com/goloop/goloop/transports"
)

// DatagramOpen registers a non-blocking datagram socket and returns the id and the generation of
// the registration. want are the directions to report: with readable the reactor receives
// datagrams, writable is reported once in each turn in which there is space to send. owner is
// described at transports.Lease. After an error (EBADF for a negative number, or the poller's
// errno) there is no registration.
func (r *Reactor) DatagramOpen(fd int32, owner *int32, want uint32) (id, gen uint32, err error) {
	if fd < 0 {
		return 0, 0, errnoError("datagram_open", syscall.EBADF)
	}
	id, s := r.registry.open(kindDatagram, fd)
	if s.datagram == nil {
		s.datagram = new(transports.Datagram)
	}
	s.datagram.Open(transports.NewLease(fd, owner), 0)
	if errno := r.setDatagram(id, s, want); errno != 0 {
		r.registry.release(id, s)
		return 0, 0, errnoError("epoll_ctl", errno)
	}
	return id, s.gen, nil
}

// DatagramSet replaces the directions. If there are none, the socket is removed from the poller.
// ENOENT if the registration has ended. After an errno of the poller the registration stays, but
// the socket is not polled.
func (r *Reactor) DatagramSet(id, gen, want uint32) error {
	s := r.registry.findKind(id, gen, kindDatagram)
	if s == nil {
		return errnoError("datagram_set", syscall.ENOENT)
	}
	return errnoError("epoll_ctl", r.setDatagram(id, s, want))
}

// setDatagram sets the directions of a datagram socket and updates its registration in the
// poller. It returns the poller's errno; the socket is not polled then.
func (r *Reactor) setDatagram(id uint32, s *slot, want uint32) syscall.Errno {
	in := interest(want) & directions
	s.datagram.SetInterest(transports.Interest(in))
	if in = s.pollInterest(in); in == s.registered {
		return 0
	}
	return r.setInterest(id, s, in)
}

// serveDatagram receives datagrams and then reports space to send, which is asyncio's order. It
// returns false, and the endpoint stays ready, if there was no space for a single datagram. If
// there is no space for the report, the poller reports the space to send again.
func (r *Reactor) serveDatagram(t token, s *slot) bool {
	d := s.datagram
	in := s.ready & interest(d.Interest())
	if in&readable != 0 && !r.receiveDatagrams(t, d) {
		return false
	}
	if in&writable != 0 && r.out.completionSpace() > 0 {
		r.out.put(Completion{Kind: CmpReady, ID: t.id(), Gen: t.gen(), Res: int32(writable)})
	}
	return true
}

// receiveDatagrams receives and reports up to DatagramsPerTurn datagrams, in batches if possible.
// It returns false if there was no space for any datagram. If it returns true, the poller reports
// remaining datagrams after the events of the other descriptors, so that a flood of datagrams is
// not served first in each turn.
func (r *Reactor) receiveDatagrams(t token, d *transports.Datagram) bool {
	got, more := 0, true
	for more && got < transports.DatagramsPerTurn && r.out.completionSpace() > 0 && r.out.arenaSpace() > 0 {
		n := min(d.NextBatchSize(got), transports.DatagramsPerTurn-got, r.out.completionSpace())
		if n > 1 && r.out.arenaSpace() >= transports.MaxRecvBatch*packetSlotSize && r.datagrams.isAvailable(r) {
			received := r.receiveDatagramBatch(t, d, n)
			got += received
			more = received == n || r.datagrams.refused
		} else if more = r.receiveDatagram(t, d); more {
			got++
		}
	}
	d.EndTurn(got)
	return got > 0 || !more
}

// receiveDatagram receives one datagram and reports it, or reports the kernel's error; there must
// be space. It returns false if the socket was empty or the kernel reported an error.
func (r *Reactor) receiveDatagram(t token, d *transports.Datagram) bool {
	// The last packet may extend into the slack of the arena, so datagrams are never truncated
	// for lack of space.
	p := (*Packet)(r.out.arenaNext())
	p.AddrLen = MaxSockaddr
	base := uintptr(unsafe.Pointer(p)) + unsafe.Sizeof(Packet{})
	r.shared.Recvs++
	n, outcome, errno := d.Receive(&r.calls.Calls, base, MaxPacket,
		uintptr(unsafe.Pointer(&p.Addr)), uintptr(unsafe.Pointer(&p.AddrLen)))
	switch outcome {
	case transports.OK:
		// The kernel returns the untruncated length.
		p.AddrLen = min(p.AddrLen, MaxSockaddr)
		r.putDatagram(t, p, n)
		r.out.commitArena(unsafe.Sizeof(Packet{}) + uintptr(n))
		d.NoteReceived(uintptr(n) > maxPacketHead)
		return true
	case transports.Transient:
		r.putDatagramError(t, errno) // only one per turn: a persistent error must not fill the queue
	}
	return false
}

// putDatagram reports a received datagram of `length` bytes, which follow the Packet p. There
// must be space for a completion.
func (r *Reactor) putDatagram(t token, p *Packet, length int) {
	r.countReceived(length)
	r.out.put(Completion{Kind: CmpDatagram, ID: t.id(), Gen: t.gen(),
		Ptr: uintptr(unsafe.Pointer(p)), Arg: int64(length)})
}

// putDatagramError reports an error of a receive, which does not end the endpoint. If the number
// does not refer to the socket any more (EBADF, ENOTSOCK), the socket is also removed from the
// poller.
func (r *Reactor) putDatagramError(t token, errno syscall.Errno) {
	if errno == syscall.EBADF || errno == syscall.ENOTSOCK {
		if s := r.registry.find(t.id(), t.gen()); s != nil {
			r.endRegistration(s)
		}
	}
	r.out.put(Completion{Kind: CmpDatagramError, ID: t.id(), Gen: t.gen(), Res: int32(errno)})
}
