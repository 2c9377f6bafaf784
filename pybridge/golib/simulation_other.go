//go:build !linux

package main

/*
#include "abi.h"
*/
import "C"

import (
	"syscall"

	"github.com/goloop/goloop/netloop"
)

// Only Linux has simulated kernels.

// newReactor creates a reactor on the real kernel. The second result is whether the kernel is simulated.
func newReactor(shared *netloop.Shared) (*netloop.Reactor, bool, error) {
	r, err := netloop.NewWithCalls(shared, hostCalls(shared))
	return r, false, err
}

// simulate refuses every request.
func simulate([]byte) C.int32_t { return -C.int32_t(syscall.ENOSYS) }

// setHooks refuses.
func setHooks(*C.gl_simulation_hooks) C.int32_t { return -C.int32_t(syscall.ENOSYS) }
