package transports

import "syscall"

// The reading half of a stream:
//
//	        PauseReading             end of stream, an error
//	paused <------------- reading ---------------------------> finished
//	       ------------->
//	        ResumeReading
//
// The writing half:
//
//	        Push                all sent           CloseWriting was called,
//	idle --------> queued -------------------> idle ----------------> shut
//	               |    ^                                  nothing queued
//	  sent in part |    | the poller says writable
//	               v    |
//	               blocked          an error, in any state ----------> dead
//
// Finished, shut and dead are final: later calls for that half do nothing. The
// halves don't know of each other; a connection is over when its owner says so.
//
// The flags below are these states, in one word.
const (
	streamReading   = 1 << iota // receive when readable
	streamFinished              // no more will be received
	streamBlocked               // the kernel took less than all: wait for writable
	streamShutAsked             // shut down the writing half once nothing is queued
	streamShut                  // that was done
	streamDead                  // a send failed: the queue was dropped
	streamPipe                  // not a socket (ENOTSOCK told): read and writev
	streamWatchEnd              // what is to be read is the end, and stays unread
)

const (
	// maxRounds bounds the calls that one Flush makes, so that a reader which
	// keeps pace with us cannot hold up the turn.
	maxRounds = 16
	// keptQueue is the length up to which the memory of a queue that has become
	// empty is kept for the next writes.
	keptQueue = 256
)

// Stream moves the bytes of one connected socket or pipe end. It is embedded in
// a slot of its reactor and reused: Open begins a new life.
type Stream struct {
	lease Lease
	state uint8

	// queue[head:] are the pieces to send; the first may be sent in part.
	queue []Vector
	head  int
	// pending is their bytes, progress those that have left the queue since
	// TakeProgress.
	pending  int64
	progress int64
}

// Open begins the life of a stream on a non-blocking descriptor.
func (s *Stream) Open(l Lease, reading bool) {
	s.drop()
	s.lease, s.state, s.progress = l, 0, 0
	if reading {
		s.state = streamReading
	}
}

// SetOwner says where the descriptor's owner keeps its number from now on.
func (s *Stream) SetOwner(owner *int32) { s.lease.owner = owner }

// Held tells whether the descriptor is still its owner's.
func (s *Stream) Held() bool { return s.lease.Held() }

// WatchEnd makes readiness to read mean the end of the stream, and leaves unread
// what there may be: so the writing end of a pipe learns that the reader has gone.
func (s *Stream) WatchEnd() { s.state |= streamWatchEnd }

// WatchesEnd tells whether WatchEnd was called.
func (s *Stream) WatchesEnd() bool { return s.has(streamWatchEnd) }

// IsPipe tells whether a call has shown that this is no socket.
func (s *Stream) IsPipe() bool { return s.has(streamPipe) }

// Discard ends that life: what is queued is forgotten, and so is where it was.
func (s *Stream) Discard() {
	s.drop()
	s.lease, s.state, s.progress = Lease{fd: -1}, streamFinished|streamDead, 0
}

func (s *Stream) drop() {
	if cap(s.queue) > keptQueue {
		s.queue = nil
	}
	s.queue, s.head, s.pending = s.queue[:0], 0, 0
	s.state &^= streamBlocked
}

func (s *Stream) has(flag uint8) bool { return s.state&flag != 0 }

// Interest is what the poller should be asked for.
func (s *Stream) Interest() Interest {
	var in Interest
	if s.Reading() {
		in = Readable
	}
	if s.pending > 0 {
		in |= Writable
	}
	return in
}

// Reading tells whether bytes are to be received when there are any.
func (s *Stream) Reading() bool {
	return s.state&(streamReading|streamFinished) == streamReading
}

// Pending returns the bytes in the write queue.
func (s *Stream) Pending() int64 { return s.pending }

// Blocked tells whether sending waits for the poller.
func (s *Stream) Blocked() bool { return s.has(streamBlocked) }

// PauseReading stops receiving until ResumeReading.
func (s *Stream) PauseReading() { s.state &^= streamReading }

// ResumeReading receives (again), unless reading has finished.
func (s *Stream) ResumeReading() { s.state |= streamReading }

// FinishReading stops receiving for good.
func (s *Stream) FinishReading() { s.state |= streamFinished }

// Push appends a piece to the write queue. The memory must stay as it is until
// the bytes have left the queue. A dead or shut stream takes nothing.
func (s *Stream) Push(base, size uintptr) {
	if size == 0 || s.has(streamDead|streamShutAsked) {
		return
	}
	if len(s.queue) == cap(s.queue) && s.head > len(s.queue)/2 {
		// Room is at the front: move there before growing.
		n := copy(s.queue, s.queue[s.head:])
		s.queue, s.head = s.queue[:n], 0
	}
	s.queue = append(s.queue, Vector{base, size})
	s.pending += int64(size)
}

// CloseWriting shuts down the writing half once the queue is empty: at once
// where it is, else at the end of the Flush that empties it.
func (s *Stream) CloseWriting(c *Calls) {
	s.state |= streamShutAsked
	s.shutIfDrained(c)
}

