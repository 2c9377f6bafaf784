package profile

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/goloop/goloop/netloop"
	"github.com/goloop/goloop/pybridge/golib/jsontext"
)

// The flight recorder: the last iterations that took longer than gl_shared.slow_limit, with the stacks that
// the monitor sampled during them. Callbacks record nothing: the loop counts its callbacks anyway and each
// sample has that count, so samples with equal counts belong to one callback, and a callback ended between
// two samples with different counts. This gives the longest callback, exact to about an eighth of the
// iteration's age at that time.

const (
	maxSlowIterations   = 256  // iterations
	maxIterationSamples = 64   // samples of one iteration
	maxFrames           = 1024 // distinct frames
	maxStackFrames      = 32   // frames of one stack, the innermost ones
)

// iterationSample is a sample of the current iteration: a call of the profile's tree.
type iterationSample struct {
	at     int64  // ns
	serial uint64 // equal in samples of one callback
	call   uint32
}

// iterationSamples are the samples of a loop's current iteration, which is identified by its start in ns.
type iterationSamples struct {
	iteration int64
	list      []iterationSample
}

// slowFrame is a frame as the flight recorder stores it. Equal frames are stored once.
type slowFrame struct {
	function, file string
	line           int32
}

// slowStack is the stack of a slow iteration at one age. frames are indices in recorder.frames, innermost
// first.
type slowStack struct {
	age    int64
	kind   uint32 // codeTask, codeCallback, codeItself
	frames []uint32
}

// SlowIteration is the record of one iteration that took longer than the limit. All times are in ns. AddSlow
// sets the fields that are not exported.
type SlowIteration struct {
	Loop          int32
	Began, Length int64
	Callbacks     uint64      // callbacks and completions of the iteration
	GC            int64       // ns of garbage collections
	GILWait       int64       // ns
	longest       int64       // ns of the longest callback, 0: not known
	longestStack  slowStack   // in the middle of it
	stacks        []slowStack // at 1, 2 and 4 times the limit
}

// recorder is the flight recorder of the process, a part of its profile and protected by the profile's
// mutex.
type recorder struct {
	slow      []SlowIteration             // a ring once it is full
	next      int                         // index of the oldest iteration
	slowCount uint64                      // number of recorded iterations, with the overwritten ones
	current   map[int32]*iterationSamples // by loop
	frames    []slowFrame
	byFrame   map[slowFrame]uint32
}

// newRecorder returns an empty flight recorder.
func newRecorder() recorder {
	return recorder{current: map[int32]*iterationSamples{}, byFrame: map[slowFrame]uint32{}}
}

// addIterationSample stores a sample with its call for the loop's current iteration. A sample of another
// iteration first discards the stored ones. If there are too many, every second one is dropped. The caller
// has locked the profile.
func (p *Profile) addIterationSample(s *netloop.Sample, call uint32) {
	now := p.current[s.Loop]
	if now == nil {
		if len(p.current) == maxLoops {
			clear(p.current)
		}
		now = &iterationSamples{}
		p.current[s.Loop] = now
	}
	if now.iteration != s.Iteration {
		now.iteration, now.list = s.Iteration, now.list[:0]
	}
	if len(now.list) == maxIterationSamples {
		for i := range maxIterationSamples / 2 {
			now.list[i] = now.list[2*i]
		}
		now.list = now.list[:maxIterationSamples/2]
	}
	now.list = append(now.list, iterationSample{s.At, s.Serial, call})
}

// discardIterationSamples discards the samples of all current iterations. It is called when the calls of
// the tree get new numbers.
func (p *Profile) discardIterationSamples() {
	clear(p.current)
}

// AddSlow completes a record with the samples of its iteration and stores it. If the ring is full, the
// record replaces the oldest one. limit, which is > 0, is the one that the iteration has passed, in ns. The
// caller has locked the profile.
func (p *Profile) AddSlow(r *SlowIteration, limit int64) {
	if now := p.current[r.Loop]; now != nil && now.iteration == r.Began {
		p.addStacks(r, now.list, limit)
	}
	p.slowCount++
	if len(p.slow) < maxSlowIterations {
		p.slow = append(p.slow, *r)
		return
	}
	p.slow[p.next] = *r
	p.next = (p.next + 1) % maxSlowIterations
}

// addStacks adds to a record the stacks at 1, 2 and 4 times the limit, as far as there are samples, and the
// longest callback, from the samples of its iteration.
func (p *Profile) addStacks(r *SlowIteration, list []iterationSample, limit int64) {
	if len(p.frames) > maxFrames {
		p.compactFrames()
	}
	end := r.Began + r.Length
	for due, i := limit, 0; due <= 4*limit; due *= 2 {
		for i < len(list) && list[i].at-r.Began < due {
			i++
		}
		if i < len(list) && list[i].at < end {
			r.stacks = append(r.stacks, p.stackOf(list[i], r.Began))
		}
	}
	for first := 0; first < len(list); {
		last := first
		for last+1 < len(list) && list[last+1].serial == list[first].serial {
			last++
		}
		from, to := r.Began, end
		if first > 0 {
			from = (list[first-1].at + list[first].at) / 2
		}
		if last+1 < len(list) {
			to = (list[last].at + list[last+1].at) / 2
		}
		if to-from > r.longest {
			r.longest = to - from
			r.longestStack = p.stackOf(list[(first+last)/2], r.Began)
		}
		first = last + 1
	}
}

