//go:build linux

package simulated

import (
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Shut halves of a connection. SHUT_RD and SHUT_WR are these minus one.
const (
	shutRead = 1 << iota
	shutWrite
	shutBoth = shutRead | shutWrite
)

// Sizes of buffers in bytes: defaults, and limits of the sizes that programs set.
const (
	bufferUsual     = 212992 // net.core.rmem_default, rmem_max and the same of wmem
	minSend         = 4608
	minReceive      = 2304
	tcpSendUsual    = 2626560
	tcpReceiveUsual = 131072
)

// endpoint is a socket of any type.
type endpoint interface {
	node
	base() *socket
	// bind and listen are bind(2) and listen(2).
	bind(a address) syscall.Errno
	// connect begins a connection. It returns EINPROGRESS, or EALREADY for a second call. bad is an error
	// in the address.
	connect(a address, bad syscall.Errno) syscall.Errno
	listen(backlog int) syscall.Errno
	// accept removes the oldest complete connection from the backlog. EAGAIN if there is none.
	accept() (endpoint, syscall.Errno)
	// send sends to an address, or to the peer if it is nil, and returns the number of bytes that the
	// socket has accepted. EAGAIN if there is no space.
	send(b []byte, to *address) (int, syscall.Errno)
	// receive returns the number of received bytes and a datagram's sender, or nil. 0 is the end of a
	// stream. EAGAIN if nothing has arrived.
	receive(b []byte) (int, *address, syscall.Errno)
	// shutdown is shutdown(2); how is shutRead, shutWrite or shutBoth.
	shutdown(how uint8) syscall.Errno
	// peerName is getpeername(2).
	peerName() (address, syscall.Errno)
}

// socket has the fields that all types have.
type socket struct {
	watchers
	owner
	self        endpoint
	family      int
	kind        int           // SOCK_STREAM or SOCK_DGRAM
	err         syscall.Errno // SO_ERROR, reported once
	shut        uint8         // shutRead, shutWrite
	listening   bool
	bound       bool // has a port (inet_num); local keeps the port later
	local       address
	sndbuf      int  // SO_SNDBUF
	rcvbuf      int  // SO_RCVBUF
	reuse       bool // SO_REUSEADDR
	options     []option
	waitLinger  bool  // SO_LINGER is on
	linger      int64 // time of SO_LINGER in ns
	backlog     int   // of listen(2)
	queued      int   // bytes sent and not yet received, with their overhead
	unsupported       // fails the calls that the type does not have
}

// option is a socket option that a program has set and that only getsockopt(2) or keep-alive reads.
type option struct{ level, name, value int }

// base returns the fields that all types of sockets have.
func (s *socket) base() *socket { return s }

// takeError returns the pending error and clears it.
func (s *socket) takeError() syscall.Errno {
	errno := s.err
	s.err = 0
	return errno
}

// unsupported fails the calls that a type of socket does not have.
type unsupported struct{}

// listen fails: the type cannot listen.
func (unsupported) listen(int) syscall.Errno { return syscall.EOPNOTSUPP }

// accept fails: the type cannot accept.
func (unsupported) accept() (endpoint, syscall.Errno) { return nil, syscall.EOPNOTSUPP }

// isInternet reports whether this is a TCP or UDP socket.
func (s *socket) isInternet() bool { return s.family != unix.AF_UNIX }

// cost returns about the buffer space of a piece of n bytes (skb->truesize).
func cost(n int) int {
	linear := min(n, page-320)
	head := 704
	for size := 1024; head < linear+320; size *= 2 {
		head = size
	}
	return head + 256 + (n-linear+page-1)/page*page
}

// setOption is setsockopt(2) of an int. As on Linux, the sizes of buffers are doubled and limited.
// ENOPROTOOPT or EOPNOTSUPP if the socket does not have the option, EINVAL if a TCP option cannot have
// the value.
func (s *socket) setOption(level, name, value int) syscall.Errno {
	if level == unix.SOL_SOCKET {
		switch name {
		case unix.SO_SNDBUF:
			s.sndbuf = max(2*int(min(uint(value), bufferUsual)), minSend)
			s.wake(outEvents)
			return 0
		case unix.SO_RCVBUF:
			s.rcvbuf = max(2*int(min(uint(value), bufferUsual)), minReceive)
			return 0
		case unix.SO_REUSEADDR:
			s.reuse = value != 0
			return 0
		case unix.SO_KEEPALIVE, unix.SO_BROADCAST, unix.SO_REUSEPORT, unix.SO_OOBINLINE:
			value = min(value&0x7fffffff, 1)
		case unix.SO_ERROR, unix.SO_TYPE, unix.SO_ACCEPTCONN, unix.SO_DOMAIN, unix.SO_PROTOCOL:
			return syscall.ENOPROTOOPT
		default:
			return syscall.ENOPROTOOPT
		}
	} else if errno := s.checkOptionLevel(level, name); errno != 0 {
		return errno
	} else if level == unix.IPPROTO_TCP {
		if errno := checkOptionValue(name, value); errno != 0 {
			return errno
		}
		if name == unix.TCP_NODELAY {
			value = intOfBool(value != 0)
		}
	}
	of := func(o option) bool { return o.level == level && o.name == name }
	if i := slices.IndexFunc(s.options, of); i >= 0 {
		s.options[i].value = value
	} else {
		s.options = append(s.options, option{level, name, value})
	}
	if t, ok := s.self.(*tcp); ok {
		t.keepAliveChanged(level, name)
	}
	return 0
}

// checkOptionLevel returns the errno of setsockopt(2) if a socket of this type does not have an option of
// a level other than SOL_SOCKET, else 0. EOPNOTSUPP for a Unix socket, ENOPROTOOPT for others.
func (s *socket) checkOptionLevel(level, name int) syscall.Errno {
	switch {
	case !s.isInternet():
		return syscall.EOPNOTSUPP
	case level == unix.IPPROTO_TCP && s.kind == unix.SOCK_STREAM:
		switch name {
		case unix.TCP_NODELAY, unix.TCP_KEEPIDLE, unix.TCP_KEEPINTVL, unix.TCP_KEEPCNT, unix.TCP_USER_TIMEOUT,
			unix.TCP_QUICKACK, unix.TCP_CORK:
			return 0
		}
	case level == unix.IPPROTO_IP && s.family == unix.AF_INET, level == unix.IPPROTO_IPV6 && s.family == unix.AF_INET6:
		return 0
	}
	return syscall.ENOPROTOOPT
}

// getOption is getsockopt(2) of an int. Reading SO_ERROR clears the error. An option that was not set has
// its default. ENOPROTOOPT or EOPNOTSUPP if the socket does not have the option.
func (s *socket) getOption(level, name int) (int, syscall.Errno) {
	if level == unix.SOL_SOCKET {
		switch name {
		case unix.SO_ERROR:
			return int(s.takeError()), 0
		case unix.SO_TYPE:
			return s.kind, 0
		case unix.SO_DOMAIN:
			return s.family, 0
		case unix.SO_SNDBUF:
			return s.sndbuf, 0
		case unix.SO_RCVBUF:
			return s.rcvbuf, 0
		case unix.SO_REUSEADDR:
			return intOfBool(s.reuse), 0
		case unix.SO_ACCEPTCONN:
			return intOfBool(s.listening), 0
		case unix.SO_KEEPALIVE, unix.SO_BROADCAST, unix.SO_REUSEPORT, unix.SO_OOBINLINE:
		default:
			return -1, syscall.ENOPROTOOPT
		}
	} else if errno := s.checkOptionLevel(level, name); errno != 0 {
		if s.family == unix.AF_INET && s.kind == unix.SOCK_DGRAM {
			errno = syscall.EOPNOTSUPP // the result of ip_getsockopt for any other level
		}
		return -1, errno
	}
	return s.option(level, name), 0
}

// intOfBool returns 1 for true and 0 for false.
func intOfBool(b bool) int {
	if b {
		return 1
	}
	return 0
}

// datagramEvents returns the events of a datagram socket with this number of pending datagrams, except for
// EPOLLOUT.
func (s *socket) datagramEvents(waiting int) uint32 {
	var events uint32
	if s.err != 0 {
		events |= unix.EPOLLERR
	}
	if s.shut&shutRead != 0 {
		events |= inEvents | unix.EPOLLRDHUP
	}
	if s.shut == shutBoth {
		events |= unix.EPOLLHUP
	}
	if waiting > 0 {
		events |= inEvents
	}
	return events
}
