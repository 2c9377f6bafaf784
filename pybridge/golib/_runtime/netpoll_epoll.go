//go:build linux

// Package runtime: this file takes the place of Go's own src/runtime/netpoll_epoll.go in the
// library (go build -overlay, in build_backend/goloop_build/commands.py).
//
// Go's runtime opens an epoll and an eventfd with its first timer, which its memory scavenger sets
// whenever it likes, and its monitor thread polls them every 10 ms from then on. A program that
// closes all descriptors, as daemons do, or replaces one by dup2, closes these as well: the runtime
// then ends the process ("netpoll failed"), or takes the events of another epoll for its own.
//
// The library needs neither: its reactors poll by system calls of their own, and none of its files
// and sockets is Go's. So this poller has no descriptor. A wait for the next timer sleeps on a
// note (a futex), as in src/runtime/netpoll_stub.go of systems without a poller. The functions
// are those that the head of src/runtime/netpoll.go lists.

package runtime

import "internal/runtime/atomic"

var (
	// netpollNote wakes the one thread that waits in netpoll: sched.lastpoll is 0 meanwhile.
	netpollNote note
	// netpollWakeSig is 1 from a wake-up until the thread has taken it. A second notewakeup would throw.
	netpollWakeSig atomic.Uint32
)

func netpollinit() {}

func netpollIsPollDescriptor(fd uintptr) bool { return false }

// netpollopen refuses a descriptor as epoll refuses a regular file (EPERM): package os uses it by
// blocking calls then.
func netpollopen(fd uintptr, pd *pollDesc) uintptr { return 1 }

func netpollclose(fd uintptr) uintptr { return 0 }

func netpollarm(pd *pollDesc, mode int) {
	throw("runtime: unused")
}

// netpollBreak interrupts the wait in netpoll.
func netpollBreak() {
	if netpollWakeSig.CompareAndSwap(0, 1) {
		notewakeup(&netpollNote)
	}
}

// netpoll waits until netpollBreak is called or delay is over: for ever if it is negative, not at
// all if it is 0. There is never a goroutine to return. A wake-up that comes as the delay ends stays
// for the next call.
func netpoll(delay int64) (gList, int32) {
	if delay != 0 && notetsleep(&netpollNote, delay) {
		noteclear(&netpollNote)
		netpollWakeSig.Store(0)
	}
	return gList{}, 0
}
