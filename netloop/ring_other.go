//go:build !linux

package netloop

// RingCalls are the system calls of the ring: there is none here.
type RingCalls struct{}

func systemRingCalls() RingCalls { return RingCalls{} }

// ring is never open here, see ring.go.
type ring struct{ ringBatch }

func (g *ring) open(*RingCalls) ringState { return ringRefused }

func (g *ring) close(bool) {}

func (g *ring) number() int { return -1 }

func (g *ring) send(int32, uintptr, uintptr) {}

func (g *ring) receive(int32, uintptr, uintptr) {}

func (g *ring) run() bool { return false }
