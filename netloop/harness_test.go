package netloop

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"
	"unsafe"

	"github.com/goloop/goloop/transports"
	"golang.org/x/sys/unix"
)

// loop does the part of C for a reactor: it owns the shared memory, which is mapped and not on
// Go's heap, submits, makes turns and reads the completions.
type loop struct {
	t    testing.TB
	r    *Reactor
	sh   *Shared
	subs []Submission

	large [MaxLarge][]byte
}

// completion is a copy of a completion and of the memory that it refers to.
type completion struct {
	Completion
	data []byte
	ends Endpoints
	from Packet
}

// sizes are the numbers of completions and of the arena's bytes of a loop.
type sizes struct {
	completions uint32
	arena       uint64
}

// defaultSizes have space for everything that an ordinary test does in a turn.
var defaultSizes = sizes{256, 1 << 20}

// mapMemory maps n bytes outside of Go's heap.
func mapMemory(t testing.TB, n int) []byte {
	t.Helper()
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal("mmap: ", err)
	}
	t.Cleanup(func() { _ = unix.Munmap(m) })
	return m
}

// address returns the address of the first byte.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// testSubmissions is the size of the submission queue.
const testSubmissions = 4096

// newLoop opens a reactor with its shared memory. At the end of the test it closes the reactor,
// and fails the test if registrations or descriptors are left.
func newLoop(t testing.TB, size sizes, calls Calls) *loop {
	t.Helper()
	checkDescriptors(t)
	l := &loop{t: t}
	block := mapMemory(t, int(unsafe.Sizeof(Shared{})))
	subs := mapMemory(t, testSubmissions*int(unsafe.Sizeof(Submission{})))
	cmps := mapMemory(t, int(size.completions)*int(unsafe.Sizeof(Completion{})))
	arena := mapMemory(t, int(size.arena)+ArenaSlack)
	l.sh = (*Shared)(unsafe.Pointer(unsafe.SliceData(block)))
	l.sh.Sub = (*Submission)(unsafe.Pointer(unsafe.SliceData(subs)))
	l.sh.Cmp = (*Completion)(unsafe.Pointer(unsafe.SliceData(cmps)))
	l.sh.Arena = unsafe.SliceData(arena)
	l.sh.SubCap, l.sh.CmpCap, l.sh.ArenaCap = testSubmissions, size.completions, size.arena
	l.sh.FixedEagerLimit = int32(eagerLevels[defaultLevel])
	l.subs = unsafe.Slice(l.sh.Sub, testSubmissions)
	r, err := NewWithCalls(l.sh, calls)
	if err != nil {
		t.Fatal(err)
	}
	l.r = r
	l.r.acceptBudget.assumeCost(1) // so that the turn's time does not limit accepting
	t.Cleanup(func() {
		l.r.Close()
		if n := l.r.registry.live; n != 0 && !t.Failed() {
			t.Errorf("%d registrations were not ended", n)
		}
	})
	return l
}

// defaultLoop is newLoop with defaultSizes on the test's kernel.
func defaultLoop(t testing.TB) *loop { return newLoop(t, defaultSizes, kernelCalls()) }

// checkDescriptors fails a test that leaves descriptors open.
func checkDescriptors(t testing.TB) {
	if closesDelayed {
		return
	}
	before := testKernel.descriptors()
	t.Cleanup(func() {
		if after := testKernel.descriptors(); after != before && !t.Failed() {
			t.Errorf("%d descriptors were open before the test, %d are after it", before, after)
		}
	})
}

// submit appends a submission for the next turn.
func (l *loop) submit(op SubmissionOp, id, gen uint32, arg int64) {
	l.t.Helper()
	if l.sh.SubLen == l.sh.SubCap {
		l.t.Fatal("the submission queue is full")
	}
	l.subs[l.sh.SubLen] = Submission{Op: op, ID: id, Gen: gen, Arg: arg}
	l.sh.SubLen++
}

// submitStream submits that a stream's record has changed, once until the reactor has
// processed it, as C does.
func (l *loop) submitStream(s testStream) {
	l.t.Helper()
	if s.io.Listed == 0 {
		l.submit(SubStream, s.id, s.gen, 0)
		s.io.Listed = 1
	}
}

// setWants sets and clears bits of a stream's wants.
func (l *loop) setWants(s testStream, set, clear uint32) {
	l.t.Helper()
	s.io.Want = s.io.Want&^clear | set
	l.submitStream(s)
}

// pause requests that Go stops receiving.
func (l *loop) pause(s testStream) { l.t.Helper(); l.setWants(s, 0, transports.WantRead) }

// resume requests that Go receives.
func (l *loop) resume(s testStream) { l.t.Helper(); l.setWants(s, transports.WantRead, 0) }

