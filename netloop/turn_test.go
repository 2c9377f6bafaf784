package netloop

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// arm submits a timer.
func (l *loop) arm(id uint32, deadline int64) { l.submit(SubTimerArm, id, 0, deadline) }

// checkTimerAccuracy waits for timers a fraction of a millisecond away. Each waiting turn must
// end at the timer's deadline, deliver the timer, and never be early. A busy machine does not
// permit an assertion about the delay.
func checkTimerAccuracy(t *testing.T, l *loop) {
	t.Helper()
	for i := range 20 {
		deadline := l.r.clock.now() + int64(50_000+i*20_000)
		l.arm(uint32(i), deadline)
		d := l.turn(-1)
		// Unlike the library's Go runtime, this one preempts by signals, which end waits.
		for tries := 0; len(d) == 0 && tries < 3; tries++ {
			d = l.turn(-1)
		}
		expectKinds(t, d, CmpTimer)
		after, err := testKernel.now()
		if err != nil {
			t.Fatal(err)
		}
		if d[0].ID != uint32(i) || l.sh.Now < deadline || after < deadline {
			t.Fatalf("timer %d of %d expired at %d", d[0].ID, deadline, l.sh.Now)
		}
	}
}

func TestTimersAreExact(t *testing.T) { checkTimerAccuracy(t, defaultLoop(t)) }

// Several timers share a turn. A single timer, or a distant one, is not delayed.
func TestTimersWithCloseDeadlinesShareATurn(t *testing.T) {
	for _, c := range []struct {
		due  int
		next int64
		wait int64
	}{
		{timerGroup, timerSlack, 2 * timerSlack},
		{3 * timerGroup, timerSlack, 4 * timerSlack},
		{32 * timerGroup, timerSlack, timerSlack + maxTimerSlack},
		{timerGroup - 1, timerSlack, timerSlack},
		{timerGroup, 100 * timerSlack, 100 * timerSlack},
		// the next deadline was reached while these ran
		{3 * timerGroup, -timerSlack, 2 * timerSlack},
		{3 * timerGroup, -4 * timerSlack, 0},
		{32 * timerGroup, -maxTimerSlack, 0},
		{timerGroup - 1, -timerSlack, 0},
	} {
		l := defaultLoop(t)
		now := l.r.clock.now()
		for id := range c.due {
			l.arm(uint32(id), now-1)
		}
		if d := l.turn(0); len(d) != c.due {
			t.Fatalf("%d of %d timers expired", len(d), c.due)
		}
		if left := l.r.timerWait(now+c.next, now); left != c.wait {
			t.Errorf("%+v: waits for %d ns", c, left)
		}
		// A timer that is armed for later does not change the wait; a timer that is due
		// prevents it.
		l.arm(1000, now+timerSlack)
		l.r.applySubmissions()
		if left := l.r.timerWait(now+c.next, now); left != c.wait {
			t.Errorf("%+v: waits for %d ns beside a timer for later", c, left)
		}
		l.arm(1001, now)
		l.r.applySubmissions()
		if left := l.r.timerWait(now, now); left != 0 {
			t.Errorf("%+v: waits for %d ns though a timer was armed for now", c, left)
		}
	}
}

func TestOnSlowIterationGetsTheLimitThatWasReached(t *testing.T) {
	l := defaultLoop(t)
	l.r.OnSlowIteration = func(began, length, limit int64) {
		if limit != 1 || length < limit {
			t.Errorf("%d ns, with a limit of %d", length, limit)
		}
		l.sh.SlowLimit = 0
	}
	l.sh.SlowLimit = 1
	l.sh.Now -= 10 // the clock of a simulated kernel does not advance
	l.turn(0)
	if l.sh.SlowLimit != 0 {
		t.Error("not recorded")
	}
}

func TestTimersExpireInOrder(t *testing.T) {
	l := defaultLoop(t)
	now := l.r.clock.now()
	l.arm(3, now-10)
	l.arm(1, now-10)
	l.arm(2, now-20)
	l.arm(4, now+1_000_000)
	l.arm(5, now+3600_000_000_000)
	l.submit(SubTimerCancel, 77, 0, 0)
	var order []uint32
	for len(order) < 4 {
		for _, d := range l.turn(-1) {
			order = append(order, d.ID)
		}
	}
	if fmt.Sprint(order) != "[2 3 1 4]" {
		t.Errorf("order is %v", order)
	}
	if l.sh.NextDeadline != now+3600_000_000_000 {
		t.Errorf("the next deadline is %d", l.sh.NextDeadline)
	}
	l.submit(SubTimerCancel, 5, 0, 0)
	l.expectIdle()
	if l.sh.NextDeadline != DeadlineNone {
		t.Errorf("the next deadline is %d", l.sh.NextDeadline)
	}
}

