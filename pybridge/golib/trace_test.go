//go:build cgo

package main

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"github.com/goloop/goloop/netloop"
)

// note adds a record as C does, without a clock.
func note(sh *netloop.Shared, what uint64) {
	trace := (*netloop.Trace)(*(*unsafe.Pointer)(unsafe.Pointer(&sh.Trace)))
	trace.Record[trace.Written%netloop.TraceRecords] = netloop.Record{What: what}
	trace.Written++
}

// records returns the number of lost records of a frame and the words of the others.
func records(t *testing.T, out []byte) (lost uint64, words []uint64) {
	t.Helper()
	if kind := binary.LittleEndian.Uint32(out); kind != frameRecords {
		t.Fatalf("a frame of kind %d", kind)
	}
	body := out[frameHead:][:binary.LittleEndian.Uint32(out[4:])]
	for at := 8; at < len(body); at += recordSize {
		words = append(words, binary.NativeEndian.Uint64(body[at+8:]))
	}
	return binary.LittleEndian.Uint64(body), words
}

func TestALoopIsTracedWhileATracerIsThere(t *testing.T) {
	tr := &tracer{rings: map[*loop]*ring{}, known: map[uint64]struct{}{}}
	l := &loop{shared: &netloop.Shared{}}
	tr.openLoop(l)
	if l.shared.Trace != 0 {
		t.Fatal("nobody traces")
	}
	tr.on = true
	tr.openLoop(&loop{shared: &netloop.Shared{}, isolated: true})
	tr.openLoop(l)
	if len(tr.rings) != 1 || l.shared.Trace == 0 {
		t.Fatalf("%d rings", len(tr.rings))
	}
	note(l.shared, netloop.TraceStop<<60|1)
	tr.closeLoop(l)
	if lost, words := records(t, tr.out); lost != 0 || len(words) != 1 || words[0]&addresses != 1 {
		t.Fatalf("%d lost, %x", lost, words)
	}
	if l.shared.Trace != 0 || len(tr.rings) != 0 || len(tr.spare) != 1 {
		t.Fatal("the ring is still the loop's")
	}
	memory := &tr.spare[0].memory[0]
	tr.openLoop(l)
	if len(tr.spare) != 0 || &tr.rings[l].memory[0] != memory || tr.rings[l].trace().Written != 0 {
		t.Fatal("the ring is not used again")
	}
}

func TestOverwrittenRecordsAreCounted(t *testing.T) {
	tr := &tracer{on: true, rings: map[*loop]*ring{}, known: map[uint64]struct{}{}}
	l := &loop{shared: &netloop.Shared{}}
	tr.openLoop(l)
	const more = 1000
	for i := range uint64(netloop.TraceRecords + more) {
		note(l.shared, netloop.TraceStop<<60|i)
	}
	l.shared.Number = 7
	tr.copyRecords(l, tr.rings[l])
	if number := binary.LittleEndian.Uint32(tr.out[8:]); number != 7 {
		t.Fatalf("of loop %d", number)
	}
	lost, words := records(t, tr.out)
	if lost != more+unreadableRecords || uint64(len(words)) != netloop.TraceRecords-unreadableRecords {
		t.Fatalf("%d lost, %d there", lost, len(words))
	}
	for i, word := range words { // across the end of the ring
		if word&addresses != lost+uint64(i) {
			t.Fatalf("%x is number %d", word, i)
		}
	}
	tr.out = nil
	if tr.copyRecords(l, tr.rings[l]) != 0 || len(tr.out) != 0 {
		t.Fatal("it is told twice")
	}
}
