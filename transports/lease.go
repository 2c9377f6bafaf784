package transports

import "sync/atomic"

// Lease is a descriptor's number and the proof that it is still the descriptor
// that was meant. A number is no identity: its owner may close the descriptor, and
// then the kernel gives the number to the next file.
//
// The owner is an object of Python, which keeps the number in memory of C that
// lives as long as the lease. A nil owner means that nobody else closes it.
type Lease struct {
	fd    int32
	owner *int32
}

// NewLease makes a lease; owner may be nil.
func NewLease(fd int32, owner *int32) Lease { return Lease{fd, owner} }

// Held tells whether the owner still has that number: a call may be made on it.
func (l *Lease) Held() bool { return held(l.fd, l.owner) }

// held is Held where the address of the owner's number is kept elsewhere.
func held(fd int32, owner *int32) bool { return owner == nil || atomic.LoadInt32(owner) == fd }
