//go:build linux

package simulated

import "syscall"

// How packets go from one host to another.

// link is one direction between two hosts.
type link struct {
	network *Network // nil: the kernel's
	way     Way
	free    int64    // when the last packet has left the sender, where the bandwidth is limited
	passing int64    // when the last datagram arrives
	held    []func() // datagrams
}

// Way is whether packets pass.
type Way int

const (
	// Open lets packets pass.
	Open Way = iota
	// Partitioned loses them. TCP sends again, see retryFirst.
	Partitioned
	// Held keeps them until the link is open.
	Held
)

// A segment of TCP that is lost is sent again after retryFirst ns, then after twice as long each
// time, at most after retryMost; after retries times the connection fails with ETIMEDOUT, which are
// 15 minutes. These are Linux's numbers.
const (
	retryFirst = 200_000_000
	retryMost  = 120_000_000_000
	retries    = 15
)

func retryPause(tries int) int64 { return min(int64(retryFirst)<<tries, retryMost) }

// between is the link from one host to another.
func (k *Kernel) between(from, to *host) *link {
	key := [2]int{from.number, to.number}
	l := k.links[key]
	if l == nil {
		l = &link{}
		k.links[key] = l
	}
	return l
}

// network is how packets travel on a link.
func (k *Kernel) network(l *link) *Network {
	if l.network != nil {
		return l.network
	}
	return &k.options.Network
}

// leaves is when a packet of so many bytes has left its sender.
func (k *Kernel) leaves(l *link, size int) int64 {
	rate := k.network(l).Bandwidth
	if rate <= 0 {
		return k.now
	}
	l.free = max(l.free, k.now) + int64(float64(size)*1e9/rate)
	return l.free
}

// SetLink replaces how packets travel from one host to another that are sent from now on.
func (k *Kernel) SetLink(from, to int, n Network) syscall.Errno {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.hasHosts(from, to) {
		return syscall.ESRCH
	}
	// What a link of hosts does not set is the kernel's.
	usual := k.options.Network
	n.SlowReader, n.SlowMost, n.Coalesce = usual.SlowReader, usual.SlowMost, usual.Coalesce
	k.between(k.hosts[from], k.hosts[to]).network = &n
	return 0
}

// SetWay opens or closes the way from one host to another. What was sent before arrives.
func (k *Kernel) SetWay(from, to int, way Way) syscall.Errno {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.hasHosts(from, to) || way < Open || way > Held {
		return syscall.ESRCH
	}
	l := k.between(k.hosts[from], k.hosts[to])
	if l.way == way {
		return 0
	}
	l.way = way
	k.trace.entry(k.now, [...]string{"open ", "partition ", "hold "}[way]+
		padded(uint64(from), 10, 1, ' ')+" "+padded(uint64(to), 10, 1, ' '))
	if way != Held {
		held := l.held
		l.held = nil
		for _, send := range held {
			send()
		}
		waiting := k.stalled
		k.stalled = nil
		for _, t := range waiting {
			t.goOn()
		}
	}
	return 0
}

func (k *Kernel) hasHosts(numbers ...int) bool {
	for _, n := range numbers {
		if n < 0 || n >= len(k.hosts) {
			return false
		}
	}
	return true
}
