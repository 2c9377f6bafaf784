"""Sessions that clients keep (goloop.tls.resume_sessions)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
import sys
import threading
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Errors
from tls_connections import by_version
from tls_tools import client_context, server_context

import goloop.tls

Loop = asyncio.AbstractEventLoop
TLS12, TLS13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


@pytest.fixture
def loop_name() -> str:
    """asyncio's loop offers no sessions."""
    return "goloop"


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while line := await reader.readline():
            writer.write(line)
        writer.close()


@contextlib.asynccontextmanager
async def server(version: ssl.TLSVersion = TLS13, who: str = "localhost") -> AsyncIterator[int]:
    async with await asyncio.start_server(
        greet, "127.0.0.1", 0, ssl=server_context(who, version)
    ) as serving:
        yield serving.sockets[0].getsockname()[1]


async def visit(
    port: int,
    context: ssl.SSLContext,
    *,
    upgrade: bool = False,
    abort: bool = False,
    **options: Any,
) -> bool:
    """Whether a connection has resumed a session."""
    options = {"server_hostname": "localhost", **options}
    if upgrade:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        plain, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", port)
        made = await loop.start_tls(plain, protocol, context, **options)
        assert made is not None
        protocol.connection_made(made)
        writer = asyncio.StreamWriter(made, protocol, reader, loop)
    else:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, **options)
    writer.write(b"hello\n")
    assert await reader.readline() == b"hello\n"
    found = writer.get_extra_info("ssl_object")
    assert bool(found.getpeercert()) == (context.verify_mode != ssl.CERT_NONE)
    reused: bool = found.session_reused
    if abort:
        writer.transport.abort()
        await asyncio.sleep(0.01)
    else:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    return reused


@by_version
@pytest.mark.parametrize("upgrade", [False, True], ids=["connect", "start_tls"])
async def test_a_client_resumes_its_last_session(
    loop: Loop, version: ssl.TLSVersion, upgrade: bool
) -> None:
    context = client_context(version=version)
    goloop.tls.resume_sessions(context)
    async with server(version) as port:
        found = [await visit(port, context, upgrade=upgrade) for _ in range(3)]
    assert found == [False, True, True]


async def test_an_aborted_connection_leaves_its_session(loop: Loop) -> None:
    context = client_context()
    goloop.tls.resume_sessions(context)
    async with server() as port:
        assert not await visit(port, context, abort=True)
        assert await visit(port, context)


async def test_sessions_are_not_resumed_without_a_request(loop: Loop) -> None:
    context = client_context()
    async with server() as port:
        assert [await visit(port, context) for _ in range(2)] == [False, False]


async def test_each_server_has_its_session(loop: Loop) -> None:
    context = client_context()
    goloop.tls.resume_sessions(context)
    async with server() as one, server() as other:
        assert not await visit(one, context)
        assert not await visit(other, context)
        assert await visit(one, context)
        assert await visit(other, context)


@pytest.mark.parametrize("abstract", [False, True], ids=["path", "abstract"])
async def test_each_unix_server_has_its_session(loop: Loop, tmp_path: Path, abstract: bool) -> None:
    """Both servers have one name, and no port."""
    context = client_context()
    goloop.tls.resume_sessions(context)
    folder = f"\0{tmp_path}" if abstract else str(tmp_path)
    found = []
    async with contextlib.AsyncExitStack() as servers:
        for name in "ab":
            serving = asyncio.start_unix_server(
                greet, f"{folder}/{name}", ssl=server_context("localhost", TLS13)
            )
            await servers.enter_async_context(await serving)
        for name in "abab":
            reader, writer = await asyncio.open_unix_connection(
                f"{folder}/{name}", ssl=context, server_hostname="localhost"
            )
            writer.write(b"hello\n")
            assert await reader.readline() == b"hello\n"
            found.append(writer.get_extra_info("ssl_object").session_reused)
            writer.close()
            await writer.wait_closed()
    assert found == [False, False, True, True]


