package netloop

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/goloop/goloop/transports"
	"golang.org/x/sys/unix"
)

// needsRing skips a test if the kernel or a sandbox refuses a ring.
func needsRing(t testing.TB) {
	t.Helper()
	var g ring
	calls := systemRingCalls()
	if g.open(&calls) != ringOpen {
		t.Skip("io_uring is not available")
	}
	g.close(true)
}

// exchange sends one piece to each stream and one piece from each stream, verifies that both
// arrive, and returns the other completions.
func exchange(t testing.TB, l *loop, streams []testStream, size func(i int) int) []completion {
	t.Helper()
	var others []completion
	want, got := map[uint32][]byte{}, map[uint32][]byte{}
	answers := map[int][]byte{}
	missing := 0
	for i, s := range streams {
		piece := bytes.Repeat([]byte{byte(i), byte(i >> 8), 'q'}, size(i))
		answer := bytes.Repeat([]byte{'a', byte(i), byte(i >> 8)}, size(i))
		writePeer(t, s.peer, piece)
		l.write(s, copyToC(t, answer))
		want[s.id], answers[s.peer] = piece, answer
		missing += len(piece)
	}
	for turns := 0; missing > 0; turns++ {
		if turns == 10_000 {
			t.Fatalf("%d bytes did not arrive", missing)
		}
		for _, d := range l.turn(-1) {
			switch d.Kind {
			case CmpData:
				got[d.ID] = append(got[d.ID], d.data...)
				missing -= len(d.data)
			case CmpWrote:
			default:
				others = append(others, d)
			}
		}
	}
	for _, s := range streams {
		if !bytes.Equal(got[s.id], want[s.id]) {
			t.Fatalf("a stream received %d bytes that differ from the %d bytes that were sent", len(got[s.id]), len(want[s.id]))
		}
		if received := readPeer(t, s.peer); !bytes.Equal(received, answers[s.peer]) {
			t.Fatalf("a peer received %d bytes that differ from the %d bytes that were written", len(received), len(answers[s.peer]))
		}
	}
	return others
}

// manyStreams opens n streams.
func manyStreams(l *loop, n int) []testStream {
	streams := make([]testStream, n)
	for i := range streams {
		streams[i] = l.stream(0)
	}
	return streams
}

func TestBatchesTransferTheSameBytesAsCalls(t *testing.T) {
	needsRing(t)
	for _, size := range []sizes{defaultSizes, {minCompletions, minArena}, {64, 16 << 10}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			l := newLoop(t, size, kernelCalls())
			streams := manyStreams(l, 300)
			rng := rand.New(rand.NewPCG(5, 6))
			for range 20 {
				exchange(t, l, streams, func(int) int { return 1 + rng.IntN(700) })
			}
			if l.r.Stats().Batches < 20 {
				t.Errorf("there were %d batches", l.r.Stats().Batches)
			}
			l.expectIdle()
		})
	}
}

// A stream that received more than its buffer in a batch gets the rest afterwards.
func TestReceivesLargerThanTheirBatchBuffer(t *testing.T) {
	needsRing(t)
	l := defaultLoop(t)
	streams := manyStreams(l, 20)
	for _, size := range []int{1, 3000, 1, 10, 30_000, 2} {
		exchange(t, l, streams, func(int) int { return size })
	}
	l.expectIdle()
}

func TestFewCallsAreNotBatched(t *testing.T) {
	l := defaultLoop(t)
	streams := manyStreams(l, minBatch-1)
	for range 5 {
		exchange(t, l, streams, func(int) int { return 10 })
	}
	if f := l.r.Stats(); f.Batches != 0 || l.r.batch.state != ringUnknown {
		t.Errorf("there were %d batches; the ring is in state %d", f.Batches, l.r.batch.state)
	}
}

// If few streams are ready, C receives for the streams that request it.
func TestFewReadyStreamsAreReceivedInC(t *testing.T) {
	l := defaultLoop(t)
	streams := manyStreams(l, minBatch)
	for _, s := range streams {
		l.setWants(s, transports.WantReceiveInCIfFew, 0)
	}
	writePeer(t, streams[1].peer, []byte("one"))
	got := l.turn(-1)
	expectKinds(t, got, CmpReady)
	if got[0].ID != streams[1].id || got[0].Res != int32(readable) {
		t.Errorf("ready is %+v", got[0])
	}
	for i, s := range streams {
		if i != 1 {
			writePeer(t, s.peer, []byte("all"))
		}
	}
	for _, d := range l.turn(-1) {
		if d.Kind != CmpData {
			t.Errorf("of many: %+v", d)
		}
	}
}

