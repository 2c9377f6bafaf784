"""The first bytes of an accepted connection, which follow connection_made() without a wait.

A server that stops closes the connections that have sent no request. So a request that is in the
kernel when its connection is handed over must not wait for a later iteration.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import gc
import socket
import ssl
import termios
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from protocols import (
    BufferedRecorder,
    Calls,
    Made,
    Recorder,
    close_all,
    close_each,
    reset,
    turns,
    until,
)
from tls_tools import client_context, server_context

import goloop

Loop = asyncio.AbstractEventLoop
CLIENTS = 40


def unread(sock: Any) -> int:
    """Returns the number of bytes in a socket's receive buffer."""
    count = array.array("i", [0])
    fcntl.ioctl(sock.fileno(), termios.FIONREAD, count)
    return count[0]


def exposed(made: Made) -> int:
    """Returns the number of connections whose first bytes are still in the kernel."""
    waiting = [each.transport for each in made if each.transport and not each.data]
    return sum(1 for each in waiting if unread(each.get_extra_info("socket")))


def served(made: Made) -> int:
    return sum(1 for each in made if each.data)


class Answering(Calls):
    """Answers the first bytes and closes."""

    def note_data(self, data: bytes) -> None:
        super().note_data(data)
        self.transport.write(b"answer")
        self.transport.close()


class Plain(Answering, Recorder):
    pass


class Buffered(Answering, BufferedRecorder):
    pass


class Scheduling(Plain):
    """The method connection_made() makes a task, which has to run before the bytes are received."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.started = False
        self.task = asyncio.get_running_loop().create_task(self.start())

    async def start(self) -> None:
        self.started = True

    def data_received(self, data: bytes) -> None:
        assert self.started
        super().data_received(data)


@pytest.fixture(params=["tcp", "unix", "shared"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A function that starts a server of a protocol factory, and one that connects to it."""
    listener = goloop.SharedListener(host="127.0.0.1") if request.param == "shared" else None
    path = str(tmp_path / "socket")

    async def serve(loop: Loop, factory: Callable[[], Any]) -> Any:
        if request.param == "unix":
            return await loop.create_unix_server(factory, path, backlog=CLIENTS)
        if listener is not None:
            return await listener.create_server(factory)
        return await loop.create_server(factory, "127.0.0.1", 0, backlog=CLIENTS)

    def connect(server: Any) -> socket.socket:
        family = socket.AF_UNIX if request.param == "unix" else socket.AF_INET
        client = socket.socket(family)
        client.settimeout(20)
        address = path if request.param == "unix" else server.sockets[0].getsockname()
        client.connect(address)
        client.sendall(b"123")
        return client

    yield serve, connect
    if listener is not None:
        listener.close()


@pytest.mark.goloop_only("asyncio receives an iteration later")
@pytest.mark.parametrize("protocol", [Plain, Buffered])
async def test_no_callback_sees_a_new_connection_whose_bytes_wait(
    loop: Loop, world: Any, protocol: Any
) -> None:
    serve, connect = world
    made = Made(protocol)
    server = await serve(loop, made)
    clients = [connect(server) for _ in range(CLIENTS)]
    seen = set()
    while served(made) < CLIENTS:
        seen.add(exposed(made))
        await asyncio.sleep(0)
    assert seen == {0}
    assert [each.data for each in made] == [b"123"] * CLIENTS
    assert [client.recv(10) for client in clients] == [b"answer"] * CLIENTS
    close_each(*clients)
    await close_all(server)


@pytest.mark.goloop_only("asyncio receives an iteration later")
@pytest.mark.parametrize("world", ["tcp", "unix"], indirect=True)
async def test_a_task_that_stops_a_server_finds_no_connection_whose_bytes_wait(
    loop: Loop, world: Any
) -> None:
    serve, connect = world
    made = Made(Scheduling)
    server = await serve(loop, made)
    clients = [connect(server) for _ in range(CLIENTS)]
    seen = set()
    while served(made) < CLIENTS:
        seen.add(exposed(made))
        await asyncio.sleep(0.00001)  # the wake-up comes from a timer, as in a server's main task
    assert seen == {0}
    close_each(*clients)
    await close_all(server)


