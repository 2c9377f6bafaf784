//go:build linux

package simulated

import (
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// ms is a millisecond in ns.
const ms = 1_000_000

// lan returns a kernel with hosts 1 and 2, whose packets take a millisecond.
func lan() Program {
	p := Program{New(Options{Sealed: true, Network: Network{MinLatency: ms, MaxLatency: ms}})}
	p.MakeHost()
	p.MakeHost()
	return p
}

// hostAddress returns an address of the host with this number.
func hostAddress(number, port int) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Addr: [4]byte{10, 0, 0, byte(number)}, Port: port}
}

// socketOn creates an IPv4 socket of a type on a host.
func (p Program) socketOn(number, kind int) int {
	return must(result(p.SocketOn(number, unix.AF_INET, kind)))
}

// listenerOn creates a listener with a backlog of 1 on a host.
func (p Program) listenerOn(number, port int) int {
	listener := p.socketOn(number, unix.SOCK_STREAM)
	check(p.Bind(listener, &unix.SockaddrInet4{Port: port}))
	check(p.Listen(listener, 1))
	return listener
}

// across connects host 1 to host 2; both ends block.
func (p Program) across() (client, server int) {
	listener := p.listenerOn(2, 80)
	client = p.socketOn(1, unix.SOCK_STREAM)
	check(p.Connect(client, hostAddress(2, 80)))
	server, _, err := p.Accept(listener)
	check(err)
	return client, server
}

// change makes an action on a host.
func (p Program) change(number, action int) {
	check(failure(p.ChangeHost(number, action)))
}

// partition partitions the link in one direction.
func (p Program) partition(from, to int) { check(failure(p.SetLinkState(from, to, LinkPartitioned))) }

// receive returns the pending bytes, "-" if there are none, or the name of an errno.
func (p Program) receive(fd int) string {
	b := make([]byte, 1<<16)
	n, errno := p.Recv(fd, b, unix.MSG_DONTWAIT)
	switch {
	case errno == syscall.EAGAIN:
		return "-"
	case errno != 0:
		return unix.ErrnoName(errno)
	}
	return string(b[:n])
}

// want fails the test unless receive returns this text.
func (p Program) want(t *testing.T, what string, fd int, want string) {
	t.Helper()
	if got := p.receive(fd); got != want {
		t.Fatalf("%s: %q, want %q", what, got, want)
	}
}

func TestEachHostHasItsPortsAndNames(t *testing.T) {
	p := lan()
	for _, number := range []int{0, 1, 2} {
		p.listenerOn(number, 80)
		u := must(result(p.SocketOn(number, unix.AF_UNIX, unix.SOCK_STREAM)))
		check(p.Bind(u, &unix.SockaddrUnix{Name: "/socket"}))
	}
	u := must(result(p.SocketOn(2, unix.AF_UNIX, unix.SOCK_DGRAM)))
	check(p.Bind(u, &unix.SockaddrUnix{Name: "@name"}))
	check(p.Connect(must(result(p.SocketOn(2, unix.AF_UNIX, unix.SOCK_DGRAM))), &unix.SockaddrUnix{Name: "@name"}))
	other := must(result(p.SocketOn(1, unix.AF_UNIX, unix.SOCK_DGRAM)))
	expect(t, "another host's name", p.Connect(other, &unix.SockaddrUnix{Name: "@name"}), unix.ECONNREFUSED)
	again := p.socketOn(1, unix.SOCK_STREAM)
	expect(t, "a taken port", p.Bind(again, &unix.SockaddrInet4{Port: 80}), unix.EADDRINUSE)
	expect(t, "another host's address", p.Bind(again, hostAddress(2, 81)), unix.EADDRNOTAVAIL)
	check(p.Bind(again, hostAddress(1, 81)))
	expect(t, "nobody's address", p.Connect(p.socketOn(1, unix.SOCK_STREAM), hostAddress(9, 80)), unix.ENETUNREACH)
	local := p.listenerOn(2, 82)
	check(p.Connect(p.socketOn(2, unix.SOCK_STREAM), &unix.SockaddrInet4{Addr: loopback.Addr, Port: 82}))
	_, from, err := p.Accept(local)
	check(err)
	if from.(*unix.SockaddrInet4).Addr != loopback.Addr {
		t.Errorf("the loopback is %v", from)
	}
	other = p.socketOn(1, unix.SOCK_STREAM)
	expect(t, "the loopback of another host", p.Connect(other, &unix.SockaddrInet4{Addr: loopback.Addr, Port: 82}), unix.ECONNREFUSED)
	check(p.Connect(other, hostAddress(2, 82)))
	_, from, err = p.Accept(local)
	check(err)
	if from.(*unix.SockaddrInet4).Addr != hostAddress(1, 0).Addr {
		t.Errorf("host 1 is seen as %v", from)
	}
	alone := Program{New(Options{Sealed: true})}
	expect(t, "an address without hosts", alone.Connect(alone.socketOn(0, unix.SOCK_STREAM), hostAddress(1, 80)), unix.ENETUNREACH)
	expect(t, "a refusal at once", alone.Connect(alone.socketOn(0, unix.SOCK_STREAM), &unix.SockaddrInet4{Addr: loopback.Addr, Port: 80}), unix.ECONNREFUSED)
}

