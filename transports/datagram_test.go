package transports

import (
	"syscall"
	"testing"
)

func TestDatagramReceiveReturnsOutcomeOfErrno(t *testing.T) {
	for errno, want := range map[syscall.Errno]Outcome{
		0:                    OK,
		syscall.EAGAIN:       WouldBlock,
		syscall.EINTR:        WouldBlock,
		syscall.ECONNREFUSED: Transient,
		syscall.EHOSTUNREACH: Transient,
		syscall.ENOMEM:       Transient,
		syscall.EBADF:        Transient,
	} {
		for _, length := range []int{0, 9} {
			c := Calls{RecvFrom: func(fd int, base, size, addr, addrLen uintptr) (int, syscall.Errno) {
				if fd != 3 || base != 1 || size != 2 || addr != 4 || addrLen != 5 {
					t.Errorf("received from fd %d into %d+%d, %d, %d", fd, base, size, addr, addrLen)
				}
				return length, errno
			}}
			var d Datagram
			d.Open(NewLease(3, nil), Readable)
			n, outcome, got := d.Receive(&c, 1, 2, 4, 5)
			if outcome != want || want == OK && n != length || want == Transient && got != errno {
				t.Errorf("%v: %d, outcome %d, %v", errno, n, outcome, got)
			}
			// The next receive may succeed, so the endpoint stays readable.
			if d.Interest() != Readable {
				t.Errorf("%v: interest is %d", errno, d.Interest())
			}
		}
	}
}

func TestDatagramInterestIsTheOneThatWasSet(t *testing.T) {
	var d Datagram
	for _, want := range []Interest{Readable, Readable | Writable, Writable, 0} {
		d.SetInterest(want)
		if d.Interest() != want {
			t.Errorf("wanted %d, is %d", want, d.Interest())
		}
	}
	d.Open(NewLease(3, nil), Writable)
	if d.Interest() != Writable {
		t.Error("Open has no effect")
	}
	d.Discard()
	if d.Interest() != 0 {
		t.Error("Discard has no effect")
	}
}
