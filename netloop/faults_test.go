package netloop

import (
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/goloop/goloop/transports"
)

// faults are the kernel's calls with injected errors: before each call, an errno that was
// prepared for it is returned instead.
type faults struct {
	calls Calls
	mu    sync.Mutex
	next  map[string][]syscall.Errno
	made  map[string]int
}

// fail makes the next calls of this name fail, one for each errno; 0 makes the call.
func (f *faults) fail(name string, errnos ...syscall.Errno) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next[name] = append(f.next[name], errnos...)
}

// count returns how often a call was made, including failures.
func (f *faults) count(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.made[name]
}

// isPending reports whether a prepared errno was not used yet.
func (f *faults) isPending(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.next[name]) > 0
}

// nextErrno counts a call and returns the errno that was prepared for it, or 0.
func (f *faults) nextErrno(name string) syscall.Errno {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made[name]++
	if len(f.next[name]) == 0 {
		return 0
	}
	errno := f.next[name][0]
	f.next[name] = f.next[name][1:]
	return errno
}

// newFaults returns calls that count themselves and fail with prepared errnos, and otherwise call
// the test's kernel. The names of the calls are the arguments of nextErrno. A failing close
// closes the descriptor nevertheless, as on Linux.
func newFaults() *faults {
	f := &faults{calls: kernelCalls(), next: map[string][]syscall.Errno{}, made: map[string]int{}}
	c, real := &f.calls, kernelCalls()
	moving := func(name string, call func(int, uintptr, uintptr) (int, syscall.Errno)) func(int, uintptr, uintptr) (int, syscall.Errno) {
		return func(fd int, a, b uintptr) (int, syscall.Errno) {
			if e := f.nextErrno(name); e != 0 {
				return -1, e
			}
			return call(fd, a, b)
		}
	}
	c.Recv = moving("recv", real.Recv)
	c.Read = moving("read", real.Read)
	c.Send = moving("send", real.Send)
	c.Accept = moving("accept", real.Accept)
	c.RecvFrom = func(fd int, base, size, addr, addrLen uintptr) (int, syscall.Errno) {
		if e := f.nextErrno("recvfrom"); e != 0 {
			return -1, e
		}
		return real.RecvFrom(fd, base, size, addr, addrLen)
	}
	if real.Recvmmsg != nil {
		c.Recvmmsg = func(fd int, headers unsafe.Pointer, n int) (int, syscall.Errno) {
			if e := f.nextErrno("recvmmsg"); e != 0 {
				return -1, e
			}
			return real.Recvmmsg(fd, headers, n)
		}
	}
	c.SendVectors = func(fd int, v []transports.Vector, s *transports.Scratch) (int, syscall.Errno) {
		if e := f.nextErrno("sendmsg"); e != 0 {
			return -1, e
		}
		return real.SendVectors(fd, v, s)
	}
	c.Writev = func(fd int, v []transports.Vector) (int, syscall.Errno) {
		if e := f.nextErrno("writev"); e != 0 {
			return -1, e
		}
		return real.Writev(fd, v)
	}
	c.Shutdown = func(fd int) syscall.Errno {
		if e := f.nextErrno("shutdown"); e != 0 {
			return e
		}
		return real.Shutdown(fd)
	}
	c.NoDelay = func(fd int) syscall.Errno {
		if e := f.nextErrno("nodelay"); e != 0 {
			return e
		}
		return real.NoDelay(fd)
	}
	c.Sockname = func(fd int, a, b uintptr) syscall.Errno {
		if e := f.nextErrno("sockname"); e != 0 {
			return e
		}
		return real.Sockname(fd, a, b)
	}
	c.PipeSize = func(fd int) (int, syscall.Errno) {
		if e := f.nextErrno("getpipe"); e != 0 {
			return -1, e
		}
		return real.PipeSize(fd)
	}
	c.SetPipeSize = func(fd, size int) syscall.Errno {
		if e := f.nextErrno("setpipe"); e != 0 {
			return e
		}
		return real.SetPipeSize(fd, size)
	}
	c.Close = func(fd int) syscall.Errno {
		// The descriptor is closed nevertheless, as on Linux.
		e := f.nextErrno("close")
		if r := real.Close(fd); e == 0 {
			e = r
		}
		return e
	}
	c.WakeWrite = func(poller, fd int, t uint64) syscall.Errno {
		if e := f.nextErrno("wake"); e != 0 {
			return e
		}
		return real.WakeWrite(poller, fd, t)
	}
	c.WakeOpen = func(t uint64) (int, int, syscall.Errno) {
		if e := f.nextErrno("eventfd"); e != 0 {
			return -1, -1, e
		}
		return real.WakeOpen(t)
	}
	f.wrapPollCalls(&real)
	return f
}

