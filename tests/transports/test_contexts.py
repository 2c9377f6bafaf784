"""The context variables that a protocol's callbacks see.

From Python 3.15 on a server's context is the one in which it was made, each connection
has a copy of its own, and every callback of the connection runs in that.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import socket
import ssl
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from protocols import Recorder, close_all, hang_up, until
from tls_tools import client_context, server_context

Loop = asyncio.AbstractEventLoop

NEW = sys.version_info >= (3, 15)

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


@pytest.fixture
def _shared(loop_name: str) -> None:
    """Use one context for all callbacks: asyncio's since 3.15, goloop's on every version."""
    if loop_name == "asyncio" and not NEW:
        pytest.skip("before 3.15 asyncio copies the context for each callback")


class Seen(Recorder):
    """Records the value that each callback sees, and sets its own name."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = {"factory": variable.get()}
        self.mark = f"{id(self)}"

    def _note(self, name: str) -> None:
        self.seen[name] = variable.get()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._note("made")
        variable.set(self.mark)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._note("data")
        super().data_received(data)

    def eof_received(self) -> bool:
        self._note("eof")
        return super().eof_received()

    def pause_writing(self) -> None:
        self._note("pause")
        super().pause_writing()

    def resume_writing(self) -> None:
        self._note("resume")
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._note("lost")
        super().connection_lost(exc)


class Server:
    """A server of one of three kinds, and connections to it."""

    def __init__(self, loop: Loop, kind: str) -> None:
        self.loop, self.kind = loop, kind
        self.accepted: list[Seen] = []
        self.made: Any = None
        self.folder = tempfile.TemporaryDirectory()
        self.path = str(Path(self.folder.name) / "socket")

    def _accept(self) -> Seen:
        self.accepted.append(Seen())
        variable.set("factory")
        return self.accepted[-1]

    async def make(self, **options: Any) -> None:
        loop: Any = self.loop
        if self.kind == "unix":
            self.made = await loop.create_unix_server(self._accept, self.path, **options)
        else:
            tls = server_context() if self.kind == "tls" else None
            self.made = await loop.create_server(self._accept, "127.0.0.1", 0, ssl=tls, **options)

    async def connect(self) -> tuple[Recorder, Seen]:
        """The client's protocol, and the server's."""
        loop: Any = self.loop
        count = len(self.accepted)
        near: Recorder
        if self.kind == "unix":
            _, near = await loop.create_unix_connection(Recorder, self.path)
        else:
            tls: ssl.SSLContext | None = client_context() if self.kind == "tls" else None
            name = "localhost" if tls else None
            address = self.made.sockets[0].getsockname()
            _, near = await loop.create_connection(
                Recorder, *address, ssl=tls, server_hostname=name
            )
        await until(lambda: len(self.accepted) > count and self.accepted[-1].made.done())
        return near, self.accepted[-1]

    async def close(self) -> None:
        await close_all(self.made)
        self.folder.cleanup()


