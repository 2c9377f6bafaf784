//go:build linux

package simulated

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// step makes one random call of the table above. It makes none if 50 attempts find no descriptor for their
// call.
func (d *differential) step() {
	const maxHandles = 24
	total := 0
	for _, c := range acts {
		total += c.weight
	}
	for range 50 {
		n := d.rand.IntN(total)
		for _, c := range acts {
			if n -= c.weight; n < 0 {
				if !(c.makes && len(d.handles) >= maxHandles) && c.act(d) {
					return
				}
				break
			}
		}
	}
}

// acts are the actions of a step. Each returns false if no descriptor suits it.
var acts = []struct {
	weight int
	makes  bool
	act    func(d *differential) bool
}{
	{5, true, (*differential).makeSocket},
	{3, true, (*differential).makePair},
	{2, true, (*differential).makePipe},
	{2, true, (*differential).makeOther},
	{8, true, (*differential).makeConnection},
	{3, true, (*differential).makeListener},
	{3, false, (*differential).bind},
	{2, false, (*differential).listen},
	{6, false, (*differential).connect},
	{6, true, (*differential).accept},
	{14, false, (*differential).write},
	{14, false, (*differential).read},
	{3, false, (*differential).fill},
	{4, false, (*differential).drain},
	{6, false, (*differential).shutdown},
	{6, false, (*differential).close},
	{2, false, (*differential).reset},
	{3, true, (*differential).dup},
	{14, false, (*differential).epollCtl},
	{12, false, (*differential).epollWait},
	{6, false, (*differential).sendTo},
	{5, false, (*differential).receiveFrom},
	{1, false, (*differential).burst},
	{5, false, (*differential).option},
	{4, false, (*differential).setOption},
	{4, false, (*differential).sockname},
	{3, false, (*differential).control},
	{4, false, (*differential).counter},
	{3, false, (*differential).timer},
	{1, false, (*differential).unlink},
}

// families has the family and the type of each kind of socket.
var families = map[kind][2]int{
	kindTCP: {unix.AF_INET, unix.SOCK_STREAM}, kindUDP: {unix.AF_INET, unix.SOCK_DGRAM},
	kindUnix: {unix.AF_UNIX, unix.SOCK_STREAM}, kindUnixDatagram: {unix.AF_UNIX, unix.SOCK_DGRAM},
}

// sockets are the kinds of sockets, the frequent ones twice.
var sockets = []kind{kindTCP, kindTCP, kindUnix, kindUDP, kindUnixDatagram}

