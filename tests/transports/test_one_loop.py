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
from protocols import DatagramRecorder, connect, hang_up, turns

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
    near, far, server = await connect(loop)
    server.close()
    await turns(5)
    return near, far


ARGUMENT = {"write": b"x", "write_much": bytes(70_000)}


@pytest.mark.parametrize(
    "calls",
    ["close", "abort", "write_eof", "write write_eof", "write close", "write", "write_much"],
)
async def test_other_end_gets_the_event_in_the_next_iterations(loop: Loop, calls: str) -> None:
    counts = []
    for _ in range(ROUNDS):
        near, far = await pair(loop)
        far.keep_open = True
        for call in calls.split():
            if call in ARGUMENT:
                near.transport.write(ARGUMENT[call])
            else:
                getattr(near.transport, call)()
        if calls == "close":
            await near.lost  # asyncio closes the descriptor after connection_lost
        noted = "data" if calls in ARGUMENT else "eof"
        counts.append(await iterations(lambda: noted in far.names()))  # noqa: B023
        await hang_up(near, far)
    # close() and abort() close one iteration later; the end after bytes takes two receives.
    extra = (calls in ("abort", "write close")) + (calls in ("write write_eof", "write close"))
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
    counts = []
    transport, receiver = await loop.create_datagram_endpoint(DatagramRecorder, ("127.0.0.1", 0))
    for _ in range(ROUNDS):
        receiver.got.clear()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as near:
            near.setblocking(False)
            await turns(3)
            await send(loop, near, transport.get_extra_info("sockname"))
            counts.append(await iterations(lambda: receiver.got))
            await turns(3)
    transport.abort()
    await turns(3)
    assert max(counts) <= MOST, counts
