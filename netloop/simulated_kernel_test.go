//go:build linux && !libkqueue

package netloop

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/goloop/goloop/netloop/simulated"
)

// All tests of the reactor run twice, with the same assertions: on the host's kernel, and on a
// simulated one.

// linuxOnly are the tests for which the simulated kernel does not have what they need. The list is
// strict: one that passes there is an error (TestWhatIsLeftOutOnTheSimulatedKernelFailsThere).
var linuxOnly = map[string]string{
	"TestSteadyTurnsDoNotAllocate":     "the simulated kernel allocates each packet",
	"TestSteadyDatagramsDoNotAllocate": "the simulated kernel allocates each packet",

	"TestBatchesCarryWhatCallsWould":    noRing,
	"TestPiecesLeaveTogether":           noRing,
	"TestProgressIsToldBeforeAnEnd":     noRing,
	"TestBatchOfShortSends":             noRing,
	"TestEndsAndErrorsInABatch":         noRing,
	"TestEndsInABatch":                  noRing,
	"TestWhereARingIsRefused":           noRing,
	"TestBatchesDoNotAllocate":          noRing,
	"TestSendsOfABatchFail":             noRing,
	"TestSendsOfABatchAreTriedAgain":    noRing,
	"TestReceivesOfABatchFail":          noRing,
	"TestReceivesOfABatchAreTriedAgain": noRing,
	"TestARingThatDoesNothingIsGivenUp": noRing,
}

const noRing = "there is no io_uring"

var onlyKernel = flag.String("kernel", "", "run the tests on this kernel alone: linux, simulated, or all-simulated with those of linuxOnly")

func TestMain(m *testing.M) {
	flag.Parse()
	code := 0
	if *onlyKernel != "simulated" && *onlyKernel != "all-simulated" {
		code = m.Run()
	}
	if code == 0 && *onlyKernel != "linux" {
		if *onlyKernel != "all-simulated" {
			leaveOut()
		}
		onSimulated()
		code = m.Run()
	}
	os.Exit(code)
}

func TestWhatIsLeftOutOnTheSimulatedKernelFailsThere(t *testing.T) {
	if on.name != hostKernel.name {
		t.Skip("once is enough")
	}
	for name := range linuxOnly {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := exec.Command(os.Args[0], "-test.failfast", "-test.run", "^"+name+"$", "-kernel", "all-simulated").CombinedOutput()
			switch {
			case bytes.Contains(out, []byte("no tests to run")):
				t.Error("there is no such test")
			case err == nil:
				t.Error("it passes")
			}
		})
	}
}

// leaveOut has the tests of linuxOnly skipped from now on.
func leaveOut() {
	names := slices.Sorted(maps.Keys(linuxOnly))
	skip := flag.Lookup("test.skip").Value.String()
	if len(names) > 0 {
		if skip != "" {
			names = append(names, skip)
		}
		skip = "^(" + strings.Join(names, "|") + ")$"
	}
	_ = flag.Set("test.skip", skip)
}

// onSimulated has the tests run on a simulated kernel from now on.
func onSimulated() {
	k := simulated.New(simulated.Options{Descriptors: 1 << 16})
	calls := SimulatedCalls(k)
	on = kernel{
		name: "a simulated kernel", sys: simulated.Program{Kernel: k},
		calls:       func() Calls { return calls },
		now:         func() (int64, error) { return k.Now(), nil },
		descriptors: k.Descriptors,
	}
	sys = on.sys
	fmt.Println("on a simulated kernel:")
}
