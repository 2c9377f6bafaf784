//go:build linux

package simulated

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// must returns v, or panics if there is an error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// check panics if there is an error.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

// expect fails the test unless the errors have the same errno.
func expect(t *testing.T, what string, got, want error) {
	t.Helper()
	if outcome(got) != outcome(want) {
		t.Fatalf("%s: %s, want %s", what, outcome(got), outcome(want))
	}
}

// loopback is the loopback address with port 0.
var loopback = &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}

// connection makes a TCP connection with two blocking ends.
func connection(p Program) (client, server, listener int) {
	listener = must(p.Socket(unix.AF_INET, unix.SOCK_STREAM, 0))
	check(p.Bind(listener, loopback))
	check(p.Listen(listener, 10))
	client = must(p.Socket(unix.AF_INET, unix.SOCK_STREAM, 0))
	check(p.Connect(client, must(p.Getsockname(listener))))
	server, _, err := p.Accept(listener)
	check(err)
	return client, server, listener
}

func TestWhoWaitsMovesTheClockToTheNextDeadline(t *testing.T) {
	p := Program{New(Options{Sealed: true, Start: 5})}
	timer := must(p.TimerfdCreate(unix.CLOCK_MONOTONIC, 0))
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(3_600_000_000_000)}
	check(p.TimerfdSettime(timer, 0, &spec, nil))
	ep := must(p.EpollCreate1(0))
	check(p.EpollCtl(ep, unix.EPOLL_CTL_ADD, timer, &unix.EpollEvent{Events: unix.EPOLLIN}))
	events := make([]unix.EpollEvent, 10)
	if n := must(p.EpollWait(ep, events, 1000)); n != 0 || p.Now() != 1_000_000_005 {
		t.Fatalf("%d events at %d ns", n, p.Now())
	}
	if n := must(p.EpollWait(ep, events, -1)); n != 1 || p.Now() != 3_600_000_000_005 {
		t.Fatalf("%d events at %d ns", n, p.Now())
	}
	if n := must(p.Read(timer, make([]byte, 8))); n != 8 {
		t.Fatalf("read %d bytes", n)
	}
	_, err := p.EpollWait(ep, events, -1)
	expect(t, "a wait that nothing can end", err, unix.EDEADLK)
}

func TestTimeEnds(t *testing.T) {
	p := Program{New(Options{Sealed: true})}
	p.SetEnd(5_000_000_000)
	ep := must(p.EpollCreate1(0))
	events := make([]unix.EpollEvent, 1)
	if n := must(p.EpollWait(ep, events, 4000)); n != 0 || p.Now() != 4_000_000_000 {
		t.Fatalf("%d events at %d ns", n, p.Now())
	}
	_, err := p.EpollWait(ep, events, 1001)
	expect(t, "a wait beyond the end", err, unix.ETIME)
	expect(t, "a sleep beyond the end", failure(p.Sleep(1)), unix.ETIME)
	if p.Now() != 5_000_000_000 {
		t.Errorf("time ended at %d ns", p.Now())
	}
	p.SetEnd(0)
	expect(t, "a sleep", failure(p.Sleep(1)), nil)
}

func TestABlockingCallWaitsForWhatIsOnTheWay(t *testing.T) {
	p := Program{New(Options{Sealed: true, Network: Network{MinLatency: 1000, MaxLatency: 1000}})}
	client, server, listener := connection(p)
	if p.Now() != 3000 {
		t.Errorf("a handshake takes %d ns", p.Now())
	}
	must(p.Write(client, []byte("there")))
	b := make([]byte, 10)
	if n := must(p.Read(server, b)); string(b[:n]) != "there" || p.Now() != 4000 {
		t.Errorf("%q at %d ns", b[:n], p.Now())
	}
	for _, fd := range []int{client, server, listener} {
		check(p.Close(fd))
	}
	p.Sleep(10_000)
	if p.Descriptors() != 3 || len(p.Kernel.hosts[0].ports[0].taken) != 0 && slices.ContainsFunc(ported(p.Kernel), func(n int) bool { return n > 0 }) {
		t.Errorf("%d descriptors are open, ports are taken by %v", p.Descriptors(), ported(p.Kernel))
	}
}

