//go:build linux

package simulated

import (
	"cmp"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// epoll works as Linux's: a registration belongs to a number and to the open file that the number had.
// Items that may be ready are in a list, in the order in which they became ready, and are polled when a
// program waits.
type epoll struct {
	watchers
	items map[itemKey]*item
	ready []*item // items that may be ready
	added int     // number of registrations so far
}

// itemKey identifies a registration: the number and the open file that it had when it was registered.
type itemKey struct {
	fd   int
	file *file
}

// item is the registration of one descriptor in an epoll.
type item struct {
	ep       *epoll
	key      itemKey
	added    int    // the epoll's count of registrations, with this one
	events   uint32 // requested events, always with EPOLLERR and EPOLLHUP
	fd, pad  int32  // the program's data, which is returned with an event
	listed   bool   // in epoll.ready
	spurious uint32 // events that the next wait reports although the node is not ready: a fault
}

// private is the set of bits that are not events. An item with only these bits is silent, as after
// EPOLLONESHOT.
const private = unix.EPOLLONESHOT | unix.EPOLLET | unix.EPOLLWAKEUP | unix.EPOLLEXCLUSIVE

// armed reports whether the item reports events. It does not after an event with EPOLLONESHOT.
func (it *item) armed() bool { return it.events&^private != 0 }

// list adds the item to the epoll's items that may be ready, and wakes waits on the epoll.
func (it *item) list() {
	if !it.listed {
		it.listed = true
		it.ep.ready = append(it.ep.ready, it)
	}
	it.ep.wakeNow(inEvents)
}

// set replaces the requested events and the data, and removes an event of a fault. If the node is ready
// now, the item is listed, even if it is edge-triggered.
func (it *item) set(ev *unix.EpollEvent) {
	it.events = ev.Events | unix.EPOLLERR | unix.EPOLLHUP
	it.fd, it.pad, it.spurious = ev.Fd, ev.Pad, 0
	if it.key.file.node.poll()&it.events != 0 {
		it.list()
	}
}

// remove ends the registration: in the epoll, in its list of ready items, and in the node.
func (it *item) remove() {
	delete(it.ep.items, it.key)
	w := it.key.file.node.watched()
	w.items = slices.Delete(w.items, slices.Index(w.items, it), slices.Index(w.items, it)+1)
	if it.listed {
		i := slices.Index(it.ep.ready, it)
		it.ep.ready = slices.Delete(it.ep.ready, i, i+1)
	}
}

// poll returns inEvents if an item is ready, for an epoll that watches this epoll; else 0.
func (ep *epoll) poll() uint32 {
	for _, it := range ep.ready {
		if it.key.file.node.poll()&it.events != 0 {
			return inEvents
		}
	}
	return 0
}

// release ends all registrations, when the epoll's last descriptor is closed.
func (ep *epoll) release() {
	for _, it := range ep.sorted() {
		it.remove()
	}
}

// sorted returns the items in the order of their numbers, because the order of a map is random. Items of one
// number, for several files, are in the order of their registration.
func (ep *epoll) sorted() []*item {
	all := make([]*item, 0, len(ep.items))
	for _, it := range ep.items {
		all = append(all, it)
	}
	slices.SortFunc(all, func(a, b *item) int {
		return cmp.Or(cmp.Compare(a.key.fd, b.key.fd), cmp.Compare(a.added, b.added))
	})
	return all
}

// collect fills events from the front of the list and returns their number; 0: no item is ready.
// Level-triggered items go to the end of the list, and so do items of paused hosts, without an event; items
// that did not fit stay at its front. Items that are not ready leave the list. Items with
// EPOLLONESHOT are disarmed by their event.
func (ep *epoll) collect(events []unix.EpollEvent) int {
	n, back := 0, []*item(nil)
	for len(ep.ready) > 0 && n < len(events) {
		it := ep.ready[0]
		ep.ready = ep.ready[1:]
		if h := hostOfNode(it.key.file.node); h != nil && h.paused {
			back = append(back, it) // reported late, by a fault
			continue
		}
		it.listed = false
		found := it.key.file.node.poll()&it.events | it.spurious
		it.spurious = 0
		if found == 0 {
			continue
		}
		events[n] = unix.EpollEvent{Events: found, Fd: it.fd, Pad: it.pad}
		n++
		switch {
		case it.events&unix.EPOLLONESHOT != 0:
			it.events &= private
		case it.events&unix.EPOLLET == 0:
			it.listed = true
			back = append(back, it)
		}
	}
	ep.ready = append(ep.ready, back...)
	return n
}

// EpollCreate is epoll_create1(2).
func (k *Kernel) EpollCreate(flags int) (int, syscall.Errno) {
	c, errno := k.begin("epoll_create", -1)
	if errno != 0 {
		return c.end(-1, errno)
	}
	return c.end(k.install(&epoll{items: map[itemKey]*item{}}, flags))
}

// controlName returns the name of an epoll_ctl(2) in the trace, by which faults select calls. Each
// operation has its own name, because only adding can fail with ENOMEM.
func controlName(op int) string {
	switch op {
	case unix.EPOLL_CTL_ADD:
		return "epoll_add"
	case unix.EPOLL_CTL_MOD:
		return "epoll_mod"
	case unix.EPOLL_CTL_DEL:
		return "epoll_del"
	}
	return "epoll_ctl"
}

// EpollCtl is epoll_ctl(2), with the errors of epollCtl, or of an injected fault.
func (k *Kernel) EpollCtl(epfd, op, fd int, ev *unix.EpollEvent) syscall.Errno {
	c, errno := k.begin(controlName(op), epfd)
	if errno == 0 {
		errno = k.epollCtl(epfd, op, fd, ev)
	}
	if ev == nil {
		return c.done(errno, op, fd)
	}
	return c.done(errno, op, fd, int(ev.Events))
}

// epollCtl is EpollCtl without the fault and the trace. EBADF for a number that is not open, EPERM for a
// file that cannot be polled, EINVAL if epfd is no epoll or fd is the epoll itself, EEXIST or ENOENT for
// a registration that exists or is missing, ELOOP for a circle of epolls.
func (k *Kernel) epollCtl(epfd, op, fd int, ev *unix.EpollEvent) syscall.Errno {
	poller, f := k.file(epfd), k.file(fd)
	if poller == nil || f == nil {
		return syscall.EBADF
	}
	if _, ok := f.node.(*null); ok {
		return syscall.EPERM
	}
	ep, ok := poller.node.(*epoll)
	if !ok || poller == f {
		return syscall.EINVAL
	}
	key := itemKey{fd, f}
	it := ep.items[key]
	switch {
	case op == unix.EPOLL_CTL_ADD && it != nil:
		return syscall.EEXIST
	case op == unix.EPOLL_CTL_ADD:
		if inner, ok := f.node.(*epoll); ok && inner.reaches(ep) {
			return syscall.ELOOP
		}
		ep.added++
		it = &item{ep: ep, key: key, added: ep.added}
		ep.items[key] = it
		w := f.node.watched()
		w.items = append(w.items, it)
		it.set(ev)
	case it == nil && (op == unix.EPOLL_CTL_MOD || op == unix.EPOLL_CTL_DEL):
		return syscall.ENOENT
	case op == unix.EPOLL_CTL_MOD:
		it.set(ev)
	case op == unix.EPOLL_CTL_DEL:
		it.remove()
	default:
		return syscall.EINVAL
	}
	return 0
}

// reaches reports whether this epoll watches another one, directly or through other epolls.
func (ep *epoll) reaches(other *epoll) bool {
	for key := range ep.items {
		if inner, ok := key.file.node.(*epoll); ok && (inner == other || inner.reaches(other)) {
			return true
		}
	}
	return false
}

// EpollWait is epoll_pwait2(2) with a timeout in ns; < 0 waits without a limit. It returns the number of
// events, 0 after the timeout. EBADF or EINVAL for a wrong epfd or without space for events, ETIME or
// EDEADLK as idle returns them.
func (k *Kernel) EpollWait(epfd int, events []unix.EpollEvent, timeout int64) (int, syscall.Errno) {
	name := "epoll_wait"
	if timeout > 0 {
		name = "epoll_pwait2"
	}
	c, errno := k.begin(name, epfd)
	f := k.file(epfd)
	if errno == 0 && f == nil {
		errno = syscall.EBADF
	}
	if errno != 0 {
		return c.end(-1, errno, int(timeout))
	}
	ep, ok := f.node.(*epoll)
	if !ok || len(events) == 0 {
		return c.end(-1, syscall.EINVAL, int(timeout))
	}
	deadline := k.now + timeout
	if timeout < 0 || deadline < k.now {
		deadline = forever
	}
	ep.addSpuriousEvent()
	for {
		n := ep.collect(events)
		if n > 0 || timeout == 0 {
			return c.end(n, 0, int(timeout))
		}
		if ended, errno := k.stepWait(deadline); errno != 0 {
			return c.end(-1, errno, int(timeout))
		} else if ended {
			timeout = 0 // poll once more
		}
	}
}

// FDInfo returns the part of /proc/self/fdinfo that goloop reads: the line eventfd-count of an eventfd,
// the lines tfd of an epoll. Other descriptors have only pos and flags, which are constants. It returns
// ENOENT if fd is not open, or the errno of an injected fault.
func (k *Kernel) FDInfo(fd int) ([]byte, syscall.Errno) {
	c, errno := k.begin("fdinfo", fd)
	f := k.file(fd)
	if f == nil {
		errno = syscall.ENOENT
	}
	if errno != 0 {
		return nil, c.done(errno)
	}
	text := []byte("pos:\t0\nflags:\t02\n")
	switch n := f.node.(type) {
	case *eventFD:
		text = append(text, "eventfd-count: "+padded(n.count, 16, 16, ' ')+"\n"...)
	case *epoll:
		for _, it := range n.sorted() {
			data := uint64(uint32(it.fd)) | uint64(uint32(it.pad))<<32
			text = append(text, "tfd: "+padded(uint64(it.key.fd), 10, 8, ' ')+
				" events: "+padded(uint64(it.events), 16, 8, ' ')+" data: "+padded(data, 16, 16, ' ')+"\n"...)
		}
	}
	return text, c.done(0)
}
