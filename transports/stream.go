package transports

import (
	"syscall"
	"unsafe"
)

// States of the reading half of a stream:
//
//	        WantRead is cleared       end of stream, an error
//	paused <--------------------- reading --------------------> ended
//	       --------------------->
//	        WantRead is set
//
// States of the writing half:
//
//	        C appends           all sent           WantShut is set,
//	idle --------> queued -------------------> idle ----------------> shut
//	               |    ^                                  queue is empty
//	  partial send |    | the poller reports writable
//	               v    |
//	               blocked          an error, in any state ----------> dead
//
// Ended, shut and dead are final: later requests of C for that half are ignored. A failed send
// (dead) also ends receiving in Go, although it is a state of the writing half: C gets the error
// and receives the remaining bytes itself. The connection ends when C deregisters it.
//
// The requests of C and the results of Go are in one record that both share.

// StreamIO mirrors gl_stream_io of pybridge/abi.h, which describes each field. The record is C
// memory (a test may use Go memory). C writes the first part while no turn runs; Go writes the
// second part during C's calls. Go does not store pointers in it.
type StreamIO struct {
	IOV      *Vector
	Owner    *int32
	Appended uint64
	Cap      uint32
	Tail     uint32
	Want     uint32
	Listed   uint32

	Head  uint32
	State uint32
	Sent  uint64
}

// Bits of StreamIO.Want.
const (
	WantRead               = 1 << iota // receive when readable
	WantShut                           // shut down the writing half when the queue is empty
	WantReceiveInC                     // C receives by itself
	WantReport                         // report sent bytes without delay
	WantReceiveInEagerTurn             // C receives by itself in eager turns (see sendPolicy in netloop)
)

// Bits of StreamIO.State.
const (
	StateBlocked  = 1 << iota // the kernel accepted only a part: wait for writable
	StateReadEnd              // Go does not receive any more
	StateShut                 // the writing half was shut down
	StateDead                 // a send failed: the queue will not be sent
	StatePipe                 // not a socket (a call returned ENOTSOCK): use read and writev
	StateWatchEnd             // readable means EOF; bytes stay unread
)

// maxSendCalls limits the system calls of one Flush, so that a reader that is as fast as the
// writer cannot delay the turn.
const maxSendCalls = 16

// maxSendBytes limits the bytes of one call and thereby the duration of one Flush. Otherwise a
// single send of hundreds of megabytes would last as long as its reader keeps reading.
const maxSendBytes = 4 << 20

// Stream moves the bytes of one connected socket or pipe end. It is embedded in a slot of its
// reactor and reused: Open initialises it for a new descriptor. No other method may be called
// after Discard.
type Stream struct {
	io *StreamIO
	fd int32
	// reported is the value of io.Sent at the last TakeUnreportedBytes.
	reported     uint64
	pipePressure pipePressure
}

// Open initialises the stream for a non-blocking descriptor with C's record, whose State it
// resets and which both sides use until Discard.
func (s *Stream) Open(fd int32, io *StreamIO) {
	io.State = 0
	*s = Stream{io: io, fd: fd, reported: io.Sent}
}

// Discard ends the use of the descriptor. From now on only C uses the record.
func (s *Stream) Discard() { *s = Stream{fd: -1} }

// IO returns the record, for the reactor that decodes C's submissions.
func (s *Stream) IO() *StreamIO { return s.io }

// LeaseValid reports whether the descriptor still belongs to its owner.
func (s *Stream) LeaseValid() bool { return leaseValid(s.fd, s.io.Owner) }

// WatchEnd makes readability mean the end of the stream and leaves bytes unread. The writing
// end of a pipe uses it to detect that the reader has closed its end.
func (s *Stream) WatchEnd() { s.io.State |= StateWatchEnd }

// WatchesEnd reports whether WatchEnd was called.
func (s *Stream) WatchesEnd() bool { return s.has(StateWatchEnd) }

// IsPipe reports whether a call has shown that the descriptor is not a socket.
func (s *Stream) IsPipe() bool { return s.has(StatePipe) }

// has reports whether one of these bits of StreamIO.State is set.
func (s *Stream) has(state uint32) bool { return s.io.State&state != 0 }

