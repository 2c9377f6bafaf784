package transports

import (
	"syscall"
	"testing"
)

// pipes is a kernel whose pipes have this size and are enlarged, or not.
type pipes struct {
	*wire
	size  int
	asked int
	set   []int
	get   syscall.Errno
	errno syscall.Errno
}

// newPipes also makes a stream that is known to be a pipe.
func newPipes() (*pipes, *sender) {
	p := &pipes{wire: newWire(), size: pipeUsual}
	p.PipeSize = func(int) (int, syscall.Errno) { p.asked++; return p.size, p.get }
	p.SetPipeSize = func(_, size int) syscall.Errno {
		p.set = append(p.set, size)
		return p.errno
	}
	s := newSender()
	s.io.State |= StatePipe
	return p, s
}

// fill writes more than the pipe takes; drain writes what it takes.
func (p *pipes) fill(s *sender) { p.move(s, pipeUsual, pipeUsual+1) }

func (p *pipes) move(s *sender, room, size int) {
	s.push(1000, uintptr(size))
	p.room = room
	flush(s, p.wire)
	p.room = 1 << 40
	before := s.busy
	flush(s, p.wire)
	s.busy = before // the rest is no matter here
}

func TestAPipeThatIsFullAgainAndAgainIsEnlarged(t *testing.T) {
	p, s := newPipes()
	for range busyEnough/2 - 1 {
		p.fill(s)
	}
	if p.asked != 0 {
		t.Fatal("enlarged too soon")
	}
	p.fill(s)
	if len(p.set) != 1 || p.set[0] != pipeLarge {
		t.Fatalf("the sizes that were set are %v", p.set)
	}
	for range busyEnough {
		p.fill(s)
	}
	if p.asked != 1 || len(p.set) != 1 {
		t.Errorf("asked %d times, set %d times", p.asked, len(p.set))
	}
}

func TestAPipeThatIsReadFullIsEnlarged(t *testing.T) {
	p, s := newPipes()
	p.recv = func() (int, syscall.Errno) { return pipeUsual, 0 }
	for range busyEnough / 2 {
		s.Receive(&p.Calls, 1000, pipeLarge)
	}
	if len(p.set) != 1 {
		t.Errorf("set %d times", len(p.set))
	}
}

func TestWhichPipesAreLeftAlone(t *testing.T) {
	for name, moves := range map[string]func(p *pipes, s *sender){
		"full and not full": func(p *pipes, s *sender) {
			p.fill(s)
			p.move(s, 1<<40, 10)
			p.move(s, 1<<40, 10)
		},
		"full of little":     func(p *pipes, s *sender) { p.move(s, 1000, 1001) },
		"full, nothing went": func(p *pipes, s *sender) { p.move(s, 0, 10) },
		"a socket": func(p *pipes, s *sender) {
			s.io.State &^= StatePipe
			p.fill(s)
		},
		"reads of little": func(p *pipes, s *sender) {
			p.recv = func() (int, syscall.Errno) { return pipeUsual - 1, 0 }
			s.Receive(&p.Calls, 1000, pipeLarge)
		},
		"reads of nothing": func(p *pipes, s *sender) {
			p.recv = func() (int, syscall.Errno) { return -1, syscall.EAGAIN }
			s.Receive(&p.Calls, 1000, pipeLarge)
		},
	} {
		p, s := newPipes()
		for range 3 * busyEnough {
			moves(p, s)
		}
		if p.asked != 0 || s.busy >= busyEnough {
			t.Errorf("%s: busy is %d", name, s.busy)
		}
	}
}

// What fcntl says is nobody's concern: the stream goes on, and it is not asked again.
func TestErrorsOfEnlarging(t *testing.T) {
	for name, spoil := range map[string]func(p *pipes, s *sender){
		"no pipe":         func(p *pipes, _ *sender) { p.get = syscall.EBADF },
		"no leave":        func(p *pipes, _ *sender) { p.errno = syscall.EPERM },
		"larger already":  func(p *pipes, _ *sender) { p.size = 1 << 20 },
		"of another size": func(p *pipes, _ *sender) { p.size = pipeLarge },
	} {
		p, s := newPipes()
		spoil(p, s)
		for range busyEnough {
			p.fill(s)
		}
		sets := 0
		if name == "no leave" {
			sets = 1
		}
		if len(p.set) != sets || p.asked != 1 || s.pending() != 0 || s.io.State != StatePipe {
			t.Errorf("%s: asked %d times, set %d, %d pending, state %d", name, p.asked, len(p.set),
				s.pending(), s.io.State)
		}
	}
}

// A number that the owner gave away in the call before is not touched.
func TestNoPipeOfAnotherIsEnlarged(t *testing.T) {
	p, s := newPipes()
	word := int32(1)
	s.io.Owner = &word
	p.recv = func() (int, syscall.Errno) { word = -1; return pipeUsual, 0 }
	s.busy = busyEnough - 1
	s.Receive(&p.Calls, 1000, pipeLarge)
	if s.busy < busyEnough || p.asked != 0 {
		t.Errorf("busy is %d, asked %d times", s.busy, p.asked)
	}
}
