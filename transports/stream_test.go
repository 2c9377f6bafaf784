package transports

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"unsafe"
)

// fakeKernel accepts up to sendSpace bytes and records the addresses of the bytes that it
// accepted. The tests of the reactor verify the bytes themselves.
type fakeKernel struct {
	Calls
	sendSpace int // bytes that the kernel accepts before it returns EAGAIN
	errno     syscall.Errno
	accepted  []Vector
	sendCalls int
	shutdowns int
	recv      func() (int, syscall.Errno)
}

// newFakeKernel returns a kernel that accepts no bytes yet.
func newFakeKernel() *fakeKernel {
	w := &fakeKernel{}
	w.Send = func(_ int, base, size uintptr) (int, syscall.Errno) {
		return w.send([]Vector{{base, size}})
	}
	w.SendVectors = func(_ int, v []Vector, _ *Scratch) (int, syscall.Errno) { return w.send(v) }
	w.Writev = func(_ int, v []Vector) (int, syscall.Errno) { return w.send(v) }
	w.Shutdown = func(int) syscall.Errno { w.shutdowns++; return 0 }
	w.Recv = func(int, uintptr, uintptr) (int, syscall.Errno) { return w.recv() }
	w.Read = func(int, uintptr, uintptr) (int, syscall.Errno) { return w.recv() }
	return w
}

// send accepts bytes of v, at most sendSpace, and returns their number.
func (w *fakeKernel) send(v []Vector) (int, syscall.Errno) {
	w.sendCalls++
	if w.errno != 0 {
		return -1, w.errno
	}
	if w.sendSpace == 0 {
		return -1, syscall.EAGAIN
	}
	n := 0
	for _, piece := range v {
		take := min(int(piece.Len), w.sendSpace)
		w.sendSpace -= take
		n += take
		if last := len(w.accepted) - 1; last >= 0 && w.accepted[last].Base+w.accepted[last].Len == piece.Base {
			w.accepted[last].Len += uintptr(take)
		} else if take > 0 {
			w.accepted = append(w.accepted, Vector{piece.Base, uintptr(take)})
		}
		if take < int(piece.Len) {
			break
		}
	}
	return n, 0
}

// flush flushes the stream on the fake kernel.
func flush(s *testStream, w *fakeKernel) syscall.Errno {
	var sends uint64
	var scratch Scratch
	return s.Flush(&w.Calls, &scratch, &sends)
}

// testStream is a stream with its record. Its methods do C's part.
type testStream struct {
	Stream
	io StreamIO
}

// newTestStream returns an open stream with an empty record.
func newTestStream() *testStream {
	s := new(testStream)
	s.reopen()
	return s
}

// reopen opens the stream with an empty record.
func (s *testStream) reopen() {
	s.io = StreamIO{Want: WantRead}
	s.Stream.Open(1, &s.io)
}

// push appends a vector. The queue grows as C's does.
func (s *testStream) push(base, size uintptr) {
	io := &s.io
	if io.Head == io.Tail {
		io.Head, io.Tail = 0, 0
	}
	if io.Tail == io.Cap {
		bigger := make([]Vector, max(4, 2*io.Cap))
		copy(bigger, s.queue())
		io.IOV, io.Cap = &bigger[0], uint32(len(bigger))
	}
	io.Tail++
	io.Appended += uint64(size)
	s.queue()[io.Tail-1] = Vector{base, size}
}

// queue returns all vectors of the record, sent ones too.
func (s *testStream) queue() []Vector { return unsafe.Slice(s.io.IOV, s.io.Tail) }

// pendingBytes returns the number of bytes that were not sent.
func (s *testStream) pendingBytes() int64 { return int64(s.io.Appended - s.io.Sent) }

