package netloop

import "github.com/goloop/goloop/transports"

// The Go mirror of pybridge/abi.h is generated (abi.go). pybridge/golib does not compile if the
// mirror differs from C's structs.
//
// Addresses in completions are numbers instead of pointers. They refer to C memory, which the
// garbage collector neither moves nor frees. Storing a pointer type into memory that C did not
// clear could mislead the garbage collector.

// StreamIO mirrors gl_stream_io.
type StreamIO = transports.StreamIO
