package netloop

import (
	"syscall"
	"unsafe"

	"github.com/goloop/goloop/transports"
)

// If many streams send or receive in one turn, their calls may be made together on a ring
// (io_uring), by one system call. This saves for each call the entry into the kernel, the
// lookup of the descriptor (two atomic operations in a process with threads), and Go's wrapper.
// batch_policy.go decides by measured costs whether batches are used.
//
// The contract of a ring backend. A backend is one file (ring_linux.go, ring_other.go) that
// defines a type `ring`, which embeds ringResults, and RingCalls with its system calls:
//
//	open(c *RingCalls) ringState
//	    opens the kernel's object, close-on-exec.
//	close(fd bool)
//	    frees it. Its descriptor is closed only if fd is true.
//	descriptor() int
//	    returns its number.
//	send(fd int32, base, size uintptr), receive(...)
//	    add a call to the batch of at most maxBatch calls, with the semantics of Calls.Send
//	    and Calls.Recv.
//	run() bool
//	    makes the calls in this order and empties the batch. Each result is in results: the
//	    return value of the call, or -errno. False: the ring is broken and must be closed,
//	    and some calls may not have been made (ringNotRun).

// ringState is the state of a reactor's ring. A ring is opened for the first batch. If it is
// refused (a kernel before 5.12, a sandbox, GOLOOP_IO_URING=0), each stream makes its own calls,
// as in a turn with few ready streams.
//
//	unknown --the first batch--> open ---run fails---> refused
//	   |  ^                       |
//	   |  '-- out of descriptors  '--- the reactor's end
//	   '----- the kernel refuses -----> refused
type ringState uint8

const (
	ringUnknown ringState = iota // not opened yet: the next batch tries
	ringOpen
	ringRefused // never tried again
)

const (
	// maxBatch is the maximum number of calls of a batch. Fewer than minBatch calls are never
	// made in a batch: with few ready streams C receives and sends when it calls the protocols.
	maxBatch = 128
	minBatch = 5

	// maxBatchSend and maxBatchReceive are the largest sends and receives in a batch; see
	// chooseSendPath and canReceiveInBatch.
	maxBatchSend    = 32 << 10
	maxBatchReceive = 2 << 10

	// Limits of the pieces that sendGathered copies together, and the size of the buffer.
	gatherMaxVectors = 8
	gatherMaxBytes   = 4 << 10
	gatherBufferSize = 64 << 10

	// ringNotRun is the result of a call that may not have been made.
	ringNotRun = -int32(syscall.ECANCELED)
)

// ringResults has the number of calls in the current batch and the results of the last batch.
type ringResults struct {
	n       int
	results [maxBatch]int32
}

// result returns result i of the last batch in the form of a system call's results: a number, or
// 0 and an errno, which is ECANCELED if the call may not have been made.
func (b *ringResults) result(i int) (int, syscall.Errno) {
	if b.results[i] < 0 {
		return 0, syscall.Errno(-b.results[i])
	}
	return int(b.results[i]), 0
}

// ringBatchState has the state of the ring, the streams of the current batch and their buffers.
type ringBatchState struct {
	state     ringState
	fdTracked bool   // the poller tracks the ring's descriptor
	runs      uint64 // number of batches
	streams   [maxBatch]token
	buffers   [maxBatch]uintptr // of receives, in the arena
	// gatherBuffer has the copies of sendGathered. It is allocated on first use.
	gatherBuffer []byte
}

// ringAvailable reports whether there is a ring, and opens it in the first call. While no
// descriptor is available, each call tries again; after a refusal none does. Flags with NoRing
// prevent the opening.
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

// runBatch makes the calls of the batch. A ring that fails is closed and not opened again.
func (r *Reactor) runBatch() {
	r.batch.runs++
	if !r.ring.run() {
		r.closeRing()
		r.batch.state = ringRefused
	}
}

// closeRing closes the ring. It does not close its number if the number refers to another file
// by now.
func (r *Reactor) closeRing() {
	r.ring.close(!r.batch.fdTracked || r.poller.tracks(r.ring.descriptor()))
}