// wants reports whether one of these bits of StreamIO.Want is set.
func (s *Stream) wants(want uint32) bool { return s.io.Want&want != 0 }

// Interest returns the directions that must be polled.
func (s *Stream) Interest() Interest {
	var in Interest
	if s.Reading() {
		in = Readable
	}
	if s.HasPending() {
		in |= Writable
	}
	return in
}

// Reading reports whether Go should receive when the stream is readable. After a failed send, C
// receives the remaining bytes before it ends the stream.
func (s *Stream) Reading() bool { return s.wants(WantRead) && !s.has(StateReadEnd|StateDead) }

// ReceivesInC reports whether C receives by itself (see chooseReceivePath in netloop).
func (s *Stream) ReceivesInC() bool { return s.wants(WantReceiveInC) }

// ReceivesInEagerTurn reports whether C receives by itself in eager turns.
func (s *Stream) ReceivesInEagerTurn() bool { return s.wants(WantReceiveInEagerTurn) }

// WantsReport reports whether C needs to know without delay that bytes were sent.
func (s *Stream) WantsReport() bool { return s.wants(WantReport) }

// HasPending reports whether there are bytes to send and sending has not failed.
func (s *Stream) HasPending() bool { return s.io.Head < s.io.Tail && !s.has(StateDead) }

// Blocked reports whether sending must wait until the poller reports the stream as writable.
func (s *Stream) Blocked() bool { return s.has(StateBlocked) }

// FinishReading stops receiving permanently.
func (s *Stream) FinishReading() { s.io.State |= StateReadEnd }

// pending returns the vectors for one call: at most MaxVectors, with at most maxSendBytes in
// total unless the first is longer. It returns nil if there are none or sending has failed. The
// first vector may be partially sent.
func (s *Stream) pending() []Vector {
	if !s.HasPending() {
		return nil
	}
	all := unsafe.Slice(s.io.IOV, min(s.io.Tail, s.io.Cap))
	v := all[s.io.Head:min(int(s.io.Head)+MaxVectors, len(all))]
	size := uintptr(0)
	for i := range v {
		if size += v[i].Len; size > maxSendBytes {
			return v[:max(i, 1)]
		}
	}
	return v
}

// shutdownIfDrained shuts down the writing half, which C has requested, if the queue is empty. It
// makes no system call if the lease has ended.
func (s *Stream) shutdownIfDrained(c *Calls) {
	if s.has(StateShut|StateDead) || s.HasPending() {
		return
	}
	s.io.State |= StateShut
	if s.LeaseValid() {
		// An error means that the peer or the network ended the connection first. Receiving
		// reports that error. asyncio's write_eof ignores it too.
		_ = c.Shutdown(int(s.fd))
	}
}

// TakeUnreportedBytes returns the number of bytes sent since the last call, and counts them as
// reported.
func (s *Stream) TakeUnreportedBytes() int64 {
	n := s.UnreportedBytes()
	s.reported = s.io.Sent
	return n
}

// UnreportedBytes returns the result of TakeUnreportedBytes without resetting it.
func (s *Stream) UnreportedBytes() int64 { return int64(s.io.Sent - s.reported) }

// Flush sends until the queue is empty, the kernel accepts no more bytes, or maxSendCalls or
// maxSendBytes is reached; in the last two cases the stream is blocked until the poller reports
// space. With an empty queue it shuts down the writing half if requested. It adds the number of
// its calls to sends. An errno means that the writing half is dead; UnreportedBytes still
// includes the bytes that were sent before.
func (s *Stream) Flush(c *Calls, scratch *Scratch, sends *uint64) syscall.Errno {
	s.io.State &^= StateBlocked
	before := s.io.Sent
	v := s.pending()
	for round := 0; len(v) > 0; round++ {
		if round == maxSendCalls || s.io.Sent-before >= maxSendBytes {
			s.io.State |= StateBlocked
			break
		}
		*sends++
		n, errno := s.send(c, v, scratch)
		if again, errno := s.applySendResult(v, n, errno); errno != 0 {
			return errno
		} else if !again {
			break
		}
		v = s.pending()
	}
	if s.has(StatePipe) {
		s.enlargeIfBusy(c, int(s.io.Sent-before), s.Blocked())
	}
	if s.wants(WantShut) {
		s.shutdownIfDrained(c)
	}
	return 0
}

