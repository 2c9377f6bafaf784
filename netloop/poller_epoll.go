//go:build linux && !libkqueue

package netloop

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PollCalls are the system calls of the epoll backend.
type PollCalls struct {
	Create func() (int, syscall.Errno)
	Ctl    func(epfd, op int, fd int32, ev *unix.EpollEvent) syscall.Errno
	// Poll is a wait of no length, WaitExact one with a timeout in ns
	// (epoll_pwait2), Wait one in ms, or without a timeout (-1).
	Poll      func(epfd int, evs []unix.EpollEvent) (int, syscall.Errno)
	WaitExact func(epfd int, evs []unix.EpollEvent, ts *unix.Timespec) (int, syscall.Errno)
	Wait      func(epfd int, evs []unix.EpollEvent, ms int) (int, syscall.Errno)
	// TimerCreate and TimerSet are for kernels without epoll_pwait2.
	TimerCreate func() (int, syscall.Errno)
	TimerSet    func(fd int, spec *unix.ItimerSpec) syscall.Errno
	Close       func(fd int) syscall.Errno
	// Replace has a number name what another one names: dup3.
	Replace func(from, to int) syscall.Errno
	// Facts is what the kernel tells of a descriptor, in /proc.
	Facts func(fd int) ([]byte, syscall.Errno)
}

func systemPollCalls() PollCalls {
	return PollCalls{
		Create: func() (int, syscall.Errno) {
			n, _, e := unix.RawSyscall(unix.SYS_EPOLL_CREATE1, unix.EPOLL_CLOEXEC, 0, 0)
			return int(n), e
		},
		Ctl: func(epfd, op int, fd int32, ev *unix.EpollEvent) syscall.Errno {
			_, _, e := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epfd), uintptr(op), uintptr(fd),
				uintptr(unsafe.Pointer(ev)), 0, 0)
			return e
		},
		Poll: func(epfd int, evs []unix.EpollEvent) (int, syscall.Errno) {
			n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd),
				uintptr(unsafe.Pointer(&evs[0])), uintptr(len(evs)), 0, 0, 0)
			return int(n), e
		},
		WaitExact: func(epfd int, evs []unix.EpollEvent, ts *unix.Timespec) (int, syscall.Errno) {
			n, _, e := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(epfd),
				uintptr(unsafe.Pointer(&evs[0])), uintptr(len(evs)), uintptr(unsafe.Pointer(ts)), 0, 0)
			return int(n), e
		},
		Wait: func(epfd int, evs []unix.EpollEvent, ms int) (int, syscall.Errno) {
			n, _, e := unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(epfd),
				uintptr(unsafe.Pointer(&evs[0])), uintptr(len(evs)), uintptr(ms), 0, 0)
			return int(n), e
		},
		TimerCreate: func() (int, syscall.Errno) {
			n, _, e := unix.RawSyscall(unix.SYS_TIMERFD_CREATE, unix.CLOCK_MONOTONIC,
				unix.TFD_CLOEXEC|unix.TFD_NONBLOCK, 0)
			return int(n), e
		},
		TimerSet: func(fd int, spec *unix.ItimerSpec) syscall.Errno {
			_, _, e := unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(fd), 0,
				uintptr(unsafe.Pointer(spec)), 0, 0, 0)
			return e
		},
		Close: func(fd int) syscall.Errno {
			_, _, e := unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
			return e
		},
		Replace: func(from, to int) syscall.Errno {
			_, _, e := unix.RawSyscall(unix.SYS_DUP3, uintptr(from), uintptr(to), unix.O_CLOEXEC)
			return e
		},
		Facts: readFacts,
	}
}

// readFacts reads what the calling thread's table of descriptors has under a number. That of the main
// thread, /proc/self, is another one after unshare(CLONE_FILES).
func readFacts(fd int) ([]byte, syscall.Errno) {
	file, err := unix.Open("/proc/thread-self/fdinfo/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, ErrnoOf(err)
	}
	defer func() { _ = unix.Close(file) }()
	var all []byte
	for {
		all = slices.Grow(all, 4096)
		n, err := unix.Read(file, all[len(all):cap(all)])
		if err != nil {
			return nil, ErrnoOf(err)
		}
		if n == 0 {
			return all, 0
		}
		all = all[:len(all)+n]
	}
}

