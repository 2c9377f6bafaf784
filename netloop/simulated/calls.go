//go:build linux

package simulated

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Calls that transfer data. Calls on a blocking descriptor wait. The supported flags are MSG_DONTWAIT and
// MSG_NOSIGNAL.

// reader is a node that is not a socket and can be read. read returns the number of bytes; 0 is the end of
// the file.
type reader interface {
	read(b []byte) (int, syscall.Errno)
}

// writer is a node that is not a socket and can be written. write returns the number of bytes, which may be
// less than len(b).
type writer interface {
	write(b []byte) (int, syscall.Errno)
}

// retryUntilReady calls attempt, and again after each step of virtual time while attempt returns EAGAIN,
// the open file is blocking, and flags do not contain MSG_DONTWAIT. It returns the errno of the last
// attempt, or of the wait (ETIME, EDEADLK).
func (k *Kernel) retryUntilReady(f *file, flags int, attempt func() syscall.Errno) syscall.Errno {
	for {
		errno := attempt()
		if errno != syscall.EAGAIN || f.nonblocking || flags&unix.MSG_DONTWAIT != 0 {
			return errno
		}
		if _, errno := k.stepWait(forever); errno != 0 {
			return errno
		}
	}
}

// socketOf returns the socket of a descriptor and its open file. Errors: EBADF for a number that is not
// open, ENOTSOCK (with the open file) for any other file.
func (k *Kernel) socketOf(fd int) (endpoint, *file, syscall.Errno) {
	f := k.file(fd)
	if f == nil {
		return nil, nil, syscall.EBADF
	}
	if s, ok := f.node.(endpoint); ok {
		return s, f, 0
	}
	return nil, f, syscall.ENOTSOCK
}

// Read is read(2).
func (k *Kernel) Read(fd int, b []byte) (int, syscall.Errno) {
	c, fault := k.begin("read", fd)
	s, f, errno := k.socketOf(fd)
	n := -1
	switch errno {
	case 0:
		if len(b) == 0 {
			return c.end(0, fault, 0)
		}
		n, _, errno = k.receive(f, s, b, 0, fault)
	case syscall.ENOTSOCK:
		r, ok := f.node.(reader)
		if errno = fault; errno == 0 && !ok {
			errno = syscall.EINVAL
		}
		if errno == 0 {
			errno = k.retryUntilReady(f, 0, func() (errno syscall.Errno) { n, errno = r.read(b); return errno })
		}
	}
	return c.end(n, errno, len(b))
}

// Write is write(2), without SIGPIPE.
func (k *Kernel) Write(fd int, b []byte) (int, syscall.Errno) { return k.writeAs("write", fd, b) }

// Writev is writev(2) with its pieces in one slice.
func (k *Kernel) Writev(fd int, b []byte) (int, syscall.Errno) { return k.writeAs("writev", fd, b) }

// writeAs is write(2) under this name in the trace.
func (k *Kernel) writeAs(name string, fd int, b []byte) (int, syscall.Errno) {
	c, fault := k.begin(name, fd)
	s, f, errno := k.socketOf(fd)
	n := -1
	switch errno {
	case 0:
		n, errno = k.send(f, s, b, 0, nil, fault)
	case syscall.ENOTSOCK:
		w, ok := f.node.(writer)
		if errno = fault; errno == 0 && !ok {
			errno = syscall.EINVAL
		}
		if errno == 0 {
			n, errno = k.writeAll(f, b, 0, w.write)
		}
	}
	return c.end(n, errno, len(b))
}

// writeAll calls write until all of b is written if the descriptor blocks, else once. It returns the number
// of written bytes, or -1 and an errno if no byte was written.
func (k *Kernel) writeAll(f *file, b []byte, flags int, write func([]byte) (int, syscall.Errno)) (int, syscall.Errno) {
	sent := 0
	for {
		n := 0
		errno := k.retryUntilReady(f, flags, func() (errno syscall.Errno) { n, errno = write(b[sent:]); return errno })
		if errno != 0 {
			if sent > 0 {
				return sent, 0
			}
			return -1, errno
		}
		if sent += n; sent >= len(b) || f.nonblocking || flags&unix.MSG_DONTWAIT != 0 {
			return sent, 0
		}
	}
}