// shut requests a shutdown of the writing half after the queue.
func (l *loop) shut(s testStream) { l.t.Helper(); l.setWants(s, transports.WantShut, 0) }

// write queues b and requests a report without delay.
func (l *loop) write(s testStream, b []byte) {
	l.t.Helper()
	s.push(b)
	l.setWants(s, transports.WantReport, 0)
}

// writeUnreported queues b and does not request a report without delay.
func (l *loop) writeUnreported(s testStream, b []byte) {
	l.t.Helper()
	s.push(b)
	l.setWants(s, 0, transports.WantReport)
}

// push appends a piece to the record's queue.
func (s testStream) push(b []byte) { s.pushAt(address(b), uintptr(len(b))) }

// pushAt appends `size` bytes of memory at `base` to the record's queue, which grows as C's
// does.
func (s testStream) pushAt(base, size uintptr) {
	io := s.io
	if io.Head == io.Tail {
		io.Head, io.Tail = 0, 0
	}
	if io.Tail == io.Cap {
		bigger := make([]transports.Vector, max(4, 2*io.Cap))
		copy(bigger, unsafe.Slice(io.IOV, io.Cap))
		io.IOV, io.Cap = &bigger[0], uint32(len(bigger))
	}
	unsafe.Slice(io.IOV, io.Cap)[io.Tail] = transports.Vector{Base: base, Len: size}
	io.Tail++
	io.Appended += uint64(size)
}

// pending returns the number of bytes in the stream's queue.
func (s testStream) pending() int64 { return int64(s.io.Appended - s.io.Sent) }

// turn makes one turn and returns copies of its completions. It fails the test after an error, or
// if submissions are left.
func (l *loop) turn(timeout int64) []completion {
	l.t.Helper()
	n, err := l.r.Turn(timeout)
	if err != nil {
		l.t.Fatal(err)
	}
	if n != int(l.sh.CmpLen) {
		l.t.Fatalf("Turn returned %d, CmpLen is %d", n, l.sh.CmpLen)
	}
	if l.sh.SubLen != 0 {
		l.t.Fatal("submissions were not processed")
	}
	return l.completions(n)
}

// completions returns copies of the last turn's n completions and of the memory that they refer
// to.
func (l *loop) completions(n int) []completion {
	var all []completion
	for _, c := range unsafe.Slice(l.sh.Cmp, l.sh.CmpCap)[:n] {
		d := completion{Completion: c}
		base := address(unsafe.Slice(l.sh.Arena, 1))
		switch c.Kind {
		case CmpData:
			if c.Res > 0 {
				d.data = bytes.Clone(l.large[c.Res-1][:c.Arg])
				break
			}
			d.data = bytes.Clone(unsafe.Slice(l.sh.Arena, l.sh.ArenaCap)[c.Ptr-base:][:c.Arg])
		case CmpDatagram:
			p := *(**Packet)(unsafe.Pointer(&c.Ptr)) // in the arena or in a tail
			d.from = *p
			d.data = bytes.Clone(unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(p), unsafe.Sizeof(*p))), c.Arg))
		case CmpAccept:
			d.ends = *(*Endpoints)(unsafe.Add(unsafe.Pointer(l.sh.Arena), c.Ptr-base))
		}
		all = append(all, d)
	}
	return all
}

// lendLargeBuffers sets the large receive buffers to buffers of n bytes.
func (l *loop) lendLargeBuffers(n int) {
	l.sh.LargeSize = uint64(n)
	for i := range l.large {
		l.large[i] = mapMemory(l.t, n)
		l.sh.Large[i] = address(l.large[i])
	}
}

// turnUntil makes turns until a completion has this kind. It returns the first such completion,
// and all completions of these turns. It fails the test after 10,000 turns.
func (l *loop) turnUntil(kind CompletionKind) (completion, []completion) {
	l.t.Helper()
	var all []completion
	for range 10_000 {
		batch := l.turn(-1)
		all = append(all, batch...)
		for _, d := range batch {
			if d.Kind == kind {
				return d, all
			}
		}
	}
	l.t.Fatalf("completion %d did not arrive", kind)
	return completion{}, nil
}

// testStream is an open stream and the peer's descriptor.
type testStream struct {
	id, gen uint32
	fd      int32
	peer    int
	io      *StreamIO
}

// readingRecord returns the record of a stream that receives.
func readingRecord() *StreamIO { return &StreamIO{Want: transports.WantRead} }

// openPaused is a flag of open in addition to those of StreamOpen: WantRead is not set.
const openPaused = 1 << 31

// pair returns two connected, non-blocking Unix sockets, which the caller closes.
func pair(t testing.TB) (a, b int) {
	t.Helper()
	ends, err := sys.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal("socketpair: ", err)
	}
	for _, fd := range ends {
		sys.CloseOnExec(fd)
		if err := sys.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
	}
	return ends[0], ends[1]
}

