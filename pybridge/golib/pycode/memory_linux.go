package pycode

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ownPID is the process id. It is constant: a forked child starts its own Go runtime.
var ownPID = uintptr(os.Getpid())

// iovec is struct iovec for an address that may not be mapped. A Go pointer must not have such a value.
type iovec struct {
	base, len uint64
}

// ReadMemory copies len(to) bytes of this process's memory. It returns false if any of them is not mapped.
func ReadMemory(from uint64, to []byte) bool {
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
