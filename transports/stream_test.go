package transports

import (
	"math/rand/v2"
	"syscall"
	"testing"
)

// wire is a fake kernel: it takes as many bytes as it is told to, and records the
// addresses of those it took. The bytes themselves are the reactor's tests' matter.
type wire struct {
	Calls
	room  int // bytes the kernel takes before it says EAGAIN
	errno syscall.Errno
	took  []Vector
	calls int
	shut  int
	recv  func() (int, syscall.Errno)
}

func newWire() *wire {
	w := &wire{}
	w.Send = func(_ int, base, size uintptr) (int, syscall.Errno) {
		return w.send([]Vector{{base, size}})
	}
	w.SendVectors = func(_ int, v []Vector, _ *Scratch) (int, syscall.Errno) { return w.send(v) }
	w.Writev = func(_ int, v []Vector) (int, syscall.Errno) { return w.send(v) }
	w.Shutdown = func(int) syscall.Errno { w.shut++; return 0 }
	w.Recv = func(int, uintptr, uintptr) (int, syscall.Errno) { return w.recv() }
	w.Read = func(int, uintptr, uintptr) (int, syscall.Errno) { return w.recv() }
	return w
}

func (w *wire) send(v []Vector) (int, syscall.Errno) {
	w.calls++
	if w.errno != 0 {
		return -1, w.errno
	}
	if w.room == 0 {
		return -1, syscall.EAGAIN
	}
	n := 0
	for _, piece := range v {
		take := min(int(piece.Len), w.room)
		w.room -= take
		n += take
		if last := len(w.took) - 1; last >= 0 && w.took[last].Base+w.took[last].Len == piece.Base {
			w.took[last].Len += uintptr(take)
		} else if take > 0 {
			w.took = append(w.took, Vector{piece.Base, uintptr(take)})
		}
		if take < int(piece.Len) {
			break
		}
	}
	return n, 0
}

func flush(s *Stream, w *wire) syscall.Errno {
	var sends uint64
	var scratch Scratch
	return s.Flush(&w.Calls, &scratch, &sends)
}

// However the kernel cuts the queue up, every byte goes once and in order, and the
// books agree with what went.
func TestQueueGoesOutInOrder(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 5))
		w := newWire()
		var s Stream
		s.Open(NewLease(1, nil), true)
		next, pushed, progress := uintptr(1<<20), int64(0), int64(0)
		for range 2000 {
			for range rng.IntN(6) {
				// Pieces follow each other in memory, so that what is taken in order
				// is one range.
				size := uintptr(1 + rng.IntN(3000))
				s.Push(next, size)
				next += size
				pushed += int64(size)
			}
			w.room = rng.IntN(12_000)
			if errno := flush(&s, w); errno != 0 {
				t.Fatal(errno)
			}
			if got := s.Progress(); got != s.TakeProgress() {
				t.Fatal("Progress and TakeProgress differ")
			} else {
				progress += got
			}
			if s.Pending() != pushed-progress {
				t.Fatalf("%d bytes pending, %d pushed, %d progress", s.Pending(), pushed, progress)
			}
			if (s.Interest()&Writable != 0) != (s.Pending() > 0) || s.Blocked() != (s.Pending() > 0) {
				t.Fatal("interest and queue disagree")
			}
		}
		w.room = 1 << 40
		for s.Pending() > 0 {
			if errno := flush(&s, w); errno != 0 {
				t.Fatal(errno)
			}
		}
		if len(w.took) != 1 || w.took[0].Base != 1<<20 || int64(w.took[0].Len) != pushed {
			t.Fatalf("the kernel took %v of %d bytes", w.took, pushed)
		}
	}
}

func TestShortWriteIsNotTriedAgain(t *testing.T) {
	w := newWire()
	var s Stream
	s.Open(NewLease(1, nil), true)
	s.Push(1000, 100)
	s.Push(2000, 100)
	w.room = 150
	flush(&s, w)
	if w.calls != 1 || !s.Blocked() || s.Pending() != 50 {
		t.Errorf("%d calls, blocked %v, %d pending", w.calls, s.Blocked(), s.Pending())
	}
}

func TestFlushIsBounded(t *testing.T) {
	w := newWire()
	var s Stream
	s.Open(NewLease(1, nil), true)
	for i := range uintptr(3 * maxRounds * MaxVectors) {
		s.Push(1000+i, 1)
	}
	w.room = 1 << 40
	flush(&s, w)
	if w.calls != maxRounds || s.Interest()&Writable == 0 {
		t.Errorf("%d calls, interest %d", w.calls, s.Interest())
	}
}

