// Package simulated is a kernel for one process: descriptors, sockets, pipes and epoll in memory, with a
// clock that moves only when nothing else can run. It returns the results of Linux, errno for errno; a
// differential test makes the same calls on both kernels and compares them.
//
//	        programs and tests       the reactor (netloop.SimulatedCalls)
//	                 |                        |
//	program.go       | names of x/sys/unix    | addresses of C memory
//	                 v                        v
//	calls.go      one call at a time: lock, clock, fault, trace
//	                 |
//	descriptors.go   | a number -> an open file
//	                 v
//	node          pipe.go  eventfd.go  timerfd.go  epoll.go
//	              socket.go: unix_stream.go  unix_datagram.go  udp.go  tcp.go
//	                 |
//	watchers.go      | wake: notifies epolls
//	                 v
//	agenda.go     later actions: packets, timers, late readiness
//
// # Determinism
//
// Each decision comes from one generator (random.go), in the order of the calls, and nothing depends on the
// real kernel, the real clock or the order of a map. So a program that calls from one thread at a time gets
// the same results from the same seed, and the trace (trace.go) is equal byte for byte.
//
// # Time
//
// Each call takes Options.CallTime. A wait, in epoll or on a blocking descriptor, moves the clock to the
// next entry of the agenda, or to the end of the wait. If there is neither, or only keep-alive probes that
// would be answered, nothing in the simulation can end the wait: it fails with EDEADLK if the kernel is
// Sealed, else the thread sleeps until another thread calls.
//
// # Not implemented
//
// Processes, signals, files with contents, out-of-band data, descriptors in messages, sockets bound to a
// device, TIME_WAIT as a reason for EADDRINUSE. Sizes of buffers are near the ones of Linux, not equal: the
// bytes that fit into a full socket may differ.
package simulated
