"""Several hundred wrong calls, and a loop's answers to them.

A call is an expression in text, as a program would write it: `await loop.sock_recv(None, 10)`.
The names in it are those of `Things`, which makes only the objects that a call names. `CALLS` has
all calls: some are written out, most combine a function with the wrong values of one argument.

`answer` runs a call on a fresh loop and returns everything that the caller gets to see of it.
test_wrong_input.py compares the answers of goloop and asyncio.  To see them:

    .venv-3.13/bin/python tests/loop/wrong_calls.py [part of a call ...]
"""

from __future__ import annotations

import array
import asyncio
import concurrent.futures
import contextlib
import contextvars
import dataclasses
import functools
import gc
import inspect
import io
import logging
import math
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent / "support"))

from arguments import (
    ADDRESSES,
    BUFFERS,
    BYTES,
    CALLBACKS,
    CONTEXTS,
    FACTORIES,
    FDS,
    FLAGS,
    NAMED,
    PIPES,
    SIGNALS,
    SIZES,
    SOCKETS,
    TIMES,
    TLS_CONTEXTS,
    VALID,
)  # fmt: skip

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


@dataclasses.dataclass(frozen=True)
class Call:
    """A call, and the state in which it is made."""

    source: str
    # "running": by a coroutine of the loop; "stopped": while it does not run; "closed": after
    # close(); "debug": as running, in debug mode.
    state: str = "running"

    def __str__(self) -> str:
        return self.source if self.state == "running" else f"{self.state}: {self.source}"


@dataclasses.dataclass
class Answer:
    """The visible results of a wrong call."""

    # "raises TypeError: the words", "gives None", or "waits".
    outcome: str
    # Warnings, lines of the log, and calls of the loop's exception handler, in this order.
    said: list[str]
    # Resources that the call left open without a reference.
    leaked: list[str]

    def __str__(self) -> str:
        return "\n".join([self.outcome, *self.said, *(f"leaks {what}" for what in self.leaked)])


# ---- subjects of the calls ---------------------------------------------------------------


def function(*args: object) -> None:
    """A callback that takes everything."""


async def coroutine_function(*args: object) -> None:
    """No callback."""


async def generator_function() -> Any:
    yield 1


class Fileno:
    """An object whose fileno() returns or raises a given value."""

    def __init__(self, number: Any) -> None:
        self.number = number

    def __repr__(self) -> str:
        return "<Fileno>"

    def fileno(self) -> Any:
        if isinstance(self.number, BaseException):
            raise self.number
        return self.number


class Index:
    """An int in all but its type."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


class Angry:
    """Raises at every access."""

    def __repr__(self) -> str:
        return "<Angry>"

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError(name)

    def __bool__(self) -> bool:
        raise ZeroDivisionError("bool")

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError("eq")

    __hash__ = object.__hash__


class Partial(asyncio.Protocol):
    """A protocol that has some of a protocol's methods."""

    connection_made = None  # type: ignore[assignment]


NAMES: dict[str, Any] = {
    **{name: value for name, value in vars(socket).items() if name.isupper()},
    "Angry": Angry,
    "BytesIO": io.BytesIO,
    "Context": contextvars.Context,
    "DatagramProtocol": asyncio.DatagramProtocol,
    "Fileno": Fileno,
    "Index": Index,
    "Partial": Partial,
    "Protocol": asyncio.Protocol,
    "StringIO": io.StringIO,
    "SubprocessProtocol": asyncio.SubprocessProtocol,
    "array": array.array,
    "asyncio": asyncio,
    "coroutine_function": coroutine_function,
    "devnull": subprocess.DEVNULL,
    "function": function,
    "generator_function": generator_function,
    "inf": math.inf,
    "nan": math.nan,
    "partial": functools.partial,
    "signal": signal,
    "socket": socket,
}


