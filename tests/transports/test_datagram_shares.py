"""Many datagrams at once: shares of an iteration, and callbacks that end, pause, replace or raise.

Where a callback takes long the rest of the datagrams waits for later iterations. No test here asks
how long anything took. A callback goes on until it has surely had its share: for as long as has
passed since the poll that brought its datagram, and a millisecond more.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import Errors
from datagram_tools import close, endpoint, flood, numbers
from protocols import DatagramRecorder, close_each, turns, until

Loop = asyncio.AbstractEventLoop
Pace = Callable[[], None]

LEAST = 1_000_000  # ns; SHARE_MIN in pybridge/core/datagrams/datagram.h


class Iterations:
    """Counts a loop's iterations, and knows a time before the last one's poll."""

    def __init__(self, loop: Loop) -> None:
        self.loop, self.count = loop, 0
        self.before = self.noted = time.monotonic_ns()
        self.handle = loop.call_soon(self.tick)

    def tick(self) -> None:
        self.count += 1
        self.before, self.noted = self.noted, time.monotonic_ns()
        self.handle = self.loop.call_soon(self.tick)

    def use_up(self) -> None:
        """Takes longer than a socket's share of this iteration."""
        now = time.monotonic_ns()
        end = now + (now - self.before) + LEAST
        while time.monotonic_ns() <= end:
            pass
        self.before = self.noted = time.monotonic_ns()

    def stop(self) -> None:
        self.handle.cancel()


@pytest.fixture(params=["quick", "slow"])
def pace(loop: Loop, request: pytest.FixtureRequest) -> Iterator[Pace]:
    """A function that a callback calls: in half of the tests it uses up the socket's share."""
    if request.param == "quick":
        yield lambda: None
        return
    iterations = Iterations(loop)
    yield iterations.use_up
    iterations.stop()


async def test_flood_does_not_starve_other_transports(loop: Loop) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    sender = await flood(protocol, 200)
    counts = []
    while len(protocol.got) < 200:
        before = len(protocol.got)
        await asyncio.sleep(0)
        counts.append(len(protocol.got) - before)
    assert max(counts) <= 64
    assert protocol.data() == numbers(200)
    sender.close()
    await close(transport)


async def test_long_callbacks_run_once_in_an_iteration(loop: Loop) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    iterations = Iterations(loop)
    seen: list[int] = []

    def slow(data: bytes, addr: Any) -> None:
        seen.append(iterations.count)
        iterations.use_up()

    protocol.on_datagram = slow
    sender = await flood(protocol, 12)
    await until(lambda: len(protocol.got) == 12)
    assert protocol.data() == numbers(12)
    assert len(set(seen)) == 12, seen
    # All waiting datagrams are delivered: the socket is received from as before.
    sender.send(b"12")
    await until(lambda: len(protocol.got) == 13)
    iterations.stop()
    sender.close()
    await close(transport)


async def test_other_sockets_and_timers_run_in_between(loop: Loop) -> None:
    slow, first = await endpoint(loop, local_addr=("127.0.0.1", 0))
    other, second = await endpoint(loop, local_addr=("127.0.0.1", 0))
    iterations = Iterations(loop)
    timers: list[int] = []

    def take_long(data: bytes, addr: Any) -> None:
        if data == b"0":
            loop.call_later(0, lambda: timers.append(len(first.got)))
            asking.send(b"now")
        iterations.use_up()

    heard: list[int] = []
    first.on_datagram = take_long
    second.on_datagram = lambda data, addr: heard.append(len(first.got))
    asking = await flood(second, 0)
    sender = await flood(first, 12)
    await until(lambda: len(first.got) == 12 and heard and timers)
    assert first.data() == numbers(12)
    assert timers[0] <= 3
    assert heard[0] <= 3
    iterations.stop()
    close_each(sender, asking)
    await close(slow, other)


@pytest.mark.goloop_only("asyncio takes one datagram of a socket in an iteration")
async def test_quick_callbacks_share_an_iteration(loop: Loop) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    iterations = Iterations(loop)
    seen: list[int] = []
    protocol.on_datagram = lambda data, addr: seen.append(iterations.count)
    most, sent = 0, 0
    while most < 2:  # another process may have had the time of a try
        sender = await flood(protocol, 20)
        sent += 20
        await until(lambda: len(seen) == sent)  # noqa: B023
        sender.close()
        most = max(seen.count(iteration) for iteration in set(seen))
    iterations.stop()
    await close(transport)


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_nothing_is_delivered_after_the_end(loop: Loop, pace: Pace, how: str) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))

    def end(data: bytes, addr: Any) -> None:
        pace()
        if data == b"2":
            getattr(transport, how)()

    protocol.on_datagram = end
    sender = await flood(protocol, 12)
    assert await protocol.lost is None
    assert protocol.data() == numbers(3)
    assert protocol.calls[-1] == "lost"
    sender.close()


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_waiting_datagrams_are_dropped_at_the_end(loop: Loop, how: str) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    iterations = Iterations(loop)

    def slow(data: bytes, addr: Any) -> None:
        iterations.use_up()
        if data == b"3":
            loop.call_soon(getattr(transport, how))

    protocol.on_datagram = slow
    sender = await flood(protocol, 12)
    assert await protocol.lost is None
    # The handle runs before the next datagram, or right after it if that was scheduled earlier.
    assert protocol.data() in (numbers(4), numbers(5))
    assert protocol.calls[-1] == "lost"
    iterations.stop()
    sender.close()


