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

// Go's threads are recognised by their signal mask: they start with all signals blocked
// (runtime/signals.c), and Go unblocks a fixed set of them. The library's C threads and Python's resolver
// threads (goloop/_internal/net/resolver_threads.py) are recognised by their names.
var (
	blocked = signalBits(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGPIPE, syscall.SIGALRM, syscall.SIGTERM, syscall.SIGWINCH, syscall.Signal(64))
	unblocked    = signalBits(syscall.SIGSEGV, syscall.SIGCHLD, syscall.SIGPROF)
	libraryNames = []string{"goloop-resolve", C.STDERR_THREAD_NAME, C.MONITOR_THREAD_NAME}
)

// signalBits returns the signal mask of some signals, as the kernel shows it in /proc.
func signalBits(signals ...syscall.Signal) (bits uint64) {
	for _, s := range signals {
		bits |= 1 << (s - 1)
	}
	return bits
}

// goloop_other_threads_alive returns 1 if a thread is alive that is neither `self` nor the library's.
//
//export goloop_other_threads_alive
func goloop_other_threads_alive(self C.int32_t) C.int32_t {
	if otherThreadsAlive(int(self)) {
		return 1
	}
	return 0
}

// otherThreadsAlive reports whether a thread is alive that is neither this one nor the library's. It
// returns true if /proc can't be read: a process that stays is better than one that ends too early.
func otherThreadsAlive(self int) bool {
	threads, err := os.ReadDir("/proc/self/task")
	for _, thread := range threads {
		if thread.Name() != strconv.Itoa(self) && isProgramThread(thread.Name()) {
			return true
		}
	}
	return err != nil
}

// isProgramThread reports whether the thread with this id is the program's. It returns false for a thread
// of the library and for a thread that has ended, and true if the kernel doesn't report the thread's signal
// mask (gVisor).
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
	_, mask, _ := strings.Cut(string(status), "\nSigBlk:\t")
	mask, _, _ = strings.Cut(mask, "\n")
	bits, err := strconv.ParseUint(mask, 16, 64)
	return err != nil || bits&blocked != blocked || bits&unblocked != 0
}
