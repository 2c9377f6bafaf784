package transports

import (
	"syscall"
	"unsafe"
)

// MaxRecvBatch is the maximum number of datagrams that one system call receives.
const MaxRecvBatch = 16

// RecvBatch has the buffers of one recvmmsg(2) call that receives several datagrams with their
// senders. The kernel accesses it only during a call. The structure belongs to Go; the
// buffers that it refers to belong to C.
type RecvBatch struct {
	messages [MaxRecvBatch]mmsghdr
	vectors  [MaxRecvBatch][2]Vector
}

// mmsghdr is struct mmsghdr of Linux.
type mmsghdr struct {
	header struct {
		name       uintptr
		nameLen    uint32
		vectors    *[2]Vector
		count      uintptr
		control    uintptr
		controlLen uintptr
		flags      int32
	}
	length uint32
}

// SetBuffer sets the buffers of datagram i: addr for the sender's address with up to addrMax
// bytes, head for the first bytes of the datagram, tail for the rest.
func (m *RecvBatch) SetBuffer(i int, addr uintptr, addrMax uint32, head, tail Vector) {
	m.vectors[i] = [2]Vector{head, tail}
	h := &m.messages[i].header
	h.name, h.nameLen = addr, addrMax
	h.vectors, h.count = &m.vectors[i], uintptr(len(m.vectors[i]))
}

// Result returns the length of datagram i and the length of its sender's address.
func (m *RecvBatch) Result(i int) (n int, addrLen uint32) {
	return int(m.messages[i].length), m.messages[i].header.nameLen
}

// Buffer returns the buffers of datagram i. A kernel in the same process writes to them.
func (m *RecvBatch) Buffer(i int) []Vector { return m.vectors[i][:] }

// Deliver stores the length and the sender's address of datagram i, which a kernel in the
// same process has written to the memory of Buffer.
func (m *RecvBatch) Deliver(i, n int, from []byte) {
	h := &m.messages[i]
	to := Vector{Base: h.header.name, Len: uintptr(h.header.nameLen)}
	copy(to.Bytes(), from)
	h.length, h.header.nameLen = uint32(n), uint32(len(from))
}

// ReceiveBatch receives up to n datagrams to the first buffers and returns their number. A result
// below n means that the socket has no more datagrams. Calls.Recvmmsg must not be nil. WouldBlock
// means that the socket is empty, and Transient that the kernel reported an error, or EBADF if
// the lease has ended. Failed means that the system refuses the call, so the caller must use
// Receive.
func (d *Datagram) ReceiveBatch(c *Calls, m *RecvBatch, n int) (int, Outcome, syscall.Errno) {
	if !d.lease.Valid() {
		return 0, Transient, syscall.EBADF
	}
	got, errno := c.Recvmmsg(int(d.lease.fd), unsafe.Pointer(&m.messages), n)
	switch errno {
	case 0:
		return got, OK, 0
	case syscall.EAGAIN, syscall.EINTR:
		return 0, WouldBlock, 0
	case syscall.ENOSYS, syscall.EPERM: // errors of a sandbox
		return 0, Failed, errno
	default:
		return 0, Transient, errno
	}
}
