//go:build linux

package simulated

import (
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// SetFaultsOf replaces the faults of one host; nil: the host has the kernel's faults again. ESRCH if there
// is no such host.
func (k *Kernel) SetFaultsOf(number int, f *Faults) syscall.Errno {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.hasHosts(number) {
		return syscall.ESRCH
	}
	k.hosts[number].faults = f
	return 0
}

// faultsOf returns the faults that apply to a host: its own, or the kernel's. h is nil for nodes without a
// host.
func (k *Kernel) faultsOf(h *host) *Faults {
	if h != nil && h.faults != nil {
		return h.faults
	}
	return &k.options.Faults
}

// hostIsFull reports whether the host of a node has reached the limit of sockets and pipe ends that a fault
// sets (Faults.Descriptors).
func (k *Kernel) hostIsFull(n node) bool {
	h := hostOfNode(n)
	limit := k.faultsOf(h).Descriptors
	return h != nil && limit > 0 && h.sockets >= limit
}

// decideFault decides whether a call with this name on a descriptor fails, and returns its errno or 0. fd is
// -1 for a call without a descriptor. It may break the connection (see prepareFailure).
func (k *Kernel) decideFault(name string, fd int) syscall.Errno {
	var home *host
	if file := k.file(fd); file != nil {
		home = hostOfNode(file.node)
	}
	errors := k.faultsOf(home).Errors
	for i := range errors {
		f := &errors[i]
		if f.Call != "" && f.Call != name || f.FD != 0 && f.FD != fd || !k.random.chance(f.Chance) {
			continue
		}
		return k.prepareFailure(fd, f.Errno)
	}
	return 0
}

// prepareFailure prepares the failure of a call with this errno. For ECONNRESET, EPIPE and ETIMEDOUT it
// breaks the connection, if there is one, and returns 0: the call itself then returns the error. EAGAIN is
// for non-blocking descriptors only, and an event follows it; for others it returns 0, and the call is
// made. Any other errno is returned instead of making the call.
func (k *Kernel) prepareFailure(fd int, errno syscall.Errno) syscall.Errno {
	file := k.file(fd)
	switch errno {
	case syscall.EAGAIN:
		if file == nil || !file.nonblocking {
			return 0
		}
		// An edge-triggered registration needs another event.
		k.schedule(k.now, "again", func() { file.node.watched().wake(0) })
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

// breakable is a socket whose connection a network error can end. breakConnection does so: calls on this
// side return the errno, and the other side's connection ends. Without a connection it does nothing.
type breakable interface{ breakConnection(errno syscall.Errno) }

// readSize returns the number of bytes that a read of `size` bytes on a stream transfers: all, or fewer by
// a fault.
func (k *Kernel) readSize(n node, size int) int {
	f := k.faultsOf(hostOfNode(n))
	return k.partialSize(f.OneByte, f.ShortReads, size)
}

// writeSize returns the number of bytes that a write of `size` bytes on a stream transfers: all, or fewer
// by a fault.
func (k *Kernel) writeSize(n node, size int) int {
	f := k.faultsOf(hostOfNode(n))
	return k.partialSize(f.OneByte, f.ShortWrites, size)
}

// partialSize returns 1 with the chance oneByte, else a random number below n with the chance short, else n.
// For n <= 1 it returns n.
func (k *Kernel) partialSize(oneByte, short float64, n int) int {
	switch {
	case n > 1 && k.random.chance(oneByte):
		return 1
	case n > 1 && k.random.chance(short):
		return int(k.random.between(1, int64(n-1)))
	}
	return n
}

// addSpuriousEvent may make one registered socket or pipe end appear ready in the next wait, by the fault
// Spurious of its host. Linux never does so for a connecting TCP socket, whose readiness is the result of
// connect(2).
func (ep *epoll) addSpuriousEvent() {
	k := ep.k
	invents := func(h *host) bool { return k.faultsOf(h).Spurious > 0 }
	if len(ep.items) == 0 || !slices.ContainsFunc(k.hosts, invents) {
		return
	}
	all := ep.sorted()
	it := all[k.random.between(0, int64(len(all)-1))]
	home := hostOfNode(it.key.file.node)
	if t, ok := it.key.file.node.(*tcp); ok && t.state == synSent {
		return
	}
	if home != nil && it.armed() && k.random.chance(k.faultsOf(home).Spurious) {
		it.spurious = it.events & (unix.EPOLLIN | unix.EPOLLOUT)
		it.list()
	}
}
