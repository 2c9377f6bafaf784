package netloop

import "golang.org/x/sys/unix"

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

func makeKevent(fd int32, filter, flags int) (event kevent) {
	unix.SetKevent(&event, int(fd), filter, flags)
	return event
}

func systemPollCalls() PollCalls {
	return PollCalls{Create: unix.Kqueue, Kevent: unix.Kevent, Close: unix.Close}
}
