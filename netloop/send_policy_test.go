package netloop

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// madeLoad is a load whose rate and processor time depend on the level of eager sends.
type madeLoad struct {
	wall      map[int]float64 // ns of wall time for a receive, by limit
	processor map[int]float64 // ns of processor time for a receive, by limit
	receives  float64         // in a turn
	noise     float64         // largest relative change of a turn's times
}

// policyRun runs a policy under made loads. Its clock is the load's.
type policyRun struct {
	policy   sendPolicy
	at       measurement
	exact    float64 // receives
	rng      *rand.Rand
	turns    map[int]int // number of turns by limit
	measured int         // calls of measure
}

func newPolicyRun() *policyRun {
	return &policyRun{policy: newSendPolicy(), rng: rand.New(rand.NewPCG(3, 4)), turns: map[int]int{}}
}

// run makes turns, and returns the limit that the policy has chosen at the end.
func (p *policyRun) run(load madeLoad, turns int) int {
	for range turns {
		limit := p.policy.turnLimit(func() measurement { p.measured++; return p.at })
		p.turns[limit]++
		n := load.receives * (1 + load.noise*(2*p.rng.Float64()-1))
		p.exact += n
		p.at.receives = uint64(p.exact)
		p.at.now += int64(n * load.wall[limit] * (1 + load.noise*(2*p.rng.Float64()-1)))
		p.at.processor += int64(n * load.processor[limit] * (1 + load.noise*(2*p.rng.Float64()-1)))
	}
	return eagerLevels[p.policy.level]
}

func costs(none, few, more float64) map[int]float64 {
	return map[int]float64{eagerLevels[0]: none, eagerLevels[1]: few, eagerLevels[2]: more}
}

// madeLoads have the rates of real loads, relative to the default (record 0054).
var madeLoads = map[string]struct {
	load madeLoad
	want int
}{
	"peers on another core, ten connections": {
		madeLoad{wall: costs(12_000, 10_000, 8_500), processor: costs(6000, 6000, 6300), receives: 6, noise: 0.3}, 16},
	"peers on the same core": {
		madeLoad{wall: costs(9_300, 10_000, 12_600), processor: costs(5000, 5200, 6000), receives: 10, noise: 0.3}, 0},
	"few connections": {
		madeLoad{wall: costs(11_500, 10_000, 10_000), processor: costs(6000, 5500, 5500), receives: 2, noise: 0.3}, 4},
	"fixed rate, eager sends take less time": {
		madeLoad{wall: costs(1e6, 1e6, 1e6), processor: costs(60_000, 50_000, 50_000), receives: 1, noise: 0.2}, 4},
	"fixed rate, deferred sends take less time": {
		madeLoad{wall: costs(1e6, 1e6, 1e6), processor: costs(45_000, 50_000, 55_000), receives: 1, noise: 0.2}, 0},
}

func TestSendPolicyFollowsTheRate(t *testing.T) {
	for name, c := range madeLoads {
		p := newPolicyRun()
		if got := p.run(c.load, 100_000); got != c.want {
			t.Errorf("%s: limit %d, want %d (%s)", name, got, c.want, &p.policy)
		}
	}
}

// A load that wins and one that loses by the same setting may follow each other, in any order. Of
// two equal levels the policy keeps the one that it has.
func TestSendPolicyForgetsAnEarlierLoad(t *testing.T) {
	p := newPolicyRun()
	for range 2 {
		for name, c := range madeLoads {
			got := p.run(c.load, 1_500_000)
			if c.load.wall[got] != c.load.wall[c.want] || c.load.processor[got] != c.load.processor[c.want] {
				t.Errorf("%s: limit %d, want %d (%s)", name, got, c.want, &p.policy)
			}
		}
	}
}

func TestEqualLevelsKeepTheChoice(t *testing.T) {
	p := newPolicyRun()
	load := madeLoad{wall: costs(1e4, 1e4, 1e4), processor: costs(5e3, 5e3, 5e3), receives: 5, noise: 0.5}
	for range 20 {
		if got := p.run(load, 100_000); got != eagerLevels[defaultLevel] {
			t.Fatalf("limit %d: %s", got, &p.policy)
		}
	}
}

