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
	ringSize  = 128
	ringLeast = 5

	// Large pieces go alone: the call is little of their cost, and a batch must not hold
	// up Go's scheduler. A receive in a batch has its room before it is known what comes,
	// so it is for streams that lately received little.
	ringSendMax    = 32 << 10
	ringReceiveMax = 2 << 10

	// A few small pieces (an HTTP response's head and its body) are copied together for
	// one plain send: that costs less than a system call of their own.
	ringPieces     = 8
	ringGatherMax  = 4 << 10
	ringGatherRoom = 64 << 10

	// ringLost is the result of a call that was perhaps not made.
	ringLost = -int32(syscall.ECANCELED)
)

// ringBatch is what a ring has collected, and what came of it.
type ringBatch struct {
	n       int
	results [ringSize]int32
}

// result is what a system call would have returned.
func (b *ringBatch) result(i int) (int, syscall.Errno) {
	if b.results[i] < 0 {
		return 0, syscall.Errno(-b.results[i])
	}
	return int(b.results[i]), 0
}

// batch remembers whose calls are in the ring, and where a receive puts what comes.
type batch struct {
	state ringState
	held  bool // the poller knows the ring's descriptor
	runs  uint64
	token [ringSize]token
	base  [ringSize]uintptr
	// room is where pieces are copied together; made when there are some first.
	room []byte
}

// batches tells whether there is a ring, and makes it when asked first. What the
// kernel refuses once it is not asked for again.
func (r *Reactor) batches() bool {
	if r.batch.state == ringUnknown && r.shared.Flags&NoRing == 0 {
		r.batch.state = r.ring.open(&r.calls.Ring)
		if r.batch.state == ringOpen {
			r.registry.forget(int32(r.ring.number()))
			r.batch.held = r.poller.hold(r.ring.number())
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
	r.ring.close(!r.batch.held || r.poller.holds(r.ring.number()))
}

// sendBatches makes the first send of those dirty streams for which one plain send
// does it. What they lack then, flushDirty does.
func (r *Reactor) sendBatches() {
	for next := 0; next < len(r.dirty); {
		n, left := 0, uintptr(ringGatherRoom)
		for ; next < len(r.dirty) && n < ringSize; next++ {
			t := r.dirty[next]
			if s := r.registry.find(t.id(), t.gen()); s != nil && s.sendsLittle(&left) {
				r.batch.token[n] = t
				n++
			}
		}
		if n < ringLeast || !r.batches() {
			return
		}
		r.sendBatch(r.batch.token[:n])
	}
}

// sendBatch makes the next send of each of these streams.
func (r *Reactor) sendBatch(streams []token) {
	r.batch.room = r.batch.room[:0]
	for _, t := range streams {
		s := r.registry.find(t.id(), t.gen())
		v := r.together(s.stream.BatchSend())
		r.ring.send(s.fd, v.Base, v.Len)
	}
	r.runBatch()
	for i, t := range streams {
		if r.ring.results[i] == ringLost {
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
	n = min(n, ringSize, r.out.room()/stepRoom)
	k, left := 0, r.out.arenaRoom()
	for ; k < n; k++ {
		t := r.ready.at(k)
		s := r.registry.find(t.id(), t.gen())
		if s == nil || s.kind != kindStream || s.ready != readable || s.quiet || !s.receivesLittle() ||
			left < s.batchRoom() {
			break
		}
		left -= s.batchRoom()
	}
	if k < ringLeast || !r.batches() {
		return 0
	}
	for i := range k {
		t := r.ready.at(i)
		s := r.registry.find(t.id(), t.gen())
		r.batch.base[i] = uintptr(r.out.arenaNext())
		r.out.use(s.batchRoom())
		r.ring.receive(s.fd, r.batch.base[i], s.batchRoom())
	}
	r.runBatch()
	for i := range k {
		t := r.ready.pop()
		s := r.registry.find(t.id(), t.gen())
		s.queued, s.ready = false, 0
		r.report(t, s)
		if r.ring.results[i] == ringLost {
			continue // the poller tells of it again
		}
		r.shared.Recvs++
		n, errno := r.ring.result(i)
		n, outcome, errno := s.stream.CompleteReceive(n, errno)
		r.tell(t, s, r.batch.base[i], 0, n, outcome, errno)
	}
	return k
}

// together returns one piece of the same bytes.
func (r *Reactor) together(v []transports.Vector) transports.Vector {
	if len(v) == 1 {
		return v[0]
	}
	if r.batch.room == nil {
		r.batch.room = make([]byte, 0, ringGatherRoom) // never grows: sendsLittle sees to it
	}
	start := len(r.batch.room)
	for i := range v {
		r.batch.room = append(r.batch.room, v[i].Bytes()...)
	}
	whole := r.batch.room[start:]
	return transports.Vector{Base: uintptr(unsafe.Pointer(unsafe.SliceData(whole))), Len: uintptr(len(whole))}
}

// sendsLittle tells whether one plain send of a small piece, or of small pieces together,
// is what the stream needs. Of the room for the latter, left is what others left.
func (s *slot) sendsLittle(left *uintptr) bool {
	v := s.stream.BatchSend()
	if len(v) == 1 {
		return v[0].Len <= ringSendMax
	}
	if len(v) == 0 || len(v) > ringPieces {
		return false
	}
	size := uintptr(0)
	for _, piece := range v {
		size += piece.Len
	}
	if size > min(ringGatherMax, *left) {
		return false
	}
	*left -= size
	return true
}

// batchRoom is how much a receive in a batch may bring: twice what came lately. Where
// that is filled, the poller tells of the rest.
func (s *slot) batchRoom() uintptr {
	return (max(uintptr(2*s.lately), ringReceiveMax/4) + arenaAlign - 1) &^ (arenaAlign - 1)
}

// receivesLittle tells whether a plain recv of a few bytes is what the stream needs.
func (s *slot) receivesLittle() bool {
	return s.lately > 0 && s.lately <= ringReceiveMax && !s.large && !s.stream.ReceivesInC() &&
		s.stream.CanBatchReceive()
}
