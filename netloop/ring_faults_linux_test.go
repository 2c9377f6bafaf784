package netloop

import (
	"sync/atomic"
	"syscall"
	"testing"
)

// completeRingWith makes the ring complete all submissions with an errno, without a system
// call. The ring cannot be used afterwards.
func completeRingWith(l *loop, errno syscall.Errno) {
	g := &l.r.ring
	l.r.calls.Ring.Enter = func(_ int, submit, _, _ uint32) (int, syscall.Errno) {
		tail := atomic.LoadUint32(g.cqTail)
		for i := range submit {
			request := g.sqes[(*g.sqTail-submit+i)&g.sqMask]
			g.cqes[(tail+i)&g.cqMask] = ringCQE{userData: request.userData, result: -int32(errno)}
		}
		atomic.StoreUint32(g.cqTail, tail+submit)
		return int(submit), 0
	}
}

var (
	passing = []syscall.Errno{syscall.EAGAIN, syscall.EINTR}
	lasting = []syscall.Errno{syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNRESET, syscall.EPIPE, syscall.EBADF}
)

// batchedStreams returns a loop with streams and a ring, which the next turn uses.
func batchedStreams(t *testing.T) (*loop, []testStream) {
	t.Helper()
	needsRing(t)
	l := defaultLoop(t)
	streams := manyStreams(l, minBatch+4)
	exchange(t, l, streams, func(int) int { return 5 })
	if l.r.batch.state != ringOpen {
		t.Fatal("the ring is not open")
	}
	return l, streams
}

func TestFailedSendsOfABatchAreReported(t *testing.T) {
	for _, errno := range lasting {
		l, streams := batchedStreams(t)
		completeRingWith(l, errno)
		for _, s := range streams {
			l.write(s, copyToC(t, []byte("lost")))
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
				t.Errorf("%v: a stream got %v", errno, failed[s.id])
			}
			if received := readPeer(t, s.peer); len(received) > 0 {
				t.Errorf("%v: a peer received %q", errno, received)
			}
		}
	}
}

func TestInterruptedSendsOfABatchAreTriedAgain(t *testing.T) {
	for _, errno := range passing {
		l, streams := batchedStreams(t)
		completeRingWith(l, errno)
		for _, s := range streams {
			l.write(s, copyToC(t, []byte("later")))
		}
		for range 3 {
			l.turn(0)
		}
		for _, s := range streams {
			if received := readPeer(t, s.peer); string(received) != "later" {
				t.Errorf("%v: a peer received %q", errno, received)
			}
		}
	}
}

func TestFailedReceivesOfABatchAreReported(t *testing.T) {
	for _, errno := range lasting {
		l, streams := batchedStreams(t)
		completeRingWith(l, errno)
		for _, s := range streams {
			writePeer(t, s.peer, []byte("data"))
		}
		reported := map[uint32]syscall.Errno{}
		for _, d := range l.turn(0) {
			if d.Kind == CmpReadError {
				reported[d.ID] = syscall.Errno(d.Res)
			}
		}
		for _, s := range streams {
			if reported[s.id] != errno {
				t.Errorf("%v: a stream got %v", errno, reported[s.id])
			}
		}
		l.expectIdle() // the streams are not polled, so the poller does not spin
	}
}

func TestInterruptedReceivesOfABatchAreTriedAgain(t *testing.T) {
	for _, errno := range passing {
		l, streams := batchedStreams(t)
		completeRingWith(l, errno)
		for _, s := range streams {
			writePeer(t, s.peer, []byte("data"))
		}
		expectKinds(t, l.turn(0))
		l.r.batch.state = ringRefused // the next turn makes separate calls
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

func TestRingWithoutProgressIsClosed(t *testing.T) {
	for _, errno := range []syscall.Errno{0, syscall.EINTR, syscall.EAGAIN, syscall.EBUSY, syscall.EPERM, syscall.ENOSYS} {
		l, streams := batchedStreams(t)
		calls := 0
		l.r.calls.Ring.Enter = func(int, uint32, uint32, uint32) (int, syscall.Errno) {
			if calls++; calls > 10*maxIdleEnters {
				panic("the kernel is called forever")
			}
			return 0, errno
		}
		exchange(t, l, streams, func(int) int { return 5 })
		if calls == 0 || l.r.batch.state != ringRefused {
			t.Errorf("%v: called %d times, and the ring is in state %d", errno, calls, l.r.batch.state)
		}
	}
}