KINDS = ["plain", "tls", "unix"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_servers_context_is_taken_once(loop: Loop, kind: str) -> None:
    server = Server(loop, kind)
    variable.set("made")
    await server.make(start_serving=False)
    variable.set("serving")
    await server.made.start_serving()
    variable.set("later")
    near, far = await server.connect()
    near.transport.close()
    await far.lost
    wanted = "made" if NEW else "serving"
    assert far.seen["factory"] == wanted
    assert far.seen["made"] == "factory"
    assert variable.get() == "later"
    await server.close()


@pytest.mark.usefixtures("_shared")
@pytest.mark.parametrize("kind", KINDS)
async def test_each_connection_has_a_context_of_its_own(loop: Loop, kind: str) -> None:
    server = Server(loop, kind)
    variable.set("made")
    await server.make()
    variable.set("later")
    pairs = [await server.connect() for _ in range(3)]
    for near, far in pairs:
        near.transport.write(b"data")
        await until(lambda far=far: far.data)
        near.transport.close()
        await far.lost
    for _, far in pairs:
        assert far.seen.pop("factory") == "made"
        assert far.seen.pop("made") == "factory"
        assert far.seen == dict.fromkeys(["data", "eof", "lost"], far.mark)
    assert variable.get() == "later"
    await server.close()


@pytest.mark.usefixtures("_shared")
@pytest.mark.parametrize("kind", KINDS)
async def test_resume_reading_does_not_change_the_context(loop: Loop, kind: str) -> None:
    server = Server(loop, kind)
    await server.make()
    near, far = await server.connect()
    far.transport.pause_reading()
    near.transport.write(b"data")
    variable.set("the one who resumes")
    far.transport.resume_reading()
    await until(lambda: far.data)
    near.transport.close()
    await far.lost
    assert far.seen["data"] == far.seen["lost"] == far.mark
    await server.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_pause_writing_and_resume_writing_have_the_connections_context(
    loop: Loop, loop_name: str, kind: str
) -> None:
    """For pause_writing() asyncio uses the context of the writer, uvloop the connection's."""
    server = Server(loop, kind)
    await server.make()
    near, far = await server.connect()
    near.transport.pause_reading()
    variable.set("the one who writes")
    for _ in range(16):
        far.transport.write(bytes(1_000_000))
    assert far.seen["pause"] == (far.mark if loop_name == "goloop" else "the one who writes")
    near.transport.resume_reading()
    await until(lambda: "resume" in far.seen)
    if loop_name == "goloop" or NEW:
        assert far.seen["resume"] == far.mark
    assert variable.get() == "the one who writes"
    far.transport.close()
    await near.lost
    await server.close()


async def test_write_from_the_connections_own_context(loop: Loop) -> None:
    """A context can't be entered twice: pause_writing() runs in a copy of it."""

    class Echo(Seen):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.write(bytes(8_000_000))

    near, far = socket.socketpair()
    near.setblocking(False)
    protocol = Echo()
    await loop.create_connection(lambda: protocol, sock=near)
    far.send(b"data")
    await until(lambda: "pause" in protocol.seen)
    assert protocol.seen["pause"] == protocol.mark or protocol.seen["pause"] == "unset"
    protocol.transport.abort()
    far.close()
    await protocol.lost


@pytest.mark.parametrize("kind", ["pipe", "datagram"])
async def test_pause_writing_of_other_transports_has_the_context(
    loop: Loop, loop_name: str, kind: str
) -> None:
    class Datagrams(Seen, asyncio.DatagramProtocol):
        pass

    variable.set("maker")
    protocol: Any
    transport: Any
    if kind == "pipe":
        reading, writing = os.pipe()
        transport, protocol = await loop.connect_write_pipe(Datagrams, os.fdopen(writing, "wb", 0))
        variable.set("the one who writes")
        transport.write(bytes(8_000_000))
        os.close(reading)
    else:
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        near.bind(b"")  # a name, so that its peer's has one
        near.setblocking(False)
        far.setblocking(False)
        transport, protocol = await loop.create_datagram_endpoint(Datagrams, sock=far)
        variable.set("the one who writes")
        for _ in range(2000):
            transport.sendto(bytes(1000))
        near.close()
    assert protocol.seen["pause"] == (
        protocol.mark if loop_name == "goloop" else "the one who writes"
    )
    await hang_up(protocol)


@pytest.mark.usefixtures("_shared")
async def test_a_client_has_a_copy_of_its_makers_context(loop: Loop) -> None:
    left, right = socket.socketpair()
    variable.set("maker")
    _, near = await loop.create_connection(Seen, sock=left)
    variable.set("later")
    right.send(b"data")
    await until(lambda: near.data)
    right.close()
    await near.lost
    assert near.seen == {
        "factory": "maker",
        "made": "maker",
        **dict.fromkeys(["data", "eof", "lost"], near.mark),
    }
    assert variable.get() == "later"


@pytest.mark.skipif(not NEW, reason="the argument came with Python 3.15")
@pytest.mark.parametrize("tls", [False, True])
async def test_a_transport_in_a_given_context(loop: Any, tls: bool) -> None:
    """The parameter of the private methods that BaseEventLoop and programs call."""
    left, right = socket.socketpair()
    left.setblocking(False)
    context = contextvars.Context()
    context.run(variable.set, "given")
    protocol = Seen()
    if tls:
        transport = loop._make_ssl_transport(
            left, protocol, client_context(), context=context, server_hostname="localhost"
        )
        _, far = await loop.connect_accepted_socket(Recorder, right, ssl=server_context())
        right_transport = far.transport
    else:
        transport = loop._make_socket_transport(left, protocol, context=context)
        right_transport, _ = await loop.connect_accepted_socket(Recorder, right)
    await protocol.made
    assert protocol.seen["made"] == "given"
    assert context[variable] == protocol.mark
    right_transport.close()
    await protocol.lost
    assert protocol.seen["lost"] == protocol.mark
    transport.close()


@pytest.mark.goloop_only("asyncio copies the context for each of them, on 3.15 too")
async def test_the_callbacks_of_a_datagram_endpoint_share_a_context(loop: Loop) -> None:
    seen: list[tuple[str, str]] = []
    lost = loop.create_future()

    class Notes(asyncio.DatagramProtocol):
        def note(self, name: str) -> None:
            seen.append((name, variable.get()))
            variable.set(name)

        def connection_made(self, transport: Any) -> None:
            self.note("made")

        def datagram_received(self, data: bytes, addr: Any) -> None:
            self.note("received")

        def connection_lost(self, exc: Exception | None) -> None:
            self.note("lost")
            lost.set_result(None)

    variable.set("maker")
    transport, _ = await loop.create_datagram_endpoint(Notes, ("127.0.0.1", 0))
    for count in (2, 3):
        transport.sendto(b"x", transport.get_extra_info("sockname"))
        await until(lambda count=count: len(seen) == count)  # type: ignore[misc]
    transport.close()
    await lost
    assert seen == [("made", "maker"), ("received", "made"), ("received", "received"),
                    ("lost", "received")]  # fmt: skip
    assert variable.get() == "maker"
