"""Tools of the stream tests: a transport over a socket, and its peer's received bytes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from conftest import tcp_pair
from protocols import Recorder

Loop = asyncio.AbstractEventLoop


async def attach(loop: Loop, sock: socket.socket, protocol: Any) -> Any:
    """A transport over a connected socket; returns the protocol."""
    _, made = await loop.create_connection(lambda: protocol, sock=sock)
    return made


def attached(loop: Loop, sock: socket.socket, factory: Callable[[], Any] = Recorder) -> Any:
    """Attach a socket to a loop that does not run; returns the protocol."""

    async def run() -> Any:
        return await attach(loop, sock, factory())

    return loop.run_until_complete(run())


async def open_pair(loop: Loop, factory: Callable[[], Any] = Recorder) -> tuple[Any, socket.socket]:
    """A protocol on a connection, and the raw peer."""
    near, far = tcp_pair()
    return await attach(loop, near, factory()), far


def received(sock: socket.socket) -> bytes:
    """All that the peer sent, to its end of file."""
    sock.setblocking(True)
    sock.settimeout(20)
    data = bytearray()
    while chunk := sock.recv(65536):
        data += chunk
    return bytes(data)


class Meddler(Recorder):
    """Does something to its transport in one of its callbacks, once."""

    def __init__(self, where: str, action: Callable[[Any], None]) -> None:
        super().__init__()
        self.where = where
        self.action = action

    def meddle(self, where: str) -> None:
        if where == self.where:
            self.where = ""
            self.action(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.meddle("made")

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.meddle("data")

    def eof_received(self) -> bool:
        answer = super().eof_received()
        self.meddle("eof")
        return answer

    def pause_writing(self) -> None:
        super().pause_writing()
        self.meddle("pause")

    def resume_writing(self) -> None:
        super().resume_writing()
        self.meddle("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.meddle("lost")
