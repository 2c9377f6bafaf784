"""start_tls, of transports and of streams, over TLS too, and the arguments of TLS."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl

import pytest
from conftest import Errors, tcp_pair
from protocols import Recorder, close_all, turns, until
from tls_connections import TIME_LIMIT, by_role, by_version, contexts, hexdigest
from tls_tools import Peer, client_context, server_context

Loop = asyncio.AbstractEventLoop


class Upgrading(Recorder):
    """Goes over to TLS at the word STARTTLS, from within data_received."""

    def __init__(self, context: ssl.SSLContext, *, server_side: bool) -> None:
        super().__init__()
        self.context, self.server_side = context, server_side
        self.upgraded: asyncio.Task[None] | None = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.upgraded is None and self.data.endswith(b"STARTTLS\n"):
            self.transport.write(b"ready\n")
            self.upgraded = asyncio.ensure_future(self.upgrade())

    async def upgrade(self) -> None:
        loop = asyncio.get_running_loop()
        self.transport = await loop.start_tls(
            self.transport, self, self.context, server_side=self.server_side,
            server_hostname=None if self.server_side else "localhost",
        )  # fmt: skip
        self.transport.write(b"encrypted")


@by_role
@by_version
async def test_start_tls_upgrades_a_transport(
    loop: Loop, role: str, version: ssl.TLSVersion
) -> None:
    own, others = contexts(role, version)
    near, far = tcp_pair()

    def run() -> bytes:
        with far:
            peer = Peer(far, others, server_side=role == "client")
            peer.sock.sendall(b"STARTTLS\n")
            answer = b""
            while not answer.endswith(b"ready\n"):
                answer += far.recv(6 - len(answer))
            peer.handshake()
            peer.write(b"hello")
            data = peer.read_exactly(len(b"encrypted"))
            peer.unwrap()
            return data

    working = asyncio.ensure_future(asyncio.to_thread(run))
    _, protocol = await loop.create_connection(
        lambda: Upgrading(own, server_side=role == "server"), sock=near
    )
    plain = protocol.transport
    assert await working == b"encrypted"
    assert await protocol.lost is None
    assert protocol.upgraded is not None
    await protocol.upgraded
    assert protocol.transport is not plain
    assert protocol.names() == ["made", "data", "eof", "lost"]
    assert protocol.data == b"STARTTLS\nhello"


async def test_start_tls_takes_a_client_hello_that_waits_already(loop: Loop) -> None:
    """A client that does not wait for the answer: its hello has come before start_tls."""
    near, far = tcp_pair()
    _, protocol = await loop.connect_accepted_socket(Recorder, near)
    protocol.transport.pause_reading()
    peer = Peer(far, client_context())
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.do_handshake()
    peer.flush()
    await turns(10)

    def run() -> bytes:
        with far:
            peer.handshake()
            peer.write(b"hello")
            return peer.read_all()

    working = asyncio.ensure_future(asyncio.to_thread(run))
    transport = await loop.start_tls(
        protocol.transport, protocol, server_context(), server_side=True
    )
    transport.write(b"answer")
    await until(lambda: protocol.data == b"hello")
    transport.close()
    assert await working == b"answer"
    await protocol.lost


async def test_start_tls_upgrades_a_unix_socket(loop: Loop) -> None:
    near, far = socket.socketpair()

    def run() -> bytes:
        with far:
            peer = Peer(far, server_context(), server_side=True)
            peer.handshake()
            peer.write(b"hello")
            return peer.read_all()

    working = asyncio.ensure_future(asyncio.to_thread(run))
    _, protocol = await loop.create_unix_connection(Recorder, sock=near)
    transport = await loop.start_tls(
        protocol.transport, protocol, client_context(), server_hostname="localhost"
    )
    transport.write(b"answer")
    await until(lambda: protocol.data == b"hello")
    transport.close()
    assert await working == b"answer"
    await protocol.lost


@pytest.mark.parametrize("size", [1, 5, 100, None])
@pytest.mark.goloop_only("asyncio has left these bytes in the reader before 3.13.12 and 3.14.3")
async def test_a_stream_server_upgrades_with_start_tls(loop: Loop, size: int | None) -> None:
    """Bytes of the ClientHello that the reader has got already belong to the handshake."""
    handed: asyncio.Future[bytes] = loop.create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"STARTTLS\n"
        await until(lambda: len(reader._buffer) >= (size or 50))  # type: ignore[attr-defined]
        await writer.start_tls(server_context())
        handed.set_result(await reader.read(100))
        writer.write(b"answer")
        await close_all(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    far = socket.create_connection(server.sockets[0].getsockname())
    peer = Peer(far, client_context())
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.do_handshake()
    hello = peer.outgoing.read()
    far.sendall(b"STARTTLS\n" + hello[:size])

    def run() -> bytes:
        with far:
            asyncio.run_coroutine_threadsafe(turns(10), loop).result(TIME_LIMIT)
            far.sendall(hello[size:] if size else b"")
            peer.handshake()
            peer.write(b"hello")
            return peer.read_all()

    working = asyncio.ensure_future(asyncio.to_thread(run))
    assert await handed == b"hello"
    assert await working == b"answer"
    await close_all(server)


async def test_a_stream_client_upgrades_with_start_tls(loop: Loop) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"STARTTLS\n"
        writer.write(b"ready\n")
        await writer.start_tls(server_context())
        assert writer.get_extra_info("ssl_object").version().startswith("TLS")
        writer.write(await reader.readline())
        await close_all(writer)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"STARTTLS\n")
        assert await reader.readline() == b"ready\n"
        await writer.start_tls(client_context(), server_hostname="localhost")
        writer.write(b"secret\n")
        assert await reader.readline() == b"secret\n"
        await close_all(writer)


@pytest.mark.parametrize("end", ["close", "abort", "break"])
@pytest.mark.goloop_only("asyncio 3.11 can't end such a connection, and later ones warn")
async def test_tls_runs_within_tls(loop: Loop, errors: Errors, end: str) -> None:
    payload = random.Random(8).randbytes(500_000)
    protocols: list[Recorder] = []
    inner, outer = server_context("inner"), server_context()

    class Tunnelled(Recorder):
        def __init__(self) -> None:
            super().__init__()
            protocols.append(self)
            self.upgrading: asyncio.Task[None] | None = None

        def data_received(self, data: bytes) -> None:
            if data == b"STARTTLS\n":
                self.transport.write(b"ready\n")
                self.upgrading = asyncio.ensure_future(self.upgrade())
            else:
                self.transport.write(data)

        async def upgrade(self) -> None:
            self.transport = await loop.start_tls(self.transport, self, inner, server_side=True)

    async with await loop.create_server(Tunnelled, "127.0.0.1", 0, ssl=outer) as server:
        _, client = await loop.create_connection(
            Recorder,
            *server.sockets[0].getsockname(),
            ssl=client_context(),
            server_hostname="localhost",
        )
        client.transport.write(b"STARTTLS\n")
        await until(lambda: client.data == b"ready\n")
        client.data.clear()
        transport = await loop.start_tls(
            client.transport, client, client_context("inner"), server_hostname="inner"
        )
        assert transport.get_extra_info("peercert")["subjectAltName"] == (("DNS", "inner"),)
        transport.write(payload)
        await until(lambda: len(client.data) == len(payload))
        assert hexdigest(client.data) == hexdigest(payload)
        if end == "break":
            client.transport.write(b"this is no record")
            assert await client.lost is None
            errors.contexts.clear()
        else:
            getattr(transport, end)()
            assert await client.lost is None
    assert await protocols[0].lost is None or end == "break"


async def test_start_tls_that_fails_closes_the_transport(loop: Loop) -> None:
    near, far = tcp_pair()
    _, protocol = await loop.create_connection(Recorder, sock=near)
    with far:
        far.send(b"no TLS here, and none will come")
        with pytest.raises(ssl.SSLError):
            await loop.start_tls(
                protocol.transport, protocol, client_context(), server_hostname="localhost"
            )
        await until(lambda: near.fileno() == -1)


async def test_stalled_or_cancelled_start_tls_leaks_nothing(loop: Loop) -> None:
    for cancel in (False, True):
        near, far = tcp_pair()
        _, protocol = await loop.create_connection(Recorder, sock=near)
        with far:
            starting = asyncio.ensure_future(
                loop.start_tls(
                    protocol.transport,
                    protocol,
                    client_context(),
                    server_hostname="localhost",
                    ssl_handshake_timeout=60 if cancel else 0.05,
                )
            )
            await turns(5)
            if cancel:
                starting.cancel()
            with pytest.raises(asyncio.CancelledError if cancel else ConnectionAbortedError):
                await starting
            await until(lambda near=near: near.fileno() == -1)
