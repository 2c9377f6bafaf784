package netloop

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/goloop/goloop/transports"
	"golang.org/x/sys/unix"
)

// needsRing skips a test where the kernel, or what watches over it, refuses a ring.
func needsRing(t testing.TB) {
	t.Helper()
	var g ring
	calls := systemRingCalls()
	if g.open(&calls) != ringOpen {
		t.Skip("there is no io_uring here")
	}
	g.close(true)
}

// exchange lets each peer say a piece, which its stream gets, and each stream a piece,
// which its peer gets; it returns the completions beside those.
func exchange(t testing.TB, l *loop, streams []stream, size func(i int) int) []done {
	t.Helper()
	var others []done
	want, got := map[uint32][]byte{}, map[uint32][]byte{}
	answers := map[int][]byte{}
	missing := 0
	for i, s := range streams {
		piece := bytes.Repeat([]byte{byte(i), byte(i >> 8), 'q'}, size(i))
		answer := bytes.Repeat([]byte{'a', byte(i), byte(i >> 8)}, size(i))
		say(t, s.peer, piece)
		l.write(s, inC(t, answer))
		want[s.id], answers[s.peer] = piece, answer
		missing += len(piece)
	}
	for turns := 0; missing > 0; turns++ {
		if turns == 10_000 {
			t.Fatalf("%d bytes never came", missing)
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
			t.Fatalf("a stream got %d bytes that are not the %d that were said", len(got[s.id]), len(want[s.id]))
		}
		if heard := hear(t, s.peer); !bytes.Equal(heard, answers[s.peer]) {
			t.Fatalf("a peer heard %d bytes that are not the %d that were written", len(heard), len(answers[s.peer]))
		}
	}
	return others
}

func manyStreams(l *loop, n int) []stream {
	streams := make([]stream, n)
	for i := range streams {
		streams[i] = l.stream(0)
	}
	return streams
}

func TestBatchesCarryWhatCallsWould(t *testing.T) {
	needsRing(t)
	for _, size := range []sizes{usual, {minCompletions, minArena}, {64, 16 << 10}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			l := newLoop(t, size, kernelCalls())
			streams := manyStreams(l, 300)
			rng := rand.New(rand.NewPCG(5, 6))
			for range 20 {
				exchange(t, l, streams, func(int) int { return 1 + rng.IntN(700) })
			}
			if l.r.Facts().Batches < 20 {
				t.Errorf("there were %d batches", l.r.Facts().Batches)
			}
			l.quiet()
		})
	}
}

// A stream whose piece does not fit into what a batch has for it gets the rest after.
func TestMoreThanABatchHasRoomFor(t *testing.T) {
	needsRing(t)
	l := usualLoop(t)
	streams := manyStreams(l, 20)
	for _, size := range []int{1, 3000, 1, 10, 30_000, 2} {
		exchange(t, l, streams, func(int) int { return size })
	}
	l.quiet()
}

func TestFewCallsAreNoBatch(t *testing.T) {
	l := usualLoop(t)
	streams := manyStreams(l, ringLeast-1)
	for range 5 {
		exchange(t, l, streams, func(int) int { return 10 })
	}
	if f := l.r.Facts(); f.Batches != 0 || l.r.batch.state != ringUnknown {
		t.Errorf("there were %d batches; the ring is in state %d", f.Batches, l.r.batch.state)
	}
}

// Where no batch is made of what is ready, C receives for the streams that want it.
func TestFewReadyAreLeftToC(t *testing.T) {
	l := usualLoop(t)
	streams := manyStreams(l, ringLeast)
	for _, s := range streams {
		l.want(s, transports.WantFew, 0)
	}
	say(t, streams[1].peer, []byte("one"))
	got := l.turn(-1)
	expectKinds(t, got, CmpReady)
	if got[0].ID != streams[1].id || got[0].Res != int32(readable) {
		t.Errorf("ready is %+v", got[0])
	}
	for i, s := range streams {
		if i != 1 {
			say(t, s.peer, []byte("all"))
		}
	}
	for _, d := range l.turn(-1) {
		if d.Kind != CmpData {
			t.Errorf("of many: %+v", d)
		}
	}
}

