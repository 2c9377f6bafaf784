"""A transport lives as long as something can still call it, and no longer.

A paused transport without pending bytes is referenced by its protocol alone.  If the program
drops both, the collector closes the connection with asyncio's ResourceWarning.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import sys
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from protocols import Recorder, receive_exactly, turns

Loop = asyncio.AbstractEventLoop
KINDS = ("socket", "pipe")


async def connected(loop: Any, kind: str, protocol: asyncio.BaseProtocol) -> tuple[Any, int]:
    """A transport that receives, and the number of the peer's end, which is the caller's."""
    if kind == "socket":
        near, far = socket.socketpair()
        near.setblocking(False)
        transport, _ = await loop.create_connection(lambda: protocol, sock=near)
        return transport, far.detach()
    reading, writing = os.pipe()
    transport, _ = await loop.connect_read_pipe(
        lambda: protocol, os.fdopen(reading, "rb", buffering=0)
    )
    return transport, writing


@contextlib.contextmanager
def unclosed(count: int) -> Iterator[None]:
    """So many transports are collected, and warned of, in the body."""
    seen: list[str] = []

    def note(message: object, *_: object, **__: object) -> None:
        seen.append(str(message))  # and not the transport, which recorded warnings keep

    before = warnings.showwarning
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note
        try:
            yield
        finally:
            warnings.showwarning = before
    assert len([each for each in seen if "unclosed transport" in each]) == count, seen


def has_ended(kind: str, peer: int) -> bool:
    """Return true if the peer's other end is closed everywhere."""
    os.set_blocking(peer, False)
    try:
        if kind == "socket":
            return os.read(peer, 1) == b""
        os.write(peer, b"x")
    except BlockingIOError:
        return False
    except OSError:
        return True
    return False


@pytest.mark.parametrize("kind", KINDS)
async def test_a_paused_transport_that_was_dropped_is_closed(loop: Loop, kind: str) -> None:
    transport, peer = await connected(loop, kind, Recorder())
    transport.pause_reading()
    await turns(3)
    dead = weakref.ref(transport)
    with unclosed(1):
        del transport
        gc.collect()
        assert dead() is None
    await turns(3)
    assert has_ended(kind, peer)
    os.close(peer)


@pytest.mark.parametrize("kind", KINDS)
async def test_collection_in_another_thread_closes_the_transport(loop: Loop, kind: str) -> None:
    """While the loop waits in its poller, where Go may be at work on the connection."""
    transport, peer = await connected(loop, kind, Recorder())
    transport.pause_reading()
    await turns(3)
    dead = weakref.ref(transport)
    with unclosed(1):
        del transport
        await loop.run_in_executor(None, gc.collect)
        await turns(3)
        gc.collect()
        assert dead() is None
    assert has_ended(kind, peer)
    os.close(peer)


@pytest.mark.parametrize("kind", KINDS)
async def test_reading_transport_is_kept_alive(loop: Loop, kind: str) -> None:
    protocol = Recorder()
    transport, peer = await connected(loop, kind, protocol)
    alive = weakref.ref(transport)
    del protocol, transport
    with unclosed(0):
        gc.collect()
    os.write(peer, b"still here")
    kept: Any = alive()
    while not kept.get_protocol().data:
        await asyncio.sleep(0)
    assert kept.get_protocol().data == b"still here"
    kept.close()
    del kept
    await turns(3)
    os.close(peer)


@pytest.mark.parametrize("kind", KINDS)
async def test_scheduled_resume_keeps_the_transport_alive(loop: Loop, kind: str) -> None:
    protocol = Recorder()
    transport, peer = await connected(loop, kind, protocol)
    transport.pause_reading()
    os.write(peer, b"meanwhile")
    resumed = loop.call_later(0.01, transport.resume_reading)
    del transport
    with unclosed(0):
        gc.collect()
        while not protocol.data:
            await asyncio.sleep(0.01)
    assert resumed.when() <= loop.time()
    assert protocol.data == b"meanwhile"
    protocol.transport.close()
    await turns(3)
    os.close(peer)


async def test_paused_transport_is_kept_alive_until_its_bytes_are_sent(loop: Any) -> None:
    protocol = Recorder()
    transport, number = await connected(loop, "socket", protocol)
    peer = socket.socket(fileno=number)
    peer.setblocking(False)
    transport.pause_reading()
    data = os.urandom(4 << 20)
    transport.write(data)
    dead = weakref.ref(transport)
    del protocol, transport
    with unclosed(0):
        gc.collect()
        assert await receive_exactly(peer, len(data)) == data
    with unclosed(1):
        await turns(4)  # the report of the last bytes
        gc.collect()
        assert dead() is None
    assert await loop.sock_recv(peer, 1) == b""
    peer.close()


async def test_dropped_half_closed_transport_is_closed(loop: Any) -> None:
    protocol = Recorder()
    protocol.keep_open = True
    transport, number = await connected(loop, "socket", protocol)
    peer = socket.socket(fileno=number)
    peer.shutdown(socket.SHUT_WR)
    await protocol.eof
    dead = weakref.ref(transport)
    with unclosed(1):
        del protocol, transport
        gc.collect()
        assert dead() is None
    await turns(3)
    assert peer.recv(1) == b""
    peer.close()


async def test_children_killed_with_unread_output_leak_nothing(loop: Any) -> None:
    """The usual way to limit a child: its reader is over its limit, and so paused."""
    program = "import sys\nwhile True: sys.stdout.write('x' * 65536)"

    async def one() -> None:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program), stdout=asyncio.subprocess.PIPE, limit=1024
        )
        assert child.stdout is not None
        pipe: Any = child._transport.get_pipe_transport(1)  # type: ignore[attr-defined]
        while pipe.is_reading():
            await asyncio.sleep(0)
        child.kill()
        # Before 3.12 wait() waits for the end of the pipe, which is not read.
        while child.returncode is None:
            await asyncio.sleep(0.01)

    before = len(os.listdir("/proc/self/fd"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for _ in range(3):
            await one()
        gc.collect()
        await turns(3)
        gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
