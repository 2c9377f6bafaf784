"""TLS, as a program sees it: handshakes, certificates, ends, start_tls, flow control.

The other side is either the same loop or `tls_tools.Peer`, which is blocking OpenSSL in
a thread.  test_tls_stdlib.py runs this file again without direct calls of OpenSSL.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import os
import random
import socket
import ssl
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Errors, tcp_pair
from protocols import BufferedRecorder, Recorder, turns, until
from tls_tools import (
    PASSWORD,
    VERSIONS,
    Identity,
    Peer,
    client_context,
    fixed,
    identity,
    server_context,
)

Loop = asyncio.AbstractEventLoop
ROLES = ["client", "server"]
# Seconds, for a thread that waits for the loop: a test that failed must not hang too.
TIME_LIMIT = 30
# What OpenSSL says from 3.2 on of every record that it can't read.
RECORD_LAYER = "RECORD_LAYER_FAILURE"
by_role = pytest.mark.parametrize("role", ROLES)
by_version = pytest.mark.parametrize("version", VERSIONS, ids=lambda v: str(v.name))


def contexts(
    role: str, version: ssl.TLSVersion | None = None
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The context of the loop's side, which has that role, and of the peer."""
    client, server = client_context(version=version), server_context(version=version)
    return (client, server) if role == "client" else (server, client)


async def over(
    loop: Loop, factory: Callable[[], Any], sock: socket.socket, context: ssl.SSLContext,
    role: str, **options: Any,
) -> Any:  # fmt: skip
    """TLS on a connected socket; the protocol, once the handshake is done."""
    if role == "server":
        _, protocol = await loop.connect_accepted_socket(factory, sock, ssl=context, **options)
    else:
        options.setdefault("server_hostname", "localhost")
        _, protocol = await loop.create_connection(factory, sock=sock, ssl=context, **options)
    return protocol


async def with_peer(
    loop: Loop,
    role: str,
    peer_does: Callable[[Peer], Any],
    *,
    factory: Callable[[], Any] = Recorder,
    version: ssl.TLSVersion | None = None,
    own: ssl.SSLContext | None = None,
    others: ssl.SSLContext | None = None,
    **options: Any,
) -> tuple[Any, asyncio.Future[Any]]:
    """A connection whose other side is a Peer that shakes hands and goes on in a thread."""
    first, second = contexts(role, version)
    near, far = tcp_pair()
    peer = Peer(far, others or second, server_side=role == "client")

    def run() -> Any:
        with far:
            peer.handshake()
            return peer_does(peer)

    working = asyncio.ensure_future(asyncio.to_thread(run))
    try:
        return await over(loop, factory, near, own or first, role, **options), working
    except BaseException:
        near.close()
        await asyncio.gather(working, return_exceptions=True)
        raise


def hexdigest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# ---- connections ------------------------------------------------------------------------


class Echo(Recorder):
    """Sends back what comes."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)


class ViewRecorder(BufferedRecorder):
    """asyncio's TLS slices the buffer, and a slice of a bytearray is a copy of it."""

    def __init__(self, size: int = 1000) -> None:
        super().__init__(size)

    def get_buffer(self, sizehint: int) -> Any:
        return memoryview(super().get_buffer(sizehint))


class BufferedEcho(ViewRecorder):
    """The same, with a buffer that is smaller than a record."""

    def buffer_updated(self, nbytes: int) -> None:
        super().buffer_updated(nbytes)
        self.transport.write(self.buffer[:nbytes])


@by_version
@pytest.mark.parametrize("factory", [Echo, BufferedEcho])
async def test_a_client_and_a_server(
    loop: Loop, version: ssl.TLSVersion, factory: Callable[[], Any]
) -> None:
    payload = random.Random(1).randbytes(1_000_000)
    accepted: list[Any] = []

    def made() -> Any:
        accepted.append(factory())
        return accepted[-1]

    async with await loop.create_server(
        made, "127.0.0.1", 0, ssl=server_context(version=version)
    ) as server:
        _, client = await loop.create_connection(
            Recorder,
            *server.sockets[0].getsockname(),
            ssl=client_context(version=version),
            server_hostname="localhost",
        )
        assert client.names() == ["made"]
        client.transport.write(payload)
        await until(lambda: len(client.data) == len(payload))
        assert hexdigest(client.data) == hexdigest(payload)
        assert hexdigest(accepted[0].data) == hexdigest(payload)
        client.transport.close()
        assert await client.lost is None
        assert await accepted[0].lost is None
        assert accepted[0].eof.done()


@by_version
async def test_streams(loop: Loop, version: ssl.TLSVersion) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(
        serve, "127.0.0.1", 0, ssl=server_context(version=version), limit=1 << 20
    ) as server:
        reader, writer = await asyncio.open_connection(
            *server.sockets[0].getsockname(),
            ssl=client_context(version=version),
            server_hostname="localhost",
            limit=1 << 20,
        )
        for line in (b"one\n", b"two" * 50_000 + b"\n", b"three\n"):
            writer.write(line)
            assert await reader.readline() == line.upper()
        writer.close()
        await writer.wait_closed()
        assert await reader.read() == b""


