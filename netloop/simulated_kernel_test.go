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

// All tests of the reactor run twice with the same assertions: on the host's kernel and on a
// simulated kernel.

// linuxOnly has the tests that need features which the simulated kernel does not have. The list
// is strict: a test in it that passes on the simulated kernel is an error
// (TestLinuxOnlyTestsFailOnTheSimulatedKernel).
var linuxOnly = map[string]string{
	"TestSteadyTurnsDoNotAllocate":     "the simulated kernel allocates each packet",
	"TestSteadyDatagramsDoNotAllocate": "the simulated kernel allocates each packet",
}

var onlyKernel = flag.String("kernel", "", "run the tests only on this kernel: linux, simulated, or all-simulated, which includes linuxOnly")

func TestMain(m *testing.M) {
	flag.Parse()
	code := 0
	if *onlyKernel != "simulated" && *onlyKernel != "all-simulated" {
		code = m.Run()
	}
	if code == 0 && *onlyKernel != "linux" {
		if *onlyKernel != "all-simulated" {
			skipLinuxOnly()
		}
		useSimulatedKernel()
		code = m.Run()
	}
	os.Exit(code)
}

func TestLinuxOnlyTestsFailOnTheSimulatedKernel(t *testing.T) {
	if testKernel.name != hostKernel.name {
		t.Skip("the host's kernel runs this test")
	}
	for name := range linuxOnly {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := exec.Command(os.Args[0], "-test.failfast", "-test.run", "^"+name+"$", "-kernel", "all-simulated").CombinedOutput()
			switch {
			case bytes.Contains(out, []byte("no tests to run")):
				t.Error("the test does not exist")
			case err == nil:
				t.Error("the test passes")
			}
		})
	}
}

// skipLinuxOnly makes the following run skip the tests of linuxOnly.
func skipLinuxOnly() {
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

// useSimulatedKernel makes the following tests run on a simulated kernel.
func useSimulatedKernel() {
	k := simulated.New(simulated.Options{Descriptors: 1 << 16})
	calls := SimulatedCalls(k)
	testKernel = kernel{
		name: "a simulated kernel", sys: simulated.Program{Kernel: k},
		calls:       func() Calls { return calls },
		now:         func() (int64, error) { return k.Now(), nil },
		descriptors: k.Descriptors,
	}
	sys = testKernel.sys
	fmt.Println("on a simulated kernel:")
}
