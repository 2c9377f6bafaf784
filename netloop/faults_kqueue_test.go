//go:build darwin || libkqueue

package netloop

import "golang.org/x/sys/unix"

// poll puts the faults in front of the poller's calls.
func (f *faults) poll(real *Calls) {
	c := &f.calls.Poll
	c.Create = func() (int, error) {
		if e := f.take("create"); e != 0 {
			return -1, e
		}
		return real.Poll.Create()
	}
	c.Kevent = func(kq int, changes, events []kevent, ts *unix.Timespec) (int, error) {
		name := "wait"
		if len(changes) > 0 {
			name = "ctl"
		}
		if e := f.take(name); e != 0 {
			return -1, e
		}
		return real.Poll.Kevent(kq, changes, events, ts)
	}
}
