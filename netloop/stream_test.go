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
	l := usualLoop(t)
	s := l.stream(0)
	say(t, s.peer, []byte("hello"))
	d, _ := l.until(CmpData)
	if d.ID != s.id || d.Gen != s.gen || string(d.data) != "hello" {
		t.Errorf("received %+v", d)
	}
	b := inC(t, []byte("answer"))
	l.write(s, b)
	d, _ = l.until(CmpWrote)
	if d.ID != s.id || d.Arg != 6 || d.Gen != s.gen {
		t.Errorf("reported %+v", d)
	}
	if got := hear(t, s.peer); string(got) != "answer" {
		t.Errorf("the peer heard %q", got)
	}
	l.quiet()
}

// A stream that received much at once is received into a lent buffer, as long as
// there is one, and into the arena again once it receives little.
func TestLargeReceivesUseLentBuffers(t *testing.T) {
	l := usualLoop(t)
	s := l.stream(0)
	first := bytes.Repeat([]byte("a"), largeReceive)
	say(t, s.peer, first)
	d, _ := l.until(CmpData)
	if d.Res != 0 || !bytes.Equal(d.data, first) {
		t.Fatalf("the first receive came in buffer %d, %d bytes", d.Res, len(d.data))
	}
	say(t, s.peer, first)
	if d, _ = l.until(CmpData); d.Res != 0 || !bytes.Equal(d.data, first) {
		t.Fatalf("without lent buffers: buffer %d, %d bytes", d.Res, len(d.data))
	}
	l.lend(largeReceive + 10)
	second := bytes.Repeat([]byte("b"), largeReceive+10)
	say(t, s.peer, append(bytes.Clone(second), "tail"...))
	if d, _ = l.until(CmpData); d.Res != 1 || !bytes.Equal(d.data, second) {
		t.Fatalf("a large receive came in buffer %d, %d bytes", d.Res, len(d.data))
	}
	if d, _ = l.until(CmpData); string(d.data) != "tail" {
		t.Fatalf("the rest was %q", d.data)
	}
	say(t, s.peer, []byte("small"))
	if d, _ = l.until(CmpData); d.Res != 0 || string(d.data) != "small" {
		t.Fatalf("a small receive came in buffer %d: %q", d.Res, d.data)
	}
	l.quiet()
}

// Streams that find no buffer left wait for the next turn, in which nothing blocks.
func TestMoreLargeStreamsThanBuffers(t *testing.T) {
	l := usualLoop(t)
	var all []stream
	message := bytes.Repeat([]byte("c"), largeReceive)
	for range LargeMax + 2 {
		s := l.stream(0)
		all = append(all, s)
		say(t, s.peer, message)
		l.until(CmpData)
	}
	l.lend(largeReceive)
	for _, s := range all {
		say(t, s.peer, message)
	}
	got := 0
	for turns := 0; got < len(all); turns++ {
		for _, d := range l.turn(-1) {
			if d.Kind != CmpData || d.Res == 0 || !bytes.Equal(d.data, message) {
				t.Fatalf("completion %+v", d.Completion)
			}
			got++
		}
		if got < len(all) && l.sh.More == 0 {
			t.Fatal("streams are left over, and the next turn may block")
		}
	}
	l.quiet()
}

func TestWritesOfOneTurnGoInOneCall(t *testing.T) {
	calls := kernelCalls()
	l := newLoop(t, usual, calls)
	s := l.stream(0)
	var want []byte
	for i := range 700 {
		b := inC(t, bytes.Repeat([]byte{byte(i)}, 1+i%5))
		want = append(want, b...)
		l.write(s, b)
	}
	d, _ := l.until(CmpWrote)
	if d.Arg != int64(len(want)) || l.sh.Sends != 1 {
		t.Errorf("%d bytes were reported after %d calls", d.Arg, l.sh.Sends)
	}
	if got := hear(t, s.peer); !bytes.Equal(got, want) {
		t.Error("the peer heard something else")
	}
}