// What a batch is not for is not counted towards it.
func TestWhatIsNoMatterForABatch(t *testing.T) {
	l := usualLoop(t)
	streams := manyStreams(l, ringLeast+4)
	for i, s := range streams {
		switch {
		case i < ringLeast-1: // a small piece
			l.write(s, inC(t, []byte("one")))
		case i < ringLeast: // several that are large together: one call with all of them
			l.write(s, inC(t, []byte("two")))
			l.write(s, inC(t, make([]byte, ringGatherMax)))
		case i < ringLeast+1: // a large one
			l.write(s, inC(t, make([]byte, ringSendMax+1)))
		case i < ringLeast+2: // too many
			for range ringPieces + 1 {
				l.write(s, inC(t, []byte("four")))
			}
		default:
			l.pause(s)
		}
	}
	l.turn(0)
	if f := l.r.Facts(); f.Batches != 0 || l.sh.Sends != ringLeast+2 {
		t.Errorf("there were %d batches and %d sends", f.Batches, l.sh.Sends)
	}
}

// Small pieces of a stream leave together, in their order, in a batch; what finds no
// room there leaves by itself in the same turn.
func TestPiecesLeaveTogether(t *testing.T) {
	needsRing(t)
	l := usualLoop(t)
	streams := manyStreams(l, 2*ringGatherRoom/ringGatherMax)
	for range 3 {
		want := map[int][]byte{}
		batches, sends := l.r.Facts().Batches, l.sh.Sends
		for i, s := range streams {
			for n := range 1 + i%ringPieces {
				piece := bytes.Repeat([]byte{byte(i), byte(n)}, ringGatherMax/ringPieces/2)
				l.write(s, inC(t, piece))
				want[s.peer] = append(want[s.peer], piece...)
			}
		}
		l.turn(0)
		if l.r.Facts().Batches == batches || l.sh.Sends != sends+uint64(len(streams)) {
			t.Errorf("%d batches, %d sends", l.r.Facts().Batches-batches, l.sh.Sends-sends)
		}
		for _, s := range streams {
			if !bytes.Equal(hear(t, s.peer), want[s.peer]) {
				t.Error("a peer heard something else")
			}
		}
	}
	l.turn(0)
	l.quiet()
}

// The kernel takes a part of what was put together.
func TestPiecesThatLeaveInPart(t *testing.T) {
	needsRing(t)
	l := usualLoop(t)
	streams := make([]stream, ringLeast)
	for i := range streams {
		a, b := pair(t)
		small(t, a)
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
				piece := bytes.Repeat([]byte{byte(i), byte(n), byte(round)}, ringGatherMax/9)
				l.write(s, inC(t, piece))
				want[s.peer] = append(want[s.peer], piece...)
			}
		}
		l.turn(0)
	}
	if parts == 0 {
		t.Fatal("the kernel took all at once: the test proves nothing")
	}
	heard := map[int][]byte{}
	for complete := 0; complete < len(streams); {
		complete = 0
		for _, s := range streams {
			heard[s.peer] = append(heard[s.peer], hear(t, s.peer)...)
			if len(heard[s.peer]) == len(want[s.peer]) {
				complete++
			}
		}
		l.turn(0)
	}
	for _, s := range streams {
		if !bytes.Equal(heard[s.peer], want[s.peer]) {
			t.Error("a peer heard something else")
		}
	}
	l.turn(0)
	l.quiet()
}

