//go:build linux && !libkqueue

package netloop

import (
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// replaceFD makes a number refer to another file, as other code of the process may do. At the end
// of the test it closes the number, and fails the test if it was closed already.
func replaceFD(t *testing.T, fd int) {
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
			t.Errorf("descriptor %d of another owner was closed", fd)
		}
	})
}

// newBareReactor returns a reactor that the test harness does not close.
func newBareReactor(t *testing.T, l *loop) *Reactor {
	t.Helper()
	r, err := NewWithCalls(l.sh, kernelCalls())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// closeLeftOpen closes descriptors that a reactor did not close because their owner was
// unknown, and the timerfd of a kernel without epoll_pwait2.
func closeLeftOpen(r *Reactor, fds ...int) {
	if r.poller.timerfd >= 0 {
		fds = append(fds, r.poller.timerfd)
	}
	for _, fd := range fds {
		_ = sys.Close(fd)
	}
}

func TestCloseLeavesOtherFilesOpen(t *testing.T) {
	t.Run("wakeup", func(t *testing.T) {
		r := newBareReactor(t, defaultLoop(t))
		replaceFD(t, r.wakeup.readFD)
		epoll := r.poller.epfd
		r.Close()
		closeLeftOpen(r, epoll) // the poller is only identified by its wake-up
	})
	t.Run("poller", func(t *testing.T) {
		r := newBareReactor(t, defaultLoop(t))
		replaceFD(t, r.poller.epfd)
		if _, err := r.Turn(0); ErrnoOf(err) != unix.EBADF {
			t.Errorf("Turn with a descriptor that is not a poller returned %v", err)
		}
		wakeup := r.wakeup.readFD
		r.Close()
		closeLeftOpen(r, wakeup)
	})
	t.Run("descriptors of another reactor", func(t *testing.T) {
		l, second := defaultLoop(t), defaultLoop(t)
		r, other := newBareReactor(t, l), newBareReactor(t, second)
		// The numbers of the first reactor refer to the files of the other.
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
				t.Errorf("descriptor %d of another reactor was closed", fd)
			}
		}
		closeLeftOpen(r)
		other.Close()
	})
}

