"""Pending writes are sent during a long callback: goloop's monitor sends them.

asyncio sends within write(); goloop sends at the end of the iteration, and in a long one
from a thread of Go's, even while Python code runs.
"""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import os
import random
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ended
import pytest
from protocols import Made, Recorder, close_all, reset, turns
from tls_tools import client_context, server_context

SCENARIOS = Path(__file__).with_name("monitor_scenarios.py")

Loop = asyncio.AbstractEventLoop

PATIENCE = 60.0  # seconds; far longer than any test takes

POLLIN = 1


class PollFD(ctypes.Structure):
    """struct pollfd."""

    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


def blocks_in_recv(client: socket.socket) -> None:
    """In the loop's own thread, without the GIL."""
    client.settimeout(PATIENCE)
    client.recv(1, socket.MSG_PEEK)


def computes(client: socket.socket) -> None:
    """Python code that never stops, until there is something."""
    end = time.monotonic() + PATIENCE
    client.setblocking(False)
    while time.monotonic() < end:
        try:
            client.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            continue
        return


def waits_in_c_with_the_gil(client: socket.socket) -> None:
    """No other Python thread runs meanwhile."""
    poll = PollFD(client.fileno(), POLLIN, 0)
    ctypes.PyDLL(None).poll(ctypes.byref(poll), 1, int(PATIENCE * 1000))


WAYS = [blocks_in_recv, computes, waits_in_c_with_the_gil]


def received(client: socket.socket) -> bytes:
    """Return the available bytes, without waiting."""
    client.setblocking(False)
    try:
        return client.recv(1 << 20)
    except BlockingIOError:
        return b""


async def accepted(loop: Loop, protocol: Callable[[], Any]) -> tuple[Any, socket.socket]:
    """Make a server of one connection, and its client's socket; the server's is not exposed."""
    server = await loop.create_server(protocol, "127.0.0.1", 0)
    client = socket.create_connection(server.sockets[0].getsockname())
    return server, client


@pytest.mark.parametrize("way", WAYS)
async def test_written_bytes_arrive_during_a_long_callback(
    loop: Loop, way: Callable[[socket.socket], None]
) -> None:
    made = Made()
    server, client = await accepted(loop, made)
    while not made:
        await asyncio.sleep(0)
    await made[0].made
    await turns(3)
    transport: Any = made[0].transport
    for message in (b"one", b"two", b"three"):
        transport.write(message[:1])
        transport.write(message[1:])
        way(client)
        assert received(client) == message
        assert transport.get_write_buffer_size() == 0
        await asyncio.sleep(0)
    transport.write(b"and what is written behind it")
    transport.close()
    await made[0].lost
    client.settimeout(PATIENCE)
    assert client.recv(1000) == b"and what is written behind it"
    assert client.recv(1000) == b""
    client.close()
    await close_all(server)


@pytest.mark.parametrize("way", WAYS)
async def test_bytes_written_by_connection_made_arrive_during_a_long_callback(
    loop: Loop, way: Callable[[socket.socket], None]
) -> None:
    done = loop.create_future()
    clients: list[socket.socket] = []

    class Greets(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.write(b"hello")
            way(clients[0])
            done.set_result((received(clients[0]), transport))

    server, client = await accepted(loop, Greets)
    clients.append(client)
    greeting, transport = await done
    assert greeting == b"hello"
    transport.abort()
    await turns(3)
    client.close()
    await close_all(server)


async def test_datagrams_and_pipe_bytes_arrive_during_a_long_callback(loop: Loop) -> None:
    reading, writing = os.pipe()
    transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(writing, "wb", 0))
    transport.write(b"pipe")
    assert select.select([reading], [], [], PATIENCE)[0]
    assert os.read(reading, 100) == b"pipe"
    transport.close()
    await turns(3)
    os.close(reading)


