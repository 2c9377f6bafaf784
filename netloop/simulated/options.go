//go:build linux

package simulated

import (
	"io"
	"slices"
	"syscall"
)

// Options say how a kernel behaves. The zero value is a kernel without faults, whose network takes
// no time.
type Options struct {
	Seed uint64
	// Start is what the clock says first, in ns, and CallTime how long each call takes.
	Start, CallTime int64
	// Descriptors is how many a process may have open; 0 means 1024.
	Descriptors int
	// First is the least number of a descriptor. Beside the host's kernel it is one that the host
	// has not got: then a number tells whose it is. With 0 the first three are open, and no sockets.
	First int
	// Sealed tells that no other thread calls: a wait that nothing can end fails with EDEADLK.
	Sealed bool
	// Trace gets a line for each call and for each entry of the agenda; nil: no trace.
	Trace io.Writer

	Network Network
	Faults  Faults
}

// Network is how TCP and UDP travel: between all hosts, or on one link.
type Network struct {
	// A packet takes between LatencyLeast and LatencyMost ns. TCP stays in order.
	LatencyLeast, LatencyMost int64
	// Fragment is the chance that a piece of a TCP stream is cut in two, which travel on their own,
	// and Coalesce the chance that it waits for the one behind it.
	Fragment, Coalesce float64
	// SlowReader is the chance that the sender hears up to SlowMost ns late that its peer has read.
	SlowReader float64
	SlowMost   int64
	// Storm is the chance that a connection comes to its listener with the others that wait for
	// that, at the next multiple of StormEvery ns.
	Storm      float64
	StormEvery int64
	// Bandwidth is how many bytes leave a host in a second; 0: all at once.
	Bandwidth float64
	// Loss is the chance that a packet is lost; TCP sends it again later, see retryFirst. Duplicate and
	// Reorder are chances of a UDP datagram.
	Loss, Duplicate, Reorder float64
}

// Faults are what goes wrong, by chance and by place.
type Faults struct {
	// Errors fail calls. The first that hits counts.
	Errors []Fault
	// ShortReads and ShortWrites are the chances that a call on a stream moves a part of what it
	// could, OneByte that it moves one byte.
	ShortReads, ShortWrites, OneByte float64
	// Late is the chance that readiness is told up to LateMost ns after it came.
	Late     float64
	LateMost int64
	// Spurious is the chance that a poll tells of a socket that is not ready.
	Spurious float64
	// Descriptors is how many sockets and ends of pipes each host may have open, then calls that make
	// one fail with EMFILE; 0 is any number.
	Descriptors int
}

// Add has calls fail with a chance.
func (f *Faults) Add(errno syscall.Errno, chance float64, calls ...string) {
	for _, call := range calls {
		if chance > 0 {
			f.Errors = append(f.Errors, Fault{Call: call, Errno: errno, Chance: chance})
		}
	}
}

// Fault makes a call fail.
//
// ECONNRESET, EPIPE and ETIMEDOUT of a connected stream break the connection, as an error of the
// network does: the call and all that follow answer by that, and the peer gets a reset. EAGAIN is
// followed by an event, for what is polled for edges. Any other errno is the answer of that one call.
type Fault struct {
	Call   string // as the trace names it; "" is each call
	FD     int    // of this descriptor; 0 is each
	Errno  syscall.Errno
	Chance float64
}

// Usual are the faults that a program has to live with, each with the same chance.
func Usual(chance float64) Faults {
	f := Faults{
		ShortReads: chance, ShortWrites: chance, OneByte: chance,
		Late: chance, LateMost: 50_000_000, Spurious: chance,
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

// Without are the faults but for those of some errnos.
func (f Faults) Without(errnos ...syscall.Errno) Faults {
	f.Errors = slices.DeleteFunc(slices.Clone(f.Errors), func(e Fault) bool { return slices.Contains(errnos, e.Errno) })
	return f
}
