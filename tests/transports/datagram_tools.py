"""Tools of the datagram tests: endpoints and their sockets."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

from protocols import DatagramRecorder

Loop = asyncio.AbstractEventLoop

# The longest that UDP over IPv4 carries.
LONGEST = 65507


async def endpoint(loop: Loop, *args: Any, **kwargs: Any) -> tuple[Any, DatagramRecorder]:
    transport, protocol = await loop.create_datagram_endpoint(DatagramRecorder, *args, **kwargs)
    return transport, protocol


async def pair_of(
    loop: Loop, host: str = "127.0.0.1"
) -> tuple[Any, DatagramRecorder, Any, DatagramRecorder]:
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


async def flood(server: DatagramRecorder, count: int) -> socket.socket:
    """Sends numbers that all are there before the loop polls next."""
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect(server.transport.get_extra_info("sockname"))
    for number in range(count):
        sender.send(b"%d" % number)
    return sender


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, count)]
