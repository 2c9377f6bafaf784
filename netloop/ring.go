package netloop

import (
	"syscall"
	"unsafe"

	"github.com/goloop/goloop/transports"
)

// Where many streams send or receive in one turn, the calls are made together, by one
// system call, on a ring (io_uring). It spares each of them the entry into the kernel,
// the look-up of the descriptor, which costs two atomic operations in a process with
// threads, and Go's wrapper. docs/performance.md has the figures.
//
// The contract of a ring. A backend is one file (ring_linux.go, ring_other.go) that
// defines a type `ring`, which embeds ringBatch, and RingCalls with its system calls:
//
//	open(c *RingCalls) ringState
//	    makes the kernel's object, close-on-exec.
//	close(fd bool)
//	    gives it back, but for its descriptor where fd is false.
//	number() int
//	    is its descriptor.
//	send(fd int32, base, size uintptr), receive(...)
//	    add a call to the batch, of at most ringSize, as Calls.Send and Calls.Recv
//	    would make it.
//	run() bool
//	    makes the calls in this order, and empties the batch. Each result stands in
//	    results: what the call returned, or -errno. False: the ring is broken, some
//	    calls may not have been made (ringLost), and it has to be closed.
//
// A ring is made when a reactor wants it first. Where it is refused (a kernel before
// 5.12, a sandbox, GOLOOP_IO_URING=0) each stream makes its own calls, as one does in a
// turn with few others.
//
//	unknown --the first batch--> open ---run fails---> refused
//	   |  ^                       |
//	   |  '-- no descriptor free  '--- the reactor's end
//	   '----- the kernel refuses -----> refused
type ringState uint8

const (
	ringUnknown ringState = iota
	ringOpen
	ringRefused
)

const (
	// ringSize is the most calls of a batch; ringLeast are as many as are worth one.
	maxBatch = 128
	minBatch = 5

	// Large pieces go alone: the call is little of their cost, and a batch must not hold
	// up Go's scheduler. A receive in a batch has its room before it is known what comes,
	// so it is for streams that lately received little.
	batchSendMax    = 32 << 10
	batchReceiveMax = 2 << 10

	// A few small pieces (an HTTP response's head and its body) are copied together for
	// one plain send: that costs less than a system call of their own.
	gatherMaxVectors = 8
	gatherMaxBytes   = 4 << 10
	gatherBufferSize = 64 << 10

	// ringLost is the result of a call that was perhaps not made.
	ringNotRun = -int32(syscall.ECANCELED)
)

// ringBatch is what a ring has collected, and what came of it.
type ringResults struct {
	n       int
	results [maxBatch]int32
}

// result is what a system call would have returned.
func (b *ringResults) result(i int) (int, syscall.Errno) {
	if b.results[i] < 0 {
		return 0, syscall.Errno(-b.results[i])
	}
	return int(b.results[i]), 0
}

// batch remembers whose calls are in the ring, and where a receive puts what comes.
type ringBatchState struct {
	state     ringState
	fdTracked bool // the poller knows the ring's descriptor
	runs      uint64
	streams   [maxBatch]token
	buffers   [maxBatch]uintptr
	// room is where pieces are copied together; made when there are some first.
	gatherBuffer []byte
}

// batches tells whether there is a ring, and makes it when asked first. What the
// kernel refuses once it is not asked for again.
func (r *Reactor) ringAvailable() bool {
	if r.batch.state == ringUnknown && r.shared.Flags&NoRing == 0 {
		r.batch.state = r.ring.open(&r.calls.Ring)
		if r.batch.state == ringOpen {
			r.registry.disownFD(int32(r.ring.descriptor()))
			r.batch.fdTracked = r.poller.track(r.ring.descriptor())
		}
	}
	return r.batch.state == ringOpen
}

// runBatch makes the calls of the batch.
func (r *Reactor) runBatch() {
	r.batch.runs++
	if !r.ring.run() {
		r.closeRing()
		r.batch.state = ringRefused
	}
}

// closeRing gives the ring back. Its descriptor may have become somebody else's.
func (r *Reactor) closeRing() {
	r.ring.close(!r.batch.fdTracked || r.poller.tracks(r.ring.descriptor()))
}

// sendBatches makes the first send of those dirty streams for which one plain send
// does it. What they lack then, flushDirty does.
func (r *Reactor) sendBatches() {
	for next := 0; next < len(r.dirty); {
		n, left := 0, uintptr(gatherBufferSize)
		for ; next < len(r.dirty) && n < maxBatch; next++ {
			t := r.dirty[next]
			if s := r.registry.find(t.id(), t.gen()); s != nil && s.sendsLittle(&left) {
				r.batch.streams[n] = t
				n++
			}
		}
		if n < minBatch || !r.ringAvailable() {
			return
		}
		r.sendBatch(r.batch.streams[:n])
	}
}

