"""Connections that a server accepts: many at once, lost ones, and those of a server that closes."""

from __future__ import annotations

import asyncio
import errno
import gc
import itertools
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Errors, tcp_pair
from protocols import Echo, Made, Recorder, close_all, close_each, hang_up, reset, turns, until
from tls_tools import client_context, server_context

Loop = asyncio.AbstractEventLoop


async def test_connections_that_wait_in_the_backlog_are_all_accepted(loop: Loop) -> None:
    made = Made()
    sock = socket.create_server(("127.0.0.1", 0), backlog=300)
    clients = [socket.create_connection(sock.getsockname()) for _ in range(250)]
    server = await loop.create_server(made, sock=sock, backlog=300)
    await until(lambda: len(made) == 250 and all(protocol.transport for protocol in made))
    peers = {protocol.transport.get_extra_info("peername") for protocol in made}
    assert peers == {client.getsockname() for client in clients}
    close_each(*clients)
    for protocol in made:
        await protocol.lost
    await close_all(server)


async def test_reset_before_accept_does_not_stop_other_accepts(loop: Loop) -> None:
    sock = socket.create_server(("127.0.0.1", 0))
    reset(socket.create_connection(sock.getsockname()))
    made = Made()
    server = await loop.create_server(made, sock=sock)
    _, near = await loop.create_connection(Recorder, *sock.getsockname())
    await until(lambda: made and made[-1].transport)
    await hang_up(near)
    for protocol in made:
        await protocol.lost
    await close_all(server)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
async def test_a_connection_that_cannot_have_no_delay_is_dropped(
    loop: Loop, errors: Errors, tmp_path: Path
) -> None:
    """A socket object that takes itself for TCP: the kernel refuses TCP_NODELAY."""
    path = str(tmp_path / "socket")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    tcp = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    pretender = socket.socket(*tcp, fileno=listener.detach())
    made = Made()
    server = await loop.create_server(made, sock=pretender)
    # The protocol is made first, and asyncio is silent outside of debug mode.
    for debug in (False, True):
        loop.set_debug(debug)
        with socket.socket(socket.AF_UNIX) as client:
            client.setblocking(False)
            await loop.sock_connect(client, path)
            await until(lambda count=1 + debug: len(made) == count)
            await turns(3)
            if debug:
                context = errors.expect(OSError, "Error on transport creation for incoming")
                assert context["exception"].errno == errno.EOPNOTSUPP
                assert context["protocol"] is made[1]
                del context
            gc.collect()  # asyncio leaves its half-made transport to the collector
            assert await loop.sock_recv(client, 1) == b""
    loop.set_debug(False)
    server.close()
    assert [protocol.calls for protocol in made] == [[], []]
    assert not errors.contexts


async def test_close_during_connection_setup_leaks_nothing(loop: Loop) -> None:
    """Nothing leaks when the server goes while connections are being set up."""
    for _ in range(20):
        made = Made()
        server = await loop.create_server(made, "127.0.0.1", 0)
        clients = [socket.create_connection(server.sockets[0].getsockname()) for _ in range(3)]
        await asyncio.sleep(0)
        server.close()
        close_each(*clients)
        await turns(5)
        await until(lambda made=made: all(p.lost.done() for p in made))  # type: ignore[misc]
        await server.wait_closed()


@pytest.mark.parametrize("clients", [1, 3])
async def test_server_closed_during_accept_does_not_wait_for_the_connection(
    loop: Loop, clients: int
) -> None:
    """asyncio would not have accepted it yet; here it is served, to its own end."""
    made = Made()
    server = await loop.create_server(made, "127.0.0.1", 0)
    await asyncio.sleep(0)
    address = server.sockets[0].getsockname()
    socks = [socket.create_connection(address) for _ in range(clients)]
    await asyncio.sleep(0)
    server.close()
    await server.wait_closed()
    await turns()
    close_each(*socks)
    for protocol in made:
        await protocol.lost


async def test_an_iteration_accepts_no_more_than_asyncios(loop: Loop, loop_name: str) -> None:
    accept: Any = asyncio.SelectorEventLoop._accept_connection  # type: ignore[attr-defined]
    # range(backlog + 1) since 3.14 and in late releases of 3.13, range(backlog) before.
    most = 2 + (sys.version_info >= (3, 14) or 1 in accept.__code__.co_consts)
    made = Made()
    sock = socket.create_server(("127.0.0.1", 0), backlog=30)
    clients = [socket.create_connection(sock.getsockname()) for _ in range(30)]
    server = await loop.create_server(made, sock=sock, backlog=2)
    await turns()  # in the first of them it may poll twice
    counts = [len(made)]
    while counts[-1] < len(clients):
        await asyncio.sleep(0)
        counts.append(len(made))
    found = max(after - before for before, after in itertools.pairwise(counts))
    # goloop's takes fewer where they would take much time.
    assert found == most if loop_name == "asyncio" else found <= most
    await until(lambda: all(protocol.transport for protocol in made))
    close_each(*clients)
    for protocol in made:
        await protocol.lost
    await close_all(server)


@pytest.mark.goloop_only("asyncio accepts nobody before 3.14")
async def test_backlog_of_0_accepts_connections(loop: Loop) -> None:
    made = Made()
    server = await loop.create_server(made, "127.0.0.1", 0, backlog=0)
    for number in range(2):
        with socket.create_connection(server.sockets[0].getsockname()):
            await until(lambda number=number: len(made) > number)  # type: ignore[misc]
        await made[number].lost
    await close_all(server)


async def test_server_closed_by_its_first_client_waits_for_that_client(loop: Loop) -> None:
    class Closes(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            server.close()

    made = Made(Closes)
    server: Any = await loop.create_server(made, "127.0.0.1", 0)
    sock = socket.create_connection(server.sockets[0].getsockname())
    await until(lambda: made)
    await made[0].made
    closed = asyncio.ensure_future(server.wait_closed())
    await turns()
    assert closed.done() == (sys.version_info < (3, 12))
    sock.close()
    await made[0].lost
    await closed


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_connection_survives_a_server_closed_during_accept(loop: Loop, tls: bool) -> None:
    """The connection is served, by that server or by another one on the same socket."""
    context = server_context() if tls else None
    with socket.create_server(("127.0.0.1", 0)) as shared:
        for _ in range(20):
            first = await loop.create_server(Echo, sock=shared.dup(), ssl=context)
            await asyncio.sleep(0)
            made = socket.create_connection(shared.getsockname())
            made.setblocking(False)
            await asyncio.sleep(0)
            first.close()
            second = await loop.create_server(Echo, sock=shared.dup(), ssl=context)
            _, client = await loop.create_connection(
                Recorder,
                sock=made,
                ssl=client_context() if tls else None,
                server_hostname="localhost" if tls else None,
            )
            client.transport.write(b"hello")
            await until(lambda client=client: client.data == b"hello" or client.lost.done())  # type: ignore[misc]
            assert client.data == b"hello"
            await hang_up(client)
            await first.wait_closed()
            await close_all(second)


async def test_listening_socket_is_refused_to_others(loop: Loop) -> None:
    near, far = tcp_pair()
    close_each(near, far)
    server = await loop.create_server(Recorder, "127.0.0.1", 0)
    fd = server.sockets[0].fileno()
    assert fd >= 0
    await close_all(server)
    with pytest.raises(OSError, match="Bad file descriptor"):
        socket.socket(fileno=fd)
