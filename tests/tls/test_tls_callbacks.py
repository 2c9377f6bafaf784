"""Callbacks that end a TLS connection, change its protocol, or raise."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import Errors
from protocols import BufferedRecorder, Recorder, until
from tls_connections import TIME_LIMIT, ViewRecorder, with_peer
from tls_tools import Peer, client_context, server_context

Loop = asyncio.AbstractEventLoop


def scripted(moment: str, action: Callable[[Any], None], *, buffered: bool) -> Callable[[], Any]:
    """A factory of protocols that act within one of their callbacks, the first time."""
    base: type[Any] = ViewRecorder if buffered else Recorder

    class Acting(base):  # type: ignore[misc]
        acted = False

    def acting(name: str) -> Any:
        def method(self: Any, *args: Any) -> Any:
            result = getattr(base, name)(self, *args) if hasattr(base, name) else None
            if name == moment and not self.acted:
                self.acted = True
                action(self)
            return result

        return method

    for name in ("connection_made", "data_received", "get_buffer", "buffer_updated",
                 "eof_received", "pause_writing", "resume_writing"):  # fmt: skip
        if hasattr(base, name) or name in ("pause_writing", "resume_writing"):
            setattr(Acting, name, acting(name))
    return Acting


def write_and_close(protocol: Any) -> None:
    protocol.transport.write(b"said")
    protocol.transport.close()


def write_and_abort(protocol: Any) -> None:
    protocol.transport.write(b"unsaid")
    protocol.transport.abort()


def flood_and_close(protocol: Any) -> None:
    for _ in range(10):
        protocol.transport.write(bytes(100_000))
    protocol.transport.close()


ACTIONS: dict[str, Callable[[Any], None]] = {
    "close": lambda protocol: protocol.transport.close(),
    "abort": lambda protocol: protocol.transport.abort(),
    "write_and_close": write_and_close,
    "write_and_abort": write_and_abort,
    "flood_and_close": flood_and_close,
}
MOMENTS = [
    (moment, buffered)
    for buffered in (False, True)
    for moment in (
        "connection_made",
        *(("get_buffer", "buffer_updated") if buffered else ("data_received",)),
        "eof_received",
        "pause_writing",
        "resume_writing",
    )
]


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(("moment", "buffered"), MOMENTS)
async def test_a_callback_may_end_the_connection_once(
    loop: Loop, loop_name: str, errors: Errors, moment: str, buffered: bool, action: str
) -> None:
    """The end is reported once, after any number of calls; earlier writes arrive."""

    written = threading.Event()

    def peer_does(peer: Peer) -> bytes:
        received = bytearray()
        try:
            # Bytes that do not fit into the buffer break a closed connection.
            peer.write(b"data" * (200 if buffered else 10_000))
            assert written.wait(TIME_LIMIT)
            if moment == "eof_received":
                peer.notify()
            while got := peer.read():
                received += got
            # A socket that is closed with something unread resets the connection.
            with contextlib.suppress(ConnectionError):
                peer.notify()
        except OSError:
            assert action.endswith("abort") or moment in ("eof_received", "pause_writing")
        return bytes(received)

    factory = scripted(moment, ACTIONS[action], buffered=buffered)
    protocol, working = await with_peer(
        loop, "client", peer_does, factory=factory, ssl_shutdown_timeout=0.5
    )
    if moment in ("pause_writing", "resume_writing"):
        # More than the kernel takes, and then more than TLS holds.
        protocol.transport.write(bytes(16_000_000))
        protocol.transport.write(bytes(1_000_000))
    written.set()
    lost = await protocol.lost
    received = b""
    try:
        received = await working
    except ConnectionResetError:
        assert action.endswith("abort")  # before the peer had our Finished
    assert protocol.acted
    if loop_name == "asyncio" and moment == "resume_writing":
        errors.contexts.clear()  # asyncio ends such a connection twice
    assert lost is None or isinstance(lost, OSError)
    if action == "write_and_close" and moment in ("connection_made", "data_received",
                                                  "get_buffer", "buffer_updated"):  # fmt: skip
        assert received == b"said"
    if action == "flood_and_close" and moment == "connection_made":
        assert len(received) == 1_000_000


@pytest.mark.parametrize("moment", ["connection_made", "data_received"])
async def test_a_callback_may_hand_the_rest_to_another_protocol(loop: Loop, moment: str) -> None:
    later: list[ViewRecorder] = []

    def switch(protocol: Any) -> None:
        later.append(ViewRecorder())
        later[0].transport = protocol.transport
        protocol.transport.set_protocol(later[0])

    def peer_does(peer: Peer) -> None:
        peer.write(b"first")
        assert peer.read_exactly(2) == b"go"
        peer.write(b"second")
        peer.unwrap()

    protocol, working = await with_peer(
        loop, "client", peer_does, factory=scripted(moment, switch, buffered=False)
    )
    await until(lambda: later and (later[0].data or protocol.data))
    later[0].transport.write(b"go")
    await later[0].lost
    await working
    assert bytes(protocol.data + later[0].data) == b"firstsecond"
    assert bytes(later[0].data) == (b"second" if moment == "data_received" else b"firstsecond")


@pytest.mark.parametrize("buffered", [False, True])
async def test_an_exception_in_a_callback_ends_the_connection(
    loop: Loop, errors: Errors, buffered: bool
) -> None:
    def fail(protocol: Any) -> None:
        raise ZeroDivisionError("the protocol's own fault")

    moment = "buffer_updated" if buffered else "data_received"

    def peer_does(peer: Peer) -> None:
        peer.write(b"data")
        with pytest.raises((ConnectionResetError, BrokenPipeError, ssl.SSLError)):
            peer.read_all()

    protocol, working = await with_peer(
        loop, "client", peer_does, factory=scripted(moment, fail, buffered=buffered)
    )
    lost = await protocol.lost
    assert isinstance(lost, ZeroDivisionError)
    await working
    errors.expect(ZeroDivisionError, "Fatal error on SSL protocol")


async def test_connection_made_raises_in_a_crowd(loop: Loop, errors: Errors) -> None:
    """Whether the handshake was done when its bytes came, or waited for its turn."""
    clients = 40
    lost: list[Exception | None] = []

    class Bad(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            raise RuntimeError("not made")

        def data_received(self, data: bytes) -> None:
            raise AssertionError("it was not made")

        def connection_lost(self, exc: Exception | None) -> None:
            lost.append(exc)

    async with await loop.create_server(
        Bad, "127.0.0.1", 0, ssl=server_context(), backlog=clients
    ) as server:
        address = server.sockets[0].getsockname()
        shaking = threading.Barrier(clients, timeout=TIME_LIMIT)

        def client() -> bytes:
            sock = socket.create_connection(address)
            with sock:
                peer = Peer(sock, client_context())
                shaking.wait()
                peer.handshake()
                with contextlib.suppress(ConnectionError):
                    peer.write(b"for nobody")
                    return sock.recv(1) if peer.tls.version() == "TLSv1.2" else peer.read()
                return b""

        with ThreadPoolExecutor(clients) as threads:
            asked = [loop.run_in_executor(threads, client) for _ in range(clients)]
            assert await asyncio.gather(*asked) == [b""] * clients
        await until(lambda: len(lost) == clients)
    for each in lost:
        assert isinstance(each, RuntimeError)
    for _ in range(clients):
        errors.expect(RuntimeError, "Fatal error: protocol.buffer_updated() call failed.")


async def test_a_buffer_without_room_ends_the_connection(loop: Loop, errors: Errors) -> None:
    """asyncio takes the zero bytes that fit for the end of the stream."""

    class NoRoom(BufferedRecorder):
        def get_buffer(self, sizehint: int) -> bytearray:
            return bytearray()

    def peer_does(peer: Peer) -> None:
        peer.write(b"data")
        with contextlib.suppress(OSError):
            peer.read_all()
            peer.unwrap()

    protocol, working = await with_peer(
        loop, "client", peer_does, factory=NoRoom, ssl_shutdown_timeout=0.2
    )
    await protocol.lost
    await working
    errors.contexts.clear()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (b"read-only", "must be read-write bytes-like object, not bytes"),
        ("text", "must be read-write bytes-like object, not str"),
        (memoryview(bytearray(100))[::2], "must be read-write bytes-like object, not memoryview"),
        (None, "object of type 'NoneType' has no len()"),
    ],
)
async def test_invalid_buffer_is_refused_as_by_ssl(
    loop: Loop, errors: Errors, given: Any, words: str
) -> None:
    class Wrong(BufferedRecorder):
        def get_buffer(self, sizehint: int) -> Any:
            return given

    def peer_does(peer: Peer) -> None:
        with contextlib.suppress(OSError):
            peer.write(b"data")
            peer.read_all()

    protocol, working = await with_peer(loop, "client", peer_does, factory=Wrong)
    lost = await protocol.lost
    await asyncio.gather(working, return_exceptions=True)  # the handshake's end may not reach it
    assert isinstance(lost, TypeError)
    assert words in str(lost)
    errors.expect(TypeError, "Fatal error on SSL protocol")


async def test_length_of_a_buffer_limits_the_received_bytes(loop: Loop) -> None:
    class Short(bytearray):
        def __len__(self) -> int:
            return 2

    class Takes(BufferedRecorder):
        def __init__(self) -> None:
            super().__init__()
            self.buffer = Short(10)
            self.sizes: list[int] = []

        def buffer_updated(self, nbytes: int) -> None:
            self.sizes.append(nbytes)
            super().buffer_updated(nbytes)

    def peer_does(peer: Peer) -> None:
        peer.write(b"abcdef")
        peer.unwrap()

    protocol, working = await with_peer(loop, "client", peer_does, factory=Takes)
    assert await protocol.lost is None
    await working
    assert protocol.sizes == [2, 2, 2]
    assert protocol.data == b"abcdef"


async def test_data_without_a_protocol_ends_the_connection(loop: Loop, errors: Errors) -> None:
    """The next data ends the connection, and its peer hears of it."""

    def peer_does(peer: Peer) -> bytes:
        assert peer.read_exactly(2) == b"go"
        peer.write(b"data")
        with contextlib.suppress(ConnectionError):
            return peer.sock.recv(1)
        return b""

    protocol, working = await with_peer(loop, "client", peer_does)
    transport = protocol.transport
    transport.set_protocol(None)
    transport.write(b"go")
    assert await working == b""
    await until(lambda: len(errors.contexts) == 2)
    errors.expect(AttributeError, "Fatal error on SSL protocol")
    errors.expect(AttributeError, "connection_lost")