// Streams that do not send in batches do not count towards the size of a batch.
func TestOtherStreamsDoNotCountTowardsABatch(t *testing.T) {
	l := defaultLoop(t)
	streams := manyStreams(l, minBatch+4)
	for i, s := range streams {
		switch {
		case i < minBatch-1: // a small piece
			l.write(s, copyToC(t, []byte("one")))
		case i < minBatch: // several pieces that are large in total: one call for all of them
			l.write(s, copyToC(t, []byte("two")))
			l.write(s, copyToC(t, make([]byte, gatherMaxBytes)))
		case i < minBatch+1: // a large piece
			l.write(s, copyToC(t, make([]byte, maxBatchSend+1)))
		case i < minBatch+2: // too many pieces
			for range gatherMaxVectors + 1 {
				l.write(s, copyToC(t, []byte("four")))
			}
		default:
			l.pause(s)
		}
	}
	l.turn(0)
	if f := l.r.Stats(); f.Batches != 0 || l.sh.Sends != minBatch+2 {
		t.Errorf("there were %d batches and %d sends", f.Batches, l.sh.Sends)
	}
}

// Small pieces of a stream are sent together, in their order, in a batch. Pieces that do not
// fit are sent separately in the same turn.
func TestSmallPiecesAreGatheredInABatch(t *testing.T) {
	needsRing(t)
	l := defaultLoop(t)
	streams := manyStreams(l, 2*gatherBufferSize/gatherMaxBytes)
	for range 3 {
		want := map[int][]byte{}
		batches, sends := l.r.Stats().Batches, l.sh.Sends
		for i, s := range streams {
			for n := range 1 + i%gatherMaxVectors {
				piece := bytes.Repeat([]byte{byte(i), byte(n)}, gatherMaxBytes/gatherMaxVectors/2)
				l.write(s, copyToC(t, piece))
				want[s.peer] = append(want[s.peer], piece...)
			}
		}
		l.turn(0)
		if l.r.Stats().Batches == batches || l.sh.Sends != sends+uint64(len(streams)) {
			t.Errorf("%d batches, %d sends", l.r.Stats().Batches-batches, l.sh.Sends-sends)
		}
		for _, s := range streams {
			if !bytes.Equal(readPeer(t, s.peer), want[s.peer]) {
				t.Error("a peer received other bytes")
			}
		}
	}
	l.turn(0)
	l.expectIdle()
}

// The kernel accepts only a part of the gathered pieces.
func TestGatheredPiecesThatAreSentPartially(t *testing.T) {
	needsRing(t)
	l := defaultLoop(t)
	streams := make([]testStream, minBatch)
	for i := range streams {
		a, b := pair(t)
		shrinkBuffers(t, a)
		t.Cleanup(func() { _ = sys.Close(b) })
		streams[i] = l.open(a, 0)
		streams[i].peer = b
	}
	want := map[int][]byte{}
	parts := 0
	for round := range 40 {
		for i, s := range streams {
			if l.r.registry.find(s.id, s.gen).stream.Blocked() {
				parts++
				continue
			}
			for n := range 3 {
				piece := bytes.Repeat([]byte{byte(i), byte(n), byte(round)}, gatherMaxBytes/9)
				l.write(s, copyToC(t, piece))
				want[s.peer] = append(want[s.peer], piece...)
			}
		}
		l.turn(0)
	}
	if parts == 0 {
		t.Fatal("the kernel took all at once: the test proves nothing")
	}
	received := map[int][]byte{}
	for complete := 0; complete < len(streams); {
		complete = 0
		for _, s := range streams {
			received[s.peer] = append(received[s.peer], readPeer(t, s.peer)...)
			if len(received[s.peer]) == len(want[s.peer]) {
				complete++
			}
		}
		l.turn(0)
	}
	for _, s := range streams {
		if !bytes.Equal(received[s.peer], want[s.peer]) {
			t.Error("a peer received other bytes")
		}
	}
	l.turn(0)
	l.expectIdle()
}

