//go:build linux

package simulated

import (
	"container/heap"
	"syscall"
)

// forever is the deadline of a wait without a timeout.
const forever = int64(1<<63 - 1)

// entry is an action that runs at a set time.
type entry struct {
	at   int64
	seq  uint64 // orders entries with the same time
	name string
	run  func() // nil: cancelled
	// isVain reports whether neither the entry nor its consequences can end a wait. nil: they may end one.
	isVain func() bool
}

// cancel removes the entry's action, so that it never runs. e may be nil.
func (e *entry) cancel() {
	if e != nil {
		e.run = nil
	}
}

// agenda is a heap of entries, earliest first, with the methods of container/heap.
type agenda []*entry

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(*entry)) }
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// schedule adds an action to the agenda: run is called when the clock reaches `when`, or at the present
// time if `when` has passed, but never before schedule returns. name is the entry's text in the trace. The
// result is for cancel.
func (k *Kernel) schedule(when int64, name string, run func()) *entry {
	k.seq++
	e := &entry{at: max(when, k.now), seq: k.seq, name: name, run: run}
	heap.Push(&k.agenda, e)
	return e
}

// next returns the first entry that was not cancelled, or nil. It removes cancelled entries before it.
func (k *Kernel) next() *entry {
	for len(k.agenda) > 0 {
		if k.agenda[0].run != nil {
			return k.agenda[0]
		}
		heap.Pop(&k.agenda)
	}
	return nil
}

// runNext moves the clock to the first entry, removes the entry from the agenda and runs it. There must be
// an entry, and it must not be cancelled: next returns it.
func (k *Kernel) runNext() {
	e := heap.Pop(&k.agenda).(*entry)
	k.now = max(k.now, e.at)
	k.trace.entry(k.now, e.name)
	run := e.run
	e.run = nil
	run()
}

// runDue runs all entries whose time is not after the clock's.
func (k *Kernel) runDue() {
	for e := k.next(); e != nil && e.at <= k.now; e = k.next() {
		k.runNext()
	}
}

// agendaCannotEndWait reports whether no entry of the agenda can end a wait. first is the first entry, or
// nil.
func (k *Kernel) agendaCannotEndWait(first *entry) bool {
	if first == nil {
		return true
	}
	for _, e := range k.agenda {
		if e.run != nil && (e.isVain == nil || !e.isVain()) {
			return false
		}
	}
	return true
}

// stepWait makes one step of a wait that ends at the deadline at the latest (ns, or forever). It runs the
// entries of the next time, or moves the clock to the deadline and returns true if there are none before
// the deadline. Without entries and deadline it blocks until another thread changes something. The caller
// has locked the kernel and repeats the call until its condition holds. Errors: ETIME if the wait would
// pass the end of time, EDEADLK if nothing can end a wait without a deadline in a Sealed kernel.
func (k *Kernel) stepWait(deadline int64) (ended bool, errno syscall.Errno) {
	e := k.next()
	until := deadline
	if e != nil {
		until = min(until, e.at)
	}
	switch {
	case deadline == forever && k.options.Sealed && k.agendaCannotEndWait(e):
		return false, syscall.EDEADLK
	case k.end != 0 && until != forever && until > k.end:
		k.now = max(k.now, k.end)
		return false, syscall.ETIME
	case e != nil && e.at <= deadline:
		k.runNext()
		k.runDue() // entries with the same time
	case deadline != forever:
		k.now = max(k.now, deadline)
		return true, 0
	default:
		k.changed.Wait()
	}
	return false, 0
}
