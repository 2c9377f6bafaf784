"""A failure of TLS is final, and it is told as the ssl module tells it.

The loop's error is compared with the exception of an `SSLObject` with the same bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any

import pytest
from conftest import tcp_pair
from protocols import BufferedRecorder, Recorder, reset, turns, until
from tls_connections import Loop, by_role, over, with_peer
from tls_tools import Peer, client_context, server_context

from goloop._internal.tls import errors as tls_errors
from goloop._internal.tls.errors import OpenSSLFailure

# Bytes of other protocols sent to a TLS port, and broken records.
JUNK = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "proxy": b"CONNECT x:1 HTTP/1.1\r\n\r\n",
    "ssh": b"SSH-2.0-OpenSSH_9\r\n",
    "smtp": b"220 mail.example.org ESMTP Postfix\r\n",
    "pop3": b"+OK POP3 ready\r\n",
    "imap": b"* OK IMAP4 ready\r\n",
    "redis": b"-ERR unknown command\r\n",
    "mysql": b"5.5.5-MariaDB\0",
    "an answer of http": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "zeros": bytes(64),
    "ones": b"\xff" * 600,
    "a short handshake": b"\x16\x03\x01\x00\x05hello",
    "early data": b"\x17\x03\x03\x00\x05hello",
    "a fatal alert": b"\x15\x03\x01\x00\x02\x02\x28",
    "an alert that is none": b"\x15\x03\x01\x00\x02\x02\xe7",
    "a long record": b"\x16\x03\x01\xff\xff" + bytes(100),
}


def told(exc: BaseException) -> tuple[Any, ...]:
    """All that an error of TLS says."""
    said = [getattr(exc, name, None) for name in ("reason", "library", "errno", "strerror")]
    certificate = [getattr(exc, name, None) for name in ("verify_code", "verify_message")]
    return type(exc), exc.args, str(exc), *said, *certificate


def own_context(role: str) -> ssl.SSLContext:
    return client_context() if role == "client" else server_context()


def error_of_ssl(role: str, data: bytes, context: ssl.SSLContext | None = None) -> BaseException:
    """Return the exception of an SSLObject that gets these bytes."""
    incoming = ssl.MemoryBIO()
    tls = (context or own_context(role)).wrap_bio(
        incoming,
        ssl.MemoryBIO(),
        server_side=role == "server",
        server_hostname="localhost" if role == "client" else None,
    )
    incoming.write(data)
    with pytest.raises(ssl.SSLError) as caught:
        tls.do_handshake()
    return caught.value


@by_role
@pytest.mark.parametrize("kind", JUNK)
async def test_other_than_tls_fails_at_once(loop: Loop, role: str, kind: str) -> None:
    near, far = tcp_pair()
    with far:
        far.send(JUNK[kind])
        with pytest.raises(ssl.SSLError) as caught:
            await over(loop, Recorder, near, own_context(role), role)
        await until(lambda: near.fileno() == -1)
    assert told(caught.value) == told(error_of_ssl(role, JUNK[kind]))


@pytest.mark.parametrize("prefix", [b"GET /", b"SSH-2", b"\xff" * 5])
async def test_client_hello_after_junk_is_not_answered(loop: Loop, prefix: bytes) -> None:
    """OpenSSL 3.6, if called once more, would continue after the refused bytes."""
    near, far = tcp_pair()
    peer = Peer(far, client_context())
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.do_handshake()
    with far:
        peer.send_raw(prefix)
        with pytest.raises(ssl.SSLError):
            await over(loop, Recorder, near, server_context(), "server")
        await until(lambda: near.fileno() == -1)
        assert await asyncio.to_thread(far.recv, 1000) == b""


async def test_a_hello_in_a_record_of_no_version_is_not_answered(loop: Loop) -> None:
    near, far = tcp_pair()
    peer = Peer(far, client_context())
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.do_handshake()
    hello = bytearray(peer.outgoing.read())
    hello[1:3] = b"\x09\x09"
    with far:
        peer.send_raw(bytes(hello))
        with pytest.raises(ssl.SSLError) as caught:
            await over(loop, Recorder, near, server_context(), "server")
        assert await asyncio.to_thread(far.recv, 1000) == b""
    assert told(caught.value) == told(error_of_ssl("server", bytes(hello)))


@pytest.mark.parametrize(
    ("asked", "trusted"),
    [("localhost", "other"), ("elsewhere", "localhost"), ("127.0.0.1", "localhost")],
    ids=["self-signed", "another name", "an address"],
)
async def test_a_refused_certificate(loop: Loop, asked: str, trusted: str) -> None:
    def against_ssl() -> BaseException:
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = client_context(trusted).wrap_bio(to_client, to_server, server_hostname=asked)
        server = server_context().wrap_bio(to_server, to_client, server_side=True)
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        with pytest.raises(ssl.SSLWantReadError):
            server.do_handshake()
        with pytest.raises(ssl.SSLCertVerificationError) as caught:
            client.do_handshake()
        return caught.value

    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        await with_peer(
            loop, "client", Peer.read, own=client_context(trusted), server_hostname=asked
        )
    assert told(caught.value) == told(against_ssl())


@pytest.mark.parametrize("factory", [Recorder, lambda: BufferedRecorder(1000)])
async def test_a_record_that_was_changed(loop: Loop, factory: Callable[[], Any]) -> None:
    sent = asyncio.Event()

    def peer_does(peer: Peer) -> None:
        sealed = bytearray(peer.seal(b"bad record"))
        sealed[-1] ^= 1
        peer.send_raw(bytes(sealed))
        loop.call_soon_threadsafe(sent.set)
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            peer.read()

    def against_ssl() -> BaseException:
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = client_context().wrap_bio(to_client, to_server, server_hostname="localhost")
        server = server_context().wrap_bio(to_server, to_client, server_side=True)
        for each in (client, server, client):
            with contextlib.suppress(ssl.SSLWantReadError):
                each.do_handshake()
        server.do_handshake()
        server.write(b"bad record")
        sealed = bytearray(to_client.read())
        sealed[-1] ^= 1
        to_client.write(bytes(sealed))
        with pytest.raises(ssl.SSLError) as caught:
            client.read(100)
        return caught.value

    protocol, working = await with_peer(loop, "client", peer_does, factory=factory)
    await sent.wait()
    lost = await protocol.lost
    assert told(lost) == told(against_ssl())
    assert protocol.data == b""
    await working


async def test_write_after_unwrap_fails_once(loop: Loop, loop_name: str) -> None:
    """After unwrap() of the SSL object writing is impossible; the error is reported once."""

    def peer_does(peer: Peer) -> bytes:
        return peer.read_all()

    protocol, working = await with_peer(loop, "client", peer_does)
    tls = protocol.transport.get_extra_info("ssl_object")
    with pytest.raises(ssl.SSLWantReadError):
        tls.unwrap()
    with pytest.raises(ssl.SSLError) as caught:
        tls.write(b"by the object")
    protocol.transport.write(b"by the transport")
    # The bytes never became a record, and count as pending.
    assert protocol.transport.get_write_buffer_size() >= len(b"by the transport")
    lost = await protocol.lost
    assert told(lost) == told(caught.value)
    assert lost.reason == "PROTOCOL_IS_SHUTDOWN"
    with pytest.raises(ConnectionResetError):
        await working


# ---- the words ------------------------------------------------------------------------------


def test_the_names_of_openssls_numbers_are_found() -> None:
    reasons, libraries = tls_errors.openssl_names()
    assert libraries[20] == "SSL"
    assert reasons[20, 134] == "CERTIFICATE_VERIFY_FAILED"
    assert reasons[20, 294] == "UNEXPECTED_EOF_WHILE_READING"


@pytest.mark.parametrize("method", ["do_handshake", "read", "write"])
def test_source_position_is_the_methods(method: str) -> None:
    assert tls_errors.source_location(method).startswith("_ssl.c:")
    assert tls_errors.source_location(method).removeprefix("_ssl.c:").isdigit()


def code_of(library: int, reason: int) -> int:
    shift = 23 if ssl.OPENSSL_VERSION_INFO >= (3,) else 24
    return library << shift | reason


@pytest.mark.parametrize(
    ("stop", "kind", "number", "words"),
    [
        ((1, 0), ssl.SSLError, 1, "A failure in the SSL library occurred"),
        ((1, code_of(20, 267)), ssl.SSLError, 1, "[SSL: WRONG_VERSION_NUMBER] its words"),
        ((1, code_of(20, 4000)), ssl.SSLError, 1, "[SSL] its words"),
        ((1, code_of(200, 4000)), ssl.SSLError, 1, "its words"),
        ((1, code_of(20, 294)), ssl.SSLEOFError, 8,
         "[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation of protocol"),
        ((1, code_of(20, 134)), ssl.SSLCertVerificationError, 1,
         "[SSL: CERTIFICATE_VERIFY_FAILED] its words: its certificate"),
        ((5, 0), ssl.SSLEOFError, 8, "EOF occurred in violation of protocol"),
        ((6, 0), ssl.SSLZeroReturnError, 6, "TLS/SSL connection has been closed (EOF)"),
        ((4, 0), ssl.SSLError, 4, "The operation did not complete (X509 lookup)"),
        ((12, 0), ssl.SSLError, 10, "Invalid error code"),
    ],
)  # fmt: skip
def test_openssl_errors_become_exceptions(
    stop: tuple[int, int], kind: type[ssl.SSLError], number: int, words: str
) -> None:
    made = tls_errors.make_exception(
        "read", OpenSSLFailure(*stop, "its words", 7, "its certificate", None)
    )
    assert type(made) is kind
    assert made.args == (number, f"{words} ({tls_errors.source_location('read')})")
    assert hasattr(made, "verify_code") is (kind is ssl.SSLCertVerificationError)


def test_unknown_error_code_is_reported_as_unknown() -> None:
    stop = OpenSSLFailure(1, code_of(200, 4000), None, 0, None, None)
    assert str(tls_errors.make_exception("read", stop)).startswith("unknown error (")


@pytest.mark.parametrize(
    "late",
    [
        False,
        pytest.param(
            True,
            marks=pytest.mark.goloop_only("asyncio drops what was not read when write() fails"),
        ),
    ],
)
@pytest.mark.parametrize("number", [1, 6])
async def test_answer_is_delivered_before_the_error_of_a_write(
    loop: Loop, late: bool, number: int
) -> None:
    answer = b"413\r\n"
    protocols, peers = [], []
    for _ in range(number):
        protocol, peer = await with_peer(loop, "client", lambda peer: (peer, peer.sock.dup()))
        protocols.append(protocol)
        peers.append(await peer)
    await turns()
    for protocol in protocols if not late else ():
        protocol.transport.write(bytes(16 << 20))
    await turns()
    for tls, far in peers:
        far.send(tls.seal(answer))
        reset(far)
    for protocol in protocols if late else ():
        for _ in range(3):
            protocol.transport.write(b"x")
    for protocol in protocols:
        await protocol.lost
        assert bytes(protocol.data) == answer
