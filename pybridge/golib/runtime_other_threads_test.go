//go:build cgo

package main

import "testing"

func TestThreadsOfTheLibraryAreRecognised(t *testing.T) {
	for name, c := range map[string]struct {
		status   string
		programs bool
	}{
		"Go's":               {"Name:\tgoloop-go\nUmask:\t0022\n", false},
		"the monitor":        {"Name:\tgoloop-monitor\nUmask:\t0022\n", false},
		"a look-up":          {"Name:\tgoloop-resolve\nUmask:\t0022\n", false},
		"one of the program": {"Name:\tpython3\nUmask:\t0022\n", true},
		"one of run_threads": {"Name:\tgoloop-0\nUmask:\t0022\n", true},
		"nothing":            {"", true},
	} {
		if got := isProgramStatus([]byte(c.status)); got != c.programs {
			t.Errorf("%s: the program's is %v", name, got)
		}
	}
}
