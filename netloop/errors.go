package netloop

import (
	"errors"
	"syscall"
)

// CallError is a failed system call, or an invalid argument of the function named in Call.
type CallError struct {
	Call  string
	Errno syscall.Errno
}

// Error returns the call and its errno, such as "epoll_ctl: bad file descriptor".
func (e *CallError) Error() string { return e.Call + ": " + e.Errno.Error() }

// Unwrap returns the errno.
func (e *CallError) Unwrap() error { return e.Errno }

// ErrnoOf returns the errno in err, or EIO if there is none.
func ErrnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return syscall.EIO
}

// wrapError adds the name of the call to err. It returns nil if err is nil.
func wrapError(call string, err error) error {
	if err == nil {
		return nil
	}
	return &CallError{call, ErrnoOf(err)}
}

// errnoError returns the error of a call that failed with errno, or nil if errno is 0.
func errnoError(call string, errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return &CallError{call, errno}
}
