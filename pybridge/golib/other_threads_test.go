//go:build cgo

package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestThreadsOfTheLibraryAreRecognised(t *testing.T) {
	goStatus := fmt.Sprintf("Name:\tpython3\nSigPnd:\t0000000000000000\nSigBlk:\t%016x\nSigIgn:\t0\n", ^unblocked)
	for name, c := range map[string]struct {
		status   string
		programs bool
	}{
		"Go's":                     {goStatus, false},
		"the monitor":              {"Name:\tgoloop-monitor\nSigBlk:\t0000000000000000\n", false},
		"a look-up":                {"Name:\tgoloop-resolve\nSigBlk:\t0000000000000000\n", false},
		"one of the program":       {"Name:\tpython3\nSigBlk:\t0000000000000000\nSigIgn:\t0\n", true},
		"no mask, as gVisor":       {"Name:\tpython3\nState:\tS (sleeping)\nThreads:\t3\n", true},
		"a mask that is no number": {strings.Replace(goStatus, "fff", "?", 1), true},
		"nothing":                  {"", true},
	} {
		if got := isProgramStatus([]byte(c.status)); got != c.programs {
			t.Errorf("%s: the program's is %v", name, got)
		}
	}
}