async def test_unix_sockets(loop: Loop, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    async with await loop.create_unix_server(Echo, path, ssl=server_context()):
        _, client = await loop.create_unix_connection(
            Recorder, path, ssl=client_context(), server_hostname="localhost"
        )
        client.transport.write(b"hello")
        await until(lambda: client.data == b"hello")
        client.transport.close()
        await client.lost


@by_role
async def test_an_existing_socket(loop: Loop, role: str) -> None:
    def peer_does(peer: Peer) -> bytes:
        peer.write(b"to the loop")
        received = peer.read_exactly(4)
        peer.unwrap()
        return received

    protocol, working = await with_peer(loop, role, peer_does)
    protocol.transport.write(b"back")
    assert await working == b"back"
    assert await protocol.lost is None
    assert protocol.names() == ["made", "data", "eof", "lost"]
    assert protocol.data == b"to the loop"


@by_role
@by_version
async def test_extra_info(loop: Loop, role: str, version: ssl.TLSVersion) -> None:
    own, _ = contexts(role, version)
    protocol, working = await with_peer(loop, role, Peer.unwrap, version=version, own=own)
    info = protocol.transport.get_extra_info
    assert info("sslcontext") is own
    assert isinstance(info("ssl_object"), ssl.SSLObject)
    assert info("ssl_object").version() == {771: "TLSv1.2", 772: "TLSv1.3"}[version]
    assert info("cipher") == info("ssl_object").cipher()
    assert info("compression") is None
    assert info("peercert") == info("ssl_object").getpeercert()
    if role == "client":
        assert info("peercert")["subjectAltName"] == (("DNS", "localhost"),)
    assert info("socket").fileno() >= 0
    assert info("peername")[0] == info("sockname")[0] == "127.0.0.1"
    assert info("no such", "default") == "default"
    await working
    await protocol.lost


async def test_the_transport_has_asyncios_type_and_answers(loop: Loop) -> None:
    protocol, working = await with_peer(loop, "client", Peer.read_all)
    transport = protocol.transport
    assert isinstance(transport, asyncio.Transport)
    assert transport.get_protocol() is protocol
    assert transport.is_reading()
    assert not transport.can_write_eof()
    with pytest.raises(NotImplementedError):
        transport.write_eof()
    with pytest.raises(TypeError):
        transport.write("text")
    transport.write(b"")
    transport.writelines([b"one", bytearray(b"two"), memoryview(b"three")])
    transport.writelines([])
    assert not transport.is_closing()
    transport.close()
    assert transport.is_closing()
    assert await working == b"onetwothree"
    await protocol.lost


async def test_what_is_written_may_change_afterwards(loop: Loop) -> None:
    protocol, working = await with_peer(loop, "client", Peer.read_all)
    data = bytearray(b"a" * 100_000)
    protocol.transport.write(data)
    data[:] = b"b" * 100_000
    data.clear()
    protocol.transport.close()
    assert await working == b"a" * 100_000
    await protocol.lost


async def test_sendfile_goes_through_the_fallback(loop: Loop, tmp_path: Path) -> None:
    payload = random.Random(2).randbytes(400_000)
    (tmp_path / "file").write_bytes(payload)
    protocol, working = await with_peer(loop, "client", Peer.read_all)
    with (tmp_path / "file").open("rb") as file:
        assert await loop.sendfile(protocol.transport, file, 1000, 300_000) == 300_000
        assert file.tell() == 301_000
        with pytest.raises((RuntimeError, asyncio.SendfileNotAvailableError)):
            await loop.sendfile(protocol.transport, file, fallback=False)
    protocol.transport.close()
    assert hexdigest(await working) == hexdigest(payload[1000:301_000])
    await protocol.lost


# ---- handshakes --------------------------------------------------------------------------


async def test_a_client_gives_up_a_stalled_handshake(loop: Loop) -> None:
    near, far = tcp_pair()
    with far:
        with pytest.raises(ConnectionAbortedError, match=r"longer than 0.05 seconds"):
            await over(loop, Recorder, near, client_context(), "client", ssl_handshake_timeout=0.05)
        far.setblocking(True)
        assert await asyncio.to_thread(far.recv, 10)  # the ClientHello
    await until(lambda: near.fileno() == -1)


async def test_a_server_gives_up_stalled_handshakes(loop: Loop, errors: Errors) -> None:
    made: list[Recorder] = []

    def factory() -> Recorder:
        made.append(Recorder())
        return made[-1]

    loop.set_debug(True)
    async with await loop.create_server(
        factory, "127.0.0.1", 0, ssl=server_context(), ssl_handshake_timeout=0.05
    ) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    errors.expect(ConnectionAbortedError, "Error on transport creation for incoming connection")
    assert made[0].calls == []


@pytest.mark.parametrize("timeout", [0, -1])
async def test_timeouts_must_be_positive(loop: Loop, timeout: float) -> None:
    for name in ("ssl_handshake_timeout", "ssl_shutdown_timeout"):
        near, far = tcp_pair()
        options: Any = {name: timeout}
        with near, far, pytest.raises(ValueError, match=f"{name} should be a positive number"):
            await over(loop, Recorder, near, client_context(), "client", **options)


def tls_objects() -> int:
    """How many TLS protocols and transports live."""
    gc.collect()
    return sum(
        type(each).__name__ in ("SSLProtocol", "TLSProtocol", "_SSLProtocolTransport")
        for each in gc.get_objects()
    )


@by_role
def test_a_thousand_stalled_handshakes_leave_nothing(loop: Loop, role: str) -> None:
    """no_leaks looks after the fds."""
    before = tls_objects()
    count, at_once = 1000, 250
    refs: list[weakref.ref[Any]] = []

    def protocol() -> Recorder:
        made = Recorder()
        refs.append(weakref.ref(made))
        return made

    async def one(address: Any) -> None:
        if role == "client":
            with pytest.raises(ConnectionAbortedError):
                await loop.create_connection(
                    protocol,
                    *address,
                    ssl=context,
                    server_hostname="localhost",
                    ssl_handshake_timeout=0.3,
                )
        else:
            _, client = await loop.create_connection(Recorder, *address)
            await client.lost

    async def main() -> None:
        if role == "client":
            server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, backlog=at_once)
        else:
            server = await loop.create_server(
                protocol, "127.0.0.1", 0, ssl=context, ssl_handshake_timeout=0.3, backlog=at_once
            )
        address = server.sockets[0].getsockname()
        for _ in range(count // at_once):
            await asyncio.gather(*(one(address) for _ in range(at_once)))
        server.close()
        await turns()

    context = client_context() if role == "client" else server_context()
    loop.run_until_complete(main())
    assert len(refs) == count
    assert tls_objects() == before
    assert not [ref for ref in refs if ref() is not None]


async def test_an_untrusted_certificate(loop: Loop, errors: Errors) -> None:
    loop.set_debug(True)
    async with await loop.create_server(
        Recorder, "127.0.0.1", 0, ssl=server_context("other")
    ) as server:
        with pytest.raises(ssl.SSLCertVerificationError) as caught:
            await loop.create_connection(
                Recorder,
                *server.sockets[0].getsockname(),
                ssl=client_context(),
                server_hostname="localhost",
            )
        assert caught.value.reason == "CERTIFICATE_VERIFY_FAILED"
        assert caught.value.verify_code == 18
        # asyncio sends no alert: the server, in debug mode, tells of a reset.
        await until(lambda: errors.contexts)
    errors.expect(ConnectionResetError, "Error on transport creation for incoming connection")


async def test_a_certificate_for_another_name(loop: Loop) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        await with_peer(loop, "client", Peer.read_all, server_hostname="elsewhere")


@by_version
async def test_client_certificates(loop: Loop, version: ssl.TLSVersion) -> None:
    protocol, working = await with_peer(
        loop,
        "server",
        Peer.unwrap,
        own=server_context(version=version, clients=["client"]),
        others=client_context(version=version, who="client"),
    )
    assert protocol.transport.get_extra_info("peercert")["subject"] == (
        (("commonName", "client"),),
    )
    await working
    await protocol.lost
    protocol, working = await with_peer(
        loop,
        "client",
        lambda peer: (peer.tls.getpeercert(), peer.unwrap()),
        own=client_context(version=version, who="client"),
        others=server_context(version=version, clients=["client"]),
    )
    await protocol.lost
    assert (await working)[0]["subject"] == ((("commonName", "client"),),)


@by_version
async def test_a_missing_client_certificate(loop: Loop, version: ssl.TLSVersion) -> None:
    """With 1.3 the client's handshake is over before the server has seen that."""

    def peer_does(peer: Peer) -> None:
        peer.read()

    with pytest.raises(ssl.SSLError) as caught:
        await with_peer(
            loop,
            "server",
            peer_does,
            own=server_context(version=version, clients=["client"]),
            others=client_context(version=version),
        )
    assert caught.value.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE"


async def test_a_refusal_after_the_handshake_reaches_the_client(loop: Loop, errors: Errors) -> None:
    """1.3: the server's alert comes as the first record after the client's handshake."""
    protocol, working = await with_peer(
        loop,
        "client",
        Peer.read,
        own=client_context(version=VERSIONS[1]),
        others=server_context(version=VERSIONS[1], clients=["client"]),
    )
    lost = await protocol.lost
    assert isinstance(lost, ssl.SSLError)
    assert lost.reason is not None
    assert lost.reason.endswith("CERTIFICATE_REQUIRED")
    assert lost.library == "SSL"
    with pytest.raises(ssl.SSLError):
        await working
    # An SSLError is an OSError, about which the handler is not told.
    assert errors.contexts == []


async def test_encrypted_keys(loop: Loop) -> None:
    own: Identity = identity()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.encrypted_key, password=lambda: PASSWORD)
    protocol, working = await with_peer(loop, "server", Peer.unwrap, own=context)
    await working
    await protocol.lost


