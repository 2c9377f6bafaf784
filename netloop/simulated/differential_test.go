//go:build linux

package simulated

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The differential test makes the same random calls on Linux and on a simulated kernel. After each call it
// compares results, errnos, bytes, names of sockets (by their owners, because the ports differ), the
// readiness of each descriptor, and the events of epolls.
//
// Behaviour that Linux does not promise is compared less strictly:
//
//   - The number of bytes that fit into a full socket. A writer writes until EAGAIN on each kernel;
//     then the other end reads all bytes, each kernel's bytes are compared with the bytes written
//     there, and only after that the two are compared again (flow.filled).
//   - The arrival of a TCP packet. Linux has time to reach the simulated readiness, up to maxSettle,
//     before a difference counts.
//   - Repeated events of an edge-triggered registration: each further packet, and each buffer that
//     becomes free, may repeat an event. An event of one kernel only is a difference if it was not
//     reported before, or was not ready in between (opened.reported).
//   - The order of events in one epoll_wait.

var (
	differentialTime = flag.Duration("differential.time", 1500*time.Millisecond, "how long the differential test runs")
	differentialSeed = flag.Uint64("differential.seed", 0, "the first seed of the differential test; 0: a new one")
)

const (
	maxSettle  = 3 * time.Second
	callsOfRun = 250
)

func TestTheSameCallsGetTheSameAnswersAsOnLinux(t *testing.T) {
	seed := *differentialSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	calls, runs := map[string]int{}, 0
	for end := time.Now().Add(*differentialTime); time.Now().Before(end) || runs == 0; seed++ {
		runs++
		d := newDifferential(t.TempDir(), seed, nil)
		d.run(callsOfRun)
		for name, n := range d.made {
			calls[name] += n
		}
		if d.difference == nil {
			continue
		}
		if d = shorter(t, seed, d); d != nil {
			t.Fatalf("seed %d: %v\n%s", seed, d.difference, strings.Join(d.log, "\n"))
		}
	}
	total := 0
	for _, n := range calls {
		total += n
	}
	t.Logf("%d runs, %d calls: %v", runs, total, calls)
}

// shorter leaves out calls while the difference remains. It returns nil if the difference does not repeat.
func shorter(t *testing.T, seed uint64, found *differential) *differential {
	skip := map[int]bool{}
	for i := found.at + 1; i < callsOfRun; i++ {
		skip[i] = true
	}
	again := func(skip map[int]bool) *differential {
		d := newDifferential(t.TempDir(), seed, skip)
		d.maxSettle = 200 * time.Millisecond
		d.run(callsOfRun)
		if d.difference == nil {
			return nil
		}
		return d
	}
	best := again(skip)
	if best == nil {
		t.Logf("seed %d: %v: not again", seed, found.difference)
		if again(skip) == nil {
			return nil
		}
		best = found
	}
	for size := callsOfRun / 2; size > 0; size /= 2 {
		least := len(skip)
		for from := 0; from < callsOfRun; from += size {
			more := map[int]bool{}
			for i := range skip {
				more[i] = true
			}
			for i := from; i < from+size; i++ {
				more[i] = true
			}
			if len(more) == len(skip) {
				continue
			}
			if d := again(more); d != nil {
				skip, best = more, d
			}
		}
		if size == 1 && len(skip) > least {
			size = 2 // try again
		}
	}
	return best
}

// kind is the kind of an open file.
type kind int

const (
	kindTCP kind = iota
	kindUDP
	kindUnix
	kindUnixDatagram
	kindPipe
	kindEvent
	kindTimer
	kindEpoll
	kindEdge // an epoll with edge-triggered registrations, which no other epoll watches
	kindNull
)

// handle is a descriptor; its numbers are those on Linux and on the simulated kernel.
type handle struct {
	id   int
	key  uint64 // number of the call that made it, constant when other calls are left out
	fd   [2]int
	open *opened
}

// opened is an open file, which may have several descriptors.
type opened struct {
	id       int
	kind     kind
	refs     int
	name     [2]unix.Sockaddr // bound name
	listens  bool
	in, out  *flow
	reported map[registration]uint32 // for an edge-triggered epoll: reported readiness that still exists
}

// registration is the key of an epoll's item.
type registration struct{ handle, open int }

// flow is one direction of a stream.
type flow struct {
	id     int
	sent   [2]int
	got    [2]int
	pieces int // written since all bytes were read
	filled bool
	deaf   bool // the reader has shut down reading
}

// bytes returns the next n bytes to send in a world: 0 is Linux, 1 the simulated kernel.
func (f *flow) bytes(world, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = f.at(f.sent[world] + i)
	}
	return b
}

// at returns the byte at position p of the flow.
func (f *flow) at(p int) byte { return byte(f.id*31 + p*7 + p>>8) }

