//go:build linux && !libkqueue

package netloop

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"

	"github.com/goloop/goloop/netloop/simulated"
	"github.com/goloop/goloop/transports"
	"golang.org/x/sys/unix"
)

// Runs of a complete reactor on a simulated kernel with network delays and faults: a
// server that echoes, and clients that connect, send in several pieces and close.
//
// Verified for each connection: bytes arrive once and in order; all bytes arrive, or one of the
// two ends gets an error; the end of a stream is reported once; timers are never early; and the
// run always progresses until all clients are done.

// runCount is the flag -runs.
var runCount = flag.Int("runs", 40, "number of simulated runs, each with its own seed")

// simulatedRun is one run.
type simulatedRun struct {
	t           *testing.T
	rand        *rand.Rand
	k           *simulated.Kernel
	l           *loop
	ln          testListener
	pattern     []byte
	clients     []*runEnd
	streams     map[uint32]*runEnd // by id
	timers      []func()           // by id
	due         []int64
	clientsDone int
	log         bytes.Buffer
}

// runEnd is one end of a connection: a client, or the server's side of the connection.
type runEnd struct {
	testStream
	name      string
	server    bool
	port      int
	offset    int    // of a client: where its bytes begin in the pattern
	total     int    // number of bytes to send
	sent      int    // bytes that were queued
	received  []byte // bytes that arrived
	sending   [][]byte
	serverEnd *runEnd // the server's end of a client's connection
	ended     bool
	failed    bool
	closed    bool
}

// useSimulated makes the test run on the given simulated kernel.
func useSimulated(t *testing.T, k *simulated.Kernel) Calls {
	t.Helper()
	before, beforeSys := testKernel, sys
	calls := SimulatedCalls(k)
	testKernel = kernel{
		name: "a simulated kernel", sys: simulated.Program{Kernel: k}, calls: func() Calls { return calls },
		now: func() (int64, error) { return k.Now(), nil }, descriptors: k.Descriptors,
	}
	sys = testKernel.sys
	t.Cleanup(func() { testKernel, sys = before, beforeSys })
	return calls
}

// simulate makes a run with a seed, verifies it and returns its log.
func simulate(t *testing.T, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	f := &simulatedRun{t: t, rand: r, streams: map[uint32]*runEnd{}}
	f.k = simulated.New(simulated.Options{
		Seed: seed, Start: 1_000_000_000, CallTime: 200, Sealed: true, Trace: &f.log,
		Network: simulated.Network{
			MinLatency: 1000 * r.Int64N(100), MaxLatency: 1_000_000 * r.Int64N(200),
			Fragment: r.Float64() * .5, Coalesce: r.Float64() * .3,
			SlowReader: r.Float64() * .2, MaxSlow: 50_000_000, Storm: r.Float64(), StormEvery: 100_000_000,
		},
	})
	f.l = newLoop(t, sizes{64, 1 << 16}, useSimulated(t, f.k))
	f.ln = f.l.listen(10)
	f.pattern = mapMemory(t, 1<<20)
	for i := range f.pattern {
		f.pattern[i] = byte(i*7 + i>>9)
	}
	f.k.SetFaults(simulated.CommonFaults([]float64{0, .002, .02}[r.IntN(3)]))
	for i := range 2 + r.IntN(6) {
		c := &runEnd{name: fmt.Sprint("client ", i), offset: r.IntN(1 << 18), total: r.IntN([]int{100, 5000, 600_000}[r.IntN(3)])}
		f.clients = append(f.clients, c)
		f.callLater(r.Int64N(3_000_000_000), func() { f.dial(c) })
	}
	for turns := 0; f.clientsDone < len(f.clients); turns++ {
		if turns > 300_000 {
			t.Fatalf("seed %d: the run does not end", seed)
		}
		n, err := f.l.r.Turn(-1)
		if err != nil {
			t.Fatalf("seed %d: %v, with %d of %d clients over", seed, err, f.clientsDone, len(f.clients))
		}
		if n > 0 {
			f.handleCompletions(n)
		}
	}
	f.k.SetFaults(simulated.Faults{})
	for turns := 0; len(f.streams) > 0; turns++ {
		if turns > 300_000 {
			t.Fatalf("seed %d: the server's ends do not close", seed)
		}
		n, err := f.l.r.Turn(-1)
		if err != nil {
			t.Fatalf("seed %d: %v, with %d streams of the server", seed, err, len(f.streams))
		}
		f.handleCompletions(n)
	}
	for _, c := range f.clients {
		if c.failed || c.serverEnd != nil && c.serverEnd.failed {
			connectionEnds.failed.Add(1)
			continue
		}
		connectionEnds.complete.Add(1)
		if c.io.Sent != uint64(c.total) || c.pending() != 0 {
			t.Errorf("seed %d: %s has sent %d of %d bytes", seed, c.name, c.io.Sent, c.total)
		}
		if len(c.received) != c.total {
			t.Errorf("seed %d: %s received %d of %d bytes, and neither end got an error", seed, c.name, len(c.received), c.total)
		}
	}
	return f.log.Bytes()
}

