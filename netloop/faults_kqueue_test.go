//go:build darwin || libkqueue

package netloop

import "golang.org/x/sys/unix"

// wrapPollCalls makes the poller's calls fail on demand. Their names are create, wait, and ctl
// for a call with changes.
func (f *faults) wrapPollCalls(real *Calls) {
	c := &f.calls.Poll
	c.Create = func() (int, error) {
		if e := f.nextErrno("create"); e != 0 {
			return -1, e
		}
		return real.Poll.Create()
	}
	c.Kevent = func(kq int, changes, events []kevent, ts *unix.Timespec) (int, error) {
		name := "wait"
		if len(changes) > 0 {
			name = "ctl"
		}
		if e := f.nextErrno(name); e != 0 {
			return -1, e
		}
		return real.Poll.Kevent(kq, changes, events, ts)
	}
}
