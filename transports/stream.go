package transports

import (
	"syscall"
	"unsafe"
)

// The reading half of a stream:
//
//	        WantRead goes            end of stream, an error
//	paused <------------- reading ---------------------------> ended
//	       ------------->
//	        WantRead comes
//
// The writing half:
//
//	        C appends           all sent           WantShut is set,
//	idle --------> queued -------------------> idle ----------------> shut
//	               |    ^                                  nothing queued
//	  sent in part |    | the poller says writable
//	               v    |
//	               blocked          an error, in any state ----------> dead
//
// Ended, shut and dead are final: what C wants of that half later is not done. Only dead
// ends the reading half as well: C learns of the error, and receives the rest itself. A
// connection is over when C says so.
//
// What C wants and what has come of it stand in one record, which both share.

// StreamIO is gl_stream_io of pybridge/abi.h, where each field is described. It is C's
// memory (a test's may be Go's): C writes the first part while no turn is on, Go the
// second during its calls. Go stores no pointer in it.
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

// The bits of StreamIO.Want.
const (
	WantRead   = 1 << iota // receive when readable
	WantShut               // shut down the writing half once nothing is queued
	WantDirect             // C receives by itself
	WantReport             // somebody waits to hear that bytes have left
	WantFew                // C receives by itself where few streams are ready
)

// The bits of StreamIO.State.
const (
	StateBlocked  = 1 << iota // the kernel took less than all: wait for writable
	StateReadEnd              // no more will be received
	StateShut                 // the writing half was shut down
	StateDead                 // a send failed: what is queued will not be sent
	StatePipe                 // not a socket (ENOTSOCK told): read and writev
	StateWatchEnd             // what is to be read is the end, and stays unread
)

// maxRounds bounds the calls that one Flush makes, so that a reader which
// keeps pace with us cannot hold up the turn.
const maxRounds = 16

// maxSend bounds the bytes of a call, and by them the calls of one Flush: a single send of
// hundreds of megabytes goes on as long as its reader keeps pace.
const maxSend = 4 << 20

// Stream moves the bytes of one connected socket or pipe end. It is embedded in
// a slot of its reactor and reused: Open begins a new life, and nothing else may be
// called after Discard.
type Stream struct {
	io *StreamIO
	fd int32
	// reported is how much of io.Sent was taken by TakeProgress.
	reported uint64
	busy     busy
}

// Open begins the life of a stream on a non-blocking descriptor.
func (s *Stream) Open(fd int32, io *StreamIO) {
	io.State = 0
	*s = Stream{io: io, fd: fd, reported: io.Sent}
}

// Discard ends that life. The record is C's alone again.
func (s *Stream) Discard() { *s = Stream{fd: -1} }

// IO returns the record, for the reactor that decodes C's wishes.
func (s *Stream) IO() *StreamIO { return s.io }

// Held tells whether the descriptor is still its owner's.
func (s *Stream) Held() bool { return held(s.fd, s.io.Owner) }

// WatchEnd makes readiness to read mean the end of the stream, and leaves unread
// what there may be: so the writing end of a pipe learns that the reader has gone.
func (s *Stream) WatchEnd() { s.io.State |= StateWatchEnd }

// WatchesEnd tells whether WatchEnd was called.
func (s *Stream) WatchesEnd() bool { return s.has(StateWatchEnd) }

// IsPipe tells whether a call has shown that this is no socket.
func (s *Stream) IsPipe() bool { return s.has(StatePipe) }

func (s *Stream) has(state uint32) bool  { return s.io.State&state != 0 }
func (s *Stream) wants(want uint32) bool { return s.io.Want&want != 0 }

// Interest is what the poller should be asked for.
func (s *Stream) Interest() Interest {
	var in Interest
	if s.Reading() {
		in = Readable
	}
	if s.Queued() {
		in |= Writable
	}
	return in
}

// Reading tells whether bytes are to be received when there are any. Once a send has
// failed C receives what is left, before it ends the stream.
func (s *Stream) Reading() bool { return s.wants(WantRead) && !s.has(StateReadEnd|StateDead) }

// Direct tells whether C receives by itself.
func (s *Stream) Direct() bool { return s.wants(WantDirect) }

// DirectOfFew tells whether C receives by itself where few streams are ready.
func (s *Stream) DirectOfFew() bool { return s.wants(WantFew) }

// Awaited tells whether somebody waits to hear that bytes have left.
func (s *Stream) Awaited() bool { return s.wants(WantReport) }

// Queued tells whether there is something to send.
func (s *Stream) Queued() bool { return s.io.Head < s.io.Tail && !s.has(StateDead) }

// Blocked tells whether sending waits for the poller.
func (s *Stream) Blocked() bool { return s.has(StateBlocked) }

// FinishReading stops receiving for good.
func (s *Stream) FinishReading() { s.io.State |= StateReadEnd }

// queue returns the pieces to send, at most as many as one call takes. The first may
// be sent in part.
func (s *Stream) queue() []Vector {
	if !s.Queued() {
		return nil
	}
	all := unsafe.Slice(s.io.IOV, min(s.io.Tail, s.io.Cap))
	return all[s.io.Head:min(int(s.io.Head)+MaxVectors, len(all))]
}