// Bytes that were sent before an end are reported before it, even if the completion queue is
// short.
func TestSentBytesOfABatchAreReportedBeforeAnEnd(t *testing.T) {
	needsRing(t)
	// Half of the queue is for reports. They are of the streams that wrote first, and the
	// poller reports other streams first.
	l := newLoop(t, sizes{10 * minBatch, 1 << 16}, kernelCalls())
	streams := manyStreams(l, 15*minBatch)
	exchange(t, l, streams, func(int) int { return 5 })
	batches := l.r.Stats().Batches
	for _, s := range slices.Backward(streams) {
		l.write(s, copyToC(t, []byte("more")))
	}
	for _, s := range streams {
		if err := sys.Shutdown(s.peer, unix.SHUT_WR); err != nil {
			t.Fatal(err)
		}
	}
	reported := map[uint32][]CompletionKind{}
	note := func(completed []completion) {
		for _, d := range completed {
			reported[d.ID] = append(reported[d.ID], d.Kind)
		}
	}
	note(l.turn(0))
	if l.r.Stats().Batches < batches+2 {
		t.Fatalf("%d batches: the test proves nothing", l.r.Stats().Batches-batches)
	}
	for range streams {
		note(l.turn(0))
	}
	for i, s := range streams {
		if fmt.Sprint(reported[s.id]) != fmt.Sprint([]CompletionKind{CmpWrote, CmpEOF}) {
			t.Errorf("stream %d: %v", i, reported[s.id])
		}
	}
}

// A paused stream that is in the ready list does not lose received data.
func TestPauseBeforeABatchKeepsReceivedData(t *testing.T) {
	needsRing(t)
	l := newLoop(t, sizes{minBatch * maxPerStep, 1 << 16}, kernelCalls())
	streams := manyStreams(l, 8*minBatch)
	exchange(t, l, streams, func(int) int { return 5 })
	for _, s := range streams {
		writePeer(t, s.peer, []byte("data"))
	}
	got := map[uint32]bool{}
	for _, d := range l.turn(0) {
		got[d.ID] = true
	}
	if len(got) == 0 || len(got) == len(streams) {
		t.Fatalf("%d streams were served: the test does not prove anything", len(got))
	}
	for i, s := range streams {
		if !got[s.id] && i%2 == 0 {
			l.pause(s)
		}
	}
	first := len(got)
	for range streams {
		for _, d := range l.turn(0) {
			if slices.IndexFunc(streams, func(s testStream) bool { return s.id == d.ID })%2 == 0 {
				t.Error("a paused stream got data")
			}
			got[d.ID] = true
		}
	}
	if len(got) == first {
		t.Error("the others got nothing")
	}
}

// The kernel accepts a part of each piece. The rest is sent when there is space.
func TestBatchWithPartialSends(t *testing.T) {
	needsRing(t)
	l := defaultLoop(t)
	streams := make([]testStream, minBatch+1)
	want := map[int][]byte{}
	for i := range streams {
		a, b := pair(t)
		shrinkBuffers(t, a)
		t.Cleanup(func() { _ = sys.Close(b) })
		streams[i] = l.open(a, 0)
		streams[i].peer = b
		first := bytes.Repeat([]byte{byte(i), 1, 2, 3, 4}, maxBatchSend/5)
		l.write(streams[i], copyToC(t, first))
		want[b] = first
	}
	l.turn(0)
	if l.r.Stats().Batches != 1 {
		t.Errorf("there were %d batches", l.r.Stats().Batches)
	}
	received := map[int][]byte{}
	for _, s := range streams {
		if !l.r.registry.find(s.id, s.gen).stream.Blocked() {
			t.Fatal("the kernel took all at once: the test proves nothing")
		}
		l.resume(s)
	}
	sends := l.sh.Sends
	l.turn(0)
	if l.sh.Sends != sends {
		t.Errorf("%d sends to peers that have no space", l.sh.Sends-sends)
	}
	for i, s := range streams {
		// The second piece is queued after the rest of the first piece.
		second := bytes.Repeat([]byte{9, byte(i)}, 100)
		l.write(s, copyToC(t, second))
		want[s.peer] = append(want[s.peer], second...)
	}
	for complete := 0; complete < len(streams); {
		l.turn(0)
		complete = 0
		for _, s := range streams {
			received[s.peer] = append(received[s.peer], readPeer(t, s.peer)...)
			if len(received[s.peer]) == len(want[s.peer]) {
				complete++
			}
		}
	}
	for _, s := range streams {
		if !bytes.Equal(received[s.peer], want[s.peer]) {
			t.Error("a peer received other bytes")
		}
	}
	l.turn(0)
	l.expectIdle()
}

