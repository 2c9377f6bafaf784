//go:build linux

package simulated

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// apart returns a kernel with hosts 1 and 2, whose packets take no time.
func apart(o Options) Program {
	p := Program{New(o)}
	p.MakeHost()
	p.MakeHost()
	return p
}

// setKeepAlive enables keep-alive probes on a socket; the times are in seconds.
func (p Program) setKeepAlive(fd, idle, interval, count int) {
	check(p.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1))
	check(p.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, idle))
	check(p.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, interval))
	check(p.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, count))
}

// failsAt waits for a read to fail and returns the errno and the seconds.
func (p Program) failsAt(fd int) (syscall.Errno, float64) {
	began := p.Now()
	_, errno := p.Recv(fd, make([]byte, 8), 0)
	return errno, float64(p.Now()-began) / second
}

// fails verifies the errno of a read that fails, and the virtual time in seconds until then.
func (p Program) fails(t *testing.T, fd int, want syscall.Errno, seconds float64) {
	t.Helper()
	if errno, at := p.failsAt(fd); errno != want || at != seconds {
		t.Errorf("%v after %v s, not %v after %v s", errno, at, want, seconds)
	}
}

func TestAConnectionFailsWhenItsProbesAreLost(t *testing.T) {
	p := apart(Options{})
	client, _ := p.across()
	p.setKeepAlive(client, 60, 10, 5)
	p.partition(1, 2)
	// The last probe is sent after 60 + 4 * 10 s and waits as long as the others.
	p.fails(t, client, syscall.ETIMEDOUT, 110)
}

func TestWhatIsHeardPutsTheProbesOff(t *testing.T) {
	p := apart(Options{})
	client, server := p.across()
	p.setKeepAlive(client, 60, 10, 5)
	p.Sleep(50 * second)
	must(p.Write(server, []byte("x")))
	p.Sleep(5 * second)
	must(p.Read(client, make([]byte, 1)))
	p.partition(1, 2)
	p.fails(t, client, syscall.ETIMEDOUT, 105)
}

func TestAProbeThatIsAnsweredBeginsAnew(t *testing.T) {
	p := apart(Options{})
	client, _ := p.across()
	p.setKeepAlive(client, 60, 10, 5)
	p.partition(1, 2)
	p.Sleep(95 * second) // four probes are lost
	check(failure(p.SetLinkState(1, 2, LinkOpen)))
	p.Sleep(10 * second) // the fifth, at 100 s, is not lost
	p.partition(1, 2)
	p.fails(t, client, syscall.ETIMEDOUT, 105)
}

func TestRetransmissionsComeBeforeProbes(t *testing.T) {
	p := apart(Options{})
	client, _ := p.across()
	p.setKeepAlive(client, 1, 1, 1)
	p.partition(1, 2)
	must(p.Write(client, []byte("x")))
	if errno, at := p.failsAt(client); errno != syscall.ETIMEDOUT || at < 900 {
		t.Error(errno, at)
	}
}

func TestAProbeFindsAHostThatWasStartedAgain(t *testing.T) {
	p := apart(Options{})
	client, _ := p.across()
	p.setKeepAlive(client, 60, 10, 5)
	p.change(2, HostCrash)
	p.Sleep(5 * second)
	p.change(2, HostStart)
	p.fails(t, client, syscall.ECONNRESET, 55)
}

func TestAProbeFindsAConnectionThatHasEnded(t *testing.T) {
	p := apart(Options{})
	client, server := p.across()
	p.setKeepAlive(client, 60, 10, 5)
	must(p.Write(client, []byte("x")))
	p.partition(2, 1)
	check(p.Close(server)) // with unread bytes: sends a reset, which is lost
	check(failure(p.SetLinkState(2, 1, LinkOpen)))
	p.fails(t, client, syscall.ECONNRESET, 60)
}

func TestThePatienceOfAUser(t *testing.T) {
	p := apart(Options{})
	client, _ := p.across()
	p.setKeepAlive(client, 60, 10, 5)
	check(p.SetsockoptInt(client, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 75_000))
	p.partition(1, 2)
	p.fails(t, client, syscall.ETIMEDOUT, 80)
}

func TestAnAcceptedConnectionKeepsItsListenersOptions(t *testing.T) {
	p := apart(Options{})
	listener := p.listenerOn(2, 80)
	p.setKeepAlive(listener, 60, 10, 5)
	client := p.socketOn(1, unix.SOCK_STREAM)
	check(p.Connect(client, hostAddress(2, 80)))
	server, _, err := p.Accept(listener)
	check(err)
	p.change(1, HostCrash)
	p.fails(t, server, syscall.ETIMEDOUT, 110)
}

func TestWithoutTheOptionNothingIsProbed(t *testing.T) {
	p := apart(Options{Sealed: true})
	client, _ := p.across()
	p.setKeepAlive(client, 60, 10, 5)
	check(p.SetsockoptInt(client, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0))
	p.partition(1, 2)
	if errno, _ := p.failsAt(client); errno != syscall.EDEADLK {
		t.Error(errno)
	}
}

func TestProbesThatAreAnsweredEndNoWait(t *testing.T) {
	p := apart(Options{Sealed: true, Network: Network{MinLatency: 1000, MaxLatency: 1000}})
	client, server := p.across()
	p.setKeepAlive(client, 60, 10, 5)
	p.setKeepAlive(server, 60, 10, 5)
	p.fails(t, client, syscall.EDEADLK, 0)
	p.Sleep(86_400 * second) // a day of probes
	if errno, _ := p.failsAt(server); errno != syscall.EDEADLK {
		t.Error(errno)
	}
	check(failure(p.SetLinkState(2, 1, LinkPartitioned)))
	if errno, _ := p.failsAt(client); errno != syscall.ETIMEDOUT {
		t.Error(errno)
	}
}

func TestTheOptionSetAnewBeginsAnew(t *testing.T) {
	p := apart(Options{})
	client, _ := p.across()
	p.setKeepAlive(client, 60, 10, 5)
	p.partition(1, 2)
	p.Sleep(30 * second)
	check(p.SetsockoptInt(client, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0))
	check(p.SetsockoptInt(client, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1))
	p.fails(t, client, syscall.ETIMEDOUT, 110)
}

func TestAPausedHostAnswersNoProbes(t *testing.T) {
	p := apart(Options{Sealed: true})
	client, _ := p.across()
	p.setKeepAlive(client, 60, 10, 5)
	p.change(2, HostPause)
	p.fails(t, client, syscall.ETIMEDOUT, 110)
}

func TestAPeerHearsOfTheFailure(t *testing.T) {
	p := apart(Options{})
	client, server := p.across()
	p.setKeepAlive(client, 60, 10, 5)
	p.partition(2, 1) // host 2 receives the probes, and the answers are lost
	p.fails(t, client, syscall.ETIMEDOUT, 110)
	p.fails(t, server, syscall.ECONNRESET, 0)
}
