//go:build linux

package simulated

import "syscall"

// fault decides whether a call fails, and by what.
func (k *Kernel) fault(name string, fd int) syscall.Errno {
	for i := range k.options.Faults.Errors {
		f := &k.options.Faults.Errors[i]
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

// part is how much of n bytes a call on a stream moves.
func (k *Kernel) part(n int) int {
	f := &k.options.Faults
	switch {
	case n > 1 && k.random.chance(f.OneByte):
		return 1
	case n > 1 && k.random.chance(f.Short):
		return int(k.random.between(1, int64(n-1)))
	}
	return n
}
