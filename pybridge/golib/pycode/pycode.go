// Package pycode reads the names and lines of Python's code objects without the GIL. An object may have
// been freed and its address may never have been one of an object, so pointers are never dereferenced: memory
// is copied by a system call (see python_stack.c in core).
package pycode

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"github.com/goloop/goloop/netloop"
)

// MaxName is the usual limit of a function's name in bytes. The name of a file may be twice as long.
const MaxName = 128

const (
	codeUnit      = 2 // bytes, as since Python 3.6
	maxLineTable  = 65536
	maxCodeHead   = 512
	maxCharacters = 1000 // characters
)

// Code is a code object as it was read.
type Code struct {
	Head           [4]uint64 // identity: addresses of the strings and of the line table, first line
	Function, File string
}

// State is the kind of object at an address.
type State int

const (
	IsCode    State = iota // a code object
	IsNotCode              // None or a shim: the frame has no Python code
	IsInvalid              // freed memory, or an object of another type
)

// isFreed reports whether the first word of an object is not a reference count. Freed objects stay as they
// were except for this word, in which pymalloc links its free memory. A count has 32 bits, also for
// immortal objects, and from 3.14 on flags in the highest 16 bits.
func isFreed(count uint64) bool { return uint32(count) == 0 || uint16(count>>32) != 0 }

// ReadHead reads the identity of the code object at an address into head, and returns the kind of object.
// None, which frames without Python code have, is IsNotCode. head is changed only for IsCode.
func ReadHead(py *netloop.Python, address uint64, head *[4]uint64) State {
	var raw [maxCodeHead]byte
	size := int(py.CodeSize)
	if size > maxCodeHead || !ReadMemory(address, raw[:size]) {
		return IsInvalid
	}
	word := func(at uint32) uint64 { return binary.NativeEndian.Uint64(raw[at:]) }
	if py.ObjectType == 8 && isFreed(word(0)) {
		return IsInvalid
	}
	switch word(py.ObjectType) {
	case py.CodeType:
	case py.NoneType:
		return IsNotCode
	default:
		return IsInvalid
	}
	*head = [4]uint64{word(py.Qualname), word(py.Filename), word(py.Linetable),
		uint64(binary.NativeEndian.Uint32(raw[py.Firstlineno:]))}
	return IsCode
}

// Read reads a code object with names cut to fewer than functionLimit and fileLimit bytes. It checks
// that the object did not change meanwhile. IsInvalid: there is no code object any more; IsNotCode: the
// frame has no Python code. Then c is incomplete.
func Read(py *netloop.Python, address uint64, functionLimit, fileLimit int) (c Code, state State) {
	if state = ReadHead(py, address, &c.Head); state != IsCode {
		return c, state
	}
	var ok bool
	if c.Function, ok = readStr(py, c.Head[0], functionLimit); !ok {
		return c, IsInvalid
	}
	if c.File, ok = readStr(py, c.Head[1], fileLimit); !ok {
		return c, IsInvalid
	}
	var after [4]uint64
	if ReadHead(py, address, &after) != IsCode || after != c.Head {
		return c, IsInvalid
	}
	if strings.HasPrefix(c.File, "<shim>") {
		return c, IsNotCode
	}
	return c, IsCode
}

// strHead is the head of a str object.
type strHead struct {
	length, hash, state uint64
}

// readStrHead reads the head of the str object at an address. It returns false if there is no compact str.
func readStrHead(py *netloop.Python, address uint64) (t strHead, ok bool) {
	var raw [128]byte
	if int(py.AsciiData) > len(raw) || !ReadMemory(address, raw[:py.AsciiData]) {
		return t, false
	}
	word := func(at uint32) uint64 { return binary.NativeEndian.Uint64(raw[at:]) }
	t = strHead{word(py.StrLength), word(py.StrHash), word(py.StrState)}
	return t, word(py.ObjectType) == py.StrType && t.state&py.StrCompact != 0 && int64(t.length) >= 0
}

// readStr reads a str as UTF-8 with control characters replaced, cut to maxCharacters characters and to
// fewer than `limit` bytes. It returns false if there is no such str or it changed meanwhile.
func readStr(py *netloop.Python, address uint64, limit int) (string, bool) {
	t, ok := readStrHead(py, address)
	if !ok {
		return "", false
	}
	kind := int(t.state & py.StrKind / (py.StrKind / 7))
	data := address + uint64(py.Data)
	if t.state&py.StrAscii != 0 {
		data = address + uint64(py.AsciiData)
	}
	if kind != 1 && kind != 2 && kind != 4 {
		return "", false
	}
	var raw [4 * maxCharacters]byte
	n := int(min(t.length, uint64(limit), maxCharacters))
	if n > 0 && !ReadMemory(data, raw[:n*kind]) {
		return "", false
	}
	if after, ok := readStrHead(py, address); !ok || after.length != t.length || after.hash != t.hash {
		return "", false
	}
	out := make([]byte, 0, min(limit, 4*n))
	for i := range n {
		var c rune
		switch kind {
		case 1:
			c = rune(raw[i])
		case 2:
			c = rune(binary.NativeEndian.Uint16(raw[2*i:]))
		default:
			c = rune(binary.NativeEndian.Uint32(raw[4*i:]))
		}
		if c < 0x20 || c == 0x7f {
			c = '?'
		}
		if len(out)+utf8.UTFMax >= limit {
			break
		}
		out = utf8.AppendRune(out, c) // a lone surrogate becomes U+FFFD
	}
	return string(out), true
}

// Line returns the line of an instruction of a code object at this address, or 0 if it is unknown.
// instruction is an address.
func Line(py *netloop.Python, c *Code, address, instruction uint64) int32 {
	var head [64]byte
	table := c.Head[2]
	if !ReadMemory(table, head[:py.BytesData]) ||
		binary.NativeEndian.Uint64(head[py.ObjectType:]) != py.BytesType {
		return 0
	}
	n := int64(binary.NativeEndian.Uint64(head[py.BytesLength:]))
	if n < 0 || n > maxLineTable {
		return 0
	}
	lines := make([]byte, n)
	if n > 0 && !ReadMemory(table+uint64(py.BytesData), lines) {
		return 0
	}
	var after [4]uint64
	if ReadHead(py, address, &after) != IsCode || after != c.Head {
		return 0 // the table may belong to another object
	}
	offset := int64(instruction - address - uint64(py.CodeSize))
	return lineOf(lines, int32(c.Head[3]), max(offset, 0))
}

// lineOf decodes CPython's location table (InternalDocs/code_objects.md) and returns the line of the
// instruction at an offset in bytes, or 0 if it has none. line is the first line of the code object.
func lineOf(table []byte, line int32, offset int64) int32 {
	at := int64(0)
	for p := 0; p < len(table); {
		head := table[p]
		p++
		kind := head >> 3 & 15
		switch {
		case kind == 13 || kind == 14:
			value, shift := uint32(0), 0
			for p < len(table) && shift < 30 {
				b := table[p]
				p++
				value |= uint32(b&63) << shift
				shift += 6
				if b&64 == 0 {
					break
				}
			}
			if value&1 != 0 {
				line -= int32(value >> 1)
			} else {
				line += int32(value >> 1)
			}
		case kind >= 10 && kind <= 12:
			line += int32(kind) - 10
		}
		at += int64(head&7+1) * codeUnit
		if offset < at {
			if kind == 15 {
				return 0
			}
			return max(line, 0)
		}
		for p < len(table) && table[p]&128 == 0 {
			p++
		}
	}
	return 0
}
