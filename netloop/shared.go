package netloop

import (
	"math"

	"github.com/goloop/goloop/transports"
)

// The Go mirror of pybridge/abi.h. The order and size of the fields are part of
// the contract; pybridge/golib refuses to compile where they differ from C's.
//
// Addresses in completions are numbers, not pointers: they name
// memory of C, which the garbage collector neither moves nor frees, and a store
// of a pointer type into memory that C did not clear could mislead it.

// SubmissionOp is what C asks for.
type SubmissionOp = uint32

// The submissions, see abi.h.
const (
	SubNop SubmissionOp = iota
	SubTimerArm
	SubTimerCancel
	SubStream
	SubWatchWait
)

// SubmissionSize is the length of a Submission in bytes.
const SubmissionSize = 24

// Submission is gl_submission.
type Submission struct {
	Op  SubmissionOp
	ID  uint32
	Gen uint32
	_   uint32
	Arg int64
}

// CompletionKind is what Go reports.
type CompletionKind = uint32

// The completions, see abi.h.
const (
	CmpNone CompletionKind = iota
	CmpData
	CmpEOF
	CmpReadError
	CmpWrote
	CmpWriteError
	CmpAccept
	CmpAcceptError
	CmpReady
	CmpTimer
	CmpDatagram
	CmpDatagramError
)

// Completion is gl_completion.
type Completion struct {
	Kind CompletionKind
	ID   uint32
	Gen  uint32
	Res  int32
	Ptr  uintptr
	Arg  int64
}

// SockaddrMax is the room for one socket address in bytes.
const SockaddrMax = 128

// Endpoints is gl_endpoints: the raw addresses of an accepted connection.
type Endpoints struct {
	PeerLen  uint32
	LocalLen uint32
	Peer     [SockaddrMax]byte
	Local    [SockaddrMax]byte
}

// Packet is gl_packet: what stands in the arena before the bytes of a datagram.
type Packet struct {
	AddrLen uint32
	Addr    [SockaddrMax]byte
}

// PacketMax is the most bytes of a datagram that are received, and ArenaSlack
// what the arena has behind its capacity for them.
const (
	PacketMax  = 256 << 10
	ArenaSlack = PacketMax + 256
)

// StreamIO is gl_stream_io, see there.
type StreamIO = transports.StreamIO

// DeadlineNone is Shared.NextDeadline when no timer is armed.
const DeadlineNone = math.MaxInt64

// OpenWatchEnd is a flag of StreamOpen, CloseFD one of StreamClose and its kin.
const (
	OpenWatchEnd = 1
	CloseFD      = 1
)

// ListenNoDelay is a flag of ListenerOpen.
const ListenNoDelay = 1

// Shared is gl_shared, the block of one loop.
type Shared struct {
	Sub          *Submission
	Cmp          *Completion
	Arena        *byte
	SubLen       uint32
	SubCap       uint32
	CmpLen       uint32
	CmpCap       uint32
	ArenaCap     uint64
	Now          int64
	NextDeadline int64
	More         uint32
	WakePending  uint32
	WakeFD       int32
	Flags        uint32
	WakeToken    uint64
	PollFD       int32
	_            uint32

	Polls, Recvs, Sends, Wakeups uint64
	Accepting                    int64

	Large     [LargeMax]uintptr
	LargeSize uint64

	Holds, Guest, Fenced, Awake, Unsent, Parked uint32 // see abi.h, "The monitor"

	Metrics Metrics

	Watchdog, Block                        uintptr
	BlockedLimit, BlockedEnd, BlockedSince int64
	BlockedTold, BlockedInsisted           uint32
	Asker                                  uintptr
}

// Metrics is gl_metrics.
type Metrics struct {
	Turns               uint64
	IterationTime       Histogram
	PollTime            Histogram
	ReadyWait           Histogram // C's, like the next one
	TimerLateness       Histogram
	EventsPerTurn       Histogram
	BytesReceived       uint64
	BytesSent           uint64
	Reads               uint64
	Writes              uint64
	LateWrites          uint64 // the monitor's
	ConnectionsAccepted uint64
	DNSTime             Histogram // C's
	BlockedSpells       uint64    // the monitor's
}

// NoRing is a flag of Shared: never hand calls to the kernel in batches. Look is one that
// the next turn clears: it looks whether the reactor's descriptors are still its own.
const (
	NoRing = 1
	Look   = 2
)

// LargeMax is how many buffers for large receives a turn has at most.
const LargeMax = 16
