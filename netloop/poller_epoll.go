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
	// Poll does not wait. WaitExact waits with a timeout in ns (epoll_pwait2), Wait with a
	// timeout in ms or without a timeout (-1).
	Poll      func(epfd int, evs []unix.EpollEvent) (int, syscall.Errno)
	WaitExact func(epfd int, evs []unix.EpollEvent, ts *unix.Timespec) (int, syscall.Errno)
	Wait      func(epfd int, evs []unix.EpollEvent, ms int) (int, syscall.Errno)
	// TimerCreate and TimerSet are for kernels without epoll_pwait2.
	TimerCreate func() (int, syscall.Errno)
	TimerSet    func(fd int, spec *unix.ItimerSpec) syscall.Errno
	Close       func(fd int) syscall.Errno
	// Replace makes the number `to` refer to the file of `from`: dup3(2).
	Replace func(from, to int) syscall.Errno
	// FDInfo returns the kernel's description of a descriptor, from /proc.
	FDInfo func(fd int) ([]byte, syscall.Errno)
}

// systemPollCalls returns the calls of the host's kernel.
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
		FDInfo: readFDInfo,
	}
}

// readFDInfo reads the description of a number in the descriptor table of the calling thread.
// The main thread's table, /proc/self, is a different one after unshare(CLONE_FILES).
func readFDInfo(fd int) ([]byte, syscall.Errno) {
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

// maxEvents is the maximum number of events of one wait. epoll returns the remaining events
// first in the next wait.
const maxEvents = 512

// timerToken is the token of the timerfd. Its event only means that the wait is over.
// Generations are never 0, so no registration has this token.
const timerToken token = 1

// poller polls with epoll. Waits are timed by epoll_pwait2 (Linux 5.11), or by a timerfd if the
// call is missing or forbidden (a sandbox may return EPERM, and may be installed later). If
// both are missing, the timeout is rounded up to milliseconds, so a wait is never too short.
type poller struct {
	calls *PollCalls
	epfd  int

	wakeFD int   // the eventfd of the wake-up
	wakeup token // token of the wake-up

	// Arguments and results of the calls are stored here. As local variables they would be
	// allocated in each call, because they are passed to function variables.
	events [maxEvents]unix.EpollEvent
	ev     unix.EpollEvent
	ts     unix.Timespec
	spec   unix.ItimerSpec

	timerfd    int // -1: epoll_pwait2 is used, or both are missing (coarse)
	timerArmed bool
	coarse     bool // timeouts in milliseconds; permanent
}

// open creates the epoll and finds out how its waits can be timed. p is not open after an error.
func (p *poller) open(c *PollCalls) error {
	p.calls, p.timerfd = c, -1
	epfd, errno := c.Create()
	if errno != 0 {
		return errnoError("epoll_create1", errno)
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

// isUnavailable reports whether errno means that a system call is missing or forbidden.
func isUnavailable(errno syscall.Errno) bool {
	return errno == syscall.ENOSYS || errno == syscall.EPERM
}

// openTimer prepares waits that are timed without epoll_pwait2: with a timerfd, or coarse if the
// system does not have timerfds or forbids them. After another error p is unchanged.
func (p *poller) openTimer() error {
	timerfd, errno := p.calls.TimerCreate()
	if isUnavailable(errno) {
		p.coarse = true
		return nil
	}
	if errno != 0 {
		return errnoError("timerfd_create", errno)
	}
	// Edge-triggered: each expiry is reported once and the timerfd need not be read.
	if errno := p.ctl(unix.EPOLL_CTL_ADD, int32(timerfd), timerToken, unix.EPOLLIN|unix.EPOLLET); errno != 0 {
		_ = p.calls.Close(timerfd) // close() would not recognise it
		return errnoError("epoll_ctl", errno)
	}
	p.timerfd, p.timerArmed = timerfd, false
	return nil
}

// repairTimer opens another timerfd if the number of the present one does not refer to it any more.
// It returns the error of openTimer.
func (p *poller) repairTimer() error {
	if p.timerfd < 0 || p.ctl(unix.EPOLL_CTL_MOD, int32(p.timerfd), timerToken, unix.EPOLLIN|unix.EPOLLET) == 0 {
		return nil
	}
	return p.openTimer()
}

// descriptor returns the number of the epoll.
func (p *poller) descriptor() int { return p.epfd }

// close closes the epoll, and the timerfd if its number still refers to it.
func (p *poller) close() {
	if p.timerfd >= 0 && p.stillRefers(p.timerfd) {
		_ = p.calls.Close(p.timerfd)
	}
	_ = p.calls.Close(p.epfd)
}

// isValid reports whether the epoll's number still refers to the epoll. The kernel lists the
// wake-up in the epoll's description together with its token, which is unique to this reactor.
// If the kernel's /proc does not have this line (gVisor), or /proc is missing or forbidden,
// isValid only checks that the number refers to an epoll that has registered the wake-up's
// number and file.
func (p *poller) isValid() bool {
	info, errno := p.calls.FDInfo(p.epfd)
	if errno == 0 {
		if data, found := registeredData(info, p.wakeFD); found {
			return data == uint64(p.wakeup)
		}
	}
	return p.stillRefers(p.wakeFD)
}

// isValidQuick reports whether the numbers of the epoll and of the wake-up still refer to them.
// It is for a running loop and usually does not read the epoll's description, which lists all of
// possibly thousands of registrations: the eventfd is identified by its count, and an epoll that
// has registered this eventfd is this reactor's. The description is only read if the kernel does
// not report the count. Without /proc the number only has to refer to an epoll that has registered
// the wake-up (stillRefers). The call may undo a wake-up, so the caller repeats a pending one.
func (p *poller) isValidQuick() bool {
	info, errno := p.calls.FDInfo(p.wakeFD)
	if errno == 0 {
		count, found := eventfdCount(info)
		if found && count != uint64(uint32(p.wakeup)) || !found && !p.isValid() {
			return false
		}
	}
	return p.stillRefers(p.wakeFD)
}

// isValidInThread reports whether the numbers are valid in the calling thread's descriptor table.
// It identifies the eventfd by its count. If the kernel does not report the count, it checks that
// the wake-up's number refers to a file that is registered in the poller.
func (p *poller) isValidInThread() bool {
	info, errno := p.calls.FDInfo(p.wakeFD)
	if errno == 0 {
		if count, found := eventfdCount(info); found {
			return count == uint64(uint32(p.wakeup))
		}
	}
	errno = p.ctl(unix.EPOLL_CTL_ADD, int32(p.wakeFD), timerToken, unix.EPOLLONESHOT)
	if errno == 0 {
		_ = p.remove(int32(p.wakeFD), 0)
	}
	return errno == syscall.EEXIST
}

// eventfdCount finds the count in the description of an eventfd: "eventfd-count: 2f", in
// hexadecimal. It returns false if there is none.
func eventfdCount(info []byte) (uint64, bool) {
	for line := range bytes.Lines(info) {
		words := fieldsOfCompleteLine(line)
		if len(words) < 2 || string(words[0]) != "eventfd-count:" {
			continue
		}
		count, err := strconv.ParseUint(string(words[1]), 16, 64)
		return count, err == nil
	}
	return 0, false
}

// fieldsOfCompleteLine splits a line into words. For a truncated line, which may have a
// truncated number, it returns nil.
func fieldsOfCompleteLine(line []byte) [][]byte {
	if !bytes.HasSuffix(line, []byte("\n")) {
		return nil
	}
	return bytes.Fields(line)
}

// registeredData finds a descriptor's data in the description of an epoll: "tfd: 5 events: 19
// data: 2f pos:0 ino:1 sdev:f", with data in hexadecimal. It returns false if the descriptor is
// not listed.
func registeredData(info []byte, fd int) (uint64, bool) {
	for line := range bytes.Lines(info) {
		words := fieldsOfCompleteLine(line)
		if len(words) < 6 || string(words[0]) != "tfd:" || string(words[1]) != strconv.Itoa(fd) {
			continue
		}
		data, err := strconv.ParseUint(string(words[5]), 16, 64)
		return data, err == nil
	}
	return 0, false
}

// stillRefers reports whether the number still refers to the registered file. It relies on epoll,
// which finds a registration by number and file: EPOLL_CTL_MOD fails if the number refers to
// another file than the registered one. For the wake-up, the call may undo a wake-up.
func (p *poller) stillRefers(fd int) bool {
	if fd == p.wakeFD {
		return p.ctl(unix.EPOLL_CTL_MOD, int32(fd), p.wakeup, unix.EPOLLET) == 0
	}
	return p.ctl(unix.EPOLL_CTL_MOD, int32(fd), timerToken, unix.EPOLLET) == 0
}

// ctl calls epoll_ctl with the token as the data of the registration. It returns the errno.
func (p *poller) ctl(op int, fd int32, t token, mask uint32) syscall.Errno {
	p.ev.Events = mask
	p.ev.Fd = int32(t.id())
	p.ev.Pad = int32(t.gen())
	return p.calls.Ctl(p.epfd, op, fd, &p.ev)
}

// epollMask converts an interest mask, with its trigger mode, to EPOLL flags.
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

// add registers a descriptor (EPOLL_CTL_ADD). EEXIST if it is registered, EPERM if the file
// cannot be polled.
func (p *poller) add(fd int32, t token, in interest) syscall.Errno {
	return p.ctl(unix.EPOLL_CTL_ADD, fd, t, epollMask(in))
}

// modify replaces a registration (EPOLL_CTL_MOD) and re-enables a oneShot. ENOENT if there is
// none.
func (p *poller) modify(fd int32, t token, _, in interest) syscall.Errno {
	return p.ctl(unix.EPOLL_CTL_MOD, fd, t, epollMask(in))
}

// remove ends a registration (EPOLL_CTL_DEL). ENOENT if there is none.
func (p *poller) remove(fd int32, _ interest) syscall.Errno {
	return p.ctl(unix.EPOLL_CTL_DEL, fd, 0, 0)
}

// isRegistered reports whether the epoll has a registration of this number and its present file.
// It tries to add one, and removes it again. It also returns true if the attempt fails for
// another reason, so that the answer is unknown.
func (p *poller) isRegistered(fd int32) bool {
	// The registration is silent: it reports errors only, and only once.
	if p.ctl(unix.EPOLL_CTL_ADD, fd, timerToken, unix.EPOLLONESHOT) != 0 {
		return true
	}
	return p.remove(fd, 0) != 0
}

// renew opens another epoll and moves it to the number of the old one, because other threads wake
// the reactor by this number. Registrations that cannot be removed by number end with the old
// epoll. register is called at most once, while add and modify refer to the new epoll. After an
// errno, which may come after that call, the old epoll stays in use.
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

// addWakeup registers the eventfd of the wake-up, edge-triggered, with its token.
func (p *poller) addWakeup(fd int, t token) error {
	// The eventfd is always readable and does not report this until a wake-up requests it
	// (writeWakeup).
	p.wakeFD, p.wakeup = fd, t
	return errnoError("epoll_ctl", p.ctl(unix.EPOLL_CTL_ADD, int32(fd), t, unix.EPOLLET))
}

// wait waits for up to timeout ns (< 0: without limit) and returns the number of events, which
// event() decodes. If epoll_pwait2 has become unavailable, it switches to a timerfd or to
// milliseconds. EINTR if a signal ended the wait.
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
		if isUnavailable(errno) && p.openTimer() == nil {
			return p.wait(timeout) // a sandbox was installed after the loop was created
		}
		return n, errno
	}
}

// setTimer sets the timerfd to expire after timeout ns; < 0: never. If the timer is not armed and
// must not expire, it makes no call.
func (p *poller) setTimer(timeout int64) syscall.Errno {
	if timeout < 0 && !p.timerArmed {
		return 0
	}
	p.timerArmed = timeout > 0
	p.spec.Value = unix.NsecToTimespec(max(timeout, 0))
	return p.calls.TimerSet(p.timerfd, &p.spec)
}

// event returns the token and the readiness of event i of the last wait, in the reactor's bits.
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
		in |= errorOnly
	}
	return makeToken(uint32(ev.Fd), uint32(ev.Pad)), in
}

// describe names the mechanism that times the waits, for diagnostics.
func (p *poller) describe() string {
	if p.timerfd >= 0 {
		return "epoll, timerfd"
	}
	if p.coarse {
		return "epoll, milliseconds"
	}
	return "epoll, epoll_pwait2"
}
