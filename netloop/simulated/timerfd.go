//go:build linux

package simulated

import "syscall"

// timerFD is a timerfd(2) that expires once.
type timerFD struct {
	watchers
	armed *entry
	count uint64
}

// release stops the timer.
func (t *timerFD) release() { t.armed.cancel() }

// poll returns inEvents if the timer has expired since the last read.
func (t *timerFD) poll() uint32 {
	if t.count > 0 {
		return inEvents
	}
	return 0
}

// read returns the number of expirations since the last read, as 8 bytes, and sets it to 0. EAGAIN if it
// is 0, EINVAL if b is too short.
func (t *timerFD) read(b []byte) (int, syscall.Errno) {
	return takeCount(b, &t.count)
}

// TimerfdCreate is timerfd_create(2).
func (k *Kernel) TimerfdCreate(flags int) (int, syscall.Errno) {
	c, errno := k.begin("timerfd_create", -1)
	if errno != 0 {
		return c.end(-1, errno)
	}
	return c.end(k.install(&timerFD{}, flags))
}

// TimerfdSet is timerfd_settime(2) of a time that is ns from now; 0 disarms. Expirations that were not
// read are discarded. EBADF if fd is not open, EINVAL if it is not a timerfd or ns is negative.
func (k *Kernel) TimerfdSet(fd int, ns int64) syscall.Errno {
	c, errno := k.begin("timerfd_settime", fd)
	f := k.file(fd)
	if errno == 0 && f == nil {
		errno = syscall.EBADF
	}
	if errno != 0 {
		return c.done(errno, int(ns))
	}
	t, ok := f.node.(*timerFD)
	if !ok || ns < 0 {
		return c.done(syscall.EINVAL, int(ns))
	}
	t.armed.cancel()
	t.armed, t.count = nil, 0
	if ns > 0 {
		t.armed = k.schedule(k.now+ns, "timerfd", func() {
			t.count++
			t.wake(inEvents)
		})
	}
	return c.done(0, int(ns))
}
