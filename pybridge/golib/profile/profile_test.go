package profile

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"github.com/goloop/goloop/netloop"
	"github.com/goloop/goloop/pybridge/golib/pycode"
)

// made has memory with the layout of Python's objects, which must not move.
type made struct {
	layout netloop.Python
	types  [4]uint64
	keep   [][]byte
}

// newMade returns the layout of objects that the functions below create.
func newMade() *made {
	m := &made{}
	at := func(i int) uint64 { return uint64(uintptr(unsafe.Pointer(&m.types[i]))) }
	m.layout = netloop.Python{
		CodeType: at(0), NoneType: at(1), StrType: at(2), BytesType: at(3),
		StrKind: 7 << 2, StrCompact: 1 << 5, StrAscii: 1 << 6,
		ObjectType: 8, Qualname: 16, Filename: 24, Linetable: 32, Firstlineno: 40, CodeSize: 64,
		StrLength: 16, StrHash: 24, StrState: 32, AsciiData: 40, Data: 56,
		BytesLength: 16, BytesData: 24,
	}
	return m
}

// object creates an object of `size` bytes with these words at their offsets, followed by tail, and returns
// its address.
func (m *made) object(size int, words map[uint32]uint64, tail string) uint64 {
	raw := make([]byte, size, size+len(tail))
	binary.NativeEndian.PutUint64(raw, 1) // reference count
	for at, word := range words {
		binary.NativeEndian.PutUint64(raw[at:], word)
	}
	raw = append(raw, tail...)
	m.keep = append(m.keep, raw)
	return uint64(uintptr(unsafe.Pointer(&raw[0])))
}

// text creates a str.
func (m *made) text(text string) uint64 {
	return m.object(40, map[uint32]uint64{8: m.layout.StrType, 16: uint64(len(text)), 32: 1<<2 | 1<<5 | 1<<6}, text)
}

// code creates a code object.
func (m *made) code(function, file string, line int) uint64 {
	// Two entries of one code unit each; the second is a line further.
	table := m.object(24, map[uint32]uint64{8: m.layout.BytesType, 16: 2}, "\xd0\xd8")
	return m.object(64, map[uint32]uint64{8: m.layout.CodeType, 16: m.text(function), 24: m.text(file),
		32: table, 40: uint64(line)}, "")
}

// profile returns an empty profile for objects of this layout.
func (m *made) profile() *Profile {
	p := newProfile()
	p.python = &m.layout
	return p
}

// sampleOf returns a sample of 10 ns that ends at this time, of a stack of code objects, outermost first.
func sampleOf(at int64, codes ...uint64) *netloop.Sample {
	s := &netloop.Sample{At: at, Since: at - 10, Coroutine: 1, Frames: uint32(len(codes))}
	for i, each := range codes {
		s.Frame[len(codes)-1-i] = netloop.RawFrame{Code: each, Instruction: each + 64}
	}
	return s
}

// sum returns the time of all calls in ns.
func (p *Profile) sum() (wall int64) {
	for _, c := range p.calls {
		wall += c.wall
	}
	return wall
}

func TestAFullProfileKeepsItsSumsAndItsBounds(t *testing.T) {
	m := newMade()
	p := m.profile()
	often := m.code("often", "app.py", 1)
	var outer [20]uint64
	for i := range outer {
		outer[i] = m.code(fmt.Sprintf("outer%d", i), "app.py", 10*i)
	}
	added := int64(0)
	for i := range 20_000 {
		rare := m.code(fmt.Sprintf("rare%d", i), "made.py", i)
		p.addSample(sampleOf(added+10, outer[i%len(outer)], rare, rare))
		p.addSample(sampleOf(added+20, outer[i%len(outer)], often))
		added += 20
		if len(p.calls) > maxCalls || len(p.codes) > maxCodes+netloop.SampleFrames || len(p.edges) > maxEdges+netloop.SampleFrames ||
			p.names > maxNameBytes+netloop.SampleFrames*3*pycode.MaxName {
			t.Fatal("out of bounds: ", len(p.calls), len(p.codes), len(p.edges), p.names)
		}
	}
	if p.sum() != added {
		t.Errorf("%d ns were added, and %d are there", added, p.sum())
	}
	oftens := int64(0)
	for _, c := range p.calls {
		if p.codes[c.code].Function == "often" {
			oftens += c.wall
		}
	}
	if oftens < added*4/10 || oftens > added/2 {
		t.Errorf("what has half of the time has %d of %d", oftens, added)
	}
	runtime.KeepAlive(m)
}

func TestFramesWithoutCodeAreUnknown(t *testing.T) {
	m := newMade()
	p := m.profile()
	none := m.object(64, map[uint32]uint64{8: m.layout.NoneType}, "")
	p.addSample(sampleOf(10, m.code("f", "f.py", 5), none, 16, m.text("no code")))
	names := ""
	for _, c := range p.calls {
		names += fmt.Sprint(c.code, p.codes[c.code].Function, c.line, " ")
	}
	// The process, the loop, the task, f, and two unknown frames.
	if want := "00 10 20 6f5 50 50 "; names != want {
		t.Errorf("%q, not %q", names, want)
	}
	runtime.KeepAlive(m)
}

func TestReusedAddressIsAnotherCodeObject(t *testing.T) {
	m := newMade()
	p := m.profile()
	address := m.code("first", "f.py", 5)
	p.addSample(sampleOf(10, address))
	raw := m.keep[len(m.keep)-1]
	binary.NativeEndian.PutUint64(raw[16:], m.text("second"))
	p.addSample(sampleOf(10+recheckAfter, address))
	last := p.codes[len(p.codes)-1].Function
	if last != "second" {
		t.Errorf("%q is known there", last)
	}
	runtime.KeepAlive(m)
}

func TestAFreedCodeObjectIsUnknown(t *testing.T) {
	for count, known := range map[uint64]bool{1: true, 0xFFFF_FFFF: true, 0: false, 0x7f12_3456_7890: false} {
		m := newMade()
		p := m.profile()
		address := m.code("freed", "f.py", 5)
		binary.NativeEndian.PutUint64(m.keep[len(m.keep)-1], count)
		p.addSample(sampleOf(10, address))
		if got := p.codes[len(p.codes)-1].Function == "freed"; got != known {
			t.Errorf("with %#x for its reference count it is known: %t", count, got)
		}
		runtime.KeepAlive(m)
	}
}

func TestTheTextIsJSON(t *testing.T) {
	m := newMade()
	p := m.profile()
	p.addSample(sampleOf(10, m.code(`a"\b`, "<x>&", 5)))
	var decoded struct {
		Codes [][]any
		Calls [][]int64
		Tasks map[string][]int64
	}
	if err := json.Unmarshal(p.Text(), &decoded); err != nil {
		t.Fatal(err)
	}
	if got := decoded.Codes[codesFixed][0]; got != `a"\b` {
		t.Errorf("%q", got)
	}
	if got := decoded.Tasks["1"][0]; got != 10 {
		t.Errorf("%d ns of the task", got)
	}
	if last := decoded.Calls[len(decoded.Calls)-1]; last[2] != 5 || last[3] != 1 || last[4] != 10 {
		t.Error(last)
	}
	runtime.KeepAlive(m)
}
