"""Received bytes that a stream has not yet delivered, and the buffers that it reads into."""

from __future__ import annotations

import array
import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Errors, tcp_pair
from protocols import BufferedRecorder, Recorder, close_each, hang_up, turns, until
from stream_tools import Meddler, attach, open_pair, received

Loop = asyncio.AbstractEventLoop
Pair = tuple[socket.socket, socket.socket]


# ---- data in hand --------------------------------------------------------------------


async def both_ready(loop: Loop, first: Any, second: Any) -> tuple[Pair, Pair]:
    """Two transports whose peers have sent data and an end of file before the loop looks."""
    one, two = tcp_pair(), tcp_pair()
    await attach(loop, one[0], first)
    await attach(loop, two[0], second)
    for _, far in (one, two):
        far.send(b"data")
        far.shutdown(socket.SHUT_WR)
    return one, two


def other_of(first: Any, second: Any) -> Callable[[Any], Any]:
    return lambda protocol: second if protocol is first else first


@pytest.mark.parametrize("action", ["close", "abort"])
async def test_closing_another_transport_drops_its_received_bytes(loop: Loop, action: str) -> None:
    # Whichever of the two is called first closes the other one.
    protocols: list[Any] = []

    def act(protocol: Meddler) -> None:
        other = other_of(*protocols)(protocol)
        if not other.data:
            getattr(other.transport, action)()

    protocols += [Meddler("data", act), Meddler("data", act)]
    one, two = await both_ready(loop, *protocols)
    await protocols[0].lost
    await protocols[1].lost
    names = sorted(protocol.names() for protocol in protocols)
    assert names == [["made", "data", "eof", "lost"], ["made", "lost"]]
    close_each(*one, *two)


async def test_data_of_a_paused_transport_is_delivered_in_order_after_resume(loop: Loop) -> None:
    protocols: list[Any] = []

    def act(protocol: Meddler) -> None:
        other_of(*protocols)(protocol).transport.pause_reading()

    protocols += [Meddler("data", act), Meddler("data", act)]
    one, two = await both_ready(loop, *protocols)
    await until(lambda: any(protocol.data for protocol in protocols))
    await turns(20)
    paused = [protocol for protocol in protocols if not protocol.transport.is_reading()]
    assert [protocol.names() for protocol in protocols if protocol.names() == ["made"]]
    silent = next(protocol for protocol in protocols if protocol.names() == ["made"])
    assert silent in paused
    # Resumed and paused again before anything could be delivered: still silent.
    silent.transport.resume_reading()
    silent.transport.pause_reading()
    await turns(20)
    assert silent.names() == ["made"]
    for protocol in protocols:
        protocol.transport.resume_reading()
    await silent.lost
    assert silent.names() == ["made", "data", "eof", "lost"]
    assert silent.data == b"data"
    for protocol in protocols:
        await protocol.lost
    close_each(*one, *two)


async def test_new_protocol_gets_bytes_kept_while_paused(loop: Loop, pair: Pair) -> None:
    near, far = pair
    second = BufferedRecorder(3)

    def act(protocol: Meddler) -> None:
        protocol.transport.set_protocol(second)
        second.transport = protocol.transport
        protocol.transport.pause_reading()

    first = await attach(loop, near, Meddler("data", act))
    far.send(b"to the first")
    await until(lambda: first.data)
    far.send(b"to the second")
    far.shutdown(socket.SHUT_WR)
    await turns(20)
    assert not second.data
    first.transport.resume_reading()
    await second.lost
    assert first.data + second.data == b"to the firstto the second"
    assert second.eof.done()
    assert first.names() == ["made", "data"]


async def test_pausing_between_two_buffers_holds_the_rest(loop: Loop, pair: Pair) -> None:
    near, far = pair

    class Pausing(BufferedRecorder):
        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            self.transport.pause_reading()

    protocol = await attach(loop, near, Pausing(4))
    far.send(b"0123456789")
    far.shutdown(socket.SHUT_WR)
    for end in (4, 8, 10):
        await until(lambda end=end: len(protocol.data) == end)
        await turns(5)
        assert protocol.data == b"0123456789"[:end]
        assert not protocol.eof.done()
        protocol.transport.resume_reading()
    await protocol.lost
    assert protocol.eof.done()
    assert set(protocol.hints) == {-1}


async def test_protocol_changed_between_two_buffers_gets_the_rest(loop: Loop, pair: Pair) -> None:
    near, far = pair
    second = Recorder()

    class Changing(BufferedRecorder):
        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            self.transport.set_protocol(second)

    first = await attach(loop, near, Changing(4))
    second.transport = first.transport
    far.send(b"0123456789")
    far.shutdown(socket.SHUT_WR)
    await second.lost
    assert first.data == b"0123"
    assert second.data == b"456789"


@pytest.mark.parametrize("action", ["close", "abort"])
async def test_closing_between_two_buffers_drops_the_rest(
    loop: Loop, pair: Pair, action: str
) -> None:
    near, far = pair

    class Closing(BufferedRecorder):
        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            getattr(self.transport, action)()

    protocol = await attach(loop, near, Closing(4))
    far.send(b"0123456789")
    await protocol.lost
    assert protocol.data == b"0123"


