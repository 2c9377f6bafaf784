//go:build linux

package simulated

import (
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// SetFaultsOf replaces the faults of one host; nil: the host has the kernel's faults again.
func (k *Kernel) SetFaultsOf(number int, f *Faults) syscall.Errno {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.hasHosts(number) {
		return syscall.ESRCH
	}
	k.hosts[number].faults = f
	return 0
}

// faultsOf returns the faults of a host, or with nil of nodes without a host.
func (k *Kernel) faultsOf(h *host) *Faults {
	if h != nil && h.faults != nil {
		return h.faults
	}
	return &k.options.Faults
}

// full reports whether the host of a node has reached its limit of sockets and pipes.
func (k *Kernel) full(n node) bool {
	h := homeOf(n)
	most := k.faultsOf(h).Descriptors
	return h != nil && most > 0 && h.sockets >= most
}

// fault decides whether a call fails, and with which errno.
func (k *Kernel) fault(name string, fd int) syscall.Errno {
	var home *host
	if file := k.file(fd); file != nil {
		home = homeOf(file.node)
	}
	errors := k.faultsOf(home).Errors
	for i := range errors {
		f := &errors[i]
		if f.Call != "" && f.Call != name || f.FD != 0 && f.FD != fd || !k.random.chance(f.Chance) {
			continue
		}
		return k.fail(fd, f.Errno)
	}
	return 0
}

// fail makes a call on a descriptor fail as the kernel could. It returns 0 if the call itself shall return
// the error.
func (k *Kernel) fail(fd int, errno syscall.Errno) syscall.Errno {
	file := k.file(fd)
	switch errno {
	case syscall.EAGAIN:
		if file == nil || !file.nonblocking {
			return 0
		}
		// An edge-triggered registration needs another event.
		k.at(k.now, "again", func() { file.node.watched().wake(0) })
	case syscall.ECONNRESET, syscall.EPIPE, syscall.ETIMEDOUT:
		if file == nil {
			return 0
		}
		if s, ok := file.node.(breakable); ok {
			s.breakConnection(errno)
		}
		return 0
	}
	return errno
}

// breakable is a connection that a network error can end.
type breakable interface{ breakConnection(errno syscall.Errno) }

// readPart and writePart return the part of n bytes that a call on a stream transfers.
func (k *Kernel) readPart(n node, size int) int {
	f := k.faultsOf(homeOf(n))
	return k.part(f.OneByte, f.ShortReads, size)
}

func (k *Kernel) writePart(n node, size int) int {
	f := k.faultsOf(homeOf(n))
	return k.part(f.OneByte, f.ShortWrites, size)
}

func (k *Kernel) part(oneByte, short float64, n int) int {
	switch {
	case n > 1 && k.random.chance(oneByte):
		return 1
	case n > 1 && k.random.chance(short):
		return int(k.random.between(1, int64(n-1)))
	}
	return n
}

// invent reports a socket as ready that may not be ready. Linux never does so for a connecting TCP socket,
// whose readiness is the result of connect(2).
func (ep *epoll) addSpuriousEvent() {
	k := ep.k
	invents := func(h *host) bool { return k.faultsOf(h).Spurious > 0 }
	if len(ep.items) == 0 || !slices.ContainsFunc(k.hosts, invents) {
		return
	}
	all := ep.sorted()
	it := all[k.random.between(0, int64(len(all)-1))]
	home := homeOf(it.key.file.node)
	if t, ok := it.key.file.node.(*tcp); ok && t.state == synSent {
		return
	}
	if home != nil && it.armed() && k.random.chance(k.faultsOf(home).Spurious) {
		it.spurious = it.events & (unix.EPOLLIN | unix.EPOLLOUT)
		it.list()
	}
}
