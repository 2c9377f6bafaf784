package netloop

import (
	"sync"
	"sync/atomic"
)

// processCloses counts the closes of all reactors on the host's kernel.
var processCloses closeCounter

// closeCounter makes a listener that backs off for lack of descriptors retry when a descriptor
// is closed. Descriptors belong to the process, so this is the only state that reactors share:
// a count of closed descriptors, and the reactors to wake when it grows. Reactors on another
// kernel have descriptors of their own, and their own counter.
type closeCounter struct {
	count   atomic.Uint64
	waiters atomic.Int32 // len(reactors), for countClose without the lock
	mu      sync.Mutex
	// reactors with listeners that back off
	reactors map[*Reactor]struct{}
}

// countClose counts a descriptor that the reactor `by` has deregistered and that its owner will
// close. It wakes the other reactors with listeners that back off.
func (c *closeCounter) countClose(by *Reactor) {
	c.count.Add(1)
	if c.waiters.Load() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.reactors {
		if r != by { // the caller checks the count itself before it polls
			_ = r.Wake() // an error means that the reactor is closing
		}
	}
}

// addWaiter adds a reactor to the reactors that are woken, and returns the count.
func (c *closeCounter) addWaiter(r *Reactor) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reactors == nil {
		c.reactors = make(map[*Reactor]struct{})
	}
	c.reactors[r] = struct{}{}
	c.waiters.Store(int32(len(c.reactors)))
	return c.count.Load()
}

// removeWaiter undoes addWaiter. It does nothing for a reactor that was not added.
func (c *closeCounter) removeWaiter(r *Reactor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.reactors, r)
	c.waiters.Store(int32(len(c.reactors)))
}
