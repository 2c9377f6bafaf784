package netloop

import (
	"fmt"
	"math"
)

// A sendPolicy chooses the number of ready registrations up to which a turn is eager. In an eager
// turn C receives for a stream when its protocol is about to be called, and sends within write();
// in any other turn Go receives for all streams before the callbacks, and sends after them.
//
// An eager send wakes its peer early. That is worth much if the peer has a processor of its own
// and works while this loop goes on. It costs much if the peer preempts this loop on the same
// processor, or if one wake-up could have served many messages. The time of the loop's own calls
// shows neither, so the policy measures the outcome: the receives for each nanosecond of wall
// time, and the processor time of a receive.
//
// The choice is one of eagerLevels. A trial compares it with a neighbouring level, in two windows
// that follow each other:
//
//	settle, window of one level, settle, window of the other level
//
// The order changes with each trial, so that a drift of the load favors neither. The difference of
// the rates decides once it is clear (clearDifference standard errors, and minGain). Programs at a
// fixed rate have equal rates at all levels: after maxTrials trials the processor time decides.
//
// The first series of trials runs without pauses. In later ones the other level gets at most
// 1/trialPause of the turns, so that even a level that loses 40 % costs less than 1 %. If the load
// has changed, a series starts again; it has no pauses if the last such series was long ago.
type sendPolicy struct {
	level int // the choice, an index of eagerLevels
	other int // the level that the trials compare with the choice
	fixed int // a limit that replaces the choice; -1: none

	step       trialStep
	otherFirst bool
	turnsLeft  int // turns until the next step
	begun      measurement
	first      measurement // difference over the first window of the trial

	rate, processor meanOf  // of the series: gains of the other level, in rate and processor time
	pauses          bool    // the trials of the series have pauses between them
	quickTurns      int     // turns until a series without pauses may follow a change of the load
	load            float64 // receives in a turn when the series began; 0: not known yet
	decisions       int
}

// trialStep is the part of a trial that takes place now.
type trialStep uint8

const (
	trialPauses trialStep = iota
	firstSettles
	firstWindow
	secondSettles
	secondWindow
)

// eagerLevels are the numbers of ready registrations from which the policy chooses.
var eagerLevels = [...]int{0, 4, 16}

const (
	defaultLevel = 1

	firstPause  = 512 // turns of a loop before its first trial
	settleTurns = 8
	windowTurns = 64
	// A trial with fewer receives in one of its windows has no result.
	minWindowReceives = windowTurns / 4

	minTrials = 12
	maxTrials = 48
	// A trial's result is limited to this, because a half of it may have been interrupted.
	maxTrialGain = 0.5
	// Standard errors that make a difference clear.
	clearDifference = 3
	minGain         = 0.02

	trialPause = 40 * (settleTurns + windowTurns)
	// A series without pauses gives half of its turns to the other level.
	quickPause = 40 * maxTrials * (settleTurns + windowTurns)
	// The load has changed if a turn has so many times as many receives, or as few.
	loadChange = 2
)

// measurement is the state of the reactor's counters, or the difference of two states.
type measurement struct {
	now       int64 // ns of the reactor's clock
	processor int64 // ns of the thread's processor time
	receives  uint64
}

func (m measurement) since(before measurement) measurement {
	return measurement{m.now - before.now, m.processor - before.processor, m.receives - before.receives}
}

// isUsable reports whether the window has a rate and a processor time.
func (m measurement) isUsable() bool {
	return m.receives >= minWindowReceives && m.now > 0 && m.processor > 0
}

// meanOf is a mean with the sum of squares from which its standard error follows.
type meanOf struct {
	n            int
	sum, squares float64
}

func (m *meanOf) add(value float64) {
	m.n++
	m.sum += value
	m.squares += value * value
}

func (m *meanOf) mean() float64 { return m.sum / float64(max(m.n, 1)) }

// isClear reports whether the mean differs from 0 by minGain and by clearDifference standard
// errors.
func (m *meanOf) isClear() bool {
	n, mean := float64(m.n), m.mean()
	variance := max(m.squares/n-mean*mean, 0)
	return math.Abs(mean) >= minGain && math.Abs(mean) >= clearDifference*math.Sqrt(variance/(n-1))
}

// newSendPolicy returns a policy that measures.
func newSendPolicy() sendPolicy {
	p := sendPolicy{level: defaultLevel, fixed: -1}
	p.beginSeries(defaultLevel+1, false)
	p.turnsLeft = firstPause
	return p
}

// fixedSendPolicy returns a policy with a constant limit.
func fixedSendPolicy(limit int) sendPolicy { return sendPolicy{fixed: limit} }

