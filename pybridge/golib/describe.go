package main

/*
#include "monitor.h"
*/
import "C"

import (
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"github.com/goloop/goloop/netloop"
)

// lentOut is the memory that C lends for an answer.
func lentOut(out *C.char, size C.int32_t) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(out)), int(size))
}

//export goloop_describe
func goloop_describe(reactor C.int32_t, out *C.char, size C.int32_t) C.int32_t {
	if size < 0 || reactor != C.GL_TRACE && reactor != C.GL_OTHERS && out == nil && size > 0 {
		return -C.int32_t(syscall.EINVAL)
	}
	switch reactor {
	case C.GL_TRACE:
		return -C.int32_t(C.monitor_answers(^size))
	case C.GL_OTHERS:
		if othersLive(int(size)) {
			return 1
		}
		return 0
	case C.GL_PROFILE:
		return lend(out, size, profiled.text())
	case C.GL_BLOCK:
		return lend(out, size, blockAnswer(*(*C.int32_t)(unsafe.Pointer(out))))
	case C.GL_STACK:
		return lend(out, size, stackAnswer((*netloop.Stack)(unsafe.Pointer(out))))
	case C.GL_SIMULATE:
		return simulate(lentOut(out, size))
	case C.GL_SIMULATED:
		return doors(lentOut(out, size))
	}
	r := find(reactor)
	if r == nil {
		return badReactor
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	stats := r.Stats()
	b := make([]byte, 0, 512)
	text := func(name, value string) {
		b = append(b, '"')
		b = append(b, name...)
		b = append(b, `":`...)
		b = strconv.AppendQuote(b, value) // only ASCII comes here
		b = append(b, ',')
	}
	number := func(name string, value uint64) {
		b = append(b, '"')
		b = append(b, name...)
		b = append(b, `":`...)
		b = strconv.AppendUint(b, value, 10)
		b = append(b, ',')
	}
	b = append(b, '{')
	text("go", runtime.Version())
	text("platform", runtime.GOOS+"/"+runtime.GOARCH)
	text("poller", stats.Poller)
	number("gomaxprocs", uint64(runtime.GOMAXPROCS(0)))
	number("goroutines", uint64(runtime.NumGoroutine()))
	number("heap_bytes", mem.HeapAlloc)
	number("system_bytes", mem.Sys)
	number("mallocs", mem.Mallocs)
	number("collections", uint64(mem.NumGC))
	number("registrations", uint64(stats.Registrations))
	number("timers", uint64(stats.Timers))
	number("ignored_submissions", stats.Ignored)
	number("stale_events", stats.Stale)
	number("batches", stats.Batches)
	number("polls", stats.Polls)
	number("recvs", stats.Recvs)
	number("sends", stats.Sends)
	number("wakeups", stats.Wakeups)
	number("fences", uint64(stats.Fences))
	b[len(b)-1] = '}'
	return lend(out, size, b)
}

func lend(out *C.char, size C.int32_t, text []byte) C.int32_t {
	copy(lentOut(out, size), text)
	return C.int32_t(len(text))
}
