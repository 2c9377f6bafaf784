package netloop

import "golang.org/x/sys/unix"

// preemptions returns how often another thread has taken the processor from this thread
// (getrusage(2), RUSAGE_THREAD); 0 if the call fails.
func preemptions() int64 {
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &usage) != nil {
		return 0
	}
	return int64(usage.Nivcsw)
}
