package main

/*
#include "abi.h"

static void probe_slow(uint32_t loop, uint64_t ns) { GL_PROBE(iteration_slow, loop, ns); }
*/
import "C"

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/goloop/goloop/netloop"
)

// The flight recorder: the last iterations that took longer than gl_shared.slow_limit, and what the
// monitor saw meanwhile. Nothing is noted per callback: the loop counts its callbacks anyway, and
// a sample has the count, so samples with one count are of one callback. Where the count was
// another one, a callback ended in between: that is how the longest is known, to about an eighth
// of the time that the iteration had taken then.

const (
	slowMost      = 256  // iterations
	sightingsMost = 64   // of one iteration
	framesMost    = 1024 // that are told apart
	stackMost     = 32   // of one stack: the innermost ones
)

// ran is what a loop had run when its turn ended.
type ran struct {
	popped uint64
	handed uint64
	waited uint64 // ns for the GIL
}

func (r *ran) turned(sh *netloop.Shared, completions int) {
	if popped := (*C.gl_shared)(unsafe.Pointer(sh)).popped; popped != nil {
		atomic.StoreUint64(&r.popped, uint64(*popped)) // the monitor reads it
		r.handed = uint64(max(completions, 0))
		r.waited = sh.Metrics.GILWait.Sum
	}
}

// sighting is a sample of the present iteration: a call of the tree.
type sighting struct {
	at     int64
	serial uint64
	call   uint32
}

type sightings struct {
	iteration int64
	list      []sighting
}

type slowFrame struct {
	function, file string
	line           int32
}

// slowStack is what the loop did when the iteration was so old.
type slowStack struct {
	age    int64
	kind   uint32 // codeTask, codeCallback, codeItself
	frames []uint32
}

type slowIteration struct {
	loop          int32
	began, length int64
	callbacks     uint64
	gc            int64
	gilWait       int64 // ns
	longest       int64 // ns of the longest callback, 0: not known
	longestStack  slowStack
	stacks        []slowStack
}

type recorder struct {
	slow      []slowIteration // a ring, once it is full
	next      int
	slowCount uint64
	sights    map[int32]*sightings
	frames    []slowFrame
	byFrame   map[slowFrame]uint32
}

func newRecorder() recorder {
	return recorder{sights: map[int32]*sightings{}, byFrame: map[slowFrame]uint32{}}
}

// sighted notes a sample that has become a call.
func (p *profile) sighted(s *netloop.Sample, call uint32) {
	now := p.sights[s.Loop]
	if now == nil {
		if len(p.sights) == loopsMost {
			clear(p.sights)
		}
		now = &sightings{}
		p.sights[s.Loop] = now
	}
	if now.iteration != s.Iteration {
		now.iteration, now.list = s.Iteration, now.list[:0]
	}
	if len(now.list) == sightingsMost {
		for i := range sightingsMost / 2 {
			now.list[i] = now.list[2*i]
		}
		now.list = now.list[:sightingsMost/2]
	}
	now.list = append(now.list, sighting{s.At, s.Serial, call})
}

// forgetSightings is for a tree whose calls have got other numbers.
func (p *profile) forgetSightings() {
	clear(p.sights)
}

// slow records an iteration that has just ended and was not shorter than the limit, which is > 0.
// On the loop's thread, in its turn.
func (l *loop) slow(began, length, limit int64) {
	sh := (*C.gl_shared)(unsafe.Pointer(l.shared))
	if sh.popped == nil {
		return // no loop of Python's
	}
	record := slowIteration{
		loop: int32(atomic.LoadUint32(&l.shared.Number)), began: began, length: length,
		callbacks: uint64(*sh.popped) - l.ran.popped + l.ran.handed,
		gc:        max(atomic.LoadInt64((*int64)(unsafe.Pointer(sh.gc)))-int64(sh.gc_before), 0),
		gilWait:   int64(l.shared.Metrics.GILWait.Sum - l.ran.waited),
	}
	C.probe_slow(C.uint32_t(record.loop), C.uint64_t(length))
	profiled.Lock()
	profiled.count()
	profiled.record(&record, limit)
	profiled.Unlock()
}

