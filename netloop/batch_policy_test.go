package netloop

import (
	"math/rand/v2"
	"testing"
)

// madeCosts are the costs of a made machine, in ns.
type madeCosts struct {
	single    int64 // a single call
	batch     int64 // a batch without calls
	batchCall int64 // a call in a batch
}

// of returns the cost of n calls made in one of the ways.
func (c madeCosts) of(batch bool, n int) int64 {
	if batch {
		return c.batch + c.batchCall*int64(n)
	}
	return c.single * int64(n)
}

var (
	cheapCalls = madeCosts{single: 100, batch: 600, batchCall: 80}
	dearCalls  = madeCosts{single: 400, batch: 600, batchCall: 200}
)

// policyRun has the totals of groups that a policy decided.
type policyRun struct {
	groups, batches         int
	time, timeInBatches     int64
	changes, timedDecisions int
}

// groupNoise changes the time ns of group i.
type groupNoise = func(i int, batch bool, ns int64) int64

// runPolicy lets a policy decide `groups` groups of n calls on a machine. noise changes the times
// that the policy sees; nil does not.
func runPolicy(p *batchPolicy, n, groups int, costs madeCosts, noise groupNoise) policyRun {
	var run policyRun
	for i := range groups {
		before := p.class(n).usesBatch
		batch, timed := p.choose(n)
		ns := costs.of(batch, n)
		if noise != nil {
			ns = noise(i, batch, ns)
		}
		run.groups++
		run.time += costs.of(batch, n)
		if batch {
			run.batches++
			run.timeInBatches += costs.of(batch, n)
		}
		if timed {
			run.timedDecisions++
			p.record(n, float64(ns)/float64(n), batch)
		}
		if p.class(n).usesBatch != before {
			run.changes++
		}
	}
	return run
}

// learn lets a new policy decide its first groups.
func learn(n int, costs madeCosts) *batchPolicy {
	p := new(batchPolicy)
	runPolicy(p, n, 4*trialsInMean, costs, nil)
	return p
}

func TestBatchPolicyFollowsCosts(t *testing.T) {
	for _, c := range []struct {
		name  string
		n     int
		costs madeCosts
		batch bool
	}{
		{"cheap calls, small groups", 6, cheapCalls, false},
		{"cheap calls, large groups", 100, cheapCalls, true},
		{"dear calls, small groups", 6, dearCalls, true},
		{"dear calls, large groups", 100, dearCalls, true},
		{"calls that batches make dearer", 100, madeCosts{100, 600, 110}, false},
		{"equal costs", 100, madeCosts{100, 0, 100}, false},
		{"a clock that stands still", 100, madeCosts{}, false},
	} {
		p := learn(c.n, c.costs)
		if got := p.class(c.n).usesBatch; got != c.batch {
			t.Errorf("%s: batches: %v", c.name, got)
		}
		run := runPolicy(p, c.n, 100_000, c.costs, nil)
		if got := run.batches > run.groups/2; got != c.batch || run.changes > 0 {
			t.Errorf("%s: %d of %d groups in batches, %d changes", c.name, run.batches, run.groups, run.changes)
		}
	}
}

// The way that is not in use gets less than a hundredth of the groups and of the time, also if it
// costs ten times as much.
func TestTrialsAreRare(t *testing.T) {
	for _, n := range []int{minBatch, 10, 30, 60, 1000} {
		for _, costs := range []madeCosts{cheapCalls, dearCalls, {100, 100 * int64(n), 100}, {1000, 100, 100}} {
			p := learn(n, costs)
			run := runPolicy(p, n, 200_000, costs, nil)
			groups, time := run.batches, run.timeInBatches
			if p.class(n).usesBatch {
				groups, time = run.groups-groups, run.time-time
			}
			if groups == 0 || groups > run.groups/100 || time > run.time/100 || run.timedDecisions > run.groups/100 {
				t.Errorf("%d calls, %+v: %d of %d groups and %d of %d ns the other way, %d timed",
					n, costs, groups, run.groups, time, run.time, run.timedDecisions)
			}
		}
	}
}

func TestBatchPolicyReturnsWhenCostsChange(t *testing.T) {
	p := learn(10, cheapCalls)
	for i, costs := range []madeCosts{dearCalls, cheapCalls, dearCalls} {
		run := runPolicy(p, 10, 3*trialsInMean*trialPause, costs, nil)
		if dear := i%2 == 0; p.class(10).usesBatch != dear || run.changes != 1 {
			t.Errorf("change %d: batches: %v after %d changes", i, p.class(10).usesBatch, run.changes)
		}
	}
}

