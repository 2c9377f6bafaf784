package main

/*
#include "abi.h"
*/
import "C"

import (
	"encoding/binary"
	"math"
	"syscall"

	"github.com/goloop/goloop/netloop/simulated"
	"golang.org/x/sys/unix"
)

// Requests of Python to a simulated kernel. The buffer of a request also gets its answer:
//
//	words of 8 bytes: the request, a descriptor or a kernel's number, six arguments; the fourth
//	argument is replaced by the size of a returned name, or by a second descriptor;
//	then bytes: data to send, names, and received data
//
// The result is a number >= 0, or -errno, as C's. goloop/testing/simulated/kernel.py is the caller.
const (
	reqMake         = iota // a new kernel: seed, start, ns of a call, least and most latency, trace; returns its number
	reqEnd                 // ends a kernel
	reqEnter               // attaches the calling thread to a kernel
	reqLeave               // detaches the calling thread
	reqNow                 // the time in ns, in word 5
	reqSleep               // ns
	reqTrace               // returns the size of the next part of the trace, which is in the data
	reqOpen                // returns the number of open descriptors
	reqSocket              // family, type, owner; returns the descriptor
	reqSocketpair          // family, type, owner; returns the first descriptor
	reqBind                // size of the name in the data
	reqListen              // backlog
	reqConnect             // size of the name in the data
	reqAccept              // flags; returns the descriptor, and the peer's name in the data
	reqRecv                // size, flags; returns the size received into the data; the sender's name follows
	reqSend                // size, flags, size of the name that follows the bytes; returns the size sent
	reqShutdown            // SHUT_RD, SHUT_WR or SHUT_RDWR
	reqClose               // a descriptor
	reqSockname            // the name in the data
	reqPeername            // the name in the data
	reqSetOption           // level, option, value
	reqGetOption           // level, option; returns the value
	reqLinger              // on, seconds: SO_LINGER
	reqControl             // fcntl(2): command, argument; returns the result
	reqDup                 // returns a duplicate, close-on-exec
	reqUnlink              // size of the path in the data, owner
	reqFaults              // common faults of the kernel: chance in billionths; 0: memory and descriptors never run out
	reqEndOfTime           // ns; 0: none
	reqMakeHost            // returns the number of the new host
	reqChangeHost          // host, action (simulated.HostKill ...)
	reqLink                // from, to; the properties are numbers in the data, see network
	reqWay                 // from, to, state (simulated.LinkOpen ...)
	reqSetFaults           // for a host, or with -1 for all others: 0 removes the faults; socket limit
	reqFail                // a call of fds/calls.c, errno, first calls that succeed, calls that fail; on any kernel
	reqEpoll               // returns the descriptor of a new epoll
	reqEpollControl        // operation, descriptor, events
	reqEpollWait           // timeout in ns; the answer has a word for each event: descriptor, events
	reqPipe                // flags, owners of the reading and the writing end; returns the reading end
	reqRead                // size; returns the size read into the data
	reqWrite               // size; returns the size written
	reqInode               // size of the path in the data, owner; returns the inode
	reqEndProgram          // owner
	reqDecide              // digits of decisions; returns the number left and the number missed
	reqReseed              // a new seed for later decisions
)

// requestHead is the size in bytes of the words before the data.
const requestHead = 64

// request is the buffer of one request, at least requestHead bytes.
type request struct {
	b []byte
}

// word returns the word at index i. Word 0 is the request, word 1 the descriptor or the kernel's number,
// words 2 to 7 are the arguments.
func (r request) word(i int) int { return int(int64(binary.NativeEndian.Uint64(r.b[8*i:]))) }

// setWord stores a part of the answer in word i.
func (r request) setWord(i, to int) { binary.NativeEndian.PutUint64(r.b[8*i:], uint64(to)) }

// data returns the bytes after the words, for arguments and results.
func (r request) data() []byte { return r.b[requestHead:] }

// part returns n bytes of the data from an offset on, or nil if they do not exist.
func (r request) part(from, n int) []byte {
	data := r.data()
	if from < 0 || n < 0 || from > len(data) || n > len(data)-from {
		return nil
	}
	return data[from : from+n]
}

// putName writes a name after n bytes of data, as much as fits, and stores the written size in word 5.
func (r request) putName(n int, name []byte) {
	if n < 0 || n > len(r.data()) {
		n = len(r.data())
	}
	r.setWord(5, copy(r.data()[n:], name))
}

// answerRequest answers the request in b and returns a number >= 0 or -errno: -EINVAL if b is shorter than
// requestHead.
func answerRequest(b []byte) C.int32_t {
	if len(b) < requestHead {
		return -C.int32_t(syscall.EINVAL)
	}
	r := request{b}
	n, errno := r.answer()
	if errno != 0 {
		return -C.int32_t(errno)
	}
	return C.int32_t(n)
}

