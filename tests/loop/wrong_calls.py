"""Several hundred wrong calls, and a loop's answers to them.

A call is an expression in text, as a program would write it: `await loop.sock_recv(None, 10)`.
The names in it are those of `Things`, which makes only the objects that a call names. `CALLS` has
all calls: some are written out, most combine a function with the wrong values of one argument.

`answer` runs a call on a fresh loop and returns everything that the caller gets to see of it.
test_wrong_input.py compares the answers of goloop and asyncio.  To see them:

    .venv-3.13/bin/python tests/loop/wrong_calls.py [part of a call ...]
"""

from __future__ import annotations

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
from typing import Any

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

# Wrong values of an argument, by the kind of the right one.
FDS = (
    "None", "'x'", "b'x'", "1.5", "1j", "True", "-1", "-2**40", "2**31", "2**40", "2**64", "nobody",
    "object()", "closed_file", "closed_socket", "BytesIO()", "[]", "file", "transport",
    "transport_fd", "transport_socket", "Fileno('x')", "Fileno(None)", "Fileno(-1)",
    "Fileno(2**40)", "Fileno(1.5)", "Fileno(ValueError('no'))", "Fileno(OSError('no'))",
    "Fileno(KeyError('no'))", "Index(0)", "Angry()",
)  # fmt: skip
CALLBACKS = ("None", "1", "'x'", "object()", "coroutine", "coroutine_function", "Angry()",
             "partial(coroutine_function)", "generator_function", "future")  # fmt: skip
TIMES = ("None", "'x'", "nan", "inf", "-inf", "1j", "object()", "[]", "-2**80", "2**2000", "b'1'",
         "True", "Index(0)")  # fmt: skip
SOCKETS = ("None", "1", "'x'", "object()", "closed_socket", "tls_socket", "BytesIO()", "[]",
           "closed_file", "file", "transport_socket", "Fileno(-1)", "Fileno(2**40)", "transport",
           "Angry()")  # fmt: skip
SIZES = ("None", "-1", "'x'", "1.5", "2**70", "object()", "[]", "Index(-1)")
BYTES = ("None", "'x'", "1", "[]", "[1]", "object()", "memoryview(b'abcdef')[::2]", "Angry()")
BUFFERS = ("None", "'x'", "1", "[]", "object()", "b'abc'", "bytearray()",
           "memoryview(bytearray(6))[::2]")  # fmt: skip
ADDRESSES = ("None", "1", "'x'", "b'x'", "()", "('127.0.0.1',)", "('127.0.0.1', 'x')",
             "('127.0.0.1', -1)", "('127.0.0.1', 70000)", "('127.0.0.1', None)", "(1, 2)",
             "(None, 1)", "('127.0.0.1', 1, 2, 3, 4)", "('::1', 1)", "['127.0.0.1', 1]",
             "object()")  # fmt: skip
PIPES = ("None", "1", "-1", "'x'", "object()", "BytesIO()", "StringIO()", "closed_file", "file",
         "text_file", "null", "closed_socket", "udp", "Fileno('x')", "Fileno(-1)", "Fileno(2**40)",
         "Fileno(None)", "Angry()")  # fmt: skip
FACTORIES = ("None", "1", "'x'", "object()", "coroutine_function", "Partial", "Angry()")
FLAGS = ("None", "'x'", "-1", "2**40", "1.5", "object()")
SIGNALS = ("None", "'x'", "0", "-1", "1000", "2**40", "1.5", "signal.SIGKILL", "signal.SIGSTOP",
           "object()", "b'x'", "signal.SIG_DFL")  # fmt: skip
CONTEXTS = ("1", "'x'", "object()", "{}")
TLS_CONTEXTS = ("1", "'x'", "object()")