// For any sizes of partial sends, each byte is sent once and in order, and the counters agree
// with the number of sent bytes.
func TestFlushSendsTheQueueInOrder(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 5))
		w := newFakeKernel()
		s := newTestStream()
		next, pushed, sent := uintptr(1<<20), int64(0), int64(0)
		for range 2000 {
			for range rng.IntN(6) {
				// The vectors are adjacent in memory, so bytes that are sent in order form one
				// range.
				size := uintptr(1 + rng.IntN(3000))
				s.push(next, size)
				next += size
				pushed += int64(size)
			}
			w.sendSpace = rng.IntN(12_000)
			if errno := flush(s, w); errno != 0 {
				t.Fatal(errno)
			}
			if got := s.UnreportedBytes(); got != s.TakeUnreportedBytes() {
				t.Fatal("UnreportedBytes and TakeUnreportedBytes differ")
			} else {
				sent += got
			}
			if s.pendingBytes() != pushed-sent {
				t.Fatalf("%d bytes pending, %d pushed, %d sent", s.pendingBytes(), pushed, sent)
			}
			if (s.Interest()&Writable != 0) != (s.pendingBytes() > 0) || s.Blocked() != (s.pendingBytes() > 0) {
				t.Fatal("interest and queue do not agree")
			}
		}
		w.sendSpace = 1 << 40
		for s.pendingBytes() > 0 {
			if errno := flush(s, w); errno != 0 {
				t.Fatal(errno)
			}
		}
		if len(w.accepted) != 1 || w.accepted[0].Base != 1<<20 || int64(w.accepted[0].Len) != pushed {
			t.Fatalf("the kernel accepted %v, %d bytes were queued", w.accepted, pushed)
		}
	}
}

func TestFlushStopsAfterAPartialSend(t *testing.T) {
	w := newFakeKernel()
	s := newTestStream()
	s.push(1000, 100)
	s.push(2000, 100)
	w.sendSpace = 150
	flush(s, w)
	if w.sendCalls != 1 || !s.Blocked() || s.pendingBytes() != 50 {
		t.Errorf("%d calls, blocked %v, %d pending", w.sendCalls, s.Blocked(), s.pendingBytes())
	}
}

func TestFlushLimitsTheNumberOfCalls(t *testing.T) {
	w := newFakeKernel()
	s := newTestStream()
	for i := range uintptr(3 * maxSendCalls * MaxVectors) {
		s.push(1000+i, 1)
	}
	w.sendSpace = 1 << 40
	flush(s, w)
	if w.sendCalls != maxSendCalls || s.Interest()&Writable == 0 {
		t.Errorf("%d calls, interest %d", w.sendCalls, s.Interest())
	}
}

// A fast reader must not delay the turn by one long call or by many calls.
func TestFlushLimitsTheNumberOfBytes(t *testing.T) {
	for _, size := range []uintptr{3 * maxSendBytes, maxSendBytes, maxSendBytes / 2, maxSendBytes/2 + 1} {
		w := newFakeKernel()
		s := newTestStream()
		for i := range uintptr(8) {
			s.push(1+i*size, size)
		}
		w.sendSpace = 1 << 40
		flush(s, w)
		if sent := s.io.Sent; sent == 0 || sent >= 2*maxSendBytes || s.Interest()&Writable == 0 {
			t.Errorf("vectors of %d bytes: %d bytes sent, interest %d", size, sent, s.Interest())
		}
	}
}

// After a partial send the record has: the sent vectors removed, the next vector starting at
// the first unsent byte, and the count of all sent bytes.
func TestPartialSendUpdatesTheRecord(t *testing.T) {
	w := newFakeKernel()
	s := newTestStream()
	for i := range uintptr(3) {
		s.push(1000*(i+1), 100)
	}
	w.sendSpace = 250
	flush(s, w)
	want := StreamIO{IOV: s.io.IOV, Appended: 300, Cap: 4, Tail: 3, Want: WantRead,
		Head: 2, State: StateBlocked, Sent: 250}
	if s.io != want {
		t.Errorf("the record is %+v, want %+v", s.io, want)
	}
	if left := s.queue()[2]; left != (Vector{3050, 50}) {
		t.Errorf("the partially sent vector is %+v", left)
	}
	s.push(4000, 10)
	w.sendSpace = 1000
	flush(s, w)
	want.Appended, want.Sent, want.Head, want.Tail, want.State = 310, 310, 4, 4, 0
	if s.io != want {
		t.Errorf("the record is %+v, want %+v", s.io, want)
	}
	// At the boundary of a vector: it is removed, and the next vector is complete.
	s.push(5000, 10)
	s.push(6000, 10)
	w.sendSpace = 10
	flush(s, w)
	if s.io.Head != 1 || s.queue()[1] != (Vector{6000, 10}) || s.io.State != StateBlocked {
		t.Errorf("the record is %+v, the queue is %+v", s.io, s.queue())
	}
	// A failure leaves the queue unchanged and sets the state.
	w.errno = syscall.EPIPE
	flush(s, w)
	if s.io.Head != 1 || s.pendingBytes() != 10 || s.io.State != StateDead || s.HasPending() {
		t.Errorf("the record is %+v", s.io)
	}
}

