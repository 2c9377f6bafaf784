package main

// #include "thread.h"
import "C"

// Go's threads are named where Go's code is on them: those that pace.go makes, this one, and
// what these make later, which inherits the name. A few of the runtime's own are older.
//
// A variable, for all variables are set before the first init function runs.
var _ = func() bool {
	name := C.CString("goloop-go") // for ever
	nameThread = func() { C.thread_set_name(name) }
	nameThread()
	return true
}()
