package netloop

import (
	"sync/atomic"
	"unsafe"
)

// answers is a chain, oldest first, of what was taken from Shared.Answers and did not
// fit into the completions of that turn. The resolver's threads, which are C's
// (pybridge/golib/resolve.c), add to Shared.Answers by compare-and-swap and then wake.
type answers struct{ first uintptr }

func answerAt(address uintptr) *Answer { return *(**Answer)(unsafe.Pointer(&address)) }

// waiting tells whether answers are left. (Those that come meanwhile wake.)
func (a *answers) waiting() bool { return a.first != 0 }

// take joins what has come, the last of which is first in the chain, to what is left.
func (a *answers) take(chain uintptr) {
	var first uintptr
	for chain != 0 {
		answer := answerAt(chain)
		chain, answer.Next, first = answer.Next, first, chain
	}
	last := &a.first
	for *last != 0 {
		last = &answerAt(*last).Next
	}
	*last = first
}

// collectAnswers puts the answers into the completions, as many as there is room for.
func (r *Reactor) collectAnswers() {
	if atomic.LoadUintptr(&r.shared.Answers) != 0 {
		r.answers.take(atomic.SwapUintptr(&r.shared.Answers, 0))
	}
	for r.answers.waiting() && r.out.room() > 0 {
		address := r.answers.first
		a := answerAt(address)
		r.out.put(Completion{Kind: CmpResolved, ID: a.Request, Res: a.Code, Ptr: a.List, Arg: a.Error})
		r.answers.first = a.Next
		a.List, a.Next, r.shared.Spent = 0, r.shared.Spent, address
	}
}

// leaveAnswers gives back what nobody collected, for C to free.
func (r *Reactor) leaveAnswers() {
	for r.answers.waiting() {
		address := r.answers.first
		a := answerAt(address)
		r.answers.first = a.Next
		a.Next, r.shared.Spent = r.shared.Spent, address
	}
}