func TestALostSegmentIsADelay(t *testing.T) {
	p := lan()
	client, server := p.across()
	check(failure(p.SetLink(1, 2, Network{MinLatency: ms, MaxLatency: ms, Loss: 0.5})))
	begun, all := p.Now(), ""
	for range 100 {
		must(p.Write(client, []byte("x")))
	}
	for len(all) < 100 {
		p.Sleep(50 * ms)
		if got := p.receive(server); got != "-" {
			all += got
		}
	}
	if took := p.Now() - begun; took < retryFirst || took > 100*retryFirst {
		t.Errorf("%d ns", took)
	}
}

func TestAPartitionDelaysAStream(t *testing.T) {
	p := lan()
	client, server := p.across()
	p.partition(1, 2)
	for _, part := range []string{"one ", "two"} {
		must(p.Write(client, []byte(part)))
	}
	p.Sleep(1000 * ms)                    // retried at 0.2 and 0.6 s, then at 1.4 s
	must(p.Write(server, []byte("back"))) // the acknowledgement is lost, too
	check(failure(p.SetLinkState(1, 2, LinkOpen)))
	must(p.Write(client, []byte(" three")))
	p.Sleep(399 * ms)
	p.want(t, "before the retransmission", server, "-")
	p.Sleep(2 * ms)
	p.want(t, "behind it", server, "one two three")
	must(p.Write(client, []byte("more")))
	p.Sleep(ms)
	p.want(t, "in an open network", server, "more")
	p.Sleep(1000 * ms)
	p.want(t, "the other direction", client, "back")
	p.partition(1, 2)
	must(p.Write(server, []byte("back")))
	p.Sleep(60_000 * ms)
	must(p.Write(client, []byte("late")))
	p.Sleep(300 * ms)
	check(failure(p.SetLinkState(1, 2, LinkOpen)))
	p.Sleep(301 * ms)
	p.want(t, "after its own second retransmission", server, "late")
}

func TestAPartitionEndsConnectionsAfterTheRetransmissions(t *testing.T) {
	for name, state := range map[string][2]int{"data": {1, 2}, "acknowledgements": {2, 1}} {
		p := lan()
		client, server := p.across()
		p.partition(state[0], state[1])
		must(p.Write(client, []byte("data")))
		p.Sleep(924_000 * ms)
		p.want(t, name, client, "-")
		p.Sleep(1000 * ms)
		p.want(t, name, client, "ETIMEDOUT")
		if state[0] == 2 {
			p.want(t, "the other end", server, "data")
		}
		p.want(t, "the other end", server, "-")
	}
}

func TestASynIsLostInAPartition(t *testing.T) {
	p := lan()
	p.listenerOn(2, 80)
	p.partition(1, 2)
	expect(t, "connect", p.Connect(p.socketOn(1, unix.SOCK_STREAM), hostAddress(2, 80)), unix.ETIMEDOUT)
	if seconds := p.Now() / (1000 * ms); seconds != 127 {
		t.Errorf("after %d s", seconds)
	}
	early := p.socketOn(1, unix.SOCK_STREAM)
	p.SetNonblock(early, true)
	expect(t, "connect", p.Connect(early, hostAddress(2, 80)), unix.EINPROGRESS)
	check(failure(p.SetLinkState(1, 2, LinkOpen)))
	p.Sleep(900 * ms) // the next SYN comes after a second
	_, err := p.Getpeername(early)
	expect(t, "too early", err, unix.ENOTCONN)
	p.Sleep(200 * ms)
	must(p.Getpeername(early))
	p.partition(2, 1)
	client := p.socketOn(1, unix.SOCK_STREAM)
	p.SetNonblock(client, true)
	expect(t, "connect", p.Connect(client, hostAddress(2, 80)), unix.EINPROGRESS)
	p.Sleep(100 * ms)
	check(failure(p.SetLinkState(2, 1, LinkOpen)))
	p.Sleep(200 * ms)
	if _, err := p.Getpeername(client); err != nil {
		t.Errorf("the acknowledgement was not sent again: %v", err)
	}
}

