package main

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The monitor is one goroutine, with a thread of its own, that looks at every loop about
// once in a millisecond while one of them is awake:
//
//	     +--> tick: whose iteration lasts long, and has left something unsent? --> send it
//	     |      |
//	     +------+ 1 ms
//	     |      | nobody was awake for some ticks
//	unpark <-- parked: no wake-ups at all
//
// Python writes, then computes or waits, and what it wrote would leave at the end of the
// iteration only. abi.h tells by which protocol the monitor takes a reactor meanwhile.
type monitor struct {
	mu      sync.Mutex // no loop ends while it is held
	loops   []*loop
	started bool
	parked  bool
	wake    chan struct{}
}

var theMonitor = monitor{wake: make(chan struct{}, 1)}

const (
	tick = time.Millisecond
	// What was written leaves within two ticks: an iteration that has lasted nearly one
	// when the monitor comes is a long one.
	lateAfter = 800_000 // ns
	// So many ticks without a loop that is awake, and the monitor parks.
	idleTicks = 5
)

// monitored begins to look after a loop.
func monitored(l *loop) {
	m := &theMonitor
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.started {
		m.started = true
		fenced = !membarrierRegister()
		go m.run()
	}
	if fenced {
		l.shared.Fenced = 1
	}
	if m.parked {
		l.shared.Parked = 1
	}
	m.loops = append(m.loops, l)
}

// unmonitored ends that. Nobody touches the loop's shared block afterwards.
func unmonitored(l *loop) {
	m := &theMonitor
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(m.loops, l); i >= 0 {
		m.loops = slices.Delete(m.loops, i, i+1)
	}
}

// fenced is true where the system has no membarrier: C has fences of its own then.
var fenced bool

// barrier makes what this thread has written, and what every other thread of the process had
// written before, known to both.
func barrier() {
	if !fenced {
		membarrier()
	}
}

func (m *monitor) run() {
	runtime.LockOSThread()
	nameThread("goloop-monitor")
	idle := 0
	for {
		if m.look() {
			idle = 0
		} else if idle++; idle >= idleTicks && m.park() {
			<-m.wake
			idle = 0
		}
		sleep(tick)
	}
}

// look sends what is late, and tells whether some loop was awake.
func (m *monitor) look() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	awake := false
	for _, l := range m.loops {
		sh := l.shared
		if atomic.LoadUint32(&sh.Awake) == 0 {
			continue
		}
		awake = true
		if atomic.LoadUint32(&sh.Unsent) != 0 && l.Clock()-atomic.LoadInt64(&sh.Now) >= lateAfter {
			l.sendLate()
		}
	}
	return awake
}

// park tells the loops that whoever wakes has to wake the monitor, and whether all sleep.
func (m *monitor) park() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.loops {
		atomic.StoreUint32(&l.shared.Parked, 1)
	}
	barrier()
	m.parked = true
	for _, l := range m.loops {
		if atomic.LoadUint32(&l.shared.Awake) != 0 {
			m.leavePark()
			return false
		}
	}
	return true
}

// leavePark is called with the mutex.
func (m *monitor) leavePark() {
	m.parked = false
	for _, l := range m.loops {
		atomic.StoreUint32(&l.shared.Parked, 0)
	}
}

// unpark is called by a loop that wakes.
func (m *monitor) unpark() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.parked {
		return
	}
	m.leavePark()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// sendLate sends what the loop's streams have queued, unless C is at work on them, which it
// never is for long: the next tick tries again.
func (l *loop) sendLate() {
	sh := l.shared
	if atomic.LoadUint32(&sh.Holds) != 0 {
		return
	}
	atomic.StoreUint32(&sh.Guest, 1)
	barrier()
	if atomic.LoadUint32(&sh.Holds) == 0 && sh.Unsent != 0 {
		l.Flush()
		sh.LateWrites++
	}
	atomic.StoreUint32(&sh.Guest, 0)
}

// hold keeps the monitor away for the time of a call; nests in what C holds.
func (l *loop) hold() *loop {
	sh := l.shared
	n := atomic.AddUint32(&sh.Holds, 1)
	for n == 1 && atomic.LoadUint32(&sh.Guest) != 0 {
		atomic.StoreUint32(&sh.Holds, 0)
		for atomic.LoadUint32(&sh.Guest) != 0 {
			runtime.Gosched()
		}
		atomic.StoreUint32(&sh.Holds, 1)
	}
	return l
}

func (l *loop) letGo() {
	atomic.StoreUint32(&l.shared.Holds, l.shared.Holds-1)
}