@by_role
async def test_alpn(loop: Loop, role: str) -> None:
    own, others = contexts(role)
    own.set_alpn_protocols(["h2", "http/1.1"])
    others.set_alpn_protocols(["http/1.1"])
    protocol, working = await with_peer(loop, role, Peer.unwrap, own=own, others=others)
    assert protocol.transport.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    await working
    await protocol.lost


@by_version
async def test_sni_switches_the_context(loop: Loop, version: ssl.TLSVersion) -> None:
    first, second = (server_context(version=version), server_context("second", version=version))
    asked: list[str | None] = []

    def chosen(tls: ssl.SSLObject, name: str | None, initial: ssl.SSLContext) -> None:
        asked.append(name)
        assert initial is first
        if name == "second":
            tls.context = second

    first.sni_callback = chosen  # type: ignore[assignment]
    near, far = tcp_pair()
    peer = Peer(far, client_context("second", version=version), server_hostname="second")

    def run() -> bytes:
        with far:
            peer.handshake()
            peer.write(b"question")
            return peer.read_all()

    working = asyncio.ensure_future(asyncio.to_thread(run))
    protocol = await over(loop, Recorder, near, first, "server")
    assert asked == ["second"]
    assert protocol.transport.get_extra_info("ssl_object").context is second
    assert protocol.transport.get_extra_info("sslcontext") is first
    await until(lambda: protocol.data == b"question")
    protocol.transport.write(b"answer")
    protocol.transport.close()
    assert await working == b"answer"
    await protocol.lost


async def test_sni_refuses(loop: Loop) -> None:
    context = server_context()
    context.sni_callback = lambda *args: ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME  # type: ignore[assignment]
    near, far = tcp_pair()
    peer = Peer(far, client_context())

    def run() -> None:
        # asyncio sends no alert.
        with far, pytest.raises(ConnectionResetError):
            peer.handshake()

    working = asyncio.ensure_future(asyncio.to_thread(run))
    with pytest.raises(ssl.SSLError) as caught:
        await over(loop, Recorder, near, context, "server")
    assert caught.value.reason == "CALLBACK_FAILED"
    await working


