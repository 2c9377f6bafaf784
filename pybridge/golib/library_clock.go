package main

/*
#include "monitor.h"
*/
import "C"

import "github.com/goloop/goloop/netloop"

// hostCalls returns the system calls of a reactor on the real kernel. If a preloaded library (libfaketime)
// has replaced libc's clock, which C reports by a flag, the reactor uses that clock as Python and C do.
func hostCalls(shared *netloop.Shared) netloop.Calls {
	calls := netloop.SystemCalls()
	if shared.Flags&netloop.ClockIsLibc != 0 {
		calls.Clock = func() int64 { return int64(C.monitor_now()) }
	}
	return calls
}