// ported returns the number of sockets of each TCP port that was ever in use.
func ported(k *Kernel) (all []int) {
	for _, sockets := range k.hosts[0].ports[0].taken {
		all = append(all, len(sockets))
	}
	return all
}

func TestAFinBeforeTheConnectionIsCompleteIsKept(t *testing.T) {
	p := Program{New(Options{Sealed: true, Network: Network{Storm: 1, StormEvery: 1_000_000}})}
	listener := must(p.Socket(unix.AF_INET, unix.SOCK_STREAM, 0))
	check(p.Bind(listener, loopback))
	check(p.Listen(listener, 10))
	for range 3 {
		client := must(p.Socket(unix.AF_INET, unix.SOCK_STREAM, 0))
		check(p.Connect(client, must(p.Getsockname(listener))))
		must(p.Write(client, []byte("all")))
		check(p.Close(client))
	}
	if p.ready(listener) != 0 {
		t.Fatal("a connection came before the storm")
	}
	server, _, err := p.Accept(listener)
	check(err)
	if p.Now() != 1_000_000 || len(p.file(listener).node.(*tcp).waiting) != 2 {
		t.Errorf("accepted at %d ns, and the others do not wait", p.Now())
	}
	b := make([]byte, 10)
	if n := must(p.Read(server, b)); string(b[:n]) != "all" {
		t.Errorf("read %q", b[:n])
	}
	if n := must(p.Read(server, b)); n != 0 {
		t.Errorf("read %d bytes at the end", n)
	}
}

func TestPacketsOfAnEarlierConnectionDoNotReachALaterOne(t *testing.T) {
	p := Program{New(Options{Sealed: true, Network: Network{MinLatency: 1000, MaxLatency: 1000}})}
	client, server, listener := connection(p)
	must(p.Write(server, []byte("old")))
	check(p.Connect(client, nil)) // ends the connection: the address is AF_UNSPEC
	check(p.Connect(client, must(p.Getsockname(listener))))
	second, _, err := p.Accept(listener)
	check(err)
	must(p.Write(second, []byte("new")))
	b := make([]byte, 10)
	if n := must(p.Read(client, b)); string(b[:n]) != "new" {
		t.Errorf("read %q", b[:n])
	}
	_, err = p.Read(server, b)
	expect(t, "a read at the other end of the old one", err, unix.ECONNRESET)
}

// chatter runs two connections and datagrams through all options of the network, and returns the received
// bytes.
func chatter(options Options) []byte {
	p := Program{New(options)}
	client, server, _ := connection(p)
	var came []byte
	b := make([]byte, 3000)
	for i := range 200 {
		for sent := 0; sent < 100+i; {
			n, err := p.Write(client, bytes.Repeat([]byte{byte(i)}, 100+i-sent))
			if err == nil {
				sent += n
			} else if err != unix.EINTR {
				return fmt.Append(came, err)
			}
		}
		if n, err := p.Read(server, b[:1+i*7%900]); err == nil {
			came = append(came, b[:n]...)
		} else if err != unix.EINTR {
			return fmt.Append(came, err)
		}
	}
	return came
}

// wild returns options with latency, fragments and faults.
func wild(seed uint64, trace *bytes.Buffer) Options {
	return Options{
		Seed: seed, Sealed: true, CallTime: 100, Trace: trace,
		Network: Network{MinLatency: 1000, MaxLatency: 5_000_000, Fragment: .3, Coalesce: .2, SlowReader: .1, MaxSlow: 1000},
		Faults:  Faults{ShortReads: .1, ShortWrites: .1, OneByte: .1, Late: .1, MaxLate: 1000, Errors: []Fault{{Errno: unix.EINTR, Call: "read", Chance: .05}}},
	}
}