// A change of the load changes the cost of both ways. Groups that were interrupted take many
// times as long.
func TestBatchPolicyIgnoresLoadAndInterrupts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, noise := range map[string]groupNoise{
		"larger messages":    func(i int, _ bool, ns int64) int64 { return ns << (i / 5000 % 4) },
		"slower with time":   func(i int, _ bool, ns int64) int64 { return ns + ns*int64(i)/10_000 },
		"interrupted groups": func(i int, _ bool, ns int64) int64 { return ns + int64(i%7/6)*10_000_000 },
		"interrupted batches": func(_ int, batch bool, ns int64) int64 {
			if batch && random.IntN(7) < 2 {
				ns += 10_000_000
			}
			return ns
		},
	} {
		for _, costs := range []madeCosts{cheapCalls, dearCalls} {
			p := learn(10, costs)
			before := p.class(10).usesBatch
			if run := runPolicy(p, 10, 100_000, costs, noise); run.changes > 0 || p.class(10).usesBatch != before {
				t.Errorf("%s, %+v: %d changes", name, costs, run.changes)
			}
		}
	}
}

// Ways that differ less than the noise do not replace each other again and again.
func TestEqualWaysDoNotAlternate(t *testing.T) {
	p := new(batchPolicy)
	random := rand.New(rand.NewPCG(1, 2))
	noise := func(_ int, _ bool, ns int64) int64 { return ns * int64(90+random.IntN(20)) / 100 }
	if run := runPolicy(p, 100, 1_000_000, madeCosts{100, 0, 100}, noise); run.changes > 1 {
		t.Errorf("%d changes", run.changes)
	}
}

// Each class of sizes has its own decision.
func TestClassesOfGroupSizes(t *testing.T) {
	p := new(batchPolicy)
	for i, sizes := range [batchClasses][2]int{{minBatch, 8}, {9, 16}, {17, 32}, {33, 64}, {65, 1 << 20}} {
		for _, n := range sizes {
			if p.class(n) != &p.classes[i] {
				t.Errorf("%d calls are not of class %d", n, i)
			}
		}
	}
	for range 4 * trialsInMean {
		for _, n := range []int{6, 100} {
			runPolicy(p, n, 1, cheapCalls, nil)
		}
	}
	if got := p.String(); got != "5: single -10, 65: batch 10" {
		t.Errorf("the decisions are %q", got)
	}
}

// A group of which no batch can be made ends a trial, so that it is not repeated in each turn.
func TestTrialWithoutABatch(t *testing.T) {
	p := new(batchPolicy)
	timed := 0
	for range 10 * trialPause {
		if _, ok := p.choose(10); ok {
			timed++
			p.record(10, 100, false)
		}
	}
	if timed == 0 || timed > 10 || p.class(10).trials > 0 {
		t.Errorf("%d groups were timed, there were %d trials", timed, p.class(10).trials)
	}
}

// A turn that runs out of space makes only a part of its calls.
func TestCostIsThatOfTheCallsMade(t *testing.T) {
	var now int64
	calls := kernelCalls()
	calls.ThreadTime = func() int64 { return now }
	l := newLoop(t, defaultSizes, calls)
	p := new(batchPolicy)
	p.choose(10)
	group := l.r.beginGroup(p, 10)
	now += 1000
	l.r.batch.runs++
	l.r.endGroup(group, 5)
	if cost := p.class(10).batchCost; cost != 200 {
		t.Errorf("the cost of a call is %v ns", cost)
	}
}

func TestNoTrialsWithoutARing(t *testing.T) {
	l := defaultLoop(t)
	l.r.sendPolicy = batchPolicy{}
	l.sh.Flags |= NoRing
	off := l.r.beginGroup(&l.r.sendPolicy, 10)
	l.sh.Flags &^= NoRing
	l.r.batch.state = ringRefused
	refused := l.r.beginGroup(&l.r.sendPolicy, 10)
	if off != (callGroup{}) || refused != (callGroup{}) || l.r.sendPolicy != (batchPolicy{}) {
		t.Errorf("the groups are %+v and %+v", off, refused)
	}
}
