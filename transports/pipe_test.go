package transports

import (
	"syscall"
	"testing"
)

// fakePipe is a kernel with a pipe of the given size. Enlarging the pipe succeeds or fails.
type fakePipe struct {
	*fakeKernel
	size        int
	sizeQueries int
	sizesSet    []int
	getErrno    syscall.Errno
	setErrno    syscall.Errno
}

// newFakePipe returns the kernel and a stream that is known to be a pipe.
func newFakePipe() (*fakePipe, *testStream) {
	p := &fakePipe{fakeKernel: newFakeKernel(), size: defaultPipeSize}
	p.PipeSize = func(int) (int, syscall.Errno) { p.sizeQueries++; return p.size, p.getErrno }
	p.SetPipeSize = func(_, size int) syscall.Errno {
		p.sizesSet = append(p.sizesSet, size)
		return p.setErrno
	}
	s := newTestStream()
	s.io.State |= StatePipe
	return p, s
}

// fill writes more bytes than the pipe accepts, and then the rest.
func (p *fakePipe) fill(s *testStream) { p.transfer(s, defaultPipeSize, defaultPipeSize+1) }

// transfer writes `size` bytes to a pipe that accepts `space` bytes at first, and then the
// remaining bytes. Only the first flush counts for the pipe's pressure.
func (p *fakePipe) transfer(s *testStream, space, size int) {
	s.push(1000, uintptr(size))
	p.sendSpace = space
	flush(s, p.fakeKernel)
	p.sendSpace = 1 << 40
	before := s.pipePressure
	flush(s, p.fakeKernel)
	s.pipePressure = before // the second flush must not count
}

func TestPipeThatIsOftenFullIsEnlarged(t *testing.T) {
	p, s := newFakePipe()
	for range enlargeAt/2 - 1 {
		p.fill(s)
	}
	if p.sizeQueries != 0 {
		t.Fatal("enlarged too early")
	}
	p.fill(s)
	if len(p.sizesSet) != 1 || p.sizesSet[0] != largePipeSize {
		t.Fatalf("sizes set: %v", p.sizesSet)
	}
	for range enlargeAt {
		p.fill(s)
	}
	if p.sizeQueries != 1 || len(p.sizesSet) != 1 {
		t.Errorf("size queried %d times, set %d times", p.sizeQueries, len(p.sizesSet))
	}
}

func TestPipeWithLargeReadsIsEnlarged(t *testing.T) {
	p, s := newFakePipe()
	p.recv = func() (int, syscall.Errno) { return defaultPipeSize, 0 }
	for range enlargeAt / 2 {
		s.Receive(&p.Calls, 1000, largePipeSize)
	}
	if len(p.sizesSet) != 1 {
		t.Errorf("size set %d times", len(p.sizesSet))
	}
}

func TestPipeWithLittleTrafficIsNotEnlarged(t *testing.T) {
	for name, moves := range map[string]func(p *fakePipe, s *testStream){
		"full every third time": func(p *fakePipe, s *testStream) {
			p.fill(s)
			p.transfer(s, 1<<40, 10)
			p.transfer(s, 1<<40, 10)
		},
		"full after few bytes":   func(p *fakePipe, s *testStream) { p.transfer(s, 1000, 1001) },
		"full, nothing was sent": func(p *fakePipe, s *testStream) { p.transfer(s, 0, 10) },
		"a socket": func(p *fakePipe, s *testStream) {
			s.io.State &^= StatePipe
			p.fill(s)
		},
		"small reads": func(p *fakePipe, s *testStream) {
			p.recv = func() (int, syscall.Errno) { return defaultPipeSize - 1, 0 }
			s.Receive(&p.Calls, 1000, largePipeSize)
		},
		"reads without data": func(p *fakePipe, s *testStream) {
			p.recv = func() (int, syscall.Errno) { return -1, syscall.EAGAIN }
			s.Receive(&p.Calls, 1000, largePipeSize)
		},
	} {
		p, s := newFakePipe()
		for range 3 * enlargeAt {
			moves(p, s)
		}
		if p.sizeQueries != 0 || s.pipePressure >= enlargeAt {
			t.Errorf("%s: pressure is %d", name, s.pipePressure)
		}
	}
}

// Errors of fcntl are ignored: the stream continues, and the size is not queried again.
func TestErrorsOfEnlargingAPipeAreIgnored(t *testing.T) {
	for name, spoil := range map[string]func(p *fakePipe, s *testStream){
		"not a pipe":     func(p *fakePipe, _ *testStream) { p.getErrno = syscall.EBADF },
		"not permitted":  func(p *fakePipe, _ *testStream) { p.setErrno = syscall.EPERM },
		"larger already": func(p *fakePipe, _ *testStream) { p.size = 1 << 20 },
		"just as large":  func(p *fakePipe, _ *testStream) { p.size = largePipeSize },
	} {
		p, s := newFakePipe()
		spoil(p, s)
		for range enlargeAt {
			p.fill(s)
		}
		sets := 0
		if name == "not permitted" {
			sets = 1
		}
		if len(p.sizesSet) != sets || p.sizeQueries != 1 || s.pendingBytes() != 0 || s.io.State != StatePipe {
			t.Errorf("%s: size queried %d times, set %d times, %d pending, state %d", name, p.sizeQueries, len(p.sizesSet),
				s.pendingBytes(), s.io.State)
		}
	}
}

// The owner closes the descriptor during the receive, so its number must not be used any more.
func TestPipeIsNotEnlargedAfterItsLeaseEnded(t *testing.T) {
	p, s := newFakePipe()
	word := int32(1)
	s.io.Owner = &word
	p.recv = func() (int, syscall.Errno) { word = -1; return defaultPipeSize, 0 }
	s.pipePressure = enlargeAt - 1
	s.Receive(&p.Calls, 1000, largePipeSize)
	if s.pipePressure < enlargeAt || p.sizeQueries != 0 {
		t.Errorf("pressure is %d, size queried %d times", s.pipePressure, p.sizeQueries)
	}
}
