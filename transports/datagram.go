package transports

import "syscall"

// The receiving half of a datagram endpoint:
//
//	         Want(without Readable)
//	silent <------------------------ receiving --+
//	       ------------------------>     ^       | a datagram, or an error
//	         Want(with Readable)         +-------+ that befell one
//
// No error ends it: one that the kernel tells is of a datagram that went out
// before (nobody listens there, say), and the next receive may be well.
//
// Sending is C's, which makes the system call as soon as it is asked to: asyncio
// promises that, and errors are told there and then. Only where the kernel has
// no room does C want to hear, once there is: Want(with Writable).

// DatagramsPerTurn is how many datagrams one endpoint receives in a turn at most,
// so that a flood of them leaves the others their share. How many of them the program
// gets at once, its own time decides: pybridge/core/datagrams/datagram_receive.c.
const DatagramsPerTurn = 64

// Datagram receives the datagrams of one socket. It is kept in a slot of its
// reactor and reused: Open begins a new life.
type Datagram struct {
	lease  Lease
	want   Interest
	single uint8 // how many short datagrams are still received one by one
	lately uint8 // how many came in the last turn of receiving
}

// Open begins the life of an endpoint on a non-blocking datagram socket.
func (d *Datagram) Open(l Lease, want Interest) { *d = Datagram{lease: l, want: want} }

// Held tells whether the descriptor is still its owner's.
func (d *Datagram) Held() bool { return d.lease.Held() }

// Discard ends that life.
func (d *Datagram) Discard() { d.Open(Lease{fd: -1}, 0) }

// Want says what its owner wants to hear of.
func (d *Datagram) Want(want Interest) { d.want = want }

// Interest is what the poller should be asked for.
func (d *Datagram) Interest() Interest { return d.want }

// singleAfterLong is how many short datagrams have to follow a long one before several
// are received by one call again.
const singleAfterLong = 64

// Places is for how many datagrams the next call should have room, when n have come in
// this turn: for twice as many as came lately, as room that is not used costs a little.
func (d *Datagram) Places(n int) int {
	if d.single > 0 {
		return 1
	}
	return min(2*max(n, int(d.lately))+2, ManyMax)
}

// Came counts a datagram that was received; a long one is more than its place holds.
func (d *Datagram) Came(long bool) {
	if long {
		d.single = singleAfterLong
	} else if d.single > 0 {
		d.single--
	}
}

// Turned ends the receiving of a turn, which brought n datagrams.
func (d *Datagram) Turned(n int) { d.lately = uint8(n) }

// Receive receives one datagram to base; one that is longer than size is cut off.
// Its sender's address and the length of that, which holds the room for it
// beforehand, are at addr and addrLen in C memory. The length of a datagram may
// be 0. The outcome Nothing is an empty socket, Told an error that was reported.
func (d *Datagram) Receive(c *Calls, base, size, addr, addrLen uintptr) (int, Outcome, syscall.Errno) {
	if !d.lease.Held() {
		return 0, Told, syscall.EBADF
	}
	n, errno := c.RecvFrom(int(d.lease.fd), base, size, addr, addrLen)
	switch errno {
	case 0:
		return n, Got, 0
	case syscall.EAGAIN, syscall.EINTR:
		return 0, Nothing, 0
	default:
		return 0, Told, errno
	}
}
