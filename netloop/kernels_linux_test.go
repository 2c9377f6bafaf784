package netloop

import (
	"os"

	"github.com/goloop/goloop/netloop/simulated"
)

// kernel is what a test runs on: the host's, and where the poller is epoll a simulated one as well
// (simulated_kernel_test.go).
type kernel struct {
	name  string
	sys   simulated.System
	calls func() Calls
	now   func() (int64, error)
	// descriptors counts those that are open; -1 where that cannot be told.
	descriptors func() int
}

var hostKernel = kernel{"Linux", simulated.Linux{}, SystemCalls, monotonic, hostDescriptors}

// sys makes the calls of the tests themselves, and on is the kernel that they run on.
var (
	on  = hostKernel
	sys = hostKernel.sys
)

func kernelCalls() Calls { return on.calls() }

func hostDescriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(entries)
}
