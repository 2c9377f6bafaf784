//go:build !linux

package netloop

// RingCalls are the system calls of the ring. This system does not have any.
type RingCalls struct{}

// systemRingCalls returns no calls.
func systemRingCalls() RingCalls { return RingCalls{} }

// ring is never open on this system; see ring.go.
type ring struct{ ringResults }

// open refuses.
func (g *ring) open(*RingCalls) ringState { return ringRefused }

// close is never called.
func (g *ring) close(bool) {}

// descriptor is never called.
func (g *ring) descriptor() int { return -1 }

// send is never called.
func (g *ring) send(int32, uintptr, uintptr) {}

// receive is never called.
func (g *ring) receive(int32, uintptr, uintptr) {}

// run is never called.
func (g *ring) run() bool { return false }
