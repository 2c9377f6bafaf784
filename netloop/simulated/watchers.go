//go:build linux

package simulated

import "golang.org/x/sys/unix"

// The events that a wake names, as Linux does.
const (
	inEvents  = unix.EPOLLIN | unix.EPOLLRDNORM
	outEvents = unix.EPOLLOUT | unix.EPOLLWRNORM
)

// node is what an open file names.
type node interface {
	// poll is the node's readiness, by the bits of epoll.
	poll() uint32
	// release is called when the last descriptor has gone.
	release()
	watched() *watchers
}

// watchers are the registrations of a node in epolls.
type watchers struct {
	k     *Kernel
	items []*item
}

func (w *watchers) watched() *watchers { return w }

// wake tells the epolls that some of these events, or with 0 any, may have come. They ask poll
// before they tell the program.
func (w *watchers) wake(events uint32) {
	if w.k == nil {
		return // not watched yet: a connection that waits to be accepted, say
	}
	if len(w.items) > 0 {
		f := w.k.faultsOf(homeOf(w.items[0].key.file.node))
		if w.k.random.chance(f.Late) {
			w.k.at(w.k.now+w.k.random.between(1, f.LateMost), "late", func() { w.wakeNow(events) })
			return
		}
	}
	w.wakeNow(events)
}

func (w *watchers) wakeNow(events uint32) {
	for _, it := range w.items {
		if it.armed() && (events == 0 || events&it.events != 0) {
			it.list()
		}
	}
	w.k.changed.Broadcast()
}
