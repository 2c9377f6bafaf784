"""Data that waits already comes in the next iteration, however busy the ready queue is.

A busy loop polls in few iterations only (docs/internals/fairness.md), but it polls next after a
descriptor was opened, resumed or watched: asyncio delivers its data before later events.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from protocols import Iterations, close_each, turns

Loop = asyncio.AbstractEventLoop


class Arrival(asyncio.Protocol, asyncio.DatagramProtocol):
    """Notes the iteration in which data came."""

    def __init__(self, iterations: Iterations) -> None:
        self._iterations = iterations
        self.made = self.came = 0

    def connection_made(self, transport: Any) -> None:
        self.made = self._iterations.now

    def data_received(self, data: bytes) -> None:
        self.came = self._iterations.now

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.came = self._iterations.now


Pair = Callable[[], tuple[socket.socket, socket.socket]]


def stream_pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


def datagram_pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)


@pytest.mark.parametrize("kind", ["stream", "datagram", "pipe"])
async def test_waiting_data_arrives_in_the_first_iterations_of_a_transport(
    kind: str, loop: Loop
) -> None:
    iterations = Iterations(loop)
    protocol = Arrival(iterations)
    transport: Any
    with ExitStack() as stack:
        if kind == "pipe":
            reading, writing = os.pipe()
            stack.enter_context(os.fdopen(writing, "wb"))
            os.write(writing, b"waits")
            transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(reading, "rb"))
        else:
            near, far = stream_pair() if kind == "stream" else datagram_pair()
            stack.enter_context(far)
            near.setblocking(False)
            far.send(b"waits")
            if kind == "stream":
                transport, _ = await loop.create_connection(lambda: protocol, sock=near)
            else:
                transport, _ = await loop.create_datagram_endpoint(lambda: protocol, sock=near)
        await turns(5)
        # connection_made, the iteration that begins to read, the one that has read.
        assert 0 < protocol.came <= protocol.made + 2
        iterations.stop()
        transport.close()
        await turns(3)


@pytest.mark.parametrize("pair", [stream_pair, datagram_pair])
async def test_data_received_during_a_pause_arrives_in_the_next_iteration(
    pair: Pair, loop: Loop
) -> None:
    near, far = pair()
    near.setblocking(False)
    transport: Any
    iterations = Iterations(loop)
    protocol = Arrival(iterations)
    if pair is stream_pair:
        transport, _ = await loop.create_connection(lambda: protocol, sock=near)
    else:
        transport, _ = await loop.create_datagram_endpoint(lambda: protocol, sock=near)
        if not hasattr(transport, "pause_reading"):
            pytest.skip("asyncio's datagram transports can't be paused")
    await turns(100)
    transport.pause_reading()
    far.send(b"waits")
    await turns(7)
    resumed = iterations.now
    transport.resume_reading()
    await turns(3)
    assert 0 < protocol.came <= resumed + 1
    iterations.stop()
    close_each(transport, far)
    await turns(3)


@pytest.mark.parametrize("call", ["add_reader", "add_writer", "sock_recv"])
async def test_a_new_watch_is_asked_in_the_next_iteration(call: str, loop: Loop) -> None:
    near, far = stream_pair()
    near.setblocking(False)
    iterations = Iterations(loop)
    came: list[int] = []
    await turns(100)
    if call == "sock_recv":
        receiving = asyncio.ensure_future(loop.sock_recv(near, 10))
        receiving.add_done_callback(lambda _: came.append(iterations.now))
        # The transport waits, and nothing has polled for it yet.
        loop.call_soon(far.send, b"waits")
        begun = iterations.now + 1
        await receiving
        await turns(1)
        assert came[0] <= begun + 4
    else:
        far.send(b"waits")
        begun = iterations.now
        getattr(loop, call)(near, lambda: came.append(iterations.now))
        await turns(3)
        getattr(loop, call.replace("add", "remove"))(near)
        assert came[0] <= begun + 1
    iterations.stop()
    close_each(near, far)
    await turns(1)


async def test_a_client_in_the_backlog_of_a_new_server_is_accepted_at_once(loop: Loop) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    iterations = Iterations(loop)
    protocol = Arrival(iterations)
    await turns(100)
    with socket.create_connection(listening.getsockname()) as client:
        begun = iterations.now
        server = await loop.create_server(lambda: protocol, sock=listening)
        await turns(4)
        assert 0 < protocol.made <= begun + 4
        iterations.stop()
        server.close()
        client.shutdown(socket.SHUT_WR)
        await server.wait_closed()
