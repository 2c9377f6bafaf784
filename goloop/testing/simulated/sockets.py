"""Sockets of a simulated kernel, with the methods of ``socket.socket`` that loops use."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct
import threading
import types
from collections.abc import Callable
from typing import Any, Self, TypeVar, cast

from .errors import EscapedSimulation
from .kernel import (
    _MAX_NAME,
    FIRST,
    Kernel,
    Request,
    SimulatedSystem,
    kernel_of_thread,
    owner_number,
    request,
)

_F = TypeVar("_F", bound=Callable[..., Any])

_SO_DOMAIN = 39
_AT_ONCE = 1 << 18  # most bytes that a call receives: the buffer is allocated before the call
_KIND_FLAGS = socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
_new: Any = socket.socket.__base__.__new__  # _socket.socket has it
_F_GETFL, _F_SETFL, _NONBLOCK = 3, 4, os.O_NONBLOCK


def _as_native(method: _F) -> _F:
    """Return a copy of a method that the native rule takes for socket.socket's own.

    The rule compares the module and the name of the function. So C calls no Python code; it calls
    the same simulated kernel with the descriptor.
    """

    def forward(self: Any, *args: Any, **options: Any) -> Any:
        """Call the method."""
        return method(self, *args, **options)

    code = forward.__code__.replace(co_name=method.__name__)
    made = types.FunctionType(code, vars(socket), method.__name__, None, forward.__closure__)
    return cast("_F", made)


class _Fields(ctypes.Structure):
    """CPython's fields of a socket after the object header; lease.c reads them, too."""

    _fields_ = [(name, ctypes.c_int) for name in ("number", "family", "kind", "protocol")]