@pytest.mark.parametrize(
    ("one", "other", "name", "are_equal"),
    [
        (("192.0.2.1", 443), ("192.0.2.2", 443), "a.name", True),
        (("192.0.2.1", 443), ("2001:db8::1", 443, 0, 0), "a.name", True),
        (("192.0.2.1", 443), ("192.0.2.1", 444), "a.name", False),
        (("192.0.2.1", 443), ("192.0.2.2", 443), None, False),
        (("fe80::1", 443, 0, 2), ("fe80::1", 443, 0, 3), None, False),
        ("/run/a", "/run/b", "a.name", False),
        (b"\0a", b"\0b", None, False),
        ((3, 443), (4, 443), "a.name", False),  # virtual machines' AF_VSOCK
    ],
)
def test_server_is_known_by_its_name_and_port_or_by_its_address(
    one: Any, other: Any, name: str | None, are_equal: bool
) -> None:
    context = client_context()
    context.check_hostname = False
    sslobj = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=name)
    keys = [goloop.tls._session_key(sslobj, address) for address in (one, other)]
    assert (keys[0] == keys[1]) == are_equal


async def test_session_of_an_unverified_connection_is_not_resumed_by_a_verifying_one(
    loop: Loop,
) -> None:
    """A session without a verified certificate is not offered by a verifying connection."""
    context = client_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    goloop.tls.resume_sessions(context)
    async with server() as port:
        assert not await visit(port, context)
        assert await visit(port, context)
        context.verify_mode = ssl.CERT_REQUIRED
        assert not await visit(port, context)
        context.check_hostname = True
        assert not await visit(port, context)
        assert await visit(port, context)


async def test_a_wrong_certificate_is_refused_each_time(loop: Loop) -> None:
    context = client_context("other.test")
    goloop.tls.resume_sessions(context)
    async with server() as port:
        for _ in range(2):
            with pytest.raises(ssl.SSLCertVerificationError):
                await visit(port, context)


