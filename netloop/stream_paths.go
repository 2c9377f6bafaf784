package netloop

// Receive paths and send paths of streams in Go. C chooses its own paths: it receives from
// streams that Go reports as READY, and sends in write().

// receivePath is one of the ways in which received bytes reach a protocol.
type receivePath uint8

const (
	receiveNone receivePath = iota
	receiveInC
	receiveInBatch
	receiveLarge
	receiveLargePipe
	receiveNextTurn
	receiveToArena
)

// receiveOccasion is the reason for which chooseReceivePath is called.
type receiveOccasion uint8

const (
	whenReady      receiveOccasion = iota // the stream is served on its own
	whenManyReady                         // the turn's receives are batched (batchPolicy)
	beforeDeadSend                        // the peer is gone, and the pending writes will fail
)

// chooseReceivePath chooses the path of a ready stream. The first row that applies is used:
//
//	path              used if                                     bytes are received by
//	receiveNone       the stream is not readable, is paused, or   -
//	                  has ended
//	receiveInC        C requested this: WantReceiveInC, for       C, after a READY completion, just
//	                  streams that received much;                 before it calls the protocol
//	                  WantReceiveInCIfFew, if fewer than
//	                  minBatch registrations are ready. Not
//	                  beforeDeadSend
//	receiveInBatch    whenManyReady, and the last receive was     one io_uring_enter for all such
//	                  small; not for pipes                        streams, into the arena
//	receiveLargePipe  the last receive was large, a large buffer  read into a large buffer, and a
//	                  is free, and the stream is a pipe           second time if much arrived
//	receiveLarge      the last receive was large, and a large     recv into a large buffer, which
//	                  buffer is free                              Python gets without a copy
//	receiveNextTurn   the last receive was large, and this turn   receiveLarge of the next turn: soon
//	                  has used all large buffers                  enough, and without a copy
//	receiveToArena    otherwise                                   recv or read into the arena, from
//	                                                              which C copies
//
// A stream with WatchEnd uses receiveToArena, but Receive reports EOF and leaves bytes unread.
//
// Before a send that will fail, Go receives, because the send would take the socket's error
// with it. asyncio receives first, too.
//
// A turn's receives are batched if at least minBatch registrations are ready and receivePolicy has
// measured that this is cheaper. If the ring is not available or fewer than minBatch streams use
// receiveInBatch, each of these streams is served on its own.
func (r *Reactor) chooseReceivePath(s *slot, when receiveOccasion) receivePath {
	st := &s.stream
	switch {
	case s.ready&readable == 0 || !st.Reading():
		return receiveNone
	case when != beforeDeadSend && (st.ReceivesInC() || r.fewReady && st.ReceivesInCIfFew()):
		return receiveInC
	case when == whenManyReady && s.canReceiveInBatch():
		return receiveInBatch
	case !s.receivesLarge:
		return receiveToArena
	case r.out.largeBuffer() == 0:
		if r.out.largeNext > 0 {
			return receiveNextTurn
		}
		return receiveToArena
	case st.IsPipe():
		return receiveLargePipe
	default:
		return receiveLarge
	}
}

// canReceiveInBatch reports whether one small recv serves the stream: it is readable and
// nothing else, and its last receive was small. A receive in a batch has its buffer before the
// number of bytes is known, so it is only for streams that recently received little.
func (s *slot) canReceiveInBatch() bool {
	return s.ready == readable && !s.edgeTriggered && !s.receivesLarge &&
		s.lastReceived > 0 && s.lastReceived <= maxBatchReceive && s.stream.CanBatchReceive()
}

// sendPath is one of the ways in which a stream's pending writes reach the kernel.
type sendPath uint8

const (
	sendWhenWritable sendPath = iota
	sendInBatch
	sendGathered
	sendAlone
)

// sendOccasion is the reason for which chooseSendPath is called.
type sendOccasion uint8

const (
	whenQueued     sendOccasion = iota // C has appended to the queue
	whenManyQueued                     // C has appended, and the turn's sends are batched (batchPolicy)
	whenWritable                       // the poller reports space, or C requires an attempt
)

// chooseSendPath chooses the path of a stream's pending writes. The first row that applies is
// used:
//
//	path              used if                                     bytes are sent by
//	sendWhenWritable  the kernel accepted only a part before,     a later turn, when the poller
//	                  and not whenWritable                        reports space
//	sendInBatch       whenManyQueued, and the queue is one        one io_uring_enter for all such
//	                  piece of at most maxBatchSend; not for      streams
//	                  pipes
//	sendGathered      whenManyQueued, and the queue is 2 to       sendInBatch, after the pieces were
//	                  gatherMaxVectors pieces with at most        copied together
//	                  gatherMaxBytes in total, for which the
//	                  gather buffer has space; not for pipes
//	sendAlone         otherwise                                   Stream.Flush: send for one piece,
//	                                                              sendmsg for several, writev for a
//	                                                              pipe; then shutdown if requested
//
// Large pieces are sent alone: the system call is a small part of their cost, and a batch must
// not block Go's scheduler. A few small pieces (the head and the body of an HTTP response) are
// copied together, because this costs less than a system call of their own. A turn's sends are
// batched if at least minBatch streams have changed and sendPolicy has measured that this is
// cheaper. If the ring is not available or fewer than minBatch streams use it, each stream sends
// alone.
//
// gatherSpace is the unused space of the gather buffer; gathered is the part of it that
// sendGathered uses, 0 for the other paths. A stream without pending writes gets sendAlone, and
// Stream.Flush then only makes a requested shutdown.
func (s *slot) chooseSendPath(when sendOccasion, gatherSpace uintptr) (path sendPath, gathered uintptr) {
	switch {
	case when != whenWritable && s.stream.Blocked():
		return sendWhenWritable, 0
	case when != whenManyQueued:
		return sendAlone, 0
	}
	v := s.stream.PendingForBatch()
	switch {
	case len(v) == 1 && v[0].Len <= maxBatchSend:
		return sendInBatch, 0
	case len(v) < 2 || len(v) > gatherMaxVectors:
		return sendAlone, 0
	}
	for _, piece := range v {
		gathered += piece.Len
	}
	if gathered > min(gatherMaxBytes, gatherSpace) {
		return sendAlone, 0
	}
	return sendGathered, gathered
}
