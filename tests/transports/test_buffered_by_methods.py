"""A protocol with get_buffer() and buffer_updated() that doesn't inherit from BufferedProtocol.

uvloop looks at the methods. asyncio looks at the class, and fails, as data_received() is missing.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from conftest import tcp_pair
from protocols import Recorder, close_all, close_each, until
from tls_tools import client_context, server_context

Loop = asyncio.AbstractEventLoop


goloops = pytest.mark.goloop_only("asyncio serves subclasses of BufferedProtocol alone")


class Methods:
    """Has the methods, and no base class."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.lost = asyncio.get_running_loop().create_future()
        self._buffer = bytearray(1000)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self._buffer[:nbytes]

    def eof_received(self) -> None:
        pass

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


class Based(Methods, asyncio.BaseProtocol):
    """Inherits from a base of all protocols."""


PAYLOAD = os.urandom(50_000)


@goloops
@pytest.mark.parametrize("kind", [Methods, Based])
async def test_buffered_methods_receive_a_streams_bytes(loop: Loop, kind: type[Methods]) -> None:
    near, far = tcp_pair()
    protocol = kind()
    factory: Any = lambda: protocol  # noqa: E731
    await loop.create_connection(factory, sock=near)
    await loop.sock_sendall(far, PAYLOAD)
    far.close()
    await protocol.lost
    assert protocol.data == PAYLOAD


@goloops
async def test_buffered_methods_receive_bytes_after_set_protocol(loop: Loop) -> None:
    near, far = tcp_pair()
    first = Recorder()
    transport, _ = await loop.create_connection(lambda: first, sock=near)
    far.send(b"first")
    await until(lambda: first.data == b"first")
    second = Methods()
    transport.set_protocol(second)  # type: ignore[arg-type]
    far.send(b"second")
    await until(lambda: second.data == b"second")
    third = Recorder()
    transport.set_protocol(third)
    far.send(b"third")
    await until(lambda: third.data == b"third")
    far.close()
    await third.lost


@goloops
@pytest.mark.parametrize("start", [False, True], ids=["ssl", "start_tls"])
async def test_protocol_with_buffer_methods_gets_decrypted_bytes(loop: Loop, start: bool) -> None:
    accepted = Recorder()
    server = await loop.create_server(
        lambda: accepted, "127.0.0.1", 0, ssl=None if start else server_context()
    )
    protocol = Methods()
    factory: Any = lambda: protocol  # noqa: E731
    address = server.sockets[0].getsockname()
    if start:
        transport, _ = await loop.create_connection(factory, *address)
        await accepted.made
        serving = asyncio.ensure_future(
            loop.start_tls(accepted.transport, accepted, server_context(), server_side=True)
        )
        await loop.start_tls(
            transport,
            protocol,
            client_context(),
            server_hostname="localhost",  # type: ignore[arg-type]
        )
        sender = await serving
        assert sender is not None
    else:
        await loop.create_connection(
            factory, *address, ssl=client_context(), server_hostname="localhost"
        )
        await accepted.made
        sender = accepted.transport
    sender.write(PAYLOAD)
    await until(lambda: len(protocol.data) == len(PAYLOAD))
    assert protocol.data == PAYLOAD
    sender.close()
    await protocol.lost
    await accepted.lost
    await close_all(server)


async def test_data_received_comes_first(loop: Loop) -> None:
    """As in asyncio, where a class that is no BufferedProtocol has both."""

    class Both(Methods):
        def data_received(self, data: bytes) -> None:
            self.data += b"received " + data

    near, far = tcp_pair()
    protocol = Both()
    factory: Any = lambda: protocol  # noqa: E731
    await loop.create_connection(factory, sock=near)
    far.send(b"both")
    far.close()
    await protocol.lost
    assert protocol.data == b"received both"


@goloops
async def test_exception_of_a_get_buffer_property_leaves_the_constructor(loop: Loop) -> None:
    class Odd(Methods):
        @property
        def get_buffer(self) -> Any:
            raise ZeroDivisionError

    near, far = tcp_pair()
    factory: Any = Odd
    with pytest.raises(ZeroDivisionError):
        await loop.create_connection(factory, sock=near)
    close_each(near, far)
