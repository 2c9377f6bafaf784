//go:build linux

package simulated

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Calls that transfer data. Calls on a blocking descriptor wait. The supported flags are MSG_DONTWAIT and
// MSG_NOSIGNAL.

type reader interface {
	read(b []byte) (int, syscall.Errno)
}

type writer interface {
	write(b []byte) (int, syscall.Errno)
}

// until repeats an attempt as long as it returns EAGAIN and the call may wait.
func (k *Kernel) until(f *file, flags int, attempt func() syscall.Errno) syscall.Errno {
	for {
		errno := attempt()
		if errno != syscall.EAGAIN || f.nonblocking || flags&unix.MSG_DONTWAIT != 0 {
			return errno
		}
		if _, errno := k.idle(forever); errno != 0 {
			return errno
		}
	}
}

// socketOf returns the socket of a descriptor.
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
			errno = k.until(f, 0, func() (errno syscall.Errno) { n, errno = r.read(b); return errno })
		}
	}
	return c.end(n, errno, len(b))
}

// Write is write(2), without SIGPIPE.
func (k *Kernel) Write(fd int, b []byte) (int, syscall.Errno) { return k.writeAs("write", fd, b) }

// Writev is writev(2) with its pieces in one slice.
func (k *Kernel) Writev(fd int, b []byte) (int, syscall.Errno) { return k.writeAs("writev", fd, b) }

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

// whole writes all data if the descriptor blocks, else as much as there is room for.
func (k *Kernel) writeAll(f *file, b []byte, flags int, write func([]byte) (int, syscall.Errno)) (int, syscall.Errno) {
	sent := 0
	for {
		n := 0
		errno := k.until(f, flags, func() (errno syscall.Errno) { n, errno = write(b[sent:]); return errno })
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

func (k *Kernel) send(f *file, s endpoint, b []byte, flags int, to *address, fault syscall.Errno) (int, syscall.Errno) {
	if fault != 0 {
		return -1, fault
	}
	return k.writeAll(f, b, flags, func(b []byte) (int, syscall.Errno) { return s.send(b, to) })
}

func (k *Kernel) receive(f *file, s endpoint, b []byte, flags int, fault syscall.Errno) (int, *address, syscall.Errno) {
	if fault != 0 {
		return -1, nil, fault
	}
	var n int
	var from *address
	errno := k.until(f, flags, func() (errno syscall.Errno) { n, from, errno = s.receive(b); return errno })
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

// RecvMany is recvmmsg(2). next returns the buffer of the i-th datagram, got receives its length and
// sender.
func (k *Kernel) RecvMany(fd, most int, next func(i int) []byte, got func(i, n int, from []byte)) (int, syscall.Errno) {
	c, fault := k.begin("recvmmsg", fd)
	s, f, errno := k.socketOf(fd)
	count := 0
	for ; errno == 0 && count < most; count++ {
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
	return c.end(count, errno, most)
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

func (k *Kernel) sendAs(name string, fd int, b []byte, flags int, to []byte) (int, syscall.Errno) {
	c, fault := k.begin(name, fd)
	s, f, errno := k.socketOf(fd)
	var target *address
	if errno == 0 && len(to) > 0 {
		var a address
		a, a.bad = decode(to, s.base().family)
		target = &a
	}
	n := -1
	if errno == 0 {
		n, errno = k.send(f, s, b, flags, target, fault)
	}
	return c.end(n, errno, len(b))
}
