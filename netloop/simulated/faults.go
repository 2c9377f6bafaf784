//go:build linux

package simulated

import (
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// SetFaultsOf replaces the faults of one host from now on; nil: it has the kernel's again.
func (k *Kernel) SetFaultsOf(number int, f *Faults) syscall.Errno {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.hasHosts(number) {
		return syscall.ESRCH
	}
	k.hosts[number].faults = f
	return 0
}

// faultsOf are the faults of a host, and with nil those of what belongs to none.
func (k *Kernel) faultsOf(h *host) *Faults {
	if h != nil && h.faults != nil {
		return h.faults
	}
	return &k.options.Faults
}

// full tells whether the host of a node may have no more of them.
func (k *Kernel) full(n node) bool {
	h := homeOf(n)
	most := k.faultsOf(h).Descriptors
	return h != nil && most > 0 && h.sockets >= most
}

// fault decides whether a call fails, and by what.
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

// fail makes a call on a descriptor fail in a way that the kernel could: 0 where the call itself
// will answer.
func (k *Kernel) fail(fd int, errno syscall.Errno) syscall.Errno {
	file := k.file(fd)
	switch errno {
	case syscall.EAGAIN:
		if file == nil || !file.nonblocking {
			return 0
		}
		// What is polled for edges has to hear of it again.
		k.at(k.now, "again", func() { file.node.watched().wake(0) })
	case syscall.ECONNRESET, syscall.EPIPE, syscall.ETIMEDOUT:
		if file == nil {
			return 0
		}
		if s, ok := file.node.(breakable); ok {
			s.breakOff(errno)
		}
		return 0
	}
	return errno
}

// breakable is a connection, which an error of the network can end.
type breakable interface{ breakOff(errno syscall.Errno) }

// readPart and writePart are how much of n bytes a call on a stream moves.
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

// invent has a socket be told as ready that perhaps is not. A TCP socket that connects is never
// told so on Linux, where readiness is the answer to connect(2).
func (ep *epoll) invent() {
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