class Socket(socket.socket):
    """A socket of a simulated kernel, which goloop treats as a ``socket.socket``."""

    __slots__ = ("_kernel", "_timeout")

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Create the object without a call of the real kernel."""
        made: Self = _new(cls)
        return made

    def __init__(
        self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None
    ) -> None:
        """Create a simulated socket, or one for the simulated descriptor `fileno`.

        EscapedSimulation for a real descriptor, OSError for one that is not open.
        """
        # super().__init__() is not called: it would call the real kernel.
        fields = _Fields.from_address(id(self) + object.__basicsize__)
        fields.number = -1
        self._io_refs = 0
        self._closed = False
        self._timeout: float | None = None
        self._kernel = kernel_of_thread.get(threading.get_ident())
        if fileno is None:
            family = socket.AF_INET if family == -1 else family
            type = socket.SOCK_STREAM if type == -1 else type
            kernel = kernel_of_thread[threading.get_ident()]
            kind = type | os.O_CLOEXEC
            fileno = request(Request.SOCKET, kernel.number, family, kind, owner_number())[0]
        elif fileno < FIRST:
            raise EscapedSimulation(
                f"descriptor {fileno} is not simulated; make the socket in the simulation"
            )
        else:
            family = request(Request.GET_OPTION, fileno, socket.SOL_SOCKET, _SO_DOMAIN)[0]
            type = request(Request.GET_OPTION, fileno, socket.SOL_SOCKET, socket.SO_TYPE)[0]
        fields.number, fields.family, fields.kind = fileno, family, type & ~_KIND_FLAGS
        fields.protocol = max(proto, 0)

    def __repr__(self) -> str:
        return f"<simulated socket fd={self.fileno()} family={self.family} type={self.type}>"

    def __del__(self) -> None:
        """Close the descriptor."""
        # As socket.socket does: asyncio relies on it if it fails to make a transport.
        with contextlib.suppress(OSError):
            self._real_close()

    def _real_close(self) -> None:
        """Close the simulated descriptor, unless its kernel is closed."""
        number = super(socket.socket, self).detach()
        # A later kernel reuses the numbers of a closed kernel.
        if number >= 0 and not (self._kernel is not None and self._kernel.closed):
            request(Request.CLOSE, number)

    def setblocking(self, flag: bool, /) -> None:
        """Set or clear the blocking mode."""
        flags = request(Request.CONTROL, self.fileno(), _F_GETFL)[0]
        request(
            Request.CONTROL,
            self.fileno(),
            _F_SETFL,
            flags & ~_NONBLOCK if flag else flags | _NONBLOCK,
        )

    def getblocking(self) -> bool:
        """Return true in blocking mode."""
        return not request(Request.CONTROL, self.fileno(), _F_GETFL)[0] & _NONBLOCK

    def settimeout(self, value: float | None) -> None:
        """Set the mode: 0 is non-blocking. Another timeout is only stored for gettimeout()."""
        self.setblocking(value != 0)
        self._timeout = value or None

    def gettimeout(self) -> float | None:
        """Return the stored timeout in seconds, 0.0 in non-blocking mode; None: no timeout."""
        return self._timeout if self.getblocking() else 0.0

    def get_inheritable(self) -> bool:
        """Return false: no child process can inherit a simulated socket."""
        return False

    def set_inheritable(self, inheritable: bool) -> None:
        """Raise EscapedSimulation for True."""
        if inheritable:
            raise EscapedSimulation("a child process can't inherit a simulated socket")

    def bind(self, address: Any) -> None:
        """Bind the socket to an address of its host."""
        raw = pack(self.family, address)
        request(Request.BIND, self.fileno(), len(raw), data=raw)

    def listen(self, backlog: int = 128) -> None:
        """Listen for connections."""
        request(Request.LISTEN, self.fileno(), backlog)

    def connect(self, address: Any) -> None:
        """Connect to a simulated address; a host name is resolved."""
        raw = pack(self.family, address)
        request(Request.CONNECT, self.fileno(), len(raw), data=raw)

    def connect_ex(self, address: Any) -> int:
        """Connect as connect(); return 0 or the errno."""
        try:
            self.connect(address)
        except OSError as e:
            return e.errno or errno.EIO
        return 0

    @_as_native
    def accept(self) -> tuple[Socket, Any]:
        """Accept a connection; return (socket, address)."""
        number, size, data = request(Request.ACCEPT, self.fileno(), os.O_CLOEXEC, room=_MAX_NAME)
        return Socket(fileno=number), unpack(data[:size])

    @_as_native
    def recv(self, size: int, flags: int = 0) -> bytes:
        """Receive up to `size` bytes, at most _AT_ONCE."""
        size = min(size, _AT_ONCE)
        n, _, data = request(Request.RECV, self.fileno(), size, flags, room=size + _MAX_NAME)
        return bytes(data[:n])

    @_as_native
    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Receive into a buffer; return the number of bytes. `nbytes` 0 means the whole buffer."""
        view = memoryview(buffer).cast("B")
        data = self.recv(nbytes or len(view), flags)
        view[: len(data)] = data
        return len(data)

    @_as_native
    def recvfrom(self, size: int, flags: int = 0) -> tuple[bytes, Any]:
        """Receive up to `size` bytes; return (bytes, address)."""
        size = min(size, _AT_ONCE)
        n, name, data = request(Request.RECV, self.fileno(), size, flags, room=size + _MAX_NAME)
        return bytes(data[:n]), unpack(data[n : n + name])

    def recvfrom_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> tuple[int, Any]:
        """Receive into a buffer; return (number of bytes, address)."""
        view = memoryview(buffer).cast("B")
        data, address = self.recvfrom(nbytes or len(view), flags)
        view[: len(data)] = data
        return len(data), address

    def recvmsg(
        self, bufsize: int, ancbufsize: int = 0, flags: int = 0, /
    ) -> tuple[bytes, list[Any], int, Any]:
        """Receive a message; return (bytes, [], 0, address): there is no ancillary data."""
        data, address = self.recvfrom(bufsize, flags)
        return data, [], 0, address

    def recvmsg_into(
        self, buffers: Any, ancbufsize: int = 0, flags: int = 0, /
    ) -> tuple[int, list[Any], int, Any]:
        """Receive a message into several buffers; return (size, [], 0, address)."""
        views = [memoryview(each).cast("B") for each in buffers]
        data, address = self.recvfrom(sum(map(len, views)), flags)
        rest = data
        for view in views:
            piece, rest = rest[: len(view)], rest[len(view) :]
            view[: len(piece)] = piece
        return len(data), [], 0, address

    @_as_native
    def send(self, data: Any, flags: int = 0, /) -> int:
        """Send bytes; return the number of bytes that the kernel accepted."""
        raw = bytes(data)
        return request(Request.SEND, self.fileno(), len(raw), flags, data=raw)[0]

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        """Send all bytes, in as many calls as necessary."""
        view = memoryview(data).cast("B")
        while view:
            view = view[self.send(view, flags) :]

    @_as_native
    def sendmsg(
        self, buffers: Any, ancdata: Any = (), flags: int = 0, address: Any = None, /
    ) -> int:
        """Send the joined buffers; return the number of bytes.

        As send(), or as sendto() if `address` is given, which ignores `flags`. Raises
        EscapedSimulation if there is ancillary data.
        """
        if ancdata:
            raise EscapedSimulation(
                "the simulated kernel does not support ancillary data (sendmsg(ancdata=...))"
            )
        data = b"".join(buffers)
        return self.send(data, flags) if address is None else self.sendto(data, flags, address)

    def sendfile(self, file: Any, offset: int = 0, count: int | None = None) -> int:
        """Send a real file by reading it and calling send(); return the number of bytes."""
        # socket.sendfile() would wait with a selector of the real kernel.
        send: Any = socket.socket._sendfile_use_send  # type: ignore[attr-defined]
        sent: int = send(self, file, offset, count)
        return sent

    @_as_native
    def sendto(self, data: Any, *args: Any) -> int:
        """Send a datagram to the address, the last argument; flags before it are ignored."""
        raw, name = bytes(data), pack(self.family, args[-1])
        return request(Request.SEND, self.fileno(), len(raw), 0, len(name), data=raw + name)[0]

    @_as_native
    def shutdown(self, how: int) -> None:
        """Shut down one or both directions."""
        request(Request.SHUTDOWN, self.fileno(), how)

    def getsockname(self) -> Any:
        """Return the socket's own address."""
        _, size, data = request(Request.SOCKNAME, self.fileno(), room=_MAX_NAME)
        return unpack(data[:size])

    def getpeername(self) -> Any:
        """Return the peer's address; OSError if the socket is not connected."""
        _, size, data = request(Request.PEERNAME, self.fileno(), room=_MAX_NAME)
        return unpack(data[:size])

    def setsockopt(self, level: int, option: int, value: Any, *_: Any) -> None:
        """Set an option; OSError if the simulated kernel does not have it."""
        if option == socket.SO_LINGER and level == socket.SOL_SOCKET and isinstance(value, bytes):
            request(Request.LINGER, self.fileno(), *struct.unpack("ii", value))
        else:
            request(Request.SET_OPTION, self.fileno(), level, option, int(value))

    def getsockopt(self, level: int, option: int, *_: Any) -> Any:
        """Return the value of an option as an int."""
        return request(Request.GET_OPTION, self.fileno(), level, option)[0]

    def dup(self) -> Any:
        """Return a new simulated socket object for a duplicate of the descriptor."""
        return Socket(fileno=request(Request.DUP, self.fileno())[0])


