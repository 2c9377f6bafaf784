package main

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Commands of membarrier(2).
const (
	membarrierPrivate         = 1 << 3 // MEMBARRIER_CMD_PRIVATE_EXPEDITED
	membarrierRegisterPrivate = 1 << 4 // MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED
)

// membarrierRegister tells whether membarrier may be used; Linux has it since 4.14.
func membarrierRegister() bool {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierRegisterPrivate, 0, 0)
	return errno == 0
}

func membarrier() {
	unix.RawSyscall(unix.SYS_MEMBARRIER, membarrierPrivate, 0, 0)
}

// sleep blocks the thread, which costs less than a timer of Go's: nobody but the kernel has to
// know of it.
func sleep(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil)
}

// nameThread names the calling thread, for ps, top and debuggers; at most 15 bytes.
func nameThread(name string) {
	text, err := unix.BytePtrFromString(name)
	if err == nil {
		_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(text)), 0, 0, 0)
	}
}
