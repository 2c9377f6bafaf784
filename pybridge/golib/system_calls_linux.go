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

// The gl_calls of C while a simulation exists or a test injects failures. Each call goes to the kernel, real or
// simulated, that owns the descriptor.

// simulatedTable returns the address of the gl_calls. It is C memory that is never freed.
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

// simulatedClock returns the address of goloop_simulated_clock, as a C function.
func simulatedClock() *[0]byte { return (*[0]byte)(C.goloop_simulated_clock) }

// Calls that can fail by request, in the order of gl_calls.
const (
	callRecv = iota
	callSend
	callSendto
	callShutdown
	callNonblocking
	callDup
)

// faults is the failure that a test has requested.
var faults struct {
	sync.Mutex
	on          atomic.Bool // false: the other fields need not be read
	call        int         // callRecv ...
	after, left int         // calls that still succeed, then calls that fail
	errno       syscall.Errno
}

// setFailure makes calls of a kind fail: the first `after` calls succeed, the next `times` calls fail.
func setFailure(call int, errno syscall.Errno, after, times int) {
	faults.Lock()
	defer faults.Unlock()
	faults.call, faults.errno, faults.after, faults.left = call, errno, after, times
	faults.on.Store(times > 0)
}

// injectFailure reports whether this call has to fail by a test's request, and sets C's errno if so. It
// counts the calls of the requested kind.
func injectFailure(call int) bool {
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
	return returnErrno(0, faults.errno) < 0
}

// returnErrno sets C's errno and returns -1 if there is an error; else it returns n.
func returnErrno(n int, errno syscall.Errno) int {
	if errno != 0 {
		C.set_errno(C.int(errno))
		return -1
	}
	return n
}

// kernelResult converts the results of a system call of the real kernel to C's: -1 with errno, or a number.
func kernelResult(n, _ uintptr, errno syscall.Errno) int { return returnErrno(int(n), errno) }

// bytesOf returns C memory as a slice.
func bytesOf(p unsafe.Pointer, n C.size_t) []byte { return unsafe.Slice((*byte)(p), int(n)) }

// goloop_simulated_recv is gl_calls.recv. This function and the next ones have the signatures of gl_calls
// and return -1 with errno on failure. A failure that a test has requested comes first. Then a descriptor
// of a simulation goes to its kernel, and any other descriptor to the real kernel.
//
//export goloop_simulated_recv
func goloop_simulated_recv(fd C.int, p unsafe.Pointer, n C.size_t, flags C.int) C.ssize_t {
	if injectFailure(callRecv) {
		return -1
	}
	if s := simulationOf(int(fd)); s != nil {
		return C.ssize_t(returnErrno(s.Recv(int(fd), bytesOf(p, n), int(flags))))
	}
	return C.ssize_t(kernelResult(unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(p), uintptr(n), uintptr(flags), 0, 0)))
}

// goloop_simulated_send is gl_calls.send; see goloop_simulated_recv.
//
//export goloop_simulated_send
func goloop_simulated_send(fd C.int, p unsafe.Pointer, n C.size_t, flags C.int) C.ssize_t {
	if injectFailure(callSend) {
		return -1
	}
	if s := simulationOf(int(fd)); s != nil {
		return C.ssize_t(returnErrno(s.Send(int(fd), bytesOf(p, n), int(flags))))
	}
	return C.ssize_t(kernelResult(unix.Syscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(p), uintptr(n), uintptr(flags), 0, 0)))
}

// goloop_simulated_sendto is gl_calls.sendto; see goloop_simulated_recv.
//
//export goloop_simulated_sendto
func goloop_simulated_sendto(fd C.int, p unsafe.Pointer, n C.size_t, flags C.int, to unsafe.Pointer,
	size C.socklen_t) C.ssize_t {
	if injectFailure(callSendto) {
		return -1
	}
	if s := simulationOf(int(fd)); s != nil {
		return C.ssize_t(returnErrno(s.SendTo(int(fd), bytesOf(p, n), int(flags), bytesOf(to, C.size_t(size)))))
	}
	return C.ssize_t(kernelResult(unix.Syscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(p), uintptr(n), uintptr(flags),
		uintptr(to), uintptr(size))))
}

// goloop_simulated_shutdown is gl_calls.shutdown; see goloop_simulated_recv.
//
//export goloop_simulated_shutdown
func goloop_simulated_shutdown(fd, how C.int) C.int {
	if injectFailure(callShutdown) {
		return -1
	}
	if s := simulationOf(int(fd)); s != nil {
		return C.int(returnErrno(0, s.Shutdown(int(fd), int(how))))
	}
	return C.int(kernelResult(unix.Syscall(unix.SYS_SHUTDOWN, uintptr(fd), uintptr(how), 0)))
}

// fcntl is fcntl(2) on the kernel that has the descriptor. It returns -1 with C's errno on failure.
func fcntl(fd, command, arg int) int {
	if s := simulationOf(fd); s != nil {
		if command == unix.F_DUPFD_CLOEXEC {
			return returnErrno(s.Dup(fd, arg, true))
		}
		return returnErrno(s.Fcntl(fd, command, arg))
	}
	return kernelResult(unix.Syscall(unix.SYS_FCNTL, uintptr(fd), uintptr(command), uintptr(arg)))
}

// goloop_simulated_nonblocking is gl_calls.nonblocking: it makes a descriptor non-blocking. It returns -1
// with errno, or a number >= 0.
//
//export goloop_simulated_nonblocking
func goloop_simulated_nonblocking(fd C.int) C.int {
	if injectFailure(callNonblocking) {
		return -1
	}
	flags := fcntl(int(fd), unix.F_GETFL, 0)
	if flags < 0 || flags&unix.O_NONBLOCK != 0 {
		return C.int(flags)
	}
	return C.int(fcntl(int(fd), unix.F_SETFL, flags|unix.O_NONBLOCK))
}

// goloop_simulated_dup is gl_calls.dup: a duplicate that is close-on-exec and at least 3.
//
//export goloop_simulated_dup
func goloop_simulated_dup(fd C.int) C.int {
	if injectFailure(callDup) {
		return -1
	}
	return C.int(fcntl(int(fd), unix.F_DUPFD_CLOEXEC, 3))
}

// goloop_simulated_exists is gl_calls.exists: -1 if the number is not open.
//
//export goloop_simulated_exists
func goloop_simulated_exists(fd C.int) C.int { return C.int(fcntl(int(fd), unix.F_GETFD, 0)) }

// goloop_simulated_close is gl_calls.close. A test cannot make it fail.
//
//export goloop_simulated_close
func goloop_simulated_close(fd C.int) C.int {
	if s := simulationOf(int(fd)); s != nil {
		return C.int(returnErrno(0, s.Close(int(fd))))
	}
	return C.int(kernelResult(unix.Syscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)))
}

// goloop_simulated_clock returns the time of this thread's simulation in ns, or CLOCK_MONOTONIC of the real
// kernel.
//
//export goloop_simulated_clock
func goloop_simulated_clock() C.int64_t {
	if s := clockSimulation(); s != nil {
		return C.int64_t(s.Now())
	}
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return C.int64_t(ts.Nano())
}