def make(kernel: Kernel, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM) -> Socket:
    """Make a socket of a kernel."""
    return Socket(fileno=request(Request.SOCKET, kernel.number, family, kind | os.O_CLOEXEC)[0])


def pair(kernel: Kernel, kind: int = socket.SOCK_STREAM) -> tuple[Socket, Socket]:
    """Return two new connected Unix sockets of a kernel, owned by the current host."""
    kind |= os.O_CLOEXEC
    first, second, _ = request(
        Request.SOCKETPAIR, kernel.number, socket.AF_UNIX, kind, owner_number()
    )
    return Socket(fileno=first), Socket(fileno=second)


def pack(family: int, address: Any) -> bytes:
    """Return an address in the kernel's binary form; a host name is resolved (gaierror)."""
    head = struct.pack("=H", family)
    if family == socket.AF_INET:
        return head + struct.pack("!H", address[1]) + _numeric(family, address[0]) + bytes(8)
    if family == socket.AF_INET6:
        port = struct.pack("!HI", address[1], 0)
        return head + port + _numeric(family, address[0]) + bytes(4)
    name = os.fsencode(address)
    return head + name + (b"" if name.startswith(b"\0") or not name else b"\0")


def _numeric(family: int, host: str) -> bytes:
    """Return the binary form of a numeric address or a host name."""
    if not host:
        return bytes(4 if family == socket.AF_INET else 16)
    try:
        return socket.inet_pton(family, host)
    except OSError:
        found: Any = socket.getaddrinfo(host, None, family)[0][4][0]
        return socket.inet_pton(family, found)


def unpack(answer: memoryview) -> Any:
    """Return an address in the form of ``socket``; None if the answer has no address."""
    raw = bytes(answer)
    if len(raw) < 2:
        return None
    family = struct.unpack_from("=H", raw)[0]
    if family == socket.AF_INET:
        return socket.inet_ntoa(raw[4:8]), struct.unpack_from("!H", raw, 2)[0]
    if family == socket.AF_INET6:
        return socket.inet_ntop(family, raw[8:24]), struct.unpack_from("!H", raw, 2)[0], 0, 0
    name = raw[2:]
    return name if name.startswith(b"\0") else os.fsdecode(name.rstrip(b"\0"))


SimulatedSystem.socket_class = Socket