func (p *profile) record(r *slowIteration, limit int64) {
	if now := p.sights[r.loop]; now != nil && now.iteration == r.began {
		p.addStacks(r, now.list, limit)
	}
	p.slowCount++
	if len(p.slow) < slowMost {
		p.slow = append(p.slow, *r)
		return
	}
	p.slow[p.next] = *r
	p.next = (p.next + 1) % slowMost
}

// addStacks adds the stacks at 1, 2 and 4 times the limit, and the longest callback.
func (p *profile) addStacks(r *slowIteration, list []sighting, limit int64) {
	if len(p.frames) > framesMost {
		p.compactFrames()
	}
	end := r.began + r.length
	for due, i := limit, 0; due <= 4*limit; due *= 2 {
		for i < len(list) && list[i].at-r.began < due {
			i++
		}
		if i < len(list) && list[i].at < end {
			r.stacks = append(r.stacks, p.stackOf(list[i], r.began))
		}
	}
	for first := 0; first < len(list); {
		last := first
		for last+1 < len(list) && list[last+1].serial == list[first].serial {
			last++
		}
		from, to := r.began, end
		if first > 0 {
			from = (list[first-1].at + list[first].at) / 2
		}
		if last+1 < len(list) {
			to = (list[last].at + list[last+1].at) / 2
		}
		if to-from > r.longest {
			r.longest = to - from
			r.longestStack = p.stackOf(list[(first+last)/2], r.began)
		}
		first = last + 1
	}
}

func (p *profile) stackOf(s sighting, began int64) slowStack {
	stack := slowStack{age: s.at - began}
	for at := s.call; at != 0; at = p.calls[at].parent {
		c := p.calls[at]
		switch {
		case c.code == codeUnknown:
			stack.frames = append(stack.frames, p.frameOf(slowFrame{"?", "", 0}))
		case c.code >= codesFixed:
			known := &p.codes[c.code]
			stack.frames = append(stack.frames, p.frameOf(slowFrame{known.function, known.file, c.line}))
		case c.code >= codeTask:
			stack.kind = c.code
		}
	}
	if n := len(stack.frames); n > stackMost {
		stack.frames = append(stack.frames[:stackMost-1], stack.frames[n-1])
	}
	return stack
}

func (p *profile) frameOf(f slowFrame) uint32 {
	index, ok := p.byFrame[f]
	if !ok {
		index = uint32(len(p.frames))
		p.frames = append(p.frames, f)
		p.byFrame[f] = index
	}
	return index
}

// compactFrames leaves those that a recorded iteration has; if these are too many, the older half
// of the iterations goes.
func (p *profile) compactFrames() {
	kept := append(append([]slowIteration{}, p.slow[p.next:]...), p.slow[:p.next]...)
	before := p.frames
	p.slow, p.next = kept[len(kept)/2:], 0
	p.frames, p.byFrame = nil, map[slowFrame]uint32{}
	again := func(s *slowStack) {
		for i, each := range s.frames {
			s.frames[i] = p.frameOf(before[each])
		}
	}
	for i := range p.slow {
		again(&p.slow[i].longestStack)
		for j := range p.slow[i].stacks {
			again(&p.slow[i].stacks[j])
		}
	}
}

