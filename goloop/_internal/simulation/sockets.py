"""Sockets of a simulated kernel, with what asyncio and goloop ask of a ``socket.socket``."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct
from collections.abc import Iterable
from typing import Any, TypeAlias

from .kernel import _NAME_MOST, Ask, Kernel, ask

Buffer: TypeAlias = "bytes | bytearray | memoryview"

_F_GETFL, _F_SETFL, _NONBLOCK = 3, 4, os.O_NONBLOCK


class Socket:
    """A socket of a simulated kernel; it has what a ``socket.socket`` has."""

    def __init__(self, number: int, family: int, kind: int) -> None:
        self._fd = number
        self.family = socket.AddressFamily(family)
        self.type = socket.SocketKind(kind)
        self.proto = 0

    def __repr__(self) -> str:
        return f"<simulated socket fd={self._fd} family={self.family.name} type={self.type.name}>"

    def __del__(self) -> None:
        # As a socket.socket does: asyncio relies on that where it fails to make a transport.
        with contextlib.suppress(OSError):
            self.close()

    def fileno(self) -> int:
        return self._fd

    def detach(self) -> int:
        number, self._fd = self._fd, -1
        return number

    def close(self) -> None:
        number = self.detach()
        if number >= 0:
            ask(Ask.CLOSE, number)

    def setblocking(self, flag: bool) -> None:
        flags = ask(Ask.CONTROL, self._fd, _F_GETFL)[0]
        ask(Ask.CONTROL, self._fd, _F_SETFL, flags & ~_NONBLOCK if flag else flags | _NONBLOCK)

    def getblocking(self) -> bool:
        return not ask(Ask.CONTROL, self._fd, _F_GETFL)[0] & _NONBLOCK

    def settimeout(self, value: float | None) -> None:
        if value:
            raise ValueError("a simulated socket blocks or does not")
        self.setblocking(value is None)

    def gettimeout(self) -> float | None:
        return None if self.getblocking() else 0.0

    def bind(self, address: Any) -> None:
        raw = pack(self.family, address)
        ask(Ask.BIND, self._fd, len(raw), data=raw)

    def listen(self, backlog: int = 128) -> None:
        ask(Ask.LISTEN, self._fd, backlog)

    def connect(self, address: Any) -> None:
        raw = pack(self.family, address)
        ask(Ask.CONNECT, self._fd, len(raw), data=raw)

    def connect_ex(self, address: Any) -> int:
        try:
            self.connect(address)
        except OSError as e:
            return e.errno or errno.EIO
        return 0

    def accept(self) -> tuple[Socket, Any]:
        number, size, data = ask(Ask.ACCEPT, self._fd, os.O_CLOEXEC, room=_NAME_MOST)
        return Socket(number, self.family, self.type), unpack(data[:size])

    def recv(self, size: int, flags: int = 0) -> bytes:
        n, _, data = ask(Ask.RECV, self._fd, size, flags, room=size + _NAME_MOST)
        return data[:n]

    def recv_into(self, buffer: Buffer, nbytes: int = 0, flags: int = 0) -> int:
        view = memoryview(buffer).cast("B")
        data = self.recv(nbytes or len(view), flags)
        view[: len(data)] = data
        return len(data)

    def recvfrom(self, size: int, flags: int = 0) -> tuple[bytes, Any]:
        n, name, data = ask(Ask.RECV, self._fd, size, flags, room=size + _NAME_MOST)
        return data[:n], unpack(data[n : n + name])

    def send(self, data: Buffer, flags: int = 0) -> int:
        raw = bytes(data)
        return ask(Ask.SEND, self._fd, len(raw), flags, data=raw)[0]

    def sendall(self, data: Buffer, flags: int = 0) -> None:
        view = memoryview(data).cast("B")
        while view:
            view = view[self.send(view, flags) :]

    def sendmsg(self, buffers: Iterable[Buffer]) -> int:
        return self.send(b"".join(buffers))

    def sendto(self, data: Buffer, address: Any) -> int:
        raw, name = bytes(data), pack(self.family, address)
        return ask(Ask.SEND, self._fd, len(raw), 0, len(name), data=raw + name)[0]

    def shutdown(self, how: int) -> None:
        ask(Ask.SHUTDOWN, self._fd, how)

    def getsockname(self) -> Any:
        _, size, data = ask(Ask.SOCKNAME, self._fd, room=_NAME_MOST)
        return unpack(data[:size])

    def getpeername(self) -> Any:
        _, size, data = ask(Ask.PEERNAME, self._fd, room=_NAME_MOST)
        return unpack(data[:size])

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        if option == socket.SO_LINGER and level == socket.SOL_SOCKET and isinstance(value, bytes):
            ask(Ask.LINGER, self._fd, *struct.unpack("ii", value))
        else:
            ask(Ask.SET_OPTION, self._fd, level, option, int(value))

    def getsockopt(self, level: int, option: int) -> int:
        return ask(Ask.GET_OPTION, self._fd, level, option)[0]

    def dup(self) -> Socket:
        return Socket(ask(Ask.DUP, self._fd)[0], self.family, self.type)


def make(kernel: Kernel, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM) -> Socket:
    """A socket of a kernel."""
    return Socket(ask(Ask.SOCKET, kernel.number, family, kind | os.O_CLOEXEC)[0], family, kind)


def pair(kernel: Kernel, kind: int = socket.SOCK_STREAM) -> tuple[Socket, Socket]:
    """Two Unix sockets that are connected."""
    first, second, _ = ask(Ask.SOCKETPAIR, kernel.number, socket.AF_UNIX, kind | os.O_CLOEXEC)
    return Socket(first, socket.AF_UNIX, kind), Socket(second, socket.AF_UNIX, kind)


def plain(sock: Socket) -> socket.socket:
    """A ``socket.socket`` that has taken a simulated one's number, for goloop's native code.

    Its own methods know nothing of the kernel; ``Socket(plain.detach(), ...)`` does again.
    """
    made = socket.socket(sock.family, sock.type)
    os.close(super(socket.socket, made).detach())  # as if it were not closed
    # Right behind the object's head: pybridge/core/fds/lease.c looks for it there, too.
    ctypes.c_int.from_address(id(made) + object.__basicsize__).value = sock.detach()
    return made


def pack(family: int, address: Any) -> bytes:
    """An address as the kernel has it."""
    head = struct.pack("=H", family)
    if family == socket.AF_INET:
        return head + struct.pack("!H", address[1]) + socket.inet_aton(address[0]) + bytes(8)
    if family == socket.AF_INET6:
        return (
            head
            + struct.pack("!HI", address[1], 0)
            + socket.inet_pton(family, address[0])
            + bytes(4)
        )
    name = os.fsencode(address)
    return head + name + (b"" if name.startswith(b"\0") or not name else b"\0")


def unpack(raw: bytes) -> Any:
    """An address as ``socket`` has it; None where there is none."""
    if len(raw) < 2:
        return None
    family = struct.unpack_from("=H", raw)[0]
    if family == socket.AF_INET:
        return socket.inet_ntoa(raw[4:8]), struct.unpack_from("!H", raw, 2)[0]
    if family == socket.AF_INET6:
        return socket.inet_ntop(family, raw[8:24]), struct.unpack_from("!H", raw, 2)[0], 0, 0
    name = raw[2:]
    return bytes(name) if name.startswith(b"\0") else os.fsdecode(name.rstrip(b"\0"))
