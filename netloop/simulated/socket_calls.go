//go:build linux

package simulated

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Socket calls that transfer no data. Addresses are in the kernel's format, as bytes.

// newSocket creates a socket for an owner's number, without a descriptor. kind has no flags. ESRCH for the
// number of an unknown host, EAFNOSUPPORT or ESOCKTNOSUPPORT for a family or a type that does not exist.
func (k *Kernel) newSocket(number, domain, kind int) (s endpoint, errno syscall.Errno) {
	o, errno := k.ownerOf(number)
	switch {
	case errno != 0:
		return nil, errno
	case domain == unix.AF_UNIX && kind == unix.SOCK_STREAM:
		s = newUnixStream(k)
	case domain == unix.AF_UNIX && kind == unix.SOCK_DGRAM:
		s = newUnixDatagram(k)
	case domain != unix.AF_INET && domain != unix.AF_INET6:
		return nil, syscall.EAFNOSUPPORT
	case kind == unix.SOCK_STREAM:
		s = newTCP(k, domain)
	case kind == unix.SOCK_DGRAM:
		s = newUDP(k, domain)
	default:
		return nil, syscall.ESOCKTNOSUPPORT
	}
	s.base().owner = o
	return s, 0
}

// kindFlags are the flags that the type of socket(2) may include.
const kindFlags = unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC

// withHost returns the arguments of a call for the trace: args, and the host of an owner's number unless it
// is host 0.
func withHost(number int, args ...int) []int {
	if home := number & (1<<programBits - 1); home > 0 {
		return append(args, home)
	}
	return args
}

// Socket is socket(2); kind may include SOCK_NONBLOCK and SOCK_CLOEXEC.
func (k *Kernel) Socket(domain, kind int) (int, syscall.Errno) { return k.SocketOn(0, domain, kind) }

// SocketOn is Socket for an owner's number.
func (k *Kernel) SocketOn(home, domain, kind int) (int, syscall.Errno) {
	c, errno := k.begin("socket", -1)
	var s endpoint
	if errno == 0 {
		s, errno = k.newSocket(home, domain, kind&^kindFlags)
	}
	if errno != 0 {
		return c.end(-1, errno, domain, kind)
	}
	n, errno := k.install(s, kind)
	return c.end(n, errno, withHost(home, domain, kind)...)
}

// Socketpair is socketpair(2).
func (k *Kernel) Socketpair(domain, kind int) (a, b int, errno syscall.Errno) {
	return k.SocketpairOn(0, domain, kind)
}

// SocketpairOn is Socketpair for an owner's number. EOPNOTSUPP for another family than AF_UNIX, ESRCH for
// the number of an unknown host; after an error no socket is open.
func (k *Kernel) SocketpairOn(home, domain, kind int) (a, b int, errno syscall.Errno) {
	c, errno := k.begin("socketpair", -1)
	if errno == 0 && domain != unix.AF_UNIX {
		errno = syscall.EOPNOTSUPP
	}
	var ends [2]endpoint
	for i := range ends {
		if errno == 0 {
			ends[i], errno = k.newSocket(home, domain, kind&^kindFlags)
		}
	}
	if errno != 0 {
		return -1, -1, c.done(errno, domain, kind)
	}
	switch first := ends[0].(type) {
	case *unixStream:
		first.join(ends[1].(*unixStream))
	case *unixDatagram:
		second := ends[1].(*unixDatagram)
		first.peer, second.peer = second, first
	}
	a, b, errno = k.installPair(ends[0], ends[1], kind)
	_, errno = c.end(a, errno, withHost(home, domain, kind)...)
	return a, b, errno
}

// Bind is bind(2).
func (k *Kernel) Bind(fd int, name []byte) syscall.Errno {
	c, fault := k.begin("bind", fd)
	s, _, errno := k.socketOf(fd)
	if errno == 0 {
		errno = fault
	}
	if errno == 0 {
		var a address
		if a, errno = parseAddress(name, s.base().family); errno == 0 {
			errno = s.bind(a)
		}
	}
	return c.done(errno)
}

// Listen is listen(2).
func (k *Kernel) Listen(fd, backlog int) syscall.Errno {
	c, fault := k.begin("listen", fd)
	s, _, errno := k.socketOf(fd)
	if errno == 0 {
		errno = fault
	}
	if errno == 0 {
		const maxBacklog = 4096 // net.core.somaxconn
		errno = s.listen(int(min(uint(backlog), maxBacklog)))
	}
	return c.done(errno, backlog)
}

// Connect is connect(2). A Unix socket is connected at once, unless the backlog is full (EAGAIN). A TCP
// socket returns EINPROGRESS. A blocking socket waits instead of returning one of these.
func (k *Kernel) Connect(fd int, name []byte) syscall.Errno {
	c, fault := k.begin("connect", fd)
	s, f, errno := k.socketOf(fd)
	if errno == 0 {
		errno = fault
	}
	if errno != 0 {
		return c.done(errno)
	}
	a, bad := parseAddress(name, s.base().family)
	for {
		errno = s.connect(a, bad)
		waits := errno == syscall.EINPROGRESS || errno == syscall.EALREADY || errno == syscall.EAGAIN
		if !waits || f.nonblocking {
			return c.done(errno)
		}
		if _, ok := s.(*tcp); ok { // without latency the connection is established now
			if errno = s.connect(a, bad); errno != syscall.EALREADY {
				return c.done(errno)
			}
		}
		if _, errno = k.stepWait(forever); errno != 0 {
			return c.done(errno)
		}
	}
}