// addSlow adds what is recorded to the text, oldest first.
func (p *profile) addSlow(t []byte) []byte {
	numbers := func(t []byte, values ...int64) []byte {
		for _, value := range values {
			t = append(strconv.AppendInt(t, value, 10), ',')
		}
		return t
	}
	stack := func(t []byte, s *slowStack) []byte {
		t = numbers(append(t, '['), s.age, int64(s.kind))
		t = append(t, '[')
		for i := len(s.frames) - 1; i >= 0; i-- {
			t = strconv.AppendUint(t, uint64(s.frames[i]), 10)
			if i > 0 {
				t = append(t, ',')
			}
		}
		return append(t, "]]"...)
	}
	t = append(t, `,"slow":[`...)
	for i := range p.slow {
		r := &p.slow[(p.next+i)%len(p.slow)]
		if i > 0 {
			t = append(t, ',')
		}
		t = numbers(append(t, '['), int64(r.loop), r.began, r.length, int64(r.callbacks), r.gc, r.gilWait, r.longest)
		t = append(stack(t, &r.longestStack), ",["...)
		for j := range r.stacks {
			if j > 0 {
				t = append(t, ',')
			}
			t = stack(t, &r.stacks[j])
		}
		t = append(t, "]]"...)
	}
	t = append(t, `],"now":[`...)
	for loop, now := range p.sights {
		t = append(numbers(append(t, '['), int64(loop), now.iteration), '[')
		for i, each := range now.list {
			if i > 0 {
				t = append(t, ',')
			}
			t = append(numbers(append(t, '['), each.at, int64(each.call)), "0]"...)
		}
		t = append(t, "]],"...)
	}
	if len(p.sights) > 0 {
		t = t[:len(t)-1]
	}
	t = append(t, `],"frames":[`...)
	for i, f := range p.frames {
		if i > 0 {
			t = append(t, ',')
		}
		t = appendPlace(t, f.function, f.file, int64(f.line))
	}
	return append(t, ']')
}

const (
	lastEntries = 5
	lastSlow    = 3
)

// lastWords tells who had the loops' time, and the last slow iterations, for a process that is about
// to end.
func (p *profile) lastWords() []byte {
	own := map[slowFrame]int64{}
	all := int64(0)
	for i := range p.calls {
		if c := &p.calls[i]; c.wall > 0 {
			own[p.ownFrame(uint32(i))] += c.wall
			all += c.wall
		}
	}
	frames := make([]slowFrame, 0, len(own))
	for each := range own {
		frames = append(frames, each)
	}
	slices.SortFunc(frames, func(a, b slowFrame) int { return cmp.Compare(own[b], own[a]) })
	t := []byte("goloop: who has had the loops' time\n")
	for _, each := range frames[:min(len(frames), lastEntries)] {
		t = decimal(append(t, "  "...), 100*float64(own[each])/float64(all), 1, 5)
		t = append(t, " %  "+each.String()+"\n"...)
	}
	if len(p.slow) > 0 {
		t = append(t, "goloop: the last slow iterations\n"...)
	}
	for i := max(len(p.slow)-lastSlow, 0); i < len(p.slow); i++ {
		r := &p.slow[(p.next+i)%len(p.slow)]
		t = decimal(append(t, "  "...), float64(r.length)/1e9, 3, 0)
		t = strconv.AppendInt(append(t, " s, callbacks: "...), int64(r.callbacks), 10)
		if r.longest > 0 && len(r.longestStack.frames) > 0 {
			where := p.frames[r.longestStack.frames[0]]
			t = decimal(append(t, ", the longest "...), float64(r.longest)/1e9, 3, 0)
			t = append(t, " s in "+where.String()...)
		}
		t = append(t, '\n')
	}
	return t
}

func (f slowFrame) String() string {
	if f.file == "" {
		return f.function
	}
	return f.function + " " + f.file + ":" + strconv.Itoa(int(f.line))
}

// decimal adds a number with so many digits behind its point, at least so wide.
func decimal(to []byte, number float64, digits, width int) []byte {
	text := strconv.FormatFloat(number, 'f', digits, 64)
	for n := len(text); n < width; n++ {
		to = append(to, ' ')
	}
	return append(to, text...)
}

// ownFrame is the innermost call of no library's; which folders those are, Python would know.
func (p *profile) ownFrame(call uint32) slowFrame {
	innermost := slowFrame{function: "(the loop)"}
	for at := call; at != 0; at = p.calls[at].parent {
		c := p.calls[at]
		if c.code < codesFixed {
			continue
		}
		known := &p.codes[c.code]
		frame := slowFrame{known.function, known.file, c.line}
		if innermost.file == "" {
			innermost = frame
		}
		library := strings.Contains(known.file, "/lib/python3") && !strings.Contains(known.file, "-packages/")
		if !library && !strings.Contains(known.file, "/goloop/_internal/") && !strings.HasPrefix(known.file, "<frozen ") {
			return frame
		}
	}
	return innermost
}
