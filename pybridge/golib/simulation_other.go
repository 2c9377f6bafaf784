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

func newReactor(shared *netloop.Shared) (*netloop.Reactor, bool, error) {
	r, err := netloop.NewWithCalls(shared, hostCalls(shared))
	return r, false, err
}

func simulate([]byte) C.int32_t { return -C.int32_t(syscall.ENOSYS) }

func setHooks(*C.gl_simulation_hooks) C.int32_t { return -C.int32_t(syscall.ENOSYS) }