class Things(dict[str, Any]):
    """The names of a call, for eval: each is made when it is prepared, once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(NAMES, loop=loop)
        self.on_exit = contextlib.ExitStack()

    async def prepare(self, source: str) -> None:
        for name in compile(source, "<call>", "eval").co_names:
            await self.want(name)

    async def want(self, name: str) -> Any:
        make = getattr(type(self), f"make_{name}", None)
        if make is not None and name not in self:
            made = make(self)
            self[name] = await made if inspect.iscoroutinefunction(make) else made
        return self.get(name)

    def close(self) -> None:
        self.on_exit.close()

    # ---- sockets and files

    def _keep(self, thing: Any) -> Any:
        return self.on_exit.enter_context(contextlib.closing(thing))

    def _finally(self, end: Callable[[], object]) -> None:
        """A transport that a call has upset may fail to end."""

        def quietly() -> None:
            with contextlib.suppress(Exception):
                end()

        self.on_exit.callback(quietly)

    def _pair(self) -> None:
        for name, sock in zip(("near", "far"), socket.socketpair(), strict=True):
            sock.setblocking(False)
            self[name] = self._keep(sock)

    def make_near(self) -> Any:
        self._pair()
        return self["near"]

    def make_far(self) -> Any:
        self._pair()
        return self["far"]

    def make_fd(self) -> int:
        """A number that can be watched."""
        number: int = self.make_near().fileno()
        return number

    def make_spare(self) -> Any:
        """A TCP socket that is connected to nothing."""
        sock = self._keep(socket.socket())
        sock.setblocking(False)
        return sock

    def make_blocking(self) -> Any:
        return self._keep(socket.socket())

    def make_closed_socket(self) -> Any:
        sock = socket.socket()
        sock.close()
        return sock

    def make_udp(self) -> Any:
        sock = self._keep(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
        return sock

    def make_tls_socket(self) -> Any:
        context = ssl.create_default_context()
        sock = context.wrap_socket(socket.socket(), server_hostname="here")
        sock.setblocking(False)
        return self._keep(sock)

    def make_listening(self) -> Any:
        sock = self._keep(socket.create_server(("127.0.0.1", 0)))
        sock.setblocking(False)
        return sock

    def make_unix(self) -> Any:
        sock = self._keep(socket.socket(socket.AF_UNIX))
        sock.setblocking(False)
        return sock

    def make_file(self) -> Any:
        file = self._keep(tempfile.TemporaryFile())  # noqa: SIM115
        file.write(b"0123456789")
        file.seek(0)
        return file

    def make_text_file(self) -> Any:
        return self._keep(tempfile.TemporaryFile("w+"))

    def make_closed_file(self) -> Any:
        file = self.make_file()
        file.close()
        return file

    def make_null(self) -> Any:
        return self._keep(open("/dev/null", "r+b", buffering=0))

    def _pipe(self) -> tuple[int, int]:
        return os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def make_source(self) -> Any:
        """The reading end of a pipe."""
        reading, writing = self._pipe()
        self._keep(open(writing, "wb", buffering=0))  # noqa: SIM115
        return self._keep(open(reading, "rb", buffering=0))

    def make_sink(self) -> Any:
        """The writing end of a pipe."""
        reading, writing = self._pipe()
        self._keep(open(reading, "rb", buffering=0))  # noqa: SIM115
        return self._keep(open(writing, "wb", buffering=0))

    def make_nobody(self) -> int:
        """The number of no file."""
        return 1000

    def make_folder(self) -> str:
        return self.on_exit.enter_context(tempfile.TemporaryDirectory())

    # ---- others that have no loop

    def make_coroutine(self) -> Any:
        return self._keep(coroutine_function())

    def make_generator(self) -> Any:
        return generator_function()

    def make_context(self) -> ssl.SSLContext:
        return ssl.create_default_context()

    def make_executor(self) -> Any:
        return self.on_exit.enter_context(concurrent.futures.ThreadPoolExecutor(1))

    def make_other_loop(self) -> Any:
        """Another loop of the same kind."""
        return self._keep(type(self["loop"])())

    async def make_other_future(self) -> Any:
        return (await self.want("other_loop")).create_future()

    # ---- objects that a loop makes

    def make_handle(self) -> Any:
        return self["loop"].call_soon(function)

    def make_timer(self) -> Any:
        timer = self["loop"].call_later(1000, function)
        self._finally(timer.cancel)
        return timer

    def make_future(self) -> Any:
        return self["loop"].create_future()

    def make_done(self) -> Any:
        future = self["loop"].create_future()
        future.set_result(1)
        return future

    def make_task(self) -> Any:
        """Make a task that waits."""

        async def wait() -> None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1000)

        task = self["loop"].create_task(wait())
        self._finally(task.cancel)
        return task

    async def make_done_task(self) -> Any:
        task = self["loop"].create_task(coroutine_function())
        await task
        return task

    async def make_transport(self) -> Any:
        """A stream."""
        near = await self.want("near")
        transport, _ = await self["loop"].create_connection(asyncio.Protocol, sock=near)
        self._finally(transport.abort)
        return transport

    async def make_closing(self) -> Any:
        """A stream that was closed."""
        transport = await self.make_transport()
        transport.close()
        return transport

    async def make_transport_fd(self) -> Any:
        await self.want("transport")
        return self["near"].fileno()

    async def make_transport_socket(self) -> Any:
        return (await self.want("transport")).get_extra_info("socket")

    async def make_datagrams(self) -> Any:
        """A datagram transport without a remote address."""
        address = ("127.0.0.1", 0)
        transport, _ = await self["loop"].create_datagram_endpoint(
            asyncio.DatagramProtocol, local_addr=address
        )
        self._finally(transport.abort)
        return transport

    async def make_connected(self) -> Any:
        """A datagram transport with a remote address."""
        peer = (await self.want("udp")).getsockname()
        transport, _ = await self["loop"].create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=peer
        )
        self._finally(transport.abort)
        return transport

    async def make_reading(self) -> Any:
        """A transport of a pipe's reading end."""
        pipe = await self.want("source")
        transport, _ = await self["loop"].connect_read_pipe(asyncio.Protocol, pipe)
        self._finally(transport.close)
        return transport

    async def make_writing(self) -> Any:
        """A transport of a pipe's writing end."""
        pipe = await self.want("sink")
        transport, _ = await self["loop"].connect_write_pipe(asyncio.BaseProtocol, pipe)
        self._finally(transport.abort)
        return transport

    async def make_server(self) -> Any:
        server = await self["loop"].create_server(asyncio.Protocol, "127.0.0.1", 0)
        self._finally(server.close)
        return server


