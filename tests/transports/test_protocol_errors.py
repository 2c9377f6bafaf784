"""An exception in each of a protocol's callbacks: the report, and the further course."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import Errors, tcp_pair
from protocols import Recorder, close_all, close_each, connect, failing, hang_up, until

Loop = asyncio.AbstractEventLoop


@pytest.mark.parametrize("raises", ["client", "server"])
async def test_connection_continues_after_an_exception_of_connection_made(
    loop: Loop, errors: Errors, raises: str
) -> None:
    near, far, server = await connect(loop, **{raises: failing("connection_made")})
    await until(lambda: errors.contexts)
    errors.expect(ZeroDivisionError, "Exception in callback ")
    # asyncio goes on as if nothing had happened.
    for one, other in ((near, far), (far, near)):
        one.transport.write(b"x")
        await until(lambda other=other: other.data == b"x")  # type: ignore[misc]
    await hang_up(near, far)
    await close_all(server)


async def test_an_exception_of_a_clients_factory_is_raised(loop: Loop) -> None:
    near, far = tcp_pair()

    def factory() -> asyncio.Protocol:
        raise ZeroDivisionError("factory")

    with pytest.raises(ZeroDivisionError, match="factory"):
        await loop.create_connection(factory, sock=near)
    close_each(near, far)


async def test_a_protocol_without_a_method_ends_the_connection(loop: Loop, errors: Errors) -> None:
    class Bare:
        def __init__(self) -> None:
            self.lost = loop.create_future()

        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def connection_lost(self, exc: Any) -> None:
            self.lost.set_result(exc)

    near, far = tcp_pair()
    _, protocol = await loop.create_connection(Bare, sock=near)  # type: ignore[type-var]
    far.send(b"x")
    assert isinstance(await protocol.lost, AttributeError)
    errors.expect(AttributeError, "Fatal error: protocol.data_received() call failed.")
    far.close()


async def test_broken_connection_does_not_affect_others(loop: Loop, errors: Errors) -> None:
    near_a, far_a = tcp_pair()
    near_b, far_b = tcp_pair()
    _, broken = await loop.create_connection(failing("data_received"), sock=near_a)
    _, healthy = await loop.create_connection(Recorder, sock=near_b)
    far_a.send(b"x")
    far_b.send(b"x")
    await broken.lost
    await until(lambda: healthy.data == b"x")
    errors.expect(ZeroDivisionError)
    close_each(far_a, far_b)
    await healthy.lost


async def test_all_protocol_calls_have_asyncios_order(loop: Loop) -> None:
    near, far, server = await connect(loop)
    near.transport.write(b"question")
    await until(lambda: far.data == b"question")
    far.transport.write(b"answer")
    far.transport.close()
    assert await near.lost is None
    assert await far.lost is None
    assert near.calls == [("made",), ("data", b"answer"), ("eof",), ("lost", None)]
    assert far.calls == [("made",), ("data", b"question"), ("lost", None)]
    await close_all(server)
