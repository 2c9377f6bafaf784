"""TLS connections of every kind: data both ways, extra info, the path, freed memory."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import ssl
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from protocols import Made, Recorder, RecordingEcho, hang_up, turns, until
from tls_connections import ViewRecorder, by_role, by_version, contexts, hexdigest, with_peer
from tls_tools import Peer, client_context, server_context

Loop = asyncio.AbstractEventLoop


# ---- connections ------------------------------------------------------------------------


class BufferedEcho(ViewRecorder):
    """An echo with a buffer that is smaller than a record."""

    def buffer_updated(self, nbytes: int) -> None:
        super().buffer_updated(nbytes)
        self.transport.write(self.buffer[:nbytes])


@by_version
@pytest.mark.parametrize("factory", [RecordingEcho, BufferedEcho])
async def test_a_client_and_a_server_exchange_a_megabyte(
    loop: Loop, version: ssl.TLSVersion, factory: Callable[[], Any]
) -> None:
    payload = random.Random(1).randbytes(1_000_000)
    accepted = Made(factory)
    async with await loop.create_server(
        accepted, "127.0.0.1", 0, ssl=server_context(version=version)
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


@by_role
@by_version
async def test_tls_runs_over_an_existing_socket(
    loop: Loop, role: str, version: ssl.TLSVersion
) -> None:
    def peer_does(peer: Peer) -> bytes:
        peer.write(b"to the loop")
        received = peer.read_exactly(4)
        peer.unwrap()
        return received

    protocol, working = await with_peer(loop, role, peer_does, version=version)
    protocol.transport.write(b"back")
    assert await working == b"back"
    assert await protocol.lost is None
    assert protocol.names() == ["made", "data", "eof", "lost"]
    assert protocol.data == b"to the loop"


@by_role
@by_version
async def test_extra_info_has_context_certificate_and_addresses(
    loop: Loop, role: str, version: ssl.TLSVersion
) -> None:
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


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (lambda: [1], "'int' has no len"),
        (lambda: [b"a", None], "'NoneType' has no len"),
        (lambda: iter([b"a", 1.5, b"b"]), "'float' has no len"),
        (lambda: 5, "'int' object is not iterable"),
    ],
    ids=["int", "None", "float", "no list"],
)
async def test_invalid_data_is_refused_as_by_asyncio(loop: Loop, lines: Any, said: str) -> None:
    protocol, working = await with_peer(loop, "client", Peer.read_all)
    with pytest.raises(TypeError, match=said):
        protocol.transport.writelines(lines())
    await hang_up(protocol)
    with pytest.raises(ConnectionResetError):
        await working


async def test_written_buffer_may_change_afterwards(loop: Loop) -> None:
    protocol, working = await with_peer(loop, "client", Peer.read_all)
    data = bytearray(b"a" * 100_000)
    protocol.transport.write(data)
    data[:] = b"b" * 100_000
    data.clear()
    protocol.transport.close()
    assert await working == b"a" * 100_000
    await protocol.lost


@by_version
async def test_a_peer_gets_a_large_write_in_the_short_records_that_it_asked_for(
    loop: Loop, version: ssl.TLSVersion
) -> None:
    """Short records need more room than the usual ones, and another write follows them."""
    large, last = random.Random(2).randbytes(300_000), b"the end"
    accepted = Made(Recorder)
    async with await loop.create_server(
        accepted, "127.0.0.1", 0, ssl=server_context(version=version)
    ) as server:
        port = server.sockets[0].getsockname()[1]
        peer = await asyncio.create_subprocess_exec(
            *("openssl", "s_client", "-quiet", "-maxfraglen", "512"),
            *("-connect", f"127.0.0.1:{port}"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert peer.stdout is not None
        await until(lambda: bool(accepted) and accepted[0].names() == ["made"])
        transport = accepted[0].transport
        transport.write(large)
        transport.write(last)
        assert await peer.stdout.readexactly(len(large) + len(last)) == large + last
        transport.close()
        peer.kill()
        await peer.wait()
        await until(lambda: accepted[0].names()[-1] == "lost")


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


# ---- the path ----------------------------------------------------------------------------


@pytest.mark.goloop_only("asyncio has one path")
def test_diagnostics_name_the_tls_path(loop_name: str) -> None:
    """GOLOOP_TLS decides, and diagnostics report the deciding setting."""
    import goloop

    state = goloop.diagnostics()["tls"]
    if os.environ.get("GOLOOP_TLS") == "stdlib":
        assert state == "GOLOOP_TLS=stdlib requests the methods of ssl.SSLObject"
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
