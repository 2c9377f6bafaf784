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

// What Python asks of a simulated kernel, in a buffer that has the answer afterwards:
//
//	a word of 8 bytes each: the request, a descriptor or a kernel's number, six arguments; in
//	the place of the fourth the answer's size of a name, or its second descriptor;
//	then bytes: what is sent, names, and what came
//
// The result is as C's: a number >= 0, or -errno. goloop/testing/simulated/kernel.py has the
// other half.
const (
	askMake = iota
	askEnd
	askEnter
	askLeave
	askNow
	askSleep
	askTrace
	askOpen
	askSocket
	askSocketpair
	askBind
	askListen
	askConnect
	askAccept
	askRecv
	askSend
	askShutdown
	askClose
	askSockname
	askPeername
	askSetOption
	askGetOption
	askLinger
	askControl
	askDup
	askUnlink
	askFaults
	askEndOfTime
	askMakeHost
	askChangeHost
	askLink
	askWay
	askSetFaults // of a host, or with -1 of all others: whether it has any, and how many sockets
	askFail      // a call of fds/calls.c, an errno, after how many, how often; on any kernel
	askEpoll
	askEpollControl // what to do, a descriptor, events
	askEpollWait    // for how many ns; a word for each event that is wanted: its descriptor, then what it is
	askPipe
	askRead
	askWrite
	askInode
	askEndProgram
	askDecide // digits of decisions; how many are left, and how many were missed
	askReseed // the seed of those from now on
)

const requestHead = 64

type request struct {
	b []byte
}

func (r request) word(i int) int { return int(int64(binary.NativeEndian.Uint64(r.b[8*i:]))) }

func (r request) setWord(i, to int) { binary.NativeEndian.PutUint64(r.b[8*i:], uint64(to)) }

func (r request) data() []byte { return r.b[requestHead:] }

// part is a number of the bytes from a place on; none where they are not there.
func (r request) part(from, n int) []byte {
	data := r.data()
	if from < 0 || n < 0 || from > len(data) || n > len(data)-from {
		return nil
	}
	return data[from : from+n]
}

// giveName puts a name behind n bytes.
func (r request) giveName(n int, name []byte) {
	if n < 0 || n > len(r.data()) {
		n = len(r.data())
	}
	r.setWord(5, copy(r.data()[n:], name))
}