async def test_an_old_session_is_not_offered(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    context = client_context()
    goloop.tls.resume_sessions(context)
    async with server() as port:
        assert not await visit(port, context)
        now = goloop.tls.time.time()
        monkeypatch.setattr(goloop.tls.time, "time", lambda: now + 1_000_000)
        assert not await visit(port, context)


async def test_a_server_that_forgets_gets_a_full_handshake(loop: Loop) -> None:
    context = client_context()
    goloop.tls.resume_sessions(context)
    async with server() as port:
        assert not await visit(port, context)
    serving = await asyncio.start_server(
        greet, "127.0.0.1", port, ssl=server_context(), reuse_address=True
    )
    async with serving:
        assert not await visit(port, context)
        assert await visit(port, context)


@contextlib.asynccontextmanager
async def refusing(port: int, answer: bytes) -> AsyncIterator[None]:
    """A server that answers each ClientHello with these bytes, and closes."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", port, reuse_address=True):
        yield


@contextlib.asynccontextmanager
async def again(port: int, sslcontext: ssl.SSLContext) -> AsyncIterator[None]:
    async with await asyncio.start_server(
        greet, "127.0.0.1", port, ssl=sslcontext, reuse_address=True
    ):
        yield


HANDSHAKE_FAILURE = b"\x15\x03\x03\x00\x02\x02\x28"


@by_version
async def test_a_session_is_offered_once(loop: Loop, version: ssl.TLSVersion) -> None:
    """A handshake that failed may have failed because of it."""
    context, own = client_context(version=version), server_context(version=version)
    goloop.tls.resume_sessions(context)
    async with server(version) as port:
        assert not await visit(port, context)
    async with refusing(port, b""):
        with pytest.raises(ConnectionError):
            await visit(port, context)
    async with again(port, own):
        assert [await visit(port, context) for _ in range(3)] == [False, True, True]


@by_version
async def test_connections_that_begin_at_once_resume_a_session_each(
    loop: Loop, version: ssl.TLSVersion
) -> None:
    context = client_context(version=version)
    goloop.tls.resume_sessions(context)
    async with server(version) as port:
        for expected in (False, True, True):
            found = await asyncio.gather(*(visit(port, context) for _ in range(5)))
            assert found == [expected] * 5


@pytest.mark.parametrize(
    ("answer", "failures"), [(HANDSHAKE_FAILURE, 1), (b"", 2)], ids=["alert", "closes"]
)
async def test_server_that_refuses_sessions_gets_no_further_offers(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, answer: bytes, failures: int
) -> None:
    context, own = client_context(), server_context()
    goloop.tls.resume_sessions(context)
    async with server() as port:
        pass
    for _ in range(failures):
        async with again(port, own):
            assert not await visit(port, context)
        async with refusing(port, answer):
            with pytest.raises((ConnectionError, ssl.SSLError)):
                await visit(port, context)
    async with again(port, own):
        assert [await visit(port, context) for _ in range(3)] == [False] * 3
        later = goloop.tls.time.time() + 1_000_000
        monkeypatch.setattr(goloop.tls.time, "time", lambda: later)
        assert not await visit(port, context)  # the session is too old by now


async def test_a_session_that_can_not_be_kept_does_not_keep_a_connection_from_ending(
    loop: Loop, errors: Errors, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep(*args: object) -> None:
        raise ZeroDivisionError

    context = client_context()
    goloop.tls.resume_sessions(context)
    monkeypatch.setattr(goloop.tls._Sessions, "store", keep)
    async with server() as port:
        assert not await visit(port, context)  # which waits for the end
    errors.expect(ZeroDivisionError, "A TLS session could not be stored")


def test_loops_in_several_threads_share_a_context(no_leaks: None) -> None:
    """On free-threaded builds they do so at the same time."""
    context = client_context()
    goloop.tls.resume_sessions(context, hosts=1)
    found: list[bool] = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    async def main(index: int) -> None:
        async with server() as one, server() as other:
            for _ in range(15):
                found.extend(await asyncio.gather(visit(one, context), visit(other, context)))

    try:
        goloop.run_threads(main, threads=4)
    finally:
        sys.setswitchinterval(interval)
    assert len(found) == 120


def test_session_table_is_safe_with_many_threads() -> None:
    """Threads repeat the calls of the loop between its handshakes, and nothing else."""
    sessions = goloop.tls._Sessions(2)
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(3000):
                sessions._set_newest(sessions._stored, (i % 5, number % 2), i)
                sessions._stored.pop((i % 3, 0), None)
        except BaseException as exc:
            failed.append(exc)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    sessions._set_newest(sessions._stored, ("last",), 1)
    assert len(sessions._stored) <= 2


async def test_a_session_of_another_context_is_not_offered(loop: Loop) -> None:
    """A program's wrap_bio() may use a context that it makes again."""

    class Wrapping(ssl.SSLContext):
        def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
            return client_context().wrap_bio(*args, **options)

    context = Wrapping(ssl.PROTOCOL_TLS_CLIENT)
    goloop.tls.resume_sessions(context)
    async with server() as port:
        assert [await visit(port, context) for _ in range(3)] == [False] * 3


async def test_the_oldest_server_is_forgotten(loop: Loop) -> None:
    context = client_context()
    goloop.tls.resume_sessions(context, hosts=2)
    async with server() as one, server() as two, server() as three:
        for port in (one, two, one, three):
            await visit(port, context)
        assert await visit(one, context)
        assert not await visit(two, context)


async def test_a_context_with_sessions_is_collected(loop: Loop) -> None:
    context = client_context()
    goloop.tls.resume_sessions(context)
    async with server() as port:
        await visit(port, context)
        assert await visit(port, context)
    gone = weakref.ref(context)
    del context
    await asyncio.sleep(0.01)
    gc.collect()
    assert gone() is None


def test_resume_sessions_refuses_invalid_contexts() -> None:
    with pytest.raises(TypeError, match=r"must be an ssl\.SSLContext, got str"):
        goloop.tls.resume_sessions("context")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a server's context"):
        goloop.tls.resume_sessions(server_context())
    for hosts in (0, -1, "2", 1.5):
        with pytest.raises(ValueError, match="hosts must be >= 1"):
            goloop.tls.resume_sessions(client_context(), hosts=hosts)  # type: ignore[arg-type]