func (s *Stream) shutIfDrained(c *Calls) {
	if s.pending == 0 && s.state&(streamShutAsked|streamShut|streamDead) == streamShutAsked {
		s.state |= streamShut
		if !s.lease.Held() {
			return
		}
		// An error means that the peer or the network was first, and then
		// reading reports it. asyncio's write_eof lets it pass too.
		_ = c.Shutdown(int(s.lease.fd))
	}
}

// TakeProgress returns the bytes that have left the queue since the last call.
func (s *Stream) TakeProgress() int64 {
	n := s.progress
	s.progress = 0
	return n
}

// Progress returns what TakeProgress would.
func (s *Stream) Progress() int64 { return s.progress }

// Flush sends until the queue is empty or the kernel takes no more, and counts
// its calls in sends. An errno means that the writing half is dead and its queue
// dropped; what had left before is still in Progress.
func (s *Stream) Flush(c *Calls, scratch *Scratch, sends *uint64) syscall.Errno {
	s.state &^= streamBlocked
	for round := 0; s.pending > 0; round++ {
		if round == maxRounds {
			s.state |= streamBlocked
			break
		}
		v := s.queue[s.head:]
		if len(v) > MaxVectors {
			v = v[:MaxVectors]
		}
		*sends++
		n, errno := s.send(c, v, scratch)
		if again, errno := s.account(v, n, errno); !again {
			return errno
		}
	}
	s.shutIfDrained(c)
	return 0
}

// account notes what a send of v came to, and tells whether to send again at once.
// The errno is Flush's.
func (s *Stream) account(v []Vector, n int, errno syscall.Errno) (again bool, fatal syscall.Errno) {
	if errno != 0 {
		switch errno {
		case syscall.ENOTSOCK:
			if !s.has(streamPipe) {
				s.state |= streamPipe
				return true, 0
			}
		case syscall.EAGAIN, syscall.EINTR:
			s.state |= streamBlocked
			return false, 0
		}
		s.FailWriting()
		return false, errno
	}
	if !s.advance(v, n) && !s.has(streamPipe) {
		// The kernel took a part: asking again would yield EAGAIN. A pipe's
		// reader, though, was woken up only now, and may have made room.
		s.state |= streamBlocked
		return false, 0
	}
	return true, 0
}

// Single returns what there is to send where one plain send does it: one piece on a
// socket that takes bytes, as far as is known.
func (s *Stream) Single() (Vector, bool) {
	if len(s.queue)-s.head != 1 || s.has(streamBlocked|streamPipe) || !s.lease.Held() {
		return Vector{}, false
	}
	return s.queue[s.head], true
}

// Sent notes what the send of Single came to, which somebody else made. The errno
// is as Flush's; what is left is for Flush.
func (s *Stream) Sent(c *Calls, n int, errno syscall.Errno) syscall.Errno {
	_, errno = s.account(s.queue[s.head:], n, errno)
	if errno == 0 {
		s.shutIfDrained(c)
	}
	return errno
}

// FailWriting makes the writing half dead and drops its queue.
func (s *Stream) FailWriting() {
	s.drop()
	s.state |= streamDead
}

func (s *Stream) send(c *Calls, v []Vector, scratch *Scratch) (int, syscall.Errno) {
	fd := int(s.lease.fd)
	switch {
	case !s.lease.Held():
		return 0, syscall.EBADF
	case s.has(streamPipe):
		return c.Writev(fd, v)
	case len(v) == 1:
		return c.Send(fd, v[0].Base, v[0].Len)
	default:
		return c.SendVectors(fd, v, scratch)
	}
}

// advance takes n sent bytes off the queue, and tells whether they were all of v.
func (s *Stream) advance(v []Vector, n int) bool {
	s.pending -= int64(n)
	s.progress += int64(n)
	left := uintptr(n)
	for i := range v {
		if left < v[i].Len {
			v[i].Base += left
			v[i].Len -= left
			s.head += i
			return false
		}
		left -= v[i].Len
	}
	s.head += len(v)
	if s.head == len(s.queue) {
		if cap(s.queue) > keptQueue {
			s.queue = nil
		}
		s.queue, s.head = s.queue[:0], 0
	}
	return true
}

// Receive receives up to size bytes at base. After End and Failed reading has
// finished.
func (s *Stream) Receive(c *Calls, base, size uintptr) (int, Outcome, syscall.Errno) {
	if s.has(streamWatchEnd) {
		s.FinishReading()
		return 0, End, 0
	}
	if !s.lease.Held() {
		return s.Received(0, syscall.EBADF)
	}
	var n int
	var errno syscall.Errno
	if !s.has(streamPipe) {
		n, errno = c.Recv(int(s.lease.fd), base, size)
		if errno == syscall.ENOTSOCK {
			s.state |= streamPipe
		}
	}
	if s.has(streamPipe) {
		n, errno = c.Read(int(s.lease.fd), base, size)
	}
	return s.Received(n, errno)
}

// ReceivesPlainly tells whether a recv is what Receive would make.
func (s *Stream) ReceivesPlainly() bool {
	return s.Reading() && !s.has(streamWatchEnd|streamPipe) && s.lease.Held()
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