// turnLimit returns the number of ready registrations up to which this turn is eager. The reactor
// calls it once in each turn; measure reads the counters.
func (p *sendPolicy) turnLimit(measure func() measurement) int {
	if p.fixed >= 0 {
		return p.fixed
	}
	if p.quickTurns > 0 {
		p.quickTurns--
	}
	if p.turnsLeft--; p.turnsLeft <= 0 {
		p.endStep(measure())
	}
	if p.triesOther() {
		return eagerLevels[p.other]
	}
	return eagerLevels[p.level]
}

// triesOther reports whether the turns of the present step are of the other level.
func (p *sendPolicy) triesOther() bool {
	switch p.step {
	case firstSettles, firstWindow:
		return p.otherFirst
	case secondSettles, secondWindow:
		return !p.otherFirst
	}
	return false
}

// endStep ends the present step of a trial and begins the next one.
func (p *sendPolicy) endStep(at measurement) {
	switch p.step {
	case trialPauses:
		p.otherFirst = !p.otherFirst
		p.step, p.turnsLeft = firstSettles, settleTurns
	case firstSettles:
		p.step, p.turnsLeft, p.begun = firstWindow, windowTurns, at
	case firstWindow:
		p.first = at.since(p.begun)
		p.step, p.turnsLeft = secondSettles, settleTurns
	case secondSettles:
		p.step, p.turnsLeft, p.begun = secondWindow, windowTurns, at
	case secondWindow:
		p.pauseTrials()
		chosen, other := p.first, at.since(p.begun)
		if p.otherFirst {
			chosen, other = other, chosen
		}
		if chosen.isUsable() && other.isUsable() {
			p.endTrial(chosen, other)
		}
	}
}

// pauseTrials begins the pause before the next trial.
func (p *sendPolicy) pauseTrials() {
	p.step, p.turnsLeft = trialPauses, 1
	if p.pauses {
		p.turnsLeft = trialPause
	}
}

// endTrial adds the result of a trial to the series, and decides if the series is clear or long
// enough.
func (p *sendPolicy) endTrial(chosen, other measurement) {
	load := float64(chosen.receives) / windowTurns
	if p.load == 0 {
		p.load = load
	} else if load > loadChange*p.load || load < p.load/loadChange {
		p.beginSeries(p.other, p.quickTurns > 0)
		return
	}
	p.rate.add(gain(
		float64(chosen.now)/float64(chosen.receives), float64(other.now)/float64(other.receives)))
	p.processor.add(gain(
		float64(chosen.processor)/float64(chosen.receives), float64(other.processor)/float64(other.receives)))
	switch {
	case p.rate.n < minTrials:
	case p.rate.isClear():
		p.endSeries(p.rate.mean() > 0)
	case p.rate.n >= maxTrials:
		p.endSeries(p.processor.isClear() && p.processor.mean() > 0)
	}
}

// gain returns the part of the cost that the other way saves; negative if it costs more.
func gain(chosen, other float64) float64 {
	return max(-maxTrialGain, min(maxTrialGain, (chosen-other)/max(chosen, other)))
}

// endSeries ends a series: it chooses the other level or keeps the choice, and begins the series
// with the next neighbor.
func (p *sendPolicy) endSeries(forOther bool) {
	p.decisions++
	before := p.level
	next := 2*p.level - p.other // the neighbor on the other side
	if forOther {
		p.level, next = p.other, 2*p.other-before
	}
	if next < 0 || next >= len(eagerLevels) {
		next = 2*p.level - next
	}
	// The first series are without pauses until a choice was kept once against each neighbor.
	p.beginSeries(next, p.pauses || !forOther && p.decisions >= len(eagerLevels)-1)
}

// beginSeries begins a series of trials with the level `other`.
func (p *sendPolicy) beginSeries(other int, pauses bool) {
	p.other, p.pauses = other, pauses
	p.rate, p.processor, p.load = meanOf{}, meanOf{}, 0
	if !pauses {
		p.quickTurns = quickPause
	}
	p.pauseTrials()
}

// String returns the choice, and the results of the present series: "4; 16: rate +3 %, processor
// time -1 %, after 20 trials".
func (p *sendPolicy) String() string {
	if p.fixed >= 0 {
		return fmt.Sprint(p.fixed)
	}
	choice := fmt.Sprint(eagerLevels[p.level])
	if p.rate.n == 0 {
		return choice
	}
	return fmt.Sprintf("%s; %d: rate %+.0f %%, processor time %+.0f %%, after %d trials", choice,
		eagerLevels[p.other], 100*p.rate.mean(), -100*p.processor.mean(), p.rate.n)
}
