//go:build linux

package simulated

import (
	"sync"
	"syscall"
)

// Kernel is one simulated kernel. Any thread may call it; calls run one at a time.
type Kernel struct {
	mu      sync.Mutex
	changed sync.Cond // signalled when a waiting call may have become possible
	options Options
	random  random
	trace   trace
	now     int64  // the clock in ns
	end     int64  // waits for a later time fail with ETIME; 0: never
	seq     uint64 // number of the last entry of the agenda or inode
	agenda  agenda

	table []descriptor // by number, from options.First on
	open  int          // number of open descriptors

	hosts   []*host          // by number
	links   map[[2]int]*link // by the numbers of the sending and the receiving host
	stalled []*tcp           // connections with segments that a stalled link keeps, in order
}

// New creates a kernel with host 0. If options.First is 0, descriptors 0 to 2 are open, as in a process.
func New(options Options) *Kernel {
	if options.Descriptors == 0 {
		options.Descriptors = 1024
	}
	k := &Kernel{
		options: options,
		random:  newRandom(options.Seed),
		trace:   trace{to: options.Trace},
		now:     options.Start,
		hosts:   []*host{newHost(0)},
		links:   map[[2]int]*link{},
	}
	k.changed.L = &k.mu
	for range 3 {
		if options.First == 0 {
			_, _ = k.install(&null{}, 0)
		}
	}
	return k
}

// Now returns the virtual time in ns.
func (k *Kernel) Now() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now
}

// SetEnd sets the end of time: waits for a later time fail with ETIME. 0: there is no end.
func (k *Kernel) SetEnd(at int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.end = at
}

// SetFaults replaces the faults of all hosts that have no faults of their own.
func (k *Kernel) SetFaults(f Faults) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.options.Faults = f
}

// Sleep advances the clock by ns and runs the entries that become due. ETIME if this would pass the end of
// time, which the clock then reaches.
func (k *Kernel) Sleep(ns int64) syscall.Errno {
	k.mu.Lock()
	defer k.mu.Unlock()
	for deadline := k.now + ns; ; {
		if ended, errno := k.stepWait(deadline); ended || errno != 0 {
			return errno
		}
	}
}

// Descriptors returns the number of open descriptors.
func (k *Kernel) Descriptors() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.open
}

// call is one call of a program, from begin to end.
type call struct {
	k    *Kernel
	name string
	fd   int
}

// begin starts a call: it locks the kernel, advances the clock by CallTime, runs due entries and decides
// about a fault. It returns the errno of an injected fault, or 0. The caller must then call end or done.
func (k *Kernel) begin(name string, fd int) (call, syscall.Errno) {
	k.mu.Lock()
	k.now += k.options.CallTime
	k.runDue()
	return call{k, name, fd}, k.decideFault(name, fd)
}

// end ends a call with result n, or -1 if errno is not 0: it writes the line of the trace with args and
// unlocks the kernel. It returns both results.
func (c call) end(n int, errno syscall.Errno, args ...int) (int, syscall.Errno) {
	if errno != 0 {
		n = -1
	}
	c.k.trace.call(c.k.now, c.name, c.fd, args, n, errno)
	c.k.mu.Unlock()
	return n, errno
}

// done is end for a call that returns only an errno.
func (c call) done(errno syscall.Errno, args ...int) syscall.Errno {
	_, errno = c.end(0, errno, args...)
	return errno
}
