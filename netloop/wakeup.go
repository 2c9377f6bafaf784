package netloop

import (
	"runtime"
	"sync/atomic"
	"syscall"
)

// The wake-up ends a wait of the poller from any thread. Shared.WakePending is 1 from the first
// wake-up until the turn that processes the event, so that a thousand wake-ups cost one write. C
// uses the same protocol (gl_wake) without calling Go:
//
//	compare-and-swap wake_pending from 0 to 1; on success call gl_wake_up (abi.h).
//
// A waking thread first queues its work, then wakes. The turn clears WakePending after it has
// seen the event, and the loop checks for queued work after the turn. Therefore work that was
// queued before the clearing is found then, and work that is queued later wakes again.
//
// The descriptor is an eventfd, or a pipe on systems without eventfd. The files of the systems
// (wakeup_eventfd.go, wakeup_pipe.go) define openWakeup, drainWakeup and writeWakeup.

// wakeTokens counts the reactors of the process.
var wakeTokens atomic.Uint32

// newWakeToken returns the token of a reactor's wake-up in its poller, which also identifies the
// poller. now is any time in ns. Generations are never 0, so no registration has this token.
// Another reactor has a different token, and other users of epoll hardly ever have the same
// data.
func newWakeToken(now int64) token {
	const odd = 0x9e3779b1 // spreads the bits
	return makeToken((uint32(now)*odd)<<12|wakeTokens.Add(1)&0xfff|0x80000000, 0)
}

// wakeup has the descriptors of the wake-up. It also makes Close wait for wake-ups in other
// threads, because neither the descriptors nor the shared block may be used after Close.
type wakeup struct {
	token           token
	readFD, writeFD int
	wakesInProgress atomic.Int32
	closed          atomic.Bool
}

// Wake makes the current or next turn return early. Any thread may call it. It does nothing if a
// wake-up is pending already. After Close it returns EBADF, else the errno of a failed write.
func (r *Reactor) Wake() error {
	r.wakeup.wakesInProgress.Add(1)
	defer r.wakeup.wakesInProgress.Add(-1)
	if r.wakeup.closed.Load() {
		return errnoError("wake", syscall.EBADF)
	}
	if !atomic.CompareAndSwapUint32(&r.shared.WakePending, 0, 1) {
		return nil
	}
	for {
		switch errno := r.calls.WakeWrite(r.poller.descriptor(), r.wakeup.writeFD, uint64(r.wakeup.token)); errno {
		case syscall.EINTR:
		case 0, syscall.EAGAIN:
			// EAGAIN: the pipe is full of unread wake-ups, so the poller reports it.
			return nil
		default:
			atomic.StoreUint32(&r.shared.WakePending, 0)
			return errnoError("wakeup", errno)
		}
	}
}

// clearWakeup processes the wake-up's event: later wake-ups cause an event again.
func (r *Reactor) clearWakeup() {
	r.calls.WakeDrain(r.wakeup.readFD)
	atomic.StoreUint32(&r.shared.WakePending, 0)
	r.shared.Wakeups++
}

// close refuses further wake-ups and waits for wake-ups in progress, which are short.
func (w *wakeup) close() {
	w.closed.Store(true)
	for w.wakesInProgress.Load() > 0 {
		runtime.Gosched()
	}
}
