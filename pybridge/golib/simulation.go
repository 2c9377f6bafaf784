package main

/*
#include "abi.h"
*/
import "C"

import "syscall"

// goloop_simulation_request answers a request in the buffer that contains it; see
// simulation_requests_linux.go. It returns a number >= 0 or -errno.
//
//export goloop_simulation_request
func goloop_simulation_request(buffer *C.char, size C.int32_t) C.int32_t {
	if size < 0 || buffer == nil {
		return -C.int32_t(syscall.EINVAL)
	}
	return simulate(cBytes(buffer, size))
}

// goloop_simulation_hooks stores in hooks the system calls and the clock that C must use in this thread.
//
//export goloop_simulation_hooks
func goloop_simulation_hooks(hooks *C.gl_simulation_hooks) C.int32_t { return setHooks(hooks) }
