"""Many datagrams at once: fairness, and callbacks that close, pause or change the protocol."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from conftest import Errors
from datagram_tools import close, endpoint, flood, numbers
from protocols import DatagramRecorder, close_each, turns, until

Loop = asyncio.AbstractEventLoop


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


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_nothing_is_delivered_after_closing_in_the_middle(loop: Loop, how: str) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))

    def end(data: bytes, addr: Any) -> None:
        if data == b"2":
            getattr(transport, how)()

    protocol.on_datagram = end
    sender = await flood(protocol, 10)
    assert await protocol.lost is None
    assert protocol.data() == numbers(3)
    assert protocol.calls[-1] == "lost"
    sender.close()


async def test_new_protocol_gets_the_remaining_datagrams(loop: Loop) -> None:
    transport, first = await endpoint(loop, local_addr=("127.0.0.1", 0))
    second = DatagramRecorder()

    def change(data: bytes, addr: Any) -> None:
        if data == b"2":
            transport.set_protocol(second)
            assert transport.get_protocol() is second

    first.on_datagram = change
    sender = await flood(first, 10)
    await until(lambda: len(second.got) == 7)
    assert first.data() == numbers(3)
    assert second.data() == numbers(10, 3)
    close_each(sender, transport)
    await second.lost
    assert first.calls[-1] == "datagram"


async def test_pausing_in_the_middle_holds_the_rest_in_order(loop: Loop) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))

    def pause(data: bytes, addr: Any) -> None:
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


async def test_an_exception_over_a_held_datagram_stops_no_other(loop: Loop, errors: Errors) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))

    def pause(data: bytes, addr: Any) -> None:
        if data == b"0":
            transport.pause_reading()
        if data == b"2":
            raise ZeroDivisionError

    protocol.on_datagram = pause
    sender = await flood(protocol, 5)
    await until(lambda: len(protocol.got) == 1)
    transport.resume_reading()
    await until(lambda: len(protocol.got) == 5)
    assert protocol.data() == numbers(5)
    errors.expect(ZeroDivisionError, "Exception in callback")
    sender.close()
    await close(transport)


def test_an_interrupt_while_the_held_is_delivered_loses_nothing(loop: Loop) -> None:
    async def prepare() -> tuple[Any, DatagramRecorder, socket.socket]:
        transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))

        def pause(data: bytes, addr: Any) -> None:
            if data == b"0":
                transport.pause_reading()
            if data == b"2":
                raise KeyboardInterrupt

        protocol.on_datagram = pause
        sender = await flood(protocol, 5)
        await until(lambda: len(protocol.got) == 1)
        return transport, protocol, sender

    transport, protocol, sender = loop.run_until_complete(prepare())
    transport.resume_reading()
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    loop.run_until_complete(until(lambda: len(protocol.got) == 5))
    assert protocol.data() == numbers(5)
    sender.close()
    loop.run_until_complete(close(transport))