// connectionEnds counts the connections by their result.
var connectionEnds struct{ complete, failed atomic.Int64 }

// callLater arms a timer of the reactor that calls run after ns.
func (f *simulatedRun) callLater(ns int64, run func()) {
	at := f.k.Now() + ns
	f.l.arm(uint32(len(f.timers)), at)
	f.timers, f.due = append(f.timers, run), append(f.due, at)
}

// handleCompletions does C's part after a turn.
func (f *simulatedRun) handleCompletions(n int) {
	for _, d := range f.l.completions(n) {
		fmt.Fprintf(&f.log, "%d cmp %d %d %d %d\n", f.l.sh.Now, d.Kind, d.ID, d.Res, d.Arg)
		s := f.streams[d.ID]
		switch d.Kind {
		case CmpTimer:
			if f.l.sh.Now < f.due[d.ID] {
				f.t.Errorf("timer %d is early", d.ID)
			}
			f.timers[d.ID]()
		case CmpAccept:
			s := &runEnd{name: "server", server: true}
			port := int(d.ends.Peer[2])<<8 | int(d.ends.Peer[3])
			for _, c := range f.clients {
				if c.port == port {
					c.serverEnd = s
				}
			}
			f.open(s, int(d.Res))
		case CmpAcceptError:
			if d.Arg != 1 {
				f.t.Errorf("the listener has stopped: errno %d", d.Res)
			}
		case CmpData, CmpEOF, CmpReadError, CmpWriteError, CmpWrote:
			if s != nil && s.gen == d.Gen {
				f.serve(s, d)
			}
		}
	}
}

// serve handles a completion of one end of a connection. The server sends all bytes back.
func (f *simulatedRun) serve(s *runEnd, d completion) {
	switch d.Kind {
	case CmpData:
		if s.ended {
			f.t.Errorf("%s: bytes after the end", s.name)
		}
		s.received = append(s.received, d.data...)
		if s.server {
			f.send(s, bytes.Clone(d.data))
		}
	case CmpEOF, CmpReadError:
		if s.ended {
			f.t.Errorf("%s: a second end", s.name)
		}
		s.ended = true
		s.failed = s.failed || d.Kind == CmpReadError
		if s.server && !s.failed {
			f.l.shut(s.testStream)
		}
	case CmpWriteError:
		s.failed = true
	}
	shut := s.io.State&transports.StateShut != 0
	if s.failed || s.ended && (shut || !s.server && s.pending() == 0) {
		f.close(s)
	} else if s.server && s.ended {
		f.callLater(10_000_000, func() { f.checkShutdown(s) })
	}
}

// checkShutdown closes the server's end of a connection if its shutdown is done, or checks
// again later.
func (f *simulatedRun) checkShutdown(s *runEnd) {
	switch {
	case s.closed:
	case s.io.State&transports.StateShut != 0:
		f.close(s)
	default:
		f.callLater(10_000_000, func() { f.checkShutdown(s) })
	}
}

