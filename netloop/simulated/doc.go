// Package simulated is a kernel for one process: descriptors, sockets, pipes and epoll in memory,
// on a clock that stands still until nothing else can run. It answers as Linux does, errno for
// errno; a differential test makes the same calls on both and compares.
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
//	watchers.go      | wake: what epolls are told of
//	                 v
//	agenda.go     what happens at a later time: packets, timers, readiness that comes late
//
// # Determinism
//
// Each decision comes from one generator (random.go), in the order of the calls, and nothing
// depends on the real kernel, the real clock or the order of a map. A program that calls from one
// thread at a time therefore gets the same answers from the same seed, and the trace (trace.go) is
// the same byte for byte.
//
// # Time
//
// Each call takes Options.CallTime. Who waits, in epoll or on a blocking descriptor, moves the
// clock to the next entry of the agenda, or to the end of the wait. Where neither is there, or keep-alive
// probes alone that would be answered, nothing in the simulation can end the wait: EDEADLK where the
// kernel is Sealed, else the thread sleeps until another one calls.
//
// # What is not there
//
// Processes, signals, files with contents, out-of-band data, descriptors in messages, sockets that
// bind to a device, TIME_WAIT as a reason for EADDRINUSE. Sizes of buffers are near those of Linux,
// not equal: how much a full socket has taken may differ.
package simulated