// Accept is accept4(2): it returns the connection's descriptor and the peer's address. At a limit of
// descriptors it returns EMFILE, and the connection stays in the backlog.
func (k *Kernel) Accept(fd, flags int) (n int, name []byte, errno syscall.Errno) {
	c, fault := k.begin("accept", fd)
	s, f, errno := k.socketOf(fd)
	if errno == 0 {
		errno = fault
	}
	if errno == 0 && (k.open >= k.options.Descriptors || k.hostIsFull(s)) {
		errno = syscall.EMFILE
	}
	var child endpoint
	if errno == 0 {
		errno = k.retryUntilReady(f, 0, func() (errno syscall.Errno) { child, errno = s.accept(); return errno })
	}
	if errno != 0 {
		n, errno = c.end(-1, errno)
		return n, nil, errno
	}
	n, errno = k.install(child, flags)
	var from address
	switch child := child.(type) {
	case *tcp:
		from = child.remote
	case *unixStream:
		from = child.formerPeer.local
	}
	n, errno = c.end(n, errno)
	return n, from.encode(), errno
}

// Shutdown is shutdown(2).
func (k *Kernel) Shutdown(fd, how int) syscall.Errno {
	c, fault := k.begin("shutdown", fd)
	s, _, errno := k.socketOf(fd)
	if errno == 0 {
		errno = fault
	}
	if errno == 0 && (how < 0 || how > unix.SHUT_RDWR) {
		errno = syscall.EINVAL
	}
	if errno == 0 {
		errno = s.shutdown(uint8(how + 1))
	}
	return c.done(errno, how)
}

// Getsockname is getsockname(2).
func (k *Kernel) Getsockname(fd int) ([]byte, syscall.Errno) {
	return k.nameOf("getsockname", fd, func(s endpoint) (address, syscall.Errno) { return s.base().local, 0 })
}

// Getpeername is getpeername(2).
func (k *Kernel) Getpeername(fd int) ([]byte, syscall.Errno) {
	return k.nameOf("getpeername", fd, endpoint.peerName)
}

// nameOf is getsockname(2) or getpeername(2), named so in the trace; `of` returns the address of a socket.
func (k *Kernel) nameOf(name string, fd int, of func(endpoint) (address, syscall.Errno)) ([]byte, syscall.Errno) {
	c, fault := k.begin(name, fd)
	s, _, errno := k.socketOf(fd)
	if errno == 0 {
		errno = fault
	}
	var a address
	if errno == 0 {
		a, errno = of(s)
	}
	if errno = c.done(errno); errno != 0 {
		return nil, errno
	}
	return a.encode(), 0
}

// Setsockopt is setsockopt(2) of an int.
func (k *Kernel) Setsockopt(fd, level, name, value int) syscall.Errno {
	c, fault := k.begin("setsockopt", fd)
	s, _, errno := k.socketOf(fd)
	if errno == 0 {
		errno = fault
	}
	if errno == 0 {
		errno = s.base().setOption(level, name, value)
	}
	return c.done(errno, level, name, value)
}

// Getsockopt is getsockopt(2) of an int.
func (k *Kernel) Getsockopt(fd, level, name int) (int, syscall.Errno) {
	c, fault := k.begin("getsockopt", fd)
	s, _, errno := k.socketOf(fd)
	if errno == 0 {
		errno = fault
	}
	n := -1
	if errno == 0 {
		n, errno = s.base().getOption(level, name)
	}
	return c.end(n, errno, level, name)
}

// SetLinger is setsockopt(2) of SO_LINGER, in seconds.
func (k *Kernel) SetLinger(fd int, on bool, seconds int) syscall.Errno {
	c, fault := k.begin("setsockopt", fd)
	s, _, errno := k.socketOf(fd)
	if errno == 0 {
		errno = fault
	}
	if errno == 0 {
		b := s.base()
		b.waitLinger, b.linger = on, int64(seconds)*1_000_000_000
	}
	return c.done(errno, unix.SOL_SOCKET, unix.SO_LINGER, intOfBool(on), seconds)
}

// Linger is getsockopt(2) of SO_LINGER.
func (k *Kernel) Linger(fd int) (on bool, seconds int, errno syscall.Errno) {
	c, fault := k.begin("getsockopt", fd)
	s, _, errno := k.socketOf(fd)
	if errno == 0 {
		errno = fault
	}
	if errno == 0 {
		on, seconds = s.base().waitLinger, int(s.base().linger/1_000_000_000)
	}
	return on, seconds, c.done(errno, unix.SOL_SOCKET, unix.SO_LINGER)
}
