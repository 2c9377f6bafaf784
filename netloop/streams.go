package netloop

import (
	"syscall"

	"github.com/goloop/goloop/transports"
)

// StreamOpen registers a connected, non-blocking descriptor with C's record, which both sides
// share until Deregister, and returns the id and the generation of the registration. With
// OpenWatchEnd the stream never receives: the first readability is reported as the end of the
// stream. After an error (EBADF for a negative number, or the poller's errno) there is no
// registration, and only C uses the record.
func (r *Reactor) StreamOpen(fd int32, io *StreamIO, flags uint32) (id, gen uint32, err error) {
	if fd < 0 {
		return 0, 0, errnoError("stream_open", syscall.EBADF)
	}
	id, s := r.registry.open(kindStream, fd)
	s.stream.Open(fd, io)
	if flags&OpenWatchEnd != 0 {
		s.stream.WatchEnd()
	}
	// Pending writes are flushed after C's first submission.
	var want interest
	if s.stream.Reading() {
		want = readable
	}
	if errno := r.setInterest(id, s, want); errno != 0 {
		s.stream.Discard()
		r.registry.release(id, s)
		return 0, 0, errnoError("epoll_ctl", errno)
	}
	return id, s.gen, nil
}

// Deregister ends a registration of any kind: it removes the descriptor from the poller, drops
// all unreported events, and lets listeners that back off try again. The owner closes the
// descriptor, or has already closed it. Afterwards only C uses a stream's record. ENOENT if the
// registration has already ended.
func (r *Reactor) Deregister(id, gen uint32) error {
	s := r.registry.find(id, gen)
	switch {
	case s == nil:
		return errnoError("deregister", syscall.ENOENT)
	case s.kind == kindStream:
		defer s.stream.Discard() // deferred, because closeSlot needs the lease
	case s.kind == kindDatagram:
		defer s.datagram.Discard()
	}
	r.closeSlot(id, s)
	return nil
}

// closeSlot removes a registration from the poller and frees its slot. It also counts a close,
// because the owner will close the descriptor: backed-off listeners of all reactors try again.
func (r *Reactor) closeSlot(id uint32, s *slot) {
	r.setInterest(id, s, 0)
	r.registry.release(id, s)
	r.lastCloseTurn = r.shared.Metrics.Turns
	r.calls.closes.countClose(r)
}

// FlushStream decodes all submissions and sends the pending writes of all streams in the order in
// which the streams were written to: a peer must not get a message before messages that were
// written earlier to other peers. It tries this stream also if the kernel accepted only a part of
// an earlier send. The sent bytes of this stream count as reported. FlushStream returns an error
// of this stream, which the next turn reports, too, unless C has ended the stream; ENOENT if the
// registration has ended.
func (r *Reactor) FlushStream(id, gen uint32) error {
	r.applySubmissions()
	s := r.registry.findKind(id, gen, kindStream)
	if s == nil {
		return errnoError("flush_stream", syscall.ENOENT)
	}
	tried := s.inDirty && !s.stream.Blocked()
	r.flushDirty()
	if !tried {
		r.flushSlot(id, s, true)
	}
	s.stream.TakeUnreportedBytes()
	if s.writeError != 0 {
		return errnoError("flush_stream", syscall.Errno(s.writeError))
	}
	return nil
}

// Flush decodes all submissions and sends the pending writes of all streams that are not waiting
// for the poller to report space. The next turn reports the sent bytes and the errors.
func (r *Reactor) Flush() {
	r.applySubmissions()
	r.flushDirty()
}

// FlushFromMonitor is Flush for a thread other than the loop's thread. A thread may have a
// descriptor table of its own, in which the numbers refer to other files. In such a thread
// FlushFromMonitor does nothing, and the loop's next turn sends.
func (r *Reactor) FlushFromMonitor() {
	if r.poller.isValidInThread() {
		r.Flush()
	}
}

// flushDirty sends the writes that were queued since the last flush, except for streams that wait
// for the poller to report space. It updates the streams' interests. Results are queued for a
// report.
func (r *Reactor) flushDirty() {
	for _, t := range r.dirty {
		if s := r.registry.find(t.id(), t.gen()); s != nil {
			s.inDirty = false
			r.flushSlot(t.id(), s, false)
		}
	}
	r.dirty = r.dirty[:0]
}

// flushSlot sends a stream's pending writes, queues a report, and updates its interest. Sent bytes
// are reported if C waits for that (WantReport), or if the kernel had refused bytes of the stream
// before: else C looks at all streams that it wrote to after the turn. An errno of the send is
// stored in writeError, and reported. A stream of which the kernel refused bytes before is only
// tried again if the poller reported space, or C requires an attempt (tryBlocked).
func (r *Reactor) flushSlot(id uint32, s *slot, tryBlocked bool) {
	st := &s.stream
	reports := st.Blocked() || st.WantsReport()
	if tryBlocked || !st.Blocked() {
		before := st.IO().Sent
		errno := st.Flush(&r.calls.Calls, &r.scratch, &r.shared.Sends)
		r.countSent(st.IO().Sent - before)
		if errno != 0 {
			s.writeError = errno32(errno)
		}
	}
	if !reports {
		st.TakeUnreportedBytes()
	}
	if s.writeError != 0 || st.UnreportedBytes() > 0 {
		r.queueReport(id, s)
	}
	r.updateInterest(id, s)
}

