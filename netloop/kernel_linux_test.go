package netloop

import (
	"os"

	"github.com/goloop/goloop/netloop/simulated"
)

// kernel is a kernel on which the tests run: the host's kernel, or a simulated one if the
// poller is epoll (simulated_kernel_test.go).
type kernel struct {
	name  string
	sys   simulated.System
	calls func() Calls
	now   func() (int64, error)
	// descriptors returns the number of open descriptors, or -1 if it is unknown.
	descriptors func() int
}

// hostKernel is the kernel of this machine.
var hostKernel = kernel{"Linux", simulated.Linux{}, SystemCalls, monotonic, hostDescriptors}

// testKernel is the kernel on which the tests run; sys makes the system calls of the tests
// themselves.
var (
	testKernel = hostKernel
	sys        = hostKernel.sys
)

// kernelCalls returns the calls of a reactor on the test's kernel.
func kernelCalls() Calls { return testKernel.calls() }

// hostDescriptors returns the number of open descriptors of the process, or -1.
func hostDescriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(entries)
}
