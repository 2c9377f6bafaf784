package main

/*
#include "abi.h"
*/
import "C"

import "syscall"

// goloop_simulation_request answers the request in a buffer, which also gets the answer; see
// simulation_requests_linux.go. It returns a number >= 0 or -errno: -EINVAL without a buffer, -ENOSYS on a
// system without simulated kernels.
//
//export goloop_simulation_request
func goloop_simulation_request(buffer *C.char, size C.int32_t) C.int32_t {
	if size < 0 || buffer == nil {
		return -C.int32_t(syscall.EINVAL)
	}
	return simulate(cBytes(buffer, size))
}

// goloop_simulation_hooks stores in hooks the system calls of the process and the clock of this thread. It
// returns 0, or -ENOSYS on a system without simulated kernels.
//
//export goloop_simulation_hooks
func goloop_simulation_hooks(hooks *C.gl_simulation_hooks) C.int32_t { return setHooks(hooks) }
