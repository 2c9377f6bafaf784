"""A StreamReader on a transport of each kind, and an exchange that needs all that it can."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any

from protocols import turns, until
from tls_tools import client_context, server_context

LARGE = 300_000  # bytes: several receives, the later ones straight into large buffers


class Stream:
    """A StreamReader and its protocol on a transport, and the other end."""

    def __init__(self, loop: Any, limit: int = 2**16, made: Callable[[Any], Any] | None = None):
        self.loop = loop
        self.reader: Any = asyncio.StreamReader(limit=limit, loop=loop)
        self.protocol: Any = asyncio.StreamReaderProtocol(self.reader, loop=loop)
        self.wrapper: Any = None
        if made is not None:
            made(self)
        self.transport: Any = None
        self.send: Callable[[bytes], Any]
        self.closers: list[Any] = []

    async def open(self, kind: str = "socket") -> Stream:
        if kind == "pipe":
            reading, writing = os.pipe()
            self.transport, _ = await self.loop.connect_read_pipe(
                lambda: self.protocol, os.fdopen(reading, "rb", 0)
            )
            sink, _ = await self.loop.connect_write_pipe(
                asyncio.Protocol, os.fdopen(writing, "wb", 0)
            )
            self.send = sink.write
            self.closers = [sink]
        elif kind == "tls":
            await self._open_tls()
        else:
            ours, theirs = socket.socketpair()
            self.transport, _ = await self.loop.create_connection(lambda: self.protocol, sock=ours)
            peer, _ = await self.loop.create_connection(asyncio.Protocol, sock=theirs)
            self.send = peer.write
            self.closers = [peer]
        return self

    async def _open_tls(self) -> None:
        accepted = self.loop.create_future()

        class Peer(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                accepted.set_result(transport)

        server = await self.loop.create_server(Peer, "127.0.0.1", 0, ssl=server_context())
        self.transport, _ = await self.loop.create_connection(
            lambda: self.protocol,
            *server.sockets[0].getsockname(),
            ssl=client_context(),
            server_hostname="localhost",
        )
        peer = await accepted
        self.send = peer.write
        self.closers = [peer, server]

    async def close(self) -> None:
        self.transport.close()
        for each in self.closers:
            each.close()
        await until(lambda: self.protocol._transport is None)
        for each in self.closers:
            if hasattr(each, "wait_closed"):
                await each.wait_closed()
        await turns(5)


async def exchange(stream: Stream) -> None:
    """Some bytes without a waiter, some that wake one, many, and a line."""
    stream.send(b"first ")
    await until(lambda: len(stream.reader._buffer) == 6)
    assert await stream.reader.readexactly(6) == b"first "
    waiting = stream.loop.create_task(stream.reader.readexactly(6))
    await turns(1)
    stream.send(b"second")
    assert await waiting == b"second"
    for _ in range(3):
        stream.send(b"x" * LARGE)
        assert await stream.reader.readexactly(LARGE) == b"x" * LARGE
    stream.send(b"line\nrest")
    assert await stream.reader.readline() == b"line\n"
    assert await stream.reader.read(100) == b"rest"
