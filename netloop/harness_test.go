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

// loop is what C is to a reactor: it owns the shared memory, which is mapped and
// not Go's, submits, turns, and reads the completions.
type loop struct {
	t    testing.TB
	r    *Reactor
	sh   *Shared
	subs []Submission

	large [LargeMax][]byte
}

// done is a completion with what its memory held.
type done struct {
	Completion
	data []byte
	ends Endpoints
	from Packet
}

type sizes struct {
	completions uint32
	arena       uint64
}

var usual = sizes{256, 1 << 20}

// memory maps n bytes that are not on Go's heap.
func memory(t testing.TB, n int) []byte {
	t.Helper()
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal("mmap: ", err)
	}
	t.Cleanup(func() { _ = unix.Munmap(m) })
	return m
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

const testSubmissions = 4096

func newLoop(t testing.TB, size sizes, calls Calls) *loop {
	t.Helper()
	checkDescriptors(t)
	l := &loop{t: t}
	block := memory(t, int(unsafe.Sizeof(Shared{})))
	subs := memory(t, testSubmissions*int(unsafe.Sizeof(Submission{})))
	cmps := memory(t, int(size.completions)*int(unsafe.Sizeof(Completion{})))
	arena := memory(t, int(size.arena)+ArenaSlack)
	l.sh = (*Shared)(unsafe.Pointer(unsafe.SliceData(block)))
	l.sh.Sub = (*Submission)(unsafe.Pointer(unsafe.SliceData(subs)))
	l.sh.Cmp = (*Completion)(unsafe.Pointer(unsafe.SliceData(cmps)))
	l.sh.Arena = unsafe.SliceData(arena)
	l.sh.SubCap, l.sh.CmpCap, l.sh.ArenaCap = testSubmissions, size.completions, size.arena
	l.subs = unsafe.Slice(l.sh.Sub, testSubmissions)
	r, err := NewWithCalls(l.sh, calls)
	if err != nil {
		t.Fatal(err)
	}
	l.r = r
	l.r.accepting.cost = 1 // the turn's time is enough for all
	t.Cleanup(func() {
		l.r.Close()
		if n := l.r.registry.live; n != 0 && !t.Failed() {
			t.Errorf("%d registrations are left", n)
		}
	})
	return l
}

func usualLoop(t testing.TB) *loop { return newLoop(t, usual, kernelCalls()) }

// checkDescriptors fails a test that leaves descriptors open.
func checkDescriptors(t testing.TB) {
	if closesLate {
		return
	}
	before := on.descriptors()
	t.Cleanup(func() {
		if after := on.descriptors(); after != before && !t.Failed() {
			t.Errorf("%d descriptors were open before the test, %d are after it", before, after)
		}
	})
}

func (l *loop) submit(op SubmissionOp, id, gen uint32, arg int64) {
	l.t.Helper()
	if l.sh.SubLen == l.sh.SubCap {
		l.t.Fatal("the submission queue is full")
	}
	l.subs[l.sh.SubLen] = Submission{Op: op, ID: id, Gen: gen, Arg: arg}
	l.sh.SubLen++
}

// list has the reactor look at a stream's record, as C does: once until it has.
func (l *loop) list(s stream) {
	l.t.Helper()
	if s.io.Listed == 0 {
		l.submit(SubStream, s.id, s.gen, 0)
		s.io.Listed = 1
	}
}

// want sets and clears bits of what is wanted of a stream.
func (l *loop) want(s stream, set, clear uint32) {
	l.t.Helper()
	s.io.Want = s.io.Want&^clear | set
	l.list(s)
}

func (l *loop) pause(s stream)  { l.t.Helper(); l.want(s, 0, transports.WantRead) }
func (l *loop) resume(s stream) { l.t.Helper(); l.want(s, transports.WantRead, 0) }
func (l *loop) shut(s stream)   { l.t.Helper(); l.want(s, transports.WantShut, 0) }

// write queues b, and waits for the report; writeQuietly does not wait.
func (l *loop) write(s stream, b []byte) {
	l.t.Helper()
	s.push(b)
	l.want(s, transports.WantReport, 0)
}

func (l *loop) writeQuietly(s stream, b []byte) {
	l.t.Helper()
	s.push(b)
	l.want(s, 0, transports.WantReport)
}

// push appends a piece to the record.
func (s stream) push(b []byte) { s.pushAt(address(b), uintptr(len(b))) }

func (s stream) pushAt(base, size uintptr) {
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

// pending is what a stream has queued, in bytes.
func (s stream) pending() int64 { return int64(s.io.Appended - s.io.Sent) }

// turn does one turn and returns copies of what it completed.
func (l *loop) turn(timeout int64) []done {
	l.t.Helper()
	n, err := l.r.Turn(timeout)
	if err != nil {
		l.t.Fatal(err)
	}
	if n != int(l.sh.CmpLen) {
		l.t.Fatalf("Turn returned %d, CmpLen is %d", n, l.sh.CmpLen)
	}
	if l.sh.SubLen != 0 {
		l.t.Fatal("submissions were left")
	}
	return l.completed(n)
}

// completed are copies of the last turn's completions.
func (l *loop) completed(n int) []done {
	var all []done
	for _, c := range unsafe.Slice(l.sh.Cmp, l.sh.CmpCap)[:n] {
		d := done{Completion: c}
		base := address(unsafe.Slice(l.sh.Arena, 1))
		switch c.Kind {
		case CmpData:
			if c.Res > 0 {
				d.data = bytes.Clone(l.large[c.Res-1][:c.Arg])
				break
			}
			d.data = bytes.Clone(unsafe.Slice(l.sh.Arena, l.sh.ArenaCap)[c.Ptr-base:][:c.Arg])
		case CmpDatagram:
			p := *(**Packet)(unsafe.Pointer(&c.Ptr)) // in the arena, or a tail
			d.from = *p
			d.data = bytes.Clone(unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(p), unsafe.Sizeof(*p))), c.Arg))
		case CmpAccept:
			d.ends = *(*Endpoints)(unsafe.Add(unsafe.Pointer(l.sh.Arena), c.Ptr-base))
		}
		all = append(all, d)
	}
	return all
}