# Functions without arguments.
BARE = {
    "loop": (
        "create_future get_exception_handler get_task_factory get_debug time is_running "
        "is_closed stop close run_forever shutdown_asyncgens shutdown_default_executor"
    ),
    "transport": (
        "write_eof can_write_eof close abort is_closing is_reading pause_reading "
        "resume_reading get_protocol get_write_buffer_size get_write_buffer_limits "
        "set_write_buffer_limits"
    ),
    "datagrams": "abort close is_closing get_write_buffer_size set_write_buffer_limits",
    "reading": "pause_reading resume_reading is_reading close is_closing",
    "writing": (
        "write_eof can_write_eof close abort is_closing get_write_buffer_size "
        "set_write_buffer_limits"
    ),
    "server": "close get_loop is_serving start_serving wait_closed",
    "handle": "cancel cancelled get_context",
    "timer": "cancel when",
    "future": "result exception cancel cancelled done get_loop",
    "task": (
        "cancel cancelled cancelling uncancel get_name get_coro get_context get_stack print_stack"
    ),
}
# A valid argument list for each function, as source.
SHAPES: dict[str, tuple[str, ...]] = {
    "loop.call_soon": ("function",),
    "loop.call_soon_threadsafe": ("function",),
    "loop.call_later": ("1000", "function"),
    "loop.call_at": ("1e12", "function"),
    "loop.add_reader": ("fd", "function"),
    "loop.add_writer": ("fd", "function"),
    "loop.remove_reader": ("fd",),
    "loop.remove_writer": ("fd",),
    "loop.sock_recv": ("near", "10"),
    "loop.sock_recv_into": ("near", "bytearray(5)"),
    "loop.sock_recvfrom": ("udp", "10"),
    "loop.sock_recvfrom_into": ("udp", "bytearray(5)"),
    "loop.sock_sendall": ("near", "b'x'"),
    "loop.sock_sendto": ("udp", "b'x'", "('127.0.0.1', 9)"),
    "loop.sock_connect": ("spare", "('127.0.0.1', 1)"),
    "loop.sock_accept": ("listening",),
    "loop.sock_sendfile": ("near", "file"),
    "loop.add_signal_handler": ("signal.SIGUSR1", "function"),
    "loop.remove_signal_handler": ("signal.SIGUSR1",),
    "loop.run_in_executor": ("None", "function"),
    "loop.set_default_executor": ("executor",),
    "loop.getaddrinfo": ("'127.0.0.1'", "1"),
    "loop.getnameinfo": ("('127.0.0.1', 1)",),
    "loop.create_task": ("coroutine",),
    "loop.create_connection": ("Protocol", "'127.0.0.1'", "1"),
    "loop.create_server": ("Protocol", "'127.0.0.1'", "0"),
    "loop.create_datagram_endpoint": ("DatagramProtocol",),
    "loop.create_unix_connection": ("Protocol",),
    "loop.create_unix_server": ("Protocol",),
    "loop.connect_accepted_socket": ("Protocol", "near"),
    "loop.connect_read_pipe": ("Protocol", "source"),
    "loop.connect_write_pipe": ("Protocol", "sink"),
    "loop.start_tls": ("transport", "transport.get_protocol()", "context"),
    "loop.sendfile": ("transport", "file"),
    "loop.subprocess_exec": ("SubprocessProtocol", "'/bin/true'"),
    "loop.subprocess_shell": ("SubprocessProtocol", "'true'"),
    "loop.set_exception_handler": ("function",),
    "loop.call_exception_handler": ("{'message': 'm'}",),
    "loop.default_exception_handler": ("{'message': 'm'}",),
    "loop.set_task_factory": ("function",),
    "loop.set_debug": ("False",),
    "loop.run_until_complete": ("coroutine",),
    "transport.write": ("b'x'",),
    "transport.writelines": ("[b'x']",),
    "transport.get_extra_info": ("'peername'",),
    "transport.set_protocol": ("Protocol()",),
    "datagrams.sendto": ("b'x'", "('127.0.0.1', 9)"),
    "datagrams.get_extra_info": ("'peername'",),
    "datagrams.set_protocol": ("DatagramProtocol()",),
    "reading.set_protocol": ("Protocol()",),
    "reading.get_extra_info": ("'pipe'",),
    "writing.write": ("b'x'",),
    "writing.writelines": ("[b'x']",),
    "writing.set_protocol": ("Protocol()",),
    "future.set_result": ("1",),
    "future.set_exception": ("ValueError('v')",),
    "future.add_done_callback": ("function",),
    "future.remove_done_callback": ("function",),
    "task.set_name": ("'x'",),
    "task.set_result": ("1",),
    "task.set_exception": ("ValueError('v')",),
    "task.add_done_callback": ("function",),
    "task.remove_done_callback": ("function",),
    **{f"{of}.{name}": () for of, names in BARE.items() for name in names.split()},
}