async def test_eof_is_delivered_again_after_resume_with_a_new_protocol(
    loop: Loop, pair: Pair
) -> None:
    near, far = pair
    first, second = Recorder(), Recorder()
    first.keep_open = second.keep_open = True
    await attach(loop, near, first)
    second.transport = first.transport
    far.shutdown(socket.SHUT_WR)
    await first.eof
    first.transport.pause_reading()
    first.transport.set_protocol(second)
    first.transport.resume_reading()
    await second.eof
    first.transport.write(b"answer")
    first.transport.close()
    assert await loop.run_in_executor(None, received, far) == b"answer"
    await second.lost


async def test_pausing_in_connection_made_holds_early_data(loop: Loop, pair: Pair) -> None:
    near, far = pair
    far.send(b"early")
    protocol = await attach(
        loop, near, Meddler("made", lambda protocol: protocol.transport.pause_reading())
    )
    await turns(20)
    assert protocol.names() == ["made"]
    assert not protocol.transport.is_reading()
    protocol.transport.resume_reading()
    await until(lambda: protocol.data == b"early")
    await hang_up(protocol)


# ---- a protocol that is replaced -----------------------------------------------------------------


async def test_set_protocol_hands_the_data_to_the_new_protocol(loop: Loop) -> None:
    first, far = await open_pair(loop)
    transport = first.transport
    await loop.sock_sendall(far, b"one")
    await until(lambda: first.data == b"one")
    second = Recorder()
    transport.set_protocol(second)
    assert transport.get_protocol() is second
    await loop.sock_sendall(far, b"two")
    await until(lambda: second.data == b"two")
    assert first.data == b"one"
    assert second.names() == ["data"]
    third = BufferedRecorder()
    transport.set_protocol(protocol=third)
    await loop.sock_sendall(far, b"three")
    await until(lambda: third.data == b"three")
    transport.set_protocol(first)
    await loop.sock_sendall(far, b"four")
    await until(lambda: first.data == b"onefour")
    far.close()
    assert await first.lost is None
    assert not second.lost.done()
    assert not third.lost.done()


async def test_set_protocol_within_data_received_takes_effect_at_once(loop: Loop) -> None:
    first, far = await open_pair(loop)
    transport = first.transport
    second = Recorder()
    received = first.data_received

    def data_received(data: bytes) -> None:
        received(data)
        transport.set_protocol(second)
        far.send(b"for the second")

    first.data_received = data_received
    far.send(b"for the first")
    await until(lambda: second.data)
    assert (first.data, second.data) == (b"for the first", b"for the second")
    far.close()
    await second.lost


# ---- buffers to read into ------------------------------------------------------------


class Strange(BufferedRecorder):
    """A protocol whose get_buffer returns, or raises, something else."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def get_buffer(self, sizehint: int) -> Any:
        if isinstance(self.answer, type):
            raise self.answer
        return self.answer


GET_BUFFER = "Fatal error: protocol.get_buffer() call failed."
READ = "Fatal read error on socket transport"


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (bytearray(), RuntimeError, GET_BUFFER),
        (None, TypeError, GET_BUFFER),
        (ZeroDivisionError, ZeroDivisionError, GET_BUFFER),
        (b"read-only", TypeError, READ),
        ("text", TypeError, READ),
        (memoryview(b"read-only"), TypeError, READ),
    ],
)
async def test_buffers_that_cannot_be_read_into_are_fatal(
    loop: Loop, pair: Pair, errors: Errors, answer: Any, kind: type[Exception], message: str
) -> None:
    near, far = pair
    protocol = await attach(loop, near, Strange(answer))
    far.send(b"data")
    assert type(await protocol.lost) is kind
    context = errors.expect(kind, message)
    if message == READ:
        assert "read-write bytes-like object" in str(context["exception"])
    elif kind is RuntimeError:
        assert str(context["exception"]) == "get_buffer() returned an empty buffer"


async def test_buffers_of_larger_items_are_filled_by_bytes(loop: Loop, pair: Pair) -> None:
    near, far = pair
    items = array.array("I", [0, 0])
    protocol = await attach(loop, near, Strange(items))
    protocol.buffer_updated = lambda nbytes: protocol.data.extend(items.tobytes()[:nbytes])
    far.send(b"01234567")
    await until(lambda: len(protocol.data) == 8)
    assert protocol.data == b"01234567"
    await hang_up(protocol)


async def test_methods_assigned_later_are_called(loop: Loop, pair: Pair) -> None:
    near, far = pair
    protocol = await attach(loop, near, Recorder())
    far.send(b"a")
    await until(lambda: protocol.data)
    other = bytearray()
    protocol.data_received = other.extend
    far.send(b"b")
    await until(lambda: other)
    assert (protocol.data, other) == (b"a", b"b")
    await hang_up(protocol)
