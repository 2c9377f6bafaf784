// Package transports implements the state machines of a reactor's transports: Stream (a
// connected socket, or one end of a pipe), Datagram and Listener.
//
// A machine owns the state of one descriptor and makes the system calls that move its bytes. It
// does not poll, lock or block: its descriptor is non-blocking. It does not allocate in steady
// state. Its Interest method returns the directions that must be polled, and the reactor
// updates the poller accordingly.
//
// The memory that is sent and received belongs to C. Its addresses are stored as plain numbers,
// which the garbage collector does not scan and which never become Go pointers. The record of a
// stream (StreamIO) also belongs to C; both sides write it.
//
// All system calls go through Calls, so that a test can make any call fail.
package transports

import (
	"syscall"
	"unsafe"
)

// Interest is a set of directions.
type Interest uint8

// The directions of an Interest.
const (
	Readable Interest = 1 << iota
	Writable
)

// Outcome is the result of an attempt to receive or accept.
type Outcome uint8

// The outcomes of receiving and accepting.
const (
	// WouldBlock: nothing is available now (EAGAIN, and also EINTR). The level-triggered poller
	// reports the descriptor again when something is available.
	WouldBlock Outcome = iota
	// OK: bytes or a connection arrived.
	OK
	// EOF: the end of the stream.
	EOF
	// Failed: the call failed with an errno, and further calls would fail too.
	Failed
	// Skipped: one connection failed before it was accepted; the next may succeed.
	Skipped
	// Exhausted: the process or the system is out of descriptors or memory. Retry later.
	Exhausted
	// Transient: the call reported an error that does not end the transport.
	Transient
)

// Vector describes a piece of C memory, with the layout of struct iovec.
type Vector struct {
	Base uintptr
	Len  uintptr
}

// Bytes returns the memory of the vector. The slice must not be used after the call for
// which it was requested.
func (v *Vector) Bytes() []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&v.Base)), v.Len)
}

// Calls are the system calls of the machines. They return at once, because the descriptors are
// non-blocking. Addresses refer to C memory.
type Calls struct {
	// Recv is recv(2) without flags, Read is read(2).
	Recv func(fd int, base, size uintptr) (int, syscall.Errno)
	Read func(fd int, base, size uintptr) (int, syscall.Errno)
	// RecvFrom is recvfrom(2) without flags.
	RecvFrom func(fd int, base, size, addr, addrLen uintptr) (int, syscall.Errno)
	// Recvmmsg is recvmmsg(2) with n headers of type struct mmsghdr; nil if the system does not
	// have the call.
	Recvmmsg func(fd int, headers unsafe.Pointer, n int) (int, syscall.Errno)
	// Send is send(2) and SendVectors is sendmsg(2), both without SIGPIPE if the system has a
	// flag for this. Writev is writev(2).
	Send        func(fd int, base, size uintptr) (int, syscall.Errno)
	SendVectors func(fd int, v []Vector, scratch *Scratch) (int, syscall.Errno)
	Writev      func(fd int, v []Vector) (int, syscall.Errno)
	// Shutdown is shutdown(2) with SHUT_WR.
	Shutdown func(fd int) syscall.Errno
	// Accept is accept(2). The new descriptor is non-blocking and close-on-exec.
	Accept func(fd int, addr, addrLen uintptr) (int, syscall.Errno)
	// NoDelay sets TCP_NODELAY.
	NoDelay func(fd int) syscall.Errno
	// Sockname is getsockname(2).
	Sockname func(fd int, addr, addrLen uintptr) syscall.Errno
	// PipeSize is fcntl(2) with F_GETPIPE_SZ and SetPipeSize is fcntl(2) with F_SETPIPE_SZ, in
	// bytes.
	PipeSize    func(fd int) (int, syscall.Errno)
	SetPipeSize func(fd, size int) syscall.Errno
	// Close is close(2).
	Close func(fd int) syscall.Errno
}
