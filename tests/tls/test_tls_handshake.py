"""Handshakes: certificates, time limits, ALPN, SNI, sessions, keys, and failures."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import random
import socket
import ssl
import weakref
from pathlib import Path
from typing import Any

import pytest
from conftest import Errors, tcp_pair
from protocols import Made, Recorder, close_all, in_thread, turns, until
from tls_connections import by_role, by_version, contexts, over, with_peer
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

from goloop import _core
from goloop._internal.loop import library

Loop = asyncio.AbstractEventLoop


async def test_a_client_gives_up_a_stalled_handshake(loop: Loop) -> None:
    near, far = tcp_pair()
    with far:
        with pytest.raises(ConnectionAbortedError, match=r"longer than 0.05 seconds"):
            await over(loop, Recorder, near, client_context(), "client", ssl_handshake_timeout=0.05)
        far.setblocking(True)
        assert await asyncio.to_thread(far.recv, 10)  # the ClientHello
    await until(lambda: near.fileno() == -1)


async def test_a_server_gives_up_stalled_handshakes(loop: Loop, errors: Errors) -> None:
    made = Made()
    loop.set_debug(True)
    async with await loop.create_server(
        made, "127.0.0.1", 0, ssl=server_context(), ssl_handshake_timeout=0.05
    ) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b""
        await close_all(writer)
    errors.expect(ConnectionAbortedError, "Error on transport creation for incoming connection")
    assert made[0].calls == []


def tls_objects() -> int:
    """How many TLS protocols and transports live."""
    gc.collect()
    return sum(
        type(each).__name__ in ("SSLProtocol", "TLSProtocol", "_SSLProtocolTransport")
        for each in gc.get_objects()
    )


@by_role
def test_a_thousand_stalled_handshakes_leak_nothing(loop: Loop, role: str) -> None:
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
            with pytest.raises(ConnectionAbortedError, match="SSL handshake is taking longer"):
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


async def test_an_untrusted_certificate_is_refused(loop: Loop, errors: Errors) -> None:
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


@by_version
async def test_client_certificates_are_asked_for_and_sent(
    loop: Loop, version: ssl.TLSVersion
) -> None:
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
async def test_a_missing_client_certificate_is_refused(loop: Loop, version: ssl.TLSVersion) -> None:
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


async def test_encrypted_keys_are_opened_by_their_password(loop: Loop) -> None:
    own: Identity = identity()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.encrypted_key, password=lambda: PASSWORD)
    protocol, working = await with_peer(loop, "server", Peer.unwrap, own=context)
    await working
    await protocol.lost


@by_role
async def test_alpn_chooses_the_common_protocol(loop: Loop, role: str) -> None:
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


@pytest.mark.goloop_only("it calls a method of goloop's")
async def test_concurrent_handshake_step_does_not_call_openssl(loop: Loop) -> None:
    """Of a callback, or of another thread: OpenSSL's objects are for one at a time."""

    class Unwatched(ssl.SSLContext):
        """A context with a callback of SNI that the engine, on the other path, can't see."""

        sni_callback = property(lambda self: None)  # type: ignore[assignment]

    context = Unwatched(ssl.PROTOCOL_TLS_SERVER)
    own = identity()
    context.load_cert_chain(own.certificate, own.key)
    seen: list[Any] = []

    def step(engines: list[Any]) -> None:
        seen.append([engine._advance_handshake(False) for engine in engines])

    def engines_here() -> list[Any]:
        return [each for each in gc.get_objects() if isinstance(each, _core.TLSEngine)]

    # Engines of connections that other tests have left in a cycle: each can be called.
    earlier = engines_here()

    def stepping(*args: Any) -> None:
        engines = [each for each in engines_here() if not any(each is other for other in earlier)]
        step(engines)
        in_thread(step, engines)

    hidden: Any = ssl.SSLContext.sni_callback
    hidden.__set__(context, stepping)
    near, far = tcp_pair()
    working = asyncio.ensure_future(asyncio.to_thread(hello, far))
    protocol = await over(loop, Recorder, near, context, "server")
    # None: OpenSSL is not called directly here.
    expected = False if library.openssl_reason is None else None
    assert seen == [[expected], [expected]]
    await until(lambda: protocol.data == b"hello")
    protocol.transport.close()
    await working
    await protocol.lost


def hello(far: socket.socket) -> None:
    with far:
        peer = Peer(far, client_context(), server_hostname="localhost")
        peer.handshake()
        peer.write(b"hello")
        peer.read_all()


async def test_a_name_that_the_server_refuses_fails_the_handshake(loop: Loop) -> None:
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


async def test_a_server_may_ask_for_authentication_after_the_handshake(loop: Loop) -> None:
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


async def test_a_client_answers_authentication_after_the_handshake(loop: Loop) -> None:
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
async def test_a_key_log_gets_the_secrets(
    loop: Loop, role: str, version: ssl.TLSVersion, tmp_path: Path
) -> None:
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


async def test_openssls_callbacks_may_change_the_transport_while_data_flows(loop: Loop) -> None:
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


async def test_the_end_instead_of_a_handshake_is_a_connection_reset(loop: Loop) -> None:
    near, far = tcp_pair()
    far.shutdown(socket.SHUT_WR)
    with far, pytest.raises(ConnectionResetError):
        await over(loop, Recorder, near, client_context(), "client")


async def test_cancelled_connection_leaks_nothing(loop: Loop) -> None:
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


@pytest.mark.parametrize("how", ["direct", "a message callback", "a key log"])
async def test_failed_handshake_has_the_error_of_the_ssl_module(
    loop: Loop, tmp_path: Path, how: str
) -> None:
    """Whether OpenSSL was asked directly or by SSLObject.do_handshake()."""
    context = client_context("another.example")
    if how == "a message callback":
        context._msg_callback = lambda *_: None  # type: ignore[attr-defined]
    elif how == "a key log":
        context.keylog_filename = str(tmp_path / "keys")
    near, far = socket.socketpair()

    def peer_does() -> None:
        with far, pytest.raises((ssl.SSLError, ConnectionError)):
            Peer(far, server_context(), server_side=True).handshake()

    working = asyncio.ensure_future(asyncio.to_thread(peer_does))
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        await loop.create_connection(
            asyncio.Protocol, sock=near, ssl=context, server_hostname="localhost"
        )
    assert caught.value.verify_message == "self-signed certificate"
    assert caught.value.verify_code == 18
    await working
