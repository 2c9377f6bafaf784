"""create_server and Server: addresses, options, serving and closing."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from asyncio import trsock
from typing import Any

import pytest
from protocols import Made, Recorder, can_connect, close_all, hang_up, turns, until

Loop = asyncio.AbstractEventLoop

# wait_closed waits for the connections since 3.12.1.
WAITS_FOR_CONNECTIONS = sys.version_info >= (3, 12, 1)


async def test_server_has_loop_sockets_and_state(loop: Loop) -> None:
    server = await loop.create_server(Recorder, "127.0.0.1", 0)
    assert isinstance(server, asyncio.AbstractServer)
    assert isinstance(server, asyncio.Server)
    assert server.get_loop() is loop
    assert server.is_serving()
    assert isinstance(server.sockets, tuple)
    (view,) = server.sockets
    assert isinstance(view, trsock.TransportSocket)
    assert view.family == socket.AF_INET
    assert view.getsockname()[0] == "127.0.0.1"
    assert view.gettimeout() == 0
    assert repr(server).startswith("<Server sockets=")
    await close_all(server)
    assert server.sockets == ()
    assert not server.is_serving()
    server.close()


async def test_a_server_listens_on_several_hosts(loop: Loop) -> None:
    server = await loop.create_server(Recorder, ["127.0.0.1", "127.0.0.2", "::1"], 0)
    addresses = [sock.getsockname() for sock in server.sockets]
    assert {address[0] for address in addresses} == {"127.0.0.1", "127.0.0.2", "::1"}
    assert all(can_connect(address) for address in addresses)
    await close_all(server)
    await until(lambda: len(asyncio.all_tasks()) == 1)


async def test_a_server_without_host_listens_on_every_interface(loop: Loop) -> None:
    with socket.create_server(("", 0)) as probe:
        port = probe.getsockname()[1]
    server = await loop.create_server(Recorder, None, port)
    hosts = {sock.getsockname()[0] for sock in server.sockets}
    assert hosts == {"0.0.0.0", "::"}
    assert {sock.getsockname()[1] for sock in server.sockets} == {port}
    # Both can have the port because the one is for IPv6 alone.
    for sock in server.sockets:
        if sock.family == socket.AF_INET6:
            assert sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1
    await close_all(server)
    server = await loop.create_server(Recorder, "", port)
    assert {sock.getsockname()[0] for sock in server.sockets} == {"0.0.0.0", "::"}
    await close_all(server)


async def test_a_family_chooses_the_addresses_and_an_unknown_host_is_an_error(loop: Loop) -> None:
    for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        server = await loop.create_server(Recorder, None, 0, family=family)
        assert {sock.getsockname()[0] for sock in server.sockets} == {host}
        await close_all(server)
    for host in ("127.0.0.1", "name.invalid"):
        with pytest.raises(socket.gaierror):
            await loop.create_server(Recorder, host, 0, family=socket.AF_INET6)


async def test_an_address_in_use_is_an_error(loop: Loop, listener: socket.socket) -> None:
    with pytest.raises(OSError, match="error while attempting to bind on address") as caught:
        await loop.create_server(Recorder, *listener.getsockname())
    assert caught.value.errno == errno.EADDRINUSE


async def test_an_error_on_one_host_closes_the_others(loop: Loop, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with pytest.raises(OSError, match="error while attempting to bind"):
        await loop.create_server(Recorder, ["127.0.0.9", "127.0.0.1"], port)
    assert not can_connect(("127.0.0.9", port))


@pytest.mark.parametrize(
    ("arguments", "option", "expected"),
    [
        ({}, socket.SO_REUSEADDR, True),
        ({"reuse_address": False}, socket.SO_REUSEADDR, False),
        ({"reuse_address": True}, socket.SO_REUSEADDR, True),
        ({}, socket.SO_REUSEPORT, False),
        ({"reuse_port": True}, socket.SO_REUSEPORT, True),
        ({}, socket.SO_KEEPALIVE, False),
        pytest.param(
            {"keep_alive": True},
            socket.SO_KEEPALIVE,
            True,
            marks=pytest.mark.skipif(sys.version_info < (3, 13), reason="new in 3.13"),
        ),
    ],
)
async def test_socket_options_are_set_as_asked(
    loop: Loop, arguments: dict[str, Any], option: int, expected: bool
) -> None:
    server = await loop.create_server(Recorder, "127.0.0.1", 0, **arguments)
    assert bool(server.sockets[0].getsockopt(socket.SOL_SOCKET, option)) is expected
    await close_all(server)


async def test_reuse_port_shares_a_port(loop: Loop) -> None:
    first = await loop.create_server(Recorder, "127.0.0.1", 0, reuse_port=True)
    port = first.sockets[0].getsockname()[1]
    second = await loop.create_server(Recorder, "127.0.0.1", port, reuse_port=True)
    await close_all(first)
    await close_all(second)


async def test_a_server_accepts_from_start_serving_to_the_end_of_async_with(loop: Loop) -> None:
    async with await loop.create_server(Recorder, "127.0.0.1", 0, start_serving=False) as server:
        address = server.sockets[0].getsockname()
        assert not server.is_serving()
        assert not can_connect(address)
        for _ in range(2):
            await server.start_serving()
            assert server.is_serving()
        assert can_connect(address)
    assert not server.is_serving()
    assert not can_connect(address)


async def test_a_server_takes_over_a_socket(loop: Loop) -> None:
    made = Made()
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    server = await loop.create_server(made, sock=sock)
    assert server.sockets[0].fileno() == sock.fileno()
    _, near = await loop.create_connection(Recorder, *sock.getsockname())
    await until(lambda: made and made[0].names() == ["made"])
    await hang_up(near, made[0])
    await close_all(server)
    assert sock.fileno() == -1


async def test_serve_forever_serves_until_it_is_cancelled(loop: Loop) -> None:
    server = await loop.create_server(Recorder, "127.0.0.1", 0, start_serving=False)
    task = loop.create_task(server.serve_forever())
    await until(server.is_serving)
    with pytest.raises(RuntimeError, match="is already being awaited on serve_forever"):
        await server.serve_forever()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not server.is_serving()
    with pytest.raises(RuntimeError, match="is closed"):
        await server.serve_forever()


async def test_close_ends_serve_forever(loop: Loop) -> None:
    server = await loop.create_server(Recorder, "127.0.0.1", 0)
    task = loop.create_task(server.serve_forever())
    await asyncio.sleep(0)
    server.close()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_close_keeps_connections(loop: Loop) -> None:
    made = Made()
    server = await loop.create_server(made, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    _, near = await loop.create_connection(Recorder, *address)
    await until(lambda: made and made[0].transport)
    server.close()
    assert not can_connect(address)
    near.transport.write(b"x")
    await until(lambda: made[0].data == b"x")
    waiting = asyncio.ensure_future(server.wait_closed())
    await turns(5)
    assert waiting.done() is not WAITS_FOR_CONNECTIONS
    await hang_up(near, made[0])
    await waiting
    await server.wait_closed()


@pytest.mark.skipif(sys.version_info < (3, 13), reason="new in 3.13")
@pytest.mark.parametrize("method", ["close_clients", "abort_clients"])
async def test_close_clients_flushes_and_abort_clients_does_not(loop: Loop, method: str) -> None:
    made = Made()
    server = await loop.create_server(made, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    near = [(await loop.create_connection(Recorder, *address))[1] for _ in range(3)]
    await until(lambda: len(made) == 3 and all(protocol.transport for protocol in made))
    payload = b"x" * (16 << 20)
    for protocol in near:
        protocol.transport.pause_reading()
    for protocol in made:
        protocol.transport.write(payload)
    server.close()
    getattr(server, method)()
    assert all(protocol.transport.is_closing() for protocol in made)
    for protocol in near:
        protocol.transport.resume_reading()
    for protocol in made:
        assert await protocol.lost is None
    await server.wait_closed()
    for protocol in near:
        await protocol.lost
        if method == "close_clients":
            assert protocol.data == payload
        else:
            assert len(protocol.data) < len(payload)
