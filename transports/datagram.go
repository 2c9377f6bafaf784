package transports

import "syscall"

// States of the receiving half of a datagram endpoint:
//
//	         SetInterest(without Readable)
//	silent <------------------------------- receiving --+
//	       ------------------------------->     ^       | a datagram, or an error
//	         SetInterest(with Readable)         +-------+ caused by an earlier one
//
// No error ends it. An error that the kernel reports was caused by a datagram that was sent
// before (to a closed port, for example), and the next receive may succeed.
//
// C sends datagrams itself, with a system call inside sendto(): asyncio promises an immediate
// send and an immediate error. Only if the kernel has no space, C asks to be notified when the
// socket is writable: SetInterest(with Writable).

// DatagramsPerTurn is the maximum number of datagrams that one endpoint receives in a turn,
// so that a flood of datagrams does not use the time of other transports. The number of
// datagrams that the program gets at once depends on its own time: see datagram_receive.c in
// pybridge/core.
const DatagramsPerTurn = 64

// Datagram receives the datagrams of one socket. It is stored in a slot of its reactor and
// reused: Open initialises it for a new descriptor.
type Datagram struct {
	lease          Lease
	interest       Interest
	singleReceives uint8 // number of short datagrams to receive one by one before the next batch
	lastTurn       uint8 // number of datagrams received in the last turn
}

// Open initialises the endpoint for a non-blocking datagram socket.
func (d *Datagram) Open(l Lease, want Interest) { *d = Datagram{lease: l, interest: want} }

// LeaseValid reports whether the descriptor still belongs to its owner.
func (d *Datagram) LeaseValid() bool { return d.lease.Valid() }

// Discard ends the use of the descriptor.
func (d *Datagram) Discard() { d.Open(Lease{fd: -1}, 0) }

// SetInterest sets the directions that must be polled: Readable to receive, Writable for a
// report of space to send.
func (d *Datagram) SetInterest(want Interest) { d.interest = want }

// Interest returns the directions that must be polled.
func (d *Datagram) Interest() Interest { return d.interest }

// singleReceivesAfterLong is the number of short datagrams that must follow a long datagram
// before one call receives several datagrams again.
const singleReceivesAfterLong = 64

// NextBatchSize returns the number of datagrams that the next call should have buffers for, after
// n datagrams were received in this turn. It is 1 for a socket with long datagrams, else twice
// the recent number plus two, because unused buffers cost little, and at most MaxRecvBatch.
func (d *Datagram) NextBatchSize(n int) int {
	if d.singleReceives > 0 {
		return 1
	}
	return min(2*max(n, int(d.lastTurn))+2, MaxRecvBatch)
}

// NoteReceived counts a received datagram. A long datagram did not fit into its buffer of the
// arena.
func (d *Datagram) NoteReceived(long bool) {
	if long {
		d.singleReceives = singleReceivesAfterLong
	} else if d.singleReceives > 0 {
		d.singleReceives--
	}
}

// EndTurn records the number of datagrams that were received in this turn.
func (d *Datagram) EndTurn(n int) { d.lastTurn = uint8(n) }

// Receive receives one datagram to base and truncates it to size bytes. The sender's address is
// written to addr. The value at addrLen is the capacity of addr before the call and the length of
// the address afterwards. Both are in C memory. The length of a datagram may be 0. WouldBlock
// means that the socket is empty, and Transient that the kernel reported an error, or EBADF if
// the lease has ended.
func (d *Datagram) Receive(c *Calls, base, size, addr, addrLen uintptr) (int, Outcome, syscall.Errno) {
	if !d.lease.Valid() {
		return 0, Transient, syscall.EBADF
	}
	n, errno := c.RecvFrom(int(d.lease.fd), base, size, addr, addrLen)
	switch errno {
	case 0:
		return n, OK, 0
	case syscall.EAGAIN, syscall.EINTR:
		return 0, WouldBlock, 0
	default:
		return 0, Transient, errno
	}
}
