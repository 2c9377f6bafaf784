package transports

import "syscall"

// errnoNoNet stands for Linux's ENONET: a number that no call yields.
const errnoNoNet = syscall.Errno(1 << 20)