func TestASeedGivesTheSameTraceInEachProcess(t *testing.T) {
	const name = "GOLOOP_TEST_TRACE_TO"
	var first, second, other bytes.Buffer
	chatter(wild(7, &first))
	if path := os.Getenv(name); path != "" {
		check(os.WriteFile(path, first.Bytes(), 0o600))
		return
	}
	chatter(wild(7, &second))
	chatter(wild(8, &other))
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two runs in one process differ")
	}
	if bytes.Equal(first.Bytes(), other.Bytes()) {
		t.Error("the seed makes no difference")
	}
	path := t.TempDir() + "/trace"
	command := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	command.Env = append(os.Environ(), name+"="+path)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if elsewhere := must(os.ReadFile(path)); !bytes.Equal(first.Bytes(), elsewhere) {
		t.Error("another process has another trace")
	}
	if first.Len() < 10_000 {
		t.Errorf("a trace of %d bytes", first.Len())
	}
}

func TestTheBytesOfAStreamStayInOrderWhateverHappensToThem(t *testing.T) {
	for seed := range uint64(50) {
		var trace bytes.Buffer
		came := chatter(wild(seed, &trace))
		var want []byte
		for i := range 200 {
			want = append(want, bytes.Repeat([]byte{byte(i)}, 100+i)...)
		}
		if len(came) == 0 || !bytes.HasPrefix(want, came) {
			t.Fatalf("seed %d: %d bytes came, and not those that were sent", seed, len(came))
		}
	}
}

func TestACallFailsByItsPlace(t *testing.T) {
	p := Program{New(Options{Sealed: true, Faults: Faults{Errors: []Fault{
		{Call: "socket", Errno: unix.ENOMEM, Chance: 1}, {Call: "eventfd", FD: 99, Errno: unix.EMFILE, Chance: 1},
		{Call: "read", FD: 3, Errno: unix.EINTR, Chance: 1},
	}}})}
	_, err := p.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	expect(t, "socket", err, unix.ENOMEM)
	a, b := must(p.Eventfd(1, 0)), must(p.Eventfd(1, 0))
	_, err = p.Read(a, make([]byte, 8))
	expect(t, "read of 3", err, unix.EINTR)
	_, err = p.Read(b, make([]byte, 8))
	expect(t, "read of 4", err, nil)
}

func TestAnErrorOfTheNetworkEndsTheConnectionAtBothEnds(t *testing.T) {
	for _, errno := range []syscall.Errno{unix.ECONNRESET, unix.ETIMEDOUT, unix.EPIPE} {
		k := New(Options{Sealed: true})
		p := Program{k}
		client, server, _ := connection(p)
		k.options.Faults.Errors = []Fault{{FD: client, Errno: errno, Chance: 1}}
		_, err := p.Write(client, []byte("x"))
		expect(t, "write", err, errno)
		k.options.Faults.Errors = nil
		_, err = p.Write(client, []byte("x"))
		expect(t, "a second write", err, unix.EPIPE)
		_, err = p.Read(server, make([]byte, 1))
		expect(t, "the peer's read", err, unix.ECONNRESET)
	}
}

func TestEagainByFaultIsFollowedByAnEdge(t *testing.T) {
	k := New(Options{Sealed: true})
	p := Program{k}
	ends := must(p.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0))
	must(p.Write(ends[1], []byte("x")))
	ep := must(p.EpollCreate1(0))
	check(p.EpollCtl(ep, unix.EPOLL_CTL_ADD, ends[0], &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}))
	events := make([]unix.EpollEvent, 1)
	k.options.Faults.Errors = []Fault{{Call: "read", Errno: unix.EAGAIN, Chance: 1}}
	for range 3 {
		if n := must(p.EpollWait(ep, events, 0)); n != 1 {
			t.Fatal("the edge was not told")
		}
		_, err := p.Read(ends[0], make([]byte, 1))
		expect(t, "read", err, unix.EAGAIN)
	}
}