async def test_callbacks_of_factory_and_connection_made_run_before_the_first_bytes(
    loop: Loop,
) -> None:
    log: list[Any] = []

    class Logging(asyncio.Protocol):
        def __init__(self) -> None:
            log.append("factory")
            loop.call_soon(log.append, "factory's callback")

        def connection_made(self, transport: Any) -> None:
            log.append("made")
            self.transport = transport
            loop.call_soon(log.append, "callback")
            self.task = loop.create_task(self.run())

        async def run(self) -> None:
            log.append("task")

        def data_received(self, data: bytes) -> None:
            log.append(data)
            self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            log.append(exc)

    server = await loop.create_server(Logging, "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()) as client:
        client.sendall(b"bytes")
        await until(lambda: None in log)
    expected = ["factory", "factory's callback", "made", "callback", "task", b"bytes", None]
    assert log == expected
    await close_all(server)


async def test_callbacks_keep_their_order_beside_accepted_connections(loop: Loop) -> None:
    log: list[Any] = []

    def factory() -> asyncio.Protocol:
        loop.call_soon(log.append, ("factory", len(log)))
        log.append("made")
        return asyncio.Protocol()

    def add() -> None:
        loop.call_soon(log.append, ("add", len(log)))
        log.append("added")
        if len(log) < 200:
            loop.call_soon(add)

    server = await loop.create_server(factory, "127.0.0.1", 0)
    clients = [socket.create_connection(server.sockets[0].getsockname()) for _ in range(5)]
    loop.call_soon(add)
    await until(lambda: log.count("made") == 5 and len(log) >= 200)
    scheduled = [entry[1] for entry in log if isinstance(entry, tuple)]
    assert scheduled == sorted(scheduled)
    close_each(*clients)
    await close_all(server)


class Acting(Recorder):
    """Calls `act(protocol)` in connection_made(), or in a callback that it schedules."""

    def __init__(self, act: Callable[[Any], Any], later: bool) -> None:
        super().__init__()
        self.act, self.later = act, later

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if self.later:
            asyncio.get_running_loop().call_soon(self.act, self)
        else:
            self.act(self)


async def serve_one(loop: Loop, protocol: Acting) -> tuple[Any, socket.socket]:
    """Starts a server for one client, whose bytes are there before it is accepted."""
    server = await loop.create_server(lambda: protocol, "127.0.0.1", 0)
    client = socket.create_connection(server.sockets[0].getsockname())
    client.sendall(b"bytes")
    await protocol.made
    return server, client


@pytest.mark.parametrize("later", [False, True])
async def test_a_connection_that_pauses_keeps_its_first_bytes_in_the_kernel(
    loop: Loop, later: bool
) -> None:
    protocol = Acting(lambda protocol: protocol.transport.pause_reading(), later)
    server, client = await serve_one(loop, protocol)
    for _ in range(5):
        await asyncio.sleep(0.001)
    assert protocol.data == b""
    assert unread(protocol.transport.get_extra_info("socket")) == 5
    protocol.transport.resume_reading()
    await until(lambda: protocol.data)
    assert protocol.data == b"bytes"
    protocol.transport.close()
    client.close()
    await close_all(server)


@pytest.mark.parametrize("later", [False, True])
async def test_a_connection_that_closes_gets_no_bytes(loop: Loop, later: bool) -> None:
    protocol = Acting(lambda protocol: protocol.transport.close(), later)
    server, client = await serve_one(loop, protocol)
    await protocol.lost
    assert protocol.data == b""
    client.close()
    await close_all(server)


@pytest.mark.parametrize("later", [False, True])
async def test_the_first_bytes_go_to_the_protocol_that_was_set(loop: Loop, later: bool) -> None:
    other = Acting(lambda protocol: None, False)
    protocol = Acting(lambda protocol: protocol.transport.set_protocol(other), later)
    server, client = await serve_one(loop, protocol)
    await until(lambda: other.data)
    assert (protocol.data, other.data) == (b"", b"bytes")
    protocol.transport.close()
    client.close()
    await close_all(server)


async def test_a_handler_can_start_tls_before_the_first_bytes(loop: Loop) -> None:
    """The client's first bytes are those of the handshake."""
    answers: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await writer.start_tls(server_context())
        answers.append(await reader.read(100))
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)

    def client() -> None:
        raw = socket.create_connection(server.sockets[0].getsockname())
        with client_context().wrap_socket(raw, server_hostname="localhost") as sock:
            sock.sendall(b"secret")
            with contextlib.suppress(ssl.SSLError, OSError):
                sock.recv(1)

    await loop.run_in_executor(None, client)
    await until(lambda: answers)
    assert answers == [b"secret"]
    await close_all(server)


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_an_end_that_is_there_already_follows_connection_made(loop: Loop, end: str) -> None:
    made = Made()
    server = await loop.create_server(made, "127.0.0.1", 0)
    client = socket.create_connection(server.sockets[0].getsockname())
    if end == "close":
        client.sendall(b"bytes")
        client.close()
    else:
        reset(client)
    await until(lambda: made and made[0].lost.done())
    lost = made[0].lost.result()
    if end == "close":
        assert made[0].calls == [("made",), ("data", b"bytes"), ("eof",), ("lost", None)]
    else:
        assert made[0].calls == [("made",), ("lost", lost)]
        assert isinstance(lost, ConnectionResetError)
    await close_all(server)