func TestMorePiecesThanOneCallTakes(t *testing.T) {
	l := usualLoop(t)
	s := l.stream(0)
	var want []byte
	for i := range 3000 {
		b := []byte{byte(i), byte(i >> 8)}
		want = append(want, b...)
		l.write(s, inC(t, b))
	}
	var got []byte
	for wrote := int64(0); wrote < int64(len(want)); {
		for _, d := range l.turn(-1) {
			wrote += d.Arg
		}
		got = append(got, hear(t, s.peer)...)
	}
	if !bytes.Equal(append(got, hear(t, s.peer)...), want) {
		t.Error("the peer heard something else")
	}
	l.quiet()
}

// A transfer through buffers of the least size, with a reader that stops and goes,
// arrives whole, and every byte is reported once.
func TestLongTransferThroughSmallBuffers(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	a, b := pair(t)
	small(t, a)
	small(t, b)
	from, to := l.open(a, 0), l.open(b, 0)
	rng := rand.New(rand.NewPCG(3, 4))
	data := memory(t, 4<<20)
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
		d, _ := l.until(CmpWrote)
		wrote += int(d.Arg)
	}
	if wrote != len(data) || [32]byte(hash.Sum(nil)) != want {
		t.Errorf("%d of %d bytes reported, or they differ", wrote, len(data))
	}
	l.quiet()
}