# ---- the calls ----------------------------------------------------------------------------

# Wrong arguments: a function, the position or name of the argument, and values.
WRONG: list[tuple[str, int | str, tuple[str, ...]]] = [
    *[(f"loop.{name}", 0, FDS) for name in
      ("add_reader", "add_writer", "remove_reader", "remove_writer")],
    *[(f"loop.{name}", 1, CALLBACKS) for name in
      ("add_reader", "add_writer", "call_later", "call_at", "add_signal_handler",
       "run_in_executor")],
    ("loop.call_soon", 0, CALLBACKS),
    ("loop.call_soon_threadsafe", 0, CALLBACKS),
    ("loop.call_later", 0, TIMES),
    ("loop.call_at", 0, TIMES),
    *[(f"loop.{name}", "context", CONTEXTS) for name in
      ("call_soon", "call_soon_threadsafe", "call_later", "call_at")],
    *[(f"loop.{name}", 0, SOCKETS) for name in
      ("sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall",
       "sock_sendto", "sock_connect", "sock_accept", "sock_sendfile")],
    ("loop.sock_accept", 0, ("near", "spare", "udp")),
    ("loop.sock_recv", 1, SIZES),
    ("loop.sock_recvfrom", 1, SIZES),
    ("loop.sock_recv_into", 1, BUFFERS),
    ("loop.sock_recvfrom_into", 1, BUFFERS),
    ("loop.sock_recvfrom_into", "nbytes", (*SIZES, "6")),
    ("loop.sock_sendall", 1, BYTES),
    ("loop.sock_sendto", 1, BYTES),
    ("loop.sock_sendto", 2, ADDRESSES),
    ("loop.sock_connect", 1, ADDRESSES),
    *[(f"loop.{name}", 1, ("None", "1", "'x'", "BytesIO()", "StringIO()", "closed_file",
                           "text_file", "null", "object()"))
      for name in ("sock_sendfile", "sendfile")],
    *[("loop." + name, option, (*SIZES, "0")) for name in ("sock_sendfile", "sendfile")
      for option in ("offset", "count")],
    ("loop.sendfile", 0, ("None", "1", "object()", "closing", "datagrams", "writing", "reading")),
    ("loop.sendfile", "fallback", ("'x'", "None")),
    ("loop.add_signal_handler", 0, SIGNALS),
    ("loop.remove_signal_handler", 0, SIGNALS),
    ("loop.run_in_executor", 0, ("1", "'x'", "object()", "Angry()")),
    ("loop.set_default_executor", 0, ("None", "1", "object()")),
    ("loop.getaddrinfo", 0, ("1", "object()", "1.5", "'\\0'", "b'\\xff'", "'\\udc80'", "'x' * 70")),
    ("loop.getaddrinfo", 1, ("object()", "1.5", "-1", "70000", "2**70", "'\\udc80'", "b'\\xff'")),
    *[("loop.getaddrinfo", name, FLAGS) for name in ("family", "type", "proto", "flags")],
    ("loop.getnameinfo", 0, (*ADDRESSES, "('x', 1)", "('127.0.0.1', 1.5)")),
    ("loop.getnameinfo", 1, FLAGS),
    ("loop.getnameinfo", "flags", ("None", "'x'")),
    ("loop.create_task", 0, ("None", "1", "function", "coroutine_function", "future", "generator",
                             "done", "object()", "task")),
    ("loop.create_task", "name", ("1", "object()", "Angry()")),
    ("loop.create_task", "context", CONTEXTS),
    *[(f"loop.{name}", 0, FACTORIES) for name in
      ("connect_accepted_socket", "connect_read_pipe", "connect_write_pipe")],
    ("loop.connect_accepted_socket", 1, (*SOCKETS, "udp", "listening", "spare", "unix")),
    ("loop.connect_accepted_socket", "ssl", TLS_CONTEXTS),
    ("loop.connect_accepted_socket", "ssl_handshake_timeout", ("1", "'x'")),
    ("loop.connect_accepted_socket", "ssl_shutdown_timeout", ("1", "'x'")),
    ("loop.connect_read_pipe", 1, PIPES),
    ("loop.connect_write_pipe", 1, PIPES),
    ("loop.start_tls", 0, ("None", "1", "object()", "closing", "reading", "datagrams", "writing")),
    ("loop.start_tls", 2, ("None", "1", "True", "'x'")),
    *[("loop.start_tls", option, ("-1", "0", "'x'", "nan", "[]")) for option in
      ("ssl_handshake_timeout", "ssl_shutdown_timeout")],
    ("loop.subprocess_exec", 0, ("None", "1", "object()")),
    ("loop.subprocess_exec", 1, ("None", "1", "''", "'/no/such'", "b'/no/such'", "[]", "'\\0'")),
    ("loop.subprocess_shell", 1, ("None", "1", "['true']", "'\\0'")),
    *[(f"loop.{name}", option, values) for name in ("subprocess_exec", "subprocess_shell")
      for option, values in (
          ("stdin", ("'x'", "2**40", "object()", "closed_file")),
          ("universal_newlines", ("True",)), ("bufsize", ("1", "'x'")), ("text", ("True",)),
          ("encoding", ("'utf-8'",)), ("errors", ("'strict'",)), ("cwd", ("'/no/such'", "1")),
          ("env", ("1", "{1: 2}")), ("preexec_fn", ("1",)), ("pass_fds", ("'x'",)),
          ("no_such", ("1",)))],
    ("loop.subprocess_exec", "shell", ("1",)),
    ("loop.subprocess_shell", "shell", ("None",)),
    ("loop.set_exception_handler", 0, ("1", "'x'", "object()")),
    ("loop.call_exception_handler", 0, ("None", "1", "'x'", "{}", "[]", "{'exception': 1}",
                                        "{1: 2}", "{'message': None}")),
    ("loop.default_exception_handler", 0, ("None", "1", "'x'", "{}", "[]", "{'exception': 1}",
                                           "{'message': None}")),
    ("loop.set_task_factory", 0, ("1", "'x'", "object()")),
    ("loop.set_debug", 0, ("'x'", "None", "2", "object()", "[]", "Angry()")),
    ("loop.run_until_complete", 0, ("None", "1", "function", "coroutine_function", "other_future",
                                    "generator")),
    *[(f"{name}.{method}", 0, values) for name in ("transport", "writing") for method, values in (
        ("write", BYTES), ("writelines", ("None", "1", "'xy'", "b'xy'", "[1]", "[None]", "['x']",
                                          "[b'x', 1]", "object()", "{}")))],
    ("datagrams.sendto", 0, BYTES),
    ("datagrams.sendto", 1, ADDRESSES),
    ("connected.sendto", 0, BYTES),
    ("connected.sendto", 1, ADDRESSES),
    *[(f"{name}.set_write_buffer_limits", option, ("'x'", "-1", "1.5", "[]", "2**70", "object()"))
      for name in ("transport", "datagrams", "writing") for option in ("high", "low")],
    *[(f"{name}.set_protocol", 0, ("None", "1", "object()"))
      for name in ("transport", "datagrams", "reading", "writing")],
    *[(f"{name}.get_extra_info", 0, ("None", "1", "[]", "object()"))
      for name in ("transport", "datagrams", "reading", "writing")],
    ("future.set_exception", 0, ("None", "1", "'x'", "object", "StopIteration", "StopIteration()",
                                 "ValueError", "UnicodeDecodeError", "BaseException")),
    *[(f"{name}.add_done_callback", 0, ("None", "1", "coroutine_function"))
      for name in ("future", "done", "task")],
    *[(f"{name}.add_done_callback", "context", CONTEXTS) for name in ("future", "done", "task")],
    ("future.remove_done_callback", 0, ("None", "1", "Angry()")),
    ("task.set_name", 0, ("1", "Angry()")),
    ("task.get_stack", "limit", ("'x'", "-1", "object()")),
    ("task.print_stack", "file", ("1", "'x'", "closed_file")),
]  # fmt: skip

