//go:build linux

package simulated

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// TCP keep-alive probes, as Linux sends them (tcp_keepalive_timer). A connection with SO_KEEPALIVE that has
// received nothing for TCP_KEEPIDLE seconds, and has no unacknowledged data, sends a probe, then one every
// TCP_KEEPINTVL seconds. The peer's host answers with an acknowledgement, or with a reset if it does not
// know the connection. After TCP_KEEPCNT probes without an answer the connection fails with ETIMEDOUT; with
// TCP_USER_TIMEOUT it fails after this time without a packet instead.

// Defaults and limits of the options.
const (
	keepIdleUsual, keepIntervalUsual, keepCountUsual = 7200, 75, 9
	keepTimeMost, keepCountMost                      = 32767, 127
)

const second = 1_000_000_000

type keepAlive struct {
	timer  *entry
	heard  int64 // time of the last received packet
	probes int   // probes without an answer
}

// mayBe reports whether a TCP option may have a value.
func isValidOption(name, value int) syscall.Errno {
	least, most := 0, int(^uint32(0)>>1)
	switch name {
	case unix.TCP_KEEPIDLE, unix.TCP_KEEPINTVL:
		least, most = 1, keepTimeMost
	case unix.TCP_KEEPCNT:
		least, most = 1, keepCountMost
	case unix.TCP_USER_TIMEOUT:
	default:
		return 0
	}
	if value < least || value > most {
		return syscall.EINVAL
	}
	return 0
}

// usually returns the default of an option.
func defaultOption(level, name int) int {
	if level == unix.IPPROTO_TCP {
		switch name {
		case unix.TCP_KEEPIDLE:
			return keepIdleUsual
		case unix.TCP_KEEPINTVL:
			return keepIntervalUsual
		case unix.TCP_KEEPCNT:
			return keepCountUsual
		}
	}
	return 0
}

// option returns the value of an option, or its default.
func (s *socket) option(level, name int) int {
	for _, o := range s.options {
		if o.level == level && o.name == name {
			return o.value
		}
	}
	return defaultOption(level, name)
}

// seconds returns an option in ns.
func (t *tcp) seconds(name int) int64 { return int64(t.option(unix.IPPROTO_TCP, name)) * second }

func (t *tcp) keepsAlive() bool {
	return t.state == connected && t.option(unix.SOL_SOCKET, unix.SO_KEEPALIVE) != 0
}

// keepAliveSet is called when an option is set.
func (t *tcp) keepAliveChanged(level, name int) {
	isOn := level == unix.SOL_SOCKET && name == unix.SO_KEEPALIVE
	switch {
	case isOn && !t.keepsAlive():
		t.alive.timer.cancel()
		t.alive.timer = nil
	case isOn && t.alive.timer == nil:
		t.armKeepAlive(t.seconds(unix.TCP_KEEPIDLE))
	case level == unix.IPPROTO_TCP && name == unix.TCP_KEEPIDLE && t.keepsAlive():
		t.armKeepAlive(max(0, t.alive.heard+t.seconds(unix.TCP_KEEPIDLE)-t.k.now))
	}
}

// keepAliveBegins is called when a connection is established.
func (t *tcp) startKeepAlive() {
	t.noteReceived()
	if t.keepsAlive() {
		t.armKeepAlive(t.seconds(unix.TCP_KEEPIDLE))
	}
}

// hears is called for each received packet.
func (t *tcp) noteReceived() { t.alive.heard, t.alive.probes = t.k.now, 0 }

func (t *tcp) armKeepAlive(ns int64) {
	t.alive.timer.cancel()
	t.alive.timer = t.k.at(t.k.now+ns, "keep-alive of "+t.local.String(), t.keepAliveExpired)
	t.alive.timer.isVain = t.answers
}

// keepAliveEnds is called when the timer expires.
func (t *tcp) keepAliveExpired() {
	t.alive.timer = nil
	idle := t.seconds(unix.TCP_KEEPIDLE)
	silent := t.k.now - t.alive.heard
	patience := int64(t.option(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)) * 1_000_000
	switch {
	case !t.keepsAlive():
	case t.bytesInTransit > 0 || len(t.out) > 0 || t.finSent && !t.finAcked:
		t.armKeepAlive(idle) // retransmissions detect a lost peer
	case silent < idle:
		t.armKeepAlive(idle - silent)
	case patience == 0 && t.alive.probes >= t.option(unix.IPPROTO_TCP, unix.TCP_KEEPCNT),
		patience > 0 && t.alive.probes > 0 && silent >= patience:
		t.reset()
		t.fail(syscall.ETIMEDOUT)
	default:
		t.alive.probes++
		p := t.peer
		t.packet("probe", 0, p, func() { p.answerProbe(t) })
		t.armKeepAlive(t.seconds(unix.TCP_KEEPINTVL))
	}
}

// isProbed sends the answer to a probe.
func (t *tcp) answerProbe(from *tcp) {
	if t.state == connected {
		t.packet("probed", 0, from, func() {})
	} else {
		from.refuse()
	}
}

// answers reports whether the peer would answer a probe now. Then the probe cannot end a wait.
func (t *tcp) answers() bool {
	there := t.peerHost()
	return t.peer != nil && t.peer.state == connected && !t.peer.home.dead && !there.paused &&
		t.k.between(t.home, there).state == LinkOpen && t.k.between(there, t.home).state == LinkOpen
}