// differential is one run.
type differential struct {
	worlds     [2]System
	kernel     *Kernel
	dir        string
	seed       uint64
	skip       map[int]bool
	rand       *rand.Rand // of this call
	handles    []*handle
	serial     int
	added      int // number of handles of this call
	maxSettle  time.Duration
	names      [2]map[string]int
	children   map[node][2]*flow // flows of connections that are not accepted yet
	slow       bool              // a lost packet is retransmitted after a second
	begun      time.Time
	at         int
	log        []string
	made       map[string]int
	difference error
}

// newDifferential returns a run with a seed, without the calls in skip. Unix sockets get paths in dir.
func newDifferential(dir string, seed uint64, skip map[int]bool) *differential {
	k := New(Options{Seed: seed, Sealed: true})
	return &differential{
		worlds: [2]System{Linux{}, Program{k}}, kernel: k, dir: dir, seed: seed, skip: skip,
		maxSettle: maxSettle, names: [2]map[string]int{{}, {}}, made: map[string]int{}, children: map[node][2]*flow{}, begun: time.Now(),
	}
}

// run makes up to this number of calls, until the kernels differ, and closes all descriptors. A difference
// of a run so slow that Linux may have retransmitted does not count.
func (d *differential) run(calls int) {
	for i := range calls {
		if d.skip[i] {
			continue
		}
		d.at, d.added = i, 0
		d.rand = rand.New(rand.NewPCG(d.seed, uint64(i)))
		d.step()
		if d.difference == nil {
			d.awaitReadiness()
		}
		if d.difference != nil {
			break
		}
	}
	for len(d.handles) > 0 {
		h := d.handles[0]
		_ = unix.SetsockoptLinger(h.fd[0], unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		_ = d.worlds[0].Close(h.fd[0])
		_ = d.worlds[1].Close(h.fd[1])
		d.forget(h)
	}
	if d.difference == nil && d.kernel.Descriptors() != 3 {
		d.differ("the simulated kernel has %d descriptors at the end", d.kernel.Descriptors())
	}
	if d.slow && time.Since(d.begun) > 700*time.Millisecond {
		d.difference = nil // Linux has retransmitted meanwhile, the simulated clock has not moved
	}
}

// differ records the first difference of the two kernels.
func (d *differential) differ(format string, args ...any) {
	if d.difference == nil {
		d.difference = fmt.Errorf(format, args...)
	}
}

// note adds a line to the log of the run.
func (d *differential) note(format string, args ...any) {
	d.log = append(d.log, fmt.Sprintf("%4d ", d.at)+fmt.Sprintf(format, args...))
}

// add records a descriptor, with its numbers on both kernels.
func (d *differential) add(fd [2]int, open *opened) *handle {
	d.serial++
	if open.id == 0 {
		open.id = d.serial
	}
	open.refs++
	h := &handle{id: d.serial, key: uint64(d.at)<<8 | uint64(d.added), fd: fd, open: open}
	d.added++
	d.handles = append(d.handles, h)
	return h
}

// forget removes a descriptor that was closed.
func (d *differential) forget(h *handle) {
	h.open.refs--
	d.handles = slices.DeleteFunc(d.handles, func(o *handle) bool { return o == h })
}

// any returns a handle of one of these kinds; sometimes of any kind.
func (d *differential) any(kinds ...kind) *handle {
	if len(d.handles) == 0 {
		return nil
	}
	if d.rand.IntN(20) == 0 {
		return d.choose(func(*handle) bool { return true })
	}
	return d.exactly(kinds...)
}

// exactly returns a handle of one of these kinds, or nil.
func (d *differential) exactly(kinds ...kind) *handle {
	return d.choose(func(h *handle) bool { return slices.Contains(kinds, h.open.kind) })
}

// choose returns one of the handles for which good returns true, or nil. The choice hardly changes when
// other calls are left out.
func (d *differential) choose(good func(h *handle) bool) *handle {
	var found *handle
	least, salt := ^uint64(0), d.rand.Uint64()
	for _, h := range d.handles {
		if draw := rand.NewPCG(salt, h.key).Uint64(); draw < least && good(h) {
			found, least = h, draw
		}
	}
	return found
}

// both makes a call on both kernels, compares the errnos, and returns the error on Linux.
func (d *differential) both(what string, call func(world int, s System) error) error {
	name, _, _ := strings.Cut(what, "(")
	d.made[name]++
	real, simulated := call(0, d.worlds[0]), call(1, d.worlds[1])
	d.note("%s = %v", what, outcome(real))
	if outcome(real) != outcome(simulated) && !eitherOf[[2]error{real, simulated}] {
		d.differ("%s: %v on Linux, simulated %v", what, outcome(real), outcome(simulated))
	}
	return real
}

// eitherOf are pairs of errnos from which releases of Linux choose differently.
var eitherOf = map[[2]error]bool{
	{unix.ENOTCONN, unix.EPIPE}: true, // a Unix datagram without a peer after shutdown, before Linux 6.14
}

// outcome returns the name of an error's errno, "ok", or the text of another error.
func outcome(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// awaitReadiness waits until Linux has the readiness of the simulated kernel, and as many unread bytes.
// After maxSettle it records a difference.
func (d *differential) awaitReadiness() {
	if len(d.handles) == 0 {
		return
	}
	fds := make([]unix.PollFd, len(d.handles))
	simulated := make([]uint32, len(d.handles))
	const asked = unix.POLLIN | unix.POLLOUT | unix.POLLRDHUP
	for i, h := range d.handles {
		fds[i] = unix.PollFd{Fd: int32(h.fd[0]), Events: asked}
		simulated[i] = d.kernel.ready(h.fd[1]) & (asked | unix.POLLERR | unix.POLLHUP)
		if n, ok := d.kernel.file(h.fd[1]).node.(*tcp); ok && n.state == synSent && !d.slow {
			d.slow = true
			d.note("    #%d waits to be sent again", h.open.id)
		}
	}
	for i, h := range d.handles {
		for _, ep := range d.handles {
			if known, ok := ep.open.reported[registration{h.id, h.open.id}]; ok {
				ep.open.reported[registration{h.id, h.open.id}] = known & simulated[i]
			}
		}
	}
	begun := time.Now()
	for {
		if _, err := unix.Poll(fds, 0); err != nil {
			d.differ("poll: %v", err)
			return
		}
		found := -1
		for i, h := range d.handles {
			mask := ^uint32(0)
			if f := h.open.out; f != nil && f.filled {
				mask &^= unix.POLLOUT
			}
			if h.open.kind == kindEdge {
				mask = 0
			}
			if uint32(fds[i].Revents)&mask != simulated[i]&mask {
				found = i
			}
		}
		if found >= 0 && time.Since(begun) < d.maxSettle {
			time.Sleep(min(time.Since(begun), time.Millisecond))
			continue
		}
		if found >= 0 {
			h := d.handles[found]
			d.differ("#%d is ready for %s on Linux, simulated %s", h.id,
				eventNames(uint32(fds[found].Revents)), eventNames(simulated[found]))
			return
		}
		unread := d.unread()
		if unread == "" {
			return
		}
		if time.Since(begun) >= d.maxSettle {
			d.differ("%s", unread)
			return
		}
		time.Sleep(min(time.Since(begun), time.Millisecond))
	}
}

// unread compares the number of unread bytes; it returns "" if they are equal.
func (d *differential) unread() string {
	for _, h := range d.handles {
		n, ok := d.kernel.file(h.fd[1]).node.(*tcp)
		if !ok || n.state != connected || h.open.in == nil || h.open.in.filled {
			continue
		}
		real, err := unix.IoctlGetInt(h.fd[0], unix.SIOCINQ)
		if err != nil || real != len(n.inbox) {
			return fmt.Sprintf("#%d has %d bytes to read on Linux (%v), simulated %d", h.id, real, err, len(n.inbox))
		}
	}
	return ""
}

// ready returns a descriptor's readiness.
func (k *Kernel) ready(fd int) uint32 {
	f := k.file(fd)
	if f == nil {
		return unix.POLLNVAL
	}
	return f.node.poll()
}

// eventNames returns the names of poll(2) events.
func eventNames(events uint32) string {
	var names []string
	for i, name := range []string{"IN", "PRI", "OUT", "ERR", "HUP"} {
		if events&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if events&unix.POLLRDHUP != 0 {
		names = append(names, "RDHUP")
	}
	if names == nil {
		return "nothing"
	}
	return strings.Join(names, "|")
}

// sameName records a difference unless both kernels use a name for the same socket. The names themselves
// differ, because the ports do.
func (d *differential) sameName(what string, names [2]unix.Sockaddr) {
	var ids [2]int
	for world, name := range names {
		key := fmt.Sprintf("%T", name)
		switch name := name.(type) {
		case *unix.SockaddrInet4:
			key = fmt.Sprint(name.Addr, name.Port)
		case *unix.SockaddrInet6:
			key = fmt.Sprint(name.Addr, name.Port)
		case *unix.SockaddrUnix:
			key = "unix " + name.Name
		}
		id, known := d.names[world][key]
		if !known {
			id = len(d.names[world])
			d.names[world][key] = id
		}
		ids[world] = id
	}
	if ids[0] != ids[1] {
		d.differ("%s: %s on Linux, simulated %s", what, nameText(names[0]), nameText(names[1]))
	}
}

// nameText returns a socket's name as text.
func nameText(name unix.Sockaddr) string {
	switch name := name.(type) {
	case *unix.SockaddrInet4:
		return fmt.Sprint(name.Addr, name.Port)
	case *unix.SockaddrUnix:
		return fmt.Sprintf("%q", name.Name)
	}
	return fmt.Sprintf("%T", name)
}