// What left before an end is told before it, however short the completion queue.
func TestProgressIsToldBeforeAnEnd(t *testing.T) {
	needsRing(t)
	// Half of the queue is for reports: they are of the streams that wrote first, and
	// those that the poller tells of first are others.
	l := newLoop(t, sizes{10 * ringLeast, 1 << 16}, kernelCalls())
	streams := manyStreams(l, 15*ringLeast)
	exchange(t, l, streams, func(int) int { return 5 })
	batches := l.r.Facts().Batches
	for _, s := range slices.Backward(streams) {
		l.write(s, inC(t, []byte("more")))
	}
	for _, s := range streams {
		if err := sys.Shutdown(s.peer, unix.SHUT_WR); err != nil {
			t.Fatal(err)
		}
	}
	told := map[uint32][]CompletionKind{}
	note := func(completed []done) {
		for _, d := range completed {
			told[d.ID] = append(told[d.ID], d.Kind)
		}
	}
	note(l.turn(0))
	if l.r.Facts().Batches < batches+2 {
		t.Fatalf("%d batches: the test proves nothing", l.r.Facts().Batches-batches)
	}
	for range streams {
		note(l.turn(0))
	}
	for i, s := range streams {
		if fmt.Sprint(told[s.id]) != fmt.Sprint([]CompletionKind{CmpWrote, CmpEOF}) {
			t.Errorf("stream %d: %v", i, told[s.id])
		}
	}
}

// A stream that is paused while it waits for its turn keeps what has come.
func TestAPauseBeforeTheTurn(t *testing.T) {
	needsRing(t)
	l := newLoop(t, sizes{ringLeast * stepRoom, 1 << 16}, kernelCalls())
	streams := manyStreams(l, 8*ringLeast)
	exchange(t, l, streams, func(int) int { return 5 })
	for _, s := range streams {
		say(t, s.peer, []byte("data"))
	}
	got := map[uint32]bool{}
	for _, d := range l.turn(0) {
		got[d.ID] = true
	}
	if len(got) == 0 || len(got) == len(streams) {
		t.Fatalf("%d of the streams had their turn: the test proves nothing", len(got))
	}
	for i, s := range streams {
		if !got[s.id] && i%2 == 0 {
			l.pause(s)
		}
	}
	first := len(got)
	for range streams {
		for _, d := range l.turn(0) {
			if slices.IndexFunc(streams, func(s stream) bool { return s.id == d.ID })%2 == 0 {
				t.Error("a paused stream got data")
			}
			got[d.ID] = true
		}
	}
	if len(got) == first {
		t.Error("the others got nothing")
	}
}

// The kernel takes a part of each piece; the rest goes when there is room.
func TestBatchOfShortSends(t *testing.T) {
	needsRing(t)
	l := usualLoop(t)
	streams := make([]stream, ringLeast+1)
	want := map[int][]byte{}
	for i := range streams {
		a, b := pair(t)
		small(t, a)
		t.Cleanup(func() { _ = sys.Close(b) })
		streams[i] = l.open(a, 0)
		streams[i].peer = b
		first := bytes.Repeat([]byte{byte(i), 1, 2, 3, 4}, ringSendMax/5)
		l.write(streams[i], inC(t, first))
		want[b] = first
	}
	l.turn(0)
	if l.r.Facts().Batches != 1 {
		t.Errorf("there were %d batches", l.r.Facts().Batches)
	}
	heard := map[int][]byte{}
	for _, s := range streams {
		if !l.r.registry.find(s.id, s.gen).stream.Blocked() {
			t.Fatal("the kernel took all at once: the test proves nothing")
		}
		l.resume(s)
	}
	sends := l.sh.Sends
	l.turn(0)
	if l.sh.Sends != sends {
		t.Errorf("%d sends to peers that have no room", l.sh.Sends-sends)
	}
	for i, s := range streams {
		// It waits behind the rest of the first.
		second := bytes.Repeat([]byte{9, byte(i)}, 100)
		l.write(s, inC(t, second))
		want[s.peer] = append(want[s.peer], second...)
	}
	for complete := 0; complete < len(streams); {
		l.turn(0)
		complete = 0
		for _, s := range streams {
			heard[s.peer] = append(heard[s.peer], hear(t, s.peer)...)
			if len(heard[s.peer]) == len(want[s.peer]) {
				complete++
			}
		}
	}
	for _, s := range streams {
		if !bytes.Equal(heard[s.peer], want[s.peer]) {
			t.Error("a peer heard something else")
		}
	}
	l.turn(0)
	l.quiet()
}

