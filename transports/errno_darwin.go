package transports

import "syscall"

// errnoNoNet stands for ENONET of Linux. No call returns this number.
const errnoNoNet = syscall.Errno(1 << 20)
