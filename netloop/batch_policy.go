package netloop

import (
	"fmt"
	"math/bits"
	"strings"
)

// A batchPolicy decides whether a group of n calls is made in batches on the ring or as single
// calls. The decision follows the costs that the reactor sees: on some machines a batch saves a
// quarter of the time, on others it costs more than it saves.
//
// Groups of similar size have one class, with its own decision. Now and then a class makes a
// trial of four groups:
//
//	in batches, untimed; in batches, timed; single calls, untimed; single calls, timed
//
// The first group of each way is untimed because it finds a cold cache. The time is processor
// time, so a preemption does not count. Both times are for one call and belong to the same
// moment, so a load that changes does not favour one of the ways. The mean saving of the last
// trials decides, if it is beyond minSaving: a way that is only as good as the other one does
// not replace it.
//
// A new class makes trialsInMean trials one after another before it decides. Afterwards trials
// are so rare that the other way gets less than a hundredth of the groups and of the time.
type batchPolicy struct{ classes [batchClasses]batchClass }

const (
	batchClasses = 5
	trialsInMean = 64
	trialPause   = 256 // groups between two trials
	// The pause is longer if the other way took longer, but at most by this factor: perhaps that
	// group was only interrupted.
	maxPauseFactor = 16
	minSaving      = 0.02
	// maxTrialSaving limits the result of one trial, of which a half may have been interrupted.
	maxTrialSaving = 0.1
)

// batchClass has the measurements for groups of one class of sizes.
type batchClass struct {
	usesBatch  bool    // the decision
	step       uint8   // groups of the current trial that have begun; 0: between trials
	trials     uint8   // finished trials, at most trialsInMean
	untilTrial uint16  // groups until the next trial
	saving     float64 // mean share of the time of single calls that batches save; < 0: they cost more
	batchCost  float64 // ns for one call of the timed batch of the current trial
}

// class returns the class of groups of n calls, n >= minBatch: 5–8, 9–16, 17–32, 33–64, or more.
func (p *batchPolicy) class(n int) *batchClass {
	return &p.classes[min(bits.Len(uint(n-1))-3, batchClasses-1)]
}

// choose returns whether the next group of n calls is made in batches. If timed is true, the
// caller passes the group's time to record.
func (p *batchPolicy) choose(n int) (batch, timed bool) {
	c := p.class(n)
	if c.untilTrial > 0 {
		c.untilTrial--
		return c.usesBatch, false
	}
	c.step++
	return c.step <= 2, c.step%2 == 0
}

// record adds the time for one call (ns) of a group of n calls for which choose returned timed.
// `batched` is false if no batch could be made of the group; a trial then ends without a result
// when its batches should have been timed.
func (p *batchPolicy) record(n int, cost float64, batched bool) {
	c := p.class(n)
	switch {
	case c.step > 2:
		c.endTrial(cost)
	case batched:
		c.batchCost = cost
	default:
		c.step, c.untilTrial = 0, trialPause
	}
}

// endTrial ends a trial in which a single call took singleCost ns, and makes the decision.
func (c *batchClass) endTrial(singleCost float64) {
	c.step = 0
	larger := max(singleCost, c.batchCost, 1)
	saving := (singleCost - c.batchCost) / larger
	c.trials = min(c.trials+1, trialsInMean)
	c.saving += (max(-maxTrialSaving, min(maxTrialSaving, saving)) - c.saving) / float64(c.trials)
	if c.trials < trialsInMean {
		return
	}
	switch {
	case c.saving > minSaving:
		c.usesBatch = true
	case c.saving < -minSaving:
		c.usesBatch = false
	}
	used, other := max(singleCost, 1), c.batchCost
	if c.usesBatch {
		used, other = max(c.batchCost, 1), singleCost
	}
	c.untilTrial = uint16(trialPause * max(1, min(other/used, maxPauseFactor)))
}

// String returns the decisions with the mean savings in per cent, for the smallest size of each
// class that has decided: "5: single -4, 9: batch 6".
func (p *batchPolicy) String() string {
	var decisions []string
	for i, c := range p.classes {
		if c.trials == trialsInMean {
			way := "single"
			if c.usesBatch {
				way = "batch"
			}
			decisions = append(decisions, fmt.Sprintf("%d: %s %.0f", (minBatch-1)<<i+1, way, 100*c.saving))
		}
	}
	return strings.Join(decisions, ", ")
}

// callGroup is a group of calls of the reactor: the receives or the sends of one turn.
type callGroup struct {
	policy *batchPolicy // nil: the group is too small, or the ring is refused
	size   int
	batch  bool // the calls are made in batches
	timed  bool
	begun  int64  // Calls.ThreadTime, if timed
	runs   uint64 // value of ringBatchState.runs at the beginning
}

// beginGroup begins a group of n calls and chooses its way. The group ends with endGroup.
func (r *Reactor) beginGroup(p *batchPolicy, n int) callGroup {
	if n < minBatch || r.batch.state == ringRefused || r.shared.Flags&NoRing != 0 {
		return callGroup{}
	}
	g := callGroup{policy: p, size: n, runs: r.batch.runs}
	if g.batch, g.timed = p.choose(n); g.timed {
		g.begun = r.calls.ThreadTime()
	}
	return g
}

// endGroup ends a group of which `made` calls were made, and records its time.
func (r *Reactor) endGroup(g callGroup, made int) {
	if g.timed {
		cost := float64(r.calls.ThreadTime()-g.begun) / float64(max(made, 1))
		g.policy.record(g.size, cost, r.batch.runs > g.runs)
	}
}
