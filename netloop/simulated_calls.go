//go:build linux && !libkqueue

package netloop

import (
	"syscall"
	"unsafe"

	"github.com/goloop/goloop/netloop/simulated"
	"github.com/goloop/goloop/transports"
	"golang.org/x/sys/unix"
)

// SimulatedCalls returns the calls of a reactor on a simulated kernel. The simulated kernel reads
// and writes C's memory as the host's kernel would. All reactors on a simulated kernel must have the
// same Calls, because they share its descriptors.
func SimulatedCalls(k *simulated.Kernel) Calls {
	calls := SystemCalls()
	calls.Calls = simulatedTransports(k)
	calls.Poll = simulatedPoll(k)
	calls.WakeOpen = func(t uint64) (int, int, syscall.Errno) {
		fd, errno := k.Eventfd(uint32(t), unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		return fd, fd, errno
	}
	calls.WakeWrite = func(poller, fd int, t uint64) syscall.Errno {
		ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(t), Pad: int32(t >> 32)}
		return k.EpollCtl(poller, unix.EPOLL_CTL_MOD, fd, &ev)
	}
	calls.Clock = k.Now
	calls.ThreadTime = k.Now
	calls.Preemptions = func() int64 { return 0 }
	calls.FreeMemory = func() {}
	calls.closes = new(closeCounter)
	return calls
}

// simulatedPoll returns the epoll calls of a simulated kernel.
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
		FDInfo:  k.FDInfo,
	}
}

// simulatedTransports returns the socket and pipe calls of a simulated kernel.
func simulatedTransports(k *simulated.Kernel) transports.Calls {
	const sendFlags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	return transports.Calls{
		Recv: func(fd int, base, size uintptr) (int, syscall.Errno) {
			return k.Recv(fd, cMemory(base, size), unix.MSG_DONTWAIT)
		},
		Read: func(fd int, base, size uintptr) (int, syscall.Errno) { return k.Read(fd, cMemory(base, size)) },
		RecvFrom: func(fd int, base, size, addr, addrLen uintptr) (int, syscall.Errno) {
			n, from, errno := k.RecvFrom(fd, cMemory(base, size), unix.MSG_DONTWAIT)
			if errno == 0 {
				storeAddress(addr, addrLen, from)
			}
			return n, errno
		},
		Recvmmsg: func(fd int, headers unsafe.Pointer, n int) (int, syscall.Errno) {
			return recvmmsg(k, fd, (*transports.RecvBatch)(headers), n)
		},
		Send: func(fd int, base, size uintptr) (int, syscall.Errno) {
			return k.Send(fd, cMemory(base, size), sendFlags)
		},
		SendVectors: func(fd int, v []transports.Vector, _ *transports.Scratch) (int, syscall.Errno) {
			return k.SendVectors(fd, gatherBytes(v), sendFlags)
		},
		Writev:   func(fd int, v []transports.Vector) (int, syscall.Errno) { return k.Writev(fd, gatherBytes(v)) },
		Shutdown: func(fd int) syscall.Errno { return k.Shutdown(fd, unix.SHUT_WR) },
		Accept: func(fd int, addr, addrLen uintptr) (int, syscall.Errno) {
			n, name, errno := k.Accept(fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			if errno == 0 {
				storeAddress(addr, addrLen, name)
			}
			return n, errno
		},
		NoDelay: func(fd int) syscall.Errno { return k.Setsockopt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) },
		Sockname: func(fd int, addr, addrLen uintptr) syscall.Errno {
			name, errno := k.Getsockname(fd)
			if errno == 0 {
				storeAddress(addr, addrLen, name)
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

// cMemory returns C memory, which a call reads or writes, as a slice.
func cMemory(base, size uintptr) []byte {
	v := transports.Vector{Base: base, Len: size}
	return v.Bytes()
}

// gatherBytes returns a copy of the bytes of v in one slice.
func gatherBytes(v []transports.Vector) []byte {
	var all []byte
	for i := range v {
		all = append(all, v[i].Bytes()...)
	}
	return all
}

// storeAddress writes a socket address as the kernel does: as much as fits, and its full
// length.
func storeAddress(addr, addrLen uintptr, name []byte) {
	if addr == 0 || addrLen == 0 {
		return
	}
	size := cMemory(addrLen, unsafe.Sizeof(uint32(0)))
	length := (*uint32)(unsafe.Pointer(unsafe.SliceData(size)))
	copy(cMemory(addr, uintptr(*length)), name)
	*length = uint32(len(name))
}

// recvmmsg is recvmmsg(2) on the simulated kernel, for at most max datagrams.
func recvmmsg(k *simulated.Kernel, fd int, m *transports.RecvBatch, max int) (int, syscall.Errno) {
	newBuffer := func(i int) []byte {
		n := 0
		for _, v := range m.Buffer(i) {
			n += int(v.Len)
		}
		return make([]byte, n)
	}
	var buf []byte
	return k.RecvMany(fd, max,
		func(i int) []byte { buf = newBuffer(i); return buf },
		func(i, n int, from []byte) {
			rest := buf[:n]
			for _, v := range m.Buffer(i) {
				rest = rest[copy(v.Bytes(), rest):]
			}
			m.Deliver(i, n, from)
		})
}