// Ends and errors in a batch are those of their own stream.
func TestEndsAndErrorsInABatch(t *testing.T) {
	needsRing(t)
	l := usualLoop(t)
	streams := manyStreams(l, 12)
	exchange(t, l, streams, func(int) int { return 5 })
	batches := l.r.Facts().Batches
	ends := func(i int) bool { return i%3 == 0 }
	for i, s := range streams {
		if ends(i) {
			if err := sys.Shutdown(s.peer, unix.SHUT_RDWR); err != nil {
				t.Fatal(err)
			}
		} else {
			say(t, s.peer, []byte("data"))
		}
		l.write(s, inC(t, []byte("more")))
	}
	completed := l.turn(0)
	if l.r.Facts().Batches != batches+2 { // one sends, one receives for the living
		t.Errorf("%d batches", l.r.Facts().Batches-batches)
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
			want = []CompletionKind{CmpWriteError} // C meets the end itself
		} else if heard := hear(t, s.peer); string(heard) != "more" {
			t.Errorf("a living peer heard %q", heard)
		}
		if fmt.Sprint(kinds[s.id]) != fmt.Sprint(want) {
			t.Errorf("stream %d: completions %v, want %v", i, kinds[s.id], want)
		}
	}
}

// The peer's half-close is the end of each stream, found in a batch.
func TestEndsInABatch(t *testing.T) {
	needsRing(t)
	l := usualLoop(t)
	streams := manyStreams(l, 12)
	exchange(t, l, streams, func(int) int { return 5 })
	batches := l.r.Facts().Batches
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
	if l.r.Facts().Batches != batches+1 {
		t.Errorf("%d batches", l.r.Facts().Batches-batches)
	}
	l.quiet() // an end is told once
}

// A pipe is told from a socket by its first call, in a batch too.
func TestPipesInABatch(t *testing.T) {
	needsRing(t)
	l := usualLoop(t)
	for i := range 6 {
		var ends [2]int
		if err := sys.Pipe2(ends[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sys.Close(ends[0]) })
		s := l.open(ends[1], OpenWatchEnd)
		s.peer = ends[0]
		piece := bytes.Repeat([]byte{byte(i)}, 10)
		l.write(s, inC(t, piece))
		t.Cleanup(func() {
			if heard := hear(t, s.peer); !bytes.Equal(heard, piece) {
				t.Errorf("heard %v", heard)
			}
		})
	}
	for _, d := range l.turn(0) {
		if d.Kind != CmpWrote {
			t.Errorf("%+v", d.Completion)
		}
	}
}