@pytest.mark.goloop_only("asyncio closes connections whose request is in the kernel")
async def test_a_stopped_server_closes_no_connection_that_has_sent_its_request(
    loop: Loop,
) -> None:
    """As uvicorn's shutdown: in one callback the server and the connections without a request."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=CLIENTS)
    made = Made(Plain)
    clients = []
    for _ in range(CLIENTS):
        client = socket.create_connection(listening.getsockname())
        client.settimeout(20)
        client.sendall(b"request")
        clients.append(client)
    while sum(1 for each in made if each.transport) < CLIENTS:
        server = await loop.create_server(made, sock=listening.dup())
        await turns(2)
        server.close()
        for each in made:
            if each.transport and not each.data:
                each.transport.close()
        await asyncio.sleep(0)
    assert [client.recv(10) for client in clients] == [b"answer"] * CLIENTS
    close_each(*clients)
    listening.close()


class SendsMore(Recorder):
    """Lets its peer send more bytes, after the iteration's poll and before the first receive."""

    def __init__(self, more: Callable[[], object]) -> None:
        super().__init__()
        self.more = more

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(b"welcome")  # so that the next iteration polls
        asyncio.get_running_loop().call_soon(self.more)


async def test_bytes_of_the_poll_precede_those_of_the_first_receive(loop: Loop) -> None:
    """The poll receives for many connections at once, before the callbacks run."""
    protocols: list[SendsMore] = []
    clients: list[socket.socket] = []

    def factory() -> SendsMore:
        client = clients[len(protocols)]
        protocols.append(SendsMore(lambda: client.send(b"second")))
        return protocols[-1]

    with contextlib.ExitStack() as stack:
        server = await loop.create_server(factory, "127.0.0.1", 0)
        for _ in range(CLIENTS):
            clients.append(stack.enter_context(socket.socket()))
            clients[-1].connect(server.sockets[0].getsockname())
            clients[-1].send(b"first")
        await until(lambda: sum(len(each.data) for each in protocols) == 11 * CLIENTS)
        assert {bytes(each.data) for each in protocols} == {b"firstsecond"}
        for each in protocols:
            each.transport.abort()
        await close_all(server)


def test_a_transport_of_a_closed_loop_receives_nothing() -> None:
    """A program can keep the transport, and call its method after the loop was closed."""
    loop = goloop.new_event_loop()
    made: list[Any] = []

    class Holds(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            made.append(transport)
            loop.stop()

    server = loop.run_until_complete(loop.create_server(Holds, "127.0.0.1", 0))
    with socket.create_connection(server.sockets[0].getsockname()) as client:
        loop.run_forever()
        server.close()
        client.send(b"first")
        loop.close()
        assert made[0]._receive_first() is None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made.clear()
            gc.collect()
