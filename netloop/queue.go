package netloop

// tokens is a ring of registrations, first in first out. It grows as needed and
// allocates nothing once it has found its size.
type tokens struct {
	ring []token
	head int
	n    int
}

// token is an id and a generation in one word.
type token uint64

func makeToken(id, gen uint32) token { return token(gen)<<32 | token(id) }

func (t token) id() uint32  { return uint32(t) }
func (t token) gen() uint32 { return uint32(t >> 32) }

func (q *tokens) push(t token) {
	if q.n == len(q.ring) {
		ring := make([]token, max(64, 2*len(q.ring))) // a power of two
		for i := range q.n {
			ring[i] = q.ring[(q.head+i)&(len(q.ring)-1)]
		}
		q.ring, q.head = ring, 0
	}
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = t
	q.n++
}

func (q *tokens) first() token { return q.ring[q.head] }

// at is the i-th from the front.
func (q *tokens) at(i int) token { return q.ring[(q.head+i)&(len(q.ring)-1)] }

func (q *tokens) pop() token {
	t := q.ring[q.head]
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
	return t
}
