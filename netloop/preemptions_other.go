//go:build !linux

package netloop

// preemptions returns 0: this system does not count them for a thread.
func preemptions() int64 { return 0 }