// dial connects a client and begins to send. Without descriptors it tries again later.
func (f *simulatedRun) dial(c *runEnd) {
	fd, err := sys.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		f.callLater(10_000_000, func() { f.dial(c) })
		return
	}
	if err := sys.Connect(fd, f.ln.addr); err != unix.EINPROGRESS {
		f.t.Fatalf("connect: %v", err)
	}
	name, err := sys.Getsockname(fd)
	for err != nil {
		name, err = sys.Getsockname(fd)
	}
	c.port = name.(*unix.SockaddrInet4).Port
	if f.open(c, fd) {
		f.sendNext(c)
	}
}

// open registers one end of a connection. After an error it closes the descriptor, ends the
// connection as failed and returns false.
func (f *simulatedRun) open(s *runEnd, fd int) bool {
	io := readingRecord()
	id, gen, err := f.l.r.StreamOpen(int32(fd), io, 0)
	if err != nil {
		_ = sys.Close(fd)
		s.failed = true
		f.close(s)
		return false
	}
	s.testStream = testStream{id: id, gen: gen, fd: int32(fd), peer: -1, io: io}
	f.streams[id] = s
	return true
}

// sendNext sends the next piece and arms a timer for the following one.
func (f *simulatedRun) sendNext(c *runEnd) {
	if c.closed {
		return
	}
	if c.sent == c.total {
		f.l.shut(c.testStream)
		return
	}
	n := 1 + f.rand.IntN(c.total-c.sent)
	f.send(c, f.pattern[c.offset+c.sent:][:n])
	c.sent += n
	f.callLater(f.rand.Int64N(300_000_000), func() { f.sendNext(c) })
}

// send queues bytes to send.
func (f *simulatedRun) send(s *runEnd, b []byte) {
	s.sending = append(s.sending, b) // kept alive, because the reactor has only the address
	f.l.writeUnreported(s.testStream, b)
}

// close closes one end of a connection. For a client's end it counts the client as done and
// verifies the bytes that arrived.
func (f *simulatedRun) close(s *runEnd) {
	if s.closed {
		return
	}
	s.closed = true
	if s.io != nil {
		delete(f.streams, s.id)
		f.l.close(s.testStream)
	}
	if s.server {
		return
	}
	f.clientsDone++
	want := f.pattern[s.offset:][:s.total]
	if !bytes.HasPrefix(want, s.received) {
		f.t.Errorf("%s received %d bytes that differ from the bytes that it sent", s.name, len(s.received))
	}
}

func TestSimulatedRunsLoseNoData(t *testing.T) {
	for seed := range uint64(*runCount) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { simulate(t, seed) })
	}
	t.Logf("%d connections were complete, %d failed", connectionEnds.complete.Load(), connectionEnds.failed.Load())
}

func TestSeedGivesTheSameRunInEachProcess(t *testing.T) {
	const name, seed = "GOLOOP_TEST_RUN_TRACE", 3
	first := simulate(t, seed)
	if path := os.Getenv(name); path != "" {
		if err := os.WriteFile(path, first, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(first, simulate(t, seed)) {
		t.Error("two runs in one process differ")
	}
	path := t.TempDir() + "/trace"
	command := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-kernel", "linux")
	command.Env = append(os.Environ(), name+"="+path)
	out, err := command.CombinedOutput()
	if errors.Is(err, unix.ENOEXEC) {
		t.Skip("this program runs in an emulator and cannot be executed by the kernel")
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	elsewhere, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, elsewhere) || len(first) < 10_000 {
		t.Errorf("another process has another trace (%d bytes, here %d)", len(elsewhere), len(first))
	}
}

func BenchmarkSimulatedTurns(b *testing.B) {
	k := simulated.New(simulated.Options{Sealed: true})
	calls := SimulatedCalls(k)
	l := newLoop(b, defaultSizes, calls)
	for i := range int64(b.N) {
		l.arm(0, k.Now()+1+i%1000)
		if _, err := l.r.Turn(-1); err != nil {
			b.Fatal(err)
		}
	}
}
