// Package profile has the sampling profile of a process's loops, and their flight recorder.
package profile

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/goloop/goloop/netloop"
	"github.com/goloop/goloop/pybridge/golib/jsontext"
	"github.com/goloop/goloop/pybridge/golib/pycode"
)

// The monitor takes samples (monitor.c), and a tree of calls counts them:
//
//	the process -> a loop -> a task, a callback, or the loop itself -> the outermost frame -> ...
//
// A loop's thread adds the pending samples to the tree at the beginning of its next turn. If no turn comes,
// the monitor does. Names are read at that moment from code objects that may have been freed meanwhile:
// such a frame is left out, or gets the name of the object that now has its address.
//
// The tree's size is limited. A full tree drops half of its calls, the ones with the least time, and adds
// their time to their callers, so the sums stay right.

const (
	maxCalls     = 768
	maxEdges     = 2 * maxCalls
	maxCodes     = 384
	maxNameBytes = 40 << 10 // bytes of all names
	maxTasks     = 256
	maxLoops     = 64
	recheckAfter = 1_000_000_000 // ns: after this time a known code object is read again
)

// Indexes in profile.codes that are not code objects.
const (
	codeProcess = iota
	codeLoop    // the line is the loop's number
	codeTask
	codeCallback
	codeItself // the loop's own work, and its wait for the GIL
	codeUnknown
	codesFixed

	// byLine marks an edge whose `at` is a line, to which several instructions lead.
	byLine = 1 << 31
)

// call is a node of the tree: a frame with its callers, or one of the fixed codes above.
type call struct {
	parent, code uint32
	line         int32
	samples      uint32
	wall, cpu    int64 // ns in this call, without its callees
}

// edge is the key of a call: `at` is an offset in the code object, a line or a number.
type edge struct {
	parent, code, at uint32
}

// knownCode is a code object with its address and the time (ns) at which it was last read.
type knownCode struct {
	pycode.Code
	address uint64
	checked int64
}

// taskTime is the time that one coroutine used.
type taskTime struct {
	wall, cpu, at int64
}

// lastSample has the clocks of a loop's previous sample: its time, the thread's processor time, and the
// time in the poll until then, all in ns.
type lastSample struct {
	at, cpu int64
	polled  uint64
}

// Profile is the sampling profile of the process with its flight recorder. The mutex protects all fields.
type Profile struct {
	sync.Mutex
	queue      *netloop.Samples
	findPython func() *netloop.Python
	calls      []call
	edges      map[edge]uint32
	codes      []knownCode
	byCode     map[uint64]uint32
	names      int                  // bytes
	tasks      map[uint64]taskTime  // by address of the coroutine
	loops      map[int32]lastSample // by number of the loop
	began      int64                // ns: start of the first sample's time
	last       int64                // ns: time of the last sample
	samples    uint64
	python     *netloop.Python
	recorder
}

// New returns an empty profile of the samples in a queue, which the monitor fills. findPython returns the
// layout of Python's objects, which is equal for all loops, or nil while no loop is open.
func New(samples *netloop.Samples, findPython func() *netloop.Python) *Profile {
	return &Profile{
		queue: samples, findPython: findPython,
		calls:    make([]call, 1, 64),
		edges:    map[edge]uint32{},
		codes:    make([]knownCode, codesFixed, 64),
		byCode:   map[uint64]uint32{},
		tasks:    map[uint64]taskTime{},
		loops:    map[int32]lastSample{},
		recorder: newRecorder(),
	}
}

// AddPending adds the samples that the monitor has written since the last call to the tree, and removes
// them from the queue. The caller has locked the profile.
func (p *Profile) AddPending() {
	for n := atomic.LoadUint32(&p.queue.Counted); n != atomic.LoadUint32(&p.queue.Written); n++ {
		p.addSample(&p.queue.Sample[n%netloop.MaxSamples])
		atomic.StoreUint32(&p.queue.Counted, n+1)
	}
}

