//go:build cgo

package main

import (
	"encoding/json"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/goloop/goloop/netloop"
)

// counted is in place of C's memory: its fields must not move.
var counted struct {
	popped uint64
	gc     int64
	python netloop.Python
}

func TestSlowIterationUsesTheLimitThatItsTurnRead(t *testing.T) {
	l := &loop{shared: &netloop.Shared{Number: 5}}
	l.shared.Popped = uintptr(unsafe.Pointer(&counted.popped))
	l.shared.Gc = uintptr(unsafe.Pointer(&counted.gc))
	l.shared.Python = uintptr(unsafe.Pointer(&counted.python))
	slots.Store(&[]slot{{loop: l}})
	defer slots.Store(nil)
	samples.Sample[samples.Written%netloop.MaxSamples] = netloop.Sample{Loop: 5, Iteration: 1000, At: 1150, Since: 1140}
	atomic.AddUint32(&samples.Written, 1)
	// Another thread has set the limit to 0 meanwhile.
	l.recordSlowIteration(1000, 400, 100)
	var decoded struct{ Slow [][]any }
	if err := json.Unmarshal(processProfile.Text(), &decoded); err != nil || len(decoded.Slow) != 1 {
		t.Fatal(decoded, err)
	}
	slow := decoded.Slow[0]
	if stacks := slow[len(slow)-1].([]any); slow[0] != 5.0 || len(stacks) != 1 {
		t.Error(slow)
	}
}
