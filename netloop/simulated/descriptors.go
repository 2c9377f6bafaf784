//go:build linux

package simulated

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// descriptor is a number's entry in the table: an open file, which may have several numbers.
type descriptor struct {
	file        *file
	closeOnExec bool
}

// file is an open file: the node with the flags that all its numbers share. refs is the number of
// descriptors that refer to it.
type file struct {
	node        node
	nonblocking bool
	refs        int
}

// file returns the open file of a number, or nil.
func (k *Kernel) file(fd int) *file {
	if fd -= k.options.First; fd < 0 || fd >= len(k.table) {
		return nil
	}
	return k.table[fd].file
}

// place returns the entry of a number, which must be in the table.
func (k *Kernel) place(fd int) *descriptor { return &k.table[fd-k.options.First] }

// install opens a node under the lowest free number and returns the number, or EMFILE. flags are O_NONBLOCK
// and O_CLOEXEC, which have the same values under all their names (SOCK_, EFD_, EPOLL_).
func (k *Kernel) install(n node, flags int) (int, syscall.Errno) {
	fd, errno := k.installFile(&file{node: n, nonblocking: flags&unix.O_NONBLOCK != 0}, 0)
	if errno == 0 {
		k.place(fd).closeOnExec = flags&unix.O_CLOEXEC != 0
	}
	return fd, errno
}

// installFile gives an open file the lowest free number that is at least `least`. It fails with EMFILE at
// the limit of the kernel or of the node's host.
func (k *Kernel) installFile(f *file, least int) (int, syscall.Errno) {
	if k.hostIsFull(f.node) {
		return -1, syscall.EMFILE
	}
	for fd := max(least, k.options.First); fd < k.options.First+k.options.Descriptors; fd++ {
		if k.file(fd) == nil {
			k.put(fd, f)
			return fd, 0
		}
	}
	return -1, syscall.EMFILE
}

// put makes a number refer to an open file, and extends the table if necessary. The number must be free. It
// does not check limits.
func (k *Kernel) put(fd int, f *file) {
	for fd-k.options.First >= len(k.table) {
		k.table = append(k.table, descriptor{})
	}
	f.refs++
	f.node.watched().k = k
	*k.place(fd) = descriptor{file: f}
	k.open++
	if h := hostOfNode(f.node); h != nil {
		h.sockets++
	}
}

// freeDescriptor frees a number, or returns EBADF. With the last number of an open file it also removes the
// file from all epolls and releases its node.
func (k *Kernel) freeDescriptor(fd int) syscall.Errno {
	f := k.file(fd)
	if f == nil {
		return syscall.EBADF
	}
	*k.place(fd) = descriptor{}
	k.open--
	if h := hostOfNode(f.node); h != nil {
		h.sockets--
	}
	if f.refs--; f.refs == 0 {
		w := f.node.watched()
		for len(w.items) > 0 {
			w.items[0].remove()
		}
		f.node.release()
	}
	return 0
}

// Close is close(2). The number is free afterwards even if a fault makes the call fail. EBADF if it was
// not open.
func (k *Kernel) Close(fd int) syscall.Errno {
	c, fault := k.begin("close", fd)
	// The number is free whether the call fails or not.
	if errno := k.freeDescriptor(fd); errno != 0 {
		fault = errno
	}
	return c.done(fault)
}

// Dup is dup(2), or fcntl(2) with F_DUPFD: the duplicate gets the lowest free number from `least` on.
// EMFILE if there is none.
func (k *Kernel) Dup(fd, least int, closeOnExec bool) (int, syscall.Errno) {
	c, errno := k.begin("dup", fd)
	f := k.file(fd)
	if f == nil {
		errno = syscall.EBADF
	}
	if errno != 0 {
		return c.end(-1, errno)
	}
	n, errno := k.installFile(f, least)
	if errno == 0 {
		k.place(n).closeOnExec = closeOnExec
	}
	return c.end(n, errno)
}

// Dup3 is dup3(2), or dup2(2) if both numbers may be equal: equal numbers change nothing. An open file of
// the number `to` is closed. EBADF if `from` is not open or `to` is not a number of this kernel. The
// host's limit of descriptors does not apply.
func (k *Kernel) Dup3(from, to int, closeOnExec bool) syscall.Errno {
	c, errno := k.begin("dup3", from)
	f := k.file(from)
	switch {
	case errno != 0:
	case f == nil || to < k.options.First || to >= k.options.First+k.options.Descriptors:
		errno = syscall.EBADF
	case from != to:
		_ = k.freeDescriptor(to)
		k.put(to, f)
		k.place(to).closeOnExec = closeOnExec
	}
	return c.done(errno, to)
}

// Fcntl is fcntl(2) for F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETPIPE_SZ and F_SETPIPE_SZ. The result of
// the last two is the pipe's size in bytes, or EBADF for another file. F_SETFL sets O_NONBLOCK only.
// Another command returns EINVAL.
func (k *Kernel) Fcntl(fd, command, arg int) (int, syscall.Errno) {
	c, errno := k.begin("fcntl", fd)
	f := k.file(fd)
	if f == nil {
		errno = syscall.EBADF
	}
	if errno != 0 {
		return c.end(-1, errno, command, arg)
	}
	d, n := k.place(fd), 0
	switch command {
	case unix.F_GETFD:
		if d.closeOnExec {
			n = unix.FD_CLOEXEC
		}
	case unix.F_SETFD:
		d.closeOnExec = arg&unix.FD_CLOEXEC != 0
	case unix.F_GETFL:
		n = unix.O_RDWR
		if end, ok := f.node.(*pipeEnd); ok {
			n = unix.O_RDONLY
			if end.writes {
				n = unix.O_WRONLY
			}
		}
		if f.nonblocking {
			n |= unix.O_NONBLOCK
		}
	case unix.F_SETFL:
		f.nonblocking = arg&unix.O_NONBLOCK != 0
	case unix.F_GETPIPE_SZ, unix.F_SETPIPE_SZ:
		end, ok := f.node.(*pipeEnd)
		if !ok {
			return c.end(-1, syscall.EBADF, command, arg)
		}
		if command == unix.F_SETPIPE_SZ {
			errno = end.pipe.resize(arg)
		}
		n = end.pipe.slots * page
	default:
		errno = syscall.EINVAL
	}
	return c.end(n, errno, command, arg)
}

// null is a file that is not a socket and cannot be polled, as /dev/null.
type null struct{ watchers }

// poll returns both directions. An epoll refuses a null.
func (n *null) poll() uint32 { return inEvents | outEvents }

// release does nothing.
func (n *null) release() {}

// read returns 0, the end of the file.
func (n *null) read([]byte) (int, syscall.Errno) { return 0, 0 }

// write discards b.
func (n *null) write(b []byte) (int, syscall.Errno) { return len(b), 0 }

// OpenNull opens a file that cannot be polled, as /dev/null, and returns its descriptor.
func (k *Kernel) OpenNull(flags int) (int, syscall.Errno) {
	c, errno := k.begin("open", -1)
	if errno != 0 {
		return c.end(-1, errno)
	}
	return c.end(k.install(&null{}, flags))
}