// send sends b on a socket, to the address `to` or to its peer if it is nil. fault is an injected errno,
// which is returned if it is not 0.
func (k *Kernel) send(f *file, s endpoint, b []byte, flags int, to *address, fault syscall.Errno) (int, syscall.Errno) {
	if fault != 0 {
		return -1, fault
	}
	return k.writeAll(f, b, flags, func(b []byte) (int, syscall.Errno) { return s.send(b, to) })
}

// receive receives into b from a socket and returns the number of bytes and a datagram's sender, or nil.
// fault is an injected errno, which is returned if it is not 0.
func (k *Kernel) receive(f *file, s endpoint, b []byte, flags int, fault syscall.Errno) (int, *address, syscall.Errno) {
	if fault != 0 {
		return -1, nil, fault
	}
	var n int
	var from *address
	errno := k.retryUntilReady(f, flags, func() (errno syscall.Errno) { n, from, errno = s.receive(b); return errno })
	return n, from, errno
}

// Recv is recv(2).
func (k *Kernel) Recv(fd int, b []byte, flags int) (int, syscall.Errno) {
	n, _, errno := k.receiveAs("recv", fd, b, flags)
	return n, errno
}

// RecvFrom is recvfrom(2). The sender's address may be empty.
func (k *Kernel) RecvFrom(fd int, b []byte, flags int) (n int, from []byte, errno syscall.Errno) {
	return k.receiveAs("recvfrom", fd, b, flags)
}

// receiveAs is recvfrom(2) under this name in the trace.
func (k *Kernel) receiveAs(name string, fd int, b []byte, flags int) (int, []byte, syscall.Errno) {
	c, fault := k.begin(name, fd)
	s, f, errno := k.socketOf(fd)
	var n int
	var from *address
	if errno == 0 {
		n, from, errno = k.receive(f, s, b, flags, fault)
	}
	n, errno = c.end(n, errno, len(b))
	if from == nil {
		return n, nil, errno
	}
	return n, from.encode(), errno
}

// RecvMany is recvmmsg(2) with MSG_DONTWAIT for at most `limit` datagrams. It calls next for the buffer of
// the i-th datagram and got with its length and its sender, and returns the number of datagrams. If an
// error other than EAGAIN follows the first datagram, the socket's next call returns it.
func (k *Kernel) RecvMany(fd, limit int, next func(i int) []byte, got func(i, n int, from []byte)) (int, syscall.Errno) {
	c, fault := k.begin("recvmmsg", fd)
	s, f, errno := k.socketOf(fd)
	count := 0
	for ; errno == 0 && count < limit; count++ {
		var n int
		var from *address
		if n, from, errno = k.receive(f, s, next(count), unix.MSG_DONTWAIT, fault); errno != 0 {
			break
		}
		var name []byte
		if from != nil {
			name = from.encode()
		}
		got(count, n, name)
	}
	if count > 0 {
		if errno != 0 && errno != syscall.EAGAIN {
			s.base().err = errno // reported by the next call
		}
		errno = 0
	}
	return c.end(count, errno, limit)
}

// Send is send(2).
func (k *Kernel) Send(fd int, b []byte, flags int) (int, syscall.Errno) {
	return k.sendAs("send", fd, b, flags, nil)
}

// SendVectors is sendmsg(2) with its pieces in one slice.
func (k *Kernel) SendVectors(fd int, b []byte, flags int) (int, syscall.Errno) {
	return k.sendAs("sendmsg", fd, b, flags, nil)
}

// SendTo is sendto(2).
func (k *Kernel) SendTo(fd int, b []byte, flags int, to []byte) (int, syscall.Errno) {
	return k.sendAs("sendto", fd, b, flags, to)
}

// sendAs is sendto(2) under this name in the trace; without an address it is send(2).
func (k *Kernel) sendAs(name string, fd int, b []byte, flags int, to []byte) (int, syscall.Errno) {
	c, fault := k.begin(name, fd)
	s, f, errno := k.socketOf(fd)
	var target *address
	if errno == 0 && len(to) > 0 {
		var a address
		a, a.bad = parseAddress(to, s.base().family)
		target = &a
	}
	n := -1
	if errno == 0 {
		n, errno = k.send(f, s, b, flags, target, fault)
	}
	return c.end(n, errno, len(b))
}
