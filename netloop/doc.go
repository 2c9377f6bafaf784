// Package netloop is the reactor: one object that does a whole turn of an event
// loop's input and output in one call, over memory that it shares with C.
//
//	      C (Python runs)                    Go (netloop)
//	                             |
//	callbacks append to the      |
//	submission queue             |
//	          \                  |
//	           +---- Turn ------>|  decode     submissions.go   timers, streams to look at
//	                             |  flush      streams.go       one send per stream,
//	                             |             ring.go          many of them in one call
//	                             |  poll       poller*.go       blocks only here
//	                             |  report     streams.go       what left the queues
//	                             |  serve      reactor.go       each that is ready, once:
//	                             |             streams.go       receive, send
//	                             |             datagrams.go     receive,
//	                             |             datagram_batch.go  many by one call
//	                             |             listeners.go     accept
//	                             |             watches.go       tell
//	                             |  expire     reactor.go       timers that are due
//	           +<--- returns ----|
//	          /                  |
//	reads the completion queue,  |
//	runs the callbacks           |
//
// The shared memory is described in pybridge/abi.h and mirrored in shared.go. What a
// stream has to send, and what C wants of it, stands in a record of its own, which both
// sides write (transports.StreamIO); a submission only says that it is to be looked at.
//
// # Registrations
//
// A stream, datagram socket, listener or watch is a slot of the registry, named by an id and a
// generation (registry.go). Whatever arrives under another generation than the
// slot's is dropped: a submission, an event of the poller, an entry of one of the
// reactor's own lists. So a closed registration needs no hunt through the lists.
//
// # Leftovers
//
// The completion queue and the arena have a fixed size. What does not fit stays
// in its list and is served first in the next turn, which then does not block
// (Shared.More): nothing is lost, and no stream can keep another from its turn.
//
// # Threads
//
// A reactor is used by one thread at a time and has no lock; only Wake may be
// called by any. There is no state outside of a reactor but a count of closed
// descriptors (closes.go), so any number of them may run side by side.
//
// # Kernels
//
// A reactor reaches its kernel by its Calls alone, the clock included: the host's
// (SystemCalls), one that fails where a test says so, or a simulated one in the same
// process (SimulatedCalls, package simulated).
package netloop
