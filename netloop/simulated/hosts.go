//go:build linux

package simulated

import (
	"maps"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// host is one machine from its start to its end. A restart creates another host with the same number and
// address. Number 0 is the only host of a kernel in which MakeHost was not called.
type host struct {
	number int
	ip     [4]byte // IPv4; ip6: IPv6
	ip6    [16]byte
	ports  [2]ports            // of TCP, of UDP
	names  map[nameKey]*socket // Unix sockets by name
	inodes map[string]int      // inodes of names that are paths
	dead   bool                // without power: sends and receives nothing
	paused bool                // programs receive no events; arriving packets are kept
	kept   []func()            // effects of packets that arrived while the host was paused

	faults  *Faults // nil: the kernel's
	sockets int     // number of descriptors of sockets and pipes
}

// hostZero is the last three numbers in the addresses of host 0. Other hosts have their number: 10.0.0.1
// and fd00::1.
const hostZero = 255<<16 | 255<<8 | 254

// newHost returns a host with power, without sockets, with the addresses of its number.
func newHost(number int) *host {
	n := number
	if n == 0 {
		n = hostZero
	}
	high, middle, low := byte(n>>16), byte(n>>8), byte(n)
	return &host{
		number: number, names: map[nameKey]*socket{}, inodes: map[string]int{},
		ip: [4]byte{10, high, middle, low}, ip6: [16]byte{0: 0xfd, 13: high, 14: middle, 15: low},
	}
}

// has reports whether an address is the host's own, a loopback or the wildcard address.
func (h *host) has(a *address) bool {
	if a.family == unix.AF_INET6 {
		return a.isAny() || a.isLoopback() || a.ip == h.ip6
	}
	return a.isAny() || a.isLoopback() || [4]byte(a.ip[:]) == h.ip
}

// setSource replaces a wildcard address in local by the address from which the host sends to `to`: the
// loopback address for a loopback destination, else the host's own. Any other local address stays.
func (h *host) setSource(local *address, to *address) {
	if !local.isAny() || to.isLoopback() {
		local.replaceWildcard()
		return
	}
	if local.family == unix.AF_INET6 {
		local.ip = h.ip6
		return
	}
	copy(local.ip[:], h.ip[:])
}

// hostOf returns the host with the internet address a, as the host `from` reaches it, or nil. The wildcard
// and loopback addresses are those of `from` itself.
func (k *Kernel) hostOf(from *host, a *address) *host {
	if from.has(a) {
		return k.current(from)
	}
	last := a.ip[1:4]
	if a.family == unix.AF_INET6 {
		last = a.ip[13:]
	}
	n := int(last[0])<<16 | int(last[1])<<8 | int(last[2])
	if n == hostZero && len(k.hosts) > 1 {
		n = 0
	}
	if n < len(k.hosts) && k.hosts[n].has(a) {
		return k.hosts[n]
	}
	return nil
}

// current returns the host that has this host's number now. After a restart it is another object.
func (k *Kernel) current(h *host) *host { return k.hosts[h.number] }

// MakeHost creates a host and returns its number.
func (k *Kernel) MakeHost() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hosts = append(k.hosts, newHost(len(k.hosts)))
	return len(k.hosts) - 1
}

// Actions of ChangeHost.
const (
	// HostKill ends the host's programs. Their sockets are closed as by close(2).
	HostKill = iota
	// HostCrash removes the host's power: it sends nothing more, and arriving packets are lost.
	HostCrash
	// HostStart restores the power.
	HostStart
	// HostPause stops the host: its programs receive no events, and arriving packets are kept.
	HostPause
	// HostResume continues a stopped host.
	HostResume
)

// ChangeHost makes one of the actions above on a host. Kill and crash also end a pause; a start has no
// effect on a host that has power. ESRCH if there is no such host, and for host 0, which cannot be changed.
func (k *Kernel) ChangeHost(number, action int) syscall.Errno {
	k.mu.Lock()
	defer k.mu.Unlock()
	if number <= 0 || number >= len(k.hosts) {
		return syscall.ESRCH
	}
	h := k.hosts[number]
	k.trace.entry(k.now, [...]string{"kill ", "crash ", "start ", "pause ", "resume "}[action]+padded(uint64(number), 10, 1, ' '))
	switch action {
	case HostKill:
		k.closeAllOf(h, true)
	case HostCrash:
		h.dead = true
		k.closeAllOf(h, false)
	case HostStart:
		if h.dead {
			k.hosts[number] = newHost(number)
			k.hosts[number].faults = h.faults
		}
	case HostPause:
		h.paused = true
	case HostResume:
		h.paused = false
		for len(h.kept) > 0 && !h.paused {
			run := h.kept[0]
			h.kept = h.kept[1:]
			run()
		}
	}
	return 0
}

// closeAllOf closes all sockets and pipes of a host, ends a pause and drops the packets that the host has
// kept. Without power it sends no packets for the sockets.
func (k *Kernel) closeAllOf(h *host, powered bool) {
	h.paused, h.kept = false, nil
	k.closeAll(powered, func(o owner) bool { return o.home == h })
	if powered {
		return
	}
	for _, port := range slices.Sorted(maps.Keys(h.ports[0].taken)) {
		for _, s := range h.ports[0].taken[port] {
			s.self.(*tcp).endWithoutPower()
		}
	}
}

// closeAll closes the sockets and pipes of the owners for which isOf returns true. Their numbers stay in
// use until their objects close them. Without power only pipe ends are released: sockets send nothing.
func (k *Kernel) closeAll(powered bool, isOf func(owner) bool) {
	for i := range k.table {
		f := k.table[i].file
		if f == nil {
			continue
		}
		o := ownerOfNode(f.node)
		if o == nil || !isOf(*o) {
			continue
		}
		n := f.node
		for w := n.watched(); len(w.items) > 0; {
			w.items[0].remove()
		}
		f.node = &gone{watchers{k: k}}
		o.home.sockets -= f.refs
		if _, isSocket := n.(endpoint); powered || !isSocket {
			n.release()
		}
	}
}

// gone is the node of a number after its owner has ended.
type gone struct{ watchers }

// poll returns no readiness.
func (*gone) poll() uint32 { return 0 }

// release does nothing: the node that was here is released already.
func (*gone) release() {}

// runAtArrival runs the effect of a packet at a host: now, when the host is resumed if it is paused, or never
// if it has no power.
func (h *host) runAtArrival(run func()) {
	switch {
	case h.dead:
	case h.paused:
		h.kept = append(h.kept, run)
	default:
		run()
	}
}
