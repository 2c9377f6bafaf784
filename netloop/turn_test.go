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

func (l *loop) arm(id uint32, deadline int64) { l.submit(SubTimerArm, id, 0, deadline) }

// waitsAreExact waits for timers a fraction of a millisecond away. Each turn that
// waits must be ended by the timer and deliver it, and never early. That it
// isn't late by a millisecond cannot be asserted on a busy machine.
func waitsAreExact(t *testing.T, l *loop) {
	t.Helper()
	for i := range 20 {
		deadline := l.r.clock.now() + int64(50_000+i*20_000)
		l.arm(uint32(i), deadline)
		d := l.turn(-1)
		// Unlike the library's, this runtime preempts by a signal, which ends a wait.
		for tries := 0; len(d) == 0 && tries < 3; tries++ {
			d = l.turn(-1)
		}
		expectKinds(t, d, CmpTimer)
		after, err := on.now()
		if err != nil {
			t.Fatal(err)
		}
		if d[0].ID != uint32(i) || l.sh.Now < deadline || after < deadline {
			t.Fatalf("timer %d of %d came at %d", d[0].ID, deadline, l.sh.Now)
		}
	}
}

func TestTimersAreExact(t *testing.T) { waitsAreExact(t, usualLoop(t)) }

// A crowd of timers shares turns; a lone timer, and one that is not near, does not wait longer.
func TestTimersInACrowdShareATurn(t *testing.T) {
	for _, c := range []struct {
		due  int
		next int64
		wait int64
	}{
		{timerCrowd, timerSlack, 2 * timerSlack},
		{3 * timerCrowd, timerSlack, 4 * timerSlack},
		{32 * timerCrowd, timerSlack, timerSlack + timerSlackMost},
		{timerCrowd - 1, timerSlack, timerSlack},
		{timerCrowd, 100 * timerSlack, 100 * timerSlack},
		// The next was due while these ran.
		{3 * timerCrowd, -timerSlack, 2 * timerSlack},
		{3 * timerCrowd, -4 * timerSlack, 0},
		{32 * timerCrowd, -timerSlackMost, 0},
		{timerCrowd - 1, -timerSlack, 0},
	} {
		l := usualLoop(t)
		now := l.r.clock.now()
		for id := range c.due {
			l.arm(uint32(id), now-1)
		}
		if d := l.turn(0); len(d) != c.due {
			t.Fatalf("%d timers of %d came", len(d), c.due)
		}
		if left := l.r.until(now+c.next, now); left != c.wait {
			t.Errorf("%+v: waits for %d ns", c, left)
		}
		// One that is armed for later changes nothing, one that is due is not waited for.
		l.arm(1000, now+timerSlack)
		l.r.decode()
		if left := l.r.until(now+c.next, now); left != c.wait {
			t.Errorf("%+v: waits for %d ns beside a timer for later", c, left)
		}
		l.arm(1001, now)
		l.r.decode()
		if left := l.r.until(now, now); left != 0 {
			t.Errorf("%+v: waits for %d ns though a timer was armed for now", c, left)
		}
	}
}

func TestASlowIterationIsRecordedWithTheLimitThatItReached(t *testing.T) {
	l := usualLoop(t)
	l.r.Slow = func(began, length, limit int64) {
		if limit != 1 || length < limit {
			t.Errorf("%d ns, with a limit of %d", length, limit)
		}
		l.sh.SlowLimit = 0
	}
	l.sh.SlowLimit = 1
	l.sh.Now -= 10 // a simulated clock stands still
	l.turn(0)
	if l.sh.SlowLimit != 0 {
		t.Error("not recorded")
	}
}

func TestTimersComeInOrder(t *testing.T) {
	l := usualLoop(t)
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
	l.quiet()
	if l.sh.NextDeadline != DeadlineNone {
		t.Errorf("the next deadline is %d", l.sh.NextDeadline)
	}
}

func TestTimeoutEndsTheWait(t *testing.T) {
	l := usualLoop(t)
	l.arm(0, l.r.clock.now()+3600_000_000_000)
	// A signal by which Go preempts a goroutine of the test ends a wait early (EINTR),
	// but not each of them.
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

func TestClockIsTheKernelsAndNeverAhead(t *testing.T) {
	c, err := newClock(kernelCalls().Clock)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		before, err := on.now()
		if err != nil {
			t.Fatal(err)
		}
		got := c.now()
		after, err := on.now()
		if err != nil {
			t.Fatal(err)
		}
		if got > after || got < before-1_000_000 {
			t.Fatalf("the clock says %d between %d and %d", got, before, after)
		}
	}
}

