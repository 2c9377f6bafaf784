package netloop

import (
	"bytes"
	"crypto/sha256"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/goloop/goloop/transports"
	"golang.org/x/sys/unix"
)

func TestStreamReceivesAndSends(t *testing.T) {
	l := defaultLoop(t)
	s := l.stream(0)
	writePeer(t, s.peer, []byte("hello"))
	d, _ := l.turnUntil(CmpData)
	if d.ID != s.id || d.Gen != s.gen || string(d.data) != "hello" {
		t.Errorf("received %+v", d)
	}
	b := copyToC(t, []byte("answer"))
	l.write(s, b)
	d, _ = l.turnUntil(CmpWrote)
	if d.ID != s.id || d.Arg != 6 || d.Gen != s.gen {
		t.Errorf("reported %+v", d)
	}
	if got := readPeer(t, s.peer); string(got) != "answer" {
		t.Errorf("the peer received %q", got)
	}
	l.expectIdle()
}

// A pipe from which much was received at once is received into a large buffer while there is one,
// and into the arena again after a small receive. A socket always uses the arena.
func TestLargeReceivesOfPipesUseLentBuffers(t *testing.T) {
	l := defaultLoop(t)
	s := l.readingPipe()
	first := bytes.Repeat([]byte("a"), largeReceive)
	writePeer(t, s.peer, first)
	d, _ := l.turnUntil(CmpData)
	if d.Res != 0 || !bytes.Equal(d.data, first) {
		t.Fatalf("the first receive used buffer %d, %d bytes", d.Res, len(d.data))
	}
	writePeer(t, s.peer, first)
	if d, _ = l.turnUntil(CmpData); d.Res != 0 || !bytes.Equal(d.data, first) {
		t.Fatalf("without lent buffers: buffer %d, %d bytes", d.Res, len(d.data))
	}
	l.lendLargeBuffers(largeReceive + 10)
	second := bytes.Repeat([]byte("b"), largeReceive+10)
	writePeer(t, s.peer, second)
	if d, _ = l.turnUntil(CmpData); d.Res != 1 || !bytes.Equal(d.data, second) {
		t.Fatalf("a large receive used buffer %d, %d bytes", d.Res, len(d.data))
	}
	writePeer(t, s.peer, []byte("small"))
	l.turnUntil(CmpData)
	writePeer(t, s.peer, []byte("small"))
	if d, _ = l.turnUntil(CmpData); d.Res != 0 || string(d.data) != "small" {
		t.Fatalf("a small receive used buffer %d: %q", d.Res, d.data)
	}
	socket := l.stream(0)
	for range 2 {
		writePeer(t, socket.peer, first)
		if d, _ = l.turnUntil(CmpData); d.Res != 0 || !bytes.Equal(d.data, first) {
			t.Fatalf("a socket used buffer %d, %d bytes", d.Res, len(d.data))
		}
	}
	l.expectIdle()
}

// Pipes that find no large buffer in a turn use the arena.
func TestPipesBeyondTheLentBuffersUseTheArena(t *testing.T) {
	l := defaultLoop(t)
	var all []testStream
	message := bytes.Repeat([]byte("c"), largeReceive)
	for range MaxLarge + 2 {
		s := l.readingPipe()
		all = append(all, s)
		writePeer(t, s.peer, message)
		l.turnUntil(CmpData)
	}
	l.lendLargeBuffers(largeReceive)
	for _, s := range all {
		writePeer(t, s.peer, message)
	}
	lent, got := 0, 0
	for got < len(all) {
		for _, d := range l.turn(-1) {
			if d.Kind != CmpData || !bytes.Equal(d.data, message) {
				t.Fatalf("completion %+v", d.Completion)
			}
			got++
			if d.Res != 0 {
				lent++
			}
		}
	}
	if lent == 0 || lent > MaxLarge {
		t.Errorf("%d large buffers were used", lent)
	}
	l.expectIdle()
}

func TestWritesOfOneTurnAreSentByOneCall(t *testing.T) {
	calls := kernelCalls()
	l := newLoop(t, defaultSizes, calls)
	s := l.stream(0)
	var want []byte
	for i := range 700 {
		b := copyToC(t, bytes.Repeat([]byte{byte(i)}, 1+i%5))
		want = append(want, b...)
		l.write(s, b)
	}
	d, _ := l.turnUntil(CmpWrote)
	if d.Arg != int64(len(want)) || l.sh.Sends != 1 {
		t.Errorf("%d bytes were reported after %d calls", d.Arg, l.sh.Sends)
	}
	if got := readPeer(t, s.peer); !bytes.Equal(got, want) {
		t.Error("the peer received other bytes")
	}
}

