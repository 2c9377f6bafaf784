// Package netloop is the reactor: an object that does all input and output of one turn of an
// event loop in one call, using memory that it shares with C.
//
//	      C (Python runs)                    Go (netloop)
//	                             |
//	callbacks append to the      |
//	submission queue             |
//	          \                  |
//	           +---- Turn ------>|  apply      submissions.go   timers, streams to flush
//	                             |  flush      streams.go       one send per stream
//	                             |  poll       poller*.go       blocks only here
//	                             |  report     streams.go       sent bytes that C waits for, errors
//	                             |  serve      reactor.go       each ready registration once:
//	                             |             streams.go       receive, send
//	                             |             datagrams.go     receive,
//	                             |             datagram_batch.go  many by one call
//	                             |             listeners.go     accept
//	                             |             watches.go       report readiness
//	                             |  expire     deadlines.go     timers that are due
//	           +<--- returns ----|
//	          /                  |
//	reads the completion queue,  |
//	runs the callbacks           |
//
// stream_paths.go chooses how bytes are sent and received.
//
// The shared memory is described in pybridge/abi.h and mirrored in abi.go. Each stream has a
// record of its own (transports.StreamIO) with its queue of pending writes and C's requests,
// which both sides write. A submission only says that the record has changed.
//
// # Registrations
//
// A stream, datagram socket, listener or watch is a slot of the registry, identified by an id
// and a generation (registry.go). A submission, an event of the poller or an entry of one of
// the reactor's lists with another generation than the slot's is stale and is dropped.
// Therefore closing a registration does not require a search through the lists.
//
// # Leftovers
//
// The completion queue and the arena have a fixed size. Work that does not fit stays in its
// list and is served first in the next turn, which does not block (Shared.More). Nothing is
// lost, and a stream cannot prevent the service of another stream.
//
// # Threads
//
// A reactor is used by one thread at a time and has no lock. Only Wake may be called by any
// thread. The only state outside of reactors is a count of closed descriptors
// (close_counter.go), so any number of reactors may run concurrently.
//
// # Kernels
//
// A reactor accesses its kernel, including the clock, only through its Calls. These are the
// host's system calls (SystemCalls), calls that fail on demand of a test, or those of another
// kernel in the same process.
package netloop