func TestAResetIsLostInAPartition(t *testing.T) {
	p := lan()
	client, server := p.across()
	p.partition(1, 2)
	check(p.SetsockoptLinger(client, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
	check(p.Close(client))
	check(failure(p.SetLinkState(1, 2, LinkOpen)))
	p.Sleep(1000_000 * ms)
	p.want(t, "nothing", server, "-")
	must(p.Write(server, []byte("data")))
	p.Sleep(2 * ms)
	p.want(t, "an answer", server, "ECONNRESET")
}

// A FIN that waits for its retransmission does not delay the reset after it.
func TestAnEndThatWasLostRefusesWhatComes(t *testing.T) {
	p := lan()
	client, server := p.across()
	p.partition(1, 2)
	p.partition(2, 1)
	must(p.Write(server, []byte("data")))
	p.Sleep(50 * ms)
	check(p.Close(client)) // the FIN is retransmitted at 250 ms, the data at 200 ms
	check(failure(p.SetLinkState(1, 2, LinkOpen)))
	check(failure(p.SetLinkState(2, 1, LinkOpen)))
	p.Sleep(140 * ms)
	p.want(t, "before the retransmission", server, "-")
	p.Sleep(20 * ms)
	p.want(t, "an answer", server, "ECONNRESET")
}

func TestAHeldLinkKeepsWhatIsSent(t *testing.T) {
	p := lan()
	client, server := p.across()
	sender, receiver := p.socketOn(1, unix.SOCK_DGRAM), p.socketOn(2, unix.SOCK_DGRAM)
	check(p.Bind(receiver, hostAddress(2, 53)))
	check(failure(p.SetLinkState(1, 2, LinkStalled)))
	for _, part := range []string{"one ", "two"} {
		must(p.Write(client, []byte(part)))
		check(p.Sendto(sender, []byte(part), 0, hostAddress(2, 53)))
	}
	p.Sleep(3_600_000 * ms)
	p.want(t, "held", server, "-")
	p.want(t, "held", receiver, "-")
	check(failure(p.SetLinkState(1, 2, LinkOpen)))
	p.Sleep(ms)
	p.want(t, "a stream", server, "one two")
	p.want(t, "a datagram", receiver, "one ")
	p.want(t, "a datagram", receiver, "two")
	check(failure(p.SetLinkState(1, 2, LinkStalled)))
	client2 := p.socketOn(1, unix.SOCK_STREAM)
	p.SetNonblock(client2, true)
	expect(t, "connect", p.Connect(client2, hostAddress(2, 80)), unix.EINPROGRESS)
	check(failure(p.SetLinkState(1, 2, LinkOpen)))
	p.Sleep(2 * ms)
	if _, err := p.Getpeername(client2); err != nil {
		t.Errorf("a SYN was not held: %v", err)
	}
}

func TestDatagramsByTheLink(t *testing.T) {
	p := lan()
	sender, receiver := p.socketOn(1, unix.SOCK_DGRAM), p.socketOn(2, unix.SOCK_DGRAM)
	check(p.Bind(receiver, hostAddress(2, 53)))
	sent := func(n Network) (got []byte) {
		n.MinLatency, n.MaxLatency = ms, 50*ms
		check(failure(p.SetLink(1, 2, n)))
		for i := range 100 {
			check(p.Sendto(sender, []byte{byte(i), 0}, 0, hostAddress(2, 53)))
		}
		p.Sleep(1000 * ms)
		for one := p.receive(receiver); one != "-"; one = p.receive(receiver) {
			got = append(got, one[0])
		}
		return got
	}
	if got := sent(Network{}); len(got) != 100 || !slices.IsSorted(got) {
		t.Errorf("usually %v", got)
	}
	if got := sent(Network{Reorder: 0.5}); len(got) != 100 || slices.IsSorted(got) {
		t.Errorf("reordered %v", got)
	}
	if got := sent(Network{Duplicate: 0.5}); len(got) < 120 || len(got) > 180 {
		t.Errorf("duplicated %d", len(got))
	}
	if got := sent(Network{Loss: 0.5}); len(got) < 20 || len(got) > 80 {
		t.Errorf("%d are left", len(got))
	}
	p.partition(1, 2)
	if got := sent(Network{}); len(got) != 0 {
		t.Errorf("%d came through a partition", len(got))
	}
	// The other direction, for which nothing was set.
	check(p.Sendto(receiver, []byte("back"), 0, must(p.Getsockname(sender))))
}

func TestBandwidthIsShared(t *testing.T) {
	p := lan()
	client, server := p.across()
	check(failure(p.SetLink(1, 2, Network{Bandwidth: 1e6, MinLatency: ms, MaxLatency: ms})))
	sender := p.socketOn(1, unix.SOCK_DGRAM)
	check(p.Sendto(sender, make([]byte, 60_000-headers), 0, hostAddress(2, 53)))
	must(p.Write(client, make([]byte, 40_000-headers)))
	p.Sleep(100 * ms)
	p.want(t, "after 0.1 s", server, "-")
	p.Sleep(ms)
	if n := len(p.receive(server)); n != 40_000-headers {
		t.Errorf("%d bytes", n)
	}
}

func TestAKilledHostClosesItsSockets(t *testing.T) {
	p := lan()
	client, server := p.across()
	must(p.Write(server, []byte("last")))
	p.change(2, HostKill)
	p.Sleep(10 * ms)
	p.want(t, "what was sent", client, "last")
	p.want(t, "the end", client, "")
	must(p.Write(client, []byte("more")))
	p.Sleep(2 * ms)
	_, err := p.Write(client, []byte("more"))
	expect(t, "a reset", err, unix.EPIPE)
	expect(t, "a connection", p.Connect(p.socketOn(1, unix.SOCK_STREAM), hostAddress(2, 80)), unix.ECONNREFUSED)
	_, err = p.Read(server, make([]byte, 1))
	expect(t, "a read of the dead", err, unix.EINVAL)
	check(p.Close(server))
	p.listenerOn(2, 80)
}

func TestACrashIsSilent(t *testing.T) {
	p := lan()
	client, server := p.across()
	must(p.Write(server, []byte("last")))
	must(p.Write(client, []byte("on the way")))
	p.change(2, HostCrash)
	p.Sleep(5000 * ms)
	p.want(t, "what was sent", client, "last")
	p.want(t, "nothing", client, "-")
	expect(t, "a connection", p.Connect(p.socketOn(1, unix.SOCK_STREAM), hostAddress(2, 80)), unix.ETIMEDOUT)
	p.want(t, "nothing", client, "-")
	p.change(2, HostStart)
	expect(t, "a connection", p.Connect(p.socketOn(1, unix.SOCK_STREAM), hostAddress(2, 80)), unix.ECONNREFUSED)
	p.Sleep(maxRetryPause)
	p.want(t, "a reset for what was sent again", client, "ECONNRESET")
	p.listenerOn(2, 80)
}

func TestAHostThatStartsAgainKnowsNoConnection(t *testing.T) {
	p := lan()
	client, server := p.across()
	must(p.Write(server, []byte("last"))) // the acknowledgement is not retransmitted
	p.change(2, HostCrash)
	p.Sleep(60_000 * ms)
	p.change(2, HostStart)
	p.Sleep(1000 * ms)
	p.want(t, "what was sent", client, "last")
	p.want(t, "until something is sent", client, "-")
	must(p.Write(client, []byte("data")))
	p.Sleep(2 * ms)
	p.want(t, "a reset", client, "ECONNRESET")
}

func TestACrashedClientLeavesSpaceInTheBacklog(t *testing.T) {
	p := lan()
	listener := p.listenerOn(2, 80)
	for range 3 { // more than the backlog
		client := p.socketOn(1, unix.SOCK_STREAM)
		p.SetNonblock(client, true)
		expect(t, "connect", p.Connect(client, hostAddress(2, 80)), unix.EINPROGRESS)
		p.Sleep(ms + ms/2) // the answer is in transit
		p.change(1, HostCrash)
		p.change(1, HostStart)
		p.Sleep(1000 * ms)
	}
	if n := p.file(listener).node.(*tcp).incomplete; n != 0 {
		t.Errorf("%d connections are half made", n)
	}
}

func TestAPausedHostKeepsWhatArrives(t *testing.T) {
	p := lan()
	client, server := p.across()
	ep := must(p.EpollCreate1(0))
	check(p.EpollCtl(ep, unix.EPOLL_CTL_ADD, server, &unix.EpollEvent{Events: unix.EPOLLIN}))
	events := make([]unix.EpollEvent, 2)
	must(p.Write(client, []byte("seen ")))
	p.Sleep(ms)
	p.change(2, HostPause)
	must(p.Write(client, []byte("kept")))
	if n := must(p.EpollWait(ep, events, 1000)); n != 0 {
		t.Errorf("%d events of a paused host", n)
	}
	p.want(t, "before the pause", server, "seen ")
	p.change(2, HostResume)
	if n := must(p.EpollWait(ep, events, 1000)); n != 1 {
		t.Errorf("%d events after the pause", n)
	}
	p.want(t, "the rest", server, "kept")
	expect(t, "host 0", failure(p.ChangeHost(0, HostKill)), unix.ESRCH)
	expect(t, "no host", failure(p.SetLinkState(1, 3, LinkStalled)), unix.ESRCH)
	expect(t, "no host", failure(p.SetLink(3, 1, Network{})), unix.ESRCH)
	_, errno := p.SocketOn(3, unix.AF_INET, unix.SOCK_STREAM)
	expect(t, "no host", failure(errno), unix.ESRCH)
}

func TestACrashedHostSendsNothingAgain(t *testing.T) {
	p := lan()
	client, server := p.across()
	p.partition(1, 2)
	must(p.Write(client, []byte("lost")))
	p.change(1, HostCrash)
	check(failure(p.SetLinkState(1, 2, LinkOpen)))
	p.Sleep(5000 * ms)
	p.want(t, "nothing", server, "-")
}

func TestTheEndOfAProgramClosesWhatItHas(t *testing.T) {
	p := Program{New(Options{Sealed: true})}
	p.MakeHost()
	const program = 7 << programBits
	mine := must(result(p.SocketOn(1|program, unix.AF_INET, unix.SOCK_STREAM)))
	hosts := must(result(p.SocketOn(1, unix.AF_INET, unix.SOCK_STREAM)))
	others := must(result(p.SocketOn(0|program, unix.AF_INET, unix.SOCK_STREAM)))
	reads, writes, errno := p.PipeOn(1, 1|program, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	must(p.Write(writes, []byte("x")))
	if errno := p.EndProgram(1 | program); errno != 0 {
		t.Fatal(errno)
	}
	if _, err := p.GetsockoptInt(mine, unix.SOL_SOCKET, unix.SO_TYPE); err != unix.ENOTSOCK {
		t.Error("its socket:", err)
	}
	for _, fd := range []int{hosts, others} {
		must(p.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE))
	}
	b := make([]byte, 4)
	for _, want := range []int{1, 0} { // the written bytes, then the end
		if n, err := p.Read(reads, b); n != want || err != nil {
			t.Error("read", n, err)
		}
	}
	if n := p.Kernel.hosts[1].sockets; n != 2 {
		t.Error("the host has", n)
	}
	for _, number := range []int{1, 9, 9 | program, -1} {
		if errno := p.EndProgram(number); errno != unix.ESRCH {
			t.Error(number, errno)
		}
	}
	if _, _, errno := p.PipeOn(9, 1, 0); errno != unix.ESRCH {
		t.Error(errno)
	}
}

func TestAKillClosesPipesOfItsHost(t *testing.T) {
	p := Program{New(Options{Sealed: true})}
	p.MakeHost()
	p.SetFaults(Faults{Descriptors: 2})
	_, writes, _ := p.PipeOn(1, 1, 0)
	if _, _, errno := p.PipeOn(1, 1, 0); errno != unix.EMFILE {
		t.Error(errno)
	}
	p.ChangeHost(1, HostKill)
	if _, err := p.Write(writes, []byte("x")); err == nil {
		t.Error("a write to a pipe that is gone")
	}
	if _, _, errno := p.PipeOn(1, 1, 0); errno != 0 {
		t.Error(errno)
	}
}

func TestAPathHasAnInodeUntilItIsRemoved(t *testing.T) {
	p := Program{New(Options{Sealed: true})}
	p.MakeHost()
	bind := func() int {
		fd := must(result(p.SocketOn(1, unix.AF_UNIX, unix.SOCK_STREAM)))
		check(p.Bind(fd, &unix.SockaddrUnix{Name: "/x"}))
		return must(result(p.Inode(1, "/x")))
	}
	first := bind()
	if _, errno := p.Inode(0, "/x"); errno != unix.ENOENT {
		t.Error(errno)
	}
	if errno := p.UnlinkOn(0, "/x"); errno != unix.ENOENT {
		t.Error(errno)
	}
	if errno := p.UnlinkOn(1, "/x"); errno != 0 {
		t.Error(errno)
	}
	if second := bind(); first == 0 || second == first {
		t.Error(first, second)
	}
}

func TestHostsHaveAddressesOfIPv6(t *testing.T) {
	p := lan()
	address := func(number, port int) *unix.SockaddrInet6 {
		return &unix.SockaddrInet6{Addr: p.Kernel.hosts[number].ip6, Port: port}
	}
	bind := func(number, kind int, to unix.Sockaddr) int {
		fd := must(result(p.SocketOn(number, unix.AF_INET6, kind)))
		check(p.Bind(fd, to))
		return fd
	}
	listener := bind(2, unix.SOCK_STREAM, &unix.SockaddrInet6{Port: 80})
	check(p.Listen(listener, 1))
	p.listenerOn(2, 80) // IPv4 on the same port
	client := must(result(p.SocketOn(1, unix.AF_INET6, unix.SOCK_STREAM)))
	check(p.Connect(client, address(2, 80)))
	server, from, err := p.Accept(listener)
	check(err)
	if sa := from.(*unix.SockaddrInet6); sa.Addr != p.Kernel.hosts[1].ip6 {
		t.Error("from", sa.Addr)
	}
	must(p.Write(client, []byte("x")))
	p.Sleep(2 * ms)
	if got := p.receive(server); got != "x" {
		t.Error(got)
	}
	there := bind(2, unix.SOCK_DGRAM, address(2, 53))
	here := bind(1, unix.SOCK_DGRAM, &unix.SockaddrInet6{})
	check(p.Sendto(here, []byte("y"), 0, address(2, 53)))
	p.Sleep(2 * ms)
	if _, from, err := p.Recvfrom(there, make([]byte, 4), 0); err != nil || from.(*unix.SockaddrInet6).Addr != p.Kernel.hosts[1].ip6 {
		t.Error(from, err)
	}
	peerHost := must(result(p.SocketOn(1, unix.AF_INET6, unix.SOCK_STREAM)))
	if err := p.Connect(peerHost, &unix.SockaddrInet6{Addr: [16]byte{0: 0xfd, 15: 9}, Port: 80}); err != unix.ENETUNREACH {
		t.Error(err)
	}
	if err := p.Bind(peerHost, address(2, 0)); err != unix.EADDRNOTAVAIL {
		t.Error(err)
	}
	p.partition(1, 2)
	if errno := p.SetLinkState(2, 1, LinkPartitioned); errno != 0 {
		t.Error(errno)
	}
	must(p.Write(client, []byte("z")))
	p.Sleep(1000 * ms)
	if got := p.receive(server); got != "-" {
		t.Error("through a partition:", got)
	}
}

func TestAcceptedConnectionsAreTheProgramsThatListens(t *testing.T) {
	p := Program{New(Options{})}
	p.MakeHost()
	const program = 1 | 7<<programBits
	for _, of := range []struct {
		family int
		name   unix.Sockaddr
	}{{unix.AF_INET, hostAddress(1, 80)}, {unix.AF_UNIX, &unix.SockaddrUnix{Name: "/x"}}} {
		listener := must(result(p.SocketOn(program, of.family, unix.SOCK_STREAM)))
		check(p.Bind(listener, of.name))
		check(p.Listen(listener, 1))
		client := must(result(p.SocketOn(1, of.family, unix.SOCK_STREAM)))
		check(p.Connect(client, of.name))
		_, _, err := p.Accept(listener)
		check(err)
		check(failure(p.EndProgram(program)))
		if got := p.receive(client); got != "" {
			t.Error(of.family, got)
		}
	}
}