// addSample adds the time of one sample to the call of its stack, and stores the sample for the flight
// recorder. A sample without time creates the calls only. A full tree is pruned first. While no loop is
// open, the sample is discarded. The caller has locked the profile.
func (p *Profile) addSample(s *netloop.Sample) {
	if p.python == nil {
		if p.python = p.findPython(); p.python == nil {
			return
		}
	}
	if p.began == 0 {
		p.began = s.Since
	}
	p.last = s.At
	wall, cpu := s.At-s.Since, int64(0)
	if wall > 0 {
		p.samples++
		cpu = p.cpuTime(s, wall)
	}
	if len(p.calls)+int(s.Frames)+3 > maxCalls || len(p.codes)+int(s.Frames) > maxCodes ||
		len(p.edges) > maxEdges || p.names > maxNameBytes {
		p.prune()
	}
	at := p.findOrAddCall(0, codeLoop, uint32(s.Loop), s.Loop)
	switch {
	case s.Frames == 0:
		at = p.findOrAddCall(at, codeItself, 0, 0)
	case s.Coroutine != 0:
		at = p.findOrAddCall(at, codeTask, 0, 0)
		if wall > 0 {
			p.addTask(s, wall, cpu)
		}
	default:
		at = p.findOrAddCall(at, codeCallback, 0, 0)
	}
	for i := int(s.Frames) - 1; i >= 0; i-- {
		f := s.Frame[i]
		index := p.codeAt(f.Code, s.At)
		if index == codeProcess {
			continue
		}
		offset := uint32(f.Instruction - f.Code)
		if index == codeUnknown {
			offset = 0
		}
		next, ok := p.edges[edge{at, index, offset}]
		if !ok {
			line := int32(0)
			if index != codeUnknown {
				line = pycode.Line(p.python, &p.codes[index].Code, f.Code, f.Instruction)
			}
			next = p.findOrAddCall(at, index|byLine, uint32(line), line)
			p.edges[edge{at, index, offset}] = next
		}
		at = next
	}
	if c := &p.calls[at]; wall > 0 {
		c.samples++
		c.wall += wall
		c.cpu += cpu
	}
	p.addIterationSample(s, at)
}

// cpuTime returns the part of a sample's time in which the thread was on a processor: the thread's share of
// the time outside the poll since the previous sample of this loop. It stores the clocks for the next
// sample, and returns 0 for the first one.
func (p *Profile) cpuTime(s *netloop.Sample, wall int64) int64 {
	before, ok := p.loops[s.Loop]
	if !ok && len(p.loops) == maxLoops {
		clear(p.loops)
	}
	p.loops[s.Loop] = lastSample{s.At, s.Cpu, s.Polled}
	busy := s.At - before.at - int64(s.Polled-before.polled)
	if !ok || busy <= 0 || s.Cpu <= before.cpu {
		return 0
	}
	return int64(float64(wall) * min(1, float64(s.Cpu-before.cpu)/float64(busy)))
}

// addTask adds the times of a sample, in ns, to its coroutine's. If there are too many coroutines, it
// removes the one with the oldest sample.
func (p *Profile) addTask(s *netloop.Sample, wall, cpu int64) {
	had, ok := p.tasks[s.Coroutine]
	if !ok && len(p.tasks) == maxTasks {
		oldest, at := uint64(0), int64(0)
		for address, each := range p.tasks {
			if at == 0 || each.at < at {
				oldest, at = address, each.at
			}
		}
		delete(p.tasks, oldest)
	}
	p.tasks[s.Coroutine] = taskTime{had.wall + wall, had.cpu + cpu, s.At}
}

// findOrAddCall returns the index in p.calls of the call of `code` by `parent`, and adds the call with
// `line` if it is new. `at` distinguishes the parent's calls of the same code: the loop's number for
// codeLoop, the line if code has the flag byLine, else 0.
func (p *Profile) findOrAddCall(parent, code, at uint32, line int32) uint32 {
	key := edge{parent, code, at}
	index, ok := p.edges[key]
	if !ok {
		index = uint32(len(p.calls))
		p.calls = append(p.calls, call{parent: parent, code: code &^ byLine, line: line})
		p.edges[key] = index
	}
	return index
}

// codeAt returns the index in p.codes of the code object at an address, and adds a new one. It returns
// codeProcess if the frame has no Python code, codeUnknown if the address is not a code object any more. An
// entry that was read longer than recheckAfter ago is compared with the object first. now is in ns.
func (p *Profile) codeAt(address uint64, now int64) uint32 {
	index, ok := p.byCode[address]
	if ok {
		c := &p.codes[index]
		if now-c.checked < recheckAfter {
			return index
		}
		var head [4]uint64
		if state := pycode.ReadHead(p.python, address, &head); state == pycode.IsCode && head == c.Head {
			c.checked = now
			return index
		}
		delete(p.byCode, address)
	}
	c, state := pycode.Read(p.python, address, pycode.MaxName, 2*pycode.MaxName)
	switch state {
	case pycode.IsInvalid:
		return codeUnknown
	case pycode.IsNotCode:
		return codeProcess
	}
	// A function that was defined again has a second entry with the same name.
	index = uint32(len(p.codes))
	p.codes = append(p.codes, knownCode{c, address, now})
	p.byCode[address] = index
	p.names += len(c.Function) + len(c.File)
	return index
}

