//go:build linux

package simulated

import "syscall"

// Links: the network between hosts.

// link is one direction between two hosts.
type link struct {
	network *Network // nil: the kernel's
	state   LinkState
	free    int64    // with limited bandwidth: when the last packet has left the sender
	passing int64    // when the last datagram arrives
	delayed []func() // datagrams that a stalled link keeps
}

// LinkState is the state of one direction between two hosts.
type LinkState int

const (
	// LinkOpen transmits packets.
	LinkOpen LinkState = iota
	// LinkPartitioned loses packets. TCP retransmits, see retryFirst.
	LinkPartitioned
	// LinkStalled keeps packets until the state of the link changes.
	LinkStalled
)

// The times of Linux's retransmissions: a lost TCP segment is sent again after retryFirst ns, then each
// time after twice the time, at most after maxRetryPause. After `retries` retransmissions, which are 15
// minutes, the connection fails with ETIMEDOUT.
const (
	retryFirst    = 200_000_000
	maxRetryPause = 120_000_000_000
	retries       = 15
)

// retryPause returns the ns until a segment that was already sent again `tries` times is sent again.
func retryPause(tries int) int64 { return min(int64(retryFirst)<<tries, maxRetryPause) }

// linkBetween returns the link in the direction from one host to another, which it creates if it is new.
func (k *Kernel) linkBetween(from, to *host) *link {
	key := [2]int{from.number, to.number}
	l := k.links[key]
	if l == nil {
		l = &link{}
		k.links[key] = l
	}
	return l
}

// network returns the network properties of a link.
func (k *Kernel) network(l *link) *Network {
	if l.network != nil {
		return l.network
	}
	return &k.options.Network
}

// departureTime returns the time at which a packet of this size has left its sender, and reserves the
// link's bandwidth until then. Without limited bandwidth this is the present time.
func (k *Kernel) departureTime(l *link, size int) int64 {
	rate := k.network(l).Bandwidth
	if rate <= 0 {
		return k.now
	}
	l.free = max(l.free, k.now) + int64(float64(size)*1e9/rate)
	return l.free
}

// SetLink sets the network properties in the direction from one host to another, for packets that are
// sent from now on. SlowReader, MaxSlow and Coalesce of n are ignored: the link gets the kernel's present
// values. ESRCH if a number is not a host's.
func (k *Kernel) SetLink(from, to int, n Network) syscall.Errno {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.hasHosts(from, to) {
		return syscall.ESRCH
	}
	usual := k.options.Network
	n.SlowReader, n.MaxSlow, n.Coalesce = usual.SlowReader, usual.MaxSlow, usual.Coalesce
	k.linkBetween(k.hosts[from], k.hosts[to]).network = &n
	return 0
}

// SetLinkState opens, partitions or stalls the link in the direction from one host to another; the
// opposite direction is a link of its own. It does nothing if the link has this state already. Packets
// that are on their way arrive. Packets that a stalled link kept are sent when its state changes, and are
// lost if the link is partitioned then. The trace calls LinkStalled "hold". ESRCH if a number is not a
// host's or the state is invalid.
func (k *Kernel) SetLinkState(from, to int, state LinkState) syscall.Errno {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.hasHosts(from, to) || state < LinkOpen || state > LinkStalled {
		return syscall.ESRCH
	}
	l := k.linkBetween(k.hosts[from], k.hosts[to])
	if l.state == state {
		return 0
	}
	l.state = state
	k.trace.entry(k.now, [...]string{"open ", "partition ", "hold "}[state]+
		padded(uint64(from), 10, 1, ' ')+" "+padded(uint64(to), 10, 1, ' '))
	if state != LinkStalled {
		delayed := l.delayed
		l.delayed = nil
		for _, send := range delayed {
			send()
		}
		waiting := k.stalled
		k.stalled = nil
		for _, t := range waiting {
			t.sendQueued()
		}
	}
	return 0
}

// hasHosts reports whether all numbers are numbers of hosts.
func (k *Kernel) hasHosts(numbers ...int) bool {
	for _, n := range numbers {
		if n < 0 || n >= len(k.hosts) {
			return false
		}
	}
	return true
}
