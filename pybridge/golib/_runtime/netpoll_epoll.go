//go:build linux

// Package runtime: this file takes the place of Go's own src/runtime/netpoll_epoll.go in the
// library (go build -overlay, in build_backend/goloop_build/commands.py).
//
// Go's runtime opens an epoll and an eventfd with its first timer, which its memory scavenger may
// set at any time. From then on its monitor thread polls both every 10 ms. A program that closes all
// descriptors, as daemons do, or replaces one by dup2, closes these as well. The runtime then ends
// the process ("netpoll failed"), or reads the events of another epoll.
//
// The library needs neither: its reactors poll by system calls of their own, and Go's runtime has no
// files or sockets in it. So this poller has no descriptor. A wait for the next timer sleeps on a
// note (a futex), as in src/runtime/netpoll_stub.go of systems without a poller. The head of
// src/runtime/netpoll.go lists the functions that a poller must have.

package runtime

import "internal/runtime/atomic"

var (
	// netpollNote wakes the one thread that waits in netpoll: sched.lastpoll is 0 meanwhile.
	netpollNote note
	// netpollWakeSig is 1 from a wake-up until the thread has cleared the note. A second notewakeup would
	// throw.
	netpollWakeSig atomic.Uint32
)

func netpollinit() {}

func netpollIsPollDescriptor(fd uintptr) bool { return false }

// netpollopen refuses each descriptor as epoll refuses a regular file: it returns 1, which is
// EPERM, and package os then uses blocking calls.
func netpollopen(fd uintptr, pd *pollDesc) uintptr { return 1 }

func netpollclose(fd uintptr) uintptr { return 0 }

func netpollarm(pd *pollDesc, mode int) {
	throw("runtime: unused")
}

// netpollBreak interrupts the wait in netpoll, or the next one. It does nothing if a wake-up is
// pending.
func netpollBreak() {
	if netpollWakeSig.CompareAndSwap(0, 1) {
		notewakeup(&netpollNote)
	}
}

// netpoll waits until netpollBreak is called or delay (ns) is over: for ever if delay is
// negative, not at all if it is 0. There is never a goroutine to return. A wake-up that comes
// as the delay ends stays for the next call.
func netpoll(delay int64) (gList, int32) {
	if delay != 0 && notetsleep(&netpollNote, delay) {
		noteclear(&netpollNote)
		netpollWakeSig.Store(0)
	}
	return gList{}, 0
}
