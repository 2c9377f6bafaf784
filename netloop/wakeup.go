package netloop

import (
	"runtime"
	"sync/atomic"
	"syscall"
)

// The wakeup ends a wait of the poller from any thread. Shared.WakePending is
// 1 from the first wake until the turn that saw it, so that a thousand wakes cost
// one write. C wakes by the same rule (gl_wake), without a call of Go:
//
//	compare-and-swap wake_pending from 0 to 1; if that was done, gl_wake_up (abi.h).
//
// A waker first leaves its work where the loop will look, then wakes. The turn
// clears WakePending when it has seen the event, and the loop looks for work after
// the turn: work left before the clearing is seen then, work left after it wakes
// again.
//
// The descriptor is an eventfd, or a pipe where there is none; each system's
// file (wakeup_linux.go, wakeup_darwin.go) defines openWakeup, drainWakeup and
// writeWakeup.

// wakeTokens counts the reactors of the process.
var wakeTokens atomic.Uint32

// newWakeToken makes the token that names a reactor's wakeup in its poller, and by which
// its poller is known. No generation is 0, so no registration has it; nor has another
// reactor, and hardly anybody else.
func newWakeToken(now int64) token {
	const odd = 0x9e3779b1 // spreads the bits
	return makeToken((uint32(now)*odd)<<12|wakeTokens.Add(1)&0xfff|0x80000000, 0)
}

// wakeup also keeps the close of a reactor apart from wakes that are under way
// in other threads: neither the descriptor nor the shared block may be touched
// after Close.
type wakeup struct {
	token           token
	readFD, writeFD int
	users           atomic.Int32
	closed          atomic.Bool
}

// Wake makes the current or next turn return early. Any thread may call it; after
// Close it returns EBADF.
func (r *Reactor) Wake() error {
	r.wakeup.users.Add(1)
	defer r.wakeup.users.Add(-1)
	if r.wakeup.closed.Load() {
		return failed("wake", syscall.EBADF)
	}
	if !atomic.CompareAndSwapUint32(&r.shared.WakePending, 0, 1) {
		return nil
	}
	for {
		switch errno := r.calls.WakeWrite(r.poller.number(), r.wakeup.writeFD, uint64(r.wakeup.token)); errno {
		case syscall.EINTR:
		case 0, syscall.EAGAIN:
			// EAGAIN: so many wakes are unread that the poller can't miss them.
			return nil
		default:
			atomic.StoreUint32(&r.shared.WakePending, 0)
			return failed("wakeup", errno)
		}
	}
}

// seenWakeup is called by the turn for the wakeup's event.
func (r *Reactor) seenWakeup() {
	r.calls.WakeDrain(r.wakeup.readFD)
	atomic.StoreUint32(&r.shared.WakePending, 0)
	r.shared.Wakeups++
}

// shut refuses further wakes and waits for those under way, which are short.
func (w *wakeup) shut() {
	w.closed.Store(true)
	for w.users.Load() > 0 {
		runtime.Gosched()
	}
}
