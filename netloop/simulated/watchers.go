//go:build linux

package simulated

import "golang.org/x/sys/unix"

// Event masks of wake, as on Linux.
const (
	inEvents  = unix.EPOLLIN | unix.EPOLLRDNORM
	outEvents = unix.EPOLLOUT | unix.EPOLLWRNORM
)

// node is the object of an open file.
type node interface {
	// poll returns the node's readiness as bits of epoll.
	poll() uint32
	// release is called when the last descriptor is closed.
	release()
	// watched returns the node's registrations in epolls.
	watched() *watchers
}

// watchers are the registrations of a node in epolls.
type watchers struct {
	k     *Kernel
	items []*item
}

// watched returns the registrations of the node that embeds them.
func (w *watchers) watched() *watchers { return w }

// wake notifies the epolls that some of these events, or with 0 any event, may have occurred. They poll the
// node before they report. The fault Late may delay the notification.
func (w *watchers) wake(events uint32) {
	if w.k == nil {
		return // the node was not installed yet, so no epoll watches it
	}
	if len(w.items) > 0 {
		f := w.k.faultsOf(hostOfNode(w.items[0].key.file.node))
		if w.k.random.chance(f.Late) {
			w.k.schedule(w.k.now+w.k.random.between(1, f.MaxLate), "late", func() { w.wakeNow(events) })
			return
		}
	}
	w.wakeNow(events)
}

// wakeNow is wake without a delay by a fault. It also wakes the threads that wait in idle.
func (w *watchers) wakeNow(events uint32) {
	for _, it := range w.items {
		if it.armed() && (events == 0 || events&it.events != 0) {
			it.list()
		}
	}
	w.k.changed.Broadcast()
}