# Calls that do not fit a table. A line with bars is the common beginning of calls, and their ends.
OTHERS = r"""
await loop.create_connection( | Protocol) | None, sock=near) | 1, sock=near) |
    coroutine_function, sock=near) | object, sock=near) | Partial, sock=near)
await loop.create_connection(Protocol, sock=near, ssl=context, server_hostname='x', |
    ssl_handshake_timeout='x') | ssl_handshake_timeout=-1) | ssl_shutdown_timeout=0)
await loop.create_connection(Protocol, sock=near, ssl= | 'x', server_hostname='') |
    1, server_hostname='') | context) | context, server_hostname=1) |
    context, server_hostname='.x')
await loop.create_connection(Protocol, sock=near, | server_hostname='x') |
    ssl_handshake_timeout=1) | ssl_shutdown_timeout=1)
await loop.create_connection(Protocol, sock= | udp) | 1) | 'x') | closed_socket) | spare) |
    listening) | transport_socket) | tls_socket)
await loop.create_connection(Protocol, '127.0.0.1', 1, local_addr= | 'x') | 1) | ('127.0.0.1',)) |
    ('127.0.0.1', 'x')) | ('192.0.2.1', 0))
await loop.create_connection(Protocol, '127.0.0.1', 1, | all_errors=True) | family='x') |
    family=AF_UNIX) | family=AF_INET6) | proto='x') | flags='x') | happy_eyeballs_delay='x') |
    interleave='x') | ssl='x')
await loop.create_connection(Protocol, '127.0.0.1', | 'x') | -1) | 70000) | 1) | 1.5) | object()) |
    None)
await loop.create_connection(Protocol, | 'x', 1, sock=near) | port=1, sock=near) | 1, 1) |
    object(), 1)
await loop.create_server( | Protocol) | None, '127.0.0.1', 0) | 1, '127.0.0.1', 0)
await loop.create_server(Protocol, '127.0.0.1', 0, backlog= | 'x') | None) | -1) | 2**40) | 1.5)
await loop.create_server(Protocol, '127.0.0.1', 0, ssl | =True) | ='x') | _handshake_timeout=1) |
    _shutdown_timeout=1) | =context, ssl_handshake_timeout=-1)
await loop.create_server(Protocol, '127.0.0.1', 0, | family='x') | family=AF_UNIX) |
    family=AF_INET6) | flags='x') | start_serving='x') | reuse_address='x')
await loop.create_server(Protocol, '127.0.0.1', | 'x') | -1) | 70000) | 1.5)
await loop.create_server(Protocol, sock= | udp) | 1) | 'x') | closed_socket) | near) |
    transport_socket)
await loop.create_server(Protocol, | 'x', 1, sock=spare) | 1, 0) | ('127.0.0.1', 1), 0) |
    object(), 0) | [], 0) | '192.0.2.1', 0)
await loop.create_unix_connection( | None, sock=near)
await loop.create_unix_connection(Protocol, '/no/such', | sock=unix) | ssl=context) |
    ssl='x', server_hostname='x') | server_hostname='x') | ssl_handshake_timeout=1) |
    ssl_shutdown_timeout=1)
await loop.create_unix_connection(Protocol, sock= | spare) | udp) | 1) | closed_socket) | unix)
await loop.create_unix_connection(Protocol, | 1) | object()) | '\0' * 200) | 'a\0b') | '/no/such') |
    folder) | 'x' * 200)
await loop.create_unix_server(Protocol, folder + '/x', | ssl='x') | ssl=True) |
    ssl_handshake_timeout=1) | ssl_shutdown_timeout=1) | backlog='x')
await loop.create_unix_server(Protocol, sock= | spare) | udp) | 1) | closed_socket) | near)
await loop.create_unix_server(Protocol, | 1) | object()) | 'x' * 200) | folder) | '/no/such/path') |
    '/dev/null') | '/no/such', sock=unix)
await loop.create_datagram_endpoint( | DatagramProtocol) | None, ('127.0.0.1', 0)) |
    1, ('127.0.0.1', 0)) | coroutine_function, ('127.0.0.1', 0)) | object, ('127.0.0.1', 0)) |
    Partial, ('127.0.0.1', 0))
await loop.create_datagram_endpoint(DatagramProtocol, ('127.0.0.1', 0), | ('::1', 1)) |
    family=AF_UNIX) | family=AF_INET6) | proto='x') | flags='x') | reuse_address=True) |
    no_such=1) | sock=udp)
await loop.create_datagram_endpoint(DatagramProtocol, sock= | udp, allow_broadcast=True) | near) |
    1) | 'x') | closed_socket)
await loop.create_datagram_endpoint(DatagramProtocol, family= | 'x') | 1000) |
    AF_UNIX, local_addr=1) | AF_UNIX, remote_addr='/no/such')
await loop.create_datagram_endpoint(DatagramProtocol, | '127.0.0.1') | 1) | ('127.0.0.1',)) |
    ('127.0.0.1', 'x')) | ('127.0.0.1', -1)) | ('127.0.0.1', 70000)) | remote_addr='x') |
    remote_addr=('127.0.0.1', 'x'))
await loop.connect_read_pipe( | Protocol, sink) | object, source)
await loop.connect_write_pipe( | Protocol, source) | object, sink)
await loop.start_tls(transport, | None, context, server_hostname=1) |
    transport.get_protocol(), context, server_side='x')
await loop.shutdown_default_executor( | 'x') | timeout='x') | timeout=-1)
transport.write_eof(), | transport.write_eof() | transport.write(b'x') |
    transport.writelines([b'x']) | transport.write(1)
transport.set_write_buffer_limits( | 1) | high=5, low=10) | 1, 2, 3)
setattr(future, | '_state', 1) | '_log_traceback', True) | '_log_traceback', 'x') |
    '_asyncio_future_blocking', 'x') | '_callbacks', 1) | '_loop', 1) | '_cancel_message', 1)
setattr(task, | '_state', 1) | '_must_cancel', 'x') | '_fut_waiter', 1) | '_coro', 1)
iter(future). | send(1) | send(1), iter(future).throw(1) | throw(ValueError) |
    throw(ValueError('v')) | throw(ValueError, 1, 2) | throw() | throw(None) | throw('x') |
    throw(object) | throw(ValueError('a'), ValueError('b')) | close(1) | send()
type(future)( | 1) | loop=1) | loop=None) | no_such=1) | loop=loop, no_such=1)
type(task)(coroutine, loop=loop, | name=1, no_such=2) | context=1) | eager_start='x')
type(task)( | ) | 1) | None, loop=loop) | function, loop=loop) | coroutine_function, loop=loop) |
    future, loop=loop) | coroutine, loop=1) | coroutine, loop)
closing. | write(b'x') | write(1) | write(None) | writelines(1) | writelines([1]) | write_eof() |
    pause_reading() | resume_reading() | is_reading() | set_write_buffer_limits(-1) |
    set_protocol(1) | get_write_buffer_size()
datagrams.sendto( | b'x') | b'') | b'', None) | b'x', None) | b'x' * 70000, ('127.0.0.1', 9)) |
    b'x', addr=1, more=2)
datagrams. | set_write_buffer_limits(high=5, low=10) | write(b'x') | pause_reading()
reading. | pause_reading(), reading.pause_reading() | resume_reading(), reading.resume_reading() |
    write(b'x')
writing. | set_write_buffer_limits(high=5, low=10) | write_eof(), writing.write(b'x') |
    pause_reading()
transport. | pause_reading(), transport.pause_reading() |
    resume_reading(), transport.resume_reading() | sendto(b'x') | no_such |
    get_extra_info('no such', 1, 2) | get_extra_info(name='peername', default=1, more=2)
handle. | cancel(), handle._run() | no_such
handle | < 1 | == 1
timer | < 1 | < timer | <= 1 | > None | >= 'x' | == 1
future.set_result(1), | future.set_result(2) | future.set_exception(ValueError('v'))
future.cancel(), | future.set_result(1) | future.result()
future. |
    set_exception(ValueError('v')), future.exception(), future.set_exception(ValueError('v')) |
    cancel('m'), future.exception() | cancel(1, 2) | cancel(message='x') | __await__(1) |
    __iter__(1)
task. | set_name() | get_stack(1) | get_stack(no_such=1) | print_stack(1) | print_stack(limit='x') |
    cancel(1, 2) | cancel(message=1) | result() | exception()
done_task. | set_name() | cancel()
await asyncio.sleep( | 'x') | None) | nan)
await asyncio.wait_for( | other_future, None) | coroutine_function(), 'x') |
    coroutine_function(), nan)
await asyncio. | gather(other_future) | shield(other_future) | wait([other_future])
loop._add_reader( | ) | fd) | None, function) | 'x', function) | -1, function) | 2**40, function)
loop._add_writer( | ) | fd) | None, function)
loop.call_later( | delay=None, callback=function) | callback=function)
loop.call_soon( | context=None) | function, context=Context(), more=1)
await loop.run_in_executor(executor=None, func=int)
loop.create_task( | coro=coroutine) | coro=None) | coroutine, no_such=1) | coroutine, 'name')
loop.create_future( | 1) | loop=1)
loop.run_until_complete( | coroutine) | future)
loop. | run_forever() | close() | no_such | set_debug(enabled=1, more=2)
(loop.set_debug( | 'x'), loop.get_debug()) | None), loop.get_debug()) | 2), loop.get_debug())
await server.serve_forever(1)
connected.sendto(b'x', ('127.0.0.1', 9))
setattr(transport, 'write', None)
next(iter(future)), next(iter(future))
type(future).__init__(future, 1)
setattr(loop, 'slow_callback_duration', 'x')
delattr(future, '_log_traceback')
await other_future
"""

