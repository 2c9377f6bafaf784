package main

/*
#include "monitor_flusher_lock.h"
*/
import "C"

import (
	"sync/atomic"
	"unsafe"
)

// lockShared locks the shared block for the time of a call, so that the monitor (monitor.c) does not flush
// meanwhile; it waits while the monitor flushes. It returns l, for unlockShared. It nests, also inside a
// lock of C's. abi.h, "The monitor", has the protocol.
func (l *loop) lockShared() *loop {
	sh := l.shared
	if atomic.AddUint32(&sh.LockDepth, 1) == 1 && atomic.LoadUint32(&sh.FlusherLock) != 0 {
		C.flusher_yield((*C.gl_shared)(unsafe.Pointer(sh)))
	}
	return l
}

// unlockShared undoes one lockShared.
func (l *loop) unlockShared() {
	atomic.StoreUint32(&l.shared.LockDepth, l.shared.LockDepth-1)
}