func TestQueueWithMoreVectorsThanOneCallSends(t *testing.T) {
	l := defaultLoop(t)
	s := l.stream(0)
	var want []byte
	for i := range 3000 {
		b := []byte{byte(i), byte(i >> 8)}
		want = append(want, b...)
		l.write(s, copyToC(t, b))
	}
	var got []byte
	for wrote := int64(0); wrote < int64(len(want)); {
		for _, d := range l.turn(-1) {
			wrote += d.Arg
		}
		got = append(got, readPeer(t, s.peer)...)
	}
	if !bytes.Equal(append(got, readPeer(t, s.peer)...), want) {
		t.Error("the peer received other bytes")
	}
	l.expectIdle()
}

// A transfer through the smallest possible buffers, with a reader that pauses, arrives
// completely, and each byte is reported once.
func TestLongTransferThroughSmallBuffers(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	a, b := pair(t)
	shrinkBuffers(t, a)
	shrinkBuffers(t, b)
	from, to := l.open(a, 0), l.open(b, 0)
	rng := rand.New(rand.NewPCG(3, 4))
	data := mapMemory(t, 4<<20)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	want := sha256.Sum256(data)
	hash := sha256.New()
	queued, wrote, received, paused := 0, 0, 0, false
	for received < len(data) {
		for queued < len(data) && queued-wrote < 256<<10 {
			n := min(1+rng.IntN(20_000), len(data)-queued)
			l.write(from, data[queued:queued+n])
			queued += n
		}
		if paused {
			l.resume(to)
			paused = false
		} else if rng.IntN(4) == 0 {
			l.pause(to)
			paused = true
		}
		timeout := int64(-1)
		if paused {
			timeout = 0
		}
		for _, d := range l.turn(timeout) {
			switch {
			case d.Kind == CmpWrote && d.ID == from.id:
				wrote += int(d.Arg)
			case d.Kind == CmpData && d.ID == to.id:
				hash.Write(d.data)
				received += len(d.data)
			default:
				t.Fatalf("unexpected %+v", d)
			}
		}
		if received > wrote+64<<10 {
			t.Fatalf("%d bytes were received, %d reported as sent", received, wrote)
		}
	}
	for wrote < len(data) {
		d, _ := l.turnUntil(CmpWrote)
		wrote += int(d.Arg)
	}
	if wrote != len(data) || [32]byte(hash.Sum(nil)) != want {
		t.Errorf("%d of %d bytes reported, or they differ", wrote, len(data))
	}
	l.expectIdle()
}

