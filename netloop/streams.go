package netloop

import (
	"syscall"

	"github.com/goloop/goloop/transports"
)

// StreamOpen registers a connected, non-blocking descriptor under the record that C
// has for it, which is shared until Forget. With OpenWatchEnd nothing is ever
// received: the first readiness to read is reported as the end.
func (r *Reactor) StreamOpen(fd int32, io *StreamIO, flags uint32) (id, gen uint32, err error) {
	if fd < 0 {
		return 0, 0, failed("stream_open", syscall.EBADF)
	}
	id, s := r.registry.open(kindStream, fd)
	s.stream.Open(fd, io)
	if flags&OpenWatchEnd != 0 {
		s.stream.WatchEnd()
	}
	// What is queued already comes with C's first submission.
	var want interest
	if s.stream.Reading() {
		want = readable
	}
	if errno := r.setHeld(id, s, want); errno != 0 {
		s.stream.Discard()
		r.registry.release(id, s)
		return 0, 0, failed("epoll_ctl", errno)
	}
	return id, s.gen, nil
}

// Forget ends a registration of any kind: it leaves the poller, and nothing of it is reported any more.
// Its descriptor, which may be closed already, is its owner's, and a stream's record is C's alone.
func (r *Reactor) Forget(id, gen uint32) error {
	s := r.registry.find(id, gen)
	switch {
	case s == nil:
		return failed("forget", syscall.ENOENT)
	case s.kind == kindStream:
		defer s.stream.Discard() // not before: the poller is left by the lease
	case s.kind == kindDatagram:
		defer s.datagram.Discard()
	}
	r.closeSlot(id, s)
	return nil
}

// closeSlot takes a registration out of the poller and frees it.
func (r *Reactor) closeSlot(id uint32, s *slot) {
	r.setHeld(id, s, 0)
	r.unlist(s)
	r.registry.release(id, s)
	r.closedAt = r.shared.Metrics.Turns
	r.calls.closes.note(r)
}

// FlushStream decodes all submissions and sends what every stream has queued, in the order
// in which they were written to: no peer gets a message before those that were written
// earlier to others. What has left this stream's queue is reported hereby. An error is
// returned; the next turn reports it, too, to whoever has not ended the stream for it.
func (r *Reactor) FlushStream(id, gen uint32) error {
	r.decode()
	s := r.registry.findKind(id, gen, kindStream)
	if s == nil {
		return failed("flush_stream", syscall.ENOENT)
	}
	tried := s.dirty && !s.stream.Blocked()
	r.flushDirty()
	if !tried {
		r.flushSlot(id, s, true)
	}
	s.stream.TakeUnreported()
	if s.writeError != 0 {
		return failed("flush_stream", syscall.Errno(s.writeError))
	}
	if s.readError == 0 {
		r.unlist(s)
	}
	return nil
}

// Flush decodes all submissions and sends what every stream has queued.
func (r *Reactor) Flush() {
	r.decode()
	r.flushDirty()
}

// FlushLate is Flush for another thread than the loop's. Where that thread has a table of descriptors of
// its own, the same numbers may name other files there: nothing is sent, and the loop's next turn does it.
func (r *Reactor) FlushLate() {
	if r.poller.isSeenHere() {
		r.Flush()
	}
}

// flushDirty sends what was queued since the last flush, and adjusts what the
// poller is asked for.
func (r *Reactor) flushDirty() {
	if len(r.dirty) >= ringLeast {
		r.sendBatches()
	}
	for _, t := range r.dirty {
		if s := r.registry.find(t.id(), t.gen()); s != nil {
			s.dirty = false
			// A blocked stream waits for the poller: to try again is a call wasted.
			r.flushSlot(t.id(), s, false)
		}
	}
	r.dirty = r.dirty[:0]
}

// flushSlot sends what a stream has queued, unless it is blocked and not forced, and
// brings the poller in step with what C wants.
func (r *Reactor) flushSlot(id uint32, s *slot, force bool) {
	st := &s.stream
	if force || !st.Blocked() {
		before := st.IO().Sent
		errno := st.Flush(&r.calls.Calls, &r.scratch, &r.shared.Sends)
		r.countSent(st.IO().Sent - before)
		if errno != 0 {
			s.writeError = errno32(errno)
		}
	}
	if s.writeError != 0 || st.Unreported() > 0 {
		r.list(id, s)
	}
	r.adjust(id, s)
}

// adjust asks the poller for what the stream is interested in. A stream that
// neither reads nor waits to write leaves the poller altogether: a hang-up would
// be told again and again, and cannot be masked.
func (r *Reactor) adjust(id uint32, s *slot) {
	want := s.polled(interest(s.stream.Interest()))
	if want == s.held {
		return
	}
	errno := r.setHeld(id, s, want)
	if errno == 0 {
		return
	}
	// The stream is deaf now; whoever waits for it must hear of that.
	if want&readable != 0 {
		s.stream.FinishReading()
		s.readError = errno32(errno)
	}
	if want&writable != 0 {
		s.stream.FailWriting()
		s.writeError = errno32(errno)
	}
	r.list(id, s)
}

// list puts a stream on the list of reports to be made. A report that somebody
// waits for is urgent: no turn blocks before it was made.
func (r *Reactor) list(id uint32, s *slot) {
	if !s.reporting {
		s.reporting = true
		r.reports.push(makeToken(id, s.gen))
	}
	if !s.urgent && (s.stream.WantsReport() || s.writeError != 0 || s.readError != 0) {
		s.urgent = true
		r.urgent++
	}
}