// answer makes the requested call. It finds the kernel by word 1, which is the kernel's number or a
// descriptor: ESRCH or EBADF if there is no such kernel. Any other errno is the call's; ENOSYS for an
// unknown request.
func (r request) answer() (int, syscall.Errno) {
	switch what := r.word(0); what {
	case reqMake:
		return newSimulation(simulated.Options{
			Seed:        uint64(r.word(2)),
			Start:       int64(r.word(3)),
			CallTime:    int64(r.word(4)),
			Network:     simulated.Network{MinLatency: int64(r.word(5)), MaxLatency: int64(r.word(6))},
			Descriptors: 4096,
		}, r.word(7) != 0)
	case reqFail:
		setFailure(r.word(2), syscall.Errno(r.word(3)), r.word(4), r.word(5))
		return 0, 0
	case reqLeave:
		(*simulation)(nil).attachThread()
		return 0, 0
	case reqEnd, reqEnter, reqNow, reqSleep, reqTrace, reqOpen, reqSocket, reqSocketpair, reqUnlink, reqFaults,
		reqEndOfTime, reqMakeHost, reqChangeHost, reqLink, reqWay, reqSetFaults, reqEpoll, reqPipe, reqInode,
		reqEndProgram, reqDecide, reqReseed:
		s := simulationOf(firstSimulatedFD + r.word(1)<<simulatedFDBits)
		if s == nil {
			return -1, syscall.ESRCH
		}
		return r.callKernel(s, what)
	default:
		s := simulationOf(r.word(1))
		if s == nil {
			return -1, syscall.EBADF
		}
		return r.callDescriptor(s, what, r.word(1))
	}
}

// callKernel makes a call that needs no descriptor, such as socket(2) or a change of the network. The
// parameter what is the request. It returns 0 for a request without a result.
func (r request) callKernel(s *simulation, what int) (int, syscall.Errno) {
	switch what {
	case reqEnd:
		s.end()
	case reqEnter:
		s.attachThread()
	case reqNow:
		r.setWord(5, int(s.Now()))
	case reqSleep:
		return 0, s.Sleep(int64(r.word(2)))
	case reqEndOfTime:
		s.SetEnd(int64(r.word(2)))
	case reqTrace:
		if s.trace != nil {
			n, _ := s.trace.Read(r.data())
			return max(n, 0), 0
		}
	case reqOpen:
		return s.Descriptors(), 0
	case reqSocket:
		return s.SocketOn(r.word(4), r.word(2), r.word(3))
	case reqSocketpair:
		a, b, errno := s.SocketpairOn(r.word(4), r.word(2), r.word(3))
		r.setWord(5, b)
		return a, errno
	case reqFaults: // in billionths; 0: memory and descriptors never run out
		faults := simulated.CommonFaults(float64(r.word(2)) / 1e9)
		if r.word(3) == 0 {
			faults = faults.Without(syscall.ENOMEM, syscall.ENOBUFS, syscall.EMFILE)
		}
		s.SetFaults(faults)
	case reqEpoll:
		return s.EpollCreate(0)
	case reqMakeHost:
		return s.MakeHost(), 0
	case reqChangeHost:
		return 0, s.ChangeHost(r.word(2), r.word(3))
	case reqLink:
		return 0, s.SetLink(r.word(2), r.word(3), r.network())
	case reqWay:
		return 0, s.SetLinkState(r.word(2), r.word(3), simulated.LinkState(r.word(4)))
	case reqSetFaults:
		switch f := r.faults(); {
		case r.word(2) < 0:
			s.SetFaults(f)
		case r.word(3) == 0:
			return 0, s.SetFaultsOf(r.word(2), nil)
		default:
			return 0, s.SetFaultsOf(r.word(2), &f)
		}
	case reqDecide:
		left, missed := s.Decide(r.part(0, r.word(2)))
		r.setWord(5, missed)
		return left, 0
	case reqReseed:
		s.Reseed(uint64(r.word(2)))
	case reqUnlink:
		return 0, s.UnlinkOn(r.word(3), string(r.part(0, r.word(2))))
	case reqInode:
		return s.Inode(r.word(3), string(r.part(0, r.word(2))))
	case reqPipe:
		reads, writes, errno := s.PipeOn(r.word(3), r.word(4), r.word(2))
		r.setWord(5, writes)
		return reads, errno
	case reqEndProgram:
		return 0, s.EndProgram(r.word(2))
	}
	return 0, 0
}

