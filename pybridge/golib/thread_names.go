package main

// #include "thread.h"
import "C"

// The names of Go's threads. Threads get their name when Go code of this package runs on them: the threads
// that gomaxprocs.go starts, this one, and all that these start later, because a new thread inherits the
// name. A few older threads of the runtime have no name.
//
// This is a variable because variables are initialised before the first init function runs.
var _ = func() bool {
	name := C.CString("goloop-go") // never freed
	nameThread = func() { C.thread_set_name(name) }
	nameThread()
	return true
}()