// More timers than completions: none is lost, and the turn says that more is left.
func TestTimersBeyondTheRoomAreKept(t *testing.T) {
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

// A program that armed many timers gets their memory back, once, outside of the turn.
func TestMemoryOfManyTimersIsFreedOnce(t *testing.T) {
	calls := kernelCalls()
	freed := make(chan struct{}, 2)
	calls.FreeMemory = func() { freed <- struct{}{} }
	l := newLoop(t, usual, calls)
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

func TestReportsBeyondTheRoomAreKept(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	left := map[uint32]bool{}
	for range 50 {
		s := l.stream(0)
		l.write(s, inC(t, []byte("x")))
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
	l.quiet()
}

// With streams that always have data, in an arena for few of them, each is served
// as often as any other, give or take one; and timers come through when each was served.
func TestNobodyStarves(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	const n = 60
	served := map[uint32]int{}
	peers := map[uint32]int{}
	var all []stream
	for range n {
		s := l.stream(0)
		all = append(all, s)
		peers[s.id] = s.peer
		say(t, s.peer, make([]byte, 8192))
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
				say(t, peers[d.ID], d.data)
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

// The same with more ready streams than one wait of the poller tells of.
func TestNobodyStarvesBeyondOneWait(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	const n = maxEvents + maxEvents/2
	if limit.Cur < 2*n+100 {
		t.Skipf("%d descriptors are allowed, %d are needed", limit.Cur, 2*n+100)
	}
	l := usualLoop(t)
	var all []watched
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

// Descriptors that are always ready hold timers up until each was served once.
func TestTimersComeThroughABusyQueue(t *testing.T) {
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
			t.Fatalf("%d of %d timers came beside %d completions", fired, due, served)
		}
	}
}

// What has arrived before a timer is due is handed out before it, in however many turns and polls.
func TestTimersComeAfterAllThatHasArrived(t *testing.T) {
	for _, n := range []int{3 * minCompletions, maxEvents + 10} {
		l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
		for range n {
			s := l.stream(0)
			say(t, s.peer, []byte("x"))
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
			t.Errorf("the timer came after %d of %d streams", received, n)
		}
	}
}

// And reports leave room for what is received.
func TestReceivesComeThroughManyReports(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	for range 3 * minCompletions {
		l.write(l.stream(0), inC(t, []byte("x")))
	}
	s := l.stream(0)
	say(t, s.peer, []byte("x"))
	all := l.turn(-1)
	if len(all) == 0 || all[len(all)-1].Kind != CmpData {
		t.Fatalf("nothing was received beside %d reports", len(all))
	}
	for range 10 {
		l.turn(0)
	}
}

// A receive that would have to be content with the last bytes of the arena waits
// for a turn of its own.
func TestNoReceiveIntoTheRestOfTheArena(t *testing.T) {
	l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
	for range 3 {
		s := l.stream(0)
		say(t, s.peer, make([]byte, minArena-600))
	}
	for range 3 {
		d := l.turn(-1)
		expectKinds(t, d, CmpData)
		if len(d[0].data) != minArena-600 {
			t.Errorf("%d bytes were received", len(d[0].data))
		}
	}
	l.quiet()
}

func TestOneReceivePerTurn(t *testing.T) {
	l := usualLoop(t)
	s := l.stream(0)
	say(t, s.peer, make([]byte, 1000))
	l.turn(-1)
	if l.sh.Recvs != 1 {
		t.Errorf("%d receives for one event", l.sh.Recvs)
	}
}

func TestWakesAreCollapsed(t *testing.T) {
	f := newFaults()
	l := newLoop(t, usual, f.calls)
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
		t.Errorf("%d wakeups seen, pending %d", l.sh.Wakeups, l.sh.WakePending)
	}
	l.quiet()
	if n := l.events(); n != 0 {
		t.Errorf("%d events after the wakeup was seen", n)
	}
	if err := l.r.Wake(); err != nil || f.count("wake") != 2 {
		t.Errorf("the wake after: %v, %d writes", err, f.count("wake"))
	}
}

func TestWakeSurvivesErrors(t *testing.T) {
	f := newFaults()
	l := newLoop(t, usual, f.calls)
	f.fail("wake", unix.EINTR, unix.EINTR)
	if err := l.r.Wake(); err != nil {
		t.Error(err)
	}
	expectKinds(t, l.turn(-1))
	f.fail("wake", unix.EIO)
	if err := l.r.Wake(); ErrnoOf(err) != unix.EIO {
		t.Error(err)
	}
	// The failure must not stop later wakes.
	if err := l.r.Wake(); err != nil {
		t.Error(err)
	}
	expectKinds(t, l.turn(-1))
}

// Work that is left before a wake is found after the turn that the wake ended.
func TestNoWakeIsLost(t *testing.T) {
	l := usualLoop(t)
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
		l.turn(-1) // would block for ever if a wake were lost
		got = mailbox.Load()
	}
	group.Wait()
}

func TestWakeAndCloseMayMeet(t *testing.T) {
	for range 50 {
		l := usualLoop(t)
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
		l.r.wakeup.shut()
		group.Wait()
		if err := l.r.Wake(); ErrnoOf(err) != unix.EBADF {
			t.Fatalf("a wake after the close: %v", err)
		}
	}
}

// A turn that waits does not hold up a collection, which stops the world.
func TestWaitingTurnLetsTheWorldStop(t *testing.T) {
	l := usualLoop(t)
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

func TestManyReactorsSideBySide(t *testing.T) {
	var loops []*loop
	var streams []stream
	for range 4 {
		l := usualLoop(t)
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
				say(t, s.peer, text)
				d, _ := l.until(CmpData)
				if string(d.data) != string(text) {
					t.Errorf("received %q", d.data)
				}
			}
		}()
	}
	group.Wait()
}

func TestNewRefusesAPoorBlock(t *testing.T) {
	good := usualLoop(t).sh
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

// FuzzDecode feeds the decoder with anything, and the record of a stream with what C
// might leave there: pieces of any length within mapped memory, none among them.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{1, 0, 0, 1, 2, 0, 0, 0, 3, 0, 1, 200, 4, 0, 1, 0, 5, 0, 1, 0, 6, 0, 1, 0})
	f.Add([]byte("\x03\x00\x01\xff\x03\x00\x01\x00\x03\x09\x01\x05\xf0\x00\x01\x05\x04\x00\x01\x05\x03\x00\x01\x05"))
	f.Fuzz(func(t *testing.T, program []byte) {
		l := newLoop(t, sizes{minCompletions, minArena}, kernelCalls())
		s := l.stream(0)
		w := l.watch(int(s.peer), readable, 0)
		data := memory(t, 1<<16)
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
		hear(t, s.peer)
		l.turn(0)
	})
}

func TestDecoderIgnoresAndCounts(t *testing.T) {
	l := usualLoop(t)
	s := l.stream(0)
	l.submit(SubNop, 0, 0, 0)
	l.submit(99, 0, 0, 0)
	l.submit(SubStream, s.id+1000, s.gen, 0)
	l.submit(SubStream, s.id, s.gen+1, 0)
	l.submit(SubTimerArm, 1<<32-1, 0, 1)
	l.submit(SubStream, s.id, s.gen, 0) // nothing to do is no mistake
	l.quiet()
	if got := l.r.Facts().Ignored; got != 4 {
		t.Errorf("%d submissions were ignored, want 4", got)
	}
	// A length beyond the capacity is C's bug, and not followed.
	l.sh.SubLen = 1 << 31
	l.sh.SubCap = 1
	l.turn(0)
}

// echoStep is one turn of an echo of 1 KiB, as C drives it.
func echoStep(tb testing.TB, l *loop, s stream, message, back []byte) {
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
			l.list(s)
		}
	}
	l.r.Flush()
	if n, err := sys.Read(s.peer, back); n != len(message) || err != nil {
		tb.Fatal(n, err)
	}
}

func BenchmarkEcho1KiB(b *testing.B) {
	l := usualLoop(b)
	s := l.stream(0)
	message, back := make([]byte, 1024), make([]byte, 1024)
	b.ReportAllocs()
	for b.Loop() {
		echoStep(b, l, s, message, back)
	}
}

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
	l := usualLoop(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		timerStep(b, l, i)
	}
}

func BenchmarkIdleTurn(b *testing.B) {
	l := usualLoop(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.r.Turn(0); err != nil {
			b.Fatal(err)
		}
	}
}

func TestSteadyTurnsDoNotAllocate(t *testing.T) {
	l := usualLoop(t)
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