// prune drops half of the calls, the ones with the least time, and adds their time to their callers. A call
// is dropped before its caller, which has at least as much time. Codes without a call are dropped, too.
// Indices of calls and codes change, so the samples of current iterations are discarded.
func (p *Profile) prune() {
	total := make([]int64, len(p.calls))
	for i := len(p.calls) - 1; i > 0; i-- { // callers precede their callees
		total[i] += p.calls[i].wall
		total[p.calls[i].parent] += total[i]
	}
	order := slices.Clone(total[1:])
	slices.SortFunc(order, func(a, b int64) int { return cmp.Compare(b, a) })
	least := int64(0)
	if len(order) > maxCalls/2 {
		least = order[maxCalls/2]
	}
	moved := make([]uint32, len(p.calls))
	codes := make([]uint32, len(p.codes))
	calls, kept := p.calls[:1], p.codes[:codesFixed]
	known := make([]bool, len(p.codes))
	uses := 0
	for i := 1; i < len(total); i++ {
		c := p.calls[i]
		into := moved[c.parent]
		if total[i] <= least || uses >= maxCodes/2 && c.code >= codesFixed && !known[c.code] ||
			total[c.parent] < 0 {
			calls[into].wall += c.wall
			calls[into].cpu += c.cpu
			calls[into].samples += c.samples
			moved[i] = into
			total[i] = -1
			continue
		}
		if c.code >= codesFixed && !known[c.code] {
			known[c.code] = true
			uses++
		}
		moved[i] = uint32(len(calls))
		c.parent = into
		calls = append(calls, c)
	}
	p.names = 0
	clear(p.byCode)
	for i := codesFixed; i < len(p.codes); i++ {
		if known[i] {
			codes[i] = uint32(len(kept))
			p.names += len(p.codes[i].Function) + len(p.codes[i].File)
			p.byCode[p.codes[i].address] = codes[i]
			kept = append(kept, p.codes[i])
		}
	}
	edges := make(map[edge]uint32, len(calls))
	for key, index := range p.edges {
		if total[index] < 0 {
			continue
		}
		if key.code&^byLine >= codesFixed {
			key.code = codes[key.code&^byLine] | key.code&byLine
		}
		key.parent = moved[key.parent]
		edges[key] = moved[index]
	}
	for i := range calls {
		if calls[i].code >= codesFixed {
			calls[i].code = codes[calls[i].code]
		}
	}
	clear(p.codes[len(kept):])
	p.discardIterationSamples()
	p.calls, p.codes, p.edges = calls, kept, edges
}

// Text returns the profile as JSON, for goloop/_internal/observe/profiling.py. It adds the pending samples
// first. It locks the profile.
func (p *Profile) Text() []byte {
	p.Lock()
	defer p.Unlock()
	p.AddPending()
	number := func(t []byte, name string, value int64) []byte {
		return strconv.AppendInt(append(t, name...), value, 10)
	}
	t := number(nil, `{"began":`, p.began)
	t = number(t, `,"last":`, p.last)
	t = number(t, `,"samples":`, int64(p.samples))
	t = append(t, `,"codes":[`...)
	for i := range p.codes {
		c := &p.codes[i]
		t = append(jsontext.AppendPlace(t, c.Function, c.File, int64(c.Head[3])), ',')
	}
	t = append(t[:len(t)-1], `],"calls":[`...)
	for _, c := range p.calls {
		for i, value := range []int64{int64(c.parent), int64(c.code), int64(c.line), int64(c.samples), c.wall, c.cpu} {
			t = append(t, "[,,,,,"[i])
			t = strconv.AppendInt(t, value, 10)
		}
		t = append(t, "],"...)
	}
	t = append(t[:len(t)-1], `],"tasks":{`...)
	for address, each := range p.tasks {
		t = strconv.AppendUint(append(t, '"'), address, 10)
		t = number(t, `":[`, each.wall)
		t = append(number(t, ",", each.cpu), "],"...)
	}
	if len(p.tasks) > 0 {
		t = t[:len(t)-1]
	}
	return append(p.appendSlow(append(t, '}')), '}')
}
