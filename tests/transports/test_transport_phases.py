"""The life of a transport, step by step, the same for each kind: a method that comes too
early, twice or too late has asyncio's effect, and connection_lost is told once."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from conftest import tcp_pair
from protocols import receive_all, turns, until

Loop = asyncio.AbstractEventLoop


class Log(asyncio.Protocol, asyncio.DatagramProtocol):
    """Notes its calls; may do something within one of them."""

    def __init__(self, doing: Callable[[Any], object] | None = None) -> None:
        self.calls: list[str] = []
        self.transport: Any = None
        self.doing = doing
        self.lost_with: list[BaseException | None] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.calls.append("made")
        if self.doing is not None:
            self.doing(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.calls.append("lost")
        self.lost_with.append(exc)


Make = Callable[[Loop, Any], tuple[Any, Any]]


def make_stream(loop: Any, protocol: Any) -> tuple[Any, Any]:
    near, far = tcp_pair()
    return loop._make_socket_transport(near, protocol), far


def make_read_pipe(loop: Any, protocol: Any) -> tuple[Any, Any]:
    reading, writing = os.pipe()
    far = os.fdopen(writing, "wb", 0)
    return loop._make_read_pipe_transport(os.fdopen(reading, "rb", 0), protocol), far


def make_write_pipe(loop: Any, protocol: Any) -> tuple[Any, Any]:
    reading, writing = os.pipe()
    far = os.fdopen(reading, "rb", 0)
    return loop._make_write_pipe_transport(os.fdopen(writing, "wb", 0), protocol), far


def make_datagram(loop: Any, protocol: Any) -> tuple[Any, Any]:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    near.setblocking(False)
    return loop._make_datagram_transport(near, protocol), far


KINDS = [make_stream, make_read_pipe, make_write_pipe, make_datagram]
every_kind = pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__[5:])


def abort(transport: Any) -> None:
    """asyncio's read ends of pipes have no abort()."""
    (transport.abort if hasattr(transport, "abort") else transport.close)()


@every_kind
@pytest.mark.parametrize("end", ["close", "abort"])
async def test_end_before_connection_made_is_reported_after_it(
    loop: Loop, make: Make, end: str
) -> None:
    protocol = Log()
    transport, far = make(loop, protocol)
    transport.close() if end == "close" else abort(transport)
    assert transport.is_closing()
    assert protocol.calls == []
    await turns(4)
    assert protocol.calls == ["made", "lost"]
    assert protocol.lost_with == [None]
    far.close()


@every_kind
@pytest.mark.parametrize("end", ["close", "abort"])
async def test_end_within_connection_made_is_reported_once(
    loop: Loop, loop_name: str, make: Make, end: str
) -> None:
    if loop_name == "asyncio" and make is make_write_pipe:
        pytest.skip("asyncio's second abort() fails with AttributeError")

    def ends(transport: Any) -> None:
        for _ in range(2):
            transport.close() if end == "close" else abort(transport)

    protocol = Log(ends)
    transport, far = make(loop, protocol)
    await turns(5)
    assert protocol.calls == ["made", "lost"]
    assert transport.is_closing()
    transport.close()
    abort(transport)
    await turns(3)
    assert protocol.calls == ["made", "lost"]
    far.close()


@every_kind
@pytest.mark.goloop_only("asyncio's fails with AttributeError")
async def test_second_call_of_connection_lost_is_ignored(loop: Loop, make: Make) -> None:
    protocol = Log()
    transport, far = make(loop, protocol)
    await turns(3)
    abort(transport)
    transport._call_connection_lost(None)
    assert transport.is_closing()
    transport._call_connection_lost(None)
    await turns(3)
    assert protocol.calls == ["made", "lost"]
    assert transport._loop is None
    assert transport.get_protocol() is None
    far.close()


@every_kind
@pytest.mark.goloop_only("asyncio's recurses without end")
async def test_nested_connection_lost_is_called_once(loop: Loop, make: Make) -> None:
    class Again(Log):
        def connection_lost(self, exc: BaseException | None) -> None:
            super().connection_lost(exc)
            if len(self.calls) < 4:
                self.transport._call_connection_lost(None)

    protocol = Again()
    transport, far = make(loop, protocol)
    await turns(3)
    number = transport._sock_fd
    abort(transport)
    await turns(3)
    assert protocol.calls == ["made", "lost", "lost", "lost"]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
    far.close()


@every_kind
async def test_lost_transport_never_calls_a_new_protocol(
    loop: Loop, loop_name: str, make: Make
) -> None:
    if loop_name == "asyncio" and make is make_write_pipe:
        pytest.skip("asyncio's second abort() fails with AttributeError")
    protocol = Log()
    transport, far = make(loop, protocol)
    await turns(3)
    abort(transport)
    await turns(3)
    assert protocol.calls == ["made", "lost"]
    other = Log()
    transport.set_protocol(other)
    assert transport.get_protocol() is other
    transport.close()
    abort(transport)
    await turns(3)
    assert other.calls == []
    assert protocol.calls == ["made", "lost"]
    far.close()


@every_kind
@pytest.mark.parametrize("end", ["close", "abort", "protocol"])
async def test_call_from_another_thread_takes_effect_after_the_turn(
    loop: Loop, make: Make, end: str
) -> None:
    """asyncio forbids these calls; they do no harm, even while the loop sleeps in its poll."""
    protocol, other = Log(), Log()
    transport, far = make(loop, protocol)
    await until(lambda: protocol.calls == ["made"])
    asleep = threading.Event()

    def call() -> None:
        asleep.wait()
        if end == "protocol":
            transport.set_protocol(other)
        elif end == "close":
            transport.close()
        else:
            abort(transport)
        loop.call_soon_threadsafe(called.set_result, None)

    called = loop.create_future()
    thread = threading.Thread(target=call)
    thread.start()
    loop.call_soon(asleep.set)
    await called
    thread.join()
    if end == "protocol":
        assert transport.get_protocol() is other
        transport.close()
        await until(lambda: other.calls == ["lost"])
        assert protocol.calls == ["made"]
    else:
        await until(lambda: "lost" in protocol.calls)
        assert protocol.calls == ["made", "lost"]
    far.close()


async def test_bytes_written_before_connection_made_are_sent_though_closed(loop: Loop) -> None:
    protocol = Log()
    transport, far = make_stream(loop, protocol)
    transport.write(b"early " * 200_000)
    transport.close()
    assert await receive_all(far) == b"early " * 200_000
    await until(lambda: protocol.calls == ["made", "lost"])
    far.close()


@every_kind
async def test_pausing_a_closing_transport_is_not_an_error(loop: Loop, make: Make) -> None:
    if make is make_write_pipe:
        pytest.skip("it does not read")
    protocol = Log()
    transport, far = make(loop, protocol)
    transport.close()
    if make is not make_read_pipe:  # asyncio's read end pauses even when closed
        transport.pause_reading()
        transport.resume_reading()
    assert not transport.is_reading()
    await turns(4)
    assert protocol.calls == ["made", "lost"]
    if make is not make_read_pipe:
        transport.pause_reading()
        transport.resume_reading()
    far.close()