func TestAShutdownFollowsTheBatch(t *testing.T) {
	needsRing(t)
	l := usualLoop(t)
	streams := manyStreams(l, ringLeast)
	for _, s := range streams {
		l.write(s, inC(t, []byte("last")))
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

// ringFaults fails calls of a ring as often as it is told.
type ringFaults struct {
	fail  map[string][]error
	asked map[string]int
}

func (f *ringFaults) take(name string) error {
	f.asked[name]++
	if queue := f.fail[name]; len(queue) > 0 {
		f.fail[name] = queue[1:]
		return queue[0]
	}
	return nil
}

func (f *ringFaults) calls() Calls {
	calls, real := kernelCalls(), systemRingCalls()
	f.asked = map[string]int{}
	errno := func(err error) syscall.Errno {
		if err == nil {
			return 0
		}
		return err.(syscall.Errno)
	}
	calls.Ring.Setup = func(entries uint32, p *RingParams) (int, syscall.Errno) {
		if e := errno(f.take("setup")); e != 0 {
			return -1, e
		}
		fd, e := real.Setup(entries, p)
		if f.take("features") != nil {
			p.Features = 0
		}
		return fd, e
	}
	calls.Ring.Map = func(fd int, offset int64, size int) ([]byte, error) {
		if err := f.take("map"); err != nil {
			return nil, err
		}
		return real.Map(fd, offset, size)
	}
	calls.Ring.Enter = func(fd int, submit, complete, flags uint32) (int, syscall.Errno) {
		if e := errno(f.take("enter")); e != 0 {
			return -1, e
		}
		return real.Enter(fd, submit, complete, flags)
	}
	return calls
}

func TestWhereARingIsRefused(t *testing.T) {
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
		{"no descriptor for a while", map[string][]error{"setup": repeat(syscall.EMFILE, 3)}, ringOpen},
		{"no descriptor at all", map[string][]error{"setup": repeat(syscall.ENFILE, 1000)}, ringUnknown},
		{"a broken ring", map[string][]error{"enter": {nil, nil, syscall.EBADF}}, ringRefused},
		{"interruptions", map[string][]error{"enter": repeat(syscall.EINTR, 50)}, ringOpen},
		{"memory that comes back", map[string][]error{"enter": repeat(syscall.EAGAIN, 50)}, ringOpen},
		{"memory that does not", map[string][]error{"enter": repeat(syscall.EBUSY, 1000)}, ringRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &ringFaults{fail: c.fail}
			l := newLoop(t, usual, f.calls())
			streams := manyStreams(l, 20)
			for range 10 {
				if others := exchange(t, l, streams, func(i int) int { return 1 + i }); len(others) != 0 {
					t.Errorf("%v", others)
				}
			}
			if l.r.batch.state != c.state {
				t.Errorf("the ring is in state %d, not %d", l.r.batch.state, c.state)
			}
			if c.state == ringRefused && f.asked["setup"] != 1 {
				t.Errorf("the ring was asked for %d times", f.asked["setup"])
			}
		})
	}
}

func TestNoRingWhereItIsSwitchedOff(t *testing.T) {
	f := &ringFaults{}
	l := newLoop(t, usual, f.calls())
	l.sh.Flags = NoRing
	exchange(t, l, manyStreams(l, 20), func(int) int { return 10 })
	if f.asked["setup"] != 0 || l.r.Facts().Batches != 0 {
		t.Errorf("a ring was made %d times", f.asked["setup"])
	}
}

func TestBatchesDoNotAllocate(t *testing.T) {
	needsRing(t)
	l := usualLoop(t)
	streams := manyStreams(l, 20)
	message, back := inC(t, bytes.Repeat([]byte("m"), 1024)), make([]byte, 2048)
	step := func() { batchStep(t, l, streams, message, back) }
	for range 100 {
		step()
	}
	before := l.r.Facts().Batches
	if allocs := testing.AllocsPerRun(500, step); allocs != 0 {
		t.Errorf("%v allocations a turn", allocs)
	}
	if l.r.Facts().Batches < before+1000 {
		t.Error("there were no batches")
	}
}

// batchStep is an echo of each stream, as C drives it: what came is sent by the next turn.
func batchStep(tb testing.TB, l *loop, streams []stream, message, back []byte) {
	for _, s := range streams {
		if n, err := sys.Write(s.peer, message); n != len(message) || err != nil {
			tb.Fatal(n, err)
		}
	}
	if _, err := l.r.Turn(-1); err != nil {
		tb.Fatal(err)
	}
	for _, s := range streams {
		l.writeQuietly(s, message)
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
			l := usualLoop(b)
			l.sh.Flags = flags
			streams := manyStreams(l, 20)
			message, back := inC(b, bytes.Repeat([]byte("m"), 1024)), make([]byte, 2048)
			b.ReportAllocs()
			for b.Loop() {
				batchStep(b, l, streams, message, back)
			}
		})
	}
}