func TestEndOfStreamAndHalfClose(t *testing.T) {
	l := usualLoop(t)
	s := l.stream(0)
	if err := sys.Shutdown(s.peer, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	d, _ := l.until(CmpEOF)
	if d.ID != s.id {
		t.Errorf("%+v", d)
	}
	l.quiet() // the end is told once
	if n := l.events(); n != 0 {
		t.Errorf("%d events at the end of a stream", n)
	}
	// Our half still works, is drained, and then shut.
	l.write(s, inC(t, []byte("last words")))
	l.shut(s)
	l.until(CmpWrote)
	if got := hear(t, s.peer); string(got) != "last words" {
		t.Errorf("the peer heard %q", got)
	}
	if n, err := sys.Read(s.peer, make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("the peer reads %d, %v instead of the end", n, err)
	}
	// Both directions are shut: the kernel reports a hang-up that can't be masked.
	l.quiet()
	if n := l.events(); n != 0 {
		t.Errorf("%d events of a stream that is over", n)
	}
}

func TestShutdownWaitsForTheQueue(t *testing.T) {
	l := usualLoop(t)
	s := l.stream(0)
	small(t, int(s.fd))
	data := memory(t, 300_000)
	l.write(s, data)
	l.shut(s)
	wrote, heard := int64(0), 0
	for wrote < int64(len(data)) {
		for _, d := range l.turn(0) {
			if d.Kind != CmpWrote {
				t.Fatalf("%+v", d)
			}
			wrote += d.Arg
		}
		heard += len(hear(t, s.peer))
	}
	heard += len(hear(t, s.peer))
	if n, err := sys.Read(s.peer, make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("the peer reads %d, %v instead of the end", n, err)
	}
	if heard != len(data) {
		t.Errorf("the peer heard %d bytes", heard)
	}
}

func TestPausedStreamIsSilentEvenWhenThePeerIsGone(t *testing.T) {
	l := usualLoop(t)
	a, b := pair(t)
	s := l.open(a, openPaused)
	if _, err := sys.Write(b, []byte("early")); err != nil {
		t.Fatal(err)
	}
	l.quiet()
	_ = sys.Close(b)
	l.quiet()
	if n := l.events(); n != 0 {
		t.Errorf("%d events of a paused stream", n)
	}
	l.resume(s)
	if d, _ := l.until(CmpData); string(d.data) != "early" {
		t.Errorf("received %q", d.data)
	}
	l.until(CmpEOF)
	l.quiet()
	if n := l.events(); n != 0 {
		t.Errorf("%d events after the end", n)
	}
}

func TestPauseInTheMiddle(t *testing.T) {
	l := usualLoop(t)
	s := l.stream(0)
	say(t, s.peer, []byte("one"))
	l.until(CmpData)
	l.pause(s)
	say(t, s.peer, []byte("two"))
	l.quiet()
	// Stop and start within one turn cost nothing and lose nothing.
	l.resume(s)
	l.pause(s)
	l.resume(s)
	if d, _ := l.until(CmpData); string(d.data) != "two" {
		t.Errorf("received %q", d.data)
	}
}

// What left before a connection broke is reported before the break.
// A send would take the socket's error along, and what the peer has sent comes first.
func TestReceivesBeforeTheSendThatFails(t *testing.T) {
	for _, few := range []uint32{0, transports.WantFew} {
		l := usualLoop(t)
		a, b := pair(t)
		small(t, a)
		s := l.open(a, 0)
		l.want(s, few, 0)
		l.writeQuietly(s, memory(t, 500_000))
		l.r.Flush()
		say(t, b, []byte("answer"))
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

func TestProgressBeforeEnd(t *testing.T) {
	l := usualLoop(t)
	a, b := pair(t)
	s := l.open(a, 0)
	l.writeQuietly(s, inC(t, []byte("xyz")))
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

func TestWriteErrorDropsTheQueue(t *testing.T) {
	l := usualLoop(t)
	a, b := pair(t)
	s := l.open(a, openPaused)
	_ = sys.Close(b)
	l.write(s, inC(t, []byte("abc")))
	d, _ := l.until(CmpWriteError)
	if d.ID != s.id || syscall.Errno(d.Res) != syscall.EPIPE || d.Arg != 0 {
		t.Errorf("reported %+v", d)
	}
	l.write(s, inC(t, []byte("more")))
	l.quiet()
	if n := l.events(); n != 0 {
		t.Errorf("%d events of a dead stream", n)
	}
}

func TestPartBeforeWriteErrorIsReportedWithIt(t *testing.T) {
	l := usualLoop(t)
	a, b := pair(t)
	small(t, a)
	s := l.open(a, openPaused)
	l.writeQuietly(s, memory(t, 500_000))
	l.r.Flush()
	sent := l.r.registry.find(s.id, s.gen).stream.Unreported()
	_ = sys.Close(b)
	_, all := l.until(CmpWriteError)
	total := int64(0)
	for _, d := range all {
		total += d.Arg
	}
	if sent == 0 || total != sent {
		t.Errorf("%d bytes had left, %d were reported", sent, total)
	}
}

func TestFlushStreamReportsByTheRecord(t *testing.T) {
	l := usualLoop(t)
	s, other := l.stream(0), l.stream(0)
	l.write(s, inC(t, []byte("12345")))
	l.write(other, inC(t, []byte("678")))
	err := l.r.FlushStream(s.id, s.gen)
	if s.io.Sent != 5 || s.pending() != 0 || err != nil {
		t.Fatalf("FlushStream sent %d: %v", s.io.Sent, err)
	}
	if got := hear(t, s.peer); string(got) != "12345" {
		t.Errorf("the peer heard %q", got)
	}
	// What was written to others before may not come later.
	if got := hear(t, other.peer); string(got) != "678" {
		t.Errorf("the other peer heard %q", got)
	}
	d, all := l.until(CmpWrote)
	if len(all) != 1 || d.ID != other.id || d.Arg != 3 {
		t.Errorf("reported %+v", all)
	}
	if err = l.r.FlushStream(s.id, s.gen+1); ErrnoOf(err) != syscall.ENOENT {
		t.Errorf("FlushStream of another generation: %v", err)
	}
}

// Whoever is told and lets the stream live is told again.
func TestFlushStreamReturnsTheErrorAndTheTurnReportsIt(t *testing.T) {
	l := usualLoop(t)
	a, b := pair(t)
	s := l.open(a, openPaused)
	_ = sys.Close(b)
	l.write(s, inC(t, []byte("12345")))
	if err := l.r.FlushStream(s.id, s.gen); s.io.Sent != 0 || ErrnoOf(err) != syscall.EPIPE {
		t.Errorf("FlushStream sent %d: %v", s.io.Sent, err)
	}
	expectKinds(t, l.turn(-1), CmpWriteError) // and does not block
}

func TestFlushOfAll(t *testing.T) {
	l := usualLoop(t)
	one, two := l.stream(0), l.stream(0)
	l.write(one, inC(t, []byte("a")))
	l.write(two, inC(t, []byte("bc")))
	l.r.Flush()
	if a, b := hear(t, one.peer), hear(t, two.peer); string(a) != "a" || string(b) != "bc" {
		t.Errorf("the peers heard %q and %q", a, b)
	}
	expectKinds(t, l.turn(-1), CmpWrote, CmpWrote)
}

// A quiet write's report does not keep a turn from waiting, and comes with what
// ends the wait.
func TestQuietWrite(t *testing.T) {
	l := usualLoop(t)
	s := l.stream(0)
	b := inC(t, []byte("ping"))
	l.writeQuietly(s, b)
	l.r.Flush()
	if l.r.leftovers() {
		t.Error("a quiet report would keep the turn from waiting")
	}
	say(t, s.peer, []byte("pong"))
	expectKinds(t, l.turn(-1), CmpWrote, CmpData)
	// Somebody who waits has the report of all at once.
	l.writeQuietly(s, b)
	l.write(s, b)
	if d := l.turn(-1); len(d) != 1 || d[0].Kind != CmpWrote || d[0].Arg != 8 {
		t.Errorf("%+v", d)
	}
	l.quiet()
}

// What the kernel did not take at first is reported as it leaves, quiet or not, and
// before an end that is seen in the same turn.
func TestProgressOfABlockedStreamIsReportedAtOnce(t *testing.T) {
	l := usualLoop(t)
	s := l.stream(0)
	small(t, int(s.fd))
	const n = 300_000
	l.writeQuietly(s, memory(t, n))
	l.r.Flush()
	total := int64(0)
	for total < n {
		hear(t, s.peer)
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
	hear(t, s.peer)
}

// A write end whose pipe is full and whose reader goes away gets an error and no
// readiness from the poller.
func TestFullPipeWithoutReader(t *testing.T) {
	l := usualLoop(t)
	var ends [2]int
	if err := sys.Pipe(ends[:]); err != nil {
		t.Fatal(err)
	}
	if err := sys.SetNonblock(ends[1], true); err != nil {
		t.Fatal(err)
	}
	w := l.open(ends[1], openPaused)
	l.write(w, memory(t, 1<<20))
	l.until(CmpWrote)
	l.quiet()
	_ = sys.Close(ends[0])
	if d, _ := l.until(CmpWriteError); syscall.Errno(d.Res) != syscall.EPIPE {
		t.Errorf("%+v", d)
	}
	l.quiet()
}

// A stream that is closed before its report was made takes the report with it, and
// the next turn may wait.
func TestClosedStreamLeavesNoReport(t *testing.T) {
	l := usualLoop(t)
	s := l.stream(0)
	l.write(s, inC(t, []byte("x")))
	l.r.Flush()
	if !l.r.leftovers() {
		t.Fatal("no report is due")
	}
	l.close(s)
	if l.r.leftovers() {
		t.Error("the report of a closed stream is due")
	}
	l.quiet()
}

func TestNothingOfAClosedStreamIsDelivered(t *testing.T) {
	calls := kernelCalls()
	l := newLoop(t, sizes{minCompletions, minArena}, calls)
	var streams []stream
	for range 40 {
		s := l.stream(0)
		say(t, s.peer, make([]byte, 3000))
		streams = append(streams, s)
	}
	closed := map[token]bool{}
	for len(streams) > 0 {
		for _, d := range l.turn(0) {
			if closed[makeToken(d.ID, d.Gen)] {
				t.Fatalf("%+v is of a closed stream", d)
			}
		}
		// The last one was told of by the poller, still waits for its turn, and has
		// a write queued as well when it is closed.
		s := streams[len(streams)-1]
		streams = streams[:len(streams)-1]
		l.write(s, inC(t, []byte("x")))
		l.close(s)
		closed[makeToken(s.id, s.gen)] = true
	}
	l.quiet()
}

func TestNumberAndIDAreUsedAgainUnderANewGeneration(t *testing.T) {
	l := usualLoop(t)
	a, b := pair(t)
	old := l.open(a, 0)
	l.write(old, inC(t, []byte("for nobody")))
	l.close(old)
	_ = sys.Close(b)
	s := l.stream(0)
	if s.id != old.id || s.gen == old.gen {
		t.Fatalf("id %d, generation %d follow %d, %d", s.id, s.gen, old.id, old.gen)
	}
	old.io.Listed = 0
	l.shut(old)
	l.quiet()
	if got := hear(t, s.peer); len(got) != 0 {
		t.Errorf("the stream that has the number now heard %q", got)
	}
	say(t, s.peer, []byte("hi"))
	l.until(CmpData)
	if err := l.end(old.id, old.gen); ErrnoOf(err) != syscall.ENOENT {
		t.Errorf("closing twice: %v", err)
	}
	if l.r.Facts().Ignored != 2 {
		t.Errorf("%d submissions were ignored", l.r.Facts().Ignored)
	}
}

func TestPipesAreStreamsToo(t *testing.T) {
	l := usualLoop(t)
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
	l.write(w, inC(t, []byte("through ")))
	l.write(w, inC(t, []byte("a pipe")))
	d, all := l.until(CmpData)
	if string(d.data) != "through a pipe" || d.ID != r.id {
		t.Errorf("%+v", all)
	}
	l.close(w)
	l.until(CmpEOF)
}

func TestOpenRefusesWhatCannotBePolled(t *testing.T) {
	l := usualLoop(t)
	fd, err := sys.Open("stream_test.go", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(fd)
	if _, _, err := l.r.StreamOpen(int32(fd), reading(), 0); ErrnoOf(err) != syscall.EPERM {
		t.Errorf("a regular file: %v", err)
	}
	for _, bad := range []int32{-1, 1 << 30} {
		if _, _, err := l.r.StreamOpen(bad, reading(), 0); ErrnoOf(err) != syscall.EBADF {
			t.Errorf("descriptor %d: %v", bad, err)
		}
	}
}

// The writing end of a pipe hears of the end before it fails to write.
func TestWatchedEnd(t *testing.T) {
	l := usualLoop(t)
	ends := make([]int, 2)
	if err := sys.Pipe(ends); err != nil {
		t.Fatal(err)
	}
	if err := sys.SetNonblock(ends[1], true); err != nil {
		t.Fatal(err)
	}
	w := l.open(ends[1], OpenWatchEnd)
	full := inC(t, make([]byte, 1<<20))
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

// What a peer says to a stream that watches for the end is its end, and is left unread.
func TestWatchedEndReadsNothing(t *testing.T) {
	l := usualLoop(t)
	s := l.stream(openPaused | OpenWatchEnd)
	say(t, s.peer, []byte("unasked"))
	l.quiet()
	l.resume(s)
	expectKinds(t, l.turn(-1), CmpEOF)
	l.quiet()
	if got := hear(t, int(s.fd)); string(got) != "unasked" {
		t.Errorf("%q was left unread", got)
	}
}

// A busy pipe is read more than once in a turn, as long as there are buffers.
func TestBusyPipeIsReadTwice(t *testing.T) {
	l := usualLoop(t)
	ends := make([]int, 2)
	if err := sys.Pipe(ends); err != nil {
		t.Fatal(err)
	}
	for _, end := range ends {
		if err := sys.SetNonblock(end, true); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = sys.Close(ends[1]) })
	s := l.open(ends[0], 0)
	full := make([]byte, largeReceive)
	say(t, ends[1], full)
	expectKinds(t, l.turn(-1), CmpData) // into the arena: that it is busy is not known yet
	l.lend(largeReceive)
	say(t, ends[1], full)
	say(t, ends[1], full[:10])
	d := l.turn(-1)
	expectKinds(t, d, CmpData, CmpData)
	if d[0].Arg != largeReceive || d[1].Arg != 10 || d[0].Res != 1 || d[1].Res != 2 {
		t.Errorf("%+v", d)
	}
	say(t, ends[1], full)
	l.lend(largeReceive)
	expectKinds(t, l.turn(-1), CmpData)
	l.close(s)
}

// C receives by itself for a stream that it reads directly, and is told until it does.
func TestDirectReading(t *testing.T) {
	l := usualLoop(t)
	s := l.stream(0)
	l.want(s, transports.WantDirect, 0)
	say(t, s.peer, []byte("for C"))
	for range 2 {
		got := l.turn(-1)
		expectKinds(t, got, CmpReady)
		if got[0].ID != s.id || got[0].Res != int32(readable) {
			t.Errorf("ready is %+v", got[0])
		}
	}
	l.pause(s)
	l.quiet()
	l.want(s, 0, transports.WantDirect)
	l.resume(s)
	got := l.turn(-1)
	expectKinds(t, got, CmpData)
	if string(got[0].data) != "for C" {
		t.Errorf("received %q", got[0].data)
	}
}
