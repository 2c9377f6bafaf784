package netloop

import "golang.org/x/sys/unix"

// kevent is one change or event of kqueue.
type kevent = unix.Kevent_t

const (
	evfiltRead  = unix.EVFILT_READ
	evfiltWrite = unix.EVFILT_WRITE

	evAdd      = unix.EV_ADD
	evClear    = unix.EV_CLEAR
	evDelete   = unix.EV_DELETE
	evDispatch = unix.EV_DISPATCH
	evEnable   = unix.EV_ENABLE
	evError    = unix.EV_ERROR
	evEOF      = unix.EV_EOF
)

// makeKevent returns a change of one filter of a descriptor. flags are EV_ADD, EV_DELETE and the
// like.
func makeKevent(fd int32, filter, flags int) (event kevent) {
	unix.SetKevent(&event, int(fd), filter, flags)
	return event
}

// systemPollCalls returns the calls of the host's kernel.
func systemPollCalls() PollCalls {
	return PollCalls{Create: unix.Kqueue, Kevent: unix.Kevent, Close: unix.Close}
}
