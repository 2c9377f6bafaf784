package netloop

import (
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// RingCalls are the system calls of the ring, which is an io_uring.
type RingCalls struct {
	Setup func(entries uint32, p *RingParams) (int, syscall.Errno)
	Enter func(fd int, submit, complete, flags uint32) (int, syscall.Errno)
	Map   func(fd int, offset int64, size int) ([]byte, error)
	Unmap func(b []byte) error
	Close func(fd int) syscall.Errno
}

// systemRingCalls returns the calls of the host's kernel.
func systemRingCalls() RingCalls {
	return RingCalls{
		Setup: func(entries uint32, p *RingParams) (int, syscall.Errno) {
			n, _, e := unix.RawSyscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(p)), 0)
			return int(n), e
		},
		Enter: func(fd int, submit, complete, flags uint32) (int, syscall.Errno) {
			// Raw, because the call does not block: see ring.run.
			n, _, e := unix.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), uintptr(submit),
				uintptr(complete), uintptr(flags), 0, 0)
			return int(n), e
		},
		Map: func(fd int, offset int64, size int) ([]byte, error) {
			return unix.Mmap(fd, offset, size, unix.PROT_READ|unix.PROT_WRITE,
				unix.MAP_SHARED|unix.MAP_POPULATE)
		},
		Unmap: unix.Munmap,
		Close: func(fd int) syscall.Errno {
			_, _, e := unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
			return e
		},
	}
}

// RingParams is struct io_uring_params of linux/io_uring.h.
type RingParams struct {
	SQEntries, CQEntries, Flags, SQThreadCPU, SQThreadIdle, Features, WQFD uint32

	_  [3]uint32
	SQ struct {
		Head, Tail, RingMask, RingEntries, Flags, Dropped, Array, _ uint32

		_ uint64
	}
	CQ struct {
		Head, Tail, RingMask, RingEntries, Overflow, CQEs, Flags, _ uint32

		_ uint64
	}
}

// ringSQE is struct io_uring_sqe with the fields of sends and receives; ringCQE is struct
// io_uring_cqe.
type (
	ringSQE struct {
		opcode, flags   uint8
		priority        uint16
		fd              int32
		offset, addr    uint64
		size, callFlags uint32
		userData        uint64
		_               [3]uint64
	}
	ringCQE struct {
		userData uint64
		result   int32
		flags    uint32
	}
)

// Constants of linux/io_uring.h.
const (
	ringOpSend     = 26 // IORING_OP_SEND
	ringOpReceive  = 27 // IORING_OP_RECV
	ringOffQueues  = 0  // IORING_OFF_SQ_RING
	ringOffSQEs    = 0x10000000
	ringGetEvents  = 1      // IORING_ENTER_GETEVENTS
	ringSingleMap  = 1 << 0 // IORING_FEAT_SINGLE_MMAP
	ringNativeWork = 1 << 9 // IORING_FEAT_NATIVE_WORKERS: Linux 5.12
)

// maxIdleEnters is the number of attempts without progress after which the ring is closed. The
// kernel may be short of memory, or a sandbox may answer each call with EINTR.
const maxIdleEnters = 100

// ring is an io_uring; see ring.go.
type ring struct {
	ringResults
	calls *RingCalls
	fd    int

	queues, table []byte // the two mappings
	sqTail        *uint32
	cqHead        *uint32
	cqTail        *uint32
	sqMask        uint32
	cqMask        uint32
	sqes          []ringSQE
	cqes          []ringCQE
}

// open creates the io_uring and maps its queues. It returns ringOpen, ringUnknown if there was no
// free descriptor, so that a later attempt may succeed, or ringRefused: the kernel does not
// permit a ring, is older than Linux 5.12, or cannot map the queues. Only after ringOpen is
// anything left open.
func (g *ring) open(c *RingCalls) ringState {
	if c.Setup == nil {
		return ringRefused
	}
	p := new(RingParams)
	fd, errno := c.Setup(maxBatch, p)
	switch errno {
	case 0:
	case syscall.EMFILE, syscall.ENFILE:
		return ringUnknown // a descriptor may be available the next time
	default:
		return ringRefused // ENOSYS, EPERM, ENOMEM
	}
	g.calls, g.fd = c, fd
	const wanted = ringSingleMap | ringNativeWork
	if p.Features&wanted != wanted || !g.mapQueues(p) {
		g.close(true)
		return ringRefused
	}
	return ringOpen
}

