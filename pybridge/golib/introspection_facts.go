package main

/*
#include "abi.h"
*/
import "C"

import (
	"runtime"
	"strconv"
	"syscall"
	"unsafe"
)

// cBytes returns memory that C lends for the time of a call as a slice.
func cBytes(memory *C.char, size C.int32_t) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(memory)), int(size))
}

// copyText copies as much of a text as fits into C's buffer of `size` bytes, without a final zero, and
// returns the length of the whole text. It returns -EINVAL for a negative size or a missing buffer.
func copyText(out *C.char, size C.int32_t, text []byte) C.int32_t {
	if size < 0 || out == nil && size > 0 {
		return -C.int32_t(syscall.EINVAL)
	}
	copy(cBytes(out, size), text)
	return C.int32_t(len(text))
}

// goloop_reactor_facts writes facts about a reactor and about the Go runtime as a JSON object. It returns
// the length of the whole text, -EINVAL as copyText does, or -EBADF for a closed reactor. The calling
// thread must be the one that uses the reactor.
//
//export goloop_reactor_facts
func goloop_reactor_facts(reactor C.int32_t, out *C.char, size C.int32_t) C.int32_t {
	r := findReactor(reactor)
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
		b = strconv.AppendQuote(b, value) // every value is ASCII
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
	number("polls", stats.Polls)
	number("recvs", stats.Recvs)
	number("sends", stats.Sends)
	number("exposed_sends", stats.ExposedSends)
	text("send_policy", stats.SendPolicy)
	number("wakeups", stats.Wakeups)
	number("fences", uint64(stats.Fences))
	b[len(b)-1] = '}'
	return copyText(out, size, b)
}
