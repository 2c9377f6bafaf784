"""Datagram endpoints and pipe transports, over the loop's own watches."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from typing import Any

import pytest
from protocols import Recorder, until

Loop = asyncio.AbstractEventLoop


class Datagrams(asyncio.DatagramProtocol):
    """Notes what comes."""

    def __init__(self) -> None:
        self.got: list[tuple[bytes, Any]] = []
        self.errors: list[Exception] = []
        self.lost = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.got.append((data, addr))

    def error_received(self, exc: Exception) -> None:
        self.errors.append(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


async def test_datagrams_both_ways(loop: Loop) -> None:
    serving, server = await loop.create_datagram_endpoint(Datagrams, ("127.0.0.1", 0))
    address = serving.get_extra_info("sockname")
    asking, client = await loop.create_datagram_endpoint(Datagrams, remote_addr=address)
    for number in range(20):
        asking.sendto(b"%d" % number)
    await until(lambda: len(server.got) == 20)
    here = asking.get_extra_info("sockname")
    assert server.got == [(b"%d" % number, here) for number in range(20)]
    serving.sendto(b"answer", here)
    await until(lambda: client.got)
    assert client.got == [(b"answer", address)]
    for transport, protocol in ((asking, client), (serving, server)):
        transport.close()
        assert transport.is_closing()
        assert await protocol.lost is None


async def test_datagram_to_nobody(loop: Loop) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind(("127.0.0.1", 0))
        address = gone.getsockname()
    transport, protocol = await loop.create_datagram_endpoint(Datagrams, remote_addr=address)
    transport.sendto(b"x")
    await until(lambda: protocol.errors)
    assert isinstance(protocol.errors[0], ConnectionRefusedError)
    transport.abort()
    await protocol.lost


async def test_datagram_transport_has_a_repr(loop: Loop) -> None:
    transport, protocol = await loop.create_datagram_endpoint(Datagrams, ("127.0.0.1", 0))
    await asyncio.sleep(0)
    fd = transport.get_extra_info("socket").fileno()
    assert f"fd={fd} read=polling write=<idle, bufsize=0>" in repr(transport)
    transport.close()
    await protocol.lost
    assert "closed" in repr(transport)


async def test_pipes(loop: Loop) -> None:
    reading, writing = os.pipe()
    source, reader = await loop.connect_read_pipe(Recorder, os.fdopen(reading, "rb", 0))
    sink, writer = await loop.connect_write_pipe(Recorder, os.fdopen(writing, "wb", 0))
    data = bytes(range(256)) * 4000
    sink.write(data)
    sink.write_eof()
    assert await reader.lost is None
    assert reader.data == data
    assert reader.names() == ["made", "data", "eof", "lost"]
    assert await writer.lost is None
    assert source.is_closing()
    assert sink.is_closing()


async def test_a_pipe_that_nobody_reads_any_more(loop: Loop) -> None:
    reading, writing = os.pipe()
    sink, writer = await loop.connect_write_pipe(Recorder, os.fdopen(writing, "wb", 0))
    await asyncio.sleep(0)
    os.close(reading)
    await writer.lost
    assert sink.is_closing()


async def test_a_regular_file_is_no_pipe(loop: Loop) -> None:
    with tempfile.TemporaryFile() as file:
        with pytest.raises(ValueError, match="Pipe transport is for pipes/sockets only"):
            await loop.connect_read_pipe(Recorder, file)
        with pytest.raises(ValueError, match="Pipe transport is only for pipes, sockets and"):
            await loop.connect_write_pipe(Recorder, file)
