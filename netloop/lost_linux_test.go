package netloop

import (
	"testing"

	"golang.org/x/sys/unix"
)

// lose closes a number, as other code of the process may, and lets it name something else.
func lose(t *testing.T, fd int) {
	t.Helper()
	other, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Dup3(other, fd, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(other)
	t.Cleanup(func() {
		if err := unix.Close(fd); err != nil {
			t.Errorf("descriptor %d was closed though somebody else's", fd)
		}
	})
}

// reactorAlone makes a reactor that no test harness closes.
func reactorAlone(t *testing.T, l *loop) *Reactor {
	t.Helper()
	r, err := New(l.sh)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCloseLeavesDescriptorsOfOthersAlone(t *testing.T) {
	for name, number := range map[string]func(*Reactor) int{
		"wakeup": func(r *Reactor) int { return r.wakeup.readFD },
		"ring":   func(r *Reactor) int { return r.ring.number() },
	} {
		t.Run(name, func(t *testing.T) {
			r := reactorAlone(t, usualLoop(t))
			if name == "ring" && !r.batches() {
				t.Skip("no ring to be had")
			}
			lose(t, number(r))
			epoll := r.poller.epfd
			r.Close()
			if name == "wakeup" {
				_ = unix.Close(epoll) // known by its wakeup only, so it is left
			}
		})
	}
	t.Run("poller", func(t *testing.T) {
		r := reactorAlone(t, usualLoop(t))
		lose(t, r.poller.epfd)
		if _, err := r.Turn(0); ErrnoOf(err) != unix.EINVAL && ErrnoOf(err) != unix.EBADF {
			t.Errorf("a turn on a descriptor that is no poller: %v", err)
		}
		wakeup := r.wakeup.readFD
		r.Close()
		_ = unix.Close(wakeup) // it can't be told any more, so it is left
	})
	t.Run("another reactor's", func(t *testing.T) {
		l, second := usualLoop(t), usualLoop(t)
		r, other := reactorAlone(t, l), reactorAlone(t, second)
		// The numbers of the first name what the other has.
		for from, to := range map[int]int{
			other.poller.epfd: r.poller.epfd, other.wakeup.readFD: r.wakeup.readFD,
		} {
			if err := unix.Dup3(from, to, unix.O_CLOEXEC); err != nil {
				t.Fatal(err)
			}
		}
		ours := []int{r.poller.epfd, r.wakeup.readFD}
		r.Close()
		for _, fd := range ours {
			if err := unix.Close(fd); err != nil {
				t.Errorf("descriptor %d was closed though another reactor's", fd)
			}
		}
		other.Close()
	})
}
