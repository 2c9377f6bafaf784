//go:build linux && !libkqueue

package netloop

import (
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// lose closes a number, as other code of the process may, and lets it name something else.
func lose(t *testing.T, fd int) {
	t.Helper()
	other, err := sys.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := sys.Dup3(other, fd, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	_ = sys.Close(other)
	t.Cleanup(func() {
		if err := sys.Close(fd); err != nil {
			t.Errorf("descriptor %d was closed though somebody else's", fd)
		}
	})
}

// reactorAlone makes a reactor that no test harness closes.
func reactorAlone(t *testing.T, l *loop) *Reactor {
	t.Helper()
	r, err := NewWithCalls(l.sh, kernelCalls())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// left closes what a reactor left open because it could not tell whose it is; the timerfd
// is there where the kernel has no epoll_pwait2.
func left(r *Reactor, fds ...int) {
	if r.poller.timerfd >= 0 {
		fds = append(fds, r.poller.timerfd)
	}
	for _, fd := range fds {
		_ = sys.Close(fd)
	}
}

func TestCloseLeavesDescriptorsOfOthersAlone(t *testing.T) {
	for name, number := range map[string]func(*Reactor) int{
		"wakeup": func(r *Reactor) int { return r.wakeup.readFD },
		"ring":   func(r *Reactor) int { return r.ring.number() },
	} {
		t.Run(name, func(t *testing.T) {
			r := reactorAlone(t, usualLoop(t))
			if name == "ring" && !r.batches() {
				r.Close()
				t.Skip("no ring to be had")
			}
			lose(t, number(r))
			epoll := r.poller.epfd
			r.Close()
			if name == "wakeup" {
				left(r, epoll) // known by its wakeup only
			}
		})
	}
	t.Run("poller", func(t *testing.T) {
		r := reactorAlone(t, usualLoop(t))
		lose(t, r.poller.epfd)
		if _, err := r.Turn(0); ErrnoOf(err) != unix.EBADF {
			t.Errorf("a turn on a descriptor that is no poller: %v", err)
		}
		wakeup := r.wakeup.readFD
		r.Close()
		left(r, wakeup)
	})
	t.Run("another reactor's", func(t *testing.T) {
		l, second := usualLoop(t), usualLoop(t)
		r, other := reactorAlone(t, l), reactorAlone(t, second)
		// The numbers of the first name what the other has.
		for from, to := range map[int]int{
			other.poller.epfd: r.poller.epfd, other.wakeup.readFD: r.wakeup.readFD,
		} {
			if err := sys.Dup3(from, to, unix.O_CLOEXEC); err != nil {
				t.Fatal(err)
			}
		}
		ours := []int{r.poller.epfd, r.wakeup.readFD}
		r.Close()
		for _, fd := range ours {
			if err := sys.Close(fd); err != nil {
				t.Errorf("descriptor %d was closed though another reactor's", fd)
			}
		}
		left(r)
		other.Close()
	})
}

// stranger puts another eventfd under a number; said tells what was written to it.
func stranger(t *testing.T, fd int) (said func() uint64) {
	t.Helper()
	other, err := sys.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	if err := sys.Dup3(other, fd, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = sys.Close(other), sys.Close(fd) })
	return func() uint64 {
		count := make([]byte, 8)
		if _, err := sys.Read(other, count); err == unix.EAGAIN {
			return 0
		}
		return 1
	}
}

func TestAWakeWritesNothingIntoWhatHasTheNumberNow(t *testing.T) {
	for name, number := range map[string]func(*Reactor) int{
		"wakeup": func(r *Reactor) int { return r.wakeup.writeFD },
		"poller": func(r *Reactor) int { return r.poller.epfd },
	} {
		t.Run(name, func(t *testing.T) {
			r := reactorAlone(t, usualLoop(t))
			kept := []int{r.wakeup.writeFD, r.poller.epfd}
			said := stranger(t, number(r))
			if err := r.Wake(); err == nil {
				t.Error("nobody was told")
			}
			r.shared.Flags |= Look
			if _, err := r.Turn(0); ErrnoOf(err) != unix.EBADF {
				t.Errorf("the turn said %v", err)
			}
			if said() != 0 {
				t.Error("something was written")
			}
			r.Close()
			for _, fd := range kept {
				if fd != number(r) {
					left(r, fd)
				}
			}
		})
	}
}

// A poller of somebody else under the number: its events are not ours.
func TestAnotherPollerUnderTheNumberIsNoticed(t *testing.T) {
	for _, begins := range []bool{true, false} {
		r := reactorAlone(t, usualLoop(t))
		other, err := sys.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		a, b := pair(t)
		say(t, b, []byte("x"))
		event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: 77, Pad: 77}
		if err := sys.EpollCtl(other, unix.EPOLL_CTL_ADD, a, &event); err != nil {
			t.Fatal(err)
		}
		ours, wakeup := r.poller.epfd, r.wakeup.readFD
		if err := sys.Dup3(other, ours, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		if begins {
			r.shared.Flags |= Look
		} else if _, err := r.Turn(0); err != nil {
			t.Error(err) // its event is of no registration: the next turn looks
		}
		if _, err := r.Turn(0); ErrnoOf(err) != unix.EBADF {
			t.Errorf("the turn said %v", err)
		}
		r.Close()
		if err := sys.EpollCtl(other, unix.EPOLL_CTL_MOD, a, &event); err != nil {
			t.Errorf("the registration is gone: %v", err)
		}
		left(r, ours, wakeup, other)
		_, _ = sys.Close(a), sys.Close(b)
	}
}

func TestToLookLosesNoWake(t *testing.T) {
	l := usualLoop(t)
	for range 3 {
		if err := l.r.Wake(); err != nil {
			t.Fatal(err)
		}
		l.sh.Flags |= Look
		before := l.sh.Wakeups
		expectKinds(t, l.turn(-1)) // which nothing else would end
		if l.sh.Wakeups != before+1 {
			t.Error("the wake was lost")
		}
	}
	l.sh.Flags |= Look
	l.quiet()
	if n := l.events(); n != 0 {
		t.Errorf("%d events without a wake", n)
	}
}

func TestARingThatSomebodyHasClosedIsMadeAnew(t *testing.T) {
	l := usualLoop(t)
	if !l.r.batches() {
		t.Skip("no ring to be had")
	}
	lose(t, l.r.ring.number())
	l.sh.Flags |= Look
	expectKinds(t, l.turn(0))
	if l.r.batch.state != ringUnknown {
		t.Error("the ring is still in use")
	}
}

func TestATimerfdThatSomebodyHasClosedIsMadeAnew(t *testing.T) {
	f := newFaults()
	f.fail("pwait2", unix.ENOSYS)
	l := newLoop(t, usual, f.calls)
	before := l.r.poller.timerfd
	said := stranger(t, before)
	l.sh.Flags |= Look
	if l.r.Turn(0); l.r.poller.timerfd == before {
		t.Error("there is no other one")
	}
	l.r.shared.NextDeadline = DeadlineNone
	if _, err := l.r.Turn(1000); err != nil || said() != 0 {
		t.Error(err)
	}
}

// A program may forbid calls to itself when its loop runs already.
func TestAWaitThatIsForbiddenLaterIsTimedOtherwise(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EPERM, unix.ENOSYS} {
		f := newFaults()
		l := newLoop(t, usual, f.calls)
		if l.r.poller.timerfd >= 0 {
			t.Skip("this kernel has no epoll_pwait2")
		}
		f.fail("pwait2", errno)
		if _, err := l.r.Turn(1000); err != nil {
			t.Error(err)
		}
		if l.r.poller.timerfd < 0 {
			t.Error("the next wait will ask again")
		}
		if _, err := l.r.Turn(1000); err != nil {
			t.Error(err)
		}
		f.fail("timerfd", unix.EMFILE)
		_ = sys.Close(l.r.poller.timerfd)
		l.r.poller.timerfd = -1
		f.fail("pwait2", errno)
		if _, err := l.r.Turn(1000); ErrnoOf(err) != errno {
			t.Errorf("without a descriptor: %v", err)
		}
	}
}

// The numbers of a loop that has lost its descriptors are those of the next one, both of them.
func TestALoopIsNotMistakenForTheNextOneWithItsNumbers(t *testing.T) {
	l, second := usualLoop(t), usualLoop(t)
	r := reactorAlone(t, l)
	left(r, r.poller.epfd, r.wakeup.readFD)
	other := reactorAlone(t, second)
	if other.poller.epfd != r.poller.epfd || other.wakeup.readFD != r.wakeup.readFD {
		t.Fatal("it has other numbers")
	}
	r.shared.Flags |= Look
	if _, err := r.Turn(0); ErrnoOf(err) != unix.EBADF {
		t.Errorf("the turn said %v", err)
	}
	_ = r.Wake() // of which the other one may hear, and no more
	if _, err := other.Turn(0); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := other.Wake(); err != nil {
			t.Error(err)
		}
		before := other.shared.Wakeups
		if _, err := other.Turn(-1); err != nil || other.shared.Wakeups == before {
			t.Errorf("a wake is lost: %v", err)
		}
	}
	r.Close()
	other.Close()
}

