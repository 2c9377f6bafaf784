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
	maxKeepTime, maxKeepCount                        = 32767, 127
)

// second is the number of ns of a second.
const second = 1_000_000_000

// keepAlive is the state of a connection's keep-alive probes. timer is nil if they are off.
type keepAlive struct {
	timer  *entry
	heard  int64 // time of the last received packet
	probes int   // probes without an answer
}

// checkOptionValue returns EINVAL if a TCP option cannot have this value, else 0.
func checkOptionValue(name, value int) syscall.Errno {
	low, high := 0, int(^uint32(0)>>1)
	switch name {
	case unix.TCP_KEEPIDLE, unix.TCP_KEEPINTVL:
		low, high = 1, maxKeepTime
	case unix.TCP_KEEPCNT:
		low, high = 1, maxKeepCount
	case unix.TCP_USER_TIMEOUT:
	default:
		return 0
	}
	if value < low || value > high {
		return syscall.EINVAL
	}
	return 0
}

// defaultOption returns the value of an option that was not set.
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

// optionNs returns a TCP option that counts seconds, such as TCP_KEEPIDLE, in ns.
func (t *tcp) optionNs(name int) int64 { return int64(t.option(unix.IPPROTO_TCP, name)) * second }

// keepsAlive reports whether the socket is connected and has SO_KEEPALIVE.
func (t *tcp) keepsAlive() bool {
	return t.state == connected && t.option(unix.SOL_SOCKET, unix.SO_KEEPALIVE) != 0
}

// keepAliveChanged starts, stops or moves the timer after an option was set. It is called for every option.
func (t *tcp) keepAliveChanged(level, name int) {
	isOn := level == unix.SOL_SOCKET && name == unix.SO_KEEPALIVE
	switch {
	case isOn && !t.keepsAlive():
		t.alive.timer.cancel()
		t.alive.timer = nil
	case isOn && t.alive.timer == nil:
		t.armKeepAlive(t.optionNs(unix.TCP_KEEPIDLE))
	case level == unix.IPPROTO_TCP && name == unix.TCP_KEEPIDLE && t.keepsAlive():
		t.armKeepAlive(max(0, t.alive.heard+t.optionNs(unix.TCP_KEEPIDLE)-t.k.now))
	}
}

// startKeepAlive starts the timer of a connection that has just been established.
func (t *tcp) startKeepAlive() {
	t.noteReceived()
	if t.keepsAlive() {
		t.armKeepAlive(t.optionNs(unix.TCP_KEEPIDLE))
	}
}

// noteReceived is called for each received packet. It restarts the idle time and the count of probes.
func (t *tcp) noteReceived() { t.alive.heard, t.alive.probes = t.k.now, 0 }

// armKeepAlive sets the timer to expire after ns and cancels its earlier expiry.
func (t *tcp) armKeepAlive(ns int64) {
	t.alive.timer.cancel()
	t.alive.timer = t.k.schedule(t.k.now+ns, "keep-alive of "+t.local.String(), t.keepAliveExpired)
	t.alive.timer.isVain = t.answers
}

// keepAliveExpired is called when the timer expires: it sends a probe, postpones it, or ends the connection
// with ETIMEDOUT if too many probes had no answer.
func (t *tcp) keepAliveExpired() {
	t.alive.timer = nil
	idle := t.optionNs(unix.TCP_KEEPIDLE)
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
		t.armKeepAlive(t.optionNs(unix.TCP_KEEPINTVL))
	}
}

// answerProbe is the arrival of a probe of `from` at its peer. The peer acknowledges it, or refuses it if
// the connection has ended.
func (t *tcp) answerProbe(from *tcp) {
	if t.state == connected {
		t.packet("probed", 0, from, func() {})
	} else {
		from.refuse()
	}
}

// answers reports whether the peer would answer a probe now. If it would, the probe cannot end a wait.
func (t *tcp) answers() bool {
	there := t.peerHost()
	return t.peer != nil && t.peer.state == connected && !t.peer.home.dead && !there.paused &&
		t.k.linkBetween(t.home, there).state == LinkOpen && t.k.linkBetween(there, t.home).state == LinkOpen
}