// applySendResult updates the state after a send of v. It returns true if the caller should send
// again immediately, as far as bytes remain: after a complete send, after a partial one to a
// pipe, and after the first ENOTSOCK, which makes the stream a pipe. It returns an errno if the
// writing half is dead.
func (s *Stream) applySendResult(v []Vector, n int, errno syscall.Errno) (again bool, fatal syscall.Errno) {
	if errno != 0 {
		switch errno {
		case syscall.ENOTSOCK:
			if !s.has(StatePipe) {
				s.io.State |= StatePipe
				return true, 0
			}
		case syscall.EAGAIN, syscall.EINTR:
			s.io.State |= StateBlocked
			return false, 0
		}
		s.FailWriting()
		return false, errno
	}
	if !s.consume(v, n) && !s.has(StatePipe) {
		// The kernel accepted a part, so another call would return EAGAIN. A pipe is different:
		// the write has just woken its reader, which may have made space.
		s.io.State |= StateBlocked
		return false, 0
	}
	return true, 0
}

// FailWriting marks the writing half as dead. Its queue is not sent any more.
func (s *Stream) FailWriting() { s.io.State = s.io.State&^StateBlocked | StateDead }

// send makes one system call for v: send for one vector, sendmsg for several, writev for a pipe.
// It returns the call's results, or EBADF if the lease has ended.
func (s *Stream) send(c *Calls, v []Vector, scratch *Scratch) (int, syscall.Errno) {
	fd := int(s.fd)
	switch {
	case !s.LeaseValid():
		return 0, syscall.EBADF
	case s.has(StatePipe):
		return c.Writev(fd, v)
	case len(v) == 1:
		return c.Send(fd, v[0].Base, min(v[0].Len, maxSendBytes))
	default:
		return c.SendVectors(fd, v, scratch)
	}
}

// consume removes n sent bytes from the queue and reports whether all of v was sent.
func (s *Stream) consume(v []Vector, n int) bool {
	s.io.Sent += uint64(n)
	left := uintptr(n)
	for i := range v {
		if left < v[i].Len {
			v[i].Base += left
			v[i].Len -= left
			s.io.Head += uint32(i)
			return false
		}
		left -= v[i].Len
	}
	s.io.Head += uint32(len(v))
	return true
}

// Receive receives up to size bytes to base and returns their number with the outcome; the errno
// belongs to Failed, which is EBADF if the lease has ended. After EOF and Failed, Go does not
// receive any more. With WatchEnd it returns EOF without a call.
func (s *Stream) Receive(c *Calls, base, size uintptr) (int, Outcome, syscall.Errno) {
	if s.has(StateWatchEnd) {
		s.FinishReading()
		return 0, EOF, 0
	}
	if !s.LeaseValid() {
		return s.receiveResult(0, syscall.EBADF)
	}
	var n int
	var errno syscall.Errno
	if !s.has(StatePipe) {
		n, errno = c.Recv(int(s.fd), base, size)
		if errno == syscall.ENOTSOCK {
			s.io.State |= StatePipe
		}
	}
	if s.has(StatePipe) {
		n, errno = c.Read(int(s.fd), base, size)
		s.enlargeIfBusy(c, n, n >= defaultPipeSize)
	}
	return s.receiveResult(n, errno)
}

// receiveResult converts the result of a recv or read to an outcome and updates the state. It
// returns the number of bytes, 0 unless the outcome is OK, and the errno of Failed.
func (s *Stream) receiveResult(n int, errno syscall.Errno) (int, Outcome, syscall.Errno) {
	switch {
	case errno == 0 && n > 0:
		return n, OK, 0
	case errno == 0:
		s.FinishReading()
		return 0, EOF, 0
	case errno == syscall.EAGAIN || errno == syscall.EINTR:
		return 0, WouldBlock, 0
	default:
		s.FinishReading()
		return 0, Failed, errno
	}
}