func TestRegistrationsOfOneNumberHaveAFixedOrder(t *testing.T) {
	k := New(Options{Sealed: true})
	p := Program{k}
	ep := must(p.EpollCreate1(0))
	number := must(p.Eventfd(0, 0))
	for i := range 4 { // the duplicates keep the files open, and with them their registrations
		check(p.EpollCtl(ep, unix.EPOLL_CTL_ADD, number, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}))
		if _, errno := k.Dup(number, 20, false); errno != 0 {
			t.Fatal(errno)
		}
		check(p.Close(number))
		if again := must(p.Eventfd(0, 0)); again != number {
			t.Fatalf("the number is %d, not %d", again, number)
		}
	}
	first, _ := k.FDInfo(ep)
	for range 50 {
		if text, _ := k.FDInfo(ep); string(text) != string(first) {
			t.Fatalf("%s\nthen\n%s", first, text)
		}
	}
}

func TestDescriptorsRunOut(t *testing.T) {
	p := Program{New(Options{Descriptors: 6})}
	must(p.Eventfd(0, 0))
	must(p.Eventfd(0, 0))
	_, err := p.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	expect(t, "socketpair", err, unix.EMFILE)
	if fd := must(p.Eventfd(0, 0)); fd != 5 || p.Descriptors() != 6 {
		t.Errorf("descriptor %d, %d are open", fd, p.Descriptors())
	}
	_, err = p.Eventfd(0, 0)
	expect(t, "eventfd", err, unix.EMFILE)
}

func TestShortTransfersMoveApart(t *testing.T) {
	for _, faults := range []Faults{{ShortReads: 1, ShortWrites: 1}, {OneByte: 1}} {
		p := Program{New(Options{Sealed: true, Faults: faults})}
		ends := must(p.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0))
		n := must(p.Write(ends[0], make([]byte, 1000)))
		if n >= 1000 || faults.OneByte > 0 && n != 1 {
			t.Errorf("%+v: %d bytes were written", faults, n)
		}
		must(p.Write(ends[0], make([]byte, 1000)))
		if got := must(p.Read(ends[1], make([]byte, 1000))); got >= 1000 || faults.OneByte > 0 && got != 1 {
			t.Errorf("%+v: %d bytes were read", faults, got)
		}
	}
}

func TestReadinessComesLateAndUncalledFor(t *testing.T) {
	k := New(Options{Sealed: true, Faults: Faults{Late: 1, MaxLate: 1000}})
	p := Program{k}
	ends := must(p.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0))
	ep := must(p.EpollCreate1(0))
	check(p.EpollCtl(ep, unix.EPOLL_CTL_ADD, ends[0], &unix.EpollEvent{Events: unix.EPOLLIN}))
	must(p.Write(ends[1], []byte("x")))
	events := make([]unix.EpollEvent, 1)
	if n := must(p.EpollWait(ep, events, 0)); n != 0 {
		t.Error("the event was not late")
	}
	if n := must(p.EpollWait(ep, events, -1)); n != 1 || p.Now() == 0 || p.Now() > 1000 {
		t.Errorf("%d events at %d ns", n, p.Now())
	}
	must(p.Read(ends[0], make([]byte, 1)))
	k.options.Faults = Faults{Spurious: 1}
	if n := must(p.EpollWait(ep, events, 0)); n != 1 {
		t.Error("no event where nothing is ready")
	}
}

