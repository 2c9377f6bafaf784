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

// Lives of a whole reactor on a simulated kernel whose network and calls fail as they can: a server
// that echoes, and clients that come, say their pieces and go.
//
// Of each connection: each byte comes once and in order; all bytes come, or an error is told, or
// the other side was told one; an end is told once; no timer is early; and there is always
// something that goes on until all is over.

var lifeSeeds = flag.Int("lives", 40, "how many seeds the simulated lives have")

// life is one run.
type life struct {
	t       *testing.T
	rand    *rand.Rand
	k       *simulated.Kernel
	l       *loop
	ln      listening
	pattern []byte
	clients []*speaker
	streams map[uint32]*speaker // by id
	timers  []func()            // by id
	due     []int64
	over    int
	log     bytes.Buffer
}

// speaker is one end of a connection: a client, or the server's side of it.
type speaker struct {
	stream
	name    string
	server  bool
	port    int
	from    int    // of a client: where in the pattern its bytes begin
	total   int    // and how many
	said    int    // handed to the reactor
	heard   []byte // came
	sending [][]byte
	other   *speaker // the server's side of a client
	ended   bool
	failed  bool
	closed  bool
}

// useKernel has the test run on a kernel of its own.
func useKernel(t *testing.T, k *simulated.Kernel) Calls {
	t.Helper()
	before, beforeSys := on, sys
	calls := SimulatedCalls(k)
	on = kernel{
		name: "a simulated kernel", sys: simulated.Program{Kernel: k}, calls: func() Calls { return calls },
		now: func() (int64, error) { return k.Now(), nil }, descriptors: k.Descriptors,
	}
	sys = on.sys
	t.Cleanup(func() { on, sys = before, beforeSys })
	return calls
}

func live(t *testing.T, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	f := &life{t: t, rand: r, streams: map[uint32]*speaker{}}
	f.k = simulated.New(simulated.Options{
		Seed: seed, Start: 1_000_000_000, CallTime: 200, Sealed: true, Trace: &f.log,
		Network: simulated.Network{
			LatencyLeast: 1000 * r.Int64N(100), LatencyMost: 1_000_000 * r.Int64N(200),
			Fragment: r.Float64() * .5, Coalesce: r.Float64() * .3,
			SlowReader: r.Float64() * .2, SlowMost: 50_000_000, Storm: r.Float64(), StormEvery: 100_000_000,
		},
	})
	f.l = newLoop(t, sizes{64, 1 << 16}, useKernel(t, f.k))
	f.ln = f.l.listen(10)
	f.pattern = memory(t, 1<<20)
	for i := range f.pattern {
		f.pattern[i] = byte(i*7 + i>>9)
	}
	f.k.SetFaults(simulated.Usual([]float64{0, .002, .02}[r.IntN(3)]))
	for i := range 2 + r.IntN(6) {
		c := &speaker{name: fmt.Sprint("client ", i), from: r.IntN(1 << 18), total: r.IntN([]int{100, 5000, 600_000}[r.IntN(3)])}
		f.clients = append(f.clients, c)
		f.after(r.Int64N(3_000_000_000), func() { f.dial(c) })
	}
	for turns := 0; f.over < len(f.clients); turns++ {
		if turns > 300_000 {
			t.Fatalf("seed %d: it does not end", seed)
		}
		n, err := f.l.r.Turn(-1)
		if err != nil {
			t.Fatalf("seed %d: %v, with %d of %d clients over", seed, err, f.over, len(f.clients))
		}
		if n > 0 {
			f.take(n)
		}
	}
	f.k.SetFaults(simulated.Faults{})
	for turns := 0; len(f.streams) > 0; turns++ {
		if turns > 300_000 {
			t.Fatalf("seed %d: the server's side does not end", seed)
		}
		n, err := f.l.r.Turn(-1)
		if err != nil {
			t.Fatalf("seed %d: %v, with %d streams of the server", seed, err, len(f.streams))
		}
		f.take(n)
	}
	for _, c := range f.clients {
		if c.failed || c.other != nil && c.other.failed {
			lifeEnds.failed.Add(1)
			continue
		}
		lifeEnds.whole.Add(1)
		if c.io.Sent != uint64(c.total) || c.pending() != 0 {
			t.Errorf("seed %d: %s has sent %d of %d bytes", seed, c.name, c.io.Sent, c.total)
		}
		if len(c.heard) != c.total {
			t.Errorf("seed %d: %s heard %d of %d bytes, and neither end was told an error", seed, c.name, len(c.heard), c.total)
		}
	}
	return f.log.Bytes()
}

// lifeEnds counts the connections by their ends.
var lifeEnds struct{ whole, failed atomic.Int64 }

func (f *life) after(ns int64, run func()) {
	at := f.k.Now() + ns
	f.l.arm(uint32(len(f.timers)), at)
	f.timers, f.due = append(f.timers, run), append(f.due, at)
}

