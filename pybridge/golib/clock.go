package main

/*
#include "monitor.h"
*/
import "C"

import "github.com/goloop/goloop/netloop"

// hostCalls are the calls of a reactor on the host's kernel. C says where a library that was preloaded
// (libfaketime) has replaced libc's clock: Python and C count by that one, so the reactor does, too.
func hostCalls(shared *netloop.Shared) netloop.Calls {
	calls := netloop.SystemCalls()
	if shared.Flags&netloop.ClockIsLibc != 0 {
		calls.Clock = func() int64 { return int64(C.monitor_now()) }
	}
	return calls
}
