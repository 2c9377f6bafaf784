package netloop

// tokenQueue is a FIFO of registrations. It grows as needed and does not allocate once it has
// reached its maximum size.
type tokenQueue struct {
	buf  []token
	head int
	n    int
}

// token is an id and a generation in one word.
type token uint64

// makeToken packs an id and a generation.
func makeToken(id, gen uint32) token { return token(gen)<<32 | token(id) }

// id returns the id in a token.
func (t token) id() uint32 { return uint32(t) }

// gen returns the generation in a token.
func (t token) gen() uint32 { return uint32(t >> 32) }

// push appends a token. It allocates only if the queue is full.
func (q *tokenQueue) push(t token) {
	if q.n == len(q.buf) {
		buf := make([]token, max(64, 2*len(q.buf))) // always a power of two
		for i := range q.n {
			buf[i] = q.buf[(q.head+i)&(len(q.buf)-1)]
		}
		q.buf, q.head = buf, 0
	}
	q.buf[(q.head+q.n)&(len(q.buf)-1)] = t
	q.n++
}

// first returns the token at the front. The queue must not be empty.
func (q *tokenQueue) first() token { return q.buf[q.head] }

// pop removes the token at the front and returns it. The queue must not be empty.
func (q *tokenQueue) pop() token {
	t := q.buf[q.head]
	q.head = (q.head + 1) & (len(q.buf) - 1)
	q.n--
	return t
}
