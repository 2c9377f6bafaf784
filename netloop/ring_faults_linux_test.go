package netloop

import (
	"sync/atomic"
	"syscall"
	"testing"
)

// answer makes the ring complete all that is submitted with an errno, without a word
// to the kernel. The ring is of no use afterwards.
func answer(l *loop, errno syscall.Errno) {
	g := &l.r.ring
	l.r.calls.Ring.Enter = func(_ int, submit, _, _ uint32) (int, syscall.Errno) {
		tail := atomic.LoadUint32(g.cqTail)
		for i := range submit {
			request := g.requests[(*g.sqTail-submit+i)&g.sqMask]
			g.answers[(tail+i)&g.cqMask] = ringAnswer{userData: request.userData, result: -int32(errno)}
		}
		atomic.StoreUint32(g.cqTail, tail+submit)
		return int(submit), 0
	}
}

var (
	passing = []syscall.Errno{syscall.EAGAIN, syscall.EINTR}
	lasting = []syscall.Errno{syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNRESET, syscall.EPIPE, syscall.EBADF}
)

// batched makes a loop whose streams have a ring, and whose next turn uses it.
func batched(t *testing.T) (*loop, []stream) {
	t.Helper()
	needsRing(t)
	l := usualLoop(t)
	streams := manyStreams(l, ringLeast+4)
	exchange(t, l, streams, func(int) int { return 5 })
	if l.r.batch.state != ringOpen {
		t.Fatal("there is no ring")
	}
	return l, streams
}

func TestSendsOfABatchFail(t *testing.T) {
	for _, errno := range lasting {
		l, streams := batched(t)
		answer(l, errno)
		for _, s := range streams {
			l.write(s, inC(t, []byte("lost")))
		}
		failed := map[uint32]syscall.Errno{}
		for range 2 {
			for _, d := range l.turn(0) {
				if d.Kind == CmpWriteError {
					failed[d.ID] = syscall.Errno(d.Res)
				}
			}
		}
		for _, s := range streams {
			if failed[s.id] != errno {
				t.Errorf("%v: a stream was told %v", errno, failed[s.id])
			}
			if heard := hear(t, s.peer); len(heard) > 0 {
				t.Errorf("%v: a peer heard %q", errno, heard)
			}
		}
	}
}

func TestSendsOfABatchAreTriedAgain(t *testing.T) {
	for _, errno := range passing {
		l, streams := batched(t)
		answer(l, errno)
		for _, s := range streams {
			l.write(s, inC(t, []byte("later")))
		}
		for range 3 {
			l.turn(0)
		}
		for _, s := range streams {
			if heard := hear(t, s.peer); string(heard) != "later" {
				t.Errorf("%v: a peer heard %q", errno, heard)
			}
		}
	}
}

func TestReceivesOfABatchFail(t *testing.T) {
	for _, errno := range lasting {
		l, streams := batched(t)
		answer(l, errno)
		for _, s := range streams {
			say(t, s.peer, []byte("data"))
		}
		told := map[uint32]syscall.Errno{}
		for _, d := range l.turn(0) {
			if d.Kind == CmpReadError {
				told[d.ID] = syscall.Errno(d.Res)
			}
		}
		for _, s := range streams {
			if told[s.id] != errno {
				t.Errorf("%v: a stream was told %v", errno, told[s.id])
			}
		}
		l.quiet() // the streams are deaf, and the poller does not spin
	}
}

func TestReceivesOfABatchAreTriedAgain(t *testing.T) {
	for _, errno := range passing {
		l, streams := batched(t)
		answer(l, errno)
		for _, s := range streams {
			say(t, s.peer, []byte("data"))
		}
		expectKinds(t, l.turn(0))
		l.r.batch.state = ringRefused // the next turn makes its calls one by one
		got := map[uint32]string{}
		for _, d := range l.turn(0) {
			got[d.ID] += string(d.data)
		}
		for _, s := range streams {
			if got[s.id] != "data" {
				t.Errorf("%v: a stream got %q", errno, got[s.id])
			}
		}
		l.r.batch.state = ringOpen
	}
}

func TestARingThatDoesNothingIsGivenUp(t *testing.T) {
	for _, errno := range []syscall.Errno{0, syscall.EINTR, syscall.EAGAIN, syscall.EBUSY, syscall.EPERM, syscall.ENOSYS} {
		l, streams := batched(t)
		asked := 0
		l.r.calls.Ring.Enter = func(int, uint32, uint32, uint32) (int, syscall.Errno) {
			if asked++; asked > 10*ringTries {
				panic("the kernel is asked for ever")
			}
			return 0, errno
		}
		exchange(t, l, streams, func(int) int { return 5 })
		if asked == 0 || l.r.batch.state != ringRefused {
			t.Errorf("%v: asked %d times, and the ring is in state %d", errno, asked, l.r.batch.state)
		}
	}
}
