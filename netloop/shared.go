package netloop

import "github.com/goloop/goloop/transports"

// The mirror of pybridge/abi.h is generated (abi.go); pybridge/golib refuses to compile where it
// differs from C's.
//
// Addresses in completions are numbers, not pointers: they name
// memory of C, which the garbage collector neither moves nor frees, and a store
// of a pointer type into memory that C did not clear could mislead it.

// StreamIO is gl_stream_io, see there.
type StreamIO = transports.StreamIO
