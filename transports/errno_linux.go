package transports

import "syscall"

// errnoNoNet is ENONET, which only Linux has.
const errnoNoNet = syscall.ENONET
