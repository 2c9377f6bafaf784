package main

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

var ownPID = uintptr(os.Getpid()) // constant: a forked child starts its own Go runtime

type iovec struct {
	base, len uint64
}

// readMemory copies memory of this process. It returns false if the memory is not mapped.
func readMemory(from uint64, to []byte) bool {
	if len(to) == 0 {
		return true
	}
	there := iovec{from, uint64(len(to))}
	here := unix.Iovec{Base: &to[0]}
	here.SetLen(len(to))
	n, _, errno := syscall.RawSyscall6(unix.SYS_PROCESS_VM_READV, ownPID,
		uintptr(unsafe.Pointer(&here)), 1, uintptr(unsafe.Pointer(&there)), 1, 0)
	return errno == 0 && int(n) == len(to)
}