func TestTimeoutEndsTheWait(t *testing.T) {
	l := defaultLoop(t)
	l.arm(0, l.r.clock.now()+3600_000_000_000)
	// A signal by which Go preempts the test's goroutine ends some waits early (EINTR), but not
	// all of them.
	var waits []int64
	for range 20 {
		before := l.r.clock.now()
		expectKinds(t, l.turn(300_000))
		waited := l.sh.Now - before
		if waited >= 300_000 {
			return
		}
		waits = append(waits, waited)
	}
	t.Errorf("the waits took %d ns", waits)
}

func TestClockFollowsTheKernelsAndIsNeverAhead(t *testing.T) {
	c, err := newClock(kernelCalls().Clock)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		before, err := testKernel.now()
		if err != nil {
			t.Fatal(err)
		}
		got := c.now()
		after, err := testKernel.now()
		if err != nil {
			t.Fatal(err)
		}
		if got > after || got < before-1_000_000 {
			t.Fatalf("the clock returned %d between %d and %d", got, before, after)
		}
	}
}

// Timers beyond the space for completions are not lost, and the turn reports leftovers.
func TestTimersBeyondTheSpaceStayArmed(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	now := l.r.clock.now()
	for i := range uint32(100) {
		l.arm(i, now-1000+int64(i))
	}
	next := uint32(0)
	for next < 100 {
		for _, d := range l.turn(-1) {
			if d.Kind != CmpTimer || d.ID != next {
				t.Fatalf("%+v, want timer %d", d, next)
			}
			next++
		}
		if (l.sh.More != 0) != (next < 100) {
			t.Fatalf("More is %d after %d timers", l.sh.More, next)
		}
	}
}

// The memory of many timers is returned to the system once, outside of the turn.
func TestMemoryOfManyTimersIsFreedOnce(t *testing.T) {
	calls := kernelCalls()
	freed := make(chan struct{}, 2)
	calls.FreeMemory = func() { freed <- struct{}{} }
	l := newLoop(t, defaultSizes, calls)
	const timers = 80_000
	far := l.r.clock.now() + 1e15
	for _, op := range []SubmissionOp{SubTimerArm, SubTimerCancel} {
		if len(freed) > 0 {
			t.Fatal("freed while the timers are armed")
		}
		for i := range uint32(timers) {
			l.submit(op, i, 0, far)
			if l.sh.SubLen == l.sh.SubCap || i == timers-1 {
				l.turn(0)
			}
		}
	}
	<-freed
	l.turn(0)
	if len(freed) > 0 {
		t.Error("freed twice")
	}
}

func TestReportsBeyondTheSpaceAreMadeLater(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	left := map[uint32]bool{}
	for range 50 {
		s := l.stream(0)
		l.write(s, copyToC(t, []byte("x")))
		left[s.id] = true
	}
	for len(left) > 0 {
		for _, d := range l.turn(-1) {
			if d.Kind != CmpWrote || d.Arg != 1 || !left[d.ID] {
				t.Fatalf("%+v", d)
			}
			delete(left, d.ID)
		}
	}
	l.expectIdle()
}

// Streams that always have data, with an arena for a few of them, are served equally often,
// plus or minus one. Timers expire after each stream was served.
func TestReadyStreamsAreServedEqually(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	const n = 60
	served := map[uint32]int{}
	peers := map[uint32]int{}
	var all []testStream
	for range n {
		s := l.stream(0)
		all = append(all, s)
		peers[s.id] = s.peer
		writePeer(t, s.peer, make([]byte, 8192))
	}
	_ = all
	waited := 0
	for turn := range 400 {
		l.arm(0, l.r.clock.now())
		waited++
		for _, d := range l.turn(-1) {
			switch d.Kind {
			case CmpData:
				served[d.ID]++
				writePeer(t, peers[d.ID], d.data)
			case CmpTimer:
				waited = 0
			default:
				t.Fatalf("%+v", d)
			}
		}
		if waited > n {
			t.Fatalf("turn %d: a timer has waited for %d turns", turn, waited)
		}
		least, most := served[all[0].id], served[all[0].id]
		for _, s := range all {
			least, most = min(least, served[s.id]), max(most, served[s.id])
		}
		if most-least > 1 {
			t.Fatalf("turn %d: one stream was served %d times, another %d", turn, most, least)
		}
	}
}

