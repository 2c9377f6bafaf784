//go:build linux

package simulated

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Keep-alive probes of TCP, as Linux sends them (tcp_keepalive_timer). A connection with SO_KEEPALIVE of
// which nothing was heard for TCP_KEEPIDLE seconds, while nothing of its own waits for an answer, sends a
// probe, and then one each TCP_KEEPINTVL seconds. The peer's host answers: by an acknowledgement, or
// where it does not know the connection by a reset. After TCP_KEEPCNT probes without an answer the
// connection fails with ETIMEDOUT, or with TCP_USER_TIMEOUT, instead, when nothing was heard for so long.

// What the options are first, and their bounds.
const (
	keepIdleUsual, keepIntervalUsual, keepCountUsual = 7200, 75, 9
	keepTimeMost, keepCountMost                      = 32767, 127
)

const second = 1_000_000_000

type keepAlive struct {
	timer  *entry
	heard  int64 // when the last packet came
	probes int   // without an answer
}

// mayBe tells whether an option of TCP may have a value.
func mayBe(name, value int) syscall.Errno {
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

// usually is the value of an option that was not set.
func usually(level, name int) int {
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

// option is the value of an option that may have been set.
func (s *socket) option(level, name int) int {
	for _, o := range s.options {
		if o.level == level && o.name == name {
			return o.value
		}
	}
	return usually(level, name)
}

// seconds are those of an option, in ns.
func (t *tcp) seconds(name int) int64 { return int64(t.option(unix.IPPROTO_TCP, name)) * second }

func (t *tcp) keepsAlive() bool {
	return t.state == connected && t.option(unix.SOL_SOCKET, unix.SO_KEEPALIVE) != 0
}

// keepAliveSet is called when an option has been set.
func (t *tcp) keepAliveSet(level, name int) {
	isOn := level == unix.SOL_SOCKET && name == unix.SO_KEEPALIVE
	switch {
	case isOn && !t.keepsAlive():
		t.alive.timer.cancel()
		t.alive.timer = nil
	case isOn && t.alive.timer == nil:
		t.keepAliveIn(t.seconds(unix.TCP_KEEPIDLE))
	case level == unix.IPPROTO_TCP && name == unix.TCP_KEEPIDLE && t.keepsAlive():
		t.keepAliveIn(max(0, t.alive.heard+t.seconds(unix.TCP_KEEPIDLE)-t.k.now))
	}
}

// keepAliveBegins is called when a connection is complete.
func (t *tcp) keepAliveBegins() {
	t.hears()
	if t.keepsAlive() {
		t.keepAliveIn(t.seconds(unix.TCP_KEEPIDLE))
	}
}

// hears is called for each packet that comes.
func (t *tcp) hears() { t.alive.heard, t.alive.probes = t.k.now, 0 }

func (t *tcp) keepAliveIn(ns int64) {
	t.alive.timer.cancel()
	t.alive.timer = t.k.at(t.k.now+ns, "keep-alive of "+t.local.String(), t.keepAliveEnds)
	t.alive.timer.vain = t.answers
}

// keepAliveEnds is the end of the timer.
func (t *tcp) keepAliveEnds() {
	t.alive.timer = nil
	idle := t.seconds(unix.TCP_KEEPIDLE)
	silent := t.k.now - t.alive.heard
	patience := int64(t.option(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)) * 1_000_000
	switch {
	case !t.keepsAlive():
	case t.flying > 0 || len(t.out) > 0 || t.finSent && !t.finAcked:
		t.keepAliveIn(idle) // retransmissions find out
	case silent < idle:
		t.keepAliveIn(idle - silent)
	case patience == 0 && t.alive.probes >= t.option(unix.IPPROTO_TCP, unix.TCP_KEEPCNT),
		patience > 0 && t.alive.probes > 0 && silent >= patience:
		t.reset()
		t.fail(syscall.ETIMEDOUT)
	default:
		t.alive.probes++
		p := t.peer
		t.packet("probe", 0, p, func() { p.isProbed(t) })
		t.keepAliveIn(t.seconds(unix.TCP_KEEPINTVL))
	}
}

// isProbed answers.
func (t *tcp) isProbed(from *tcp) {
	if t.state == connected {
		t.packet("probed", 0, from, func() {})
	} else {
		from.isRefused()
	}
}

// answers tells whether the peer would answer a probe now, and so nothing comes of one.
func (t *tcp) answers() bool {
	there := t.far()
	return t.peer != nil && t.peer.state == connected && !t.peer.home.dead && !there.paused &&
		t.k.between(t.home, there).way == Open && t.k.between(there, t.home).way == Open
}
