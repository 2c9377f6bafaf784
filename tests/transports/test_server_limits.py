"""Pauses in accepting, and limits of a server's connections, which asyncio does not have."""

from __future__ import annotations

import asyncio
import functools
import socket
from pathlib import Path
from typing import Any

import pytest
from protocols import Echo, Made, Recorder, can_connect, close_all, close_each, turns, until
from tls_tools import client_context, server_context

pytestmark = pytest.mark.goloop_only("asyncio has no such method")


def clients_of(server: Any, count: int) -> list[socket.socket]:
    """Connections that the kernel has made; whether they are accepted is the server's affair."""
    made = [socket.create_connection(server.sockets[0].getsockname()[:2]) for _ in range(count)]
    for each in made:
        each.setblocking(False)
    return made


async def answered(loop: Any, client: socket.socket) -> bool:
    await loop.sock_sendall(client, b"x")
    return await asyncio.wait_for(loop.sock_recv(client, 1), 60) == b"x"


async def test_connections_wait_while_a_server_is_paused(loop: Any) -> None:
    made = Made(Echo)
    server: Any = await loop.create_server(made, "127.0.0.1", 0, start_serving=False)
    await server.start_serving()
    assert type(server).__name__ == "Server"
    assert repr(server).startswith("<Server sockets=")
    assert server.is_accepting()
    before = clients_of(server, 2)
    await until(lambda: len(made) == 2)
    server.pause_accepting()
    server.pause_accepting()
    assert not server.is_accepting()
    assert server.is_serving()
    waiting = clients_of(server, 20)
    # Open connections go on, and by the time that they have answered no other was accepted.
    for _ in range(3):
        assert all([await answered(loop, each) for each in before])
    assert len(made) == 2
    server.resume_accepting()
    assert server.is_accepting()
    assert all([await answered(loop, each) for each in waiting])
    assert len(made) == 22
    for each in [*before, *waiting]:
        each.close()
    await close_all(server)
    assert not server.is_accepting()


async def test_pauses_among_many_accepts_lose_no_connection(loop: Any) -> None:
    """The protocol of each tenth connection pauses: those accepted in the same iteration too are
    served, and the rest once accepting goes on."""
    made: list[Any] = []

    class Pausing(Echo):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            made.append(self)
            if len(made) % 10 == 0:
                server.pause_accepting()
                loop.call_later(0.001, server.resume_accepting)

    server: Any = await loop.create_server(Pausing, "127.0.0.1", 0, backlog=200)
    clients = clients_of(server, 100)
    assert all(await asyncio.gather(*(answered(loop, each) for each in clients)))
    assert len(made) == 100
    close_each(*clients)
    await close_all(server)


