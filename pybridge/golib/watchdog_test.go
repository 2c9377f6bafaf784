//go:build cgo

package main

import (
	"strings"
	"testing"

	"github.com/goloop/goloop/netloop"
	"github.com/goloop/goloop/pybridge/golib/blockreport"
)

// called returns a frame of a function.
func called(function, file string, line int) blockreport.Frame {
	return blockreport.Frame{Function: function, File: file, Line: line}
}

func TestStderrGetsNoReportOfImportsBeforeTheFirstEvent(t *testing.T) {
	const bootstrap = "<frozen importlib._bootstrap>"
	l := &loop{shared: &netloop.Shared{}}
	l.blockState.snapshots = 1
	l.blockState.stacks[0].frames = []blockreport.Frame{
		called("<module>", "app.py", 3), called("_find_and_load", bootstrap, 9), called("serve", "server.py", 5),
		called("Running.run_forever", "running.py", 7),
	}
	if text := l.blockText(1e9, 0, false); text != nil {
		t.Errorf("%s", text)
	}
	if text := string(l.blockText(1e9, 0, true)); !strings.Contains(text, "aborting the process") {
		t.Errorf("the abort has no text: %q", text)
	}
	l.shared.Metrics.EventsPerTurn.Sum = 1
	if text := string(l.blockText(1e9, 0, false)); !strings.Contains(text, "in <module>") {
		t.Errorf("%q", text)
	}
	// The program itself may be an imported module.
	l.shared.Metrics.EventsPerTurn.Sum = 0
	l.blockState.stacks[0].frames = []blockreport.Frame{
		called("handler", "app.py", 3), called("Running.run_forever", "running.py", 7), called("_find_and_load", bootstrap, 9),
	}
	if text := string(l.blockText(1e9, 0, false)); !strings.Contains(text, "in handler") {
		t.Errorf("%q", text)
	}
}
