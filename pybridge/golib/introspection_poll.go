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

// A Python thread accepts and answers introspection clients (goloop/operations/introspection.py),
// for which it needs the GIL. During a long iteration the monitor checks the listener for a waiting client.
// After answerDelay Go answers this client and the next ones.
const (
	answerDelay = 500_000_000 // ns
	maxPollGap  = 100_000_000 // ns: after a longer gap the iteration of the last check has ended
)

// waitingClient is used by the monitor only.
var waitingClient struct {
	polledAt, since int64 // ns; since: start of the wait, 0 if no client waits
}

// goloop_poll_introspection_socket is called at each tick of the monitor during a long iteration. If a
// client has waited for answerDelay, it accepts the client, and a thread answers. now is in ns.
//
//export goloop_poll_introspection_socket
func goloop_poll_introspection_socket(client *C.gl_introspection_socket, now C.int64_t) {
	if int64(now)-waitingClient.polledAt > maxPollGap {
		waitingClient.since = 0
	}
	waitingClient.polledAt = int64(now)
	listener := int(atomic.LoadInt32((*int32)(&client.listener)))
	waits := listener >= 0 && waitReady(listener, unix.POLLIN, 0)
	switch late := waitingClient.since != 0 && int64(now)-waitingClient.since >= answerDelay; {
	case !waits && !late:
		waitingClient.since = 0
	case waits && waitingClient.since == 0:
		waitingClient.since = int64(now)
	case waits && late:
		acceptAndAnswer(client, listener)
	}
}

// acceptAndAnswer accepts a client of the listener that Python opened and starts a thread that answers the
// client. It does nothing if the number refers to another file now, or if there is no client. It closes the
// connection if the client is not allowed or the thread cannot be started.
func acceptAndAnswer(client *C.gl_introspection_socket, listener int) {
	// A program that closes all descriptors, to become a daemon, may have reused the number for a listener
	// of its own, with other clients.
	var is unix.Stat_t
	if unix.Fstat(listener, &is) != nil ||
		uint64(is.Dev) != atomic.LoadUint64((*uint64)(unsafe.Pointer(&client.dev))) ||
		is.Ino != atomic.LoadUint64((*uint64)(unsafe.Pointer(&client.ino))) {
		return
	}
	fd, _, err := unix.Accept(listener) // does not block: Python has made the listener non-blocking
	if err != nil {
		return // Python has accepted the client
	}
	unix.CloseOnExec(fd)
	if !isAllowedClient(fd) || C.monitor_start_answer(C.int32_t(fd)) != 0 {
		_ = unix.Close(fd)
	}
}