// replaceWithEventfd makes a number refer to another eventfd. The returned function returns 1 if
// the eventfd was written to since its last call, else 0.
func replaceWithEventfd(t *testing.T, fd int) (written func() uint64) {
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

func TestWakeDoesNotWriteToTheNextFileOfTheFD(t *testing.T) {
	for name, number := range map[string]func(*Reactor) int{
		"wakeup": func(r *Reactor) int { return r.wakeup.writeFD },
		"poller": func(r *Reactor) int { return r.poller.epfd },
	} {
		t.Run(name, func(t *testing.T) {
			r := newBareReactor(t, defaultLoop(t))
			kept := []int{r.wakeup.writeFD, r.poller.epfd}
			written := replaceWithEventfd(t, number(r))
			if err := r.Wake(); err == nil {
				t.Error("Wake returned no error")
			}
			r.shared.Flags |= CheckFDs
			if _, err := r.Turn(0); ErrnoOf(err) != unix.EBADF {
				t.Errorf("Turn returned %v", err)
			}
			if written() != 0 {
				t.Error("something was written")
			}
			r.Close()
			for _, fd := range kept {
				if fd != number(r) {
					closeLeftOpen(r, fd)
				}
			}
		})
	}
}

// An event of another poller under the same number is not an event of this reactor.
func TestAnotherPollerUnderTheFDIsDetected(t *testing.T) {
	for _, begins := range []bool{true, false} {
		r := newBareReactor(t, defaultLoop(t))
		other, err := sys.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		a, b := pair(t)
		writePeer(t, b, []byte("x"))
		event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: 77, Pad: 77}
		if err := sys.EpollCtl(other, unix.EPOLL_CTL_ADD, a, &event); err != nil {
			t.Fatal(err)
		}
		ours, wakeup := r.poller.epfd, r.wakeup.readFD
		if err := sys.Dup3(other, ours, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		if begins {
			r.shared.Flags |= CheckFDs
		} else if _, err := r.Turn(0); err != nil {
			t.Error(err) // the event is stale, so the next turn checks the descriptors
		}
		if _, err := r.Turn(0); ErrnoOf(err) != unix.EBADF {
			t.Errorf("Turn returned %v", err)
		}
		r.Close()
		if err := sys.EpollCtl(other, unix.EPOLL_CTL_MOD, a, &event); err != nil {
			t.Errorf("the registration is gone: %v", err)
		}
		closeLeftOpen(r, ours, wakeup, other)
		_, _ = sys.Close(a), sys.Close(b)
	}
}

func TestCheckOfOwnFDsLosesNoWake(t *testing.T) {
	l := defaultLoop(t)
	for range 3 {
		if err := l.r.Wake(); err != nil {
			t.Fatal(err)
		}
		l.sh.Flags |= CheckFDs
		before := l.sh.Wakeups
		expectKinds(t, l.turn(-1)) // only the wake ends this wait
		if l.sh.Wakeups != before+1 {
			t.Error("the wake was lost")
		}
	}
	l.sh.Flags |= CheckFDs
	l.expectIdle()
	if n := l.pendingEvents(); n != 0 {
		t.Errorf("%d events without a wake", n)
	}
}

func TestClosedTimerfdIsReopened(t *testing.T) {
	f := newFaults()
	f.fail("pwait2", unix.ENOSYS)
	l := newLoop(t, defaultSizes, f.calls)
	before := l.r.poller.timerfd
	written := replaceWithEventfd(t, before)
	l.sh.Flags |= CheckFDs
	if l.r.Turn(0); l.r.poller.timerfd == before {
		t.Error("the timerfd was not reopened")
	}
	l.r.shared.NextDeadline = DeadlineNone
	if _, err := l.r.Turn(1000); err != nil || written() != 0 {
		t.Error(err)
	}
}

// A program may install a sandbox that forbids system calls while its loop runs.
func TestTimerfdReplacesForbiddenWait(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EPERM, unix.ENOSYS} {
		f := newFaults()
		l := newLoop(t, defaultSizes, f.calls)
		if l.r.poller.timerfd >= 0 {
			t.Skip("this kernel does not have epoll_pwait2")
		}
		f.fail("pwait2", errno)
		if _, err := l.r.Turn(1000); err != nil {
			t.Error(err)
		}
		if l.r.poller.timerfd < 0 {
			t.Error("the next wait will make the forbidden call again")
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

// A loop that has lost its descriptors has the same numbers as the next loop.
func TestReactorDoesNotUseTheNextReactorWithItsFDs(t *testing.T) {
	l, second := defaultLoop(t), defaultLoop(t)
	r := newBareReactor(t, l)
	closeLeftOpen(r, r.poller.epfd, r.wakeup.readFD)
	other := newBareReactor(t, second)
	if other.poller.epfd != r.poller.epfd || other.wakeup.readFD != r.wakeup.readFD {
		t.Fatal("the reactor has other numbers")
	}
	r.shared.Flags |= CheckFDs
	if _, err := r.Turn(0); ErrnoOf(err) != unix.EBADF {
		t.Errorf("Turn returned %v", err)
	}
	_ = r.Wake() // the other reactor may be woken by this, but must not change otherwise
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

// incompleteFDInfo are descriptions of a descriptor with less information than Linux returns.
var incompleteFDInfo = map[string]func(text []byte) ([]byte, syscall.Errno){
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

func TestReactorRunsWithIncompleteFDInfo(t *testing.T) {
	for name, cut := range incompleteFDInfo {
		t.Run(name, func(t *testing.T) {
			calls := kernelCalls()
			facts := calls.Poll.FDInfo
			calls.Poll.FDInfo = func(fd int) ([]byte, syscall.Errno) {
				text, errno := facts(fd)
				if errno != 0 {
					return nil, errno
				}
				return cut(text)
			}
			r, err := NewWithCalls(defaultLoop(t).sh, calls)
			if err != nil {
				t.Fatal(err)
			}
			ours := []int{r.poller.epfd, r.wakeup.readFD}
			for range 2 {
				r.shared.Flags |= CheckFDs
				if _, err := r.Turn(0); err != nil {
					t.Errorf("Turn returned %v", err)
				}
			}
			replaceFD(t, r.wakeup.readFD)
			r.shared.Flags |= CheckFDs
			if _, err := r.Turn(0); ErrnoOf(err) != unix.EBADF {
				t.Errorf("without its wake-up Turn returned %v", err)
			}
			closeLeftOpen(r, ours[0])
			r.wakeup.close()

			if r, err = NewWithCalls(defaultLoop(t).sh, calls); err != nil {
				t.Fatal(err)
			}
			open := testKernel.descriptors()
			r.Close()
			if now := testKernel.descriptors(); open >= 0 && now > open-2 {
				t.Errorf("%d descriptors were open before the close, %d after it", open, now)
			}
		})
	}
}

// onShortLivedThread calls f on a thread that ends afterwards. This is never the main thread,
// which does not end, and whose descriptors /proc/self shows.
func onShortLivedThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		onShortLivedThread(f)
		runtime.UnlockOSThread()
	}()
	<-done
}

// A thread may have its own descriptor table. If the monitor has one, the numbers refer to
// other files there.
func TestFlushFromThreadWithOtherFDTableDoesNotSend(t *testing.T) {
	if testKernel.name != hostKernel.name {
		t.Skip("a simulated kernel has one descriptor table for all threads")
	}
	for name, withFacts := range map[string]bool{"with /proc": true, "without /proc": false} {
		t.Run(name, func(t *testing.T) {
			calls := kernelCalls()
			if !withFacts {
				calls.Poll.FDInfo = func(int) ([]byte, syscall.Errno) { return nil, syscall.ENOENT }
			}
			l := newLoop(t, defaultSizes, calls)
			s := l.stream(0)
			numbers := []int{l.r.poller.epfd, l.r.wakeup.readFD, int(s.fd)}
			l.write(s, copyToC(t, []byte("mine")))
			var refused error
			onShortLivedThread(func() {
				if refused = unix.Unshare(unix.CLONE_FILES); refused != nil {
					return
				}
				for _, fd := range numbers[1:] {
					_ = unix.Dup3(numbers[0], fd, unix.O_CLOEXEC)
				}
				l.r.FlushFromMonitor()
			})
			if refused != nil {
				t.Skip(refused)
			}
			if received := readPeer(t, s.peer); len(received) > 0 || s.io.Sent != 0 {
				t.Errorf("the peer received %q, and %d bytes count as sent", received, s.io.Sent)
			}
			l.r.FlushFromMonitor()
			if received := readPeer(t, s.peer); string(received) != "mine" {
				t.Errorf("afterwards the peer received %q", received)
			}
		})
	}
}
