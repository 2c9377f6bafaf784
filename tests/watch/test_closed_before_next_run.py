"""A socket that turned ready as the loop stopped, and is closed before the loop runs again.

asyncio makes the call of a sock_* method when it polls: the bytes are received, and the peer of the
closed socket sees the end of the stream. With unread bytes it would see a reset. The same end comes
at once from the socket of a transport whose loop was closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import Any

import pytest
from conftest import tcp_pair
from protocols import close_each, reset, turns
from receiving import on_both_loops, receivers

Loop = asyncio.AbstractEventLoop

RECEIVERS = receivers(10)
NAMES = on_both_loops(RECEIVERS)


def has_one_byte(result: Any) -> bool:
    """Returns true if the result of any of the calls shows a single byte, x."""
    first = result[0] if isinstance(result, tuple) else result
    return first in (b"x", 1)


def pair(kind: str) -> tuple[socket.socket, socket.socket]:
    near, far = tcp_pair() if kind == "tcp" else socket.socketpair()
    near.setblocking(False)
    far.settimeout(60)
    return near, far


def stop_when_ready(loop: Loop, sock: Any) -> None:
    """Runs the loop until it has polled the sockets that are ready now, and stops then."""
    watched, other = socket.socketpair()
    other.send(b"y")
    loop.add_reader(watched, loop.stop)
    loop.run_forever()
    loop.remove_reader(watched)
    close_each(watched, other)


def stopped_receiver(
    loop: Loop, name: str, near: socket.socket, far: socket.socket
) -> asyncio.Task[Any]:
    """Return the task of a receive; the loop has stopped after the poll that found a byte."""

    async def receive() -> Any:
        return await RECEIVERS[name](loop, near)

    task = loop.create_task(receive())
    loop.run_until_complete(turns())
    far.send(b"x")
    stop_when_ready(loop, near)
    return task


@pytest.mark.parametrize("kind", ["tcp", "unix"])
@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_receive_has_its_bytes_and_the_peer_the_end(
    loop: Loop, name: str, debug: bool, kind: str
) -> None:
    loop.set_debug(debug)
    near, far = pair(kind)

    task = stopped_receiver(loop, name, near, far)
    near.close()
    assert near.fileno() == -1
    assert far.recv(10) == b""
    assert has_one_byte(loop.run_until_complete(task))
    far.close()


@pytest.mark.parametrize("debug", [False, True])
def test_an_accepted_connection_outlives_its_listener(loop: Loop, debug: bool) -> None:
    loop.set_debug(debug)
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    task = loop.create_task(loop.sock_accept(listening))
    loop.run_until_complete(turns())
    client = socket.create_connection(listening.getsockname())
    client.settimeout(60)
    stop_when_ready(loop, listening)
    listening.close()
    connection, _ = loop.run_until_complete(task)
    connection.send(b"x")
    assert client.recv(10) == b"x"
    close_each(client, connection)


@pytest.mark.parametrize("debug", [False, True])
def test_an_error_of_the_call_reaches_the_task(loop: Loop, debug: bool) -> None:
    loop.set_debug(debug)
    near, far = pair("tcp")
    task = loop.create_task(loop.sock_recv(near, 10))
    loop.run_until_complete(turns())
    reset(far)
    stop_when_ready(loop, near)
    near.close()
    with pytest.raises(ConnectionResetError):
        loop.run_until_complete(task)


def test_a_send_is_made_before_the_close(loop: Loop) -> None:
    near, far = pair("tcp")
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
    with contextlib.suppress(BlockingIOError):
        while True:
            near.send(bytes(1 << 16))
    task = loop.create_task(loop.sock_sendall(near, b"the last bytes"))
    loop.run_until_complete(turns())
    far.settimeout(0.05)
    received = b""
    with contextlib.suppress(TimeoutError):
        while True:
            received = received[-20:] + far.recv(1 << 20)
    stop_when_ready(loop, near)
    near.close()
    loop.run_until_complete(task)
    far.settimeout(60)
    while chunk := far.recv(1 << 20):
        received = received[-20:] + chunk
    assert received.endswith(b"the last bytes")
    far.close()


@pytest.mark.goloop_only("asyncio has received the bytes, and loses them")
@pytest.mark.parametrize("name", NAMES)
def test_bytes_stay_in_an_open_socket_for_the_next_call(loop: Loop, name: str) -> None:
    near, far = pair("tcp")

    task = stopped_receiver(loop, name, near, far)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    assert near.recv(10) == b"x"
    near.close()
    assert far.recv(10) == b""
    far.close()


def test_two_calls_of_a_socket_both_end(loop: Loop) -> None:
    near, far = pair("tcp")
    tasks = [loop.create_task(loop.sock_recv(near, 1)) for _ in range(2)]
    loop.run_until_complete(turns())
    far.send(b"xy")
    stop_when_ready(loop, near)
    near.close()
    with contextlib.suppress(ConnectionResetError):  # asyncio serves the second call only
        assert far.recv(10) == b""
    loop.run_until_complete(turns())
    results = [task.result() for task in tasks if task.done() and not task.exception()]
    assert results in ([b"x", b"y"], [b"x"])
    for task in tasks:
        task.cancel()
    with contextlib.suppress(OSError, asyncio.CancelledError):
        loop.run_until_complete(asyncio.gather(*tasks))
    far.close()


def test_a_socket_that_another_file_replaced_is_left_alone(loop: Loop) -> None:
    near, far = pair("tcp")
    task = loop.create_task(loop.sock_recv(near, 10))
    loop.run_until_complete(turns())
    far.send(b"x")
    stop_when_ready(loop, near)
    fd = near.detach()
    os.close(fd)
    with contextlib.suppress(ConnectionResetError):
        assert far.recv(10) == b""
    task.cancel()
    with contextlib.suppress(OSError, asyncio.CancelledError):
        loop.run_until_complete(task)
    far.close()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("first", ["loop", "socket"])
def test_a_closed_loop_keeps_no_socket_of_a_transport_open(loop_factory: Any, first: str) -> None:
    loop = loop_factory()
    near, far = pair("tcp")

    async def connect() -> asyncio.BaseTransport:
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=near)
        return transport

    transport = loop.run_until_complete(connect())
    if first == "loop":
        close_each(loop, near)
    else:
        close_each(near, loop)
    assert near.fileno() == -1
    assert far.recv(10) == b""
    far.close()
    del transport