// sendBatch makes the next send of each of these streams.
func (r *Reactor) sendBatch(streams []token) {
	r.batch.gatherBuffer = r.batch.gatherBuffer[:0]
	for _, t := range streams {
		s := r.registry.find(t.id(), t.gen())
		v := r.gather(s.stream.BatchSend())
		r.ring.send(s.fd, v.Base, v.Len)
	}
	r.runBatch()
	for i, t := range streams {
		if r.ring.results[i] == ringNotRun {
			continue
		}
		r.shared.Sends++
		s := r.registry.find(t.id(), t.gen())
		n, errno := r.ring.result(i)
		if errno == 0 {
			r.countSent(uint64(n))
		}
		if errno := s.stream.CompleteSend(&r.calls.Calls, n, errno); errno != 0 {
			s.writeError = errno32(errno)
		}
	}
}

// receiveBatch serves at most n streams, those at the front of the ready list that only
// have a little to receive, and returns how many it were.
func (r *Reactor) receiveBatch(n int) int {
	n = min(n, maxBatch, r.out.room()/maxPerStep)
	k, left := 0, r.out.arenaRoom()
	for ; k < n; k++ {
		t := r.ready.at(k)
		s := r.registry.find(t.id(), t.gen())
		if s == nil || s.kind != kindStream || s.ready != readable || s.edgeTriggered || !s.receivesLittle() ||
			left < s.batchReceiveSize() {
			break
		}
		left -= s.batchReceiveSize()
	}
	if k < minBatch || !r.ringAvailable() {
		return 0
	}
	for i := range k {
		t := r.ready.at(i)
		s := r.registry.find(t.id(), t.gen())
		r.batch.buffers[i] = uintptr(r.out.arenaNext())
		r.out.commitArena(s.batchReceiveSize())
		r.ring.receive(s.fd, r.batch.buffers[i], s.batchReceiveSize())
	}
	r.runBatch()
	for i := range k {
		t := r.ready.pop()
		s := r.registry.find(t.id(), t.gen())
		s.inReady, s.ready = false, 0
		r.reportStream(t, s)
		if r.ring.results[i] == ringNotRun {
			continue // the poller tells of it again
		}
		r.shared.Recvs++
		n, errno := r.ring.result(i)
		n, outcome, errno := s.stream.CompleteReceive(n, errno)
		r.putReceived(t, s, r.batch.buffers[i], 0, n, outcome, errno)
	}
	return k
}

// together returns one piece of the same bytes.
func (r *Reactor) gather(v []transports.Vector) transports.Vector {
	if len(v) == 1 {
		return v[0]
	}
	if r.batch.gatherBuffer == nil {
		r.batch.gatherBuffer = make([]byte, 0, gatherBufferSize) // never grows: sendsLittle sees to it
	}
	start := len(r.batch.gatherBuffer)
	for i := range v {
		r.batch.gatherBuffer = append(r.batch.gatherBuffer, v[i].Bytes()...)
	}
	whole := r.batch.gatherBuffer[start:]
	return transports.Vector{Base: uintptr(unsafe.Pointer(unsafe.SliceData(whole))), Len: uintptr(len(whole))}
}

// sendsLittle tells whether one plain send of a small piece, or of small pieces together,
// is what the stream needs. Of the room for the latter, left is what others left.
func (s *slot) sendsLittle(left *uintptr) bool {
	v := s.stream.BatchSend()
	if len(v) == 1 {
		return v[0].Len <= batchSendMax
	}
	if len(v) == 0 || len(v) > gatherMaxVectors {
		return false
	}
	size := uintptr(0)
	for _, piece := range v {
		size += piece.Len
	}
	if size > min(gatherMaxBytes, *left) {
		return false
	}
	*left -= size
	return true
}

// batchRoom is how much a receive in a batch may bring: twice what came lately. Where
// that is filled, the poller tells of the rest.
func (s *slot) batchReceiveSize() uintptr {
	return (max(uintptr(2*s.lastReceived), batchReceiveMax/4) + arenaAlign - 1) &^ (arenaAlign - 1)
}

// receivesLittle tells whether a plain recv of a few bytes is what the stream needs.
func (s *slot) receivesLittle() bool {
	return s.lastReceived > 0 && s.lastReceived <= batchReceiveMax && !s.receivesLarge && !s.stream.ReceivesInC() &&
		s.stream.CanBatchReceive()
}
