package netloop

// Receive paths of streams in Go. C chooses its own paths: it receives from streams that Go
// reports as READY. Pending writes have one path: Stream.Flush, unless the kernel refused bytes
// before; then the poller reports when there is space.

// receivePath is one of the ways in which received bytes reach a protocol.
type receivePath uint8

const (
	receiveNone receivePath = iota
	receiveInC
	receiveLarge
	receiveLargePipe
	receiveNextTurn
	receiveToArena
)

// receiveOccasion is the reason for which chooseReceivePath is called.
type receiveOccasion uint8

const (
	whenReady      receiveOccasion = iota
	beforeDeadSend                 // the peer is gone, and the pending writes will fail
)

// chooseReceivePath chooses the path of a ready stream. The first row that applies is used:
//
//	path              used if                                     bytes are received by
//	receiveNone       the stream is not readable, is paused, or   -
//	                  has ended
//	receiveInC        C requested this: WantReceiveInC, for       C, after a READY completion, just
//	                  streams that received much;                 before it calls the protocol
//	                  WantReceiveInEagerTurn, in eager turns
//	                  (sendPolicy). Not beforeDeadSend
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
func (r *Reactor) chooseReceivePath(s *slot, when receiveOccasion) receivePath {
	st := &s.stream
	switch {
	case s.ready&readable == 0 || !st.Reading():
		return receiveNone
	case when == whenReady && (st.ReceivesInC() || r.eagerTurn && st.ReceivesInEagerTurn()):
		return receiveInC
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
