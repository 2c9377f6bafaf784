//go:build linux && !libkqueue

package netloop

import (
	"syscall"
	"unsafe"

	"github.com/goloop/goloop/netloop/simulated"
	"github.com/goloop/goloop/transports"
	"golang.org/x/sys/unix"
)

// SimulatedCalls are the calls of a reactor on a simulated kernel. There is no io_uring. Memory that
// C lends is read and written as the host's kernel would. All reactors on a kernel have the same Calls:
// they share its descriptors.
func SimulatedCalls(k *simulated.Kernel) Calls {
	calls := SystemCalls()
	calls.Calls = simulatedTransports(k)
	calls.Poll = simulatedPoll(k)
	calls.Ring = RingCalls{}
	calls.WakeOpen = func(t uint64) (int, int, syscall.Errno) {
		fd, errno := k.Eventfd(uint32(t), unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		return fd, fd, errno
	}
	calls.WakeWrite = func(poller, fd int, t uint64) syscall.Errno {
		ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(t), Pad: int32(t >> 32)}
		return k.EpollCtl(poller, unix.EPOLL_CTL_MOD, fd, &ev)
	}
	calls.Clock = k.Now
	calls.FreeMemory = func() {}
	calls.closes = new(closeCounter)
	return calls
}

func simulatedPoll(k *simulated.Kernel) PollCalls {
	return PollCalls{
		Create: func() (int, syscall.Errno) { return k.EpollCreate(unix.EPOLL_CLOEXEC) },
		Ctl: func(epfd, op int, fd int32, ev *unix.EpollEvent) syscall.Errno {
			return k.EpollCtl(epfd, op, int(fd), ev)
		},
		Poll: func(epfd int, evs []unix.EpollEvent) (int, syscall.Errno) { return k.EpollWait(epfd, evs, 0) },
		WaitExact: func(epfd int, evs []unix.EpollEvent, ts *unix.Timespec) (int, syscall.Errno) {
			return k.EpollWait(epfd, evs, ts.Nano())
		},
		Wait: func(epfd int, evs []unix.EpollEvent, ms int) (int, syscall.Errno) {
			return k.EpollWait(epfd, evs, int64(ms)*1_000_000)
		},
		TimerCreate: func() (int, syscall.Errno) { return k.TimerfdCreate(unix.TFD_CLOEXEC | unix.TFD_NONBLOCK) },
		TimerSet: func(fd int, spec *unix.ItimerSpec) syscall.Errno {
			return k.TimerfdSet(fd, spec.Value.Nano())
		},
		Close:   k.Close,
		Replace: func(from, to int) syscall.Errno { return k.Dup3(from, to, true) },
		Facts:   k.Facts,
	}
}

func simulatedTransports(k *simulated.Kernel) transports.Calls {
	const sendFlags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	return transports.Calls{
		Recv: func(fd int, base, size uintptr) (int, syscall.Errno) {
			return k.Recv(fd, lent(base, size), unix.MSG_DONTWAIT)
		},
		Read: func(fd int, base, size uintptr) (int, syscall.Errno) { return k.Read(fd, lent(base, size)) },
		RecvFrom: func(fd int, base, size, addr, addrLen uintptr) (int, syscall.Errno) {
			n, from, errno := k.RecvFrom(fd, lent(base, size), unix.MSG_DONTWAIT)
			if errno == 0 {
				giveName(addr, addrLen, from)
			}
			return n, errno
		},
		Recvmmsg: func(fd int, headers unsafe.Pointer, n int) (int, syscall.Errno) {
			return receiveMany(k, fd, (*transports.RecvBatch)(headers), n)
		},
		Send: func(fd int, base, size uintptr) (int, syscall.Errno) {
			return k.Send(fd, lent(base, size), sendFlags)
		},
		SendVectors: func(fd int, v []transports.Vector, _ *transports.Scratch) (int, syscall.Errno) {
			return k.SendVectors(fd, gathered(v), sendFlags)
		},
		Writev:   func(fd int, v []transports.Vector) (int, syscall.Errno) { return k.Writev(fd, gathered(v)) },
		Shutdown: func(fd int) syscall.Errno { return k.Shutdown(fd, unix.SHUT_WR) },
		Accept: func(fd int, addr, addrLen uintptr) (int, syscall.Errno) {
			n, name, errno := k.Accept(fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			if errno == 0 {
				giveName(addr, addrLen, name)
			}
			return n, errno
		},
		NoDelay: func(fd int) syscall.Errno { return k.Setsockopt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) },
		Sockname: func(fd int, addr, addrLen uintptr) syscall.Errno {
			name, errno := k.Getsockname(fd)
			if errno == 0 {
				giveName(addr, addrLen, name)
			}
			return errno
		},
		PipeSize: func(fd int) (int, syscall.Errno) { return k.Fcntl(fd, unix.F_GETPIPE_SZ, 0) },
		SetPipeSize: func(fd, size int) syscall.Errno {
			_, errno := k.Fcntl(fd, unix.F_SETPIPE_SZ, size)
			return errno
		},
		Close: k.Close,
	}
}

// lent is memory of C that a call reads or writes.
func lent(base, size uintptr) []byte {
	v := transports.Vector{Base: base, Len: size}
	return v.Bytes()
}

func gathered(v []transports.Vector) []byte {
	var all []byte
	for i := range v {
		all = append(all, v[i].Bytes()...)
	}
	return all
}

// giveName writes a socket's name and its length as the kernel does: as much as there is room for,
// and how long it is.
func giveName(addr, addrLen uintptr, name []byte) {
	if addr == 0 || addrLen == 0 {
		return
	}
	size := lent(addrLen, unsafe.Sizeof(uint32(0)))
	length := (*uint32)(unsafe.Pointer(unsafe.SliceData(size)))
	copy(lent(addr, uintptr(*length)), name)
	*length = uint32(len(name))
}

// receiveMany is recvmmsg(2).
func receiveMany(k *simulated.Kernel, fd int, m *transports.RecvBatch, most int) (int, syscall.Errno) {
	room := func(i int) []byte {
		n := 0
		for _, v := range m.Buffer(i) {
			n += int(v.Len)
		}
		return make([]byte, n)
	}
	var buf []byte
	return k.RecvMany(fd, most,
		func(i int) []byte { buf = room(i); return buf },
		func(i, n int, from []byte) {
			rest := buf[:n]
			for _, v := range m.Buffer(i) {
				rest = rest[copy(v.Bytes(), rest):]
			}
			m.Deliver(i, n, from)
		})
}
