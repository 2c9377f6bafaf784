"""Tools of the datagram tests: endpoints, and a protocol that records every call."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

Loop = asyncio.AbstractEventLoop

# The longest that UDP over IPv4 carries.
LONGEST = 65507


class Recorder(asyncio.DatagramProtocol):
    """Records every call; calls the function `on_datagram`, if set, with each datagram."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.got: list[tuple[bytes, Any]] = []
        self.errors: list[Exception] = []
        self.transport: Any = None
        self.on_datagram: Callable[[bytes, Any], object] = lambda data, addr: None
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.calls.append("made")

    def datagram_received(self, data: bytes, addr: Any) -> None:
        assert type(data) is bytes
        self.calls.append("datagram")
        self.got.append((data, addr))
        self.on_datagram(data, addr)

    def error_received(self, exc: Exception) -> None:
        self.calls.append("error")
        self.errors.append(exc)

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append("lost")
        self.lost.set_result(exc)

    def data(self) -> list[bytes]:
        return [data for data, _ in self.got]


async def endpoint(loop: Loop, *args: Any, **kwargs: Any) -> tuple[Any, Recorder]:
    transport, protocol = await loop.create_datagram_endpoint(Recorder, *args, **kwargs)
    return transport, protocol


async def pair_of(loop: Loop, host: str = "127.0.0.1") -> tuple[Any, Recorder, Any, Recorder]:
    """A bound endpoint and one that is connected to it."""
    serving, server = await endpoint(loop, local_addr=(host, 0))
    address = serving.get_extra_info("sockname")[:2]
    asking, client = await endpoint(loop, remote_addr=address)
    return serving, server, asking, client


async def close(*transports: Any) -> None:
    protocols = [transport.get_protocol() for transport in transports]
    for transport in transports:
        transport.close()
        assert transport.is_closing()
    for protocol in protocols:
        if protocol is not None:
            assert await protocol.lost is None


def unix_datagrams(path: Path | str | None = None) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    if path is not None:
        made.bind(str(path))
    return made


async def flood(server: Recorder, count: int) -> socket.socket:
    """Sends numbers that all are there before the loop polls next."""
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect(server.transport.get_extra_info("sockname"))
    for number in range(count):
        sender.send(b"%d" % number)
    return sender


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, count)]