// After EINTR and EAGAIN the call is made again: no data is lost and no error is reported.
func TestInterruptedCallsAreMadeAgain(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EINTR, syscall.EAGAIN} {
		t.Run(errno.Error(), func(t *testing.T) {
			f := newFaults()
			l := newLoop(t, defaultSizes, f.calls)
			s := l.stream(0)
			writePeer(t, s.peer, []byte("in"))
			f.fail("recv", errno, errno)
			if d, all := l.turnUntil(CmpData); string(d.data) != "in" || len(all) != 1 {
				t.Errorf("recv: %+v", all)
			}
			l.write(s, copyToC(t, []byte("out")))
			f.fail("send", errno, errno)
			if d, all := l.turnUntil(CmpWrote); d.Arg != 3 || len(all) != 1 {
				t.Errorf("send: %+v", all)
			}
			l.write(s, copyToC(t, []byte("o")))
			l.write(s, copyToC(t, []byte("ut")))
			f.fail("sendmsg", errno)
			if d, all := l.turnUntil(CmpWrote); d.Arg != 3 || len(all) != 1 {
				t.Errorf("sendmsg: %+v", all)
			}
			if got := readPeer(t, s.peer); string(got) != "outout" {
				t.Errorf("the peer received %q", got)
			}
			ln := l.listen(10)
			ln.dial(t, 1)
			f.fail("accept", errno)
			if _, all := l.turnUntil(CmpAccept); accepted(t, all) != 1 || len(all) != 1 {
				t.Errorf("accept: %+v", all)
			}
			for _, name := range []string{"recv", "send", "sendmsg", "accept"} {
				if f.isPending(name) {
					t.Errorf("%s was not called", name)
				}
			}
			l.expectIdle()
			if n := l.pendingEvents(); n != 0 {
				t.Errorf("%d events are pending", n)
			}
		})
	}
}

var fatalErrnos = []syscall.Errno{syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED,
	syscall.ENOBUFS, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ETIMEDOUT}

func TestReadErrorsEndReading(t *testing.T) {
	for _, errno := range fatalErrnos {
		f := newFaults()
		l := newLoop(t, defaultSizes, f.calls)
		s := l.stream(0)
		writePeer(t, s.peer, []byte("x"))
		f.fail("recv", errno)
		d, all := l.turnUntil(CmpReadError)
		if len(all) != 1 || d.ID != s.id || syscall.Errno(d.Res) != errno {
			t.Errorf("%v: %+v", errno, all)
		}
		l.resume(s) // has no effect after the error
		l.expectIdle()
		// Writing is not affected.
		l.write(s, copyToC(t, []byte("y")))
		l.turnUntil(CmpWrote)
	}
}

func TestWriteErrorsEndWriting(t *testing.T) {
	for _, errno := range fatalErrnos {
		for _, pieces := range []int{1, 3} {
			f := newFaults()
			l := newLoop(t, defaultSizes, f.calls)
			s := l.stream(0)
			for range pieces {
				l.write(s, copyToC(t, []byte("x")))
			}
			l.shut(s)
			f.fail("send", errno)
			f.fail("sendmsg", errno)
			d, all := l.turnUntil(CmpWriteError)
			if len(all) != 1 || d.ID != s.id || syscall.Errno(d.Res) != errno || d.Arg != 0 {
				t.Errorf("%v: %+v", errno, all)
			}
			if f.count("shutdown") != 0 {
				t.Errorf("%v: a dead stream was shut down", errno)
			}
			// C receives the remaining data.
			writePeer(t, s.peer, []byte("y"))
			if all := l.turn(0); len(all) != 0 {
				t.Errorf("%v: after the error: %+v", errno, all)
			}
		}
	}
}

func TestPipeErrorsAreReported(t *testing.T) {
	f := newFaults()
	l := newLoop(t, defaultSizes, f.calls)
	ends := nonblockingPipe(t)
	r, w := l.open(ends[0], 0), l.open(ends[1], openPaused)
	f.fail("writev", syscall.EINTR, syscall.EAGAIN, syscall.EPIPE)
	l.write(w, copyToC(t, []byte("x")))
	if d, _ := l.turnUntil(CmpWriteError); d.ID != w.id || syscall.Errno(d.Res) != syscall.EPIPE {
		t.Errorf("%+v", d)
	}
	f.fail("read", syscall.EINTR, syscall.EAGAIN, syscall.EIO)
	writePeer(t, int(w.fd), []byte("x"))
	if d, _ := l.turnUntil(CmpReadError); d.ID != r.id || syscall.Errno(d.Res) != syscall.EIO {
		t.Errorf("%+v", d)
	}
}

func TestErrorsOfShutdownSocknameAndClose(t *testing.T) {
	f := newFaults()
	l := newLoop(t, defaultSizes, f.calls)
	s := l.stream(0)
	f.fail("shutdown", syscall.ENOTCONN)
	l.shut(s)
	l.expectIdle()
	f.fail("close", syscall.EINTR)
	l.close(s)
	s = l.stream(0)
	f.fail("close", syscall.EIO)
	if err := l.deregister(s.id, s.gen); ErrnoOf(err) != syscall.EIO {
		t.Errorf("close: %v", err)
	}
	if l.r.registry.find(s.id, s.gen) != nil {
		t.Error("the stream is not closed")
	}
	ln := l.listen(10)
	ln.dial(t, 1)
	f.fail("sockname", syscall.ENOBUFS)
	d, all := l.turnUntil(CmpAccept)
	if d.ends.LocalLen != 0 || d.ends.PeerLen == 0 || accepted(t, all) != 1 {
		t.Errorf("%+v", d)
	}
}

func TestNewReturnsErrors(t *testing.T) {
	for _, name := range []string{"create", "eventfd", "ctl"} {
		for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
			checkDescriptors(t)
			f := newFaults()
			f.fail(name, errno)
			l := defaultLoop(t)
			block := *l.sh
			if _, err := NewWithCalls(&block, f.calls); ErrnoOf(err) != errno {
				t.Errorf("%s: %v, want %v", name, err, errno)
			}
		}
	}
}
