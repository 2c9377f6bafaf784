"""A transport over a socket that other code has made blocking does not stop its loop.

O_NONBLOCK belongs to the open file, which duplicates share: a child that clears it on its stdin
clears it for its parent too.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest
from protocols import BufferedRecorder, Recorder, hang_up, turns, until

Loop = asyncio.AbstractEventLoop
Pair = tuple[socket.socket, socket.socket]

MUCH = 8_000_000

WRITES: dict[str, Callable[[Any], None]] = {
    "one piece": lambda transport: transport.write(bytes(MUCH)),
    "many pieces": lambda transport: transport.writelines([bytes(1000)] * (MUCH // 1000)),
    "small pieces": lambda transport: [transport.write(bytes(1000)) for _ in range(MUCH // 1000)],
}


pytestmark = pytest.mark.goloop_only("asyncio's send() and recv() wait")


@pytest.mark.parametrize("write", WRITES)
async def test_a_write_does_not_wait(loop: Loop, pair: Pair, write: str) -> None:
    near, far = pair
    transport, protocol = await loop.create_connection(Recorder, sock=near)
    os.set_blocking(near.fileno(), True)
    WRITES[write](transport)
    assert transport.get_write_buffer_size() > 0
    got = 0
    while got < MUCH:
        got += len(await loop.sock_recv(far, 1 << 18))
    await hang_up(protocol)


@pytest.mark.parametrize("factory", [Recorder, BufferedRecorder])
async def test_a_receive_does_not_wait(loop: Loop, pair: Pair, factory: Any) -> None:
    """Also after much data, when receiving is tried before the poller has told of more."""
    near, far = pair
    _, protocol = await loop.create_connection(factory, sock=near)
    os.set_blocking(near.fileno(), True)
    for size in (100, 200_000, 200_000, 100):
        before = len(protocol.data)
        await loop.sock_sendall(far, bytes(size))
        await until(lambda: len(protocol.data) == before + size)  # noqa: B023
        await turns(5)
    await hang_up(protocol)
