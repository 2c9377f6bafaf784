package main

/*
#include <signal.h>
#include <stdlib.h>
#include "monitor.h"
#include "thread.h"

void *goloop_write_texts(void *unused);

static inline int start_writer(void) { return thread_start(goloop_write_texts, NULL); }

static inline void name_writer(void) { thread_set_name(STDERR_THREAD_NAME); }

static inline void end_process(int has_written) {
	if (!has_written)
		signal(SIGABRT, SIG_DFL);
	abort();
}

static inline void watch(gl_shared *sh, int64_t since, int64_t now) { sh->watchdog->watch(sh, since, now); }

static inline uint32_t seen(gl_shared *sh, uint64_t serial, uint32_t look) { return sh->watchdog->seen(sh, serial, look); }
*/
import "C"

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/goloop/goloop/netloop"
	"golang.org/x/sys/unix"
)

// The watchdog tells C of an iteration of a loop that lasts too long, while it lasts.
//
//	quiet --now - shared.now > limit--> seen: C notes the stack, a thread waits for the GIL
//	  ^                                 | ^
//	  |  the iteration ends, and C      | | at 2, 4 and 8 times the limit
//	  |  tells it                       v |
//	  +------------------------------- insisted: half a limit later the log has no report. A text
//	                                      |      goes to stderr, without the GIL
//	                                      v blocked_end: a last text, and the process ends
//
// It runs on the monitor's thread alone, with its lock: so nothing here waits for anybody.

const (
	textMost   = 8192 // bytes: a stack of 48 frames, and another one
	outputMost = 4 * textMost
	// Python has so long to report, at least: each thread that computes keeps the GIL for 5 ms.
	grace = 100_000_000 // ns
	// A process that gives up leaves stderr so many times lastWait.
	lastWords = 100
	lastWait  = 10 * time.Millisecond
)

// output is what stderr is to get. It may take nothing: a pipe that nobody reads, a terminal after
// Ctrl-S. It is other processes', too, so that it can't be made non-blocking. So texts wait here for
// a thread that writes them, as long as there are any; what finds no room is dropped, and counted.
var output struct {
	sync.Mutex
	writing bool // the thread is there
	text    []byte
	dropped uint64 // texts, since the last that found room
}

// goloop_write_texts is that thread.
//
//export goloop_write_texts
func goloop_write_texts(unsafe.Pointer) unsafe.Pointer {
	C.name_writer()
	for {
		output.Lock()
		text := output.text
		output.text = nil
		output.writing = len(text) > 0
		output.Unlock()
		if len(text) == 0 {
			return nil
		}
		for len(text) > 0 {
			n, err := unix.Write(unix.Stderr, text)
			if n <= 0 || err != nil {
				break
			}
			text = text[n:]
		}
	}
}

func writeText(text []byte, json bool) {
	output.Lock()
	defer output.Unlock()
	var before []byte
	if output.dropped > 0 {
		before = []byte("goloop: reports for which stderr had no room: ")
		end := "\n"
		if json {
			before, end = []byte(`{"logger":"goloop","reports_dropped":`), "}\n"
		}
		before = append(strconv.AppendUint(before, output.dropped, 10), end...)
	}
	if len(output.text)+len(before)+len(text) <= outputMost &&
		(output.writing || C.start_writer() == 0) {
		output.writing = true
		output.text = append(append(output.text, before...), text...)
		output.dropped = 0
	} else {
		output.dropped++
	}
}

func textsAreWritten() bool {
	output.Lock()
	defer output.Unlock()
	return !output.writing
}

// goloop_watch looks at a loop whose iteration, that of shared.now, has lasted for some time: ns of
// it are the loop's to blame.
//
//export goloop_watch
func goloop_watch(reactor C.int32_t, shared *C.gl_shared, ns, now C.int64_t) {
	sh := (*netloop.Shared)(unsafe.Pointer(shared))
	limit, end := atomic.LoadInt64(&sh.BlockedLimit), atomic.LoadInt64(&sh.BlockedEnd)
	since, lasted := atomic.LoadInt64(&sh.Now), int64(ns)
	if end > 0 && lasted >= end {
		giveUp(shared, lasted)
	}
	if limit <= 0 {
		return
	}
	C.watch(shared, C.int64_t(since), now)
	known, looks := atomic.LoadInt64(&sh.BlockedSince) == since, uint32(0)
	if known {
		looks = sh.BlockedLooks
	}
	due := limit
	if sh.BlockedInsisted > 0 {
		due = limit << (looks - 1)
	}
	if looks < netloop.Looks && lasted >= limit<<looks {
		look(reactor, shared, since, looks)
	} else if known && sh.BlockedInsisted < looks && lasted >= due+max(limit/2, grace) {
		if atomic.LoadUint32(&sh.BlockedTold) != netloop.Reported {
			insist(shared, lasted, false)
		}
		sh.BlockedInsisted = looks
	}
}

// look notes what the loop's thread does, and has it reported.
func look(reactor C.int32_t, shared *C.gl_shared, since int64, number uint32) {
	sh := (*netloop.Shared)(unsafe.Pointer(shared))
	serial, told := sh.Metrics.BlockedSpells, uint32(netloop.Reported)
	if number == 0 {
		serial++
	} else {
		told = atomic.LoadUint32(&sh.BlockedTold)
	}
	if C.seen(shared, C.uint64_t(serial), C.uint32_t(number)) == 0 {
		return
	}
	atomic.StoreUint64(&sh.Metrics.BlockedSpells, serial)
	sh.BlockedLooks = number + 1
	if number == 0 {
		sh.BlockedInsisted = 0
	}
	if told == netloop.Reported {
		atomic.StoreUint32(&sh.BlockedTold, 0)
	}
	atomic.StoreInt64(&sh.BlockedSince, since)
	if told != 0 { // else the thread of the last look still waits
		C.monitor_reports(reactor, shared)
	}
}

func insist(shared *C.gl_shared, ns int64, givesUp bool) {
	sh := (*netloop.Shared)(unsafe.Pointer(shared))
	if sh.BlockedHeld != 0 {
		C.seen(shared, C.uint64_t(sh.Metrics.BlockedSpells), netloop.Looks)
	}
	if text := blockText(shared, ns, givesUp); len(text) > 0 {
		writeText(text, sh.Flags&netloop.JSON != 0)
	}
}

// giveUp ends the process, whether stderr takes a text or not.
func giveUp(shared *C.gl_shared, ns int64) {
	sh := (*netloop.Shared)(unsafe.Pointer(shared))
	if C.seen(shared, C.uint64_t(sh.Metrics.BlockedSpells), netloop.Looks-1) == 0 {
		return // Python has ended, and with it all iterations
	}
	insist(shared, ns, true)
	profiled.Lock()
	profiled.count()
	text := profiled.lastWords()
	profiled.Unlock()
	writeText(text, false)
	for i := 0; i < lastWords && !textsAreWritten(); i++ {
		time.Sleep(lastWait)
	}
	written := C.int(0)
	if textsAreWritten() {
		written = 1
	}
	C.end_process(written) // else without a handler: faulthandler's would write there, too
}