// Ends and errors in a batch are reported for the right streams.
func TestEndsAndErrorsInABatch(t *testing.T) {
	needsRing(t)
	l := defaultLoop(t)
	streams := manyStreams(l, 12)
	exchange(t, l, streams, func(int) int { return 5 })
	batches := l.r.Stats().Batches
	ends := func(i int) bool { return i%3 == 0 }
	for i, s := range streams {
		if ends(i) {
			if err := sys.Shutdown(s.peer, unix.SHUT_RDWR); err != nil {
				t.Fatal(err)
			}
		} else {
			writePeer(t, s.peer, []byte("data"))
		}
		l.write(s, copyToC(t, []byte("more")))
	}
	completed := l.turn(0)
	if l.r.Stats().Batches != batches+2 { // a batch sends, a batch receives for the remaining streams
		t.Errorf("%d batches", l.r.Stats().Batches-batches)
	}
	kinds := map[uint32][]CompletionKind{}
	for _, d := range append(completed, l.turn(0)...) {
		kinds[d.ID] = append(kinds[d.ID], d.Kind)
		if d.Kind == CmpWriteError && syscall.Errno(d.Res) != syscall.EPIPE {
			t.Errorf("a write to a closed peer: %v", syscall.Errno(d.Res))
		}
	}
	for i, s := range streams {
		want := []CompletionKind{CmpWrote, CmpData}
		if ends(i) {
			want = []CompletionKind{CmpWriteError} // C finds the end itself
		} else if received := readPeer(t, s.peer); string(received) != "more" {
			t.Errorf("the peer of an open stream received %q", received)
		}
		if fmt.Sprint(kinds[s.id]) != fmt.Sprint(want) {
			t.Errorf("stream %d: completions %v, want %v", i, kinds[s.id], want)
		}
	}
}