async def test_a_paused_server_closes_and_stays_closed(loop: Any) -> None:
    server: Any = await loop.create_server(Recorder, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    server.pause_accepting()
    await close_all(server)
    assert not can_connect(address)
    server.resume_accepting()
    server.pause_accepting()
    assert not server.is_accepting()
    assert not can_connect(address)


@pytest.mark.parametrize("kind", ["tcp", "limited", "streams", "unix", "tls", "own methods"])
async def test_a_pause_keeps_clients_of_each_kind_of_server_waiting(
    loop: Any, tmp_path: Path, kind: str
) -> None:
    async def answer(reader: Any, writer: Any) -> None:
        writer.write(await reader.readexactly(1))
        writer.close()

    class Listening(socket.socket):
        def accept(self) -> Any:
            return super().accept()

    options: dict[str, Any] = {}
    make = functools.partial(loop.create_server, Echo, "127.0.0.1", 0)
    if kind == "limited":
        options["max_connections"] = 5
    elif kind == "streams":
        make = functools.partial(asyncio.start_server, answer, "127.0.0.1", 0)
    elif kind == "unix":
        make = functools.partial(loop.create_unix_server, Echo, str(tmp_path / "socket"))
    elif kind == "tls":
        options["ssl"] = server_context()
    elif kind == "own methods":
        sock = Listening()
        sock.bind(("127.0.0.1", 0))
        make = functools.partial(loop.create_server, Echo, sock=sock)
    server: Any = await make(start_serving=False, **options)
    server.pause_accepting()
    paused, pauses = loop.metrics().listeners_paused, loop.metrics().accept_pauses
    await server.start_serving()
    assert server.is_serving()
    for count in range(2):  # a pause before it serves, and one while it does
        assert not server.is_accepting()
        assert loop.metrics().listeners_paused == paused + 1
        assert loop.metrics().accept_pauses == pauses + 1 + count
        client = socket.socket(server.sockets[0].family)
        client.connect(server.sockets[0].getsockname())
        client.setblocking(False)
        if kind == "tls":
            open_tls = {"ssl": client_context(), "server_hostname": "localhost"}
            asking = asyncio.ensure_future(asyncio.open_connection(sock=client, **open_tls))
        else:
            asking = asyncio.ensure_future(answered(loop, client))
        await turns(20)
        assert not asking.done()
        server.resume_accepting()
        assert server.is_accepting()
        assert loop.metrics().listeners_paused == paused
        opened: Any = await asyncio.wait_for(asking, 60)
        if kind == "tls":
            await close_all(opened[1])
        client.close()
        server.pause_accepting()
    await close_all(server)


async def test_a_server_that_does_not_serve_yet_is_resumed_limited_and_closed(loop: Any) -> None:
    server: Any = await loop.create_server(Echo, "127.0.0.1", 0, start_serving=False)
    server.pause_accepting()
    server.resume_accepting()
    server.max_connections = 1
    await server.start_serving()
    assert server.is_accepting()
    first, second = clients_of(server, 2)
    assert await answered(loop, first)
    asking = asyncio.ensure_future(answered(loop, second))
    await turns(20)
    assert not asking.done()
    first.close()
    assert await asking
    second.close()
    await close_all(server)
    closed: Any = await loop.create_server(Echo, "127.0.0.1", 0, start_serving=False)
    closed.pause_accepting()
    paused = loop.metrics().listeners_paused
    await close_all(closed)
    closed.resume_accepting()
    assert not closed.is_accepting()
    assert loop.metrics().listeners_paused == paused == 0


class Crowd(Echo):
    """Counts the open connections, and the most of them; each test takes a new subclass."""

    open = most = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        type(self).open += 1
        type(self).most = max(self.open, self.most)

    def connection_lost(self, exc: Exception | None) -> None:
        type(self).open -= 1


@pytest.mark.parametrize("tls", [False, True])
async def test_no_more_connections_than_the_limit_are_open(loop: Any, tls: bool) -> None:
    Here = type("Here", (Crowd,), {})
    context = server_context() if tls else None
    server: Any = await loop.create_server(Here, "127.0.0.1", 0, backlog=200, ssl=context)
    assert server.max_connections is None
    server.max_connections = 5
    assert server.max_connections == 5
    address = server.sockets[0].getsockname()

    async def visit() -> None:
        options = {"ssl": client_context(), "server_hostname": "localhost"} if tls else {}
        reader, writer = await asyncio.open_connection(*address, **options)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        writer.close()
        await writer.wait_closed()

    await asyncio.wait_for(asyncio.gather(*(visit() for _ in range(40))), 60)
    assert 1 <= Here.most <= 5
    await until(lambda: Here.open == 0)
    assert server.is_accepting()
    await close_all(server)


async def test_a_limit_can_be_changed_and_taken_away(loop: Any) -> None:
    Here = type("Here", (Crowd,), {})
    server: Any = await loop.create_server(Here, "127.0.0.1", 0)
    clients = clients_of(server, 6)
    await until(lambda: Here.open == 6)
    server.max_connections = 3  # closes none
    assert not server.is_accepting()
    clients += clients_of(server, 6)
    assert await answered(loop, clients[0])
    await turns(20)
    assert Here.open == 6
    server.max_connections = 8
    await until(lambda: Here.open == 8)
    await turns(20)
    assert Here.open == 8
    # A pause by hand stays, with any limit.
    server.pause_accepting()
    server.max_connections = None
    await turns(20)
    assert Here.open == 8
    assert not server.is_accepting()
    server.resume_accepting()
    await until(lambda: Here.open == 12)
    assert type(server).__name__ == "Server"
    close_each(*clients)
    await close_all(server)


@pytest.mark.parametrize("kind", ["tcp", "queued", "unix", "streams", "later"])
async def test_a_limit_is_there_before_the_first_connection(
    loop: Any, tmp_path: Path, kind: str
) -> None:
    Here = type("Here", (Crowd,), {})
    clients = []
    make = functools.partial(loop.create_server, Here, "127.0.0.1", 0)
    if kind == "queued":
        listening = socket.create_server(("127.0.0.1", 0))
        clients = [socket.create_connection(listening.getsockname()) for _ in range(5)]
        make = functools.partial(loop.create_server, Here, sock=listening)
    elif kind == "unix":
        make = functools.partial(loop.create_unix_server, Here, str(tmp_path / "socket"))
    elif kind == "streams":

        async def serve(reader: Any, writer: Any) -> None:
            Here.open += 1
            Here.most = max(Here.most, Here.open)
            await reader.read()
            Here.open -= 1
            writer.close()

        make = functools.partial(asyncio.start_server, serve, "127.0.0.1", 0)
    server: Any = await make(max_connections=2, start_serving=kind != "later")
    assert server.is_serving() == (kind != "later")
    assert server.max_connections == 2
    await server.start_serving()
    while len(clients) < 5:
        clients.append(socket.socket(server.sockets[0].family))
        clients[-1].connect(server.sockets[0].getsockname())
    await until(lambda: Here.open == 2)
    await turns(20)
    assert Here.most == 2
    for client in clients:
        client.close()
        await until(lambda: Here.open <= 2)
    await until(lambda: Here.open == 0 and server.is_accepting())
    assert Here.most == 2
    await close_all(server)


async def test_a_server_with_a_wrong_limit_is_not_made(loop: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        address = sock.getsockname()
        with pytest.raises(ValueError, match="must be >= 1"):
            await loop.create_server(Recorder, sock=sock, max_connections=0)
        assert not can_connect(address)
    with pytest.raises(TypeError):
        await loop.create_server(Recorder, "127.0.0.1", 0, max_connection=1)


async def test_a_wrong_limit_is_refused(loop: Any) -> None:
    server: Any = await loop.create_server(Recorder, "127.0.0.1", 0)
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="must be >= 1"):
            server.max_connections = wrong
    with pytest.raises(TypeError):
        server.max_connections = 1.5
    assert server.max_connections is None
    await close_all(server)


async def test_a_full_server_closes(loop: Any) -> None:
    server: Any = await loop.create_server(Echo, "127.0.0.1", 0)
    server.max_connections = 1
    first, second = clients_of(server, 2)
    assert await answered(loop, first)
    address = server.sockets[0].getsockname()
    close_each(server, first, second)
    await close_all(server)
    assert not can_connect(address)