// take does what the completions of a turn ask for.
func (f *life) take(n int) {
	for _, d := range f.l.completed(n) {
		fmt.Fprintf(&f.log, "%d cmp %d %d %d %d\n", f.l.sh.Now, d.Kind, d.ID, d.Res, d.Arg)
		s := f.streams[d.ID]
		switch d.Kind {
		case CmpTimer:
			if f.l.sh.Now < f.due[d.ID] {
				f.t.Errorf("timer %d is early", d.ID)
			}
			f.timers[d.ID]()
		case CmpAccept:
			s := &speaker{name: "server", server: true}
			port := int(d.ends.Peer[2])<<8 | int(d.ends.Peer[3])
			for _, c := range f.clients {
				if c.port == port {
					c.other = s
				}
			}
			f.begin(s, int(d.Res))
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

func (f *life) serve(s *speaker, d done) {
	switch d.Kind {
	case CmpData:
		if s.ended {
			f.t.Errorf("%s: bytes after the end", s.name)
		}
		s.heard = append(s.heard, d.data...)
		if s.server {
			f.say(s, bytes.Clone(d.data))
		}
	case CmpEOF, CmpReadError:
		if s.ended {
			f.t.Errorf("%s: a second end", s.name)
		}
		s.ended = true
		s.failed = s.failed || d.Kind == CmpReadError
		if s.server && !s.failed {
			f.l.shut(s.stream)
		}
	case CmpWriteError:
		s.failed = true
	}
	shut := s.io.State&transports.StateShut != 0
	if s.failed || s.ended && (shut || !s.server && s.pending() == 0) {
		f.finish(s)
	} else if s.server && s.ended {
		f.after(10_000_000, func() { f.look(s) })
	}
}

// look sees whether the server's side of a connection, whose other side has ended, has sent all.
func (f *life) look(s *speaker) {
	switch {
	case s.closed:
	case s.io.State&transports.StateShut != 0:
		f.finish(s)
	default:
		f.after(10_000_000, func() { f.look(s) })
	}
}

func (f *life) dial(c *speaker) {
	fd, err := sys.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		f.after(10_000_000, func() { f.dial(c) })
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
	if f.begin(c, fd) {
		f.goOn(c)
	}
}

func (f *life) begin(s *speaker, fd int) bool {
	io := reading()
	id, gen, err := f.l.r.StreamOpen(int32(fd), io, 0)
	if err != nil {
		_ = sys.Close(fd)
		s.failed = true
		f.finish(s)
		return false
	}
	s.stream = stream{id: id, gen: gen, fd: int32(fd), peer: -1, io: io}
	f.streams[id] = s
	return true
}

// goOn says a piece, and arms a timer for the next one.
func (f *life) goOn(c *speaker) {
	if c.closed {
		return
	}
	if c.said == c.total {
		f.l.shut(c.stream)
		return
	}
	n := 1 + f.rand.IntN(c.total-c.said)
	f.say(c, f.pattern[c.from+c.said:][:n])
	c.said += n
	f.after(f.rand.Int64N(300_000_000), func() { f.goOn(c) })
}

func (f *life) say(s *speaker, b []byte) {
	s.sending = append(s.sending, b) // the reactor has the address alone
	f.l.writeQuietly(s.stream, b)
}

// finish ends one end of a connection and looks at what came there.
func (f *life) finish(s *speaker) {
	if s.closed {
		return
	}
	s.closed = true
	if s.io != nil {
		delete(f.streams, s.id)
		f.l.close(s.stream)
	}
	if s.server {
		return
	}
	f.over++
	want := f.pattern[s.from:][:s.total]
	if !bytes.HasPrefix(want, s.heard) {
		f.t.Errorf("%s heard %d bytes that are not those that it said", s.name, len(s.heard))
	}
}

func TestSimulatedLivesLoseNothing(t *testing.T) {
	for seed := range uint64(*lifeSeeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { live(t, seed) })
	}
	t.Logf("%d connections were whole, %d failed", lifeEnds.whole.Load(), lifeEnds.failed.Load())
}

func TestASeedIsTheSameLifeInEachProcess(t *testing.T) {
	const name, seed = "GOLOOP_TEST_LIFE_TO", 3
	first := live(t, seed)
	if path := os.Getenv(name); path != "" {
		if err := os.WriteFile(path, first, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(first, live(t, seed)) {
		t.Error("two runs in one process differ")
	}
	path := t.TempDir() + "/trace"
	command := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-kernel", "linux")
	command.Env = append(os.Environ(), name+"="+path)
	out, err := command.CombinedOutput()
	if errors.Is(err, unix.ENOEXEC) {
		t.Skip("an emulator runs this program, and the kernel cannot")
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
	l := newLoop(b, usual, calls)
	for i := range int64(b.N) {
		l.arm(0, k.Now()+1+i%1000)
		if _, err := l.r.Turn(-1); err != nil {
			b.Fatal(err)
		}
	}
}