// share returns those of these pieces, at least one, that make up no more than maxSend.
func share(v []Vector) []Vector {
	size := uintptr(0)
	for i := range v {
		if size += v[i].Len; size > maxSend {
			return v[:max(i, 1)]
		}
	}
	return v
}

// shutIfDrained shuts down the writing half if that is wanted and nothing is queued.
func (s *Stream) shutIfDrained(c *Calls) {
	if !s.wants(WantShut) || s.has(StateShut|StateDead) || s.Queued() {
		return
	}
	s.io.State |= StateShut
	if s.Held() {
		// An error means that the peer or the network was first, and then
		// reading reports it. asyncio's write_eof lets it pass too.
		_ = c.Shutdown(int(s.fd))
	}
}

// TakeProgress returns the bytes that have left the queue since the last call.
func (s *Stream) TakeProgress() int64 {
	n := s.Progress()
	s.reported = s.io.Sent
	return n
}

// Progress returns what TakeProgress would.
func (s *Stream) Progress() int64 { return int64(s.io.Sent - s.reported) }

// Flush sends until the queue is empty or the kernel takes no more, and then shuts down
// where that is wanted; it counts its calls in sends. An errno means that the writing
// half is dead; what had left before is still in Progress.
func (s *Stream) Flush(c *Calls, scratch *Scratch, sends *uint64) syscall.Errno {
	s.io.State &^= StateBlocked
	before := s.io.Sent
	v := s.queue()
	for round := 0; len(v) > 0; round++ {
		if round == maxRounds || s.io.Sent-before >= maxSend {
			s.io.State |= StateBlocked
			break
		}
		*sends++
		v = share(v)
		n, errno := s.send(c, v, scratch)
		if again, errno := s.account(v, n, errno); errno != 0 {
			return errno
		} else if !again {
			break
		}
		v = s.queue()
	}
	s.noteMoved(c, int(s.io.Sent-before), s.Blocked())
	s.shutIfDrained(c)
	return 0
}

// account notes what a send of v came to, and tells whether to send again at once.
// The errno is Flush's.
func (s *Stream) account(v []Vector, n int, errno syscall.Errno) (again bool, fatal syscall.Errno) {
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
	if !s.advance(v, n) && !s.has(StatePipe) {
		// The kernel took a part: asking again would yield EAGAIN. A pipe's
		// reader, though, was woken up only now, and may have made room.
		s.io.State |= StateBlocked
		return false, 0
	}
	return true, 0
}

// Sendable returns the pieces of the next send, where that is one to a socket which takes
// bytes as far as is known; otherwise none.
func (s *Stream) Sendable() []Vector {
	if s.has(StateBlocked|StatePipe) || !s.Held() {
		return nil
	}
	return s.queue()
}

// Sent notes what a send of Sendable came to, which somebody else made. The errno
// is as Flush's; what is left is for Flush.
func (s *Stream) Sent(c *Calls, n int, errno syscall.Errno) syscall.Errno {
	_, errno = s.account(s.queue(), n, errno)
	if errno == 0 {
		s.shutIfDrained(c)
	}
	return errno
}

// FailWriting makes the writing half dead: its queue is not looked at any more.
func (s *Stream) FailWriting() { s.io.State = s.io.State&^StateBlocked | StateDead }

func (s *Stream) send(c *Calls, v []Vector, scratch *Scratch) (int, syscall.Errno) {
	fd := int(s.fd)
	switch {
	case !s.Held():
		return 0, syscall.EBADF
	case s.has(StatePipe):
		return c.Writev(fd, v)
	case len(v) == 1:
		return c.Send(fd, v[0].Base, min(v[0].Len, maxSend))
	default:
		return c.SendVectors(fd, v, scratch)
	}
}

// advance takes n sent bytes off the queue, and tells whether they were all of v.
func (s *Stream) advance(v []Vector, n int) bool {
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

// Receive receives up to size bytes at base. After End and Failed reading has
// finished.
func (s *Stream) Receive(c *Calls, base, size uintptr) (int, Outcome, syscall.Errno) {
	if s.has(StateWatchEnd) {
		s.FinishReading()
		return 0, End, 0
	}
	if !s.Held() {
		return s.Received(0, syscall.EBADF)
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
		s.noteMoved(c, n, n >= pipeUsual)
	}
	return s.Received(n, errno)
}

// ReceivesPlainly tells whether a recv is what Receive would make.
func (s *Stream) ReceivesPlainly() bool {
	return s.Reading() && !s.has(StateWatchEnd|StatePipe) && s.Held()
}

// Received notes what a recv came to, which Receive or somebody else made.
func (s *Stream) Received(n int, errno syscall.Errno) (int, Outcome, syscall.Errno) {
	switch {
	case errno == 0 && n > 0:
		return n, Got, 0
	case errno == 0:
		s.FinishReading()
		return 0, End, 0
	case errno == syscall.EAGAIN || errno == syscall.EINTR:
		return 0, Nothing, 0
	default:
		s.FinishReading()
		return 0, Failed, errno
	}
}
