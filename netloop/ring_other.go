//go:build !linux

package netloop

// RingCalls are the system calls of the ring. This system does not have any.
type RingCalls struct{}

func systemRingCalls() RingCalls { return RingCalls{} }

// ring is never open on this system; see ring.go.
type ring struct{ ringResults }

func (g *ring) open(*RingCalls) ringState { return ringRefused }

func (g *ring) close(bool) {}

func (g *ring) descriptor() int { return -1 }

func (g *ring) send(int32, uintptr, uintptr) {}

func (g *ring) receive(int32, uintptr, uintptr) {}

func (g *ring) run() bool { return false }