// incompleteFacts are what the kernel may tell of a descriptor where it tells less than Linux's.
var incompleteFacts = map[string]func(text []byte) ([]byte, syscall.Errno){
	"missing":      func([]byte) ([]byte, syscall.Errno) { return nil, syscall.ENOENT },
	"forbidden":    func([]byte) ([]byte, syscall.Errno) { return nil, syscall.EACCES },
	"not made":     func([]byte) ([]byte, syscall.Errno) { return nil, syscall.ENOSYS },
	"empty":        func([]byte) ([]byte, syscall.Errno) { return nil, 0 },
	"flags only":   func([]byte) ([]byte, syscall.Errno) { return []byte("flags:\t02\n"), 0 },
	"cut off":      func(text []byte) ([]byte, syscall.Errno) { return text[:len(text)/3], 0 },
	"no last line": func(text []byte) ([]byte, syscall.Errno) { return text[:max(0, len(text)-40)], 0 },
	"no number":    func([]byte) ([]byte, syscall.Errno) { return []byte("eventfd-count: \ntfd: 5 events:\n"), 0 },
	"other words":  func([]byte) ([]byte, syscall.Errno) { return []byte("eventfd-count: ?\ntfd: x y z a b c\n"), 0 },
}

func TestAReactorRunsAndClosesWhereTheKernelTellsLessOfADescriptor(t *testing.T) {
	for name, cut := range incompleteFacts {
		t.Run(name, func(t *testing.T) {
			calls := kernelCalls()
			facts := calls.Poll.Facts
			calls.Poll.Facts = func(fd int) ([]byte, syscall.Errno) {
				text, errno := facts(fd)
				if errno != 0 {
					return nil, errno
				}
				return cut(text)
			}
			r, err := NewWithCalls(usualLoop(t).sh, calls)
			if err != nil {
				t.Fatal(err)
			}
			ours := []int{r.poller.epfd, r.wakeup.readFD}
			for range 2 {
				r.shared.Flags |= Look
				if _, err := r.Turn(0); err != nil {
					t.Errorf("the turn said %v", err)
				}
			}
			lose(t, r.wakeup.readFD)
			r.shared.Flags |= Look
			if _, err := r.Turn(0); ErrnoOf(err) != unix.EBADF {
				t.Errorf("without its wakeup the turn said %v", err)
			}
			left(r, ours[0])
			r.wakeup.shut()

			if r, err = NewWithCalls(usualLoop(t).sh, calls); err != nil {
				t.Fatal(err)
			}
			open := on.descriptors()
			r.Close()
			if now := on.descriptors(); open >= 0 && now > open-2 {
				t.Errorf("%d descriptors were open before the close, %d after it", open, now)
			}
		})
	}
}

