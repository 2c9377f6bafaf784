"""Both ends of a connection in one loop: an event reaches the other end as soon as in asyncio.

goloop leaves out polls while the ready queue is busy; bytes and ends of its own transports make
the next iteration poll.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from protocols import Recorder, turns

Loop = asyncio.AbstractEventLoop

# asyncio takes 1 or 2: the poll that finds it, and the callback.
MOST = 2
ROUNDS = 20


async def iterations(done: Callable[[], Any]) -> int:
    """How many iterations of a busy loop it takes."""
    count = 0
    while not done():
        count += 1
        assert count < 200
        await asyncio.sleep(0)
    return count


async def pair(loop: Loop) -> tuple[Any, Any]:
    """The protocols of both ends of a TCP connection."""
    accepted: list[Recorder] = []

    def factory() -> Recorder:
        accepted.append(Recorder())
        return accepted[0]

    server = await loop.create_server(factory, "127.0.0.1", 0)
    _, client = await loop.create_connection(Recorder, *server.sockets[0].getsockname())
    while not accepted:
        await asyncio.sleep(0)
    await accepted[0].made
    server.close()
    await turns(5)
    return client, accepted[0]


def close(near: Recorder) -> None:
    near.transport.close()


def abort(near: Recorder) -> None:
    near.transport.abort()


def half_close(near: Recorder) -> None:
    near.transport.write_eof()


def write_and_half_close(near: Recorder) -> None:
    near.transport.write(b"x")
    near.transport.write_eof()


def write_and_close(near: Recorder) -> None:
    near.transport.write(b"x")
    near.transport.close()


def write(near: Recorder) -> None:
    near.transport.write(b"x")


def write_much(near: Recorder) -> None:
    near.transport.write(bytes(70_000))


HEARD: dict[Callable[[Any], None], Callable[[Any], Any]] = {
    close: lambda far: far.eof.done(),
    abort: lambda far: far.eof.done(),
    half_close: lambda far: far.eof.done(),
    write_and_half_close: lambda far: far.eof.done(),
    write_and_close: lambda far: far.eof.done(),
    write: lambda far: far.data,
    write_much: lambda far: far.data,
}


@pytest.mark.parametrize("act", HEARD, ids=lambda act: act.__name__)
async def test_other_end_gets_the_event_in_the_next_iterations(loop: Loop, act: Any) -> None:
    counts = []
    for _ in range(ROUNDS):
        near, far = await pair(loop)
        far.keep_open = True
        act(near)
        if act is close:
            await near.lost  # asyncio closes the descriptor after connection_lost
        counts.append(await iterations(lambda: HEARD[act](far)))  # noqa: B023
        for each in (near, far):
            each.transport.abort()
            await each.lost
    # close() and abort() close one iteration later; the end after bytes takes two receives.
    extra = (act in (abort, write_and_close)) + (act in (write_and_half_close, write_and_close))
    assert max(counts) <= MOST + extra, counts


async def test_round_trip_in_one_loop_takes_few_iterations(loop: Loop) -> None:
    """The server half-closes, the client closes at that, and the server is lost."""
    counts = []
    for _ in range(ROUNDS):
        near, far = await pair(loop)
        far.transport.write_eof()
        await near.lost
        counts.append(await iterations(far.lost.done))
    assert max(counts) <= MOST + 1, counts


async def sendto(loop: Loop, near: socket.socket, address: Any) -> None:
    transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=near)
    await turns(3)
    transport.sendto(b"x", address)
    transport.abort()


async def sendall(loop: Loop, near: socket.socket, address: Any) -> None:
    near.connect(address)
    await loop.sock_sendall(near, b"x")


@pytest.mark.parametrize("send", [sendto, sendall], ids=lambda send: send.__name__)
async def test_a_datagram_reaches_the_next_endpoint_in_few_iterations(
    loop: Loop, send: Callable[[Loop, socket.socket, Any], Awaitable[None]]
) -> None:
    class Receiver(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            got.append(data)

    got: list[bytes] = []
    counts = []
    transport, _ = await loop.create_datagram_endpoint(Receiver, ("127.0.0.1", 0))
    for _ in range(ROUNDS):
        got.clear()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as near:
            near.setblocking(False)
            await turns(3)
            await send(loop, near, transport.get_extra_info("sockname"))
            counts.append(await iterations(lambda: got))
            await turns(3)
    transport.abort()
    await turns(3)
    assert max(counts) <= MOST, counts