// maxEvents is the most events of one wait; epoll lets those that did not fit
// go first in the next.
const maxEvents = 512

// timerToken names the timerfd, whose events mean no more than that the wait is
// over. No generation is 0, so no registration has this token.
const timerToken token = 1

// poller polls with epoll. Waits are timed by epoll_pwait2 (Linux 5.11), or where that is
// missing or forbidden (a sandbox may answer EPERM, and may come late) by a timerfd. Where
// both are, a wait lasts whole milliseconds, rounded up: never too short.
type poller struct {
	calls *PollCalls
	epfd  int

	wakeFD int
	wakeup token

	// Arguments and results of the calls live here: as locals they would be
	// allocated at each call, since they are passed to function variables.
	events [maxEvents]unix.EpollEvent
	ev     unix.EpollEvent
	ts     unix.Timespec
	spec   unix.ItimerSpec

	timerfd    int // -1: epoll_pwait2 is there, or neither is (coarse)
	timerArmed bool
	coarse     bool // for good, once set
}

func (p *poller) open(c *PollCalls) error {
	p.calls, p.timerfd = c, -1
	epfd, errno := c.Create()
	if errno != 0 {
		return failed("epoll_create1", errno)
	}
	p.epfd = epfd
	switch _, errno = c.WaitExact(epfd, p.events[:], &p.ts); errno {
	case 0, syscall.EINTR:
		return nil
	}
	if err := p.openTimer(); err != nil {
		_ = c.Close(epfd)
		return err
	}
	return nil
}

func isForbidden(errno syscall.Errno) bool {
	return errno == syscall.ENOSYS || errno == syscall.EPERM
}

// openTimer sees to it that waits are timed without epoll_pwait2.
func (p *poller) openTimer() error {
	timerfd, errno := p.calls.TimerCreate()
	if isForbidden(errno) {
		p.coarse = true
		return nil
	}
	if errno != 0 {
		return failed("timerfd_create", errno)
	}
	// Edge-triggered: each expiry is told once, and nobody need read it away.
	if errno := p.ctl(unix.EPOLL_CTL_ADD, int32(timerfd), timerToken, unix.EPOLLIN|unix.EPOLLET); errno != 0 {
		_ = p.calls.Close(timerfd) // which close would not know again
		return failed("epoll_ctl", errno)
	}
	p.timerfd, p.timerArmed = timerfd, false
	return nil
}

// mend looks at the timerfd, and makes another where somebody has closed it.
func (p *poller) mend() error {
	if p.timerfd < 0 || p.ctl(unix.EPOLL_CTL_MOD, int32(p.timerfd), timerToken, unix.EPOLLIN|unix.EPOLLET) == 0 {
		return nil
	}
	return p.openTimer()
}

func (p *poller) number() int { return p.epfd }

func (p *poller) close() {
	if p.timerfd >= 0 && p.holds(p.timerfd) {
		_ = p.calls.Close(p.timerfd)
	}
	_ = p.calls.Close(p.epfd)
}

// isOurs tells whether the number of the epoll still names ours: the kernel lists the wakeup in it with
// the token that only this reactor has. A kernel whose /proc lacks this line (gVisor), or where /proc is
// missing or forbidden, gives no answer: then it is at least an epoll in which the wakeup's number and
// file are registered.
func (p *poller) isOurs() bool {
	list, errno := p.calls.Facts(p.epfd)
	if errno == 0 {
		if data, found := registeredData(list, p.wakeFD); found {
			return data == uint64(p.wakeup)
		}
	}
	return p.holds(p.wakeFD)
}