func TestMemoryOfALongQueueIsGivenBack(t *testing.T) {
	w := newWire()
	var s Stream
	s.Open(NewLease(1, nil), true)
	for i := range uintptr(10 * keptQueue) {
		s.Push(1000+i, 1)
	}
	w.room = 1 << 40
	flush(&s, w)
	if cap(s.queue) > keptQueue {
		t.Errorf("room for %d pieces is kept", cap(s.queue))
	}
	// A queue that is never empty must not grow with what passes through it.
	s.Push(1, 10)
	for range 100_000 {
		s.Push(1, 10)
		w.room = 10
		flush(&s, w)
	}
	if cap(s.queue) > keptQueue {
		t.Errorf("a queue of two pieces takes room for %d", cap(s.queue))
	}
}

func TestCloseWriting(t *testing.T) {
	w := newWire()
	var s Stream
	s.Open(NewLease(1, nil), true)
	s.CloseWriting(&w.Calls)
	s.CloseWriting(&w.Calls)
	if w.shut != 1 {
		t.Errorf("an idle stream was shut %d times", w.shut)
	}
	s.Push(1000, 10)
	if s.Pending() != 0 {
		t.Error("a shut stream takes writes")
	}

	s.Open(NewLease(1, nil), true)
	s.Push(1000, 100)
	s.CloseWriting(&w.Calls)
	if w.shut != 1 {
		t.Error("shut before the queue was empty")
	}
	w.room = 60
	flush(&s, w)
	if w.shut != 1 {
		t.Error("shut before the queue was empty")
	}
	w.room = 60
	flush(&s, w)
	if w.shut != 2 || s.Pending() != 0 {
		t.Error("not shut when the queue was empty")
	}
}

func TestWriteErrorIsFinal(t *testing.T) {
	w := newWire()
	var s Stream
	s.Open(NewLease(1, nil), true)
	s.Push(1000, 100)
	w.room = 30
	flush(&s, w)
	w.errno = syscall.ECONNRESET
	if errno := flush(&s, w); errno != syscall.ECONNRESET {
		t.Errorf("errno %v", errno)
	}
	s.Push(1000, 100)
	s.CloseWriting(&w.Calls)
	if s.Pending() != 0 || s.TakeProgress() != 30 || s.Interest() != Readable || w.shut != 0 {
		t.Errorf("%d pending, interest %d, shut %d", s.Pending(), s.Interest(), w.shut)
	}
}

func TestReceive(t *testing.T) {
	w := newWire()
	var s Stream
	outcome := func(n int, errno syscall.Errno) Outcome {
		w.recv = func() (int, syscall.Errno) { return n, errno }
		_, o, _ := s.Receive(&w.Calls, 1000, 10)
		return o
	}
	s.Open(NewLease(1, nil), true)
	if o := outcome(5, 0); o != Got || !s.Reading() {
		t.Errorf("outcome %d", o)
	}
	for _, errno := range []syscall.Errno{syscall.EAGAIN, syscall.EINTR} {
		if o := outcome(-1, errno); o != Nothing || !s.Reading() {
			t.Errorf("%v: outcome %d", errno, o)
		}
	}
	if o := outcome(0, 0); o != End || s.Reading() {
		t.Errorf("outcome %d", o)
	}
	s.ResumeReading()
	if s.Reading() {
		t.Error("reading goes on after the end")
	}
	s.Open(NewLease(1, nil), true)
	if o := outcome(-1, syscall.ECONNRESET); o != Failed || s.Reading() || s.Interest() != 0 {
		t.Errorf("outcome %d", o)
	}
}

func TestNotASocket(t *testing.T) {
	w := newWire()
	var s Stream
	s.Open(NewLease(1, nil), true)
	w.Recv = func(int, uintptr, uintptr) (int, syscall.Errno) { return -1, syscall.ENOTSOCK }
	w.Send = w.Recv
	w.recv = func() (int, syscall.Errno) { return 7, 0 }
	if n, o, _ := s.Receive(&w.Calls, 1000, 10); n != 7 || o != Got {
		t.Errorf("received %d, outcome %d", n, o)
	}
	s.Open(NewLease(1, nil), true) // what is known of one descriptor is not believed of the next
	if s.has(streamPipe) {
		t.Error("the next descriptor is taken for a pipe")
	}
	s.Push(1000, 10)
	w.room = 10
	if errno := flush(&s, w); errno != 0 || s.Pending() != 0 {
		t.Errorf("%v, %d pending", errno, s.Pending())
	}
}

func TestDiscard(t *testing.T) {
	w := newWire()
	var s Stream
	s.Open(NewLease(1, nil), true)
	s.Push(1000, 10)
	s.Discard()
	w.room = 100
	flush(&s, w)
	if w.calls != 0 || s.Pending() != 0 || s.Interest() != 0 {
		t.Error("a discarded stream is alive")
	}
}