// Even a level that loses much costs less than one per cent, after the first decisions.
func TestTrialsCostLittle(t *testing.T) {
	p := newPolicyRun()
	load := madeLoad{wall: costs(14_000, 10_000, 14_000), processor: costs(7e3, 5e3, 7e3), receives: 5, noise: 0.2}
	p.run(load, 50_000)
	p.turns, p.measured = map[int]int{}, 0
	const turns = 1_000_000
	p.run(load, turns)
	lost := 0.4 * float64(p.turns[0]+p.turns[16]) / turns
	if lost > 0.01 {
		t.Errorf("trials cost %.1f %%", 100*lost)
	}
	if p.measured > turns/100 {
		t.Errorf("%d measurements in %d turns", p.measured, turns)
	}
}

// A load that changes again and again does not start a series without pauses each time.
func TestChangingLoadsCostLittle(t *testing.T) {
	p := newPolicyRun()
	few := madeLoad{wall: costs(14_000, 10_000, 14_000), processor: costs(7e3, 5e3, 7e3), receives: 2, noise: 0.2}
	many := few
	many.receives = 12
	p.run(few, 50_000)
	p.turns = map[int]int{}
	for range 100 {
		p.run(few, 5_000)
		p.run(many, 5_000)
	}
	if lost := 0.4 * float64(p.turns[0]+p.turns[16]) / 1e6; lost > 0.02 {
		t.Errorf("trials cost %.1f %%", 100*lost)
	}
}

// Turns without receives, as of timers, have no rate.
func TestTrialsWithoutReceivesHaveNoResult(t *testing.T) {
	p := newPolicyRun()
	p.run(madeLoad{wall: costs(1e5, 1e5, 1e5), processor: costs(1e4, 1e4, 1e4), receives: 0.1}, 100_000)
	if p.policy.rate.n != 0 || p.policy.decisions != 0 {
		t.Errorf("%d trials, %d decisions", p.policy.rate.n, p.policy.decisions)
	}
	if got := p.policy.String(); got != "4" {
		t.Errorf("%q", got)
	}
}

func TestFixedLimit(t *testing.T) {
	for _, limit := range []int{0, 3, 100} {
		p := fixedSendPolicy(limit)
		for range 10_000 {
			if got := p.turnLimit(func() measurement { t.Fatal("measured"); return measurement{} }); got != limit {
				t.Fatalf("%d instead of %d", got, limit)
			}
		}
	}
}

// A trial begins with the deferred writes of the turns before it, and their reports.
func TestTurnsAreEagerAfterDeferredWrites(t *testing.T) {
	l := newLoop(t, defaultSizes, kernelCalls())
	l.r.sendPolicy = fixedSendPolicy(10)
	streams := manyStreams(l, 10)
	for _, s := range streams {
		l.write(s, []byte("deferred"))
		writePeer(t, s.peer, []byte("x"))
	}
	l.turn(-1)
	if l.sh.EagerSends != 10 {
		t.Errorf("%d eager sends after deferred writes, want 10", l.sh.EagerSends)
	}
}

// The reactor measures its own clock, processor time and receives, and shares the limit with C.
func TestReactorChoosesTheLimitByItsRate(t *testing.T) {
	var now int64
	calls := kernelCalls()
	calls.Clock = func() int64 { return now }
	calls.ThreadTime = calls.Clock
	l := newLoop(t, defaultSizes, calls)
	l.r.sendPolicy = newSendPolicy()
	streams := manyStreams(l, 8)
	for range 4_000 * len(eagerLevels) {
		now += 1000 * int64(1+l.r.eagerLimit)
		for _, s := range streams {
			writePeer(t, s.peer, []byte("x"))
		}
		l.turn(-1)
		want := 0
		if l.r.eagerLimit >= len(streams) {
			want = l.r.eagerLimit
		}
		if int(l.sh.EagerSends) != want {
			t.Fatalf("%d eager sends for the limit %d, want %d", l.sh.EagerSends, l.r.eagerLimit, want)
		}
	}
	if s := l.r.Stats().SendPolicy; !strings.HasPrefix(s, "0") {
		t.Errorf("the policy is %q, although eager turns take more processor time", s)
	}
}