// pick returns one of the values at random.
func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// socket creates a socket of a kind on both kernels and records it. It returns nil if the call failed.
func (d *differential) socket(k kind) *handle {
	var fd [2]int
	f := families[k]
	err := d.both(fmt.Sprintf("socket(%d, %d)", f[0], f[1]), func(world int, s System) (err error) {
		fd[world], err = s.Socket(f[0], f[1]|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil
	}
	h := d.add(fd, &opened{kind: k})
	d.note("    #%d", h.id)
	return h
}

// makeSocket creates a socket, sometimes of an unknown family. Like all functions of the table above, it
// returns false if there is no descriptor for the call, and then made no call.
func (d *differential) makeSocket() bool {
	if d.rand.IntN(20) == 0 {
		_ = d.both("socket(1000, 1)", func(_ int, s System) error { _, err := s.Socket(1000, 1, 0); return err })
		return true
	}
	return d.socket(pick(d.rand, sockets...)) != nil
}

// makePair creates two connected Unix sockets.
func (d *differential) makePair() bool {
	k := pick(d.rand, kindUnix, kindUnix, kindUnixDatagram)
	var ends [2][2]int
	err := d.both(fmt.Sprintf("socketpair(%d)", k), func(world int, s System) (err error) {
		ends[world], err = s.Socketpair(unix.AF_UNIX, families[k][1]|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return true
	}
	a := d.add([2]int{ends[0][0], ends[1][0]}, &opened{kind: k})
	b := d.add([2]int{ends[0][1], ends[1][1]}, &opened{kind: k})
	if k == kindUnix {
		d.join(a.open, b.open)
	}
	d.note("    #%d, #%d", a.id, b.id)
	return true
}

// join records that two open files are the ends of a connection.
func (d *differential) join(a, b *opened) {
	d.serial += 2
	a.out, b.out = &flow{id: d.serial}, &flow{id: d.serial + 1}
	a.in, b.in = b.out, a.out
}

// makePipe creates a pipe.
func (d *differential) makePipe() bool {
	var ends [2][2]int
	err := d.both("pipe", func(world int, s System) error {
		return s.Pipe2(ends[world][:], unix.O_NONBLOCK|unix.O_CLOEXEC)
	})
	if err != nil {
		return true
	}
	d.serial++
	f := &flow{id: d.serial}
	r := d.add([2]int{ends[0][0], ends[1][0]}, &opened{kind: kindPipe, in: f})
	w := d.add([2]int{ends[0][1], ends[1][1]}, &opened{kind: kindPipe, out: f})
	d.note("    #%d <- #%d", r.id, w.id)
	return true
}

// makeOther creates a descriptor that is neither a socket nor a pipe.
func (d *differential) makeOther() bool {
	k := pick(d.rand, kindEvent, kindTimer, kindEpoll, kindEdge, kindNull)
	var fd [2]int
	err := d.both(fmt.Sprintf("make(%d)", k), func(world int, s System) (err error) {
		switch k {
		case kindEvent:
			fd[world], err = s.Eventfd(3, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
		case kindTimer:
			fd[world], err = s.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
		case kindEpoll, kindEdge:
			fd[world], err = s.EpollCreate1(unix.EPOLL_CLOEXEC)
		default:
			fd[world], err = s.Open("/dev/null", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		}
		return err
	})
	if err == nil {
		d.note("    #%d", d.add(fd, &opened{kind: k, reported: map[registration]uint32{}}).id)
	}
	return true
}

// makeListener creates a listening socket.
func (d *differential) makeListener() bool {
	h := d.socket(pick(d.rand, kindTCP, kindTCP, kindUnix))
	if h == nil {
		return true
	}
	d.bindOne(h, 0)
	d.listenOne(h, pick(d.rand, 0, 1, 2, 5))
	return true
}

// makeConnection creates a connection through a listening socket, or a listening socket if there is none.
func (d *differential) makeConnection() bool {
	l := d.choose(func(h *handle) bool { return h.open.listens && h.open.name[0] != nil })
	if l == nil {
		return d.makeListener()
	}
	if h := d.socket(l.open.kind); h != nil {
		d.connectOne(h, l)
		d.acceptOne(l)
	}
	return true
}

// bind binds a socket.
func (d *differential) bind() bool {
	h := d.any(sockets...)
	if h == nil {
		return false
	}
	d.bindOne(h, d.rand.IntN(8))
	return true
}

// bindOne binds a socket to an address of the kind `how`: 1: a used one, 2: another host's, 3: an abstract
// or wildcard one, else a usual one.
func (d *differential) bindOne(h *handle, how int) {
	d.serial++
	var names [2]unix.Sockaddr
	for world := range names {
		switch {
		case how == 1: // the address of another socket
			if o := d.choose(d.surelyTaken); o != nil {
				names = o.open.name
				break
			}
			fallthrough
		case how == 2:
			names[world] = &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}}
		case h.open.kind == kindUnix || h.open.kind == kindUnixDatagram:
			name := fmt.Sprintf("%s/%d", d.dir, d.serial)
			if how == 3 {
				name = "@" + name
			}
			names[world] = &unix.SockaddrUnix{Name: name}
		case how == 3:
			names[world] = &unix.SockaddrInet4{}
		default:
			names[world] = &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
		}
		if how == 1 && names[1] != nil {
			break
		}
	}
	err := d.both(fmt.Sprintf("bind(#%d, %s)", h.id, nameText(names[0])), func(world int, s System) error {
		return s.Bind(h.fd[world], names[world])
	})
	if err == nil {
		d.nameOf(h)
	}
}

// surelyTaken reports whether the name of a handle is certainly in use: Linux keeps the name of a
// connection for some time (TIME_WAIT), the simulated kernel does not.
func (d *differential) surelyTaken(h *handle) bool {
	t, ok := d.kernel.file(h.fd[1]).node.(*tcp)
	return h.open.name[0] != nil && (!ok || t.bound && (t.listening || t.state == closed && t.stage == unconnected))
}

// nameOf compares the name of a socket on both kernels, and records a name that others can connect to.
func (d *differential) nameOf(h *handle) {
	var names [2]unix.Sockaddr
	what := fmt.Sprintf("getsockname(#%d)", h.id)
	err := d.both(what, func(world int, s System) (err error) {
		names[world], err = s.Getsockname(h.fd[world])
		return err
	})
	if err != nil {
		return
	}
	d.sameName(what, names)
	switch name := names[0].(type) {
	case *unix.SockaddrInet4:
		if name.Port != 0 {
			h.open.name = names
		}
	case *unix.SockaddrUnix:
		if name.Name != "@" {
			h.open.name = names
		}
	}
}

// listen makes a socket listen, also ones that cannot.
func (d *differential) listen() bool {
	h := d.any(sockets...)
	if h == nil {
		return false
	}
	d.listenOne(h, pick(d.rand, 0, 1, 2, 5, 4097, -1))
	return true
}

// listenOne makes a socket listen and records this. It makes no call for a TCP socket that is shut.
func (d *differential) listenOne(h *handle, backlog int) {
	if t, ok := d.kernel.file(h.fd[1]).node.(*tcp); ok && t.shut != 0 {
		return // releases of Linux differ in whether an accepted connection is shut then
	}
	err := d.both(fmt.Sprintf("listen(#%d, %d)", h.id, backlog), func(world int, s System) error {
		return s.Listen(h.fd[world], backlog)
	})
	if err == nil {
		h.open.listens = true
		d.nameOf(h)
	}
}

// connect connects a socket to a name, mostly to a listener's.
func (d *differential) connect() bool {
	h := d.any(sockets...)
	to := d.choose(func(o *handle) bool { return o.open.name[0] != nil && o != h })
	if h == nil || to == nil {
		return false
	}
	if l := d.choose(func(o *handle) bool { return o.open.listens && o.open.name[0] != nil }); l != nil && d.rand.IntN(2) == 0 {
		to = l
	}
	d.connectOne(h, to)
	return true
}

// connectOne connects a socket and records the flows of the connection for its other end.
func (d *differential) connectOne(h, to *handle) {
	if h.open.kind == kindTCP && (h.open == to.open || nameText(h.open.name[0]) == nameText(to.open.name[0])) {
		return // both ends of the connection would be the same socket
	}
	err := d.both(fmt.Sprintf("connect(#%d, #%d)", h.id, to.id), func(world int, s System) error {
		return s.Connect(h.fd[world], to.open.name[world])
	})
	if h.open.kind == kindTCP && err != unix.EINPROGRESS || h.open.kind != kindTCP && err != nil {
		return // no new connection; with ok, TCP reports an existing one
	}
	var child node
	switch n := d.kernel.file(h.fd[1]).node.(type) {
	case *tcp:
		if n.peer != nil {
			child = n.peer
		}
	case *unixStream:
		child = n.peer
	}
	if h.open.in, h.open.out = nil, nil; child != nil {
		var other opened
		d.join(h.open, &other)
		d.children[child] = [2]*flow{other.in, other.out}
	}
}

// accept accepts a connection, also on sockets that do not listen.
func (d *differential) accept() bool {
	h := d.choose(func(h *handle) bool { return h.open.listens })
	if h == nil || d.rand.IntN(20) == 0 {
		h = d.any(sockets...)
	}
	if h == nil {
		return false
	}
	d.acceptOne(h)
	return true
}

// acceptOne accepts a connection, which gets the flows that connectOne recorded.
func (d *differential) acceptOne(h *handle) {
	var fd [2]int
	var names [2]unix.Sockaddr
	d.awaitReadiness() // a packet of Linux may be in transit
	what := fmt.Sprintf("accept(#%d)", h.id)
	err := d.both(what, func(world int, s System) (err error) {
		fd[world], names[world], err = s.Accept4(h.fd[world], unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		return err
	})
	if err != nil {
		return
	}
	d.sameName(what, names)
	child := d.add(fd, &opened{kind: h.open.kind})
	d.note("    #%d", child.id)
	flows := d.children[d.kernel.file(fd[1]).node]
	child.open.in, child.open.out = flows[0], flows[1]
}

// streams are the kinds of descriptors that transfer streams of bytes.
var streams = []kind{kindTCP, kindTCP, kindUnix, kindPipe}

// write sends few bytes, so that no buffer is full.
func (d *differential) write() bool {
	h := d.any(streams...)
	if h == nil || h.open.out != nil && (h.open.out.filled || h.open.out.pieces >= 20 && h.open.kind != kindPipe) {
		return false
	}
	size := pick(d.rand, 1, 1, 10, 100, 1000, 5000)
	if d.rand.IntN(20) == 0 {
		size = 0
	}
	d.writeOne(h, size, d.rand.IntN(2) == 0)
	return true
}

// writeOne sends size bytes of the flow on both kernels, by write(2) if plain, and compares the numbers. It
// makes no call for an eventfd or a datagram socket.
func (d *differential) writeOne(h *handle, size int, plain bool) {
	f := h.open.out
	if f == nil {
		f = &flow{}
	}
	if h.open.kind == kindEvent || h.open.kind == kindUDP || h.open.kind == kindUnixDatagram {
		return
	}
	var n [2]int
	what := fmt.Sprintf("send(#%d, %d)", h.id, size)
	if plain {
		what = fmt.Sprintf("write(#%d, %d)", h.id, size)
	}
	err := d.both(what, func(world int, s System) (err error) {
		if plain {
			n[world], err = s.Write(h.fd[world], f.bytes(world, size))
		} else {
			n[world], err = s.SendmsgN(h.fd[world], f.bytes(world, size), nil, nil, unix.MSG_NOSIGNAL)
		}
		return err
	})
	if err != nil {
		return
	}
	if n[0] != n[1] {
		d.differ("%s: %d on Linux, simulated %d", what, n[0], n[1])
	}
	f.sent[0] += n[0]
	f.sent[1] += n[1]
	f.pieces++
}

// read reads from a stream.
func (d *differential) read() bool {
	h := d.any(streams...)
	if h == nil {
		return false
	}
	size := pick(d.rand, 1, 10, 100, 100, 1000, 10000)
	if h.open.in != nil && h.open.in.filled {
		size = min(size, 100)
	}
	if d.rand.IntN(20) == 0 {
		size = 0
	}
	d.readOne(h, size, d.rand.IntN(2) == 0)
	return true
}

// readOne reads up to size bytes on both kernels, by read(2) if plain, and compares the bytes.
func (d *differential) readOne(h *handle, size int, plain bool) {
	f := h.open.in
	var n [2]int
	what := fmt.Sprintf("recv(#%d, %d)", h.id, size)
	if plain {
		what = fmt.Sprintf("read(#%d, %d)", h.id, size)
	}
	var got [2][]byte
	err := d.both(what, func(world int, s System) (err error) {
		b := make([]byte, size)
		if plain {
			n[world], err = s.Read(h.fd[world], b)
		} else {
			n[world], _, err = s.Recvfrom(h.fd[world], b, 0)
		}
		got[world] = b[:max(n[world], 0)]
		return err
	})
	if err != nil {
		return
	}
	if n[0] != n[1] {
		d.differ("%s: %d on Linux, simulated %d", what, n[0], n[1])
	}
	if f == nil {
		if !bytes.Equal(got[0], got[1]) && h.open.kind != kindTimer {
			d.differ("%s: %x on Linux, simulated %x", what, got[0], got[1])
		}
		return
	}
	for world := range got {
		d.check(what, f, world, got[world])
	}
	if f.got[0] == f.sent[0] {
		f.pieces = 0
	}
}

// check compares the bytes received on a kernel with the bytes sent there, and counts them as received.
func (d *differential) check(what string, f *flow, world int, got []byte) {
	for _, b := range got {
		if f.got[world] >= f.sent[world] || b != f.at(f.got[world]) {
			d.differ("%s: byte %d of the stream in world %d is wrong", what, f.got[world], world)
			return
		}
		f.got[world]++
	}
}

// fill writes until the buffer is full. For a pipe it compares the sizes; the buffers of sockets differ.
func (d *differential) fill() bool {
	h := d.choose(func(h *handle) bool { return h.open.out != nil && !h.open.out.filled && !h.open.out.deaf })
	if h == nil {
		return false
	}
	f := h.open.out
	size := pick(d.rand, 100_000, 30_000, 4096)
	err := d.both(fmt.Sprintf("fill(#%d, %d)", h.id, size), func(world int, s System) error {
		for {
			n, err := s.Write(h.fd[world], f.bytes(world, size))
			if err != nil {
				return err
			}
			f.sent[world] += n
		}
	})
	switch {
	case h.open.kind == kindPipe: // has a size that programs know
		if f.sent[0] != f.sent[1] {
			d.differ("#%d has taken %d bytes on Linux, simulated %d", h.id, f.sent[0], f.sent[1])
		}
	case err == unix.EAGAIN:
		f.filled = true
	}
	return true
}

// drain reads all pending bytes, compares them with the bytes that were sent, and fails the run if bytes
// are missing.
func (d *differential) drain() bool {
	h := d.choose(func(h *handle) bool { return h.open.in != nil })
	if h == nil {
		return false
	}
	f := h.open.in
	if f.filled && d.rand.IntN(2) == 0 {
		return false
	}
	what := fmt.Sprintf("drain(#%d)", h.id)
	size := pick(d.rand, 100_000, 5000)
	err := d.both(what, func(world int, s System) error {
		b := make([]byte, size)
		begun := time.Now()
		for {
			n, err := s.Read(h.fd[world], b)
			if err == unix.EAGAIN && f.filled && f.got[world] < f.sent[world] && time.Since(begun) < d.maxSettle {
				time.Sleep(time.Duration(1-world) * 100 * time.Microsecond)
				continue // the rest is in transit
			}
			if err != nil {
				return err
			}
			if n == 0 {
				return fmt.Errorf("end")
			}
			d.check(what, f, world, b[:n])
		}
	})
	if err == unix.EAGAIN {
		for world, sent := range f.sent {
			if f.got[world] != sent {
				d.differ("%s: %d of %d bytes came in world %d", what, f.got[world], sent, world)
			}
		}
	}
	// After SHUT_RD the end may arrive before the last byte.
	f.filled, f.pieces = f.filled && (f.got[0] != f.sent[0] || f.got[1] != f.sent[1]), 0
	return true
}

// shutdown shuts down one half or both halves of a socket.
func (d *differential) shutdown() bool {
	h := d.any(sockets...)
	if h == nil {
		return false
	}
	if h.open.kind == kindTCP && h.open.in != nil && h.open.in.filled {
		return false // Linux would send a reset when it announces space to the sender
	}
	how := pick(d.rand, unix.SHUT_RD, unix.SHUT_WR, unix.SHUT_WR, unix.SHUT_RDWR, 3)
	err := d.both(fmt.Sprintf("shutdown(#%d, %d)", h.id, how), func(world int, s System) error {
		return s.Shutdown(h.fd[world], how)
	})
	if err == nil && how != unix.SHUT_WR && h.open.in != nil {
		h.open.in.deaf = true
	}
	return true
}

// close closes a descriptor.
func (d *differential) close() bool {
	if len(d.handles) == 0 {
		return false
	}
	h := d.choose(func(*handle) bool { return true })
	_ = d.both(fmt.Sprintf("close(#%d)", h.id), func(world int, s System) error {
		return s.Close(h.fd[world])
	})
	d.forget(h)
	return true
}

// reset closes a TCP socket that lingers. With a time of 0, the usual case, the peer gets a RST.
func (d *differential) reset() bool {
	h := d.exactly(kindTCP)
	if h == nil {
		return false
	}
	seconds := pick(d.rand, 0, 0, 1)
	if h.open.out != nil && h.open.out.filled {
		seconds = 0 // otherwise close waits
	}
	_ = d.both(fmt.Sprintf("linger(#%d, %d)", h.id, seconds), func(world int, s System) error {
		return s.SetsockoptLinger(h.fd[world], unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: int32(seconds)})
	})
	_ = d.both(fmt.Sprintf("close(#%d)", h.id), func(world int, s System) error {
		return s.Close(h.fd[world])
	})
	d.forget(h)
	return true
}

// dup duplicates a descriptor, to a free number or to the number of another one.
func (d *differential) dup() bool {
	if len(d.handles) == 0 {
		return false
	}
	h := d.choose(func(*handle) bool { return true })
	if d.rand.IntN(3) == 0 {
		to := d.choose(func(*handle) bool { return true })
		if to == h {
			return false // dup2(2) and dup3(2) differ, and x/sys/unix uses either
		}
		err := d.both(fmt.Sprintf("dup2(#%d, #%d)", h.id, to.id), func(world int, s System) error {
			return s.Dup2(h.fd[world], to.fd[world])
		})
		if err == nil {
			to.open.refs--
			h.open.refs++
			to.open = h.open
			d.serial++
			to.id = d.serial
			d.note("    #%d", to.id)
		}
		return true
	}
	var fd [2]int
	err := d.both(fmt.Sprintf("dup(#%d)", h.id), func(world int, s System) (err error) {
		fd[world], err = s.Dup(h.fd[world])
		return err
	})
	if err == nil {
		d.note("    #%d", d.add(fd, h.open).id)
	}
	return true
}

// epollCtl adds, changes or removes a registration.
func (d *differential) epollCtl() bool {
	ep := d.exactly(kindEpoll, kindEdge)
	if ep == nil {
		return d.makeOther()
	}
	h := d.choose(func(h *handle) bool { return h.open.kind != kindEdge || h == ep })
	if h == nil {
		return false
	}
	op := pick(d.rand, unix.EPOLL_CTL_ADD, unix.EPOLL_CTL_ADD, unix.EPOLL_CTL_MOD, unix.EPOLL_CTL_MOD, unix.EPOLL_CTL_DEL)
	if d.rand.IntN(50) == 0 {
		op = 17
		if ep = d.any(kindEpoll); ep == nil {
			return false
		}
	}
	var events uint32
	for _, bit := range []uint32{unix.EPOLLIN, unix.EPOLLIN, unix.EPOLLOUT, unix.EPOLLRDHUP} {
		if d.rand.IntN(2) == 0 {
			events |= bit
		}
	}
	switch {
	case ep.open.kind == kindEdge:
		events |= unix.EPOLLET
	case d.rand.IntN(2) == 0:
		events |= unix.EPOLLONESHOT
	}
	what := fmt.Sprintf("epoll_ctl(#%d, %d, #%d, %#x)", ep.id, op, h.id, events)
	err := d.both(what, func(world int, s System) error {
		return s.EpollCtl(ep.fd[world], op, h.fd[world], &unix.EpollEvent{Events: events, Fd: int32(h.id), Pad: int32(h.open.id)})
	})
	if err == nil {
		delete(ep.open.reported, registration{h.id, h.open.id})
	}
	return true
}

// epollWait polls an epoll on both kernels and compares the events. An edge-triggered one may report an
// event in several parts.
func (d *differential) epollWait() bool {
	h := d.any(kindEpoll, kindEdge)
	if h == nil {
		return false
	}
	d.awaitReadiness()
	var got [2]map[registration]uint32
	what := fmt.Sprintf("epoll_wait(#%d)", h.id)
	_ = d.both(what, func(world int, s System) error {
		events := make([]unix.EpollEvent, 100)
		n, err := s.EpollWait(h.fd[world], events, 0)
		got[world] = map[registration]uint32{}
		for _, ev := range events[:max(n, 0)] {
			got[world][registration{int(ev.Fd), int(ev.Pad)}] |= ev.Events
		}
		return err
	})
	for world := range got {
		for item, events := range got[world] {
			other, known := got[1-world][item], h.open.reported[item]
			if world == 0 {
				d.note("    #%d: %s", item.handle, eventNames(events))
			}
			if events != other && !(h.open.kind == kindEdge && events&^known == 0) {
				d.differ("%s tells in world %d of #%d: %s, in the other one: %s", what, world, item.handle,
					eventNames(events), eventNames(other))
			}
		}
	}
	if h.open.kind == kindEdge {
		if n, _ := d.worlds[1].EpollWait(h.fd[1], make([]unix.EpollEvent, 100), 0); n > 0 {
			d.differ("%s tells what it has just reported", what)
		}
		for item, events := range got[0] {
			h.open.reported[item] |= events
		}
		for item, events := range got[1] {
			h.open.reported[item] |= events
		}
	}
	return true
}

// sendTo sends a datagram, to the peer or to a name.
func (d *differential) sendTo() bool {
	h := d.exactly(kindUDP, kindUnixDatagram)
	if h == nil || d.crowded() {
		return false
	}
	to := d.choose(func(o *handle) bool { return o.open.name[0] != nil && o.open.kind == h.open.kind })
	if d.rand.IntN(20) == 0 {
		to = d.choose(func(o *handle) bool { return o.open.name[0] != nil })
	}
	size := pick(d.rand, 0, 1, 100, 2000)
	if d.rand.IntN(20) == 0 {
		size = 66000
	}
	d.serial++
	b := bytes.Repeat([]byte{byte(d.serial)}, size)
	if to == nil || d.rand.IntN(2) == 0 {
		_ = d.both(fmt.Sprintf("send(#%d, %d)", h.id, size), func(world int, s System) error {
			_, err := s.SendmsgN(h.fd[world], b, nil, nil, unix.MSG_NOSIGNAL)
			return err
		})
		return true
	}
	_ = d.both(fmt.Sprintf("sendto(#%d, %d, #%d)", h.id, size, to.id), func(world int, s System) error {
		return s.Sendto(h.fd[world], b, unix.MSG_NOSIGNAL, to.open.name[world])
	})
	return true
}

// crowded reports whether a buffer may be full with a few more datagrams.
func (d *differential) crowded() bool {
	for _, h := range d.handles {
		switch n := d.kernel.file(h.fd[1]).node.(type) {
		case *unixDatagram:
			if n.queued > bufferUsual/12 {
				return true
			}
		case *udp:
			if n.inboxSpace > bufferUsual/2 {
				return true
			}
		}
	}
	return false
}

// burst sends datagrams to a socket with another peer until there is no space, and compares their numbers.
// It returns false on a machine with another limit than the simulated one.
func (d *differential) burst() bool {
	if most, err := os.ReadFile("/proc/sys/net/unix/max_dgram_qlen"); err != nil || string(most) != fmt.Sprintln(maxInbox) {
		return false
	}
	h := d.exactly(kindUnixDatagram)
	to := d.choose(func(o *handle) bool { return o.open.name[0] != nil && o.open.kind == kindUnixDatagram })
	if h == nil || to == nil || d.crowded() {
		return false
	}
	var n [2]int
	what := fmt.Sprintf("burst(#%d, #%d)", h.id, to.id)
	_ = d.both(what, func(world int, s System) error {
		for ; n[world] < 2*maxInbox; n[world]++ {
			if err := s.Sendto(h.fd[world], []byte("burst"), unix.MSG_NOSIGNAL, to.open.name[world]); err != nil {
				return err
			}
		}
		return nil
	})
	if n[0] != n[1] {
		d.differ("%s: %d on Linux, simulated %d", what, n[0], n[1])
	}
	return true
}

// receiveFrom receives a datagram.
func (d *differential) receiveFrom() bool {
	h := d.exactly(kindUDP, kindUnixDatagram)
	if h == nil {
		return false
	}
	var n [2]int
	var got [2][]byte
	var names [2]unix.Sockaddr
	what := fmt.Sprintf("recvfrom(#%d)", h.id)
	size := pick(d.rand, 3000, 3000, 1)
	err := d.both(what, func(world int, s System) (err error) {
		b := make([]byte, size)
		n[world], names[world], err = s.Recvfrom(h.fd[world], b, 0)
		got[world] = b[:max(n[world], 0)]
		return err
	})
	if err != nil {
		return true
	}
	if !bytes.Equal(got[0], got[1]) {
		d.differ("%s: %d bytes on Linux, simulated %d", what, n[0], n[1])
	}
	d.sameName(what, names)
	return true
}

// option reads two options of a socket, and compares their values.
func (d *differential) option() bool {
	h := d.any(sockets...)
	if h == nil {
		return false
	}
	name := pick(d.rand, unix.SO_ERROR, unix.SO_ERROR, unix.SO_ERROR, unix.SO_TYPE, unix.SO_ACCEPTCONN, unix.SO_REUSEADDR,
		unix.SO_KEEPALIVE, unix.SO_DOMAIN, unix.SO_BROADCAST, 1000)
	d.getOption(h, unix.SOL_SOCKET, name)
	d.getOption(h, unix.IPPROTO_TCP, pick(d.rand, unix.TCP_KEEPIDLE, unix.TCP_KEEPINTVL, unix.TCP_KEEPCNT,
		unix.TCP_USER_TIMEOUT))
	return true
}

// getOption reads an option on both kernels and compares the values.
func (d *differential) getOption(h *handle, level, name int) {
	var n [2]int
	what := fmt.Sprintf("getsockopt(#%d, %d, %d)", h.id, level, name)
	err := d.both(what, func(world int, s System) (err error) {
		n[world], err = s.GetsockoptInt(h.fd[world], level, name)
		return err
	})
	if err == nil && n[0] != n[1] {
		d.differ("%s: %d on Linux, simulated %d", what, n[0], n[1])
	}
}

// setOption sets an option on both kernels, and if this succeeds, compares its value.
func (d *differential) setOption() bool {
	h := d.any(sockets...)
	if h == nil {
		return false
	}
	o := pick(d.rand, [2]int{unix.SOL_SOCKET, unix.SO_REUSEADDR}, [2]int{unix.SOL_SOCKET, unix.SO_KEEPALIVE},
		[2]int{unix.IPPROTO_TCP, unix.TCP_NODELAY}, [2]int{unix.SOL_SOCKET, unix.SO_BROADCAST},
		[2]int{unix.SOL_SOCKET, unix.SO_ERROR}, [2]int{unix.SOL_SOCKET, 1000}, [2]int{unix.IPPROTO_TCP, 1000},
		[2]int{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}, [2]int{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL},
		[2]int{unix.IPPROTO_TCP, unix.TCP_KEEPCNT}, [2]int{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT})
	value := d.rand.IntN(2)
	if o[0] == unix.IPPROTO_TCP && o[1] >= unix.TCP_KEEPIDLE && o[1] <= unix.TCP_USER_TIMEOUT {
		value = pick(d.rand, -1, 0, 1, 40, 127, 128, 32767, 32768) // around the limits
		if o[1] == unix.TCP_USER_TIMEOUT && value > 0 {
			value *= 60_000 // ms: Linux must not close the connection on a busy machine
		}
	}
	err := d.both(fmt.Sprintf("setsockopt(#%d, %d, %d, %d)", h.id, o[0], o[1], value), func(world int, s System) error {
		return s.SetsockoptInt(h.fd[world], o[0], o[1], value)
	})
	if err == nil {
		d.getOption(h, o[0], o[1])
	}
	return true
}

// sockname reads the name of a socket or of its peer.
func (d *differential) sockname() bool {
	h := d.any(sockets...)
	if h == nil {
		return false
	}
	if d.rand.IntN(2) == 0 {
		d.nameOf(h)
		return true
	}
	var names [2]unix.Sockaddr
	what := fmt.Sprintf("getpeername(#%d)", h.id)
	err := d.both(what, func(world int, s System) (err error) {
		names[world], err = s.Getpeername(h.fd[world])
		return err
	})
	if err == nil {
		d.sameName(what, names)
	}
	return true
}

// control calls fcntl.
func (d *differential) control() bool {
	if len(d.handles) == 0 {
		return false
	}
	h := d.choose(func(*handle) bool { return true })
	command, arg := pick(d.rand, unix.F_GETFD, unix.F_GETPIPE_SZ, unix.F_SETPIPE_SZ), 0
	if command == unix.F_SETPIPE_SZ {
		arg = pick(d.rand, 1, 4096, 5000, 16384, 65536)
	}
	var n [2]int
	what := fmt.Sprintf("fcntl(#%d, %d, %d)", h.id, command, arg)
	err := d.both(what, func(world int, s System) (err error) {
		n[world], err = s.FcntlInt(uintptr(h.fd[world]), command, arg)
		return err
	})
	if err == nil && n[0] != n[1] {
		d.differ("%s: %d on Linux, simulated %d", what, n[0], n[1])
	}
	return true
}

// counter writes or reads an eventfd.
func (d *differential) counter() bool {
	h := d.exactly(kindEvent)
	if h == nil {
		return false
	}
	if d.rand.IntN(2) == 0 {
		d.readOne(h, pick(d.rand, 8, 8, 7, 100), true)
		return true
	}
	value := pick[uint64](d.rand, 0, 1, 5, 1<<63, ^uint64(0)-1, ^uint64(0))
	b := make([]byte, 8)
	for i := range b {
		b[i] = byte(value >> (8 * i))
	}
	_ = d.both(fmt.Sprintf("write(#%d, counter %d)", h.id, value), func(world int, s System) error {
		_, err := s.Write(h.fd[world], b)
		return err
	})
	return true
}

// timer reads a timerfd, or sets it and lets the simulated clock pass a microsecond.
func (d *differential) timer() bool {
	h := d.any(kindTimer)
	if h == nil {
		return false
	}
	if d.rand.IntN(2) == 0 && h.open.kind == kindTimer {
		d.readOne(h, 8, true)
		return true
	}
	ns := pick[int64](d.rand, 0, 1000, 1000, 3600e9)
	_ = d.both(fmt.Sprintf("timerfd_settime(#%d, %d)", h.id, ns), func(world int, s System) error {
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(ns)}
		return s.TimerfdSettime(h.fd[world], 0, &spec, nil)
	})
	d.kernel.Sleep(1000)
	return true
}

// unlink removes the path of a Unix socket.
func (d *differential) unlink() bool {
	h := d.choose(func(h *handle) bool {
		name, ok := h.open.name[0].(*unix.SockaddrUnix)
		return ok && name.Name[0] == '/'
	})
	if h == nil {
		return false
	}
	path := h.open.name[0].(*unix.SockaddrUnix).Name
	_ = d.both("unlink("+path+")", func(_ int, s System) error { return s.Unlink(path) })
	return true
}