// knowsItself is isOurs for a running loop, whose poller may list thousands: the eventfd is
// ours by its count, and an epoll that knows ours is ours. The list is read only where the kernel
// doesn't tell the count. It may take back what a wake did.
func (p *poller) knowsItself() bool {
	facts, errno := p.calls.Facts(p.wakeFD)
	if errno == 0 {
		count, found := eventfdCount(facts)
		if found && count != uint64(uint32(p.wakeup)) || !found && !p.isOurs() {
			return false
		}
	}
	return p.holds(p.wakeFD)
}

// isSeenHere asks by the count as well. Where the kernel doesn't tell it, the wakeup's number names at least
// something that is registered in what the poller's number names.
func (p *poller) isSeenHere() bool {
	facts, errno := p.calls.Facts(p.wakeFD)
	if errno == 0 {
		if count, found := eventfdCount(facts); found {
			return count == uint64(uint32(p.wakeup))
		}
	}
	errno = p.ctl(unix.EPOLL_CTL_ADD, int32(p.wakeFD), timerToken, unix.EPOLLONESHOT)
	if errno == 0 {
		_ = p.remove(int32(p.wakeFD), 0)
	}
	return errno == syscall.EEXIST
}

// eventfdCount finds the count of an eventfd in its facts: "eventfd-count: 2f", in hexadecimal.
func eventfdCount(facts []byte) (uint64, bool) {
	for line := range bytes.Lines(facts) {
		words := wholeLine(line)
		if len(words) < 2 || string(words[0]) != "eventfd-count:" {
			continue
		}
		count, err := strconv.ParseUint(string(words[1]), 16, 64)
		return count, err == nil
	}
	return 0, false
}

// wholeLine splits a line into words; a line that was cut off, and perhaps a number with it, has none.
func wholeLine(line []byte) [][]byte {
	if !bytes.HasSuffix(line, []byte("\n")) {
		return nil
	}
	return bytes.Fields(line)
}

// registeredData finds the data with which a descriptor is registered in the facts of an epoll:
// "tfd: 5 events: 19 data: 2f pos:0 ino:1 sdev:f", of which data is hexadecimal.
func registeredData(facts []byte, fd int) (uint64, bool) {
	for line := range bytes.Lines(facts) {
		words := wholeLine(line)
		if len(words) < 6 || string(words[0]) != "tfd:" || string(words[1]) != strconv.Itoa(fd) {
			continue
		}
		data, err := strconv.ParseUint(string(words[5]), 16, 64)
		return data, err == nil
	}
	return 0, false
}

// hold adds a descriptor for no event but an error, which it does not have.
func (p *poller) hold(fd int) bool {
	return p.ctl(unix.EPOLL_CTL_ADD, int32(fd), timerToken, unix.EPOLLET) == 0
}

// holds relies on epoll knowing a descriptor by its number and by what it names: to
// replace the registration of another than was added fails. Of the wakeup, this may take
// back what a wake has done.
func (p *poller) holds(fd int) bool {
	if fd == p.wakeFD {
		return p.ctl(unix.EPOLL_CTL_MOD, int32(fd), p.wakeup, unix.EPOLLET) == 0
	}
	return p.ctl(unix.EPOLL_CTL_MOD, int32(fd), timerToken, unix.EPOLLET) == 0
}

func (p *poller) ctl(op int, fd int32, t token, mask uint32) syscall.Errno {
	p.ev.Events = mask
	p.ev.Fd = int32(t.id())
	p.ev.Pad = int32(t.gen())
	return p.calls.Ctl(p.epfd, op, fd, &p.ev)
}

func epollMask(in interest) uint32 {
	var mask uint32
	if in&readable != 0 {
		mask |= unix.EPOLLIN
	}
	if in&writable != 0 {
		mask |= unix.EPOLLOUT
	}
	if in&oneShot != 0 {
		mask |= unix.EPOLLONESHOT
	}
	if in&edge != 0 {
		mask |= unix.EPOLLET
	}
	return mask
}

func (p *poller) add(fd int32, t token, in interest) syscall.Errno {
	return p.ctl(unix.EPOLL_CTL_ADD, fd, t, epollMask(in))
}

func (p *poller) modify(fd int32, t token, _, in interest) syscall.Errno {
	return p.ctl(unix.EPOLL_CTL_MOD, fd, t, epollMask(in))
}