async def test_tls_bytes_arrive_during_a_long_callback(loop: Loop) -> None:
    protocol = Recorder()
    server = await loop.create_server(lambda: protocol, "127.0.0.1", 0, ssl=server_context())
    plain = socket.create_connection(server.sockets[0].getsockname())
    client = await asyncio.to_thread(
        client_context().wrap_socket, plain, server_hostname="localhost"
    )
    await protocol.made
    await asyncio.sleep(0.01)
    client.settimeout(PATIENCE)
    protocol.transport.write(b"secret")  # type: ignore[union-attr]
    assert client.recv(100) == b"secret"  # blocks the loop's thread
    protocol.transport.abort()  # type: ignore[union-attr]
    await protocol.lost
    client.close()
    await close_all(server)


async def test_every_byte_arrives_once_and_in_order(loop: Loop, loop_name: str) -> None:
    """A callback writes, pauses, ends while the monitor sends, for some thousand times."""
    chance = random.Random(3)
    made = Made()
    server = await loop.create_server(made, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    for _ in range(6):
        client = socket.create_connection(address)
        seen = hashlib.sha256()
        lengths: list[int] = []

        def drain(
            client: socket.socket = client, seen: Any = seen, lengths: list[int] = lengths
        ) -> None:
            while data := client.recv(1 << 16):
                seen.update(data)
                lengths.append(len(data))

        reader = threading.Thread(target=drain)
        reader.start()
        count = len(made)
        while len(made) == count:
            await asyncio.sleep(0)
        protocol = made[-1]
        await protocol.made
        transport: Any = protocol.transport
        sent, total = hashlib.sha256(), 0
        for _ in range(40):
            end = time.monotonic() + 0.004
            while time.monotonic() < end:
                data = chance.randbytes(chance.choice((1, 10, 1000, 5000)))
                if chance.random() < 0.2:
                    pieces = [data[:3], data[3:]]
                    # asyncio sends for ever an empty one that is the last in its buffer.
                    if loop_name == "asyncio":
                        pieces = [piece for piece in pieces if piece]
                    transport.writelines(pieces)
                else:
                    transport.write(data)
                sent.update(data)
                total += len(data)
                if chance.random() < 0.01:
                    time.sleep(0.0015)
            loop.call_later(0.0001, int)
            if chance.random() < 0.5:
                await asyncio.sleep(0)
        transport.close()
        await protocol.lost
        while reader.is_alive():
            await asyncio.sleep(0.001)
        reader.join()
        assert sum(lengths) == total
        assert seen.digest() == sent.digest()
        client.close()
    await close_all(server)


def passes(name: str, *arguments: str) -> None:
    ended.passes(SCENARIOS, name, *arguments, options=("-X", "faulthandler"))


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux_only
def test_the_monitor_sleeps_while_all_loops_do() -> None:
    passes("the_monitor_sleeps_while_all_loops_do")


def test_monitor_rarely_wakes_for_a_loop_with_short_callbacks() -> None:
    passes("monitor_rarely_wakes_for_a_loop_with_short_callbacks")


def test_thousands_of_loops_leave_no_entry_in_the_monitor() -> None:
    passes("thousands_of_loops_leave_no_entry_in_the_monitor")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_that_is_forked_while_the_monitor_sends_has_its_own() -> None:
    passes("a_child_that_is_forked_while_the_monitor_sends_has_its_own")


# A filter of system calls, for all threads of the process that there are.


@linux_only
@pytest.mark.parametrize("when", ["at the start", "later on"])
def test_without_membarrier_there_are_fences(when: str) -> None:
    """The monitor sends nothing from when it is refused until C has said that it has fences."""
    passes("without_membarrier_there_are_fences", when)


def test_bytes_sent_within_write_are_not_late_writes() -> None:
    passes("bytes_sent_within_write_are_not_late_writes")


async def test_lost_peer_is_reported_after_the_callback(loop: Loop) -> None:
    protocol = Recorder()
    server, client = await accepted(loop, lambda: protocol)
    await protocol.made
    await turns(3)
    transport: Any = protocol.transport
    reset(client)
    for _ in range(3):
        transport.write(b"x")
        time.sleep(0.005)
        assert not protocol.lost.done()
    with pytest.raises(ConnectionError):
        raise await asyncio.wait_for(asyncio.shield(protocol.lost), PATIENCE) or OSError
    await close_all(server)


@linux_only
def test_threads_have_names() -> None:
    passes("threads_have_names")
