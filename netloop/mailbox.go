package netloop

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// Answer is the end of a request that was worked on elsewhere: a name that was
// resolved. Data is C memory that belongs to whoever takes the answer.
type Answer struct {
	Request uint32
	Code    int32 // an EAI code, or 0
	Errno   int64 // of EAI_SYSTEM
	Data    unsafe.Pointer
}

// mailbox is where other threads leave answers for the turn to collect.
type mailbox struct {
	waiting atomic.Int32 // so that a turn without answers takes no lock
	mu      sync.Mutex
	answers []Answer
	closed  bool
}

// Deliver hands an answer to the reactor and wakes it; any thread may call it. It
// returns false where the reactor is closed: then the answer stays the caller's.
func (r *Reactor) Deliver(a Answer) bool {
	m := &r.mailbox
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return false
	}
	m.answers = append(m.answers, a)
	m.waiting.Add(1)
	m.mu.Unlock()
	_ = r.Wake() // it fails only where the reactor has been closed since
	return true
}

// collect puts the answers into the completions, as many as there is room for.
func (r *Reactor) collectAnswers() {
	m := &r.mailbox
	if m.waiting.Load() == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := min(len(m.answers), r.out.room())
	for _, a := range m.answers[:n] {
		r.out.put(Completion{Kind: CmpResolved, ID: a.Request, Res: a.Code,
			Ptr: uintptr(a.Data), Arg: a.Errno})
	}
	left := copy(m.answers, m.answers[n:])
	clear(m.answers[left:])
	m.answers = m.answers[:left]
	m.waiting.Store(int32(left))
}

// shut refuses further answers and returns those that nobody collected.
func (m *mailbox) shut() []Answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	left := m.answers
	m.answers, m.closed = nil, true
	return left
}