// unlist makes a stream's place on that list void.
func (r *Reactor) unlist(s *slot) {
	if s.urgent {
		s.urgent = false
		r.urgent--
	}
}

// reportAll makes the reports that are listed, up to half of the queue's room.
func (r *Reactor) reportAll() {
	for n := r.reports.n; n > 0 && r.out.room() >= 2; n-- {
		t := r.reports.pop()
		if s := r.registry.find(t.id(), t.gen()); s != nil {
			s.reporting = false
			r.report(t, s)
		}
	}
}

// report tells what a stream has to tell: at most two completions.
func (r *Reactor) report(t token, s *slot) {
	r.unlist(s)
	n := s.stream.TakeUnreported()
	switch {
	case s.writeError != 0:
		r.out.put(Completion{Kind: CmpWriteError, ID: t.id(), Gen: t.gen(),
			Res: int32(s.writeError), Arg: n})
		s.writeError = 0
	case n > 0:
		r.out.put(Completion{Kind: CmpWrote, ID: t.id(), Gen: t.gen(), Arg: n})
	}
	if s.readError != 0 {
		r.out.put(Completion{Kind: CmpReadError, ID: t.id(), Gen: t.gen(),
			Res: int32(s.readError)})
		s.readError = 0
	}
}

// serveStream sends and receives once for a stream that is ready. It returns
// false, and leaves the stream ready, where the arena is too full to receive.
func (r *Reactor) serveStream(t token, s *slot) bool {
	st := &s.stream
	reads := s.ready&readable != 0 && st.Reading()
	// An end that is watched goes before an attempt to write past it.
	if s.ready&writable != 0 && st.HasPending() && !(reads && st.WatchesEnd()) {
		if reads && s.ready&broken != 0 {
			return r.serveBroken(t, s)
		}
		r.flushSlot(t.id(), s, true)
		s.ready &^= writable
	}
	// Progress goes before what is received, an end or an error above all: C then
	// knows which bytes had left when the stream broke.
	r.report(t, s)
	if s.ready&readable == 0 || !st.Reading() {
		return true
	}
	if st.ReceivesInC() || r.few && st.ReceivesInCIfFew() {
		r.out.put(Completion{Kind: CmpReady, ID: t.id(), Gen: t.gen(), Res: int32(readable)})
		return true
	}
	large := s.large
	n, done := r.receive(t, s)
	// A pipe holds little, and its writer wakes up as soon as it is read: what comes
	// meanwhile is taken too, which spares both sides a sleep. One time, and if there is a
	// buffer that needs no copy: of many the first would have left the processor's cache
	// when Python looks at it.
	if large && st.IsPipe() && n >= largeReceive && r.out.largeBuffer() != 0 && r.out.room() >= stepRoom {
		r.receive(t, s)
		s.large = true
	}
	return done
}

// serveBroken serves a stream whose peer is gone, or whose socket has an error, while bytes
// are queued. It receives first, itself, as asyncio does: the send fails, and takes the
// socket's error with it. Of what one receive leaves, C takes the rest before it ends the stream.
func (r *Reactor) serveBroken(t token, s *slot) bool {
	if _, done := r.receive(t, s); !done {
		return false
	}
	r.flushSlot(t.id(), s, true)
	s.ready &^= writable
	r.report(t, s)
	return true
}

// receive receives once for a stream. It returns how many bytes came, and false where
// the arena is too full to receive.
func (r *Reactor) receive(t token, s *slot) (int, bool) {
	st := &s.stream
	var base, room uintptr
	var large int32 // of the completion: which buffer, 0 for the arena
	if s.large {
		base, room = r.out.largeBuffer(), r.out.largeSize
	}
	if base != 0 {
		large = int32(r.out.largeNext) + 1
	} else {
		if s.large && r.out.largeNext > 0 {
			return 0, false // its turn comes with the next buffers: soon, and without a copy
		}
		if room = r.out.receiveRoom(); room == 0 {
			return 0, false
		}
		base = uintptr(r.out.arenaNext())
	}
	r.shared.Recvs++
	n, outcome, errno := st.Receive(&r.calls.Calls, base, room)
	if outcome == transports.OK {
		if large != 0 {
			r.out.largeNext++
		} else {
			r.out.use(uintptr(n))
		}
	}
	r.tell(t, s, base, large, n, outcome, errno)
	return n, true
}

// tell makes the completion of a receive. The bytes are at base: in the large buffer
// of that number, or for 0 in the arena.
func (r *Reactor) tell(t token, s *slot, base uintptr, large int32, n int,
	outcome transports.Outcome, errno syscall.Errno) {
	switch outcome {
	case transports.OK:
		r.countReceived(n)
		r.out.put(Completion{Kind: CmpData, ID: t.id(), Gen: t.gen(), Res: large, Ptr: base, Arg: int64(n)})
		s.large = n >= largeReceive
		s.lately = uint32(n)
	case transports.EOF:
		r.out.put(Completion{Kind: CmpEOF, ID: t.id(), Gen: t.gen()})
		r.adjust(t.id(), s)
	case transports.Failed:
		r.out.put(Completion{Kind: CmpReadError, ID: t.id(), Gen: t.gen(), Res: int32(errno)})
		r.adjust(t.id(), s)
	}
}
