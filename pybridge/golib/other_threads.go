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

// Go's threads are known by their signal mask: they start with everything blocked (runtime/signals.c),
// of which Go unblocks a fixed set. Those of C are known by their names, and so are those of Python
// that look names up (goloop/_internal/net/resolver_threads.py).
var (
	blocked = signalBits(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGPIPE, syscall.SIGALRM, syscall.SIGTERM, syscall.SIGWINCH, syscall.Signal(64))
	unblocked = signalBits(syscall.SIGSEGV, syscall.SIGCHLD, syscall.SIGPROF)
	ownNames  = []string{"goloop-resolve", C.STDERR_THREAD_NAME, C.MONITOR_THREAD_NAME}
)

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

// otherThreadsAlive tells whether a thread lives that is neither this one nor the library's. Where /proc can't
// be read it does: rather a process too many than one ended too early.
func otherThreadsAlive(self int) bool {
	threads, err := os.ReadDir("/proc/self/task")
	for _, thread := range threads {
		if thread.Name() != strconv.Itoa(self) && isPrograms(thread.Name()) {
			return true
		}
	}
	return err != nil
}

// isPrograms is false for a thread of the library, and for one that has ended. Where the kernel doesn't
// tell a thread's signal mask (gVisor) it is the program's.
func isPrograms(thread string) bool {
	status, err := os.ReadFile("/proc/self/task/" + thread + "/status")
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ESRCH) {
		return false
	}
	return err != nil || isProgramsStatus(status)
}

func isProgramsStatus(status []byte) bool {
	for _, name := range ownNames {
		if strings.HasPrefix(string(status), "Name:\t"+name+"\n") {
			return false
		}
	}
	_, mask, _ := strings.Cut(string(status), "\nSigBlk:\t")
	mask, _, _ = strings.Cut(mask, "\n")
	bits, err := strconv.ParseUint(mask, 16, 64)
	return err != nil || bits&blocked != blocked || bits&unblocked != 0
}
