package main

/*
#include "monitor.h"
*/
import "C"

import (
	"sync/atomic"
	"unsafe"
)

// hold keeps the monitor (monitor.c) away from a reactor for the time of a call, which may
// be one of several within what C holds already; abi.h, "The monitor", has the protocol.
func (l *loop) hold() *loop {
	sh := l.shared
	if atomic.AddUint32(&sh.LockDepth, 1) == 1 && atomic.LoadUint32(&sh.FlusherLock) != 0 {
		C.monitor_yield_to_flusher((*C.gl_shared)(unsafe.Pointer(sh)))
	}
	return l
}

func (l *loop) letGo() {
	atomic.StoreUint32(&l.shared.LockDepth, l.shared.LockDepth-1)
}