// onThreadThatEnds calls f on a thread that ends with it. That is never the process's first, which stays, and
// whose descriptors /proc/self shows.
func onThreadThatEnds(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		onThreadThatEnds(f)
		runtime.UnlockOSThread()
	}()
	<-done
}

// A thread may have a table of descriptors of its own: the monitor then sees other files under the numbers.
func TestAThreadWithOtherDescriptorsSendsNothing(t *testing.T) {
	if on.name != hostKernel.name {
		t.Skip("a simulated kernel has one table for all threads")
	}
	for name, withFacts := range map[string]bool{"with /proc": true, "without /proc": false} {
		t.Run(name, func(t *testing.T) {
			calls := kernelCalls()
			if !withFacts {
				calls.Poll.Facts = func(int) ([]byte, syscall.Errno) { return nil, syscall.ENOENT }
			}
			l := newLoop(t, usual, calls)
			s := l.stream(0)
			numbers := []int{l.r.poller.epfd, l.r.wakeup.readFD, int(s.fd)}
			l.write(s, inC(t, []byte("mine")))
			var refused error
			onThreadThatEnds(func() {
				if refused = unix.Unshare(unix.CLONE_FILES); refused != nil {
					return
				}
				for _, fd := range numbers[1:] {
					_ = unix.Dup3(numbers[0], fd, unix.O_CLOEXEC)
				}
				l.r.FlushLate()
			})
			if refused != nil {
				t.Skip(refused)
			}
			if heard := hear(t, s.peer); len(heard) > 0 || s.io.Sent != 0 {
				t.Errorf("the peer heard %q, and %d bytes count as sent", heard, s.io.Sent)
			}
			l.r.FlushLate()
			if heard := hear(t, s.peer); string(heard) != "mine" {
				t.Errorf("then the peer heard %q", heard)
			}
		})
	}
}
