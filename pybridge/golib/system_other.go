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

// newReactor creates a reactor on the operating system. The second result is whether it is isolated.
func newReactor(shared *netloop.Shared) (*netloop.Reactor, bool, error) {
	r, err := netloop.NewWithCalls(shared, hostCalls(shared))
	return r, false, err
}

// answerRequest refuses every request.
func answerRequest([]byte) C.int32_t { return -C.int32_t(syscall.ENOSYS) }

// getSystem refuses.
func getSystem(*C.gl_system) C.int32_t { return -C.int32_t(syscall.ENOSYS) }