func TestStreamSendsAfterThePeersHalfClose(t *testing.T) {
	l := defaultLoop(t)
	s := l.stream(0)
	if err := sys.Shutdown(s.peer, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	d, _ := l.turnUntil(CmpEOF)
	if d.ID != s.id {
		t.Errorf("%+v", d)
	}
	l.expectIdle() // the end is reported once
	if n := l.pendingEvents(); n != 0 {
		t.Errorf("%d events at the end of a stream", n)
	}
	// Our half still works. It is flushed and then shut down.
	l.write(s, copyToC(t, []byte("last words")))
	l.shut(s)
	l.turnUntil(CmpWrote)
	if got := readPeer(t, s.peer); string(got) != "last words" {
		t.Errorf("the peer received %q", got)
	}
	if n, err := sys.Read(s.peer, make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("the peer reads %d, %v instead of the end", n, err)
	}
	// Both directions are shut down: the kernel reports a hang-up that cannot be masked.
	l.expectIdle()
	if n := l.pendingEvents(); n != 0 {
		t.Errorf("%d events of a stream that is over", n)
	}
}

func TestShutdownWaitsForPendingWrites(t *testing.T) {
	l := defaultLoop(t)
	s := l.stream(0)
	shrinkBuffers(t, int(s.fd))
	data := mapMemory(t, 300_000)
	l.write(s, data)
	l.shut(s)
	wrote, received := int64(0), 0
	for wrote < int64(len(data)) {
		for _, d := range l.turn(0) {
			if d.Kind != CmpWrote {
				t.Fatalf("%+v", d)
			}
			wrote += d.Arg
		}
		received += len(readPeer(t, s.peer))
	}
	received += len(readPeer(t, s.peer))
	if n, err := sys.Read(s.peer, make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("the peer reads %d, %v instead of the end", n, err)
	}
	if received != len(data) {
		t.Errorf("the peer received %d bytes", received)
	}
}

func TestPausedStreamIsNotPolledAfterAHangUp(t *testing.T) {
	l := defaultLoop(t)
	a, b := pair(t)
	s := l.open(a, openPaused)
	if _, err := sys.Write(b, []byte("early")); err != nil {
		t.Fatal(err)
	}
	l.expectIdle()
	_ = sys.Close(b)
	l.expectIdle()
	if n := l.pendingEvents(); n != 0 {
		t.Errorf("%d events of a paused stream", n)
	}
	l.resume(s)
	if d, _ := l.turnUntil(CmpData); string(d.data) != "early" {
		t.Errorf("received %q", d.data)
	}
	l.turnUntil(CmpEOF)
	l.expectIdle()
	if n := l.pendingEvents(); n != 0 {
		t.Errorf("%d events after the end", n)
	}
}

func TestPauseAndResumeBetweenReceives(t *testing.T) {
	l := defaultLoop(t)
	s := l.stream(0)
	writePeer(t, s.peer, []byte("one"))
	l.turnUntil(CmpData)
	l.pause(s)
	writePeer(t, s.peer, []byte("two"))
	l.expectIdle()
	// Pausing and resuming within one turn has no cost and loses no data.
	l.resume(s)
	l.pause(s)
	l.resume(s)
	if d, _ := l.turnUntil(CmpData); string(d.data) != "two" {
		t.Errorf("received %q", d.data)
	}
}

// Bytes that were sent before a connection broke are reported before the error. Bytes from the
// peer are received before a send, because the send would take the socket's error with it.
func TestBrokenStreamReceivesBeforeItSends(t *testing.T) {
	for _, inC := range []uint32{0, transports.WantReceiveInC, transports.WantReceiveInEagerTurn} {
		l := defaultLoop(t)
		a, b := pair(t)
		shrinkBuffers(t, a)
		s := l.open(a, 0)
		l.setWants(s, inC, 0)
		l.write(s, mapMemory(t, 500_000))
		l.r.Flush()
		writePeer(t, b, []byte("answer"))
		_ = sys.Close(b)
		var kinds []CompletionKind
		for len(kinds) == 0 || kinds[len(kinds)-1] != CmpWriteError {
			for _, d := range l.turn(-1) {
				kinds = append(kinds, d.Kind)
			}
		}
		if !slices.Equal(kinds, []CompletionKind{CmpWrote, CmpData, CmpWriteError}) {
			t.Errorf("%v", kinds)
		}
	}
}

func TestSentBytesAreReportedBeforeTheEnd(t *testing.T) {
	l := defaultLoop(t)
	a, b := pair(t)
	s := l.open(a, 0)
	l.write(s, copyToC(t, []byte("xyz")))
	l.r.Flush()
	_ = sys.Close(b)
	var kinds []CompletionKind
	for len(kinds) < 2 {
		for _, d := range l.turn(-1) {
			kinds = append(kinds, d.Kind)
		}
	}
	if kinds[0] != CmpWrote || kinds[1] != CmpReadError && kinds[1] != CmpEOF {
		t.Errorf("kinds are %v", kinds)
	}
}

func TestWriteErrorDiscardsPendingWrites(t *testing.T) {
	l := defaultLoop(t)
	a, b := pair(t)
	s := l.open(a, openPaused)
	_ = sys.Close(b)
	l.write(s, copyToC(t, []byte("abc")))
	d, _ := l.turnUntil(CmpWriteError)
	if d.ID != s.id || syscall.Errno(d.Res) != syscall.EPIPE || d.Arg != 0 {
		t.Errorf("reported %+v", d)
	}
	l.write(s, copyToC(t, []byte("more")))
	l.expectIdle()
	if n := l.pendingEvents(); n != 0 {
		t.Errorf("%d events of a dead stream", n)
	}
}

func TestWriteErrorReportsTheBytesSentBefore(t *testing.T) {
	l := defaultLoop(t)
	a, b := pair(t)
	shrinkBuffers(t, a)
	s := l.open(a, openPaused)
	l.write(s, mapMemory(t, 500_000))
	l.r.Flush()
	sent := l.r.registry.find(s.id, s.gen).stream.UnreportedBytes()
	_ = sys.Close(b)
	_, all := l.turnUntil(CmpWriteError)
	total := int64(0)
	for _, d := range all {
		total += d.Arg
	}
	if sent == 0 || total != sent {
		t.Errorf("%d bytes were sent, %d were reported", sent, total)
	}
}

func TestFlushStreamReportsInTheRecord(t *testing.T) {
	l := defaultLoop(t)
	s, other := l.stream(0), l.stream(0)
	l.write(s, copyToC(t, []byte("12345")))
	l.write(other, copyToC(t, []byte("678")))
	err := l.r.FlushStream(s.id, s.gen)
	if s.io.Sent != 5 || s.pending() != 0 || err != nil {
		t.Fatalf("FlushStream sent %d: %v", s.io.Sent, err)
	}
	if got := readPeer(t, s.peer); string(got) != "12345" {
		t.Errorf("the peer received %q", got)
	}
	// Bytes that were written to other streams earlier must not be sent later.
	if got := readPeer(t, other.peer); string(got) != "678" {
		t.Errorf("the other peer received %q", got)
	}
	d, all := l.turnUntil(CmpWrote)
	if len(all) != 1 || d.ID != other.id || d.Arg != 3 {
		t.Errorf("reported %+v", all)
	}
	if err = l.r.FlushStream(s.id, s.gen+1); ErrnoOf(err) != syscall.ENOENT {
		t.Errorf("FlushStream with a stale generation returned %v", err)
	}
}

// An error that FlushStream returned is also reported by the turn, unless C ends the stream.
func TestFlushStreamReturnsTheErrorAndTheTurnReportsIt(t *testing.T) {
	l := defaultLoop(t)
	a, b := pair(t)
	s := l.open(a, openPaused)
	_ = sys.Close(b)
	l.write(s, copyToC(t, []byte("12345")))
	if err := l.r.FlushStream(s.id, s.gen); s.io.Sent != 0 || ErrnoOf(err) != syscall.EPIPE {
		t.Errorf("FlushStream sent %d: %v", s.io.Sent, err)
	}
	expectKinds(t, l.turn(-1), CmpWriteError) // and does not block
}

func TestFlushSendsPendingWritesOfAllStreams(t *testing.T) {
	l := defaultLoop(t)
	one, two := l.stream(0), l.stream(0)
	l.write(one, copyToC(t, []byte("a")))
	l.write(two, copyToC(t, []byte("bc")))
	l.r.Flush()
	if a, b := readPeer(t, one.peer), readPeer(t, two.peer); string(a) != "a" || string(b) != "bc" {
		t.Errorf("the peers received %q and %q", a, b)
	}
	expectKinds(t, l.turn(-1), CmpWrote, CmpWrote)
}

// A write without WantReport has no report: C looks at the record after the turn.
func TestWriteWithoutReportDoesNotEndAWait(t *testing.T) {
	l := defaultLoop(t)
	s := l.stream(0)
	b := copyToC(t, []byte("ping"))
	l.writeUnreported(s, b)
	l.r.Flush()
	if l.r.hasLeftovers() {
		t.Error("a quiet report would keep the turn from waiting")
	}
	writePeer(t, s.peer, []byte("pong"))
	expectKinds(t, l.turn(-1), CmpData)
	// With WantReport, all sent bytes are reported without delay.
	l.writeUnreported(s, b)
	l.write(s, b)
	if d := l.turn(-1); len(d) != 1 || d[0].Kind != CmpWrote || d[0].Arg != 8 {
		t.Errorf("%+v", d)
	}
	l.expectIdle()
}

// Bytes that the kernel did not accept at first are reported when they are sent, with or
// without WantReport, and before an end that is found in the same turn.
func TestBlockedStreamReportsSentBytesWithoutDelay(t *testing.T) {
	l := defaultLoop(t)
	s := l.stream(0)
	shrinkBuffers(t, int(s.fd))
	const n = 300_000
	l.writeUnreported(s, mapMemory(t, n))
	l.r.Flush()
	total := int64(s.io.Sent)
	for total < n {
		readPeer(t, s.peer)
		if total > n/2 {
			_ = sys.Shutdown(s.peer, unix.SHUT_WR)
		}
		all := l.turn(-1)
		if len(all) == 0 || all[0].Kind != CmpWrote {
			t.Fatalf("%+v", all)
		}
		for i, d := range all {
			total += d.Arg
			if d.Kind != CmpWrote && (d.Kind != CmpEOF || i != len(all)-1) {
				t.Fatalf("%+v", all)
			}
		}
	}
	readPeer(t, s.peer)
}

// A write end of a full pipe whose reader closes gets an error, and the poller does not
// report it any more.
func TestFullPipeWithoutReaderGetsAnError(t *testing.T) {
	l := defaultLoop(t)
	var ends [2]int
	if err := sys.Pipe(ends[:]); err != nil {
		t.Fatal(err)
	}
	if err := sys.SetNonblock(ends[1], true); err != nil {
		t.Fatal(err)
	}
	w := l.open(ends[1], openPaused)
	l.write(w, mapMemory(t, 1<<20))
	l.turnUntil(CmpWrote)
	l.expectIdle()
	_ = sys.Close(ends[0])
	if d, _ := l.turnUntil(CmpWriteError); syscall.Errno(d.Res) != syscall.EPIPE {
		t.Errorf("%+v", d)
	}
	l.expectIdle()
}

// A stream that is closed before its report was made has no report afterwards.
func TestDeregisteredStreamIsNotReported(t *testing.T) {
	l := defaultLoop(t)
	s := l.stream(0)
	l.write(s, copyToC(t, []byte("x")))
	l.r.Flush()
	if !l.r.hasLeftovers() {
		t.Fatal("no report is due")
	}
	l.close(s)
	l.expectIdle()
}

func TestEventsOfADeregisteredStreamAreDropped(t *testing.T) {
	calls := kernelCalls()
	l := newLoop(t, sizes{minCompletions, minArena}, calls)
	var streams []testStream
	for range 40 {
		s := l.stream(0)
		writePeer(t, s.peer, make([]byte, 3000))
		streams = append(streams, s)
	}
	closed := map[token]bool{}
	for len(streams) > 0 {
		for _, d := range l.turn(0) {
			if closed[makeToken(d.ID, d.Gen)] {
				t.Fatalf("%+v is of a closed stream", d)
			}
		}
		// The poller has reported the last stream, the stream is not served yet, and it has a
		// pending write when it is closed.
		s := streams[len(streams)-1]
		streams = streams[:len(streams)-1]
		l.write(s, copyToC(t, []byte("x")))
		l.close(s)
		closed[makeToken(s.id, s.gen)] = true
	}
	l.expectIdle()
}

func TestReusedFDAndIDGetANewGeneration(t *testing.T) {
	l := defaultLoop(t)
	a, b := pair(t)
	old := l.open(a, 0)
	l.write(old, copyToC(t, []byte("stale data")))
	l.close(old)
	_ = sys.Close(b)
	s := l.stream(0)
	if s.id != old.id || s.gen == old.gen {
		t.Fatalf("id %d, generation %d follow %d, %d", s.id, s.gen, old.id, old.gen)
	}
	old.io.Listed = 0
	l.shut(old)
	l.expectIdle()
	if got := readPeer(t, s.peer); len(got) != 0 {
		t.Errorf("the stream that now has the number received %q", got)
	}
	writePeer(t, s.peer, []byte("hi"))
	l.turnUntil(CmpData)
	if err := l.deregister(old.id, old.gen); ErrnoOf(err) != syscall.ENOENT {
		t.Errorf("closing twice: %v", err)
	}
	if l.r.Stats().Ignored != 2 {
		t.Errorf("%d submissions were ignored", l.r.Stats().Ignored)
	}
}

func TestPipesAreStreams(t *testing.T) {
	l := defaultLoop(t)
	var ends [2]int
	if err := sys.Pipe(ends[:]); err != nil {
		t.Fatal(err)
	}
	for _, fd := range ends {
		if err := sys.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
	}
	r, w := l.open(ends[0], 0), l.open(ends[1], openPaused)
	l.write(w, copyToC(t, []byte("through ")))
	l.write(w, copyToC(t, []byte("a pipe")))
	d, all := l.turnUntil(CmpData)
	if string(d.data) != "through a pipe" || d.ID != r.id {
		t.Errorf("%+v", all)
	}
	l.close(w)
	l.turnUntil(CmpEOF)
}

func TestStreamOpenRefusesFilesThatCannotBePolled(t *testing.T) {
	l := defaultLoop(t)
	fd, err := sys.Open("stream_test.go", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(fd)
	if _, _, err := l.r.StreamOpen(int32(fd), readingRecord(), 0); ErrnoOf(err) != syscall.EPERM {
		t.Errorf("a regular file: %v", err)
	}
	for _, bad := range []int32{-1, 1 << 30} {
		if _, _, err := l.r.StreamOpen(bad, readingRecord(), 0); ErrnoOf(err) != syscall.EBADF {
			t.Errorf("descriptor %d: %v", bad, err)
		}
	}
}

// The writing end of a pipe reports the end before a write fails.
func TestStreamWithWatchEndReportsTheEnd(t *testing.T) {
	l := defaultLoop(t)
	ends := make([]int, 2)
	if err := sys.Pipe(ends); err != nil {
		t.Fatal(err)
	}
	if err := sys.SetNonblock(ends[1], true); err != nil {
		t.Fatal(err)
	}
	w := l.open(ends[1], OpenWatchEnd)
	full := copyToC(t, make([]byte, 1<<20))
	l.write(w, full)
	_ = l.turn(0)
	_ = sys.Close(ends[0])
	d := l.turn(-1)
	if last := d[len(d)-1]; last.Kind != CmpEOF || last.ID != w.id {
		t.Fatalf("%+v", d)
	}
	for _, c := range d {
		if c.Kind == CmpWriteError {
			t.Errorf("the end was written past: %+v", d)
		}
	}
}

// Data from the peer of a stream with OpenWatchEnd counts as the end and is not read.
func TestStreamWithWatchEndDoesNotReceive(t *testing.T) {
	l := defaultLoop(t)
	s := l.stream(openPaused | OpenWatchEnd)
	writePeer(t, s.peer, []byte("unasked"))
	l.expectIdle()
	l.resume(s)
	expectKinds(t, l.turn(-1), CmpEOF)
	l.expectIdle()
	if got := readPeer(t, int(s.fd)); string(got) != "unasked" {
		t.Errorf("unread bytes: %q", got)
	}
}

// A busy pipe is read more than once in a turn while there are buffers.
func TestBusyPipeIsReadTwicePerTurn(t *testing.T) {
	l := defaultLoop(t)
	s := l.readingPipe()
	full := make([]byte, largeReceive)
	writePeer(t, s.peer, full)
	expectKinds(t, l.turn(-1), CmpData) // into the arena: the pipe is not known to be busy yet
	l.lendLargeBuffers(largeReceive)
	writePeer(t, s.peer, full)
	writePeer(t, s.peer, full[:10])
	d := l.turn(-1)
	expectKinds(t, d, CmpData, CmpData)
	if d[0].Arg != largeReceive || d[1].Arg != 10 || d[0].Res != 1 || d[1].Res != 2 {
		t.Errorf("%+v", d)
	}
	writePeer(t, s.peer, full)
	l.lendLargeBuffers(largeReceive)
	expectKinds(t, l.turn(-1), CmpData)
	l.close(s)
}

// For a stream with WantReceiveInC, C receives, and READY is reported until it does.
func TestReadyIsReportedWhileCReceives(t *testing.T) {
	l := defaultLoop(t)
	s := l.stream(0)
	l.setWants(s, transports.WantReceiveInC, 0)
	writePeer(t, s.peer, []byte("for C"))
	for range 2 {
		got := l.turn(-1)
		expectKinds(t, got, CmpReady)
		if got[0].ID != s.id || got[0].Res != int32(readable) {
			t.Errorf("ready is %+v", got[0])
		}
	}
	l.pause(s)
	l.expectIdle()
	l.setWants(s, 0, transports.WantReceiveInC)
	l.resume(s)
	got := l.turn(-1)
	expectKinds(t, got, CmpData)
	if string(got[0].data) != "for C" {
		t.Errorf("received %q", got[0].data)
	}
}