func TestDatagramsGetLostDoubledAndReordered(t *testing.T) {
	send := func(net Network) (came []byte) {
		p := Program{New(Options{Sealed: true, Seed: 3, Network: net})}
		a := must(p.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0))
		b := must(p.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0))
		check(p.Bind(b, loopback))
		for i := range 100 {
			check(p.Sendto(a, []byte{byte(i)}, 0, must(p.Getsockname(b))))
		}
		p.Sleep(1_000_000)
		buf := make([]byte, 1)
		for {
			if _, err := p.Read(b, buf); err != nil {
				return came
			}
			came = append(came, buf[0])
		}
	}
	if n := len(send(Network{})); n != 100 {
		t.Errorf("%d of 100 came", n)
	}
	if n := len(send(Network{Loss: .5})); n < 20 || n > 80 {
		t.Errorf("%d of 100 came", n)
	}
	if n := len(send(Network{Duplicate: .5})); n < 120 || n > 180 {
		t.Errorf("%d for 100 came", n)
	}
	if came := send(Network{Reorder: .5, MaxLatency: 1000}); len(came) != 100 || slices.IsSorted(came) {
		t.Errorf("%v came", came)
	}
	if came := send(Network{MaxLatency: 1000}); !slices.IsSorted(came) {
		t.Errorf("%v came", came)
	}
}

func TestASynThatIsDroppedIsSentAgain(t *testing.T) {
	p := Program{New(Options{Sealed: true})}
	listener := must(p.Socket(unix.AF_INET, unix.SOCK_STREAM, 0))
	check(p.Bind(listener, loopback))
	check(p.Listen(listener, 0))
	dial := func() (int, error) {
		fd := must(p.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0))
		return fd, p.Connect(fd, must(p.Getsockname(listener)))
	}
	_, _ = dial()
	second, err := dial()
	expect(t, "connect", err, unix.EINPROGRESS)
	if p.ready(second)&unix.EPOLLOUT != 0 {
		t.Fatal("the backlog has no end")
	}
	_, _, err = p.Accept(listener)
	check(err)
	if _, _, err = p.Accept(listener); err != nil || p.Now() != 1_000_000_000 {
		t.Errorf("accepted at %d ns: %v", p.Now(), err)
	}
	third, _ := dial()
	fourth, _ := dial()
	p.Sleep(300_000_000_000)
	if p.ready(third)&unix.EPOLLOUT == 0 {
		t.Error("the third is not connected")
	}
	if n := must(p.GetsockoptInt(fourth, unix.SOL_SOCKET, unix.SO_ERROR)); n != int(unix.ETIMEDOUT) {
		t.Errorf("SO_ERROR is %d", n)
	}
}

func TestUsualFaultsNameCallsThatThereAre(t *testing.T) {
	var trace bytes.Buffer
	k := New(Options{Trace: &trace, Sealed: true})
	p := Program{k}
	client, server, _ := connection(p)
	ep := must(p.EpollCreate1(0))
	check(p.EpollCtl(ep, unix.EPOLL_CTL_ADD, client, &unix.EpollEvent{}))
	_, _ = p.EpollWait(ep, make([]unix.EpollEvent, 1), 0)
	_, _ = p.EpollWait(ep, make([]unix.EpollEvent, 1), 1)
	must(p.Write(client, make([]byte, 100)))
	_, _ = k.Writev(client, make([]byte, 100))
	_, _ = k.Send(client, make([]byte, 100), 0)
	must(p.SendmsgN(client, make([]byte, 100), nil, nil, 0))
	check(p.Sendto(client, make([]byte, 100), 0, loopback))
	must(p.Read(server, make([]byte, 1)))
	_, _ = k.Recv(server, make([]byte, 1), 0)
	_, _, _ = p.Recvfrom(server, make([]byte, 1), 0)
	_, _ = k.RecvMany(server, 1, func(int) []byte { return make([]byte, 1) }, func(int, int, []byte) {})
	must(p.Dup(must(p.Eventfd(0, 0))))
	check(p.SetsockoptInt(client, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1))
	must(p.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0))
	check(p.Pipe2(make([]int, 2), 0))
	for _, f := range CommonFaults(.5).Without(unix.ENOMEM).Errors {
		if f.Errno == unix.ENOMEM {
			t.Error("an errno is not left out")
		}
	}
	for _, f := range CommonFaults(.5).Errors {
		if !bytes.Contains(trace.Bytes(), []byte(" "+f.Call+"(")) {
			t.Errorf("no call is named %q", f.Call)
		}
	}
}