// The peer's half-close is reported as the end of each stream in a batch.
func TestHalfClosesInABatch(t *testing.T) {
	needsRing(t)
	l := defaultLoop(t)
	streams := manyStreams(l, 12)
	exchange(t, l, streams, func(int) int { return 5 })
	batches := l.r.Stats().Batches
	for _, s := range streams {
		if err := sys.Shutdown(s.peer, unix.SHUT_WR); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range l.turn(0) {
		if d.Kind != CmpEOF {
			t.Errorf("%+v", d.Completion)
		}
	}
	if l.r.Stats().Batches != batches+1 {
		t.Errorf("%d batches", l.r.Stats().Batches-batches)
	}
	l.expectIdle() // an end is reported once
}

// A pipe is distinguished from a socket by its first call, in a batch too.
func TestPipesInABatch(t *testing.T) {
	needsRing(t)
	l := defaultLoop(t)
	for i := range 6 {
		var ends [2]int
		if err := sys.Pipe2(ends[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sys.Close(ends[0]) })
		s := l.open(ends[1], OpenWatchEnd)
		s.peer = ends[0]
		piece := bytes.Repeat([]byte{byte(i)}, 10)
		l.write(s, copyToC(t, piece))
		t.Cleanup(func() {
			if received := readPeer(t, s.peer); !bytes.Equal(received, piece) {
				t.Errorf("received %v", received)
			}
		})
	}
	for _, d := range l.turn(0) {
		if d.Kind != CmpWrote {
			t.Errorf("%+v", d.Completion)
		}
	}
}

func TestShutdownFollowsABatch(t *testing.T) {
	needsRing(t)
	l := defaultLoop(t)
	streams := manyStreams(l, minBatch)
	for _, s := range streams {
		l.write(s, copyToC(t, []byte("last")))
		l.shut(s)
	}
	l.turn(0)
	for _, s := range streams {
		buf := make([]byte, 10)
		if n, err := sys.Read(s.peer, buf); n != 4 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := sys.Read(s.peer, buf); n != 0 || err != nil {
			t.Errorf("after the last bytes: %d, %v", n, err)
		}
	}
}

// ringFaults makes calls of a ring fail a given number of times.
type ringFaults struct {
	fail     map[string][]error
	attempts map[string]int
}

// nextErrno counts a call and returns the error that was prepared for it, or nil.
func (f *ringFaults) nextErrno(name string) error {
	f.attempts[name]++
	if queue := f.fail[name]; len(queue) > 0 {
		f.fail[name] = queue[1:]
		return queue[0]
	}
	return nil
}

// calls returns calls of the test's kernel whose ring fails as prepared.
func (f *ringFaults) calls() Calls {
	calls, real := kernelCalls(), systemRingCalls()
	f.attempts = map[string]int{}
	errno := func(err error) syscall.Errno {
		if err == nil {
			return 0
		}
		return err.(syscall.Errno)
	}
	calls.Ring.Setup = func(entries uint32, p *RingParams) (int, syscall.Errno) {
		if e := errno(f.nextErrno("setup")); e != 0 {
			return -1, e
		}
		fd, e := real.Setup(entries, p)
		if f.nextErrno("features") != nil {
			p.Features = 0
		}
		return fd, e
	}
	calls.Ring.Map = func(fd int, offset int64, size int) ([]byte, error) {
		if err := f.nextErrno("map"); err != nil {
			return nil, err
		}
		return real.Map(fd, offset, size)
	}
	calls.Ring.Enter = func(fd int, submit, complete, flags uint32) (int, syscall.Errno) {
		if e := errno(f.nextErrno("enter")); e != 0 {
			return -1, e
		}
		return real.Enter(fd, submit, complete, flags)
	}
	return calls
}

func TestRefusedRingIsReplacedByCalls(t *testing.T) {
	needsRing(t)
	repeat := func(e error, n int) (all []error) {
		for range n {
			all = append(all, e)
		}
		return
	}
	for _, c := range []struct {
		name  string
		fail  map[string][]error
		state ringState
	}{
		{"a kernel without", map[string][]error{"setup": {syscall.ENOSYS}}, ringRefused},
		{"a sandbox", map[string][]error{"setup": {syscall.EPERM}}, ringRefused},
		{"no memory", map[string][]error{"setup": {syscall.ENOMEM}}, ringRefused},
		{"an old kernel", map[string][]error{"features": {syscall.ENOSYS}}, ringRefused},
		{"no first mapping", map[string][]error{"map": {syscall.ENOMEM}}, ringRefused},
		{"no second mapping", map[string][]error{"map": {nil, syscall.ENOMEM}}, ringRefused},
		{"out of descriptors for a while", map[string][]error{"setup": repeat(syscall.EMFILE, 3)}, ringOpen},
		{"out of descriptors permanently", map[string][]error{"setup": repeat(syscall.ENFILE, 1000)}, ringUnknown},
		{"a broken ring", map[string][]error{"enter": {nil, nil, syscall.EBADF}}, ringRefused},
		{"interruptions", map[string][]error{"enter": repeat(syscall.EINTR, 50)}, ringOpen},
		{"out of memory for a while", map[string][]error{"enter": repeat(syscall.EAGAIN, 50)}, ringOpen},
		{"out of memory permanently", map[string][]error{"enter": repeat(syscall.EBUSY, 1000)}, ringRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &ringFaults{fail: c.fail}
			l := newLoop(t, defaultSizes, f.calls())
			streams := manyStreams(l, 20)
			for range 10 {
				if others := exchange(t, l, streams, func(i int) int { return 1 + i }); len(others) != 0 {
					t.Errorf("%v", others)
				}
			}
			if l.r.batch.state != c.state {
				t.Errorf("the ring is in state %d, not %d", l.r.batch.state, c.state)
			}
			if c.state == ringRefused && f.attempts["setup"] != 1 {
				t.Errorf("the ring was set up %d times", f.attempts["setup"])
			}
		})
	}
}

func TestRingIsNotOpenedIfDisabled(t *testing.T) {
	f := &ringFaults{}
	l := newLoop(t, defaultSizes, f.calls())
	l.sh.Flags = NoRing
	exchange(t, l, manyStreams(l, 20), func(int) int { return 10 })
	if f.attempts["setup"] != 0 || l.r.Stats().Batches != 0 {
		t.Errorf("a ring was set up %d times", f.attempts["setup"])
	}
}

