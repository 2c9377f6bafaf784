"""Events of descriptors that the loop has no use for: none of them wakes it again and again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from typing import Any

import pytest
from conftest import Errors, tcp_pair
from protocols import DatagramRecorder, Recorder, close_each, turns, until

import goloop

Loop = asyncio.AbstractEventLoop

pytestmark = [
    pytest.mark.goloop_only("the tests count goloop's polls"),
    pytest.mark.skipif(sys.platform != "linux", reason="a kqueue forgets what is closed"),
]


async def polls(loop: Loop) -> int:
    """Of a few milliseconds in which the program sleeps; a loop that spins makes hundreds."""
    before: int = goloop.diagnostics(loop)["loop"]["polls"]
    await asyncio.sleep(0.02)
    return int(goloop.diagnostics(loop)["loop"]["polls"]) - before


async def stream(loop: Loop, near: socket.socket) -> Any:
    return await loop.create_connection(Recorder, sock=near)


async def datagrams(loop: Loop, near: socket.socket) -> Any:
    return await loop.create_datagram_endpoint(DatagramRecorder, sock=near)


async def pipe(loop: Loop, near: socket.socket) -> Any:
    return await loop.connect_read_pipe(Recorder, near)


def unix_pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


def datagram_pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)


TRANSPORTS = [
    pytest.param(tcp_pair, stream, id="tcp"),
    pytest.param(unix_pair, stream, id="unix"),
    pytest.param(unix_pair, pipe, id="pipe"),
    pytest.param(datagram_pair, datagrams, id="datagrams"),
]


@pytest.mark.parametrize(("make_pair", "transport_of"), TRANSPORTS)
@pytest.mark.parametrize("end", ["close", "abort", "data"])
@pytest.mark.parametrize("how", ["detached", "closed, with a duplicate"])
async def test_descriptor_detached_from_its_transport_is_not_polled(
    loop: Loop, errors: Errors, make_pair: Any, transport_of: Any, end: str, how: str
) -> None:
    near, far = make_pair()
    near.setblocking(False)
    transport, protocol = await transport_of(loop, near)
    if how == "detached":
        kept = near.detach()
    else:
        kept = os.dup(near.fileno())
        os.close(near.detach())
    if end != "data":
        getattr(transport, end, transport.close)()  # a pipe has no abort()
    far.send(b"for the new owner")
    await turns(2)
    if end == "data":
        await until(lambda: transport.is_closing() or getattr(protocol, "errors", ()))
    await asyncio.sleep(0)
    assert await polls(loop) < 20
    with socket.socket(fileno=kept) as new_owner:
        assert new_owner.recv(100) == b"for the new owner"
    assert end != "data" or transport_of is not datagrams or len(protocol.errors) == 1
    close_each(transport, far)
    await turns(2)
    errors.contexts.clear()  # a transport that finds it by a call says so


async def test_listener_detached_from_its_server_is_not_polled(loop: Loop) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    server = await loop.create_server(Recorder, sock=listening)
    address = listening.getsockname()
    kept = socket.socket(fileno=os.dup(listening.fileno()))
    os.close(listening.detach())
    server.close()
    with socket.create_connection(address):
        assert await polls(loop) < 20
        kept.accept()[0].close()
    kept.close()


async def test_other_descriptors_still_have_events_after_the_poller_is_replaced(loop: Loop) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=near)
    watched, other = socket.socketpair()
    called: list[bytes] = []
    loop.add_reader(watched, lambda: called.append(watched.recv(10)))
    receiver, sender = socket.socketpair()
    receiver.setblocking(False)
    waiting = asyncio.ensure_future(loop.sock_recv(receiver, 10))
    await asyncio.sleep(0)
    for _ in range(3):
        gone, peer = tcp_pair()
        transport, _protocol = await loop.create_connection(Recorder, sock=gone)
        kept = os.dup(gone.fileno())
        os.close(gone.detach())
        transport.abort()
        peer.send(b"x")
        assert await polls(loop) < 20
        far.send(b"stream")
        assert await reader.readexactly(6) == b"stream"
        other.send(b"watch")
        await until(lambda: called)
        assert called.pop() == b"watch"
        os.close(kept)
        peer.close()
    sender.send(b"wait")
    assert await waiting == b"wait"
    assert await asyncio.to_thread(int, "1") == 1  # which wakes the loop
    loop.remove_reader(watched)
    writer.close()
    close_each(far, watched, other, receiver, sender)


@pytest.mark.parametrize("again", [False, True], ids=["free", "used again"])
async def test_closed_watched_number_is_dropped_with_one_warning(
    loop: Loop, caplog: pytest.LogCaptureFixture, again: bool
) -> None:
    near, far = socket.socketpair()
    called: list[int] = []
    number = os.dup(near.fileno())
    loop.add_reader(number, called.append, 1)
    far.send(b"x")
    await until(lambda: called)
    os.close(number)  # near is a duplicate, and has a byte
    if again:
        assert os.dup(far.fileno()) == number
    with caplog.at_level(logging.WARNING, "asyncio"):
        await until(lambda: caplog.messages)
        count = len(called)
        assert await polls(loop) < 20
    assert [each for each in caplog.messages if f"descriptor {number} was closed" in each]
    assert len(caplog.messages) == 1
    assert len(called) == count
    assert loop.remove_reader(number) is True
    if again:  # and the number can be watched
        near.send(b"y")
        loop.add_reader(number, called.append, 2)
        await until(lambda: 2 in called)
        loop.remove_reader(number)
        os.close(number)
    close_each(near, far)


IP_RECVERR, IPV6_RECVERR, SO_TIMESTAMPING = 11, 25, 37


@pytest.mark.parametrize("what", ["IP_RECVERR", "IPV6_RECVERR", "SO_TIMESTAMPING"])
async def test_an_error_queue_that_is_not_read_lets_an_endpoint_sleep(
    loop: Loop, what: str
) -> None:
    family, host = (socket.AF_INET, "127.0.0.1")
    if what == "IPV6_RECVERR":
        family, host = socket.AF_INET6, "::1"
    try:
        sock = socket.socket(family, socket.SOCK_DGRAM)
        sock.bind((host, 0))
    except OSError as error:
        pytest.skip(f"no IPv6: {error}")
    if what == "SO_TIMESTAMPING":
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, 2 | 16)
    elif what == "IPV6_RECVERR":
        sock.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
    else:
        sock.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
    with socket.socket(family, socket.SOCK_DGRAM) as nowhere:
        nowhere.bind((host, 0))
        closed = nowhere.getsockname()
    transport, protocol = await loop.create_datagram_endpoint(DatagramRecorder, sock=sock)
    transport.sendto(b"x", closed)
    await polls(loop)  # in which it may find out
    assert await polls(loop) < 20
    with socket.socket(family, socket.SOCK_DGRAM) as peer:
        for n in range(100):
            peer.sendto(b"%d" % n, sock.getsockname())
    await until(lambda: len(protocol.got) == 100)
    assert protocol.data() == [b"%d" % n for n in range(100)]
    assert await polls(loop) < 20
    transport.sendto(b"x", closed)
    await asyncio.sleep(0)
    assert await polls(loop) < 20
    assert not transport.is_closing()
    transport.close()
    await protocol.lost


async def test_an_error_queue_that_is_not_read_lets_a_wait_sleep(loop: Loop) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.bind(("127.0.0.1", 0))
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, 2 | 16)
        sock.sendto(b"x", sock.getsockname())
        assert await loop.sock_recv(sock, 10) == b"x"
        waiting = asyncio.ensure_future(loop.sock_recv(sock, 10))
        await polls(loop)
        assert await polls(loop) < 20
        sock.sendto(b"y", sock.getsockname())
        assert await waiting == b"y"
        with contextlib.suppress(asyncio.CancelledError):
            waiting = asyncio.ensure_future(loop.sock_recv(sock, 10))
            await asyncio.sleep(0)
            waiting.cancel()
            await waiting
