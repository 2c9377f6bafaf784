package transports

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"unsafe"
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

func flush(s *sender, w *wire) syscall.Errno {
	var sends uint64
	var scratch Scratch
	return s.Flush(&w.Calls, &scratch, &sends)
}

// sender is a stream with a record, and what C does to it.
type sender struct {
	Stream
	io StreamIO
}

func newSender() *sender {
	s := new(sender)
	s.begin()
	return s
}

// begin opens the stream, with an empty record.
func (s *sender) begin() {
	s.io = StreamIO{Want: WantRead}
	s.Stream.Open(1, &s.io)
}

// push appends a piece, in a record that grows as C's does.
func (s *sender) push(base, size uintptr) {
	io := &s.io
	if io.Head == io.Tail {
		io.Head, io.Tail = 0, 0
	}
	if io.Tail == io.Cap {
		bigger := make([]Vector, max(4, 2*io.Cap))
		copy(bigger, s.pieces())
		io.IOV, io.Cap = &bigger[0], uint32(len(bigger))
	}
	io.Tail++
	io.Appended += uint64(size)
	s.pieces()[io.Tail-1] = Vector{base, size}
}

func (s *sender) pieces() []Vector { return unsafe.Slice(s.io.IOV, s.io.Tail) }

func (s *sender) pending() int64 { return int64(s.io.Appended - s.io.Sent) }