// simulate answers a request.
func simulate(b []byte) C.int32_t {
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

func (r request) answer() (int, syscall.Errno) {
	switch what := r.word(0); what {
	case askMake:
		return newSimulation(simulated.Options{
			Seed:        uint64(r.word(2)),
			Start:       int64(r.word(3)),
			CallTime:    int64(r.word(4)),
			Network:     simulated.Network{LatencyLeast: int64(r.word(5)), LatencyMost: int64(r.word(6))},
			Descriptors: 4096,
		}, r.word(7) != 0)
	case askFail:
		fail(r.word(2), syscall.Errno(r.word(3)), r.word(4), r.word(5))
		return 0, 0
	case askLeave:
		(*simulation)(nil).enter()
		return 0, 0
	case askEnd, askEnter, askNow, askSleep, askTrace, askOpen, askSocket, askSocketpair, askUnlink, askFaults,
		askEndOfTime, askMakeHost, askChangeHost, askLink, askWay, askSetFaults, askEpoll, askPipe, askInode,
		askEndProgram, askDecide, askReseed:
		s := simulationOf(simulatedFirst + r.word(1)<<simulatedBits)
		if s == nil {
			return -1, syscall.ESRCH
		}
		return r.ofKernel(s, what)
	default:
		s := simulationOf(r.word(1))
		if s == nil {
			return -1, syscall.EBADF
		}
		return r.ofDescriptor(s, what, r.word(1))
	}
}

func (r request) ofKernel(s *simulation, what int) (int, syscall.Errno) {
	switch what {
	case askEnd:
		s.end()
	case askEnter:
		s.enter()
	case askNow:
		r.setWord(5, int(s.Now()))
	case askSleep:
		return 0, s.Sleep(int64(r.word(2)))
	case askEndOfTime:
		s.SetEnd(int64(r.word(2)))
	case askTrace:
		if s.trace != nil {
			n, _ := s.trace.Read(r.data())
			return max(n, 0), 0
		}
	case askOpen:
		return s.Descriptors(), 0
	case askSocket:
		return s.SocketOn(r.word(4), r.word(2), r.word(3))
	case askSocketpair:
		a, b, errno := s.SocketpairOn(r.word(4), r.word(2), r.word(3))
		r.setWord(5, b)
		return a, errno
	case askFaults: // in billionths, and whether memory and descriptors run out
		faults := simulated.CommonFaults(float64(r.word(2)) / 1e9)
		if r.word(3) == 0 {
			faults = faults.Without(syscall.ENOMEM, syscall.ENOBUFS, syscall.EMFILE)
		}
		s.SetFaults(faults)
	case askEpoll:
		return s.EpollCreate(0)
	case askMakeHost:
		return s.MakeHost(), 0
	case askChangeHost:
		return 0, s.ChangeHost(r.word(2), r.word(3))
	case askLink:
		return 0, s.SetLink(r.word(2), r.word(3), r.network())
	case askWay:
		return 0, s.SetLinkState(r.word(2), r.word(3), simulated.LinkState(r.word(4)))
	case askSetFaults:
		switch f := r.faults(); {
		case r.word(2) < 0:
			s.SetFaults(f)
		case r.word(3) == 0:
			return 0, s.SetFaultsOf(r.word(2), nil)
		default:
			return 0, s.SetFaultsOf(r.word(2), &f)
		}
	case askDecide:
		left, missed := s.Decide(r.part(0, r.word(2)))
		r.setWord(5, missed)
		return left, 0
	case askReseed:
		s.Reseed(uint64(r.word(2)))
	case askUnlink:
		return 0, s.UnlinkOn(r.word(3), string(r.part(0, r.word(2))))
	case askInode:
		return s.Inode(r.word(3), string(r.part(0, r.word(2))))
	case askPipe:
		reads, writes, errno := s.PipeOn(r.word(3), r.word(4), r.word(2))
		r.setWord(5, writes)
		return reads, errno
	case askEndProgram:
		return 0, s.EndProgram(r.word(2))
	}
	return 0, 0
}

// network is a link's, in floating-point numbers.
func (r request) network() (n simulated.Network) {
	var latency [2]float64
	r.floats(&latency[0], &latency[1], &n.Bandwidth, &n.Loss, &n.Reorder, &n.Duplicate, &n.Fragment)
	n.LatencyLeast, n.LatencyMost = int64(latency[0]*1e9), int64(latency[1]*1e9)
	return n
}

// faults are those of goloop/testing/simulation/faults.py, whose chances have the same order. They
// meet sockets alone, but for the wait that a signal interrupts.
func (r request) faults() simulated.Faults {
	f := simulated.Faults{LateMost: 50_000_000, Descriptors: r.word(4)}
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

// floats reads floating-point numbers.
func (r request) floats(to ...*float64) {
	for i, to := range to {
		if raw := r.part(8*i, 8); raw != nil {
			*to = math.Float64frombits(binary.NativeEndian.Uint64(raw))
		}
	}
}

func (r request) ofDescriptor(s *simulation, what, fd int) (int, syscall.Errno) {
	switch what {
	case askBind:
		return 0, s.Bind(fd, r.part(0, r.word(2)))
	case askListen:
		return 0, s.Listen(fd, r.word(2))
	case askConnect:
		return 0, s.Connect(fd, r.part(0, r.word(2)))
	case askAccept:
		n, name, errno := s.Accept(fd, r.word(2))
		r.giveName(0, name)
		return n, errno
	case askRecv:
		n, name, errno := s.RecvFrom(fd, r.part(0, r.word(2)), r.word(3))
		r.giveName(n, name)
		return n, errno
	case askSend:
		size := r.word(2)
		if name := r.part(size, r.word(4)); len(name) > 0 {
			return s.SendTo(fd, r.part(0, size), r.word(3), name)
		}
		return s.Send(fd, r.part(0, size), r.word(3))
	case askRead:
		return s.Read(fd, r.part(0, r.word(2)))
	case askWrite:
		return s.Write(fd, r.part(0, r.word(2)))
	case askShutdown:
		return 0, s.Shutdown(fd, r.word(2))
	case askClose:
		return 0, s.Close(fd)
	case askSockname, askPeername:
		of := s.Getsockname
		if what == askPeername {
			of = s.Getpeername
		}
		name, errno := of(fd)
		r.giveName(0, name)
		return 0, errno
	case askSetOption:
		return 0, s.Setsockopt(fd, r.word(2), r.word(3), r.word(4))
	case askGetOption:
		return s.Getsockopt(fd, r.word(2), r.word(3))
	case askLinger:
		return 0, s.SetLinger(fd, r.word(2) != 0, r.word(3))
	case askControl:
		return s.Fcntl(fd, r.word(2), r.word(3))
	case askDup:
		return s.Dup(fd, 0, true)
	case askEpollControl:
		of := r.word(3)
		return 0, s.EpollCtl(fd, r.word(2), of, &unix.EpollEvent{Events: uint32(r.word(4)), Fd: int32(of)})
	case askEpollWait:
		events := make([]unix.EpollEvent, len(r.data())/8)
		n, errno := s.EpollWait(fd, events, int64(r.word(2)))
		for i := range max(n, 0) {
			binary.NativeEndian.PutUint64(r.data()[8*i:], uint64(events[i].Fd)<<32|uint64(events[i].Events))
		}
		return n, errno
	}
	return -1, syscall.ENOSYS
}
