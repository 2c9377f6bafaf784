package main

/*
#include "abi.h"
#include "monitor.h"
*/
import "C"

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A thread of Python's waits for clients that ask about this process, accepts and answers them
// (goloop/operations/introspection.py). It needs the GIL for that. While an iteration is long
// the monitor looks whether one waits at the listener; after patience it is Go's, and so are those
// that come next.
const (
	patience  = 500_000_000 // ns
	lookPause = 100_000_000 // ns: the iteration before has ended, where the monitor did not look for so long
)

// askers is the monitor's.
var askers struct {
	looked, since int64 // ns; since when one waits, 0: nobody does
}

// goloop_look_for_askers is called at each of the monitor's ticks while an iteration is long.
//
//export goloop_look_for_askers
func goloop_look_for_askers(asker *C.gl_asker, now C.int64_t) {
	if int64(now)-askers.looked > lookPause {
		askers.since = 0
	}
	askers.looked = int64(now)
	listener := int(atomic.LoadInt32((*int32)(&asker.listener)))
	waits := listener >= 0 && readyFor(listener, unix.POLLIN, 0)
	switch late := askers.since != 0 && int64(now)-askers.since >= patience; {
	case !waits && !late:
		askers.since = 0
	case waits && askers.since == 0:
		askers.since = int64(now)
	case waits && late:
		answerNext(asker, listener)
	}
}

func answerNext(asker *C.gl_asker, listener int) {
	// In a program that closes all descriptors, to become a daemon, the number is perhaps that of its
	// own listener next, whose clients are none of ours.
	var is unix.Stat_t
	if unix.Fstat(listener, &is) != nil ||
		uint64(is.Dev) != atomic.LoadUint64((*uint64)(unsafe.Pointer(&asker.dev))) ||
		is.Ino != atomic.LoadUint64((*uint64)(unsafe.Pointer(&asker.ino))) {
		return
	}
	fd, _, err := unix.Accept(listener) // it does not wait: Python has made it so
	if err != nil {
		return // Python was first
	}
	unix.CloseOnExec(fd)
	if !mayAsk(fd) || C.monitor_start_answer(C.int32_t(fd)) != 0 {
		_ = unix.Close(fd)
	}
}