// network decodes the properties of a link, which are floating-point numbers.
func (r request) network() (n simulated.Network) {
	var latency [2]float64
	r.floats(&latency[0], &latency[1], &n.Bandwidth, &n.Loss, &n.Reorder, &n.Duplicate, &n.Fragment)
	n.MinLatency, n.MaxLatency = int64(latency[0]*1e9), int64(latency[1]*1e9)
	return n
}

// faults decodes the faults of goloop/testing/simulation/faults.py, whose chances have the same order. They
// affect sockets only, except for waits that a signal interrupts.
func (r request) faults() simulated.Faults {
	f := simulated.Faults{MaxLate: 50_000_000, Descriptors: r.word(4)}
	var reset, timeout, interrupted, wouldBlock, noBuffers float64
	r.floats(&reset, &timeout, &f.ShortReads, &f.ShortWrites, &f.OneByte, &interrupted, &wouldBlock,
		&noBuffers, &f.Late, &f.Spurious)
	receive, send := []string{"recv", "recvfrom", "recvmmsg"}, []string{"send", "sendmsg", "sendto"}
	moving := append(receive, send...)
	f.Add(syscall.EINTR, interrupted, append(moving, "accept", "epoll_wait", "epoll_pwait2")...)
	f.Add(syscall.EAGAIN, wouldBlock, append(moving, "accept")...)
	f.Add(syscall.ENOBUFS, noBuffers, "sendto", "accept")
	f.Add(syscall.ECONNRESET, reset, moving...)
	f.Add(syscall.ETIMEDOUT, timeout, moving...)
	return f
}

// floats decodes the floating-point numbers at the start of the data, 8 bytes each. A missing number leaves
// its target unchanged.
func (r request) floats(to ...*float64) {
	for i, to := range to {
		if raw := r.part(8*i, 8); raw != nil {
			*to = math.Float64frombits(binary.NativeEndian.Uint64(raw))
		}
	}
}

// callDescriptor makes a call on a descriptor of a kernel. It returns the call's result (bytes, a descriptor,
// an option's value or the number of events; 0 for calls without one) and its errno; ENOSYS if the request,
// what, is unknown. Received bytes, addresses and events are written to the request's data.
func (r request) callDescriptor(s *simulation, what, fd int) (int, syscall.Errno) {
	switch what {
	case reqBind:
		return 0, s.Bind(fd, r.part(0, r.word(2)))
	case reqListen:
		return 0, s.Listen(fd, r.word(2))
	case reqConnect:
		return 0, s.Connect(fd, r.part(0, r.word(2)))
	case reqAccept:
		n, name, errno := s.Accept(fd, r.word(2))
		r.putName(0, name)
		return n, errno
	case reqRecv:
		n, name, errno := s.RecvFrom(fd, r.part(0, r.word(2)), r.word(3))
		r.putName(n, name)
		return n, errno
	case reqSend:
		size := r.word(2)
		if name := r.part(size, r.word(4)); len(name) > 0 {
			return s.SendTo(fd, r.part(0, size), r.word(3), name)
		}
		return s.Send(fd, r.part(0, size), r.word(3))
	case reqRead:
		return s.Read(fd, r.part(0, r.word(2)))
	case reqWrite:
		return s.Write(fd, r.part(0, r.word(2)))
	case reqShutdown:
		return 0, s.Shutdown(fd, r.word(2))
	case reqClose:
		return 0, s.Close(fd)
	case reqSockname, reqPeername:
		of := s.Getsockname
		if what == reqPeername {
			of = s.Getpeername
		}
		name, errno := of(fd)
		r.putName(0, name)
		return 0, errno
	case reqSetOption:
		return 0, s.Setsockopt(fd, r.word(2), r.word(3), r.word(4))
	case reqGetOption:
		return s.Getsockopt(fd, r.word(2), r.word(3))
	case reqLinger:
		return 0, s.SetLinger(fd, r.word(2) != 0, r.word(3))
	case reqControl:
		return s.Fcntl(fd, r.word(2), r.word(3))
	case reqDup:
		return s.Dup(fd, 0, true)
	case reqEpollControl:
		of := r.word(3)
		return 0, s.EpollCtl(fd, r.word(2), of, &unix.EpollEvent{Events: uint32(r.word(4)), Fd: int32(of)})
	case reqEpollWait:
		events := make([]unix.EpollEvent, len(r.data())/8)
		n, errno := s.EpollWait(fd, events, int64(r.word(2)))
		for i := range max(n, 0) {
			binary.NativeEndian.PutUint64(r.data()[8*i:], uint64(events[i].Fd)<<32|uint64(events[i].Events))
		}
		return n, errno
	}
	return -1, syscall.ENOSYS
}