# By a stopped loop, and by a closed one.
STOPPED = """
loop.create_task( | None) | 1)
loop.run_until_complete( | ) | None) | 1) | function) | coroutine_function) | other_future) |
    coroutine, 1) | future=coroutine, more=1)
loop. | run_forever(1) | close(1) | stop(1) | call_soon(None)
asyncio.Runner(loop_factory=1).get_loop()
"""
DEBUG = (
    "loop.call_soon", "loop.call_soon_threadsafe", "loop.call_later", "loop.call_at",
    "loop.add_reader", "loop.run_in_executor", "loop.sock_recv", "loop.sock_recv_into",
    "loop.sock_recvfrom", "loop.sock_recvfrom_into", "loop.sock_sendall", "loop.sock_sendto",
    "loop.sock_connect", "loop.sock_accept", "loop.sock_sendfile", "loop.create_task",
)  # fmt: skip


def _calls_of(text: str) -> Iterator[str]:
    for line in text.replace("|\n", "|").strip().splitlines():
        common, *ends = map(str.strip, re.split(r" \| ?", line))
        space = " " * common.endswith((",", "handle", "timer"))
        yield from (common + space + end for end in ends) if ends else (common,)


def _call(function: str, *arguments: str) -> str:
    text = f"{function}({', '.join(arguments)})"
    return f"await {text}" if _is_awaited(function) else text