// updateInterest updates the poller's registration of a stream. A stream that neither receives
// nor waits for space is removed from the poller, because a hang-up cannot be masked and would be
// reported in each poll. If the poller refuses, the affected directions of the stream end, and
// the poller's errno is queued for a report.
func (r *Reactor) updateInterest(id uint32, s *slot) {
	want := s.pollInterest(interest(s.stream.Interest()))
	if want == s.registered {
		return
	}
	errno := r.setInterest(id, s, want)
	if errno == 0 {
		return
	}
	// The poller will not report the stream any more, so C must get an error.
	if want&readable != 0 {
		s.stream.FinishReading()
		s.readError = errno32(errno)
	}
	if want&writable != 0 {
		s.stream.FailWriting()
		s.writeError = errno32(errno)
	}
	r.queueReport(id, s)
}

// queueReport adds a stream to the list of pending reports. A turn does not block while there are
// some.
func (r *Reactor) queueReport(id uint32, s *slot) {
	if !s.inReports {
		s.inReports = true
		r.pendingReports.push(makeToken(id, s.gen))
	}
}

// reportPending makes the pending reports in their order, while there is space for two
// completions. The others stay in the list. The caller has limited the space to half of the
// completion queue.
func (r *Reactor) reportPending() {
	for n := r.pendingReports.n; n > 0 && r.out.completionSpace() >= 2; n-- {
		t := r.pendingReports.pop()
		if s := r.registry.find(t.id(), t.gen()); s != nil {
			s.inReports = false
			r.reportStream(t, s)
		}
	}
}

// reportStream reports sent bytes and errors of a stream, with at most two completions, or does
// nothing if there are none. There must be space.
func (r *Reactor) reportStream(t token, s *slot) {
	n := s.stream.TakeUnreportedBytes()
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

// serveStream serves a ready stream: it sends once, reports the sent bytes, and then receives
// once (a second time after a large receive from a pipe), or reports READY, so that C receives. It
// returns false, and the stream stays ready, if there is no buffer to receive into in this turn.
func (r *Reactor) serveStream(t token, s *slot) bool {
	st := &s.stream
	reads := s.ready&readable != 0 && st.Reading()
	// The end of a stream with WatchEnd is reported before another send is tried.
	if s.ready&writable != 0 && st.HasPending() && !(reads && st.WatchesEnd()) {
		if reads && s.ready&broken != 0 {
			return r.serveBroken(t, s)
		}
		r.flushSlot(t.id(), s, true)
		s.ready &^= writable
	}
	// Sent bytes are reported before received bytes, and above all before the end or an error,
	// so that C knows which bytes were sent when the stream broke.
	r.reportStream(t, s)
	path := r.chooseReceivePath(s, whenReady)
	switch path {
	case receiveNone:
		return true
	case receiveInC:
		r.out.put(Completion{Kind: CmpReady, ID: t.id(), Gen: t.gen(), Res: int32(readable)})
		return true
	}
	n, done := r.receive(t, s, path)
	// A pipe has a small buffer, and its writer wakes up as soon as it is read. Bytes that the
	// writer has written in the meantime are received too, which saves both sides a sleep. This
	// is done only once, because the first of many buffers would be out of the processor's
	// cache when Python reads it.
	if path == receiveToLentBuffer && n >= largeReceive && r.out.largeBuffer() != 0 && r.out.completionSpace() >= maxPerStep {
		r.receive(t, s, path)
		s.receivesLarge = true
	}
	return done
}

// serveBroken serves a stream with pending writes after its peer is gone or its socket has an
// error. It receives before it sends, in Go, as asyncio does, because the send fails and takes
// the socket's error with it. C receives the remaining bytes before it ends the stream.
// serveBroken returns false, and the stream stays ready, if there is no buffer to receive into in
// this turn.
func (r *Reactor) serveBroken(t token, s *slot) bool {
	if _, done := r.receive(t, s, r.chooseReceivePath(s, beforeDeadSend)); !done {
		return false
	}
	r.flushSlot(t.id(), s, true)
	s.ready &^= writable
	r.reportStream(t, s)
	return true
}

// receive receives once for a stream and reports the bytes, the end of the stream, or an error; for
// EAGAIN nothing. It records whether much was received for the choice of the next receive path, and
// updates the interest after the end or an error. It returns the number of received bytes, 0 also
// after the end, an error or EAGAIN. The second result is false if it made no call because this
// turn has no buffer left.
func (r *Reactor) receive(t token, s *slot, path receivePath) (int, bool) {
	var base, space uintptr
	var large int32 // number of the large buffer, 0 for the arena
	if path == receiveToLentBuffer {
		base, space = r.out.largeBuffer(), r.out.largeSize
		large = int32(r.out.largeNext) + 1
	} else {
		if space = r.out.receiveSpace(); space == 0 {
			return 0, false
		}
		base = uintptr(r.out.arenaNext())
	}
	r.shared.Recvs++
	n, outcome, errno := s.stream.Receive(&r.calls.Calls, base, space)
	switch outcome {
	case transports.OK:
		if large != 0 {
			r.out.largeNext++
		} else {
			r.out.commitArena(uintptr(n))
		}
		r.countReceived(n)
		r.out.put(Completion{Kind: CmpData, ID: t.id(), Gen: t.gen(), Res: large, Ptr: base, Arg: int64(n)})
		s.receivesLarge = n >= largeReceive
	case transports.EOF:
		r.out.put(Completion{Kind: CmpEOF, ID: t.id(), Gen: t.gen()})
		r.updateInterest(t.id(), s)
	case transports.Failed:
		r.out.put(Completion{Kind: CmpReadError, ID: t.id(), Gen: t.gen(), Res: int32(errno)})
		r.updateInterest(t.id(), s)
	}
	return n, true
}
