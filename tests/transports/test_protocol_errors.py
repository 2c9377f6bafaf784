"""An exception in each of a protocol's callbacks: the report, and the further course."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from conftest import Errors, tcp_pair
from protocols import Recorder, close_all, connect, hang_up, until

Loop = asyncio.AbstractEventLoop


def failing(method: str) -> type[Recorder]:
    """A protocol that raises in one of its methods, after noting the call."""
    original = getattr(Recorder, method)

    def fail(self: Recorder, *args: Any) -> Any:
        original(self, *args)
        raise ZeroDivisionError(method)

    return type("Failing", (Recorder,), {method: fail})


async def test_an_exception_of_data_received_ends_the_connection(
    loop: Loop, errors: Errors
) -> None:
    near, far = tcp_pair()
    _, protocol = await loop.create_connection(failing("data_received"), sock=near)
    far.send(b"x")
    assert isinstance(await protocol.lost, ZeroDivisionError)
    context = errors.expect(ZeroDivisionError, "Fatal error: protocol.data_received() call failed.")
    assert context["transport"] is protocol.transport
    assert context["protocol"] is protocol
    assert protocol.names() == ["made", "data", "lost"]
    assert await loop.sock_recv(far, 1) == b""
    far.close()


async def test_an_exception_of_eof_received_ends_the_connection(loop: Loop, errors: Errors) -> None:
    near, far = tcp_pair()
    _, protocol = await loop.create_connection(failing("eof_received"), sock=near)
    far.shutdown(socket.SHUT_WR)
    assert isinstance(await protocol.lost, ZeroDivisionError)
    errors.expect(ZeroDivisionError, "Fatal error: protocol.eof_received() call failed.")
    far.close()


async def test_an_exception_of_connection_lost_is_reported(loop: Loop, errors: Errors) -> None:
    near, far = tcp_pair()
    transport, protocol = await loop.create_connection(failing("connection_lost"), sock=near)
    transport.close()
    await protocol.lost
    await until(lambda: errors.contexts)
    errors.expect(ZeroDivisionError, "Exception in callback ")
    assert near.fileno() == -1
    assert await loop.sock_recv(far, 1) == b""
    far.close()


async def test_client_continues_after_an_exception_of_connection_made(
    loop: Loop, errors: Errors
) -> None:
    near, far = tcp_pair()
    _, protocol = await loop.create_connection(failing("connection_made"), sock=near)
    errors.expect(ZeroDivisionError, "Exception in callback ")
    # asyncio goes on as if nothing had happened.
    far.send(b"x")
    await until(lambda: protocol.data == b"x")
    await hang_up(protocol, far=far)


async def test_server_continues_after_an_exception_of_connection_made(
    loop: Loop, errors: Errors
) -> None:
    near, far, server = await connect(loop, server=failing("connection_made"))
    await until(lambda: errors.contexts)
    errors.expect(ZeroDivisionError, "Exception in callback ")
    near.transport.write(b"x")
    await until(lambda: far.data == b"x")
    await hang_up(near, far)
    await close_all(server)


async def test_an_exception_of_a_clients_factory_is_raised(loop: Loop) -> None:
    near, far = tcp_pair()

    def factory() -> asyncio.Protocol:
        raise ZeroDivisionError("factory")

    with pytest.raises(ZeroDivisionError, match="factory"):
        await loop.create_connection(factory, sock=near)
    near.close()
    far.close()


# asyncio leaves the accepted socket to the garbage collector, which warns.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_an_exception_of_a_servers_factory_closes_that_connection(
    loop: Loop, errors: Errors
) -> None:
    def factory() -> asyncio.Protocol:
        raise ZeroDivisionError("factory")

    server = await loop.create_server(factory, "127.0.0.1", 0)
    sock = socket.create_connection(server.sockets[0].getsockname())
    sock.setblocking(False)
    # The connection is not served, and the server goes on.
    assert await loop.sock_recv(sock, 1) == b""
    sock.close()
    again = socket.create_connection(server.sockets[0].getsockname())
    again.setblocking(False)
    assert await loop.sock_recv(again, 1) == b""
    again.close()
    await close_all(server)
    for context in errors.contexts:
        assert isinstance(context["exception"], ZeroDivisionError)
    errors.contexts.clear()


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
    far_a.close()
    far_b.close()
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