def _is_awaited(function: str) -> bool:
    of, name = function.split(".")
    if of == "server":
        return name in ("start_serving", "wait_closed")
    return of == "loop" and name.startswith((
        "sock_", "create_c", "create_s", "create_d", "create_u", "connect_", "getaddr",
        "getname", "run_in", "start_tls", "sendfile", "subprocess_", "shutdown_",
    ))  # fmt: skip


def _forms(function: str, right: tuple[str, ...]) -> Iterator[str]:
    """Missing, surplus and unknown arguments."""
    if right:
        yield _call(function)
        if len(right) > 1:
            yield _call(function, *right[:-1])
    yield _call(function, *right, "no_such=1")
    yield _call(function, "no_such=1")
    yield _call(function, *right, "self=1")
    yield _call(function, *right, "None", "None", "None", "None", "None", "None")


def _named_forms(function: str) -> Iterator[str]:
    """Arguments given twice, alone or by names that are nearly right, and one too many."""
    right = VALID[function]
    for name, value in zip(NAMED[function], right, strict=True):
        yield _call(function, *right, f"{name}={value}")
        yield _call(function, f"{name}={value}")
    yield _call(
        function, *(f"{name}={value}" for name, value in zip(NAMED[function], right, strict=True))
    )
    yield _call(function, *right, "None")
    yield _call(function, *right, "None", "no_such=1")
    yield _call(function, *right, "no_such=1", "other=2")
    yield _call(function, *right, "contxt=1", "socks=1", "fds=1")


