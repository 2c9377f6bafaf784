package main

/*
#include "abi.h"
*/
import "C"

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// libraryNames are the names of Go's threads, of the library's C threads, and of Python's resolver threads
// (goloop/_internal/net/resolver_threads.py).
var libraryNames = []string{
	C.GO_THREAD_NAME, C.MONITOR_THREAD_NAME, C.STDERR_THREAD_NAME, "goloop-resolve",
}

// goloop_other_threads_alive returns 1 if a thread is alive that is neither `self` nor the library's.
//
//export goloop_other_threads_alive
func goloop_other_threads_alive(self C.int32_t) C.int32_t {
	if otherProgramThreadsAlive(int(self)) {
		return 1
	}
	return 0
}

// otherProgramThreadsAlive reports whether a thread is alive that is neither this one nor the library's. It
// returns true if /proc can't be read: a process that stays is better than one that ends too early.
func otherProgramThreadsAlive(self int) bool {
	threads, err := os.ReadDir("/proc/self/task")
	for _, thread := range threads {
		if thread.Name() != strconv.Itoa(self) && isProgramThread(thread.Name()) {
			return true
		}
	}
	return err != nil
}

// isProgramThread reports whether the thread with this id is the program's. It returns false for a thread
// of the library and for a thread that has ended.
func isProgramThread(thread string) bool {
	status, err := os.ReadFile("/proc/self/task/" + thread + "/status")
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ESRCH) {
		return false
	}
	return err != nil || isProgramStatus(status)
}

// isProgramStatus reports whether /proc/PID/task/TID/status describes a thread that is not the library's.
func isProgramStatus(status []byte) bool {
	for _, name := range libraryNames {
		if strings.HasPrefix(string(status), "Name:\t"+name+"\n") {
			return false
		}
	}
	return true
}
