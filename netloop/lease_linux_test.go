package netloop

import (
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ownedStream returns a stream whose descriptor has an owner, and the address of the owner's
// number.
func (l *loop) ownedStream() (testStream, *int32) {
	l.t.Helper()
	a, b := pair(l.t)
	word := (*int32)(unsafe.Pointer(&mapMemory(l.t, 4)[0]))
	*word = int32(a)
	io := readingRecord()
	io.Owner = word
	id, gen, err := l.r.StreamOpen(int32(a), io, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = l.r.Deregister(id, gen)
		_ = sys.Close(a)
		_ = sys.Close(b)
	})
	return testStream{id: id, gen: gen, fd: int32(a), peer: b, io: io}, word
}

func TestStreamDoesNotSendWithoutLease(t *testing.T) {
	for _, streams := range []int{1, 7} {
		l := defaultLoop(t)
		var all []testStream
		for range streams {
			s, word := l.ownedStream()
			l.write(s, copyToC(t, []byte("secret")))
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
			t.Errorf("%d of %d streams got EBADF", failed, streams)
		}
		for _, s := range all {
			if received := readPeer(t, s.peer); len(received) > 0 {
				t.Errorf("a peer received %q", received)
			}
		}
	}
}

func TestStreamDoesNotReceiveWithoutLease(t *testing.T) {
	l := defaultLoop(t)
	s, word := l.ownedStream()
	writePeer(t, s.peer, []byte("the new owner's"))
	*word = -1
	got := l.turn(0)
	expectKinds(t, got, CmpReadError)
	if syscall.Errno(got[0].Res) != syscall.EBADF {
		t.Errorf("got %v", syscall.Errno(got[0].Res))
	}
	if left := readPeer(t, int(s.fd)); string(left) != "the new owner's" {
		t.Errorf("unread bytes: %q", left)
	}
	l.expectIdle()
}

func TestStreamGetsAnOwnerAfterItWasOpened(t *testing.T) {
	l := defaultLoop(t)
	word := (*int32)(unsafe.Pointer(&mapMemory(t, 4)[0])) // outlives the stream
	s := l.stream(0)
	*word = -1
	s.io.Owner = word
	writePeer(t, s.peer, []byte("x"))
	expectKinds(t, l.turn(0), CmpReadError)
}

// After the owner has closed a number, a watch may use it.
func TestWatchOnTheFDOfAStreamWithoutLease(t *testing.T) {
	l := defaultLoop(t)
	s, word := l.ownedStream()
	if _, _, err := l.r.WatchOpen(s.fd, uint32(readable), 0); ErrnoOf(err) != syscall.EEXIST {
		t.Fatalf("a transport's number was given to a watch: %v", err)
	}
	*word = -1
	id, gen, err := l.r.WatchOpen(s.fd, uint32(readable), 0)
	if err != nil {
		t.Fatal(err)
	}
	writePeer(t, s.peer, []byte("x"))
	got := l.turn(0)
	expectKinds(t, got, CmpReady)
	if got[0].ID != id {
		t.Errorf("ready: %d, not the watch %d", got[0].ID, id)
	}
	if err := l.r.Deregister(id, gen); err != nil {
		t.Error(err)
	}
}

// A number whose descriptor was closed without notice can be watched, too: the kernel
// reports that the registration is gone.
func TestWatchOnTheFDOfAClosedStream(t *testing.T) {
	l := defaultLoop(t)
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
	writePeer(t, d, []byte("x"))
	expectKinds(t, l.turn(0), CmpReady)
	if err := l.r.Deregister(id, gen); err != nil {
		t.Error(err)
	}
	if err := l.r.Deregister(s.id, s.gen); err != nil {
		t.Error(err)
	}
	for _, fd := range []int{b, c, d} {
		_ = sys.Close(fd)
	}
}

func TestListenerAndDatagramSocketWithoutLease(t *testing.T) {
	l := defaultLoop(t)
	word := (*int32)(unsafe.Pointer(&mapMemory(t, 4)[0]))
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
	writePeer(t, b, []byte("the new owner's"))
	*word = -1
	expectKinds(t, l.turn(0), CmpDatagramError)
	if err := l.r.Deregister(id, gen); err != nil {
		t.Error(err)
	}
	if left := readPeer(t, a); string(left) != "the new owner's" {
		t.Errorf("unread bytes: %q", left)
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
	expectKinds(t, l.turn(0), CmpAcceptError) // and no connection was accepted
	if fd, _, err := sys.Accept(listening); err != nil {
		t.Errorf("the connection is not the new owner's: %v", err)
	} else {
		_ = sys.Close(fd)
	}
	if err := l.r.Deregister(id, gen); err != nil {
		t.Error(err)
	}
	_ = sys.Close(client)
	_ = sys.Close(listening)
}
