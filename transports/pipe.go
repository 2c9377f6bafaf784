package transports

// With a pipe of 64 KiB, the writer and the reader put each other to sleep and wake each other
// for every 64 KiB, which costs more than copying the bytes. A pipe that was repeatedly full,
// so that its writer had to wait, is enlarged if the kernel permits. The kernel refuses if the
// user's pipes have 64 MiB in total. A pipe with little traffic keeps its size, and so does a
// pipe that its owner has already enlarged.
const (
	defaultPipeSize = 64 << 10 // default of Linux
	largePipeSize   = 256 << 10

	// enlargeAt is the pressure at which a pipe is enlarged.
	enlargeAt = 32
)

// pipePressure is twice the number of transfers that found the pipe full, minus the number of
// other transfers. A full pipe counts twice because a writer with a queue that is a little
// longer than the pipe finds it full every other time. The value stays at enlargeAt once it is
// reached.
type pipePressure uint8

// enlargeIfBusy counts a transfer of n bytes, which found the pipe full or not. It enlarges a
// pipe when its pressure reaches enlargeAt. If n is 0 it does nothing.
func (s *Stream) enlargeIfBusy(c *Calls, n int, full bool) {
	if n <= 0 || s.pipePressure >= enlargeAt {
		return
	}
	switch {
	case full && n >= defaultPipeSize/4:
		s.pipePressure += 2
	case s.pipePressure > 0:
		s.pipePressure--
	}
	if s.pipePressure >= enlargeAt && s.LeaseValid() {
		// Errors are ignored: the descriptor may be a terminal, or the user's pipes may have
		// reached the memory limit.
		if size, errno := c.PipeSize(int(s.fd)); errno == 0 && size < largePipeSize {
			_ = c.SetPipeSize(int(s.fd), largePipeSize)
		}
	}
}
