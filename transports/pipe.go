package transports

// Through a pipe of 64 KiB its two sides put each other to sleep and wake each other for
// every 64 KiB, which costs more than the copying. One that was full again and again, so
// that its writer had to wait, is made larger, if the kernel permits: it refuses where
// the user's pipes have 64 MiB in all. A pipe with little to do stays as it was, and one
// that its owner has made larger too.
const (
	pipeUsual = 64 << 10 // what Linux gives a pipe
	pipeLarge = 256 << 10

	// busyEnough is the count at which a pipe is enlarged.
	busyEnough = 32
)

// busy is twice how often a pipe was full, less how often it was not: full counts
// twice, as a writer whose queue is a little longer than the pipe finds it full every
// other time. At busyEnough it stays.
type busy uint8

// noteMoved counts that n bytes have gone through the stream at once. Where it is a pipe
// and was full once too often, the pipe is enlarged.
func (s *Stream) noteMoved(c *Calls, n int, full bool) {
	if n <= 0 || !s.has(StatePipe) || s.busy >= busyEnough {
		return
	}
	switch {
	case full && n >= pipeUsual/4:
		s.busy += 2
	case s.busy > 0:
		s.busy--
	}
	if s.busy >= busyEnough && s.Held() {
		// Errors are of no consequence: this may be a terminal, or the user's share of
		// memory for pipes is used up.
		if size, errno := c.PipeSize(int(s.fd)); errno == 0 && size < pipeLarge {
			_ = c.SetPipeSize(int(s.fd), pipeLarge)
		}
	}
}
