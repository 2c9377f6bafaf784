"""Calls of another thread to a loop and its transports while the loop waits for input.

asyncio forbids them, and its transports usually survive them. Here Go is at work at that moment, so
the call wakes the loop and waits, with the GIL, until the turn is over.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from protocols import Recorder, hang_up, receive_all, until

import goloop

Loop = asyncio.AbstractEventLoop

# Cases that wake the loop between two of its calls.
one_gil = pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="no thread keeps the loop from running between two calls",
)
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(autouse=True)
def no_switches(loop_name: str) -> Iterator[None]:
    """A thread keeps the GIL until it waits for something."""
    if loop_name == "asyncio":
        pytest.skip("asyncio's send() gives up the GIL, and nothing of this wakes its loop")
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


async def in_a_turn(loop: Loop, call: Callable[[], Any]) -> None:
    """Calls in another thread, which gets the GIL when the loop's thread enters its turn, and
    keeps it."""
    go = threading.Event()
    ended: asyncio.Future[None] = loop.create_future()

    def work() -> None:
        go.wait()
        try:
            call()
        finally:
            loop.call_soon_threadsafe(ended.set_result, None)

    thread = threading.Thread(target=work)
    thread.start()
    go.set()
    await ended
    thread.join()


def drained(sock: socket.socket) -> bytes:
    data = b""
    try:
        while chunk := sock.recv(1 << 20):
            data += chunk
    except BlockingIOError:
        pass
    return data


async def attach(loop: Loop, sock: socket.socket) -> Recorder:
    _, protocol = await loop.connect_accepted_socket(Recorder, sock)
    return protocol


@one_gil
async def test_write_of_another_thread_precedes_later_writes(loop: Loop, pair: Pair) -> None:
    near, far = pair
    protocol = await attach(loop, near)
    transport = protocol.transport
    sizes = []

    def write() -> None:
        loop.call_soon_threadsafe(transport.write, b"-third")
        transport.write(b"first")
        transport.write(memoryview(b"not -second nor this")[4:11])
        sizes.append(transport.get_write_buffer_size())

    transport.pause_reading()
    await in_a_turn(loop, write)
    assert sizes == [0]  # sent at once
    await until(lambda: transport.get_write_buffer_size() == 0)
    assert drained(far) == b"first-second-third"
    transport.abort()
    await protocol.lost


async def test_write_of_another_thread_follows_queued_bytes(loop: Loop, pair: Pair) -> None:
    near, far = pair
    protocol = await attach(loop, near)
    transport = protocol.transport
    body = bytes(20 << 20)
    transport.write(body)
    queued = transport.get_write_buffer_size()
    assert 0 < queued < len(body)
    sizes = []

    def write() -> None:
        transport.write(b"last")
        sizes.append(transport.get_write_buffer_size())
        transport.write_eof()

    await in_a_turn(loop, write)
    assert sizes == [queued + len(b"last")]
    assert await receive_all(far) == body + b"last"
    transport.abort()
    await protocol.lost


@one_gil
async def test_write_of_another_thread_is_sent_before_a_close(loop: Loop, pair: Pair) -> None:
    near, far = pair
    protocol = await attach(loop, near)
    transport = protocol.transport

    def write() -> None:
        loop.call_soon_threadsafe(transport.close)
        transport.write(b"words")

    await in_a_turn(loop, write)
    assert await protocol.lost is None
    assert drained(far) == b"words"


async def test_write_of_another_thread_is_dropped_by_an_abort(loop: Loop, pair: Pair) -> None:
    """More bytes than the kernel has room for; the waiting ones are freed."""
    near, far = pair
    protocol = await attach(loop, near)
    transport = protocol.transport
    transport.write(bytes(20 << 20))
    piece = b"piece" * 100

    def write() -> None:
        loop.call_soon_threadsafe(transport.abort)
        for _ in range(100):
            transport.write(piece)

    before = sys.getrefcount(piece)
    await in_a_turn(loop, write)
    assert await protocol.lost is None
    assert sys.getrefcount(piece) == before
    assert b"piece" not in drained(far)


async def test_other_thread_pauses_and_resumes_reading(loop: Loop, pair: Pair) -> None:
    near, far = pair
    protocol = await attach(loop, near)
    transport = protocol.transport
    await in_a_turn(loop, transport.pause_reading)
    far.send(b"x")
    for _ in range(3):
        await loop.run_in_executor(None, int)  # turns of the loop
    assert protocol.data == b""
    await in_a_turn(loop, transport.resume_reading)
    await until(lambda: protocol.data == b"x")
    transport.abort()
    await protocol.lost


async def test_timer_of_another_thread_fires_in_time(loop: Loop) -> None:
    """asyncio's loop sleeps on, until something else wakes it."""
    fired: asyncio.Future[None] = loop.create_future()
    go = threading.Event()

    def call() -> None:
        go.wait()
        for _ in range(100):
            loop.call_later(3600, print).cancel()
        loop.call_later(0.01, fired.set_result, None)

    thread = threading.Thread(target=call)
    thread.start()
    go.set()
    await fired
    thread.join()


async def test_server_of_another_thread_listens_and_stops(loop: Loop) -> None:
    """A listener that begins and ends in another thread, while the loop sleeps in its turn."""
    server = await loop.create_server(Recorder, "127.0.0.1", 0, start_serving=False)
    (listening,) = server.sockets
    await in_a_turn(loop, server._start_serving)  # type: ignore[attr-defined]
    _, client = await loop.create_connection(Recorder, *listening.getsockname())
    await until(lambda: client.names() == ["made"])
    await in_a_turn(loop, server.close)
    assert listening.fileno() == -1
    await hang_up(client)


async def test_diagnostics_do_not_wake_a_sleeping_loop(loop: Loop) -> None:
    """Diagnostics read counters, and need not wait for the turn's end."""

    def look() -> set[int]:
        seen = set()
        for _ in range(10):
            time.sleep(0.05)  # the loop sleeps by then
            seen.add(goloop.diagnostics(loop)["loop"]["wakeups"])
        return seen

    assert len(await loop.run_in_executor(None, look)) == 1