func TestShutdownFollowsTheLastSend(t *testing.T) {
	w := newFakeKernel()
	s := newTestStream()
	s.io.Want |= WantShut
	flush(s, w)
	flush(s, w)
	if w.shutdowns != 1 || s.io.State != StateShut {
		t.Errorf("an idle stream was shut down %d times; state %d", w.shutdowns, s.io.State)
	}

	s.reopen()
	s.push(1000, 100)
	s.io.Want |= WantShut
	w.sendSpace = 60
	flush(s, w)
	if w.shutdowns != 1 {
		t.Error("shut down before the queue was empty")
	}
	w.sendSpace = 60
	flush(s, w)
	if w.shutdowns != 2 || s.pendingBytes() != 0 {
		t.Error("not shut down when the queue was empty")
	}
}

func TestSendErrorIsFinal(t *testing.T) {
	w := newFakeKernel()
	s := newTestStream()
	s.push(1000, 100)
	w.sendSpace = 30
	flush(s, w)
	w.errno = syscall.ECONNRESET
	if errno := flush(s, w); errno != syscall.ECONNRESET {
		t.Errorf("errno %v", errno)
	}
	s.push(1000, 100)
	s.io.Want |= WantShut
	calls := w.sendCalls
	flush(s, w)
	if s.HasPending() || s.TakeUnreportedBytes() != 30 || s.Interest() != 0 || w.shutdowns != 0 || w.sendCalls != calls {
		t.Errorf("%d pending, interest %d, shut %d", s.pendingBytes(), s.Interest(), w.shutdowns)
	}
}

func TestReceiveReturnsOutcomeOfErrno(t *testing.T) {
	w := newFakeKernel()
	var s testStream
	outcome := func(n int, errno syscall.Errno) Outcome {
		w.recv = func() (int, syscall.Errno) { return n, errno }
		_, o, _ := s.Receive(&w.Calls, 1000, 10)
		return o
	}
	s.reopen()
	if o := outcome(5, 0); o != OK || !s.Reading() {
		t.Errorf("outcome %d", o)
	}
	for _, errno := range []syscall.Errno{syscall.EAGAIN, syscall.EINTR} {
		if o := outcome(-1, errno); o != WouldBlock || !s.Reading() {
			t.Errorf("%v: outcome %d", errno, o)
		}
	}
	if o := outcome(0, 0); o != EOF || s.Reading() {
		t.Errorf("outcome %d", o)
	}
	s.io.Want = WantRead
	if s.Reading() {
		t.Error("reading continues after the end")
	}
	s.reopen()
	if o := outcome(-1, syscall.ECONNRESET); o != Failed || s.Reading() || s.Interest() != 0 {
		t.Errorf("outcome %d", o)
	}
}

func TestPipeIsDetectedByENOTSOCK(t *testing.T) {
	w := newFakeKernel()
	s := newTestStream()
	w.Recv = func(int, uintptr, uintptr) (int, syscall.Errno) { return -1, syscall.ENOTSOCK }
	w.Send = w.Recv
	w.recv = func() (int, syscall.Errno) { return 7, 0 }
	if n, o, _ := s.Receive(&w.Calls, 1000, 10); n != 7 || o != OK {
		t.Errorf("received %d, outcome %d", n, o)
	}
	s.reopen() // knowledge about one descriptor must not be applied to the next
	if s.IsPipe() {
		t.Error("the next descriptor is treated as a pipe")
	}
	s.push(1000, 10)
	w.sendSpace = 10
	if errno := flush(s, w); errno != 0 || s.pendingBytes() != 0 {
		t.Errorf("%v, %d pending", errno, s.pendingBytes())
	}
}
