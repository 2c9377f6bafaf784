package netloop

import (
	"unsafe"

	"github.com/goloop/goloop/transports"
)

// Several datagrams of one socket are received together, by recvmmsg.
//
// Each datagram gets a slot of packetSlotSize bytes in the arena, for a Packet and the payload
// of an Ethernet frame. Datagrams must not be truncated, so the rest of a longer datagram is
// written to a tail: separate memory, which is large and not backed by pages until it is used.
// Each tail is preceded by space for the slot, so that a long datagram can be made contiguous:
//
//	arena:   | slot 0  | slot 1  | slot 2  | ...
//	tails:   |  space  |  tail 0      |  space  |  tail 1      | ...
//	              '--- slot 0 is copied to here if tail 0 was needed
//
// C reads the datagrams until the next turn, so after a tail was used the rest of the turn
// receives without batches. A socket with long datagrams uses single receives for a while: see
// Datagram.

const (
	packetSlotSize = 1664
	maxPacketHead  = packetSlotSize - unsafe.Sizeof(Packet{})
	packetTailSize = MaxPacket - maxPacketHead
	tailStride     = (packetSlotSize + packetTailSize + arenaAlign - 1) &^ (arenaAlign - 1)
)

// datagramBatch has the buffers of a batch. They are allocated for the first batch.
type datagramBatch struct {
	buffers      *transports.RecvBatch
	tails        []byte
	refused      bool   // the system refuses the call
	lastTailTurn uint64 // the last turn in which a tail was used
}

// isAvailable reports whether a batch can be received now: batches are not refused, and no tail
// was used in this turn. The first call allocates the buffers.
func (b *datagramBatch) isAvailable(r *Reactor) bool {
	if b.refused || b.lastTailTurn == r.shared.Metrics.Turns {
		return false
	}
	if b.buffers == nil {
		b.open(r)
	}
	return !b.refused
}

// open allocates the buffers. It sets refused, and batches are never tried again, if the system
// has no recvmmsg or memory is not available.
func (b *datagramBatch) open(r *Reactor) {
	var err error
	b.refused = true
	if r.calls.Recvmmsg == nil {
		return
	}
	if b.tails, err = r.calls.Map(transports.MaxRecvBatch * int(tailStride)); err == nil {
		b.buffers, b.refused = new(transports.RecvBatch), false
	}
}

// close frees the tails. C must not read any of them afterwards.
func (b *datagramBatch) close(r *Reactor) {
	if b.tails != nil {
		_ = r.calls.Unmap(b.tails)
		b.tails = nil
	}
}

// wholePacket returns the memory in which a datagram that needed tail i is contiguous.
func (b *datagramBatch) wholePacket(i int) unsafe.Pointer {
	return unsafe.Pointer(&b.tails[i*int(tailStride)])
}

// receiveDatagramBatch receives up to n datagrams by one call and reports them, or reports the
// kernel's error; there must be space for n. It returns the number of datagrams. A result below n
// means that the socket has no more datagrams, that the kernel reported an error, or that the
// system refuses the call: then it sets refused, and the caller receives single datagrams. If it
// used a tail, isAvailable returns false for the rest of the turn.
func (r *Reactor) receiveDatagramBatch(t token, d *transports.Datagram, n int) int {
	b, first := &r.datagrams, r.out.arenaNext()
	for i := range n {
		p := uintptr(first) + uintptr(i)*packetSlotSize
		b.buffers.SetBuffer(i, p+unsafe.Offsetof(Packet{}.Addr), MaxSockaddr,
			transports.Vector{Base: p + unsafe.Sizeof(Packet{}), Len: maxPacketHead},
			transports.Vector{Base: uintptr(b.wholePacket(i)) + packetSlotSize, Len: packetTailSize})
	}
	r.shared.Recvs++
	got, outcome, errno := d.ReceiveBatch(&r.calls.Calls, b.buffers, n)
	switch outcome {
	case transports.OK:
	case transports.Failed:
		b.refused = true
		return 0
	case transports.Transient:
		r.putDatagramError(t, errno)
		return 0
	default:
		return 0
	}
	for i := range got {
		length, addrLen := b.buffers.Result(i)
		p := (*Packet)(unsafe.Add(first, i*packetSlotSize))
		// The kernel returns the untruncated length.
		p.AddrLen = min(addrLen, MaxSockaddr)
		if uintptr(length) > maxPacketHead {
			whole := (*Packet)(b.wholePacket(i))
			*(*[packetSlotSize]byte)(unsafe.Pointer(whole)) = *(*[packetSlotSize]byte)(unsafe.Pointer(p))
			p = whole
			b.lastTailTurn = r.shared.Metrics.Turns
		}
		r.putDatagram(t, p, length)
		d.NoteReceived(uintptr(length) > maxPacketHead)
	}
	r.out.commitArena(uintptr(got) * packetSlotSize)
	return got
}