func TestBatchesDoNotAllocate(t *testing.T) {
	needsRing(t)
	l := defaultLoop(t)
	streams := manyStreams(l, 20)
	message, back := copyToC(t, bytes.Repeat([]byte("m"), 1024)), make([]byte, 2048)
	step := func() { batchStep(t, l, streams, message, back) }
	for range 100 {
		step()
	}
	before := l.r.Stats().Batches
	if allocs := testing.AllocsPerRun(500, step); allocs != 0 {
		t.Errorf("%v allocations a turn", allocs)
	}
	if l.r.Stats().Batches < before+1000 {
		t.Error("there were no batches")
	}
}

// batchStep is one turn of an echo of all streams, as C drives it: received data is sent by the
// next turn.
func batchStep(tb testing.TB, l *loop, streams []testStream, message, back []byte) {
	for _, s := range streams {
		if n, err := sys.Write(s.peer, message); n != len(message) || err != nil {
			tb.Fatal(n, err)
		}
	}
	if _, err := l.r.Turn(-1); err != nil {
		tb.Fatal(err)
	}
	for _, s := range streams {
		l.writeUnreported(s, message)
	}
	l.r.Flush()
	for _, s := range streams {
		if n, err := sys.Read(s.peer, back); n != len(message) || err != nil {
			tb.Fatal(n, err)
		}
	}
}

func BenchmarkEchoOf20(b *testing.B) {
	for _, flags := range []uint32{0, NoRing} {
		b.Run(map[uint32]string{0: "batches", NoRing: "calls"}[flags], func(b *testing.B) {
			l := defaultLoop(b)
			l.sh.Flags = flags
			streams := manyStreams(l, 20)
			message, back := copyToC(b, bytes.Repeat([]byte("m"), 1024)), make([]byte, 2048)
			b.ReportAllocs()
			for b.Loop() {
				batchStep(b, l, streams, message, back)
			}
		})
	}
}

// The reactor batches as long as batches take less of its thread's time, and returns to single
// calls when they do not.
func TestReactorBatchesByMeasuredCosts(t *testing.T) {
	needsRing(t)
	var now, batchCall int64
	const single = 1000
	calls := kernelCalls()
	calls.ThreadTime = func() int64 { return now }
	enter, send, recv := calls.Ring.Enter, calls.Send, calls.Recv
	calls.Ring.Enter = func(fd int, submit, complete, flags uint32) (int, syscall.Errno) {
		now += batchCall * int64(submit)
		return enter(fd, submit, complete, flags)
	}
	calls.Send = func(fd int, base, size uintptr) (int, syscall.Errno) {
		now += single
		return send(fd, base, size)
	}
	calls.Recv = func(fd int, base, size uintptr) (int, syscall.Errno) {
		now += single
		return recv(fd, base, size)
	}
	l := newLoop(t, defaultSizes, calls)
	l.r.receivePolicy, l.r.sendPolicy = batchPolicy{}, batchPolicy{}
	streams := manyStreams(l, 10)
	for _, c := range []struct {
		batchCall int64
		decision  string
	}{{2 * single, "9: single "}, {single / 2, "9: batch "}, {2 * single, "9: single "}} {
		batchCall = c.batchCall
		// Trials without a pause, until the earlier ones count less than these.
		for range 4 * 2 * trialsInMean {
			l.r.receivePolicy.class(10).untilTrial, l.r.sendPolicy.class(10).untilTrial = 0, 0
			exchange(t, l, streams, func(int) int { return 10 })
		}
		if s := l.r.Stats(); !strings.HasPrefix(s.ReceivePolicy, c.decision) || !strings.HasPrefix(s.SendPolicy, c.decision) {
			t.Errorf("a call in a batch takes %d ns: receives %q, sends %q", batchCall, s.ReceivePolicy, s.SendPolicy)
		}
		l.r.receivePolicy.class(10).untilTrial, l.r.sendPolicy.class(10).untilTrial = trialPause, trialPause
		before := l.r.Stats().Batches
		exchange(t, l, streams, func(int) int { return 10 })
		if batched := l.r.Stats().Batches - before; (batched > 0) != (batchCall < single) {
			t.Errorf("a call in a batch takes %d ns: %d batches", batchCall, batched)
		}
	}
}
