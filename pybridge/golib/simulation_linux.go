package main

/*
#include "abi.h"
*/
import "C"

import (
	"bytes"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/goloop/goloop/netloop"
	"github.com/goloop/goloop/netloop/simulated"
	"golang.org/x/sys/unix"
)

// Simulated kernels for programs: how Python makes one and calls it, and how the loops of a thread
// come to be on it.
//
// A descriptor's number says whose it is: from simulatedFirst on it is a simulated kernel's, which
// the host never gives. So C's leases, records and tables need not know of kernels, and nothing
// looks at numbers while there is no simulation: C then has its own gl_calls.
//
//	a thread   --enter--> is on a kernel: its clock is the kernel's, and reactors that it makes are
//	           <--leave-- on that kernel (reactorCalls)
//	a number   recv, send, ... of C (simulation_calls_linux.go) and of Python (simulation_requests_linux.go) go
//	           to the kernel that has it, or to the host's
//
// A kernel has one thread that calls it, so a wait that nothing can end is an error (EDEADLK).
//
// Of the API table, simulation_request answers a request in the buffer, and simulation_hooks returns
// the system calls and the clock that C uses in this thread from then on.
const (
	simulatedFirst = 1 << 24
	simulatedBits  = 16
	simulationsMax = 256
)

// simulation is a simulated kernel and what its reactors share.
type simulation struct {
	*simulated.Kernel
	number int
	calls  netloop.Calls
	trace  *bytes.Buffer // nil: none is kept
	// What C wakes a reactor by, without a call: an epoll and an eventfd of the host, at which
	// nobody looks. The reactor looks at WakePending instead, before it waits.
	pollFD, wakeFD int
}

var simulations struct {
	sync.Mutex
	all  [simulationsMax]*simulation
	here map[int]*simulation // by thread
	live atomic.Int32
	only atomic.Pointer[simulation] // of `here`, where that has one
}

// simulationOf is the kernel that has a descriptor, nil where the host's has it.
func simulationOf(fd int) *simulation {
	if fd < simulatedFirst {
		return nil
	}
	simulations.Lock()
	defer simulations.Unlock()
	return simulations.all[(fd-simulatedFirst)>>simulatedBits%simulationsMax]
}

// simulationHere is the kernel of this thread, or nil.
func simulationHere() *simulation {
	if simulations.live.Load() == 0 {
		return nil
	}
	simulations.Lock()
	defer simulations.Unlock()
	return simulations.here[unix.Gettid()]
}

// clockHere is the kernel of this thread, which has its clock from it, so it is on one.
func clockHere() *simulation {
	if s := simulations.only.Load(); s != nil {
		return s
	}
	return simulationHere()
}

func haveOnly() {
	simulations.only.Store(nil)
	if len(simulations.here) == 1 {
		for _, s := range simulations.here {
			simulations.only.Store(s)
		}
	}
}

// newSimulation makes a kernel, with a trace if that is wanted, and returns its number.
func newSimulation(o simulated.Options, traced bool) (int, syscall.Errno) {
	simulations.Lock()
	defer simulations.Unlock()
	for i := range simulations.all {
		if simulations.all[i] != nil {
			continue
		}
		s := &simulation{number: i}
		if errno := s.openWake(); errno != 0 {
			return -1, errno
		}
		o.Sealed = true
		o.First = simulatedFirst + i<<simulatedBits
		if traced {
			s.trace = new(bytes.Buffer)
			o.Trace = s.trace
		}
		s.Kernel = simulated.New(o)
		s.calls = netloop.SimulatedCalls(s.Kernel)
		simulations.all[i] = s
		simulations.live.Add(1)
		return i, 0
	}
	return -1, syscall.EMFILE
}

func (s *simulation) openWake() syscall.Errno {
	var err error
	if s.pollFD, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return netloop.ErrnoOf(err)
	}
	if s.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err == nil {
		err = unix.EpollCtl(s.pollFD, unix.EPOLL_CTL_ADD, s.wakeFD, &unix.EpollEvent{})
	}
	if err != nil {
		s.closeWake()
		return netloop.ErrnoOf(err)
	}
	return 0
}

func (s *simulation) closeWake() {
	_ = unix.Close(s.wakeFD)
	_ = unix.Close(s.pollFD)
}

// end forgets a kernel. Its descriptors name nothing from now on.
func (s *simulation) end() {
	simulations.Lock()
	defer simulations.Unlock()
	for thread, here := range simulations.here {
		if here == s {
			delete(simulations.here, thread)
		}
	}
	haveOnly()
	simulations.all[s.number] = nil
	simulations.live.Add(-1)
	s.closeWake()
}

// enter has this thread be on a kernel, with nil on the host's.
func (s *simulation) enter() {
	simulations.Lock()
	defer simulations.Unlock()
	defer haveOnly()
	if s == nil {
		delete(simulations.here, unix.Gettid())
		return
	}
	if simulations.here == nil {
		simulations.here = map[int]*simulation{}
	}
	simulations.here[unix.Gettid()] = s
}

// reactorCalls are the calls of one reactor.
func (s *simulation) reactorCalls(shared *netloop.Shared) netloop.Calls {
	calls := s.calls
	var poller, wakeup int
	var token uint64
	calls.Poll.Create = func() (n int, errno syscall.Errno) {
		poller, errno = s.calls.Poll.Create()
		return poller, errno
	}
	calls.WakeOpen = func(t uint64) (int, int, syscall.Errno) {
		reads, writes, errno := s.calls.WakeOpen(t)
		wakeup, token = writes, t
		return reads, writes, errno
	}
	// A wake before the wait ends it; none comes during it, for this thread is the only one.
	woken := func() {
		if atomic.LoadUint32(&shared.WakePending) != 0 {
			_ = s.calls.WakeWrite(poller, wakeup, token)
		}
	}
	calls.Poll.WaitExact = func(epfd int, evs []unix.EpollEvent, ts *unix.Timespec) (int, syscall.Errno) {
		woken()
		return s.calls.Poll.WaitExact(epfd, evs, ts)
	}
	calls.Poll.Wait = func(epfd int, evs []unix.EpollEvent, ms int) (int, syscall.Errno) {
		woken()
		return s.calls.Poll.Wait(epfd, evs, ms)
	}
	calls.Poll.Poll = func(epfd int, evs []unix.EpollEvent) (int, syscall.Errno) {
		woken()
		return s.calls.Poll.Poll(epfd, evs)
	}
	return calls
}

// newReactor makes a reactor on this thread's kernel.
func newReactor(shared *netloop.Shared) (*netloop.Reactor, bool, error) {
	s := simulationHere()
	if s == nil {
		r, err := netloop.NewWithCalls(shared, hostCalls(shared))
		return r, false, err
	}
	r, err := netloop.NewWithCalls(shared, s.reactorCalls(shared))
	if err == nil {
		shared.PollFD, shared.WakeFD = int32(s.pollFD), int32(s.wakeFD)
	}
	return r, true, err
}

// setHooks sets the gl_calls and the clock that C uses in this thread; nil stands for C's own.
func setHooks(hooks *C.gl_simulation_hooks) C.int32_t {
	hooks.calls, hooks.clock = nil, nil
	if simulations.live.Load() > 0 || faults.on.Load() {
		hooks.calls = simulatedTable()
	}
	if simulationHere() != nil {
		hooks.clock = simulatedClock()
	}
	return 0
}
