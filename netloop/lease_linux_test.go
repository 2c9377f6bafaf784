package netloop

import (
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// owned makes a stream whose descriptor has an owner, and returns where that keeps
// its number.
func (l *loop) owned() (stream, *int32) {
	l.t.Helper()
	a, b := pair(l.t)
	word := (*int32)(unsafe.Pointer(&memory(l.t, 4)[0]))
	*word = int32(a)
	io := reading()
	io.Owner = word
	id, gen, err := l.r.StreamOpen(int32(a), io, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = l.r.Forget(id, gen)
		_ = sys.Close(a)
		_ = sys.Close(b)
	})
	return stream{id: id, gen: gen, fd: int32(a), peer: b, io: io}, word
}

func TestNothingIsSentOnceTheOwnerHasGone(t *testing.T) {
	for _, streams := range []int{1, ringLeast + 2} { // alone, and in a batch
		l := usualLoop(t)
		var all []stream
		for range streams {
			s, word := l.owned()
			l.write(s, inC(t, []byte("secret")))
			*word = -1
			all = append(all, s)
		}
		failed := 0
		for range 2 {
			for _, d := range l.turn(0) {
				if d.Kind == CmpWriteError && syscall.Errno(d.Res) == syscall.EBADF {
					failed++
				}
			}
		}
		if failed != streams {
			t.Errorf("%d of %d streams were told EBADF", failed, streams)
		}
		for _, s := range all {
			if heard := hear(t, s.peer); len(heard) > 0 {
				t.Errorf("a peer heard %q", heard)
			}
		}
	}
}

func TestNothingIsReceivedOnceTheOwnerHasGone(t *testing.T) {
	l := usualLoop(t)
	s, word := l.owned()
	say(t, s.peer, []byte("the new owner's"))
	*word = -1
	got := l.turn(0)
	expectKinds(t, got, CmpReadError)
	if syscall.Errno(got[0].Res) != syscall.EBADF {
		t.Errorf("told %v", syscall.Errno(got[0].Res))
	}
	if left := hear(t, int(s.fd)); string(left) != "the new owner's" {
		t.Errorf("left to read: %q", left)
	}
	l.quiet()
}

func TestAnOwnerThatComesLater(t *testing.T) {
	l := usualLoop(t)
	word := (*int32)(unsafe.Pointer(&memory(t, 4)[0])) // outlives the stream
	s := l.stream(0)
	*word = -1
	s.io.Owner = word
	say(t, s.peer, []byte("x"))
	expectKinds(t, l.turn(0), CmpReadError)
}

// A number whose owner has gone is anybody's: a watch may have it.
func TestAWatchOfANumberWhoseOwnerHasGone(t *testing.T) {
	l := usualLoop(t)
	s, word := l.owned()
	if _, _, err := l.r.WatchOpen(s.fd, uint32(readable), 0); ErrnoOf(err) != syscall.EEXIST {
		t.Fatalf("a transport's number was given to a watch: %v", err)
	}
	*word = -1
	id, gen, err := l.r.WatchOpen(s.fd, uint32(readable), 0)
	if err != nil {
		t.Fatal(err)
	}
	say(t, s.peer, []byte("x"))
	got := l.turn(0)
	expectKinds(t, got, CmpReady)
	if got[0].ID != id {
		t.Errorf("ready: %d, not the watch %d", got[0].ID, id)
	}
	if err := l.r.Forget(id, gen); err != nil {
		t.Error(err)
	}
}

// So is one whose descriptor was closed without a word, as the kernel tells.
func TestAWatchOfANumberThatWasUsedAgain(t *testing.T) {
	l := usualLoop(t)
	a, b := pair(t)
	s := l.open(a, 0)
	_ = sys.Close(a)
	c, d := pair(t)
	if c != a {
		t.Fatalf("the kernel gave %d, not %d", c, a)
	}
	id, gen, err := l.r.WatchOpen(int32(c), uint32(readable), 0)
	if err != nil {
		t.Fatal(err)
	}
	say(t, d, []byte("x"))
	expectKinds(t, l.turn(0), CmpReady)
	if err := l.r.Forget(id, gen); err != nil {
		t.Error(err)
	}
	if err := l.r.Forget(s.id, s.gen); err != nil {
		t.Error(err)
	}
	for _, fd := range []int{b, c, d} {
		_ = sys.Close(fd)
	}
}

func TestAListenerAndADatagramSocketWhoseOwnersHaveGone(t *testing.T) {
	l := usualLoop(t)
	word := (*int32)(unsafe.Pointer(&memory(t, 4)[0]))
	a, b, err := func() (int, int, error) {
		ends, err := sys.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
		return ends[0], ends[1], err
	}()
	if err != nil {
		t.Fatal(err)
	}
	*word = int32(a)
	id, gen, err := l.r.DatagramOpen(int32(a), word, uint32(readable))
	if err != nil {
		t.Fatal(err)
	}
	say(t, b, []byte("the new owner's"))
	*word = -1
	expectKinds(t, l.turn(0), CmpDatagramError)
	if err := l.r.Forget(id, gen); err != nil {
		t.Error(err)
	}
	if left := hear(t, a); string(left) != "the new owner's" {
		t.Errorf("left to read: %q", left)
	}
	_ = sys.Close(a)
	_ = sys.Close(b)

	listening, err := sys.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	address := &unix.SockaddrUnix{Name: t.TempDir() + "/s"}
	if err := sys.Bind(listening, address); err != nil {
		t.Fatal(err)
	}
	if err := sys.Listen(listening, 5); err != nil {
		t.Fatal(err)
	}
	*word = int32(listening)
	id, gen, err = l.r.ListenerOpen(int32(listening), word, 10, 0)
	if err != nil {
		t.Fatal(err)
	}
	*word = -1
	client, err := sys.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := sys.Connect(client, address); err != nil {
		t.Fatal(err)
	}
	expectKinds(t, l.turn(0), CmpAcceptError) // and nothing was accepted
	if fd, _, err := sys.Accept(listening); err != nil {
		t.Errorf("the connection is not the new owner's: %v", err)
	} else {
		_ = sys.Close(fd)
	}
	if err := l.r.Forget(id, gen); err != nil {
		t.Error(err)
	}
	_ = sys.Close(client)
	_ = sys.Close(listening)
}
