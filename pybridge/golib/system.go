package main

/*
#include "abi.h"
*/
import "C"

import "syscall"

// Systems other than the operating system. A thread is on one from a request of Python's on: the reactors
// that it creates run on it (newReactor), and its clock is the system's. Linux has simulated kernels
// (system_simulated_linux.go); elsewhere there is no other system (system_other.go).

// goloop_system_request answers the request in a buffer, which also gets the answer; see
// system_requests_linux.go. It returns a number >= 0 or -errno: -EINVAL without a buffer, -ENOSYS if
// there is no other system.
//
//export goloop_system_request
func goloop_system_request(buffer *C.char, size C.int32_t) C.int32_t {
	if size < 0 || buffer == nil {
		return -C.int32_t(syscall.EINVAL)
	}
	return answerRequest(cBytes(buffer, size))
}

// goloop_system_get stores in system the system calls of the process and the clock of this thread. It
// returns 0, or -ENOSYS if there is no other system.
//
//export goloop_system_get
func goloop_system_get(system *C.gl_system) C.int32_t { return getSystem(system) }
