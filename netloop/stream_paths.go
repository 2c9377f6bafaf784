package netloop

// Receive paths of streams in Go. C chooses its own paths: it receives from streams that Go
// reports as READY. Pending writes have one path: Stream.Flush, unless the kernel refused bytes
// before; then the poller reports when there is space.

// receivePath is one of the ways in which received bytes reach a protocol.
type receivePath uint8

const (
	receiveNone receivePath = iota
	receiveInC
	receiveToLentBuffer
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
//	path                 used if                                  bytes are received by
//	receiveNone          the stream is not readable, is paused,   -
//	                     or has ended
//	receiveInC           C requested this: WantReceiveInC, for    C, after a READY completion, just
//	                     sockets that received much;              before it calls the protocol
//	                     WantReceiveInEagerTurn, in eager turns
//	                     (sendPolicy). Not beforeDeadSend
//	receiveToLentBuffer  a pipe, its last receive was large, and  read into C's buffer, which Python
//	                     a buffer of C is free                    gets without a copy, and a second
//	                                                              time if much arrived
//	receiveToArena       otherwise                                recv or read into the arena, from
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
	case s.receivesLarge && st.IsPipe() && r.out.largeBuffer() != 0:
		return receiveToLentBuffer
	default:
		return receiveToArena
	}
}
