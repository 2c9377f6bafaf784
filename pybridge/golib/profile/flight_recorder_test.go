package profile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/goloop/goloop/netloop"
	"github.com/goloop/goloop/pybridge/golib/pycode"
)

// newProfile returns an empty profile without samples.
func newProfile() *Profile { return New(&netloop.Samples{}, nil) }

// at adds a stack of functions, outermost first, to the profile and returns its call.
func (p *Profile) at(names ...string) uint32 {
	call := p.findOrAddCall(p.findOrAddCall(0, codeLoop, 0, 0), codeTask, 0, 0)
	for i, name := range names {
		p.codes = append(p.codes, knownCode{Code: pycode.Code{Function: name, File: "app.py"}})
		call = p.findOrAddCall(call, uint32(len(p.codes)-1), 0, int32(i+1))
	}
	return call
}

// words returns the functions of a stack, outermost first.
func (p *Profile) words(s slowStack) string {
	t := ""
	for _, each := range s.frames {
		t = p.frames[each].function + " " + t
	}
	return t
}

func TestLongestCallbackHasTheLongestRunOfSamples(t *testing.T) {
	p := newProfile()
	first, second := p.at("first", "inner"), p.at("second")
	p.current[3] = &iterationSamples{iteration: 1000, list: []iterationSample{
		{1020, 5, first}, {1040, 6, second}, {1060, 6, second}, {1100, 6, first}, {1300, 7, first},
	}}
	r := SlowIteration{Loop: 3, Began: 1000, Length: 350}
	p.AddSlow(&r, 30)
	got := p.slow[0]
	// From the middle between 1020 and 1040 to the middle between 1100 and 1300.
	if got.longest != 170 || p.words(got.longestStack) != "second " {
		t.Errorf("%d of %q", got.longest, p.words(got.longestStack))
	}
	ages := ""
	for _, each := range got.stacks {
		ages += fmt.Sprint(each.age, " ", p.words(each))
	}
	if ages != "40 second 60 second 300 first inner " {
		t.Errorf("%q", ages)
	}
	p.AddSlow(&SlowIteration{Loop: 3, Began: 2000, Length: 350}, 30)
	if len(p.slow[1].stacks) != 0 {
		t.Error("the stacks are those of another iteration")
	}
}

func TestIterationSamplesAreThinnedOut(t *testing.T) {
	p := newProfile()
	m := newMade()
	p.python = &m.layout
	for i := range 1000 {
		s := sampleOf(int64(10*i + 10))
		s.Iteration = 1
		p.addSample(s)
	}
	if list := p.current[0].list; len(list) > maxIterationSamples || len(list) < maxIterationSamples/2 || list[0].at != 10 {
		t.Error(len(list), list[0].at)
	}
}

func TestFramesOfDroppedIterationsAreDropped(t *testing.T) {
	p := newProfile()
	for i := range 3000 {
		call := p.at(fmt.Sprint("f", i), fmt.Sprint("g", i))
		p.current[0] = &iterationSamples{iteration: 5, list: []iterationSample{{50, 1, call}}}
		p.AddSlow(&SlowIteration{Began: 5, Length: 100}, 30)
		if len(p.calls) > maxCalls {
			p.prune()
		}
	}
	if len(p.frames) > maxFrames+2 || len(p.slow) > maxSlowIterations {
		t.Error(len(p.frames), len(p.slow))
	}
	last := p.slow[(p.next+len(p.slow)-1)%len(p.slow)]
	if got := p.words(last.longestStack); got != "f2999 g2999 " {
		t.Errorf("%q", got)
	}
}

func TestCrashReportNamesTheProgramsFunctions(t *testing.T) {
	p := newProfile()
	call := p.at("handler")
	p.codes = append(p.codes, knownCode{Code: pycode.Code{Function: "loads", File: "/usr/lib/python3.13/json.py"}})
	p.calls[p.findOrAddCall(call, uint32(len(p.codes)-1), 0, 7)].wall = 75
	p.calls[p.at("other")].wall = 25
	text := string(p.CrashReport())
	if !strings.Contains(text, "75.0 %  handler app.py:1\n") || !strings.Contains(text, "25.0 %  other app.py:1\n") {
		t.Error(text)
	}
}