def _placed(right: tuple[str, ...], where: int | str, value: str) -> tuple[str, ...]:
    if isinstance(where, str):
        return (*right, f"{where}={value}")
    return (*right[:where], value, *right[where + 1 :])


SHAPES_OF_OTHERS = {"connected.sendto": ("b'x'",), "done.add_done_callback": ("function",),
                    "writing.get_extra_info": ("'pipe'",)}  # fmt: skip


def _calls() -> Iterator[Call]:
    shapes = VALID | SHAPES_OF_OTHERS
    for function_, right in VALID.items():
        yield from map(Call, _forms(function_, right))
    for function_ in NAMED:
        yield from map(Call, _named_forms(function_))
    for function_, where, values in WRONG:
        for value in values:
            source = _call(function_, *_placed(shapes[function_], where, value))
            yield Call(source)
            if function_ in DEBUG:
                yield Call(source, "debug")
    for function_ in DEBUG:
        if function_.startswith("loop.sock_"):
            yield Call(_call(function_, "blocking", *VALID[function_][1:]), "debug")
    yield from map(Call, _calls_of(OTHERS))
    for source in _calls_of(STOPPED):
        yield Call(source, "stopped")
    for function_, right in VALID.items():
        # Not on a closed loop: there create_server would make asyncio create another loop, and
        # the subprocess_ calls would start a child before they fail.
        if function_.startswith("loop.") and not function_.startswith(
            ("loop.create_server", "loop.subprocess_")
        ):
            yield Call(_call(function_, *right), "closed")
            if right and not _is_awaited(function_):
                yield Call(_call(function_, *("None" for _ in right)), "closed")
                yield Call(_call(function_), "closed")


# Each once.
CALLS = list(dict.fromkeys(_calls()))


# ---- the answer ------------------------------------------------------------------------------

# Parts that differ between two loops without a difference: addresses, numbers and class names.
PLAIN = (
    (r"0x[0-9a-f]+", "0x"),
    (r"\bfd=\d+", "fd=N"),
    (r"descriptor \d+ is used", "descriptor N is used"),
    (r"(l|r)addr=\([^)]*\)", r"\1addr=A"),
    (r"'/tmp/[^']*'", "'TEMPORARY'"),
    (r"/tmp/tmp\w+", "TEMPORARY"),
    (r"Task-\d+", "Task-N"),
    (r"\bname=\d+", "name=N"),
    (r"\bsubprocess \d+", "subprocess N"),
    (r"\('127\.0\.0\.1', \d{4,5}\)", "A"),
    (r" created at [^ >]+:\d+", ""),
    # Checks of a class by identity, and not by its name.
    (r"\b(goloop\._core|goloop|_asyncio)\.(?=[A-Z])", ""),
    (r"(?<=['<])(Loop|_UnixSelectorEventLoop)\b", "LOOP"),
    (r"(?<=['<])(StreamTransport|_SelectorSocketTransport)\b", "STREAM"),
    (r"(?<=['<])(DatagramTransport|_SelectorDatagramTransport)\b", "DATAGRAM"),
    (r"(?<=['<])(ReadPipeTransport|_UnixReadPipeTransport)\b", "READING"),
    (r"(?<=['<])(WritePipeTransport|_UnixWritePipeTransport)\b", "WRITING"),
    (r"in callback \w+Transport\._(add_reader|start)\(\)", "in callback that starts reading"),
    (r"in callback \w+Transport\._call_connection_lost\(\)", "in callback of the end"),
)
MAX_TURNS = 5


def plain(text: str) -> str:
    for pattern, replacement in PLAIN:
        text = re.sub(pattern, replacement, text)
    return text


def kind_of(value: object) -> str:
    if isinstance(value, (bool, int, str, bytes, types.NoneType)):
        return repr(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(kind_of, value))})"
    kinds = (asyncio.Task, asyncio.Future, asyncio.TimerHandle, asyncio.Handle,
             asyncio.DatagramTransport, asyncio.Transport, asyncio.ReadTransport,
             asyncio.WriteTransport, asyncio.AbstractEventLoop)  # fmt: skip
    for kind in kinds:
        if isinstance(value, kind):
            return kind.__name__
    return type(value).__name__


def words_of(exc: object) -> str:
    return plain(f"{type(exc).__name__}: {exc}")


class _Log(logging.Handler):
    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.said = said

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(plain(f"logs {record.getMessage()}"))


def _unraisable(said: list[str]) -> Callable[[Any], None]:
    def note(what: Any) -> None:
        said.append(f"ignores {words_of(what.exc_value)}")

    return note


