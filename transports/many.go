package transports

import (
	"syscall"
	"unsafe"
)

// ManyMax is how many datagrams one system call receives at most.
const ManyMax = 16

// Many is where one system call (recvmmsg) puts several datagrams, each with its sender.
// The kernel reads and writes it only during a call. It is Go's, the memory that it names
// is C's.
type Many struct {
	headers [ManyMax]manyHeader
	pieces  [ManyMax][2]Vector
}

// manyHeader is struct mmsghdr of Linux.
type manyHeader struct {
	header struct {
		name       uintptr
		nameLen    uint32
		pieces     *[2]Vector
		count      uintptr
		control    uintptr
		controlLen uintptr
		flags      int32
	}
	length uint32
}

// Place says where the datagram of this number goes: its sender's address to addr, which
// has room for addrMax bytes, what it has to head, and what that has no room for to tail.
func (m *Many) Place(i int, addr uintptr, addrMax uint32, head, tail Vector) {
	m.pieces[i] = [2]Vector{head, tail}
	h := &m.headers[i].header
	h.name, h.nameLen = addr, addrMax
	h.pieces, h.count = &m.pieces[i], uintptr(len(m.pieces[i]))
}

// Result is the length of the datagram of this number, and of its sender's address.
func (m *Many) Result(i int) (n int, addrLen uint32) {
	return int(m.headers[i].length), m.headers[i].header.nameLen
}

// Room is where the datagram of this number goes, and Came notes one that a kernel in this process
// has put there.
func (m *Many) Room(i int) []Vector { return m.pieces[i][:] }

// Came is told of a datagram's length and of its sender's name; see Room.
func (m *Many) Came(i, n int, from []byte) {
	h := &m.headers[i]
	to := Vector{Base: h.header.name, Len: uintptr(h.header.nameLen)}
	copy(to.Bytes(), from)
	h.length, h.header.nameLen = uint32(n), uint32(len(from))
}

// ReceiveMany receives up to n datagrams to the first places, and returns how many; fewer
// mean that no more are there. There has to be a RecvMany. Nothing and Told are as of
// Receive. Failed means that the system refuses the call: Receive is to be used.
func (d *Datagram) ReceiveMany(c *Calls, m *Many, n int) (int, Outcome, syscall.Errno) {
	if !d.lease.Held() {
		return 0, Told, syscall.EBADF
	}
	got, errno := c.RecvMany(int(d.lease.fd), unsafe.Pointer(&m.headers), n)
	switch errno {
	case 0:
		return got, Got, 0
	case syscall.EAGAIN, syscall.EINTR:
		return 0, Nothing, 0
	case syscall.ENOSYS, syscall.EPERM: // what a sandbox says
		return 0, Failed, errno
	default:
		return 0, Told, errno
	}
}