// sendBatches makes the first send of dirty streams that send in batches. It does nothing for
// fewer than minBatch such streams or without a ring. Remaining bytes and other streams are left
// to flushDirty.
func (r *Reactor) sendBatches() {
	for next := 0; next < len(r.dirty); {
		n, gatherSpace := 0, uintptr(gatherBufferSize)
		for ; next < len(r.dirty) && n < maxBatch; next++ {
			t := r.dirty[next]
			s := r.registry.find(t.id(), t.gen())
			if s == nil {
				continue
			}
			path, gathered := s.chooseSendPath(whenManyQueued, gatherSpace)
			if path == sendInBatch || path == sendGathered {
				gatherSpace -= gathered
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

// sendBatch makes the next send of each of these streams on the ring. An error is stored in the
// stream's slot, and flushDirty reports it. A stream whose send was not made because the ring
// failed keeps its pending writes.
func (r *Reactor) sendBatch(streams []token) {
	r.batch.gatherBuffer = r.batch.gatherBuffer[:0]
	for _, t := range streams {
		s := r.registry.find(t.id(), t.gen())
		v := r.gather(s.stream.PendingForBatch())
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

// receiveBatch serves the streams at the front of the ready list that receive in batches, at most
// n: it removes them from the list, reports their sent bytes and then the received ones. It
// returns their number, or 0 without a change if fewer than minBatch streams qualify or there is
// no ring.
func (r *Reactor) receiveBatch(n int) int {
	n = min(n, maxBatch, r.out.completionSpace()/maxPerStep)
	batched, arenaLeft := 0, r.out.arenaSpace()
	for ; batched < n; batched++ {
		t := r.ready.at(batched)
		s := r.registry.find(t.id(), t.gen())
		if s == nil || s.kind != kindStream || r.chooseReceivePath(s, whenManyReady) != receiveInBatch ||
			arenaLeft < s.batchReceiveSize() {
			break
		}
		arenaLeft -= s.batchReceiveSize()
	}
	if batched < minBatch || !r.ringAvailable() {
		return 0
	}
	for i := range batched {
		t := r.ready.at(i)
		s := r.registry.find(t.id(), t.gen())
		r.batch.buffers[i] = uintptr(r.out.arenaNext())
		r.out.commitArena(s.batchReceiveSize())
		r.ring.receive(s.fd, r.batch.buffers[i], s.batchReceiveSize())
	}
	r.runBatch()
	for i := range batched {
		t := r.ready.pop()
		s := r.registry.find(t.id(), t.gen())
		s.inReady, s.ready = false, 0
		r.reportStream(t, s)
		if r.ring.results[i] == ringNotRun {
			continue // the poller reports it again
		}
		r.shared.Recvs++
		n, errno := r.ring.result(i)
		n, outcome, errno := s.stream.CompleteReceive(n, errno)
		r.putReceived(t, s, r.batch.buffers[i], 0, n, outcome, errno)
	}
	return batched
}

// gather returns one vector with the bytes of v: v's own memory if it is one vector, else a copy
// in the gather buffer, which must have space.
func (r *Reactor) gather(v []transports.Vector) transports.Vector {
	if len(v) == 1 {
		return v[0]
	}
	if r.batch.gatherBuffer == nil {
		r.batch.gatherBuffer = make([]byte, 0, gatherBufferSize) // never grows: chooseSendPath checks the space
	}
	start := len(r.batch.gatherBuffer)
	for i := range v {
		r.batch.gatherBuffer = append(r.batch.gatherBuffer, v[i].Bytes()...)
	}
	whole := r.batch.gatherBuffer[start:]
	return transports.Vector{Base: uintptr(unsafe.Pointer(unsafe.SliceData(whole))), Len: uintptr(len(whole))}
}

// batchReceiveSize returns the buffer size of a receive in a batch: twice the size of the last
// receive, at least maxBatchReceive/4, rounded up to arenaAlign. If the buffer is filled, the
// poller reports the remaining bytes.
func (s *slot) batchReceiveSize() uintptr {
	return (max(uintptr(2*s.lastReceived), maxBatchReceive/4) + arenaAlign - 1) &^ (arenaAlign - 1)
}
