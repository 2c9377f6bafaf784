package main

/*
#include "abi.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

extern ssize_t goloop_simulated_recv(int, void *, size_t, int);
extern ssize_t goloop_simulated_send(int, void *, size_t, int);
extern ssize_t goloop_simulated_sendto(int, void *, size_t, int, void *, socklen_t);
extern int goloop_simulated_shutdown(int, int);
extern int goloop_simulated_nonblocking(int);
extern int goloop_simulated_dup(int);
extern int goloop_simulated_exists(int);
extern int goloop_simulated_close(int);
extern int64_t goloop_simulated_clock(void);
static void set_errno(int e) { errno = e; }
*/
import "C"

import (
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The gl_calls of C while there are simulations, or a test wants calls to fail: each goes to the kernel
// that has the number.

// simulatedTable is the address of that table. It is C's memory, and stays.
var simulatedTable = sync.OnceValue(func() unsafe.Pointer {
	functions := [...]unsafe.Pointer{ // in the order of gl_calls, fds/lease.h
		C.goloop_simulated_recv, C.goloop_simulated_send, C.goloop_simulated_sendto,
		C.goloop_simulated_shutdown, C.goloop_simulated_nonblocking, C.goloop_simulated_dup,
		C.goloop_simulated_exists, C.goloop_simulated_close,
	}
	table := C.malloc(C.size_t(unsafe.Sizeof(functions)))
	*(*[len(functions)]unsafe.Pointer)(table) = functions
	return table
})

func simulatedClock() *[0]byte { return (*[0]byte)(C.goloop_simulated_clock) }

// Calls that can be made to fail, in the order of gl_calls.
const (
	callRecv = iota
	callSend
	callSendto
	callShutdown
	callNonblocking
	callDup
)

// faults is what a test has asked for.
var faults struct {
	sync.Mutex
	on          atomic.Bool
	call        int
	after, left int
	errno       syscall.Errno
}

// fail has calls of a kind fail, behind so many that do not.
func fail(call int, errno syscall.Errno, after, times int) {
	faults.Lock()
	defer faults.Unlock()
	faults.call, faults.errno, faults.after, faults.left = call, errno, after, times
	faults.on.Store(times > 0)
}

// faulty tells whether this call is to fail, and then sets errno.
func faulty(call int) bool {
	if !faults.on.Load() {
		return false
	}
	faults.Lock()
	defer faults.Unlock()
	switch {
	case faults.left == 0 || faults.call != call:
		return false
	case faults.after > 0:
		faults.after--
		return false
	}
	faults.left--
	return told(0, faults.errno) < 0
}

// told leaves the errno where C looks for it.
func told(n int, errno syscall.Errno) int {
	if errno != 0 {
		C.set_errno(C.int(errno))
		return -1
	}
	return n
}

func hosts(n, _ uintptr, errno syscall.Errno) int { return told(int(n), errno) }

func lent(p unsafe.Pointer, n C.size_t) []byte { return unsafe.Slice((*byte)(p), int(n)) }

//export goloop_simulated_recv
func goloop_simulated_recv(fd C.int, p unsafe.Pointer, n C.size_t, flags C.int) C.ssize_t {
	if faulty(callRecv) {
		return -1
	}
	if s := simulationOf(int(fd)); s != nil {
		return C.ssize_t(told(s.Recv(int(fd), lent(p, n), int(flags))))
	}
	return C.ssize_t(hosts(unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(p), uintptr(n), uintptr(flags), 0, 0)))
}

//export goloop_simulated_send
func goloop_simulated_send(fd C.int, p unsafe.Pointer, n C.size_t, flags C.int) C.ssize_t {
	if faulty(callSend) {
		return -1
	}
	if s := simulationOf(int(fd)); s != nil {
		return C.ssize_t(told(s.Send(int(fd), lent(p, n), int(flags))))
	}
	return C.ssize_t(hosts(unix.Syscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(p), uintptr(n), uintptr(flags), 0, 0)))
}

//export goloop_simulated_sendto
func goloop_simulated_sendto(fd C.int, p unsafe.Pointer, n C.size_t, flags C.int, to unsafe.Pointer,
	size C.socklen_t) C.ssize_t {
	if faulty(callSendto) {
		return -1
	}
	if s := simulationOf(int(fd)); s != nil {
		return C.ssize_t(told(s.SendTo(int(fd), lent(p, n), int(flags), lent(to, C.size_t(size)))))
	}
	return C.ssize_t(hosts(unix.Syscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(p), uintptr(n), uintptr(flags),
		uintptr(to), uintptr(size))))
}

//export goloop_simulated_shutdown
func goloop_simulated_shutdown(fd, how C.int) C.int {
	if faulty(callShutdown) {
		return -1
	}
	if s := simulationOf(int(fd)); s != nil {
		return C.int(told(0, s.Shutdown(int(fd), int(how))))
	}
	return C.int(hosts(unix.Syscall(unix.SYS_SHUTDOWN, uintptr(fd), uintptr(how), 0)))
}

// fcntl is made on whichever kernel has the descriptor.
func fcntl(fd, command, arg int) int {
	if s := simulationOf(fd); s != nil {
		if command == unix.F_DUPFD_CLOEXEC {
			return told(s.Dup(fd, arg, true))
		}
		return told(s.Fcntl(fd, command, arg))
	}
	return hosts(unix.Syscall(unix.SYS_FCNTL, uintptr(fd), uintptr(command), uintptr(arg)))
}

//export goloop_simulated_nonblocking
func goloop_simulated_nonblocking(fd C.int) C.int {
	if faulty(callNonblocking) {
		return -1
	}
	flags := fcntl(int(fd), unix.F_GETFL, 0)
	if flags < 0 || flags&unix.O_NONBLOCK != 0 {
		return C.int(flags)
	}
	return C.int(fcntl(int(fd), unix.F_SETFL, flags|unix.O_NONBLOCK))
}

//export goloop_simulated_dup
func goloop_simulated_dup(fd C.int) C.int {
	if faulty(callDup) {
		return -1
	}
	return C.int(fcntl(int(fd), unix.F_DUPFD_CLOEXEC, 3))
}

//export goloop_simulated_exists
func goloop_simulated_exists(fd C.int) C.int { return C.int(fcntl(int(fd), unix.F_GETFD, 0)) }

//export goloop_simulated_close
func goloop_simulated_close(fd C.int) C.int {
	if s := simulationOf(int(fd)); s != nil {
		return C.int(told(0, s.Close(int(fd))))
	}
	return C.int(hosts(unix.Syscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)))
}

//export goloop_simulated_clock
func goloop_simulated_clock() C.int64_t {
	if s := clockHere(); s != nil {
		return C.int64_t(s.Now())
	}
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return C.int64_t(ts.Nano())
}