// readingPipe opens a stream that reads a new pipe; its peer is the writing end.
func (l *loop) readingPipe() testStream {
	ends := nonblockingPipe(l.t)
	l.t.Cleanup(func() { _ = sys.Close(ends[1]) })
	s := l.open(ends[0], 0)
	s.peer = ends[1]
	return s
}

// nonblockingPipe returns the reading and the writing end of a pipe.
func nonblockingPipe(t testing.TB) (ends [2]int) {
	t.Helper()
	if err := sys.Pipe(ends[:]); err != nil {
		t.Fatal("pipe: ", err)
	}
	for _, fd := range ends {
		if err := sys.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
	}
	return ends
}

// stream opens a stream on one end of a pair. Both are closed at the end of the test.
func (l *loop) stream(flags uint32) testStream {
	l.t.Helper()
	a, b := pair(l.t)
	s := l.open(a, flags)
	s.peer = b
	l.t.Cleanup(func() { _ = sys.Close(b) })
	return s
}

// open opens a stream on a descriptor, which is closed at the end of the test.
func (l *loop) open(fd int, flags uint32) testStream {
	l.t.Helper()
	io := readingRecord()
	if flags&openPaused != 0 {
		io.Want = 0
	}
	id, gen, err := l.r.StreamOpen(int32(fd), io, flags&^openPaused)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		if l.r.registry.find(id, gen) != nil {
			if err := l.deregister(id, gen); err != nil {
				l.t.Error(err)
			}
		}
	})
	return testStream{id: id, gen: gen, fd: int32(fd), peer: -1, io: io}
}

// deregister ends a registration and then closes its descriptor, as an owner does.
func (l *loop) deregister(id, gen uint32) error {
	fd := -1
	if s := l.r.registry.find(id, gen); s != nil {
		fd = int(s.fd)
	}
	if err := l.r.Deregister(id, gen); err != nil {
		return err
	}
	// EINTR: the descriptor is closed nevertheless.
	if errno := l.r.calls.Close(fd); errno != 0 && errno != syscall.EINTR {
		return errnoError("close", errno)
	}
	return nil
}

// close ends a stream and closes its descriptor.
func (l *loop) close(s testStream) {
	l.t.Helper()
	if err := l.deregister(s.id, s.gen); err != nil {
		l.t.Fatal(err)
	}
}

// writePeer writes all of b to the peer's descriptor.
func writePeer(t testing.TB, fd int, b []byte) {
	t.Helper()
	if n, err := sys.Write(fd, b); n != len(b) || err != nil {
		t.Fatalf("write to the peer: %d, %v", n, err)
	}
}

// readPeer reads the available bytes from the peer's descriptor, up to the end of the stream or
// EAGAIN.
func readPeer(t testing.TB, fd int) []byte {
	t.Helper()
	var all []byte
	buf := make([]byte, 1<<16)
	for {
		n, err := sys.Read(fd, buf)
		if err == unix.EAGAIN || n == 0 {
			return all
		}
		if err != nil {
			t.Fatal("read from the peer: ", err)
		}
		all = append(all, buf[:n]...)
	}
}

// copyToC copies b to memory outside of Go's heap.
func copyToC(t testing.TB, b []byte) []byte {
	m := mapMemory(t, len(b))
	copy(m, b)
	return m
}

// expectKinds verifies the kinds of completions, in their order.
func expectKinds(t testing.TB, got []completion, want ...CompletionKind) {
	t.Helper()
	var kinds []CompletionKind
	for _, d := range got {
		kinds = append(kinds, d.Kind)
	}
	if fmt.Sprint(kinds) != fmt.Sprint(want) {
		t.Fatalf("completions are of the kinds %v, want %v", kinds, want)
	}
}

// expectIdle verifies that a turn without waiting returns no completions and leaves nothing for
// the next turn.
func (l *loop) expectIdle() {
	l.t.Helper()
	expectKinds(l.t, l.turn(0))
	if l.sh.More != 0 {
		l.t.Fatal("More is set without leftovers")
	}
}

// pendingEvents returns the number of events that the poller has now. An unexpected event would
// make a loop spin.
func (l *loop) pendingEvents() int {
	l.t.Helper()
	n, errno := l.r.poller.wait(0)
	if errno != 0 {
		l.t.Fatal(errno)
	}
	return n
}

// shrinkBuffers makes the buffers of a socket as small as the kernel permits.
func shrinkBuffers(t testing.TB, fd int) {
	t.Helper()
	for _, option := range []int{unix.SO_SNDBUF, unix.SO_RCVBUF} {
		if err := sys.SetsockoptInt(fd, unix.SOL_SOCKET, option, 1); err != nil {
			t.Fatal(err)
		}
	}
}