// More streams are ready than one wait of the poller returns.
func TestReadyStreamsAreServedEquallyBeyondOneWait(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	const n = maxEvents + maxEvents/2
	if limit.Cur < 2*n+100 {
		t.Skipf("%d descriptors are allowed, %d are needed", limit.Cur, 2*n+100)
	}
	l := defaultLoop(t)
	var all []testWatch
	for range n {
		a, _ := watchedPair(t)
		all = append(all, l.watch(a, writable, 0))
	}
	served := map[uint32]int{}
	for range 40 {
		for _, d := range l.turn(-1) {
			served[d.ID]++
		}
	}
	least, most := 1<<30, 0
	for _, w := range all {
		least, most = min(least, served[w.id]), max(most, served[w.id])
	}
	if most-least > 2 {
		t.Errorf("one watch was served %d times, another %d", most, least)
	}
}

// Descriptors that are always ready delay timers until each descriptor was served once.
func TestTimersExpireWhileDescriptorsAreAlwaysReady(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	const watches, due = 3 * minCompletions, minCompletions / 4
	for range watches {
		a, _ := watchedPair(t)
		l.watch(a, writable, 0)
	}
	for range 10 {
		for id := range uint32(due) {
			l.arm(id, l.r.clock.now())
		}
		served, fired := 0, 0
		for fired < due && served < 2*watches {
			for _, d := range l.turn(-1) {
				if d.Kind == CmpTimer {
					fired++
				} else {
					served++
				}
			}
		}
		if fired < due {
			t.Fatalf("%d of %d timers expired with %d other completions", fired, due, served)
		}
	}
}

// Data that arrived before a timer's deadline is delivered before the timer, even if this takes
// several turns and polls.
func TestTimersExpireAfterEarlierDataWasDelivered(t *testing.T) {
	for _, n := range []int{3 * minCompletions, maxEvents + 10} {
		l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
		for range n {
			s := l.stream(0)
			writePeer(t, s.peer, []byte("x"))
		}
		l.arm(1, l.r.clock.now())
		received := 0
		for fired := false; !fired; {
			for _, d := range l.turn(-1) {
				switch d.Kind {
				case CmpData:
					received++
				case CmpTimer:
					fired = true
				}
			}
		}
		if received != n {
			t.Errorf("the timer expired after %d of %d streams", received, n)
		}
	}
}

// Reports leave space for receives.
func TestReportsLeaveSpaceForReceives(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	for range 3 * minCompletions {
		l.write(l.stream(0), copyToC(t, []byte("x")))
	}
	s := l.stream(0)
	writePeer(t, s.peer, []byte("x"))
	all := l.turn(-1)
	if len(all) == 0 || all[len(all)-1].Kind != CmpData {
		t.Fatalf("nothing was received beside %d reports", len(all))
	}
	for range 10 {
		l.turn(0)
	}
}

// A receive that would get only the last bytes of the arena waits for the next turn.
func TestReceiveWaitsIfTheArenaIsNearlyFull(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	for range 3 {
		s := l.stream(0)
		writePeer(t, s.peer, make([]byte, minArena-600))
	}
	for range 3 {
		d := l.turn(-1)
		expectKinds(t, d, CmpData)
		if len(d[0].data) != minArena-600 {
			t.Errorf("%d bytes were received", len(d[0].data))
		}
	}
	l.expectIdle()
}

func TestStreamReceivesOncePerTurn(t *testing.T) {
	l := defaultLoop(t)
	s := l.stream(0)
	writePeer(t, s.peer, make([]byte, 1000))
	l.turn(-1)
	if l.sh.Recvs != 1 {
		t.Errorf("%d receives for one event", l.sh.Recvs)
	}
}