async def test_new_protocol_gets_the_remaining_datagrams(loop: Loop, pace: Pace) -> None:
    transport, first = await endpoint(loop, local_addr=("127.0.0.1", 0))
    second = DatagramRecorder()

    def change(data: bytes, addr: Any) -> None:
        pace()
        if data == b"2":
            transport.set_protocol(second)
            assert transport.get_protocol() is second

    first.on_datagram = change
    sender = await flood(first, 12)
    await until(lambda: len(second.got) == 9)
    assert first.data() == numbers(3)
    assert second.data() == numbers(12, 3)
    close_each(sender, transport)
    await second.lost
    assert first.calls[-1] == "datagram"


async def test_pausing_in_the_middle_holds_the_rest_in_order(loop: Loop, pace: Pace) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))

    def pause(data: bytes, addr: Any) -> None:
        pace()
        if data in (b"2", b"5"):
            transport.pause_reading()
            assert not transport.is_reading()
        if data == b"3":  # and back again
            transport.pause_reading()
            transport.resume_reading()

    protocol.on_datagram = pause
    sender = await flood(protocol, 10)
    await until(lambda: len(protocol.got) == 3)
    sender.send(b"10")
    await turns(10)
    assert protocol.data() == numbers(3)
    assert "read=idle" in repr(transport)
    transport.resume_reading()
    assert transport.is_reading()
    transport.resume_reading()
    await until(lambda: len(protocol.got) == 6)
    await turns(10)
    assert protocol.data() == numbers(6)
    transport.resume_reading()
    await until(lambda: len(protocol.got) == 11)
    assert protocol.data() == numbers(11)
    sender.send(b"11")
    await until(lambda: len(protocol.got) == 12)
    # Datagrams kept while paused are dropped at the end.
    protocol.on_datagram = lambda data, addr: transport.pause_reading()
    sender.send(b"12")
    sender.send(b"13")
    await until(lambda: len(protocol.got) == 13)
    transport.pause_reading()
    sender.close()
    await close(transport)
    transport.pause_reading()
    transport.resume_reading()
    assert protocol.data() == numbers(13)


async def test_errors_wait_while_paused(loop: Loop) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind(("127.0.0.1", 0))
        address = gone.getsockname()
    transport, protocol = await endpoint(loop, remote_addr=address)
    transport.pause_reading()
    transport.sendto(b"x")
    await turns(10)
    assert protocol.errors == []
    transport.resume_reading()
    await until(lambda: protocol.errors)
    assert isinstance(protocol.errors[0], ConnectionRefusedError)
    await close(transport)


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("kind", [ZeroDivisionError, KeyboardInterrupt])
def test_no_datagram_is_lost_by_an_exception(
    loop: Loop, errors: Errors, pace: Pace, kind: type[BaseException], held: bool
) -> None:
    """An exception is reported, or leaves the loop; a pause may have held the datagrams."""
    run = loop.run_until_complete
    transport, protocol = run(endpoint(loop, local_addr=("127.0.0.1", 0)))

    def fail(data: bytes, addr: Any) -> None:
        pace()
        if held and data == b"0":
            transport.pause_reading()
        if data in (b"2", b"4"):
            raise kind

    protocol.on_datagram = fail
    sender = run(flood(protocol, 0))
    for each in numbers(12):
        sender.send(each)
    if held:
        run(until(lambda: len(protocol.got) == 1))
        transport.resume_reading()
    if kind is KeyboardInterrupt:
        for count in (3, 5):
            with pytest.raises(KeyboardInterrupt):
                loop.run_forever()
            assert protocol.data() == numbers(count)
    run(until(lambda: len(protocol.got) == 12))
    assert protocol.data() == numbers(12)
    if kind is ZeroDivisionError:
        for _ in range(2):
            errors.expect(ZeroDivisionError, "Exception in callback")
    sender.close()
    run(close(transport))
