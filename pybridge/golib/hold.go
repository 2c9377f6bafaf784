package main

import "C" // without cgo there is no library.go, and no loop

import (
	"runtime"
	"sync/atomic"
)

// hold keeps the monitor (monitor.c) away from a reactor for the time of a call, which may
// be one of several within what C holds already; abi.h, "The monitor", has the protocol.
func (l *loop) hold() *loop {
	sh := l.shared
	n := atomic.AddUint32(&sh.Holds, 1)
	for n == 1 && atomic.LoadUint32(&sh.Guest) != 0 {
		atomic.StoreUint32(&sh.Holds, 0)
		for atomic.LoadUint32(&sh.Guest) != 0 {
			runtime.Gosched()
		}
		atomic.StoreUint32(&sh.Holds, 1)
	}
	return l
}

func (l *loop) letGo() {
	atomic.StoreUint32(&l.shared.Holds, l.shared.Holds-1)
}
