package transports

import "sync/atomic"

// Lease is a descriptor's number together with the means to check that the number still refers
// to the same descriptor. A number alone is not an identity: after the owner closes the
// descriptor, the kernel gives the number to the next file that is opened.
//
// The owner is a Python object. It stores the number in C memory that lives as long as the
// lease. A nil owner means that nothing else closes the descriptor.
type Lease struct {
	fd    int32
	owner *int32
}

// NewLease returns a lease of fd; owner may be nil.
func NewLease(fd int32, owner *int32) Lease { return Lease{fd, owner} }

// Valid reports whether the owner still has this number, so that a call on it is safe.
func (l *Lease) Valid() bool { return leaseValid(l.fd, l.owner) }

// leaseValid is Valid for callers that store the two parts of a lease separately.
func leaseValid(fd int32, owner *int32) bool { return owner == nil || atomic.LoadInt32(owner) == fd }
