package transports

import (
	"syscall"
	"testing"
)

func TestDatagramOutcomes(t *testing.T) {
	for errno, want := range map[syscall.Errno]Outcome{
		0:                    Got,
		syscall.EAGAIN:       Nothing,
		syscall.EINTR:        Nothing,
		syscall.ECONNREFUSED: Told,
		syscall.EHOSTUNREACH: Told,
		syscall.ENOMEM:       Told,
		syscall.EBADF:        Told,
	} {
		for _, length := range []int{0, 9} {
			c := Calls{RecvFrom: func(fd int, base, size, addr, addrLen uintptr) (int, syscall.Errno) {
				if fd != 3 || base != 1 || size != 2 || addr != 4 || addrLen != 5 {
					t.Errorf("received by %d into %d+%d, %d, %d", fd, base, size, addr, addrLen)
				}
				return length, errno
			}}
			var d Datagram
			d.Open(NewLease(3, nil), Readable)
			n, outcome, got := d.Receive(&c, 1, 2, 4, 5)
			if outcome != want || want == Got && n != length || want == Told && got != errno {
				t.Errorf("%v: %d, outcome %d, %v", errno, n, outcome, got)
			}
			// Whatever came, the next may be well.
			if d.Interest() != Readable {
				t.Errorf("%v: interest is %d", errno, d.Interest())
			}
		}
	}
}

func TestDatagramInterestIsWhatIsWanted(t *testing.T) {
	var d Datagram
	for _, want := range []Interest{Readable, Readable | Writable, Writable, 0} {
		d.Want(want)
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