class Resuming(ssl.SSLContext):
    """Offers the session that was set; asyncio has no argument for it."""

    offered: ssl.SSLSession | None = None

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        return super().wrap_bio(*args, **{**kwargs, "session": self.offered})


@by_version
async def test_a_client_resumes_a_session(loop: Loop, version: ssl.TLSVersion) -> None:
    context = Resuming(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(identity().certificate)
    fixed(context, version)
    server = server_context(version=version)

    def peer_does(peer: Peer) -> bool:
        peer.write(b"x")  # with 1.3, the tickets come with the first data
        peer.unwrap()
        return bool(peer.tls.session_reused)

    reused = []
    for _ in range(2):
        protocol, working = await with_peer(loop, "client", peer_does, own=context, others=server)
        tls = protocol.transport.get_extra_info("ssl_object")
        await protocol.lost
        reused.append((tls.session_reused, await working))
        context.offered = tls.session
    assert reused == [(False, False), (True, True)]


@by_version
async def test_a_server_resumes_a_session(loop: Loop, version: ssl.TLSVersion) -> None:
    server, client = server_context(version=version), client_context(version=version)
    session: ssl.SSLSession | None = None
    reused = []
    for _ in range(2):
        near, far = tcp_pair()
        peer = Peer(far, client, session=session)

        def run(peer: Peer = peer) -> ssl.SSLSession | None:
            with peer.sock:
                peer.handshake()
                peer.read_all()
                return peer.tls.session

        working = asyncio.ensure_future(asyncio.to_thread(run))
        protocol = await over(loop, Recorder, near, server, "server")
        protocol.transport.write(b"x")
        protocol.transport.close()
        session = await working
        await protocol.lost
        reused.append(peer.tls.session_reused)
    assert reused == [False, True]


async def test_post_handshake_authentication_asked_by_the_server(loop: Loop) -> None:
    own = server_context(version=VERSIONS[1], clients=["client"])
    own.verify_mode = ssl.CERT_OPTIONAL
    own.post_handshake_auth = True
    others = client_context(version=VERSIONS[1], who="client")
    others.post_handshake_auth = True

    def peer_does(peer: Peer) -> None:
        assert peer.read_exactly(5) == b"who's"
        peer.write(b"I am")
        peer.unwrap()

    protocol, working = await with_peer(loop, "server", peer_does, own=own, others=others)
    tls = protocol.transport.get_extra_info("ssl_object")
    assert tls.getpeercert() is None
    tls.verify_client_post_handshake()
    protocol.transport.write(b"who's")
    await until(lambda: protocol.data == b"I am")
    assert tls.getpeercert()["subject"] == ((("commonName", "client"),),)
    await working
    await protocol.lost


async def test_post_handshake_authentication_asked_of_a_client(loop: Loop) -> None:
    own = client_context(version=VERSIONS[1], who="client")
    own.post_handshake_auth = True
    others = server_context(version=VERSIONS[1], clients=["client"])
    others.verify_mode = ssl.CERT_OPTIONAL
    others.post_handshake_auth = True

    def peer_does(peer: Peer) -> Any:
        assert peer.tls.getpeercert() is None
        peer.tls.verify_client_post_handshake()
        peer.write(b"who's")
        assert peer.read_exactly(4) == b"I am"
        peer.unwrap()
        return peer.tls.getpeercert()

    protocol, working = await with_peer(loop, "client", peer_does, own=own, others=others)
    await until(lambda: protocol.data == b"who's")
    protocol.transport.write(b"I am")
    await protocol.lost
    assert (await working)["subject"] == ((("commonName", "client"),),)


@by_role
@by_version
async def test_a_key_log(loop: Loop, role: str, version: ssl.TLSVersion, tmp_path: Path) -> None:
    own, others = contexts(role, version)
    own.keylog_filename = str(tmp_path / "keys")
    protocol, working = await with_peer(loop, role, Peer.unwrap, own=own, others=others)
    await working
    await protocol.lost
    labels = {line.split()[0] for line in (tmp_path / "keys").read_text().splitlines()}
    if version == ssl.TLSVersion.TLSv1_3:
        assert {"CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"} <= labels
    else:
        assert "CLIENT_RANDOM" in labels
    own.keylog_filename = None  # closes the file
    del own


async def test_what_openssl_tells_python_while_data_flows(loop: Loop) -> None:
    """A message callback runs within OpenSSL's reads and writes, and lets threads run."""
    own, others = contexts("client")
    seen: list[Any] = []

    def message(*args: Any) -> None:
        seen.append(args[1])
        hashlib.sha256(bytes(100_000))  # releases the GIL
        if protocols and len(seen) % 2:
            protocols[0].transport.pause_reading()
            protocols[0].transport.resume_reading()

    protocols: list[Recorder] = []
    own._msg_callback = message  # type: ignore[attr-defined]
    payload = random.Random(3).randbytes(200_000)

    def peer_does(peer: Peer) -> bytes:
        peer.write(payload)
        return peer.read_all()

    protocol, working = await with_peer(loop, "client", peer_does, own=own, others=others)
    protocols.append(protocol)
    shaken = len(seen)
    protocol.transport.write(payload)
    await until(lambda: len(protocol.data) == len(payload))
    protocol.transport.close()
    assert await working == payload == protocol.data
    assert {"read", "write"} <= set(seen[shaken:])
    await protocol.lost
    del protocols[:]


async def test_garbage_instead_of_a_handshake(loop: Loop) -> None:
    near, far = tcp_pair()
    with far:
        far.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(ssl.SSLError) as caught:
            await over(loop, Recorder, near, client_context(), "client")
    assert caught.value.reason in ("WRONG_VERSION_NUMBER", RECORD_LAYER)


async def test_the_end_instead_of_a_handshake(loop: Loop) -> None:
    near, far = tcp_pair()
    far.shutdown(socket.SHUT_WR)
    with far, pytest.raises(ConnectionResetError):
        await over(loop, Recorder, near, client_context(), "client")


async def test_a_cancelled_connection_leaves_nothing(loop: Loop) -> None:
    async with await loop.create_server(asyncio.Protocol, "127.0.0.1", 0) as server:
        connecting = asyncio.ensure_future(
            loop.create_connection(
                Recorder,
                *server.sockets[0].getsockname(),
                ssl=client_context(),
                server_hostname="localhost",
            )
        )
        await asyncio.sleep(0.05)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
    await turns()


# ---- the end of a connection ------------------------------------------------------------


@by_role
@by_version
async def test_close_sends_close_notify(loop: Loop, role: str, version: ssl.TLSVersion) -> None:
    def peer_does(peer: Peer) -> bytes:
        data = peer.read_all()  # raises where the stream just ends
        peer.unwrap()
        assert not peer.fill()
        return data

    protocol, working = await with_peer(loop, role, peer_does, version=version)
    payload = bytes(1_000_000)
    protocol.transport.write(payload)
    protocol.transport.close()
    protocol.transport.close()
    assert await working == payload
    assert await protocol.lost is None
    assert [name for name in protocol.names() if name not in ("pause", "resume")] == [
        "made",
        "eof",
        "lost",
    ]


@by_role
@by_version
async def test_the_peers_close_notify_is_answered(
    loop: Loop, role: str, version: ssl.TLSVersion
) -> None:
    def peer_does(peer: Peer) -> None:
        peer.write(b"last words")
        peer.unwrap()

    protocol, working = await with_peer(loop, role, peer_does, version=version)
    await working
    assert await protocol.lost is None
    assert protocol.names() == ["made", "data", "eof", "lost"]


@by_role
@by_version
async def test_truncation(loop: Loop, role: str, version: ssl.TLSVersion) -> None:
    """The end without close_notify is reported as asyncio does: like an end."""

    def peer_does(peer: Peer) -> None:
        peer.write(b"whole")
        peer.send_raw(peer.seal(b"part of a record")[:-1])
        peer.sock.shutdown(socket.SHUT_WR)
        while peer.sock.recv(65536):  # what is not read would make a reset of the end
            pass

    protocol, working = await with_peer(loop, role, peer_does, version=version)
    await working
    assert await protocol.lost is None
    assert protocol.names() == ["made", "data", "eof", "lost"]
    assert protocol.data == b"whole"


@by_role
async def test_a_reset(loop: Loop, role: str) -> None:
    def peer_does(peer: Peer) -> None:
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    protocol, working = await with_peer(loop, role, peer_does)
    await working
    assert isinstance(await protocol.lost, ConnectionResetError)
    assert protocol.names() == ["made", "lost"]


@by_role
async def test_abort_is_at_once(loop: Loop, role: str) -> None:
    def peer_does(peer: Peer) -> None:
        with pytest.raises((ConnectionResetError, ssl.SSLError)):
            peer.read_all()

    protocol, working = await with_peer(loop, role, peer_does)
    protocol.transport.write(b"x" * 10)
    protocol.transport.abort()
    assert await protocol.lost is None
    assert protocol.names() == ["made", "lost"]
    await working


@by_role
async def test_the_shutdown_timeout(loop: Loop, role: str) -> None:
    """The peer does not answer; it is told and then left."""

    def peer_does(peer: Peer) -> tuple[bytes, bool]:
        data = peer.read_all()
        return data, peer.fill()

    protocol, working = await with_peer(loop, role, peer_does, ssl_shutdown_timeout=0.05)
    protocol.transport.write(b"bye")
    protocol.transport.close()
    lost = await protocol.lost
    assert isinstance(lost, TimeoutError)
    assert str(lost) == "SSL shutdown timed out"
    assert await working == (b"bye", False)


@by_role
async def test_close_ends_while_the_peer_floods(loop: Loop, role: str) -> None:
    """What comes after close() is not delivered, and does not keep the connection."""

    def peer_does(peer: Peer) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer.write(bytes(65536))

    protocol, working = await with_peer(loop, role, peer_does, ssl_shutdown_timeout=0.2)
    await until(lambda: protocol.data)
    protocol.transport.close()
    received = len(protocol.data)
    lost = await protocol.lost
    await working
    # close() itself reads what has been received: one batch, as asyncio does.
    assert len(protocol.data) - received <= 2 * 256 * 1024
    assert lost is None or isinstance(lost, OSError)
    assert protocol.names()[-1] == "lost"


async def test_close_waits_for_what_was_written(loop: Loop) -> None:
    """A peer that reads late gets everything, though the transport was closed long ago."""
    payload = random.Random(4).randbytes(8_000_000)
    release = threading.Event()

    def peer_does(peer: Peer) -> bytes:
        assert release.wait(TIME_LIMIT)
        return peer.read_all()

    protocol, working = await with_peer(loop, "server", peer_does)
    protocol.transport.write(payload)
    protocol.transport.close()
    await turns(20)
    assert not protocol.lost.done()
    release.set()
    assert hexdigest(await working) == hexdigest(payload)
    await protocol.lost


async def test_writes_after_the_end_are_dropped(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    protocol, working = await with_peer(loop, "client", Peer.unwrap)
    await protocol.lost
    await working
    for _ in range(10):
        protocol.transport.write(b"lost")
        protocol.transport.writelines([b"lost", b"too"])
    assert "SSL connection is closed" in caplog.text
    protocol.transport.close()
    protocol.transport.abort()
    await turns()
    assert protocol.names() == ["made", "eof", "lost"]


async def test_a_flipped_bit(loop: Loop, errors: Errors) -> None:
    def peer_does(peer: Peer) -> None:
        peer.write(b"good")
        assert peer.read_exactly(4) == b"more"
        sealed = bytearray(peer.seal(b"bad record"))
        sealed[-1] ^= 1
        peer.send_raw(bytes(sealed))
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            peer.read()

    protocol, working = await with_peer(loop, "client", peer_does)
    await until(lambda: protocol.data == b"good")
    protocol.transport.write(b"more")
    lost = await protocol.lost
    assert isinstance(lost, ssl.SSLError)
    assert lost.library == "SSL"
    assert lost.reason in ("DECRYPTION_FAILED_OR_BAD_RECORD_MAC", RECORD_LAYER)
    assert protocol.data == b"good"
    await working


async def test_garbage_behind_good_records(loop: Loop) -> None:
    """The error keeps its name, whatever the protocol does with the records before."""

    def peer_does(peer: Peer) -> None:
        peer.send_raw(peer.seal(b"good") + b"\x17\x03\x03\xff\xff" + bytes(100))
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            peer.read_all()

    class Answering(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.write(b"answer")

    protocol, working = await with_peer(loop, "client", peer_does, factory=Answering)
    lost = await protocol.lost
    assert isinstance(lost, ssl.SSLError)
    assert lost.reason in ("PACKET_LENGTH_TOO_LONG", "ENCRYPTED_LENGTH_TOO_LONG", RECORD_LAYER)
    await working


async def test_a_buffered_protocol_takes_over_amid_the_data(loop: Loop) -> None:
    """The new protocol's methods are called from the very next bytes on."""
    payload = random.Random(0).randbytes(2_000_000)

    def peer_does(peer: Peer) -> None:
        assert peer.read_exactly(2) == b"go"
        peer.write(payload)
        peer.unwrap()

    class Successor(asyncio.BufferedProtocol):
        def __init__(self, before: Recorder) -> None:
            self.before = before
            self.buffer = memoryview(bytearray(100_000))

        def get_buffer(self, sizehint: int) -> memoryview:
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.before.data += self.buffer[:nbytes]

        def connection_lost(self, exc: Exception | None) -> None:
            self.before.connection_lost(exc)

    class Predecessor(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.set_protocol(Successor(self))

    protocol, working = await with_peer(loop, "client", peer_does, factory=Predecessor)
    # As much as TLS takes while nobody reads: more than one reading of it decrypts.
    protocol.transport.pause_reading()
    protocol.transport.write(b"go")
    tls = protocol.transport._ssl_protocol
    await until(lambda: tls._ssl_reading_paused)
    protocol.transport.resume_reading()
    assert await protocol.lost is None
    assert [name for name in protocol.names() if name == "data"] == ["data"]
    assert protocol.data == payload
    await working


async def test_the_handshake_ends_though_reading_is_paused(loop: Loop, loop_name: str) -> None:
    if loop_name == "asyncio":
        pytest.skip("asyncio keeps the client's last message until something is written or read")

    def peer_does(peer: Peer) -> None:
        peer.write(b"first word")
        peer.unwrap()

    class Pausing(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.transport.pause_reading()

    protocol, working = await with_peer(loop, "client", peer_does, factory=Pausing)
    tls = protocol.transport._ssl_protocol
    await until(lambda: tls._get_read_buffer_size() > 0)
    assert protocol.data == b""
    protocol.transport.resume_reading()
    await protocol.lost
    assert protocol.data == b"first word"
    await working


async def test_close_where_the_peer_ended_during_a_pause(loop: Loop, loop_name: str) -> None:
    if loop_name == "asyncio":
        pytest.skip("asyncio waits for a resume_reading() that cannot come")

    def peer_does(peer: Peer) -> None:
        assert peer.read_exactly(2) == b"go"
        peer.write(b"nobody reads this")

    protocol, working = await with_peer(loop, "client", peer_does)
    protocol.transport.pause_reading()
    protocol.transport.write(b"go")
    await working
    tls = protocol.transport._ssl_protocol
    await until(lambda: tls._eof_received)
    protocol.transport.close()
    assert await protocol.lost is None
    assert protocol.data == b""


async def test_abort_after_close_and_close(loop: Loop, loop_name: str) -> None:
    if loop_name == "asyncio":
        pytest.skip("asyncio's transport forgets its protocol at the second close()")
    peer_may_end = threading.Event()

    def peer_does(peer: Peer) -> None:
        peer_may_end.wait(30)

    protocol, working = await with_peer(loop, "client", peer_does, ssl_shutdown_timeout=3600)
    try:
        protocol.transport.close()
        protocol.transport.close()
        assert not protocol.lost.done()
        protocol.transport.abort()
        assert await protocol.lost is None
    finally:
        peer_may_end.set()
    await working


async def test_abort_from_the_last_data(loop: Loop, loop_name: str) -> None:
    """Data held back by a pause comes after the end, and its reader may abort."""
    if loop_name == "asyncio":
        pytest.skip("asyncio goes on with the shutdown and reports that it cannot")

    def peer_does(peer: Peer) -> None:
        assert peer.read_exactly(2) == b"go"
        peer.write(b"last words")

    class Aborting(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.abort()

    protocol, working = await with_peer(loop, "client", peer_does, factory=Aborting)
    protocol.transport.pause_reading()
    protocol.transport.write(b"go")
    await working
    tls = protocol.transport._ssl_protocol
    await until(lambda: tls._eof_received)
    protocol.transport.resume_reading()
    assert await protocol.lost is None
    assert protocol.data == b"last words"


async def test_a_bytearray_as_buffer(loop: Loop, loop_name: str) -> None:
    if loop_name == "asyncio":
        pytest.skip("asyncio loses what it reads into the slice of a bytearray")

    def peer_does(peer: Peer) -> None:
        for _ in range(100):
            peer.tls.write(b"0123456789")
        peer.flush()
        peer.unwrap()

    protocol, working = await with_peer(
        loop, "client", peer_does, factory=lambda: BufferedRecorder(1000)
    )
    await protocol.lost
    await working
    assert protocol.data == b"0123456789" * 100


# ---- callbacks that do things -----------------------------------------------------------


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
async def test_callbacks_that_end_the_connection(
    loop: Loop, loop_name: str, errors: Errors, moment: str, buffered: bool, action: str
) -> None:
    """One end, whoever calls for it and whenever; what was written before arrives."""

    written = threading.Event()

    def peer_does(peer: Peer) -> bytes:
        received = bytearray()
        try:
            # What does not fit into the buffer breaks a connection that is closed.
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
async def test_a_callback_that_goes_over_to_another_protocol(loop: Loop, moment: str) -> None:
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
async def test_a_callback_that_raises(loop: Loop, errors: Errors, buffered: bool) -> None:
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


async def test_a_buffer_without_room(loop: Loop, errors: Errors) -> None:
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


# ---- flow control -----------------------------------------------------------------------


async def test_writing_to_a_peer_that_does_not_read(loop: Loop) -> None:
    release = threading.Event()
    digest: list[str] = []

    def peer_does(peer: Peer) -> None:
        assert release.wait(TIME_LIMIT)
        digest.append(hexdigest(peer.read_all()))

    protocol, working = await with_peer(loop, "client", peer_does)
    transport = protocol.transport
    transport.set_write_buffer_limits(high=100_000, low=10_000)
    assert transport.get_write_buffer_limits() == (10_000, 100_000)
    written = hashlib.sha256()
    chunks = random.Random(5)
    while "pause" not in protocol.names():
        chunk = chunks.randbytes(50_000)
        written.update(chunk)
        transport.write(chunk)
        await turns(1)
    await turns(10)
    assert transport.get_write_buffer_size() >= 100_000
    # Further data is taken and counted, though the protocol was told.
    before = transport.get_write_buffer_size()
    transport.write(b"x" * 40_000)
    written.update(b"x" * 40_000)
    assert transport.get_write_buffer_size() >= before + 40_000
    assert protocol.names().count("pause") == 1
    release.set()
    await until(lambda: "resume" in protocol.names())
    await until(lambda: transport.get_write_buffer_size() == 0)
    transport.close()
    await protocol.lost
    await working
    assert digest == [written.hexdigest()]


async def test_what_is_queued_below_tls_is_counted(loop: Loop, loop_name: str) -> None:
    if loop_name == "asyncio":
        pytest.skip("asyncio counts what TLS holds, and not what the transport below does")
    release = threading.Event()

    def peer_does(peer: Peer) -> bytes:
        assert release.wait(TIME_LIMIT)
        return peer.read_all()

    protocol, working = await with_peer(loop, "client", peer_does)
    protocol.transport.write(bytes(16_000_000))
    assert protocol.transport.get_write_buffer_size() > 1_000_000
    release.set()
    await until(lambda: protocol.transport.get_write_buffer_size() == 0)
    protocol.transport.close()
    assert await working == bytes(16_000_000)
    await protocol.lost
    assert protocol.transport.get_write_buffer_size() == 0


async def test_a_paused_reader_holds_the_peer_up(loop: Loop) -> None:
    """What a peer can send to it is bounded by the buffers on the way."""
    payload_size = 32_000_000
    sent = [0]
    stalled = asyncio.Event()
    digest = hashlib.sha256()

    class Counting(Recorder):
        count = 0
        hash = hashlib.sha256()

        def data_received(self, data: bytes) -> None:
            self.count += len(data)
            self.hash.update(data)

    def peer_does(peer: Peer) -> None:
        data = random.Random(6)
        peer.sock.settimeout(None)  # or Python waits before it asks the kernel
        while sent[0] < payload_size:
            chunk = data.randbytes(1_000_000)
            digest.update(chunk)
            sealed = memoryview(peer.seal(chunk))
            while sealed:
                try:
                    sealed = sealed[peer.sock.send(sealed, socket.MSG_DONTWAIT) :]
                except BlockingIOError:
                    # Full: once the loop has had its chances, that is the bound.
                    asyncio.run_coroutine_threadsafe(turns(20), loop).result(TIME_LIMIT)
                    try:
                        sealed = sealed[peer.sock.send(sealed, socket.MSG_DONTWAIT) :]
                    except BlockingIOError:
                        loop.call_soon_threadsafe(stalled.set)
                        sealed = sealed[peer.sock.send(sealed) :]
            sent[0] += len(chunk)
        peer.unwrap()

    protocol, working = await with_peer(loop, "client", peer_does, factory=Counting)
    protocol.transport.pause_reading()
    assert not protocol.transport.is_reading()
    before = protocol.count
    await stalled.wait()
    assert sent[0] < payload_size // 2
    assert protocol.count == before
    protocol.transport.resume_reading()
    await protocol.lost
    await working
    assert protocol.count == payload_size
    assert protocol.hash.hexdigest() == digest.hexdigest()


async def test_pausing_within_each_batch(loop: Loop) -> None:
    class Halting(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.pause_reading()
            loop.call_soon(self.transport.resume_reading)

    payload = random.Random(7).randbytes(3_000_000)

    def peer_does(peer: Peer) -> None:
        peer.write(payload)
        peer.unwrap()

    protocol, working = await with_peer(loop, "client", peer_does, factory=Halting)
    assert await protocol.lost is None
    await working
    assert hexdigest(protocol.data) == hexdigest(payload)
    assert protocol.names().count("eof") == 1


async def test_the_end_of_the_stream_waits_for_a_paused_reader(loop: Loop) -> None:
    protocol, working = await with_peer(loop, "client", lambda peer: peer.write(b"x" * 100_000))
    protocol.transport.pause_reading()
    before = len(protocol.data)
    await working  # the peer has closed its socket
    await turns(20)
    assert len(protocol.data) == before
    assert not protocol.lost.done()
    protocol.transport.resume_reading()
    await protocol.lost
    assert protocol.data == b"x" * 100_000


# ---- start_tls ---------------------------------------------------------------------------


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
async def test_start_tls(loop: Loop, role: str, version: ssl.TLSVersion) -> None:
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


async def test_start_tls_with_the_client_hello_waiting(loop: Loop) -> None:
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


async def test_start_tls_over_a_unix_socket(loop: Loop) -> None:
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
async def test_streams_start_tls(loop: Loop, loop_name: str, size: int | None) -> None:
    """Bytes of the ClientHello that the reader has got already belong to the handshake."""
    if loop_name == "asyncio":
        pytest.skip("asyncio has left these bytes in the reader before 3.13.12 and 3.14.3")
    handed: asyncio.Future[bytes] = loop.create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"STARTTLS\n"
        await until(lambda: len(reader._buffer) >= (size or 50))  # type: ignore[attr-defined]
        await writer.start_tls(server_context())
        handed.set_result(await reader.read(100))
        writer.write(b"answer")
        writer.close()
        await writer.wait_closed()

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
    server.close()
    await server.wait_closed()


async def test_streams_start_tls_as_client(loop: Loop) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"STARTTLS\n"
        writer.write(b"ready\n")
        await writer.start_tls(server_context())
        assert writer.get_extra_info("ssl_object").version().startswith("TLS")
        writer.write(await reader.readline())
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"STARTTLS\n")
        assert await reader.readline() == b"ready\n"
        await writer.start_tls(client_context(), server_hostname="localhost")
        writer.write(b"secret\n")
        assert await reader.readline() == b"secret\n"
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("end", ["close", "abort", "break"])
async def test_tls_within_tls(loop: Loop, loop_name: str, errors: Errors, end: str) -> None:
    if loop_name == "asyncio":
        pytest.skip("asyncio 3.11 can't end such a connection, and later ones warn")
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


async def test_start_tls_that_stalls_or_is_cancelled(loop: Loop) -> None:
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


async def test_start_tls_refuses_what_it_cannot_do(loop: Loop) -> None:
    near, far = tcp_pair()
    _, protocol = await loop.create_connection(Recorder, sock=near)
    with far:
        start: Any = loop.start_tls
        with pytest.raises(TypeError, match=r"expected to be an instance of ssl\.SSLContext"):
            await start(protocol.transport, protocol, True)
        with pytest.raises(TypeError, match="is not supported by start_tls"):
            await start(object(), protocol, client_context())
        protocol.transport.close()
        await protocol.lost


async def test_arguments_that_make_no_sense(loop: Loop) -> None:
    connect: Any = loop.create_connection
    with pytest.raises(ValueError, match="server_hostname is only meaningful with ssl"):
        await connect(Recorder, "127.0.0.1", 1, server_hostname="x")
    with pytest.raises(ValueError, match="ssl_handshake_timeout is only meaningful with ssl"):
        await connect(Recorder, "127.0.0.1", 1, ssl_handshake_timeout=1)
    with pytest.raises(ValueError, match="ssl_shutdown_timeout is only meaningful with ssl"):
        await connect(Recorder, "127.0.0.1", 1, ssl_shutdown_timeout=1)
    near, far = tcp_pair()
    with near, far, pytest.raises(ValueError, match="must set server_hostname"):
        await connect(Recorder, sock=near, ssl=True)
    with pytest.raises(TypeError):
        await loop.create_server(Recorder, "127.0.0.1", 0, ssl=True)  # type: ignore[arg-type]


# ---- the path ----------------------------------------------------------------------------


def test_which_path_this_is(loop_name: str) -> None:
    """GOLOOP_TLS decides, and what decides is told."""
    if loop_name == "asyncio":
        pytest.skip("asyncio has one path")
    import goloop

    state = goloop.diagnostics()["tls"]
    if os.environ.get("GOLOOP_TLS") == "stdlib":
        assert state == "GOLOOP_TLS=stdlib asks for SSLObject's own methods"
    else:
        assert state == "OpenSSL called directly"


async def test_connections_are_freed_when_they_end(loop: Loop) -> None:
    """Without the collector's help: a server of many connections needs it not."""
    refs: list[weakref.ref[Any]] = []
    protocol, working = await with_peer(loop, "client", Peer.unwrap)
    refs.append(weakref.ref(protocol.transport.get_extra_info("ssl_object")))
    refs.append(weakref.ref(protocol))
    await protocol.lost
    await working
    if sys.version_info < (3, 12):
        gc.collect()  # 3.11's own transport of TLS is part of a cycle
    protocol = None
    await turns(5)
    gc.collect()
    assert not [ref for ref in refs if ref() is not None]
