//go:build linux

package simulated

import (
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// minEphemeral and maxEphemeral are the first and the last ephemeral port
// (net.ipv4.ip_local_port_range).
const minEphemeral, maxEphemeral = 32768, 60999

// ports has the bound sockets of TCP or of UDP.
type ports struct {
	taken map[uint16][]*socket // by port
	last  uint16               // the ephemeral port that was chosen last
}

// portsOf returns the ports of the socket's host and protocol.
func (k *Kernel) portsOf(s *socket) *ports {
	return &s.home.ports[intOfBool(s.kind == unix.SOCK_DGRAM)]
}

// bindPort binds an internet socket to an address; port 0 chooses a free port. EADDRINUSE if the port or,
// for port 0, each port is in use; in the first case the IP address of s becomes the wildcard address.
// The caller has checked the address (checkBind).
func (k *Kernel) bindPort(s *socket, a address) syscall.Errno {
	p := k.portsOf(s)
	if p.taken == nil {
		p.taken, p.last = map[uint16][]*socket{}, uint16(k.random.between(minEphemeral, maxEphemeral))
	}
	for tries := 0; a.port == 0; tries++ {
		if tries > maxEphemeral-minEphemeral {
			return syscall.EADDRINUSE
		}
		if p.last++; p.last > maxEphemeral {
			p.last = minEphemeral
		}
		if len(p.taken[p.last]) == 0 {
			a.port = p.last
		}
	}
	for _, other := range p.taken[a.port] {
		if other.family != a.family || other.local.ip != a.ip && !other.local.isAny() && !a.isAny() {
			continue
		}
		if !s.reuse || !other.reuse || other.listening {
			s.local.ip = [16]byte{}
			return syscall.EADDRINUSE
		}
	}
	s.local, s.bound = a, true
	p.taken[a.port] = append(p.taken[a.port], s)
	return 0
}

// checkBind returns the errno of bind(2) if an internet socket can't have an address, else 0:
// EAFNOSUPPORT for another family, EADDRNOTAVAIL for an address of another host, EINVAL for a bound
// socket. For IPv4 it replaces the family AF_UNSPEC of a wildcard address by AF_INET.
func (s *socket) checkBind(a *address) syscall.Errno {
	if a.family == unix.AF_UNSPEC && s.family == unix.AF_INET && a.isAny() {
		a.family = unix.AF_INET
	}
	switch {
	case a.family != s.family:
		return syscall.EAFNOSUPPORT
	case !s.home.has(a):
		return syscall.EADDRNOTAVAIL
	case s.bound:
		return syscall.EINVAL
	}
	return 0
}

// releasePort makes the port of a socket available for others. The socket's address stays.
func (k *Kernel) releasePort(s *socket) {
	p := k.portsOf(s)
	s.bound = false
	all := p.taken[s.local.port]
	if i := slices.Index(all, s); i >= 0 {
		p.taken[s.local.port] = slices.Delete(all, i, i+1)
	}
}

// receiver returns the socket that receives packets from one address for another, or nil. For TCP it is a
// listener. A connected UDP socket receives from its peer only, and is preferred.
func (p *ports) receiver(a, from address) *socket {
	var found *socket
	best := 0
	for _, s := range p.taken[a.port] {
		score := 1
		switch {
		case s.family != a.family || !s.local.isAny() && s.local.ip != a.ip:
			continue
		case s.kind == unix.SOCK_STREAM && !s.listening:
			continue
		case s.kind == unix.SOCK_DGRAM && s.self.(*udp).connected:
			if s.self.(*udp).remote != from {
				continue
			}
			score += 2
		}
		if !s.local.isAny() {
			score++
		}
		if score > best {
			found, best = s, score
		}
	}
	return found
}

// nameKey is the key of a Unix socket's name. Each type of socket has its own abstract names; paths are
// common to all.
type nameKey struct {
	name string
	kind int
}

// unixNameKey returns the key of a Unix address in host.names. Abstract names belong to one type of socket,
// paths to all types.
func (a *address) unixNameKey(kind int) nameKey {
	if a.name != "" && a.name[0] != 0 {
		kind = 0
	}
	return nameKey{a.name, kind}
}

// bindName binds a Unix socket to a name; without a name it chooses a free abstract one, or does nothing
// if the socket has a name. A path also gets an inode. EADDRINUSE if the name is in use or a closed
// socket has left the path, EINVAL if the socket has a name or the address is not a Unix address.
func (k *Kernel) bindName(s *socket, a address) syscall.Errno {
	_, taken := s.home.names[a.unixNameKey(s.kind)]
	switch {
	case a.family != unix.AF_UNIX:
		return syscall.EINVAL
	case a.name == "" && s.local.name != "":
		return 0
	case a.name == "":
		for taken = true; taken; _, taken = s.home.names[a.unixNameKey(s.kind)] {
			a.name = "\x00" + padded(uint64(k.random.between(0, 0xfffff)), 16, 5, '0')
		}
	case taken && a.name[0] != 0: // paths are checked before
		return syscall.EADDRINUSE
	case s.local.name != "":
		return syscall.EINVAL
	case taken:
		return syscall.EADDRINUSE
	}
	s.local = a
	s.home.names[a.unixNameKey(s.kind)] = s
	if a.name[0] != 0 {
		k.seq++
		s.home.inodes[a.name] = int(k.seq)
	}
	return 0
}

// socketByName returns the socket of this type with a name on a host. Errors are the ones of connect(2):
// ECONNREFUSED if a closed socket has left its path or if nothing has the abstract name, ENOENT if there is
// no path, EPROTOTYPE if the path has a socket of another type, EINVAL without a name.
func (h *host) socketByName(a address, kind int) (*socket, syscall.Errno) {
	s, ok := h.names[a.unixNameKey(kind)]
	switch {
	case a.family != unix.AF_UNIX || a.name == "":
		return nil, syscall.EINVAL
	case !ok && a.name[0] != 0:
		return nil, syscall.ENOENT
	case !ok || s == nil:
		return nil, syscall.ECONNREFUSED
	case s.kind != kind:
		return nil, syscall.EPROTOTYPE
	}
	return s, 0
}

// releaseName is called when a Unix socket is closed. An abstract name becomes free; a path stays, without
// a socket, until it is unlinked.
func (k *Kernel) releaseName(s *socket) {
	names := s.home.names
	if key := s.local.unixNameKey(s.kind); key.name != "" && names[key] == s {
		if names[key] = nil; key.kind != 0 {
			delete(names, key)
		}
	}
}

// Unlink is unlink(2) of a Unix socket's path on host 0.
func (k *Kernel) Unlink(path string) syscall.Errno { return k.UnlinkOn(0, path) }

// UnlinkOn is Unlink for the host of an owner's number. The socket stays open. ESRCH if there is no such
// host, ENOENT if it has no such path.
func (k *Kernel) UnlinkOn(number int, path string) syscall.Errno {
	c, errno := k.begin("unlink", -1)
	o, found := k.ownerOf(number)
	if errno == 0 {
		errno = found
	}
	if errno == 0 && o.home.inodes[path] == 0 {
		errno = syscall.ENOENT
	}
	if errno == 0 {
		delete(o.home.names, nameKey{name: path})
		delete(o.home.inodes, path)
	}
	return c.done(errno)
}

// Inode returns the inode of a Unix socket's path for an owner's number, as stat(2) does. ENOENT if there
// is no such path, ESRCH if there is no such host. It is not a call in the trace: programs and Python's
// modules call stat() as often as their caches require.
func (k *Kernel) Inode(number int, path string) (int, syscall.Errno) {
	k.mu.Lock()
	defer k.mu.Unlock()
	o, errno := k.ownerOf(number)
	if errno != 0 {
		return -1, errno
	}
	if n := o.home.inodes[path]; n != 0 {
		return n, 0
	}
	return -1, syscall.ENOENT
}