// lend fills the slots for large receives with buffers of n bytes.
func (l *loop) lend(n int) {
	l.sh.LargeSize = uint64(n)
	for i := range l.large {
		l.large[i] = memory(l.t, n)
		l.sh.Large[i] = address(l.large[i])
	}
}

// until turns until a completion of this kind is among the completed, which it
// returns together with all that came before and beside it.
func (l *loop) until(kind CompletionKind) (done, []done) {
	l.t.Helper()
	var all []done
	for range 10_000 {
		batch := l.turn(-1)
		all = append(all, batch...)
		for _, d := range batch {
			if d.Kind == kind {
				return d, all
			}
		}
	}
	l.t.Fatalf("completion %d never came", kind)
	return done{}, nil
}

// stream is an open stream and the peer's descriptor.
type stream struct {
	id, gen uint32
	fd      int32
	peer    int
	io      *StreamIO
}

// reading is the record of a stream that reads.
func reading() *StreamIO { return &StreamIO{Want: transports.WantRead} }

// openPaused, beside the flags of StreamOpen, leaves WantRead out.
const openPaused = 1 << 31

// pair makes connected sockets; both are non-blocking.
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

// stream opens a stream over one end of a pair, which is closed with the test.
func (l *loop) stream(flags uint32) stream {
	l.t.Helper()
	a, b := pair(l.t)
	s := l.open(a, flags)
	s.peer = b
	l.t.Cleanup(func() { _ = sys.Close(b) })
	return s
}

func (l *loop) open(fd int, flags uint32) stream {
	l.t.Helper()
	io := reading()
	if flags&openPaused != 0 {
		io.Want = 0
	}
	id, gen, err := l.r.StreamOpen(int32(fd), io, flags&^openPaused)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		if l.r.registry.find(id, gen) != nil {
			if err := l.end(id, gen); err != nil {
				l.t.Error(err)
			}
		}
	})
	return stream{id: id, gen: gen, fd: int32(fd), peer: -1, io: io}
}

// end ends a registration, and then closes its descriptor, as an owner does.
func (l *loop) end(id, gen uint32) error {
	fd := -1
	if s := l.r.registry.find(id, gen); s != nil {
		fd = int(s.fd)
	}
	if err := l.r.Forget(id, gen); err != nil {
		return err
	}
	// EINTR: the descriptor is closed all the same.
	if errno := l.r.calls.Close(fd); errno != 0 && errno != syscall.EINTR {
		return failed("close", errno)
	}
	return nil
}

func (l *loop) close(s stream) {
	l.t.Helper()
	if err := l.end(s.id, s.gen); err != nil {
		l.t.Fatal(err)
	}
}

// say writes to the peer's descriptor all of b.
func say(t testing.TB, fd int, b []byte) {
	t.Helper()
	if n, err := sys.Write(fd, b); n != len(b) || err != nil {
		t.Fatalf("write to the peer: %d, %v", n, err)
	}
}

// hear reads what is there from the peer's descriptor.
func hear(t testing.TB, fd int) []byte {
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

// inC copies b to memory that is not Go's.
func inC(t testing.TB, b []byte) []byte {
	m := memory(t, len(b))
	copy(m, b)
	return m
}

func expectKinds(t testing.TB, got []done, want ...CompletionKind) {
	t.Helper()
	var kinds []CompletionKind
	for _, d := range got {
		kinds = append(kinds, d.Kind)
	}
	if fmt.Sprint(kinds) != fmt.Sprint(want) {
		t.Fatalf("completions are of the kinds %v, want %v", kinds, want)
	}
}

// quiet expects that nothing happens: a turn that does not wait completes
// nothing, and leaves nothing for a further one.
func (l *loop) quiet() {
	l.t.Helper()
	expectKinds(l.t, l.turn(0))
	if l.sh.More != 0 {
		l.t.Fatal("More is set though nothing is left")
	}
}

// events returns how many events the poller has at this moment: a registration
// that should be silent and is not would make a loop spin.
func (l *loop) events() int {
	l.t.Helper()
	n, errno := l.r.poller.wait(0)
	if errno != 0 {
		l.t.Fatal(errno)
	}
	return n
}

// small makes the buffers of a socket as small as the kernel allows.
func small(t testing.TB, fd int) {
	t.Helper()
	for _, option := range []int{unix.SO_SNDBUF, unix.SO_RCVBUF} {
		if err := sys.SetsockoptInt(fd, unix.SOL_SOCKET, option, 1); err != nil {
			t.Fatal(err)
		}
	}
}