// stackOf returns the stack of a sample of an iteration that began at this time. A stack longer than
// maxStackFrames keeps its innermost frames and its outermost one.
func (p *Profile) stackOf(s iterationSample, began int64) slowStack {
	stack := slowStack{age: s.at - began}
	for at := s.call; at != 0; at = p.calls[at].parent {
		c := p.calls[at]
		switch {
		case c.code == codeUnknown:
			stack.frames = append(stack.frames, p.frameIndex(slowFrame{"?", "", 0}))
		case c.code >= codesFixed:
			known := &p.codes[c.code]
			stack.frames = append(stack.frames, p.frameIndex(slowFrame{known.Function, known.File, c.line}))
		case c.code >= codeTask:
			stack.kind = c.code
		}
	}
	if n := len(stack.frames); n > maxStackFrames {
		stack.frames = append(stack.frames[:maxStackFrames-1], stack.frames[n-1])
	}
	return stack
}

// frameIndex returns the index of a frame in recorder.frames, to which it adds a new frame.
func (p *Profile) frameIndex(f slowFrame) uint32 {
	index, ok := p.byFrame[f]
	if !ok {
		index = uint32(len(p.frames))
		p.frames = append(p.frames, f)
		p.byFrame[f] = index
	}
	return index
}

// compactFrames drops the frames that no recorded iteration refers to, and the older half of the
// iterations.
func (p *Profile) compactFrames() {
	kept := append(append([]SlowIteration{}, p.slow[p.next:]...), p.slow[:p.next]...)
	before := p.frames
	p.slow, p.next = kept[len(kept)/2:], 0
	p.frames, p.byFrame = nil, map[slowFrame]uint32{}
	renumber := func(s *slowStack) {
		for i, each := range s.frames {
			s.frames[i] = p.frameIndex(before[each])
		}
	}
	for i := range p.slow {
		renumber(&p.slow[i].longestStack)
		for j := range p.slow[i].stacks {
			renumber(&p.slow[i].stacks[j])
		}
	}
}

// appendSlow appends three members to the profile's JSON: the recorded iterations, oldest first, the samples
// of the current iterations, and the frames. The caller has locked the profile.
func (p *Profile) appendSlow(t []byte) []byte {
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
		t = numbers(append(t, '['), int64(r.Loop), r.Began, r.Length, int64(r.Callbacks), r.GC, r.GILWait, r.longest)
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
	for loop, now := range p.current {
		t = append(numbers(append(t, '['), int64(loop), now.iteration), '[')
		for i, each := range now.list {
			if i > 0 {
				t = append(t, ',')
			}
			t = append(numbers(append(t, '['), each.at, int64(each.call)), "0]"...)
		}
		t = append(t, "]],"...)
	}
	if len(p.current) > 0 {
		t = t[:len(t)-1]
	}
	t = append(t, `],"frames":[`...)
	for i, f := range p.frames {
		if i > 0 {
			t = append(t, ',')
		}
		t = jsontext.AppendPlace(t, f.function, f.file, int64(f.line))
	}
	return append(t, ']')
}

const (
	crashFunctions  = 5
	crashIterations = 3
)

// CrashReport returns text with the functions that used the most time and with the last slow iterations,
// for a process that is about to abort. The caller has locked the profile.
func (p *Profile) CrashReport() []byte {
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
	t := []byte("goloop: time by function\n")
	for _, each := range frames[:min(len(frames), crashFunctions)] {
		t = decimal(append(t, "  "...), 100*float64(own[each])/float64(all), 1, 5)
		t = append(t, " %  "+each.String()+"\n"...)
	}
	if len(p.slow) > 0 {
		t = append(t, "goloop: the last slow iterations\n"...)
	}
	for i := max(len(p.slow)-crashIterations, 0); i < len(p.slow); i++ {
		r := &p.slow[(p.next+i)%len(p.slow)]
		t = decimal(append(t, "  "...), float64(r.Length)/1e9, 3, 0)
		t = strconv.AppendInt(append(t, " s, callbacks: "...), int64(r.Callbacks), 10)
		if r.longest > 0 && len(r.longestStack.frames) > 0 {
			where := p.frames[r.longestStack.frames[0]]
			t = decimal(append(t, ", the longest "...), float64(r.longest)/1e9, 3, 0)
			t = append(t, " s in "+where.String()...)
		}
		t = append(t, '\n')
	}
	return t
}

// String returns the function with its file and line, for reports.
func (f slowFrame) String() string {
	if f.file == "" {
		return f.function
	}
	return f.function + " " + f.file + ":" + strconv.Itoa(int(f.line))
}

// decimal appends a number with this number of digits after the point, padded on the left to this width.
func decimal(to []byte, number float64, digits, width int) []byte {
	text := strconv.FormatFloat(number, 'f', digits, 64)
	for n := len(text); n < width; n++ {
		to = append(to, ' ')
	}
	return append(to, text...)
}

// ownFrame returns the innermost frame of a call that is outside of libraries, else the innermost frame,
// else "(the loop)". (Only Python knows the library folders exactly.)
func (p *Profile) ownFrame(call uint32) slowFrame {
	innermost := slowFrame{function: "(the loop)"}
	for at := call; at != 0; at = p.calls[at].parent {
		c := p.calls[at]
		if c.code < codesFixed {
			continue
		}
		known := &p.codes[c.code]
		frame := slowFrame{known.Function, known.File, c.line}
		if innermost.file == "" {
			innermost = frame
		}
		library := strings.Contains(known.File, "/lib/python3") && !strings.Contains(known.File, "-packages/")
		if !library && !strings.Contains(known.File, "/goloop/_internal/") && !strings.HasPrefix(known.File, "<frozen ") {
			return frame
		}
	}
	return innermost
}
