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

// Simulated kernels for Python programs.
//
// The number of a descriptor says which kernel has it: numbers from firstSimulatedFD on belong to simulated
// kernels; the real kernel never returns them. So C's leases, records and tables need no knowledge of
// kernels, and without a simulation nothing checks numbers: C then uses its own gl_calls.
//
//	a thread   --attach--> uses a kernel: its clock is the kernel's, and its new reactors run on
//	           <--detach-- that kernel (reactorCalls)
//	a number   recv, send, ... of C (system_calls_linux.go) and of Python
//	           (system_requests_linux.go) go to the kernel that has the number
//
// One thread calls a kernel, so a wait that nothing can end is an error (EDEADLK).
//
// system.go has the functions of the API table.
const (
	firstSimulatedFD = 1 << 24
	simulatedFDBits  = 16
	maxSimulations   = 256
)

// simulation is a simulated kernel with the state that its reactors share.
type simulation struct {
	*simulated.Kernel
	number int
	calls  netloop.Calls
	trace  *bytes.Buffer // nil: no trace
	// pollFD and wakeFD are an epoll and an eventfd of the real kernel, to which C's gl_wake_up writes.
	// Nothing reads them: the reactor checks WakePending before it waits.
	pollFD, wakeFD int
}

// simulations are the live simulated kernels and the threads that are attached to them.
var simulations struct {
	sync.Mutex
	all      [maxSimulations]*simulation
	byThread map[int]*simulation // by thread id
	live     atomic.Int32
	single   atomic.Pointer[simulation] // the only entry of byThread, if it has one
}

// simulationOf returns the kernel that has a descriptor, or nil for the real kernel.
func simulationOf(fd int) *simulation {
	if fd < firstSimulatedFD {
		return nil
	}
	simulations.Lock()
	defer simulations.Unlock()
	return simulations.all[(fd-firstSimulatedFD)>>simulatedFDBits%maxSimulations]
}

// threadSimulation returns the kernel to which this thread is attached, or nil.
func threadSimulation() *simulation {
	if simulations.live.Load() == 0 {
		return nil
	}
	simulations.Lock()
	defer simulations.Unlock()
	return simulations.byThread[unix.Gettid()]
}

// clockSimulation is threadSimulation for a thread that is known to be attached: with one attached thread
// it needs no lock.
func clockSimulation() *simulation {
	if s := simulations.single.Load(); s != nil {
		return s
	}
	return threadSimulation()
}

// updateSingle updates simulations.single after a change of byThread. The caller has locked simulations.
func updateSingle() {
	simulations.single.Store(nil)
	if len(simulations.byThread) == 1 {
		for _, s := range simulations.byThread {
			simulations.single.Store(s)
		}
	}
}

// newSimulation creates a kernel, with a trace if requested, and returns its number. It overwrites Sealed,
// First and, with a trace, Trace of the options. EMFILE if there are too many kernels, or the errno of
// openWake.
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
		o.First = firstSimulatedFD + i<<simulatedFDBits
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

// openWake opens pollFD and wakeFD. After an errno neither is open.
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

// closeWake closes pollFD and wakeFD.
func (s *simulation) closeWake() {
	_ = unix.Close(s.wakeFD)
	_ = unix.Close(s.pollFD)
}

// end removes a kernel and detaches its threads. Its descriptors are invalid from now on.
func (s *simulation) end() {
	simulations.Lock()
	defer simulations.Unlock()
	for thread, here := range simulations.byThread {
		if here == s {
			delete(simulations.byThread, thread)
		}
	}
	updateSingle()
	simulations.all[s.number] = nil
	simulations.live.Add(-1)
	s.closeWake()
}

// attachThread attaches this thread to a kernel instead of to its last one; a nil s detaches the thread.
func (s *simulation) attachThread() {
	simulations.Lock()
	defer simulations.Unlock()
	defer updateSingle()
	if s == nil {
		delete(simulations.byThread, unix.Gettid())
		return
	}
	if simulations.byThread == nil {
		simulations.byThread = map[int]*simulation{}
	}
	simulations.byThread[unix.Gettid()] = s
}

// reactorCalls returns the system calls of the reactor with this shared block. Its waits end at once if a
// wake-up is pending.
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
	// A wake-up before the wait ends the wait. None can come during the wait, because this thread is the
	// only one.
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

// newReactor creates a reactor on the kernel to which this thread is attached, or on the real kernel. The
// second result is whether the reactor is isolated (loop.isolated), because its kernel is simulated: the
// seed decides everything. The block's PollFD and WakeFD are then descriptors of the real kernel (see
// simulation).
func newReactor(shared *netloop.Shared) (*netloop.Reactor, bool, error) {
	s := threadSimulation()
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

// getSystem stores in system the gl_calls for the whole process (nil unless a simulation lives or faults are
// injected), and the clock of the calling thread (nil unless it is attached to a simulation). nil stands for
// C's own. It returns 0.
func getSystem(system *C.gl_system) C.int32_t {
	system.calls, system.clock = nil, nil
	if simulations.live.Load() > 0 || faults.on.Load() {
		system.calls = simulatedTable()
	}
	if threadSimulation() != nil {
		system.clock = simulatedClock()
	}
	return 0
}
