// Package transports holds the state machines of what a reactor moves bytes
// for: Stream (a connected socket, or an end of a pipe), Datagram and Listener.
//
// A machine owns the state of one descriptor and makes the system calls that
// move its bytes. It does not poll, allocate in steady state, or lock; it never
// blocks, as its descriptor is non-blocking. What it wants to hear from the poller
// is its Interest, and the reactor that drives it keeps the poller in step.
//
// Memory that is sent and received belongs to C. Its addresses are kept as plain
// numbers, which the garbage collector need not scan and which never become Go
// pointers. So does the record of a stream (StreamIO), which both sides write.
//
// Every system call goes through Calls, so that a test can make any of them fail.
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

// Outcome is what an attempt to receive or accept came to.
type Outcome uint8

// The outcomes.
const (
	// Nothing is there now; the poller will tell. EAGAIN, and EINTR too:
	// where something is there after all, a level-triggered poller says so again.
	Nothing Outcome = iota
	// Got bytes, or a connection.
	Got
	// End of stream.
	End
	// Failed for good, with an errno.
	Failed
	// Skipped one connection that was gone before it was accepted.
	Skipped
	// Exhausted: out of descriptors or memory, try again at a later time.
	Exhausted
	// Told of an error that ends nothing.
	Told
)

// Vector is a piece of C memory, laid out like struct iovec.
type Vector struct {
	Base uintptr
	Len  uintptr
}

// Bytes are those of the piece, to be read during the call.
func (v *Vector) Bytes() []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&v.Base)), v.Len)
}

// Calls are the system calls of the machines. All return at once: the
// descriptors are non-blocking. Addresses are of C memory.
type Calls struct {
	// Recv is recv(2) without flags, Read is read(2).
	Recv func(fd int, base, size uintptr) (int, syscall.Errno)
	Read func(fd int, base, size uintptr) (int, syscall.Errno)
	// RecvFrom is recvfrom(2) without flags.
	RecvFrom func(fd int, base, size, addr, addrLen uintptr) (int, syscall.Errno)
	// RecvMany is recvmmsg(2) into n of struct mmsghdr; nil where the system has none.
	RecvMany func(fd int, headers unsafe.Pointer, n int) (int, syscall.Errno)
	// Send is send(2) and SendVectors sendmsg(2), without SIGPIPE where the
	// system has a flag for that; Writev is writev(2).
	Send        func(fd int, base, size uintptr) (int, syscall.Errno)
	SendVectors func(fd int, v []Vector, scratch *Scratch) (int, syscall.Errno)
	Writev      func(fd int, v []Vector) (int, syscall.Errno)
	// Shutdown is shutdown(2) of the writing half.
	Shutdown func(fd int) syscall.Errno
	// Accept is accept(2) of a non-blocking, close-on-exec descriptor.
	Accept func(fd int, addr, addrLen uintptr) (int, syscall.Errno)
	// NoDelay sets TCP_NODELAY.
	NoDelay func(fd int) syscall.Errno
	// Sockname is getsockname(2).
	Sockname func(fd int, addr, addrLen uintptr) syscall.Errno
	// PipeSize is fcntl(2) with F_GETPIPE_SZ and SetPipeSize with F_SETPIPE_SZ, in bytes.
	PipeSize    func(fd int) (int, syscall.Errno)
	SetPipeSize func(fd, size int) syscall.Errno
	// Close is close(2).
	Close func(fd int) syscall.Errno
}