func (p *poller) remove(fd int32, _ interest) syscall.Errno {
	return p.ctl(unix.EPOLL_CTL_DEL, fd, 0, 0)
}

func (p *poller) knows(fd int32) bool {
	// Silent: no event is asked for but errors, and those once.
	if p.ctl(unix.EPOLL_CTL_ADD, fd, timerToken, unix.EPOLLONESHOT) != 0 {
		return true
	}
	return p.remove(fd, 0) != 0
}

// renew makes another epoll, which takes the place of the old one under its number: other threads wake the
// reactor by that number. What still names nothing that it could be removed by ends with the old one.
func (p *poller) renew(register func(isKnown func(fd int32, t token, in interest) bool)) syscall.Errno {
	fresh, errno := p.calls.Create()
	if errno != 0 {
		return errno
	}
	old := p.epfd
	p.epfd = fresh
	errno = p.ctl(unix.EPOLL_CTL_ADD, int32(p.wakeFD), p.wakeup, unix.EPOLLET)
	if errno == 0 && p.timerfd >= 0 {
		errno = p.ctl(unix.EPOLL_CTL_ADD, int32(p.timerfd), timerToken, unix.EPOLLIN|unix.EPOLLET)
	}
	if errno == 0 {
		register(func(fd int32, t token, in interest) bool {
			p.epfd = old
			known := p.modify(fd, t, in, in) == 0
			p.epfd = fresh
			return known
		})
		errno = p.calls.Replace(fresh, old)
	}
	p.epfd = old
	_ = p.calls.Close(fresh)
	return errno
}

func (p *poller) addWakeup(fd int, t token) error {
	// It is always readable, and silent until a wake asks for that (writeWakeup).
	p.wakeFD, p.wakeup = fd, t
	return failed("epoll_ctl", p.ctl(unix.EPOLL_CTL_ADD, int32(fd), t, unix.EPOLLET))
}

func (p *poller) wait(timeout int64) (int, syscall.Errno) {
	switch {
	case timeout == 0:
		return p.calls.Poll(p.epfd, p.events[:])
	case p.timerfd >= 0:
		if errno := p.setTimer(timeout); errno != 0 {
			return 0, errno
		}
		return p.calls.Wait(p.epfd, p.events[:], -1)
	case timeout < 0:
		return p.calls.Wait(p.epfd, p.events[:], -1)
	case p.coarse:
		const ms = int64(time.Millisecond)
		return p.calls.Wait(p.epfd, p.events[:], int(min((timeout-1)/ms+1, math.MaxInt32)))
	default:
		p.ts = unix.NsecToTimespec(timeout)
		n, errno := p.calls.WaitExact(p.epfd, p.events[:], &p.ts)
		if isForbidden(errno) && p.openTimer() == nil {
			return p.wait(timeout) // a sandbox that came later than the loop
		}
		return n, errno
	}
}

// setTimer makes the timerfd end the coming wait after timeout ns, or never.
func (p *poller) setTimer(timeout int64) syscall.Errno {
	if timeout < 0 && !p.timerArmed {
		return 0
	}
	p.timerArmed = timeout > 0
	p.spec.Value = unix.NsecToTimespec(max(timeout, 0))
	return p.calls.TimerSet(p.timerfd, &p.spec)
}

func (p *poller) event(i int) (token, interest) {
	ev := &p.events[i]
	var in interest
	if ev.Events&(unix.EPOLLIN|unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		in |= readable
	}
	if ev.Events&(unix.EPOLLOUT|unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		in |= writable
	}
	if ev.Events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		in |= broken
	}
	if ev.Events == unix.EPOLLERR {
		in |= errorAlone
	}
	return makeToken(uint32(ev.Fd), uint32(ev.Pad)), in
}

func (p *poller) describe() string {
	if p.timerfd >= 0 {
		return "epoll, timerfd"
	}
	if p.coarse {
		return "epoll, milliseconds"
	}
	return "epoll, epoll_pwait2"
}
