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

func TestManyStreamsTransferTheirBytes(t *testing.T) {
	for _, size := range []sizes{defaultSizes, {minCompletions, minArena}, {64, 16 << 10}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			l := newLoop(t, size, kernelCalls())
			streams := manyStreams(l, 300)
			rng := rand.New(rand.NewPCG(5, 6))
			for range 20 {
				exchange(t, l, streams, func(int) int { return 1 + rng.IntN(700) })
			}
			l.expectIdle()
		})
	}
}

// A stream that received little may receive much next, and the other way round.
func TestReceivesOfChangingSizes(t *testing.T) {
	l := defaultLoop(t)
	streams := manyStreams(l, 20)
	for _, size := range []int{1, 3000, 1, 10, 30_000, 2} {
		exchange(t, l, streams, func(int) int { return size })
	}
	l.expectIdle()
}

// If few streams are ready, C receives for the streams that request it.
func TestFewReadyStreamsAreReceivedInC(t *testing.T) {
	l := defaultLoop(t)
	streams := manyStreams(l, eagerLevels[defaultLevel]+1)
	for _, s := range streams {
		l.setWants(s, transports.WantReceiveInEagerTurn, 0)
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

// Bytes that were sent before an end are reported before it, even if the completion queue is
// short.
func TestSentBytesAreReportedBeforeAnEnd(t *testing.T) {
	// Half of the queue is for reports. They are of the streams that wrote first, and the
	// poller reports other streams first.
	l := newLoop(t, sizes{50, 1 << 16}, kernelCalls())
	streams := manyStreams(l, 75)
	exchange(t, l, streams, func(int) int { return 5 })
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
func TestPauseOfAReadyStreamKeepsReceivedData(t *testing.T) {
	l := newLoop(t, sizes{5 * maxPerStep, 1 << 16}, kernelCalls())
	streams := manyStreams(l, 40)
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
func TestPartialSendsOfManyStreams(t *testing.T) {
	l := defaultLoop(t)
	streams := make([]testStream, 6)
	want := map[int][]byte{}
	for i := range streams {
		a, b := pair(t)
		shrinkBuffers(t, a)
		t.Cleanup(func() { _ = sys.Close(b) })
		streams[i] = l.open(a, 0)
		streams[i].peer = b
		first := bytes.Repeat([]byte{byte(i), 1, 2, 3, 4}, 8<<10)
		l.write(streams[i], copyToC(t, first))
		want[b] = first
	}
	l.turn(0)
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

// Ends and errors are reported for the right streams.
func TestEndsAndErrorsOfManyStreams(t *testing.T) {
	l := defaultLoop(t)
	streams := manyStreams(l, 12)
	exchange(t, l, streams, func(int) int { return 5 })
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

// The peer's half-close is reported as the end of each stream.
func TestHalfClosesOfManyStreams(t *testing.T) {
	l := defaultLoop(t)
	streams := manyStreams(l, 12)
	exchange(t, l, streams, func(int) int { return 5 })
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
	l.expectIdle() // an end is reported once
}

// A pipe is distinguished from a socket by its first call, in too.
func TestManyPipes(t *testing.T) {
	l := defaultLoop(t)
	for i := range 6 {
		ends := nonblockingPipe(t)
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

func TestShutdownFollowsTheLastBytes(t *testing.T) {
	l := defaultLoop(t)
	streams := manyStreams(l, 5)
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

// echoTurn is one turn of an echo of all streams, as C drives it: received data is sent by the
// next turn.
func echoTurn(tb testing.TB, l *loop, streams []testStream, message, back []byte) {
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
	l := defaultLoop(b)
	streams := manyStreams(l, 20)
	message, back := copyToC(b, bytes.Repeat([]byte("m"), 1024)), make([]byte, 2048)
	b.ReportAllocs()
	for b.Loop() {
		echoTurn(b, l, streams, message, back)
	}
}
