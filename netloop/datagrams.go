package netloop

import (
	"syscall"
	"unsafe"

	"github.com/goloop/goloop/transports"
)

// DatagramOpen registers a non-blocking datagram socket; want are the directions
// to hear of: readable receives, writable is told once in each turn that finds
// room to send.
// owner is of transports.Lease.
func (r *Reactor) DatagramOpen(fd int32, owner *int32, want uint32) (id, gen uint32, err error) {
	if fd < 0 {
		return 0, 0, failed("datagram_open", syscall.EBADF)
	}
	id, s := r.registry.open(kindDatagram, fd)
	if s.datagram == nil {
		s.datagram = new(transports.Datagram)
	}
	s.datagram.Open(transports.NewLease(fd, owner), 0)
	if errno := r.setDatagram(id, s, want); errno != 0 {
		r.registry.release(id, s)
		return 0, 0, failed("epoll_ctl", errno)
	}
	return id, s.gen, nil
}

// DatagramSet replaces the directions. With none, the socket leaves the poller.
func (r *Reactor) DatagramSet(id, gen, want uint32) error {
	s := r.registry.findKind(id, gen, kindDatagram)
	if s == nil {
		return failed("datagram_set", syscall.ENOENT)
	}
	return failed("epoll_ctl", r.setDatagram(id, s, want))
}

func (r *Reactor) setDatagram(id uint32, s *slot, want uint32) syscall.Errno {
	in := interest(want) & directions
	s.datagram.SetInterest(transports.Interest(in))
	if in = s.polled(in); in == s.held {
		return 0
	}
	return r.setHeld(id, s, in)
}

// serveDatagram receives what is there, then tells of room to send: asyncio's
// order. It returns false, and leaves the endpoint ready, where room ran out
// before anything was done for it.
func (r *Reactor) serveDatagram(t token, s *slot) bool {
	d := s.datagram
	in := s.ready & interest(d.Interest())
	if in&readable != 0 && !r.receiveDatagrams(t, d) {
		return false
	}
	if in&writable != 0 && r.out.room() > 0 {
		r.out.put(Completion{Kind: CmpReady, ID: t.id(), Gen: t.gen(), Res: int32(writable)})
	}
	return true
}

// receiveDatagrams returns false where there was no room for a single one. What
// is left when it returns true the poller tells of, behind the others' events: a
// flood must not come first in each turn.
func (r *Reactor) receiveDatagrams(t token, d *transports.Datagram) bool {
	got, more := 0, true
	for more && got < transports.DatagramsPerTurn && r.out.room() > 0 && r.out.arenaRoom() > 0 {
		n := min(d.NextBatchSize(got), transports.DatagramsPerTurn-got, r.out.room())
		if n > 1 && r.out.arenaRoom() >= transports.RecvBatchMax*packetPlace && r.datagrams.ready(r) {
			came := r.receiveDatagramBatch(t, d, n)
			got += came
			more = came == n || r.datagrams.refused
		} else if more = r.receiveDatagram(t, d); more {
			got++
		}
	}
	d.EndTurn(got)
	return got > 0 || !more
}

// receiveDatagram receives one, for which there is room; false means that none is
// there, or an error was told.
func (r *Reactor) receiveDatagram(t token, d *transports.Datagram) bool {
	// The last one may reach into the slack, so none is ever cut off for want of room.
	p := (*Packet)(r.out.arenaNext())
	p.AddrLen = SockaddrMax
	base := uintptr(unsafe.Pointer(p)) + unsafe.Sizeof(Packet{})
	r.shared.Recvs++
	n, outcome, errno := d.Receive(&r.calls.Calls, base, PacketMax,
		uintptr(unsafe.Pointer(&p.Addr)), uintptr(unsafe.Pointer(&p.AddrLen)))
	switch outcome {
	case transports.OK:
		// The kernel tells the length it would have needed.
		p.AddrLen = min(p.AddrLen, SockaddrMax)
		r.putDatagram(t, p, n)
		r.out.use(unsafe.Sizeof(Packet{}) + uintptr(n))
		d.NoteReceived(uintptr(n) > packetShort)
		return true
	case transports.Transient:
		r.tellDatagramError(t, errno) // one that stays must not fill the queue
	}
	return false
}

// putDatagram reports one that was received.
func (r *Reactor) putDatagram(t token, p *Packet, length int) {
	r.countReceived(length)
	r.out.put(Completion{Kind: CmpDatagram, ID: t.id(), Gen: t.gen(),
		Ptr: uintptr(unsafe.Pointer(p)), Arg: int64(length)})
}

// tellDatagramError reports an error of receiving, which ends nothing. Where the number is not the socket's
// any more it is the last one.
func (r *Reactor) tellDatagramError(t token, errno syscall.Errno) {
	if errno == syscall.EBADF || errno == syscall.ENOTSOCK {
		if s := r.registry.find(t.id(), t.gen()); s != nil {
			r.endHeld(s)
		}
	}
	r.out.put(Completion{Kind: CmpDatagramError, ID: t.id(), Gen: t.gen(), Res: int32(errno)})
}
