"""A socket that its own task closes after a sock_* call is closed at once, even if that waited.

Until the task runs, a close by other code must not come between the readiness and the call
(test_closed_sockets.py); from then on nothing needs protection.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import Any

import pytest
from conftest import tcp_pair
from protocols import close_each, turns
from receiving import on_both_loops, receivers

Loop = asyncio.AbstractEventLoop

ADDRESS = ("127.0.0.1", 0)


def bound() -> tuple[socket.socket, Any]:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(ADDRESS)
    sock.setblocking(False)
    return sock, sock.getsockname()


RECEIVERS = receivers(10)
NAMES = on_both_loops(RECEIVERS)


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("name", NAMES)
async def test_the_address_is_free_again_in_the_same_step(
    loop: Loop, name: str, debug: bool
) -> None:
    loop.set_debug(debug)
    sock, address = bound()
    sender, _ = bound()
    loop.call_soon(sender.sendto, b"x", address)
    await RECEIVERS[name](loop, sock)
    sock.close()
    assert sock.fileno() == -1
    again = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    again.bind(address)
    close_each(again, sender)


async def test_a_listener_is_closed_in_the_step_that_accepted(loop: Loop) -> None:
    listening = socket.create_server(ADDRESS)
    listening.setblocking(False)
    client = socket.socket()
    client.setblocking(False)
    loop.call_soon(client.connect_ex, listening.getsockname())
    accepted, _ = await loop.sock_accept(listening)
    listening.close()
    assert listening.fileno() == -1
    close_each(client, accepted)


async def test_a_socket_is_closed_in_the_step_that_connected(loop: Loop) -> None:
    listening = socket.create_server(ADDRESS)
    sock = socket.socket()
    sock.setblocking(False)
    await loop.sock_connect(sock, listening.getsockname())
    sock.close()
    assert sock.fileno() == -1
    listening.close()


async def test_a_socket_is_closed_in_the_step_that_sent_the_rest(loop: Loop) -> None:
    near, far = tcp_pair()
    far.setblocking(True)
    sending = loop.create_task(loop.sock_sendall(near, bytes(8_000_000)))

    def read() -> None:
        left = 8_000_000
        while left:
            left -= len(far.recv(1 << 20))

    async def send_and_close() -> int:
        await loop.sock_sendall(near, bytes(8_000_000))
        near.close()
        return near.fileno()

    sending.cancel()
    await asyncio.wait([sending])
    task = loop.create_task(send_and_close())
    await turns(3)
    await loop.run_in_executor(None, read)
    assert await task == -1
    far.close()
    await loop.shutdown_default_executor()


async def test_thread_waiting_for_the_end_wakes_in_the_same_step(loop: Loop) -> None:
    near, far = tcp_pair()
    far.setblocking(True)

    def peer() -> None:
        far.send(b"x")
        far.recv(1)

    thread = threading.Thread(target=peer, daemon=True)
    loop.call_soon(thread.start)
    await loop.sock_recv(near, 10)
    near.close()
    thread.join(60)
    assert not thread.is_alive()
    far.close()


async def test_a_block_closes_the_sockets_of_a_crowd(loop: Loop) -> None:
    """In the order in which they turned ready, and in another one."""

    async def client(sock: socket.socket) -> int:
        with sock:
            assert await loop.sock_recv(sock, 10) == b"x"
        return sock.fileno()

    pairs = [tcp_pair() for _ in range(50)]
    tasks = [loop.create_task(client(near)) for near, _ in pairs]
    await turns(5)
    for _, far in pairs[::2] + pairs[1::2]:
        far.send(b"x")
    assert await asyncio.gather(*tasks) == [-1] * len(pairs)
    for _, far in pairs:
        far.close()


async def test_a_cancelled_task_closes_at_once(loop: Loop) -> None:
    """The task is cancelled after its socket has turned ready, and before it runs."""
    near, far = tcp_pair()
    other, others_peer = tcp_pair()
    numbers: list[int] = []

    async def receive() -> None:
        try:
            await loop.sock_recv(near, 10)
        finally:
            near.close()
            numbers.append(near.fileno())

    task = loop.create_task(receive())
    loop.add_reader(other, lambda: (loop.remove_reader(other), task.cancel()))
    await turns(5)
    far.send(b"x")
    others_peer.send(b"x")
    await asyncio.wait([task])
    assert numbers == [-1]
    close_each(far, other, others_peer)


@pytest.mark.goloop_only("asyncio has sent in the poll, or waits for ever")
async def test_running_waiter_does_not_unprotect_the_other(loop: Loop) -> None:
    """Two calls wait for one socket, and both turn ready; a close between their steps."""
    near, far = tcp_pair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 100_000)
    filled = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filled += near.send(bytes(100_000))

    async def receive() -> bytes:
        got = await loop.sock_recv(near, 10)
        loop.call_soon(near.close)
        return got

    receiving = loop.create_task(receive())
    sending = loop.create_task(loop.sock_sendall(near, b"rest"))
    await turns(5)
    far.setblocking(True)
    far.send(b"x")
    while filled:
        filled -= len(far.recv(min(filled, 1 << 20)))
    await asyncio.wait([receiving, sending])
    assert receiving.result() == b"x"
    if sending.exception() is None:
        assert far.recv(10) == b"rest"
    assert near.fileno() == -1
    far.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_socket_closed_as_it_turns_ready_and_the_loop_stops_is_not_kept_open(
    loop: Loop, name: str
) -> None:
    """The task runs in the next run of the loop, which may never come.

    test_closed_before_next_run.py has sockets that are closed after the stop.
    """
    near, far = tcp_pair()
    near.setblocking(False)
    watched, other = tcp_pair()

    def stop() -> None:
        near.close()
        loop.stop()

    async def receive() -> Any:
        return await RECEIVERS[name](loop, near)

    task = loop.create_task(receive())
    loop.run_until_complete(turns())
    far.send(b"x")
    other.send(b"y")
    loop.add_reader(watched, stop)  # ready in the same poll
    loop.run_forever()
    loop.remove_reader(watched)
    assert near.fileno() == -1
    far.settimeout(60)
    assert far.recv(10) == b""  # not a reset, which an unread byte would have caused
    task.cancel()
    with contextlib.suppress(OSError, asyncio.CancelledError):
        loop.run_until_complete(task)
    close_each(far, watched, other)