def _descriptors() -> dict[str, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found[name] = os.readlink(f"/proc/self/fd/{name}")
    return found


async def _awaited(value: Any, patience: float) -> str:
    """Return the outcome of a coroutine, within some time."""
    waiting = asyncio.ensure_future(value)
    await asyncio.wait([waiting], timeout=patience)
    if not waiting.done():
        waiting.cancel()
        await asyncio.wait([waiting], timeout=patience)  # some take no notice
        return "waits"
    return _close_result(waiting.result())


def _close_result(result: Any) -> str:
    """The kind of a result, whose parts are closed."""
    kind = kind_of(result)
    for part in result if isinstance(result, tuple) else (result,):
        if inspect.iscoroutine(part) or isinstance(
            part, (asyncio.BaseTransport, asyncio.Server, socket.socket)
        ):
            part.close()
        elif isinstance(part, asyncio.TimerHandle):
            part.cancel()
    return f"gives {kind}"


async def _in_the_loop(things: Things, call: Call, patience: float) -> str:
    try:
        source = call.source.removeprefix("await ")
        result = eval(compile(source, "<call>", "eval"), {}, things)
        if source == call.source:
            return _close_result(result)
        return await _awaited(result, patience)
    except (KeyboardInterrupt, asyncio.CancelledError) as exc:
        return f"raises {words_of(exc)}"
    except BaseException as exc:
        return f"raises {words_of(exc)}"
    finally:
        for _ in range(MAX_TURNS):
            await asyncio.sleep(0)


def _outside_the_loop(things: Things, call: Call) -> str:
    source = call.source.removeprefix("await ")
    try:
        result = eval(compile(source, "<call>", "eval"), {}, things)
        if source == call.source:
            return _close_result(result)
        with contextlib.closing(result):
            result.send(None)
        return "waits"
    except StopIteration as exc:
        return _close_result(exc.value)
    except BaseException as exc:
        return f"raises {words_of(exc)}"


# Seconds beyond the limit of a call, until it counts as stuck.
GUARD = 3.0


class Stuck(BaseException):
    """Out of a loop that no timer and no other thread could stop.

    A timer of NaN keeps all others of asyncio's from firing, a debug flag that raises its selector
    from being woken.
    """


def _stuck(*ignored: object) -> None:
    raise Stuck


def _answer(call: Call, factory: LoopFactory, patience: float, said: list[str]) -> str:
    loop = factory()
    loop.set_debug(call.state == "debug")
    loop.slow_callback_duration = 1000.0

    def report(_loop: object, context: dict[str, Any]) -> None:
        # Before 3.13 the callback's arguments stand there too, cut to a length.
        message = re.sub(
            r"(in callback [^(]+)\(.*\)$", r"\1()", context["message"], flags=re.DOTALL
        )
        text = plain(f"reports {message}")
        if "exception" in context:
            text += f": {words_of(context['exception'])}"
        said.append(text)

    loop.set_exception_handler(report)
    things = Things(loop)
    before = signal.signal(signal.SIGALRM, _stuck)
    signal.setitimer(signal.ITIMER_REAL, 2 * patience + GUARD)
    try:
        loop.run_until_complete(things.prepare(call.source.removeprefix("await ")))
        if call.state == "closed":
            loop.close()
        if call.state in ("running", "debug"):
            return loop.run_until_complete(_in_the_loop(things, call, patience))
        return _outside_the_loop(things, call)
    except Stuck:
        return "hangs"
    except Exception as exc:
        return f"ends the loop by {words_of(exc)}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        loop.set_debug(False)
        things.close()
        if not loop.is_closed():
            for _ in range(MAX_TURNS):
                loop.run_until_complete(asyncio.sleep(0))
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()


def collect() -> None:
    """Collect garbage; messages of objects in an invalid state are ignored."""
    unraisable, sys.unraisablehook = sys.unraisablehook, function
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
    finally:
        sys.unraisablehook = unraisable


def answer(call: Call, factory: LoopFactory, patience: float = 0.3) -> Answer:
    """Return the answer of a loop of that factory."""
    said: list[str] = []
    log, logger = _Log(said), logging.getLogger("asyncio")
    gc.disable()
    unraisable, sys.unraisablehook = sys.unraisablehook, _unraisable(said)
    before = _descriptors()
    logger.addHandler(log)
    propagate, logger.propagate = logger.propagate, False
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            outcome = _answer(call, factory, patience, said)
    finally:
        sys.unraisablehook = unraisable
        gc.enable()
        logger.removeHandler(log)
        logger.propagate = propagate
    warned = [
        plain(f"warns {item.category.__name__}: {item.message}")
        for item in caught
        # A closed loop cannot close the objects of the call.
        if call.state != "closed" or item.category is not ResourceWarning
    ]
    # Messages repeated in every iteration count once.
    said = list(dict.fromkeys(sorted(warned) + said))
    collect()
    return Answer(outcome, said, _leaked(before))


def _leaked(before: dict[str, str]) -> list[str]:
    after = _descriptors()
    return sorted(re.sub(r"\d+", "N", what) for fd, what in after.items() if before.get(fd) != what)


def _show(parts: list[str]) -> None:
    import goloop

    factories: list[LoopFactory] = [asyncio.SelectorEventLoop, goloop.new_event_loop]
    for factory in factories:
        factory().close()
    different = 0
    for call in CALLS:
        if parts and not any(part in str(call) for part in parts):
            continue
        print("?", call, file=sys.stderr, flush=True)
        theirs, ours = (answer(call, factory) for factory in factories)
        if theirs != ours:
            different += 1
            print(f"{call}\n    asyncio: {theirs}\n    goloop:  {ours}".replace("\n", "\n    "))
        elif parts:
            print(f"{call}\n    both: {ours}")
    print(f"{different} of {len(CALLS)} answers differ")


if __name__ == "__main__":
    _show(sys.argv[1:])
