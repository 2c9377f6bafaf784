"""Tools of the tests of listeners: loops in threads, and clients that ask for their server."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

import goloop


def eventually(condition: Callable[[], Any]) -> None:
    """Returns once the condition holds, which other threads bring about."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"{condition} never held"
        time.sleep(0.001)


class Says(asyncio.Protocol):
    """Tells each client the loop's name, and then echoes."""

    # All that have a connection.
    open: ClassVar[set[Says]] = set()

    def __init__(self, name: str) -> None:
        self.name = name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.loop = asyncio.get_running_loop()
        self.open.add(self)
        transport.write(f"{self.name}\n".encode())

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open.remove(self)


class Loop:
    """A loop that runs in a thread of its own, and serves once it is told to."""

    def __init__(
        self, name: str, factory: Callable[[], asyncio.AbstractEventLoop] = goloop.new_event_loop
    ) -> None:
        self.name = name
        self.loop = factory()
        self.server: Any = None
        self.thread = threading.Thread(target=self._run, name=name)
        self.thread.start()

    def _run(self) -> None:
        self.loop.run_forever()
        self.loop.close()

    def do(self, coroutine: Any) -> Any:
        """Runs a coroutine there; its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function there; its result."""

        async def calls() -> Any:
            return function(*args)

        return self.do(calls())

    def serve(self, listener: goloop.SharedListener, **options: Any) -> Any:
        serving = listener.create_server(lambda: Says(self.name), **options)
        self.server = self.do(serving)
        return self.server

    def leave(self) -> None:
        self.call(self.server.close)

    def block(self, then: Callable[[], object] = lambda: None) -> threading.Event:
        """Keeps the loop from doing anything until the event is set; it calls `then` first."""
        blocked, release = threading.Event(), threading.Event()

        def blocks() -> None:
            blocked.set()
            release.wait()
            then()

        self.loop.call_soon_threadsafe(blocks)
        blocked.wait()
        return release

    def _open(self) -> list[Says]:
        return [each for each in Says.open.copy() if each.loop is self.loop]

    def _hang_up(self) -> None:
        for each in self._open():
            each.transport.abort()

    def end(self) -> None:
        if not self.loop.is_closed():
            if self.server is not None:
                self.call(self.server.close)
            self.call(self._hang_up)
            eventually(lambda: not self._open())
            self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()


class Client:
    """A connection, which knows the name of the loop that serves it."""

    def __init__(self, address: Any, family: int = socket.AF_INET) -> None:
        self.sock = socket.socket(family)
        self.sock.settimeout(60)
        try:
            self.sock.connect(address)
        except OSError:
            self.sock.close()
            raise

    def server(self) -> str:
        """Waits until a loop serves it, and returns the loop's name."""
        line = b""
        while not line.endswith(b"\n"):
            data = self.sock.recv(100)
            assert data, "the connection was lost"
            line += data
        return line.decode().strip()

    def echoes(self) -> bool:
        self.sock.sendall(b"hello")
        return self.sock.recv(100) == b"hello"

    def close(self) -> None:
        self.sock.close()