# The arguments' names, of functions whose arguments C takes apart.
NAMED = {
    "loop.call_soon": "callback",
    "loop.call_soon_threadsafe": "callback",
    "loop.call_later": "delay callback",
    "loop.call_at": "when callback",
    "loop.add_reader": "fd callback",
    "loop.add_writer": "fd callback",
    "loop.remove_reader": "fd",
    "loop.remove_writer": "fd",
    "loop.sock_recv": "sock n",
    "loop.sock_recv_into": "sock buf",
    "loop.sock_sendall": "sock data",
    "transport.write": "data",
    "transport.writelines": "list_of_data",
    "transport.set_protocol": "protocol",
    "datagrams.sendto": "data addr",
    "datagrams.set_protocol": "protocol",
    "reading.set_protocol": "protocol",
    "writing.write": "data",
    "writing.writelines": "list_of_data",
    "writing.set_protocol": "protocol",
}

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
    *[("loop." + name, option, SIZES) for name in ("sock_sendfile", "sendfile")
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

# Of functions that take much at once: all arguments.
COMBINED: dict[str, tuple[str, ...]] = {
    "loop.create_connection": (
        "Protocol", "Protocol, 'x', 1, sock=near", "Protocol, port=1, sock=near",
        "Protocol, sock=udp", "Protocol, sock=1", "Protocol, sock='x'",
        "Protocol, sock=closed_socket", "Protocol, sock=spare",
        "Protocol, sock=listening", "Protocol, sock=transport_socket", "Protocol, sock=tls_socket",
        "None, sock=near", "1, sock=near", "coroutine_function, sock=near", "object, sock=near",
        "Partial, sock=near", "Protocol, sock=near, ssl='x', server_hostname=''",
        "Protocol, sock=near, ssl=1, server_hostname=''", "Protocol, sock=near, ssl=context",
        "Protocol, sock=near, ssl=context, server_hostname=1",
        "Protocol, sock=near, ssl=context, server_hostname='.x'",
        "Protocol, sock=near, ssl=context, server_hostname='x', ssl_handshake_timeout='x'",
        "Protocol, sock=near, ssl=context, server_hostname='x', ssl_handshake_timeout=-1",
        "Protocol, sock=near, ssl=context, server_hostname='x', ssl_shutdown_timeout=0",
        "Protocol, sock=near, server_hostname='x'", "Protocol, sock=near, ssl_handshake_timeout=1",
        "Protocol, sock=near, ssl_shutdown_timeout=1", "Protocol, '127.0.0.1', 'x'",
        "Protocol, '127.0.0.1', -1", "Protocol, '127.0.0.1', 70000", "Protocol, '127.0.0.1', 1",
        "Protocol, '127.0.0.1', 1, all_errors=True", "Protocol, '127.0.0.1', 1.5",
        "Protocol, '127.0.0.1', object()", "Protocol, 1, 1", "Protocol, object(), 1",
        "Protocol, '127.0.0.1', None", "Protocol, '127.0.0.1', 1, family='x'",
        "Protocol, '127.0.0.1', 1, family=AF_UNIX", "Protocol, '127.0.0.1', 1, family=AF_INET6",
        "Protocol, '127.0.0.1', 1, proto='x'", "Protocol, '127.0.0.1', 1, flags='x'",
        "Protocol, '127.0.0.1', 1, local_addr='x'", "Protocol, '127.0.0.1', 1, local_addr=1",
        "Protocol, '127.0.0.1', 1, local_addr=('127.0.0.1',)",
        "Protocol, '127.0.0.1', 1, local_addr=('127.0.0.1', 'x')",
        "Protocol, '127.0.0.1', 1, local_addr=('192.0.2.1', 0)",
        "Protocol, '127.0.0.1', 1, happy_eyeballs_delay='x'",
        "Protocol, '127.0.0.1', 1, interleave='x'", "Protocol, '127.0.0.1', 1, ssl='x'",
    ),
    "loop.create_server": (
        "Protocol", "Protocol, 'x', 1, sock=spare", "Protocol, sock=udp", "Protocol, sock=1",
        "Protocol, sock='x'", "Protocol, sock=closed_socket", "Protocol, sock=near",
        "Protocol, sock=transport_socket", "Protocol, 1, 0", "Protocol, ('127.0.0.1', 1), 0",
        "Protocol, object(), 0", "Protocol, [], 0", "Protocol, '192.0.2.1', 0",
        "Protocol, '127.0.0.1', 'x'", "Protocol, '127.0.0.1', -1", "Protocol, '127.0.0.1', 70000",
        "Protocol, '127.0.0.1', 1.5", "Protocol, '127.0.0.1', 0, backlog='x'",
        "Protocol, '127.0.0.1', 0, backlog=None", "Protocol, '127.0.0.1', 0, backlog=-1",
        "Protocol, '127.0.0.1', 0, backlog=2**40", "Protocol, '127.0.0.1', 0, backlog=1.5",
        "Protocol, '127.0.0.1', 0, ssl=True", "Protocol, '127.0.0.1', 0, ssl='x'",
        "Protocol, '127.0.0.1', 0, ssl_handshake_timeout=1",
        "Protocol, '127.0.0.1', 0, ssl_shutdown_timeout=1",
        "Protocol, '127.0.0.1', 0, ssl=context, ssl_handshake_timeout=-1",
        "Protocol, '127.0.0.1', 0, family='x'", "Protocol, '127.0.0.1', 0, family=AF_UNIX",
        "Protocol, '127.0.0.1', 0, family=AF_INET6", "Protocol, '127.0.0.1', 0, flags='x'",
        "Protocol, '127.0.0.1', 0, start_serving='x'",
        "Protocol, '127.0.0.1', 0, reuse_address='x'", "None, '127.0.0.1', 0", "1, '127.0.0.1', 0",
    ),
    "loop.create_unix_connection": (
        "Protocol, 1", "Protocol, object()", "Protocol, '\\0' * 200", "Protocol, 'a\\0b'",
        "Protocol, '/no/such'", "Protocol, folder", "Protocol, 'x' * 200",
        "Protocol, '/no/such', sock=unix", "Protocol, sock=spare", "Protocol, sock=udp",
        "Protocol, sock=1", "Protocol, sock=closed_socket", "Protocol, sock=unix",
        "Protocol, '/no/such', ssl=context", "Protocol, '/no/such', ssl='x', server_hostname='x'",
        "Protocol, '/no/such', server_hostname='x'",
        "Protocol, '/no/such', ssl_handshake_timeout=1",
        "Protocol, '/no/such', ssl_shutdown_timeout=1", "None, sock=near",
    ),
    "loop.create_unix_server": (
        "Protocol, 1", "Protocol, object()", "Protocol, 'x' * 200", "Protocol, folder",
        "Protocol, '/no/such/path'", "Protocol, '/dev/null'", "Protocol, '/no/such', sock=unix",
        "Protocol, sock=spare", "Protocol, sock=udp", "Protocol, sock=1",
        "Protocol, sock=closed_socket", "Protocol, sock=near", "Protocol, folder + '/x', ssl='x'",
        "Protocol, folder + '/x', ssl=True", "Protocol, folder + '/x', ssl_handshake_timeout=1",
        "Protocol, folder + '/x', ssl_shutdown_timeout=1", "Protocol, folder + '/x', backlog='x'",
    ),
    "loop.create_datagram_endpoint": (
        "DatagramProtocol", "DatagramProtocol, '127.0.0.1'", "DatagramProtocol, 1",
        "DatagramProtocol, ('127.0.0.1',)", "DatagramProtocol, ('127.0.0.1', 'x')",
        "DatagramProtocol, ('127.0.0.1', -1)", "DatagramProtocol, ('127.0.0.1', 70000)",
        "DatagramProtocol, ('127.0.0.1', 0), ('::1', 1)", "DatagramProtocol, remote_addr='x'",
        "DatagramProtocol, remote_addr=('127.0.0.1', 'x')", "DatagramProtocol, family='x'",
        "DatagramProtocol, family=1000", "DatagramProtocol, family=AF_UNIX, local_addr=1",
        "DatagramProtocol, family=AF_UNIX, remote_addr='/no/such'",
        "DatagramProtocol, ('127.0.0.1', 0), family=AF_UNIX",
        "DatagramProtocol, ('127.0.0.1', 0), family=AF_INET6",
        "DatagramProtocol, ('127.0.0.1', 0), proto='x'",
        "DatagramProtocol, ('127.0.0.1', 0), flags='x'",
        "DatagramProtocol, ('127.0.0.1', 0), reuse_address=True",
        "DatagramProtocol, ('127.0.0.1', 0), no_such=1",
        "DatagramProtocol, ('127.0.0.1', 0), sock=udp",
        "DatagramProtocol, sock=udp, allow_broadcast=True", "DatagramProtocol, sock=near",
        "DatagramProtocol, sock=1", "DatagramProtocol, sock='x'",
        "DatagramProtocol, sock=closed_socket", "None, ('127.0.0.1', 0)", "1, ('127.0.0.1', 0)",
        "coroutine_function, ('127.0.0.1', 0)", "object, ('127.0.0.1', 0)",
        "Partial, ('127.0.0.1', 0)",
    ),
}  # fmt: skip

# Calls that do not fit a table.
OTHERS = """
await loop.connect_read_pipe(Protocol, sink)
await loop.connect_read_pipe(object, source)
await loop.connect_write_pipe(Protocol, source)
await loop.connect_write_pipe(object, sink)
await loop.start_tls(transport, None, context, server_hostname=1)
await loop.start_tls(transport, transport.get_protocol(), context, server_side='x')
await loop.shutdown_default_executor('x')
await loop.shutdown_default_executor(timeout='x')
await loop.shutdown_default_executor(timeout=-1)
await server.serve_forever(1)
transport.set_write_buffer_limits(1)
transport.set_write_buffer_limits(high=5, low=10)
transport.set_write_buffer_limits(1, 2, 3)
datagrams.set_write_buffer_limits(high=5, low=10)
writing.set_write_buffer_limits(high=5, low=10)
transport.pause_reading(), transport.pause_reading()
transport.resume_reading(), transport.resume_reading()
transport.write_eof(), transport.write_eof()
transport.write_eof(), transport.write(b'x')
transport.write_eof(), transport.writelines([b'x'])
transport.write_eof(), transport.write(1)
writing.write_eof(), writing.write(b'x')
closing.write(b'x')
closing.write(1)
closing.write(None)
closing.writelines(1)
closing.writelines([1])
closing.write_eof()
closing.pause_reading()
closing.resume_reading()
closing.is_reading()
closing.set_write_buffer_limits(-1)
closing.set_protocol(1)
closing.get_write_buffer_size()
datagrams.sendto(b'x')
datagrams.sendto(b'')
datagrams.sendto(b'', None)
datagrams.sendto(b'x', None)
connected.sendto(b'x', ('127.0.0.1', 9))
datagrams.sendto(b'x' * 70000, ('127.0.0.1', 9))
datagrams.sendto(b'x', addr=1, more=2)
reading.pause_reading(), reading.pause_reading()
reading.resume_reading(), reading.resume_reading()
reading.write(b'x')
writing.pause_reading()
datagrams.write(b'x')
datagrams.pause_reading()
transport.sendto(b'x')
transport.no_such
transport.get_extra_info('no such', 1, 2)
transport.get_extra_info(name='peername', default=1, more=2)
setattr(transport, 'write', None)
handle < 1
handle == 1
timer < 1
timer < timer
timer <= 1
timer > None
timer >= 'x'
timer == 1
handle.cancel(), handle._run()
handle.no_such
future.set_result(1), future.set_result(2)
future.set_result(1), future.set_exception(ValueError('v'))
future.set_exception(ValueError('v')), future.exception(), future.set_exception(ValueError('v'))
future.cancel(), future.set_result(1)
future.cancel(), future.result()
future.cancel('m'), future.exception()
future.cancel(1, 2)
future.cancel(message='x')
future.__await__(1)
future.__iter__(1)
next(iter(future)), next(iter(future))
iter(future).send(1)
iter(future).send(1), iter(future).throw(1)
iter(future).throw(ValueError)
iter(future).throw(ValueError('v'))
iter(future).throw(ValueError, 1, 2)
iter(future).throw()
iter(future).throw(None)
iter(future).throw('x')
iter(future).throw(object)
iter(future).throw(ValueError('a'), ValueError('b'))
iter(future).close(1)
iter(future).send()
type(future)(1)
type(future)(loop=1)
type(future)(loop=None)
type(future)(no_such=1)
type(future).__init__(future, 1)
type(future)(loop=loop, no_such=1)
type(task)()
type(task)(1)
type(task)(None, loop=loop)
type(task)(function, loop=loop)
type(task)(coroutine_function, loop=loop)
type(task)(future, loop=loop)
type(task)(coroutine, loop=1)
type(task)(coroutine, loop=loop, name=1, no_such=2)
type(task)(coroutine, loop=loop, context=1)
type(task)(coroutine, loop)
type(task)(coroutine, loop=loop, eager_start='x')
task.set_name()
task.get_stack(1)
task.get_stack(no_such=1)
task.print_stack(1)
task.print_stack(limit='x')
task.cancel(1, 2)
task.cancel(message=1)
task.result()
task.exception()
done_task.set_name()
done_task.cancel()
setattr(task, '_state', 1)
setattr(future, '_state', 1)
setattr(future, '_log_traceback', True)
setattr(future, '_log_traceback', 'x')
setattr(future, '_asyncio_future_blocking', 'x')
setattr(task, '_must_cancel', 'x')
setattr(task, '_fut_waiter', 1)
setattr(task, '_coro', 1)
setattr(future, '_callbacks', 1)
setattr(future, '_loop', 1)
setattr(future, '_cancel_message', 1)
setattr(loop, 'slow_callback_duration', 'x')
(loop.set_debug('x'), loop.get_debug())
(loop.set_debug(None), loop.get_debug())
(loop.set_debug(2), loop.get_debug())
delattr(future, '_log_traceback')
await other_future
await asyncio.wait_for(other_future, None)
await asyncio.gather(other_future)
await asyncio.shield(other_future)
await asyncio.wait([other_future])
await asyncio.sleep('x')
await asyncio.sleep(None)
await asyncio.sleep(nan)
await asyncio.wait_for(coroutine_function(), 'x')
await asyncio.wait_for(coroutine_function(), nan)
loop.run_until_complete(coroutine)
loop.run_until_complete(future)
loop.run_forever()
loop.close()
loop.no_such
loop.call_later(delay=None, callback=function)
loop.call_later(callback=function)
loop.call_soon(context=None)
loop.call_soon(function, context=Context(), more=1)
loop.create_future(1)
loop.create_future(loop=1)
loop.create_task(coro=None)
loop.create_task(coroutine, no_such=1)
loop.create_task(coroutine, 'name')
loop.set_debug(enabled=1, more=2)
loop._add_reader()
loop._add_reader(fd)
loop._add_reader(None, function)
loop._add_reader('x', function)
loop._add_reader(-1, function)
loop._add_reader(2**40, function)
loop._add_writer()
loop._add_writer(fd)
loop._add_writer(None, function)
"""

# By a stopped loop, and by a closed one.
STOPPED = """
loop.run_until_complete()
loop.run_until_complete(None)
loop.run_until_complete(1)
loop.run_until_complete(function)
loop.run_until_complete(coroutine_function)
loop.run_until_complete(other_future)
loop.run_until_complete(coroutine, 1)
loop.run_until_complete(future=coroutine, more=1)
loop.run_forever(1)
loop.close(1)
loop.stop(1)
asyncio.Runner(loop_factory=1).get_loop()
loop.call_soon(None)
loop.create_task(None)
loop.create_task(1)
"""
DEBUG = (
    "loop.call_soon", "loop.call_soon_threadsafe", "loop.call_later", "loop.call_at",
    "loop.add_reader", "loop.run_in_executor", "loop.sock_recv", "loop.sock_recv_into",
    "loop.sock_recvfrom", "loop.sock_recvfrom_into", "loop.sock_sendall", "loop.sock_sendto",
    "loop.sock_connect", "loop.sock_accept", "loop.sock_sendfile", "loop.create_task",
)  # fmt: skip


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


def _named_forms(function: str, right: tuple[str, ...], names: str) -> Iterator[str]:
    """Arguments given twice, alone or by names that are nearly right, and one too many."""
    for name, value in zip(names.split(), right, strict=True):
        yield _call(function, *right, f"{name}={value}")
        yield _call(function, f"{name}={value}")
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
    shapes = SHAPES | SHAPES_OF_OTHERS
    for function_, right in SHAPES.items():
        for source in _forms(function_, right):
            yield Call(source)
    for function_, names in NAMED.items():
        for source in _named_forms(function_, SHAPES[function_], names):
            yield Call(source)
    for function_, where, values in WRONG:
        for value in values:
            source = _call(function_, *_placed(shapes[function_], where, value))
            yield Call(source)
            if function_ in DEBUG:
                yield Call(source, "debug")
    for function_ in DEBUG:
        if function_.startswith("loop.sock_"):
            yield Call(_call(function_, "blocking", *SHAPES[function_][1:]), "debug")
    for function_, forms in COMBINED.items():
        for arguments in forms:
            yield Call(_call(function_, arguments))
    for line in filter(None, OTHERS.splitlines()):
        yield Call(line)
    for line in filter(None, STOPPED.splitlines()):
        yield Call(line, "stopped")
    for function_, right in SHAPES.items():
        # create_server makes tasks, for which asyncio makes a new loop where none runs; the
        # other two start a child first.
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