// However the kernel cuts the queue up, every byte goes once and in order, and the
// books agree with what went.
func TestQueueGoesOutInOrder(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 5))
		w := newWire()
		s := newSender()
		next, pushed, progress := uintptr(1<<20), int64(0), int64(0)
		for range 2000 {
			for range rng.IntN(6) {
				// Pieces follow each other in memory, so that what is taken in order
				// is one range.
				size := uintptr(1 + rng.IntN(3000))
				s.push(next, size)
				next += size
				pushed += int64(size)
			}
			w.room = rng.IntN(12_000)
			if errno := flush(s, w); errno != 0 {
				t.Fatal(errno)
			}
			if got := s.Progress(); got != s.TakeProgress() {
				t.Fatal("Progress and TakeProgress differ")
			} else {
				progress += got
			}
			if s.pending() != pushed-progress {
				t.Fatalf("%d bytes pending, %d pushed, %d progress", s.pending(), pushed, progress)
			}
			if (s.Interest()&Writable != 0) != (s.pending() > 0) || s.Blocked() != (s.pending() > 0) {
				t.Fatal("interest and queue disagree")
			}
		}
		w.room = 1 << 40
		for s.pending() > 0 {
			if errno := flush(s, w); errno != 0 {
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
	s := newSender()
	s.push(1000, 100)
	s.push(2000, 100)
	w.room = 150
	flush(s, w)
	if w.calls != 1 || !s.Blocked() || s.pending() != 50 {
		t.Errorf("%d calls, blocked %v, %d pending", w.calls, s.Blocked(), s.pending())
	}
}

func TestFlushIsBounded(t *testing.T) {
	w := newWire()
	s := newSender()
	for i := range uintptr(3 * maxRounds * MaxVectors) {
		s.push(1000+i, 1)
	}
	w.room = 1 << 40
	flush(s, w)
	if w.calls != maxRounds || s.Interest()&Writable == 0 {
		t.Errorf("%d calls, interest %d", w.calls, s.Interest())
	}
}

// A reader that keeps pace does not hold up the turn by one long call, or by many.
func TestFlushSendsAShare(t *testing.T) {
	for _, size := range []uintptr{3 * maxSend, maxSend, maxSend / 2, maxSend/2 + 1} {
		w := newWire()
		s := newSender()
		for i := range uintptr(8) {
			s.push(1+i*size, size)
		}
		w.room = 1 << 40
		flush(s, w)
		if sent := s.io.Sent; sent == 0 || sent >= 2*maxSend || s.Interest()&Writable == 0 {
			t.Errorf("of pieces of %d bytes %d were sent, interest %d", size, sent, s.Interest())
		}
	}
}

// What C finds in the record after a short write: the pieces gone, the next one from
// where the kernel stopped, and the bytes of all.
func TestRecordAfterAShortWrite(t *testing.T) {
	w := newWire()
	s := newSender()
	for i := range uintptr(3) {
		s.push(1000*(i+1), 100)
	}
	w.room = 250
	flush(s, w)
	want := StreamIO{IOV: s.io.IOV, Appended: 300, Cap: 4, Tail: 3, Want: WantRead,
		Head: 2, State: StateBlocked, Sent: 250}
	if s.io != want {
		t.Errorf("the record is %+v, want %+v", s.io, want)
	}
	if left := s.pieces()[2]; left != (Vector{3050, 50}) {
		t.Errorf("the piece that was cut is %+v", left)
	}
	s.push(4000, 10)
	w.room = 1000
	flush(s, w)
	want.Appended, want.Sent, want.Head, want.Tail, want.State = 310, 310, 4, 4, 0
	if s.io != want {
		t.Errorf("the record is %+v, want %+v", s.io, want)
	}
	// At the edge of a piece: it is gone, and the next one whole.
	s.push(5000, 10)
	s.push(6000, 10)
	w.room = 10
	flush(s, w)
	if s.io.Head != 1 || s.pieces()[1] != (Vector{6000, 10}) || s.io.State != StateBlocked {
		t.Errorf("the record is %+v of %+v", s.io, s.pieces())
	}
	// A failure leaves the record as it was, and says so.
	w.errno = syscall.EPIPE
	flush(s, w)
	if s.io.Head != 1 || s.pending() != 10 || s.io.State != StateDead || s.Queued() {
		t.Errorf("the record is %+v", s.io)
	}
}

func TestShutdown(t *testing.T) {
	w := newWire()
	s := newSender()
	s.io.Want |= WantShut
	flush(s, w)
	flush(s, w)
	if w.shut != 1 || s.io.State != StateShut {
		t.Errorf("an idle stream was shut %d times; state %d", w.shut, s.io.State)
	}

	s.begin()
	s.push(1000, 100)
	s.io.Want |= WantShut
	w.room = 60
	flush(s, w)
	if w.shut != 1 {
		t.Error("shut before the queue was empty")
	}
	w.room = 60
	flush(s, w)
	if w.shut != 2 || s.pending() != 0 {
		t.Error("not shut when the queue was empty")
	}
}

func TestWriteErrorIsFinal(t *testing.T) {
	w := newWire()
	s := newSender()
	s.push(1000, 100)
	w.room = 30
	flush(s, w)
	w.errno = syscall.ECONNRESET
	if errno := flush(s, w); errno != syscall.ECONNRESET {
		t.Errorf("errno %v", errno)
	}
	s.push(1000, 100)
	s.io.Want |= WantShut
	calls := w.calls
	flush(s, w)
	if s.Queued() || s.TakeProgress() != 30 || s.Interest() != 0 || w.shut != 0 || w.calls != calls {
		t.Errorf("%d pending, interest %d, shut %d", s.pending(), s.Interest(), w.shut)
	}
}

func TestReceive(t *testing.T) {
	w := newWire()
	var s sender
	outcome := func(n int, errno syscall.Errno) Outcome {
		w.recv = func() (int, syscall.Errno) { return n, errno }
		_, o, _ := s.Receive(&w.Calls, 1000, 10)
		return o
	}
	s.begin()
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
	s.io.Want = WantRead
	if s.Reading() {
		t.Error("reading goes on after the end")
	}
	s.begin()
	if o := outcome(-1, syscall.ECONNRESET); o != Failed || s.Reading() || s.Interest() != 0 {
		t.Errorf("outcome %d", o)
	}
}

func TestNotASocket(t *testing.T) {
	w := newWire()
	s := newSender()
	w.Recv = func(int, uintptr, uintptr) (int, syscall.Errno) { return -1, syscall.ENOTSOCK }
	w.Send = w.Recv
	w.recv = func() (int, syscall.Errno) { return 7, 0 }
	if n, o, _ := s.Receive(&w.Calls, 1000, 10); n != 7 || o != Got {
		t.Errorf("received %d, outcome %d", n, o)
	}
	s.begin() // what is known of one descriptor is not believed of the next
	if s.IsPipe() {
		t.Error("the next descriptor is taken for a pipe")
	}
	s.push(1000, 10)
	w.room = 10
	if errno := flush(s, w); errno != 0 || s.pending() != 0 {
		t.Errorf("%v, %d pending", errno, s.pending())
	}
}
