//go:build linux

package simulated

import (
	"math/bits"
	"syscall"

	"golang.org/x/sys/unix"
)

// page is the number of bytes of a pipe's slot, and pipeSlots the initial number of slots.
const (
	page      = 4096
	pipeSlots = 16
	maxSlots  = 256 // /proc/sys/fs/pipe-max-size
)

// pipe is a ring of slots, as on Linux: a write fills the last slot only if its odd bytes fit there in one
// piece. So a pipe of small writes may be full with few bytes.
type pipe struct {
	slots int
	full  []slot
	ends  [2]*pipeEnd // the reading end, the writing end; nil: closed
}

// slot is one page of a pipe's ring with its unread data.
type slot struct {
	data []byte
	end  int // end of the data in the page
}

// pipeEnd is the reading or the writing end of a pipe.
type pipeEnd struct {
	watchers
	owner
	pipe   *pipe
	writes bool
}

// release closes one end and wakes the other, which reports EPOLLHUP or EPOLLERR from now on.
func (e *pipeEnd) release() {
	p := e.pipe
	p.ends[0], p.ends[1] = without(p.ends[0], e), without(p.ends[1], e)
	for _, end := range p.ends {
		if end != nil {
			end.wake(0)
		}
	}
}

// without returns end, or nil if it is the end that is gone.
func without(end, gone *pipeEnd) *pipeEnd {
	if end == gone {
		return nil
	}
	return end
}

// poll returns the end's readiness. A writing end is writable while a slot is free.
func (e *pipeEnd) poll() uint32 {
	p, events := e.pipe, uint32(0)
	if e.writes {
		if len(p.full) < p.slots {
			events |= outEvents
		}
		if p.ends[0] == nil {
			events |= unix.EPOLLERR
		}
		return events
	}
	if len(p.full) > 0 {
		events |= inEvents
	}
	if p.ends[1] == nil {
		events |= unix.EPOLLHUP
	}
	return events
}

// read reads up to len(b) bytes, fewer by a fault. 0 means that b is empty, or that the writing end is
// closed and all is read; EAGAIN that the pipe is empty; EBADF that this is the writing end.
func (e *pipeEnd) read(b []byte) (int, syscall.Errno) {
	p, n := e.pipe, 0
	switch {
	case e.writes:
		return -1, syscall.EBADF
	case len(b) == 0:
		return 0, 0
	case len(p.full) == 0 && p.ends[1] == nil:
		return 0, 0
	case len(p.full) == 0:
		return -1, syscall.EAGAIN
	}
	b = b[:e.k.readSize(e, len(b))]
	wasFull := len(p.full) >= p.slots
	for n < len(b) && len(p.full) > 0 {
		first := &p.full[0]
		copied := copy(b[n:], first.data)
		n += copied
		if first.data = first.data[copied:]; len(first.data) == 0 {
			p.full = p.full[1:]
		}
	}
	if wasFull && p.ends[1] != nil {
		p.ends[1].wake(outEvents)
	}
	return n, 0
}

// write writes as much of b as the slots have space for, or less by a fault, and returns the number of
// bytes. At most PIPE_BUF bytes are written completely or not at all. EAGAIN if nothing fits, EPIPE if
// the reading end is closed, EBADF if this is the reading end.
func (e *pipeEnd) write(b []byte) (int, syscall.Errno) {
	p := e.pipe
	switch {
	case !e.writes:
		return -1, syscall.EBADF
	case len(b) == 0:
		return 0, 0
	case p.ends[0] == nil:
		return -1, syscall.EPIPE
	}
	// Data of at most PIPE_BUF bytes is written completely or not at all.
	if len(b) > page {
		b = b[:max(e.k.writeSize(e, len(b)), page)]
	}
	n := 0
	if odd := len(b) % page; odd > 0 && len(p.full) > 0 {
		if last := &p.full[len(p.full)-1]; last.end+odd <= page {
			last.data = append(last.data, b[:odd]...)
			last.end += odd
			n = odd
		}
	}
	for n < len(b) && len(p.full) < p.slots {
		piece := append([]byte(nil), b[n:min(n+page, len(b))]...)
		p.full = append(p.full, slot{piece, len(piece)})
		n += len(piece)
	}
	if n == 0 {
		return -1, syscall.EAGAIN
	}
	p.ends[0].wake(inEvents)
	return n, 0
}

// resize is fcntl(2) with F_SETPIPE_SZ: the pipe gets slots for at least `size` bytes, in a number that
// is a power of two. EPERM if it would grow above the limit, EBUSY if more slots are in use, EINVAL for a
// negative or too large size.
func (p *pipe) resize(size int) syscall.Errno {
	if size < 0 || size > 1<<31 {
		return syscall.EINVAL
	}
	pages := max((size+page-1)/page, 1)
	slots := 1 << bits.Len(uint(pages-1))
	switch {
	case slots > p.slots && slots > maxSlots:
		return syscall.EPERM
	case slots < len(p.full):
		return syscall.EBUSY
	}
	wasFull := len(p.full) >= p.slots
	p.slots = slots
	if wasFull && p.ends[1] != nil {
		p.ends[1].wake(outEvents)
	}
	return 0
}

// Pipe is pipe2(2).
func (k *Kernel) Pipe(flags int) (reads, writes int, errno syscall.Errno) {
	return k.PipeOn(0, 0, flags)
}

// PipeOn is Pipe with ends that may belong to two owners, given by their numbers. ESRCH for the number of
// an unknown host. After an error no end is open.
func (k *Kernel) PipeOn(reader, writer, flags int) (reads, writes int, errno syscall.Errno) {
	c, errno := k.begin("pipe", -1)
	p := &pipe{slots: pipeSlots}
	p.ends = [2]*pipeEnd{{pipe: p}, {pipe: p, writes: true}}
	for i, number := range [2]int{reader, writer} {
		if errno == 0 {
			p.ends[i].owner, errno = k.ownerOf(number)
		}
	}
	if errno != 0 {
		return -1, -1, c.done(errno)
	}
	reads, writes, errno = k.installPair(p.ends[0], p.ends[1], flags)
	_, errno = c.end(reads, errno, withHost(reader)...)
	return reads, writes, errno
}

// installPair opens both nodes and returns their numbers, or opens neither.
func (k *Kernel) installPair(a, b node, flags int) (int, int, syscall.Errno) {
	first, errno := k.install(a, flags)
	if errno != 0 {
		return -1, -1, errno
	}
	second, errno := k.install(b, flags)
	if errno != 0 {
		_ = k.freeDescriptor(first)
		return -1, -1, errno
	}
	return first, second, 0
}
