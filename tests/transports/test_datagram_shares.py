"""Callbacks that take long: the datagrams of a socket in an iteration, and those that wait.

No test here asks how long anything took.  A callback goes on until it has surely had its share:
for as long as has passed since the poll that brought its datagram, and a millisecond more.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from conftest import Errors
from datagram_tools import close, endpoint, flood, numbers
from protocols import DatagramRecorder, close_each, until

Loop = asyncio.AbstractEventLoop

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


async def test_pause_with_waiting_datagrams_loses_none(loop: Loop) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    iterations = Iterations(loop)

    def slow(data: bytes, addr: Any) -> None:
        iterations.use_up()
        if data == b"3":
            transport.pause_reading()
        if data == b"6":  # and back again
            transport.pause_reading()
            transport.resume_reading()

    protocol.on_datagram = slow
    sender = await flood(protocol, 12)
    await until(lambda: len(protocol.got) == 4)
    assert not transport.is_reading()
    sender.send(b"12")
    passed = iterations.count + 10
    await until(lambda: iterations.count >= passed)
    assert protocol.data() == numbers(4)
    transport.resume_reading()
    assert transport.is_reading()
    await until(lambda: len(protocol.got) == 13)
    assert protocol.data() == numbers(13)
    iterations.stop()
    sender.close()
    await close(transport)


async def test_waiting_datagrams_go_to_a_new_protocol(loop: Loop) -> None:
    transport, first = await endpoint(loop, local_addr=("127.0.0.1", 0))
    second = DatagramRecorder()
    iterations = Iterations(loop)

    def slow(data: bytes, addr: Any) -> None:
        iterations.use_up()
        if data == b"2":
            transport.set_protocol(second)

    first.on_datagram = slow
    sender = await flood(first, 12)
    await until(lambda: len(second.got) == 9)
    assert first.data() == numbers(3)
    assert second.data() == numbers(12, 3)
    iterations.stop()
    close_each(sender, transport)
    await second.lost


async def test_exception_does_not_stop_waiting_datagrams(loop: Loop, errors: Errors) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    iterations = Iterations(loop)

    def slow(data: bytes, addr: Any) -> None:
        iterations.use_up()
        if data in (b"0", b"4"):
            raise ZeroDivisionError

    protocol.on_datagram = slow
    sender = await flood(protocol, 12)
    await until(lambda: len(protocol.got) == 12)
    assert protocol.data() == numbers(12)
    for _ in range(2):
        errors.expect(ZeroDivisionError, "Exception in callback")
    iterations.stop()
    sender.close()
    await close(transport)


def test_interrupt_with_waiting_datagrams_loses_none(loop: Loop) -> None:
    interrupts = 0

    async def prepare() -> tuple[Any, DatagramRecorder, Any, Iterations]:
        transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
        iterations = Iterations(loop)

        def slow(data: bytes, addr: Any) -> None:
            nonlocal interrupts
            iterations.use_up()
            if interrupts:
                interrupts -= 1
                raise KeyboardInterrupt

        protocol.on_datagram = slow
        return transport, protocol, await flood(protocol, 12), iterations

    transport, protocol, sender, iterations = loop.run_until_complete(prepare())
    interrupts = 2
    for left in (1, 0):
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
        assert interrupts == left
    loop.run_until_complete(until(lambda: len(protocol.got) == 12))
    assert protocol.data() == numbers(12)
    iterations.stop()
    sender.close()
    loop.run_until_complete(close(transport))
