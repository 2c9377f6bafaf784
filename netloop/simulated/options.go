//go:build linux

package simulated

import (
	"io"
	"slices"
	"syscall"
)

// Options configure a kernel. The zero value is a kernel without faults and with a network that takes no
// time.
type Options struct {
	Seed uint64
	// Start is the first time of the clock in ns; CallTime is the duration of each call.
	Start, CallTime int64
	// Descriptors is the limit of open descriptors; 0 means 1024.
	Descriptors int
	// First is the lowest descriptor. It is above the real kernel's numbers if both kernels are in use, so
	// that a number identifies its kernel. With 0 the numbers 0 to 2 are open and are not sockets.
	First int
	// Sealed: no other thread calls this kernel, so a wait that nothing can end fails with EDEADLK.
	Sealed bool
	// Trace gets a line for each call and for each entry of the agenda; nil: no trace.
	Trace io.Writer

	Network Network
	Faults  Faults
}

// Network has the properties of TCP and UDP transmission, between all hosts or on one link.
type Network struct {
	// A packet takes between MinLatency and MaxLatency ns. TCP packets stay in order.
	MinLatency, MaxLatency int64
	// Fragment is the chance that a piece of a TCP stream is sent in two packets. Coalesce is the chance
	// that it waits for the next piece.
	Fragment, Coalesce float64
	// SlowReader is the chance that the sender learns up to MaxSlow ns late that its peer has read.
	SlowReader float64
	MaxSlow    int64
	// Storm is the chance that a connection arrives at its listener together with other waiting
	// connections, at the next multiple of StormEvery ns.
	Storm      float64
	StormEvery int64
	// Bandwidth is the number of bytes that a host sends per second; 0: no limit.
	Bandwidth float64
	// Loss is the chance that a packet is lost; TCP retransmits it, see retryFirst. Duplicate and Reorder
	// are chances of a UDP datagram.
	Loss, Duplicate, Reorder float64
}

// Faults are the failures that a kernel injects, with their chances.
type Faults struct {
	// Errors fail calls. The first one that matches applies.
	Errors []Fault
	// ShortReads and ShortWrites are the chances that a call on a stream transfers a part of the possible
	// bytes, OneByte that it transfers one byte.
	ShortReads, ShortWrites, OneByte float64
	// Late is the chance that readiness is reported up to MaxLate ns late.
	Late    float64
	MaxLate int64
	// Spurious is the chance that a poll reports a socket that is not ready.
	Spurious float64
	// Descriptors is the limit of sockets and pipe ends of each host, beyond which calls fail with EMFILE;
	// 0: no limit.
	Descriptors int
}

// Add adds a failure with this errno and chance to each of these calls, which are named as in the trace.
func (f *Faults) Add(errno syscall.Errno, chance float64, calls ...string) {
	for _, call := range calls {
		if chance > 0 {
			f.Errors = append(f.Errors, Fault{Call: call, Errno: errno, Chance: chance})
		}
	}
}

// Fault makes a call fail. ECONNRESET, EPIPE and ETIMEDOUT break a connected stream as a network error
// does: this call and all later ones return the error, and the peer gets a reset. EAGAIN is followed by an
// event for edge-triggered registrations. Any other errno is the result of this call only.
type Fault struct {
	Call   string // the call's name in the trace; "": every call
	FD     int    // the descriptor; 0: every descriptor
	Errno  syscall.Errno
	Chance float64
}

// CommonFaults returns the faults that every program has to handle, each with the same chance.
func CommonFaults(chance float64) Faults {
	f := Faults{
		ShortReads: chance, ShortWrites: chance, OneByte: chance,
		Late: chance, MaxLate: 50_000_000, Spurious: chance,
	}
	add := func(errno syscall.Errno, calls ...string) { f.Add(errno, chance, calls...) }
	moving := []string{"recv", "recvfrom", "recvmmsg", "read", "send", "sendto", "sendmsg", "write", "writev"}
	add(syscall.EINTR, append(moving, "accept", "epoll_wait", "epoll_pwait2")...)
	add(syscall.EAGAIN, append(moving, "accept")...)
	add(syscall.ENOBUFS, "sendto", "accept", "setsockopt", "getsockname")
	add(syscall.ENOMEM, "accept", "epoll_add", "socket", "recvfrom", "recvmmsg")
	add(syscall.EMFILE, "accept", "socket", "socketpair", "pipe", "dup", "epoll_create", "eventfd")
	add(syscall.ECONNRESET, "recv", "send", "sendmsg", "read", "write", "writev")
	add(syscall.ETIMEDOUT, "recv", "read")
	add(syscall.EPIPE, "send", "sendmsg", "write", "writev")
	return f
}

// Without returns the faults except the ones with some errnos.
func (f Faults) Without(errnos ...syscall.Errno) Faults {
	f.Errors = slices.DeleteFunc(slices.Clone(f.Errors), func(e Fault) bool { return slices.Contains(errnos, e.Errno) })
	return f
}
