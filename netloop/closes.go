package netloop

import (
	"sync"
	"sync/atomic"
)

// processCloses is of the reactors on the host's kernel.
var processCloses closeCounter

// closeCounter has a listener that backs off because descriptors ran out go on when one comes
// free. The descriptors are the process's, so this is the one thing that its reactors share: a
// count of what was closed, and the wakers to call when it grows. A simulated kernel is a process
// of its own, and has its own.
type closeCounter struct {
	count   atomic.Uint64
	waiting atomic.Int32 // the length of reactors
	mu      sync.Mutex
	// reactors with listeners that back off.
	reactors map[*Reactor]struct{}
}

// note is called by a reactor for which a registration has ended.
func (c *closeCounter) note(by *Reactor) {
	c.count.Add(1)
	if c.waiting.Load() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.reactors {
		if r != by { // which looks by itself, before it waits
			_ = r.Wake() // it fails only where the reactor is closing
		}
	}
}

// enter makes a reactor one of those that are woken, and returns the count.
func (c *closeCounter) enter(r *Reactor) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reactors == nil {
		c.reactors = make(map[*Reactor]struct{})
	}
	c.reactors[r] = struct{}{}
	c.waiting.Store(int32(len(c.reactors)))
	return c.count.Load()
}

func (c *closeCounter) leave(r *Reactor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.reactors, r)
	c.waiting.Store(int32(len(c.reactors)))
}