// mapQueues maps the submission queue, the completion queue and the submission entries. It
// returns false if a mapping fails; the caller then closes the ring, which unmaps the others.
func (g *ring) mapQueues(p *RingParams) bool {
	var err error
	size := max(int(p.SQ.Array)+4*int(p.SQEntries),
		int(p.CQ.CQEs)+int(unsafe.Sizeof(ringCQE{}))*int(p.CQEntries))
	if g.queues, err = g.calls.Map(g.fd, ringOffQueues, size); err != nil {
		return false
	}
	size = int(unsafe.Sizeof(ringSQE{})) * int(p.SQEntries)
	if g.table, err = g.calls.Map(g.fd, ringOffSQEs, size); err != nil {
		return false
	}
	at := func(offset uint32) unsafe.Pointer { return unsafe.Pointer(&g.queues[offset]) }
	g.sqTail, g.sqMask = (*uint32)(at(p.SQ.Tail)), *(*uint32)(at(p.SQ.RingMask))
	g.cqHead, g.cqTail = (*uint32)(at(p.CQ.Head)), (*uint32)(at(p.CQ.Tail))
	g.cqMask = *(*uint32)(at(p.CQ.RingMask))
	g.sqes = unsafe.Slice((*ringSQE)(unsafe.Pointer(&g.table[0])), p.SQEntries)
	g.cqes = unsafe.Slice((*ringCQE)(at(p.CQ.CQEs)), p.CQEntries)
	// The submission queue refers to the entries by index; here position i always has entry i.
	for i, order := 0, unsafe.Slice((*uint32)(at(p.SQ.Array)), p.SQEntries); i < len(order); i++ {
		order[i] = uint32(i)
	}
	return true
}

// descriptor returns the number of the io_uring.
func (g *ring) descriptor() int { return g.fd }

// close unmaps the queues, and closes the descriptor if fd is true. The results of the last
// batch stay.
func (g *ring) close(fd bool) {
	for _, m := range [][]byte{g.table, g.queues} {
		if m != nil {
			_ = g.calls.Unmap(m)
		}
	}
	if fd {
		_ = g.calls.Close(g.fd)
	}
	*g = ring{ringResults: g.ringResults} // the results are read later
}

// send adds a send of `size` bytes at `base` to the batch.
func (g *ring) send(fd int32, base, size uintptr) {
	g.add(ringOpSend, fd, base, size, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
}

// receive adds a receive of up to `size` bytes to `base` to the batch.
func (g *ring) receive(fd int32, base, size uintptr) {
	g.add(ringOpReceive, fd, base, size, unix.MSG_DONTWAIT)
}

// add appends a submission entry to the batch. op is the operation, flags are the flags of
// recv(2) or send(2). There must be space for the entry.
func (g *ring) add(op uint8, fd int32, base, size uintptr, flags uint32) {
	tail := *g.sqTail // only this side writes it
	g.sqes[tail&g.sqMask] = ringSQE{
		opcode: op, fd: fd, addr: uint64(base), size: uint32(size), callFlags: flags,
		userData: uint64(g.n),
	}
	atomic.StoreUint32(g.sqTail, tail+1)
	g.results[g.n] = ringNotRun
	g.n++
}

// run makes the kernel execute the calls, waits for all of them and stores their results. It
// returns false if the ring is broken; calls without a result then keep ringNotRun. With
// MSG_DONTWAIT each call is completed while it is submitted, so run does not block and no call
// continues afterwards.
func (g *ring) run() bool {
	submit, outstanding := uint32(g.n), g.n
	g.n = 0
	for idleEnters := 0; outstanding > 0; {
		n, errno := g.calls.Enter(g.fd, submit, uint32(outstanding), ringGetEvents)
		if errno != 0 {
			n = 0
		}
		submit -= uint32(n)
		before := outstanding
		head, tail := *g.cqHead, atomic.LoadUint32(g.cqTail)
		for ; head != tail; head++ {
			c := &g.cqes[head&g.cqMask]
			g.results[c.userData] = c.result
			outstanding--
		}
		atomic.StoreUint32(g.cqHead, head)
		switch errno {
		case 0, syscall.EINTR, syscall.EAGAIN, syscall.EBUSY:
		default:
			return false
		}
		if n > 0 || outstanding < before {
			idleEnters = 0
		} else if idleEnters++; idleEnters > maxIdleEnters {
			return false
		}
	}
	return true
}
