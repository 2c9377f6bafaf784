package netloop

import (
	"unsafe"

	"github.com/goloop/goloop/transports"
)

// Datagrams that wait on one socket are received together, by recvmmsg.
//
// Each gets a place of packetPlace bytes in the arena, for a Packet and what fits into a
// packet of Ethernet. No datagram may be cut off, so what a longer one has beyond that
// goes to a tail: memory of its own, which is large, and untouched until then. Before the
// tail is room for the place, so such a datagram ends up in one piece:
//
//	arena:   | place 0 | place 1 | place 2 | ...
//	tails:   |  room   |  tail 0      |  room   |  tail 1      | ...
//	              '--- place 0 is copied to here if tail 0 was needed
//
// C reads them until the next turn, so once a tail is in use the rest of the turn goes
// without a batch. A socket of long datagrams goes without for a while, see Datagram.

const (
	packetPlace = 1664
	packetShort = packetPlace - unsafe.Sizeof(Packet{})
	packetTail  = PacketMax - packetShort
	tailStride  = (packetPlace + packetTail + arenaAlign - 1) &^ (arenaAlign - 1)
)

// datagramBatch is made with the first batch.
type datagramBatch struct {
	many    *transports.RecvBatch
	tails   []byte
	refused bool   // by the system
	tailed  uint64 // the last turn in which a tail was needed
}

// ready tells whether a batch can be received in this turn.
func (b *datagramBatch) ready(r *Reactor) bool {
	if b.refused || b.tailed == r.shared.Metrics.Turns {
		return false
	}
	if b.many == nil {
		b.open(r)
	}
	return !b.refused
}

func (b *datagramBatch) open(r *Reactor) {
	var err error
	b.refused = true
	if r.shared.Flags&NoRing != 0 || r.calls.Recvmmsg == nil {
		return
	}
	if b.tails, err = r.calls.Map(transports.RecvBatchMax * int(tailStride)); err == nil {
		b.many, b.refused = new(transports.RecvBatch), false
	}
}

// close gives the memory back, which nobody reads any more.
func (b *datagramBatch) close(r *Reactor) {
	if b.tails != nil {
		_ = r.calls.Unmap(b.tails)
		b.tails = nil
	}
}

// whole is where a datagram that needed its tail stands in one piece.
func (b *datagramBatch) whole(i int) unsafe.Pointer {
	return unsafe.Pointer(&b.tails[i*int(tailStride)])
}

// receiveDatagramBatch receives up to n datagrams by one call; there is room for them.
// It returns how many came; fewer than n mean that no more are there, or an error was told.
func (r *Reactor) receiveDatagramBatch(t token, d *transports.Datagram, n int) int {
	b, first := &r.datagrams, r.out.arenaNext()
	for i := range n {
		p := uintptr(first) + uintptr(i)*packetPlace
		b.many.SetBuffer(i, p+unsafe.Offsetof(Packet{}.Addr), SockaddrMax,
			transports.Vector{Base: p + unsafe.Sizeof(Packet{}), Len: packetShort},
			transports.Vector{Base: uintptr(b.whole(i)) + packetPlace, Len: packetTail})
	}
	r.shared.Recvs++
	got, outcome, errno := d.ReceiveBatch(&r.calls.Calls, b.many, n)
	switch outcome {
	case transports.OK:
	case transports.Failed:
		b.refused = true
		return 0
	case transports.Transient:
		r.tellDatagramError(t, errno)
		return 0
	default:
		return 0
	}
	for i := range got {
		length, addrLen := b.many.Result(i)
		p := (*Packet)(unsafe.Add(first, i*packetPlace))
		// The kernel tells the length it would have needed.
		p.AddrLen = min(addrLen, SockaddrMax)
		if uintptr(length) > packetShort {
			whole := (*Packet)(b.whole(i))
			*(*[packetPlace]byte)(unsafe.Pointer(whole)) = *(*[packetPlace]byte)(unsafe.Pointer(p))
			p = whole
			b.tailed = r.shared.Metrics.Turns
		}
		r.putDatagram(t, p, length)
		d.NoteReceived(uintptr(length) > packetShort)
	}
	r.out.use(uintptr(got) * packetPlace)
	return got
}