func TestManyWakesCauseOneEvent(t *testing.T) {
	f := newFaults()
	l := newLoop(t, defaultSizes, f.calls)
	for range 1000 {
		if err := l.r.Wake(); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.count("wake"); n != 1 {
		t.Errorf("%d writes for 1000 wakes", n)
	}
	expectKinds(t, l.turn(-1))
	if l.sh.Wakeups != 1 || l.sh.WakePending != 0 {
		t.Errorf("%d wake-ups seen, pending %d", l.sh.Wakeups, l.sh.WakePending)
	}
	l.expectIdle()
	if n := l.pendingEvents(); n != 0 {
		t.Errorf("%d events after the wake-up was seen", n)
	}
	if err := l.r.Wake(); err != nil || f.count("wake") != 2 {
		t.Errorf("the wake after: %v, %d writes", err, f.count("wake"))
	}
}

func TestWakeWorksAfterAnError(t *testing.T) {
	f := newFaults()
	l := newLoop(t, defaultSizes, f.calls)
	f.fail("wake", unix.EINTR, unix.EINTR)
	if err := l.r.Wake(); err != nil {
		t.Error(err)
	}
	expectKinds(t, l.turn(-1))
	f.fail("wake", unix.EIO)
	if err := l.r.Wake(); ErrnoOf(err) != unix.EIO {
		t.Error(err)
	}
	// The failure must not affect later wake-ups.
	if err := l.r.Wake(); err != nil {
		t.Error(err)
	}
	expectKinds(t, l.turn(-1))
}

// Work that is queued before a wake is found after the turn that the wake ended.
func TestWakesAreNotLost(t *testing.T) {
	l := defaultLoop(t)
	var mailbox atomic.Int64
	const wakers, rounds = 3, 300
	var group sync.WaitGroup
	for range wakers {
		group.Add(1)
		go func() {
			defer group.Done()
			for range rounds {
				mailbox.Add(1)
				if err := l.r.Wake(); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	for got := int64(0); got < wakers*rounds; {
		l.turn(-1) // would block forever if a wake were lost
		got = mailbox.Load()
	}
	group.Wait()
}

func TestWakeDuringClose(t *testing.T) {
	for range 50 {
		l := defaultLoop(t)
		var group sync.WaitGroup
		for range 2 {
			group.Add(1)
			go func() {
				defer group.Done()
				for l.r.Wake() == nil {
					runtime.Gosched()
				}
			}()
		}
		l.turn(0)
		l.r.wakeup.close()
		group.Wait()
		if err := l.r.Wake(); ErrnoOf(err) != unix.EBADF {
			t.Fatalf("a wake after the close: %v", err)
		}
	}
}

// A waiting turn does not delay a garbage collection, which stops the world.
func TestWaitingTurnDoesNotDelayGarbageCollection(t *testing.T) {
	l := defaultLoop(t)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		l.turn(-1)
	}()
	for range 5 {
		runtime.GC()
	}
	if err := l.r.Wake(); err != nil {
		t.Error(err)
	}
	<-finished
}

func TestManyReactorsRunConcurrently(t *testing.T) {
	var loops []*loop
	var streams []testStream
	for range 4 {
		l := defaultLoop(t)
		loops = append(loops, l)
		streams = append(streams, l.stream(0))
	}
	var group sync.WaitGroup
	for i, l := range loops {
		group.Add(1)
		go func() {
			defer group.Done()
			s := streams[i]
			text := []byte(fmt.Sprintf("reactor %d", i))
			for range 200 {
				writePeer(t, s.peer, text)
				d, _ := l.turnUntil(CmpData)
				if string(d.data) != string(text) {
					t.Errorf("received %q", d.data)
				}
			}
		}()
	}
	group.Wait()
}

func TestNewRefusesAnInvalidSharedBlock(t *testing.T) {
	good := defaultLoop(t).sh
	for name, spoil := range map[string]func(*Shared){
		"no completions":  func(s *Shared) { s.Cmp = nil },
		"no arena":        func(s *Shared) { s.Arena = nil },
		"few completions": func(s *Shared) { s.CmpCap = minCompletions - 1 },
		"small arena":     func(s *Shared) { s.ArenaCap = minArena - 1 },
	} {
		block := *good
		spoil(&block)
		if _, err := New(&block); ErrnoOf(err) != unix.EINVAL {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(nil); ErrnoOf(err) != unix.EINVAL {
		t.Errorf("no block: %v", err)
	}
}

// FuzzDecode passes random submissions to the decoder, and random records of a stream as C
// might leave them: vectors of any length within mapped memory, and empty ones.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{1, 0, 0, 1, 2, 0, 0, 0, 3, 0, 1, 200, 4, 0, 1, 0, 5, 0, 1, 0, 6, 0, 1, 0})
	f.Add([]byte("\x03\x00\x01\xff\x03\x00\x01\x00\x03\x09\x01\x05\xf0\x00\x01\x05\x04\x00\x01\x05\x03\x00\x01\x05"))
	f.Fuzz(func(t *testing.T, program []byte) {
		l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
		s := l.stream(0)
		w := l.watch(int(s.peer), readable, 0)
		data := mapMemory(t, 1<<16)
		ids := []uint32{s.id, w.id, 2, 1 << 20, 1<<26 - 1, 1 << 26, ^uint32(0)}
		args := []int64{0, 1, 100, 1 << 16, -1, -1 << 63, 1<<63 - 1, 1 << 41, l.r.clock.now()}
		for len(program) >= 4 {
			op, id, gen, arg := program[0], program[1], program[2], program[3]
			program = program[4:]
			sub := Submission{Op: uint32(op % 12), ID: ids[int(id)%len(ids)], Gen: uint32(gen % 3),
				Arg: args[int(arg)%len(args)]}
			if op > 200 {
				sub.Op = uint32(op) << 24
			}
			if sub.Op == SubStream {
				s.push(data[:int(arg)*int(gen)])
				s.io.Want = uint32(arg)
			}
			if l.sh.SubLen == l.sh.SubCap || op == 255 {
				l.turn(0)
			}
			l.subs[l.sh.SubLen] = sub
			l.sh.SubLen++
		}
		l.turn(0)
		readPeer(t, s.peer)
		l.turn(0)
	})
}

func TestDecodeCountsInvalidSubmissions(t *testing.T) {
	l := defaultLoop(t)
	s := l.stream(0)
	l.submit(SubNop, 0, 0, 0)
	l.submit(99, 0, 0, 0)
	l.submit(SubStream, s.id+1000, s.gen, 0)
	l.submit(SubStream, s.id, s.gen+1, 0)
	l.submit(SubTimerArm, 1<<32-1, 0, 1)
	l.submit(SubStream, s.id, s.gen, 0) // a submission without changes is not an error
	l.expectIdle()
	if got := l.r.Stats().Ignored; got != 4 {
		t.Errorf("%d submissions were ignored, want 4", got)
	}
	// A length above the capacity is a bug in C and must not be used.
	l.sh.SubLen = 1 << 31
	l.sh.SubCap = 1
	l.turn(0)
}

// echoStep is one turn of an echo of 1 KiB, as C drives it.
func echoStep(tb testing.TB, l *loop, s testStream, message, back []byte) {
	if n, err := sys.Write(s.peer, message); n != len(message) || err != nil {
		tb.Fatal(n, err)
	}
	n, err := l.r.Turn(-1)
	if err != nil {
		tb.Fatal(err)
	}
	for _, c := range unsafe.Slice(l.sh.Cmp, n) {
		if c.Kind == CmpData {
			s.pushAt(c.Ptr, uintptr(c.Arg))
			l.submitStream(s)
		}
	}
	l.r.Flush()
	if n, err := sys.Read(s.peer, back); n != len(message) || err != nil {
		tb.Fatal(n, err)
	}
}

func BenchmarkEcho1KiB(b *testing.B) {
	l := defaultLoop(b)
	s := l.stream(0)
	message, back := make([]byte, 1024), make([]byte, 1024)
	b.ReportAllocs()
	for b.Loop() {
		echoStep(b, l, s, message, back)
	}
}

// timerStep is one round of a benchmark: a turn that arms two timers, cancels one and expires
// one.
func timerStep(tb testing.TB, l *loop, i int) {
	now := l.sh.Now
	l.submit(SubTimerArm, uint32(i%1000), 0, now+30_000_000_000)
	l.submit(SubTimerArm, 1000, 0, now)
	l.submit(SubTimerCancel, uint32((i+500)%1000), 0, 0)
	if _, err := l.r.Turn(-1); err != nil {
		tb.Fatal(err)
	}
}

func BenchmarkTimerTurn(b *testing.B) {
	l := defaultLoop(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		timerStep(b, l, i)
	}
}

func BenchmarkIdleTurn(b *testing.B) {
	l := defaultLoop(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.r.Turn(0); err != nil {
			b.Fatal(err)
		}
	}
}

func TestSteadyTurnsDoNotAllocate(t *testing.T) {
	l := defaultLoop(t)
	s := l.stream(0)
	message, back := make([]byte, 1024), make([]byte, 1024)
	i := 0
	step := func() {
		echoStep(t, l, s, message, back)
		timerStep(t, l, i)
		if err := l.r.Wake(); err != nil {
			t.Fatal(err)
		}
		i++
	}
	for range 3000 {
		step()
	}
	if allocs := testing.AllocsPerRun(3000, step); allocs != 0 {
		t.Errorf("%v allocations a turn", allocs)
	}
}
