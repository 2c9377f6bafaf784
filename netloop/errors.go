package netloop

import (
	"errors"
	"syscall"
)

// CallError is a failed system call, or a refused argument under the name of
// the function that refused it.
type CallError struct {
	Call  string
	Errno syscall.Errno
}

func (e *CallError) Error() string { return e.Call + ": " + e.Errno.Error() }

// Unwrap returns the errno.
func (e *CallError) Unwrap() error { return e.Errno }

// ErrnoOf returns the errno within err, EIO where there is none.
func ErrnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return syscall.EIO
}

// callError wraps err, if any, with the name of the call.
func callError(call string, err error) error {
	if err == nil {
		return nil
	}
	return &CallError{call, ErrnoOf(err)}
}

// failed makes the error of a call out of its errno, nil for 0.
func failed(call string, errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return &CallError{call, errno}
}
