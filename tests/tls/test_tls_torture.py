"""TLS under a peer that sends its bytes in the worst of ways.

The peer is blocking OpenSSL in a thread.  It cuts, joins, delays and re-keys records, and
the application must see the same bytes, which are compared by their hash.  If a piece has
to arrive apart from the next, the peer waits until the loop has made some turns in
between.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import hashlib
import itertools
import random
import re
import shutil
import socket
import ssl
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import tcp_pair
from protocols import BufferedRecorder, Made, Recorder, close_all, turns, until
from tls_tools import VERSIONS, Peer, client_context, identity, server_context

Loop = asyncio.AbstractEventLoop
TIME_LIMIT = 60

by_role = pytest.mark.parametrize("role", ["client", "server"])
by_version = pytest.mark.parametrize("version", VERSIONS, ids=lambda v: str(v.name))


# ---- ways in which the peer cuts its bytes -----------------------------------------------


def bytewise(data: bytes) -> Iterator[bytes]:
    """Each byte alone."""
    for i in range(len(data)):
        yield data[i : i + 1]


def in_two() -> Callable[[bytes], Iterator[bytes]]:
    """Cut at one place, which moves by one with each call."""
    calls = itertools.count(1)

    def cut(data: bytes) -> Iterator[bytes]:
        at = next(calls) % len(data)
        yield from (piece for piece in (data[:at], data[at:]) if piece)

    return cut


def seeded(seed: int) -> Callable[[bytes], Iterator[bytes]]:
    """Pieces of random sizes, most of them small, some after a delay."""
    rng = random.Random(seed)

    def cut(data: bytes) -> Iterator[bytes]:
        at = 0
        while at < len(data):
            size = rng.choice((1, 2, 5, 6, 100, 1500, 16384, 70_000))
            if rng.random() < 0.1:
                time.sleep(rng.random() * 0.002)
            yield data[at : at + size]
            at += size

    return cut


# ---- the applications: each echoes received data --------------------------------------


class Echo(Recorder):
    """By data_received and write."""

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Buffered(BufferedRecorder):
    """With a buffer that ends within records."""

    def __init__(self) -> None:
        super().__init__(777)

    def get_buffer(self, sizehint: int) -> Any:
        # Not a bytearray, with which asyncio loses data after the first record.
        return memoryview(self.buffer)


class BufferedEcho(Buffered):
    """An echo with a buffer."""

    def buffer_updated(self, nbytes: int) -> None:
        self.transport.write(bytes(self.buffer[:nbytes]))


class HaltingEcho(Recorder):
    """Stops reading after each batch for a turn, and writes in two parts."""

    def data_received(self, data: bytes) -> None:
        half = len(data) // 2
        self.transport.write(data[:half])
        self.transport.writelines([data[half:], b""])
        self.transport.pause_reading()
        asyncio.get_running_loop().call_soon(self.transport.resume_reading)


class StreamEcho(asyncio.StreamReaderProtocol):
    """By a reader and a writer, with drain."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[Exception | None] = loop.create_future()
        super().__init__(asyncio.StreamReader(limit=4096), self.serve)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionResetError):  # the peer does not wait for all of it
            while data := await reader.read(3000):
                writer.write(data)
                await writer.drain()
        writer.close()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.lost.set_result(exc)


ECHOES: list[Callable[[], Any]] = [Echo, BufferedEcho, HaltingEcho, StreamEcho]


async def run(
    loop: Loop,
    role: str,
    version: ssl.TLSVersion,
    factory: Callable[[], Any],
    peer_does: Callable[[Peer], Any],
    *,
    cut: Callable[[bytes], Iterator[bytes]] | None = None,
    paced: bool = False,
) -> tuple[Any, Any]:
    """Run the application against the peer; return the peer's result, and the end's reason."""
    near, far = tcp_pair()
    client, server = client_context(version=version), server_context(version=version)
    peer = Peer(far, server if role == "client" else client, server_side=role == "client")
    if cut is not None:
        peer.cut = cut
    if paced:
        peer.pace = lambda: asyncio.run_coroutine_threadsafe(turns(2), loop).result(TIME_LIMIT)

    def body() -> Any:
        with far:
            peer.handshake()
            return peer_does(peer)

    working = asyncio.ensure_future(asyncio.to_thread(body))
    try:
        if role == "client":
            _, protocol = await loop.create_connection(
                factory, sock=near, ssl=client, server_hostname="localhost"
            )
        else:
            _, protocol = await loop.connect_accepted_socket(factory, near, ssl=server)
    except BaseException:
        near.close()
        await asyncio.gather(working, return_exceptions=True)
        raise
    result = await working
    return result, await protocol.lost


def conversation(payload: bytes, sizes: list[int]) -> Callable[[Peer], bytes]:
    """Sends the payload in messages of these sizes, reading the echo as it goes; its hash."""

    def talk(peer: Peer) -> bytes:
        digest = hashlib.sha256()
        at = 0
        for size in sizes:
            peer.write(payload[at : at + size])
            digest.update(peer.read_exactly(len(payload[at : at + size])))
            at += size
        peer.unwrap()
        return digest.digest()

    return talk


# ---- tests --------------------------------------------------------------------------------


def of_many_sizes(rng: random.Random, total: int) -> list[int]:
    sizes: list[int] = []
    while sum(sizes) < total:
        sizes.append(rng.choice((1, 13, 1000, 16384, 16385, 60_000)))
    return sizes


# The sizes of the messages, how the peer cuts them, and whether it waits between two pieces.
CUTS: dict[str, tuple[list[int], Callable[[], Callable[[bytes], Iterator[bytes]]], bool]] = {
    # The handshake, the data and the close_notify.
    "every byte alone": ([1, 2, 97, 500], lambda: bytewise, True),
    # Message after message of one short record each, cut at the next place each time.
    "at every byte": ([40] * 120, in_two, True),
    "seeded 1": (of_many_sizes(random.Random(1), 400_000), lambda: seeded(1), False),
    "seeded 2": (of_many_sizes(random.Random(2), 400_000), lambda: seeded(2), False),
}


@by_version
@by_role
@pytest.mark.parametrize("factory", ECHOES)
@pytest.mark.parametrize("how", CUTS)
async def test_all_arrives_however_records_are_cut(
    loop: Loop, role: str, version: ssl.TLSVersion, factory: Callable[[], Any], how: str
) -> None:
    sizes, cut, paced = CUTS[how]
    payload = random.Random(1).randbytes(sum(sizes))
    talk = conversation(payload, sizes)
    digest, lost = await run(loop, role, version, factory, talk, cut=cut(), paced=paced)
    assert lost is None
    assert digest == hashlib.sha256(payload).digest()


@by_version
@by_role
@pytest.mark.parametrize("factory", ECHOES)
async def test_many_records_and_close_notify_in_one_write_arrive(
    loop: Loop, role: str, version: ssl.TLSVersion, factory: Callable[[], Any]
) -> None:
    """Thousands of records in one write, some empty of data, and the close_notify with them."""
    payload = random.Random(3).randbytes(60_000)

    def talk(peer: Peer) -> bytes:
        for at in range(0, len(payload), 15):
            peer.tls.write(payload[at : at + 15])
        with pytest.raises(ssl.SSLWantReadError):
            peer.tls.unwrap()
        together = peer.outgoing.read()
        peer.sock.sendall(together)
        # After close_notify, the application's further data is not for us,
        # and asyncio does not wait with its own end until it is said.
        try:
            while peer.fill():
                pass
        except ConnectionResetError:
            pass
        return hashlib.sha256(payload).digest()

    received = hashlib.sha256()

    class Noting(factory):  # type: ignore[valid-type, misc]
        if issubclass(factory, BufferedRecorder):  # type: ignore[arg-type]

            def buffer_updated(self, nbytes: int) -> None:
                received.update(self.buffer[:nbytes])
                super().buffer_updated(nbytes)

        else:

            def data_received(self, data: bytes) -> None:
                received.update(data)
                super().data_received(data)

    expected, _ = await run(loop, role, version, Noting, talk)
    assert received.digest() == expected


@by_role
@pytest.mark.parametrize("factory", ECHOES)
async def test_all_arrives_across_key_updates(
    loop: Loop, role: str, factory: Callable[[], Any]
) -> None:
    """TLS 1.3: new keys before every message, each second time for both directions."""
    payload = random.Random(4).randbytes(200_000)

    def talk(peer: Peer) -> bytes:
        digest = hashlib.sha256()
        for i, at in enumerate(range(0, len(payload), 5000)):
            peer.key_update(ask=bool(i % 2))
            peer.write(payload[at : at + 5000])
            digest.update(peer.read_exactly(5000))
        peer.unwrap()
        return digest.digest()

    digest, lost = await run(loop, role, VERSIONS[1], factory, talk, cut=seeded(5))
    assert lost is None
    assert digest == hashlib.sha256(payload).digest()


class Program:
    """The `openssl` program as the other side, whose K and k command change the keys.

    It sends the bytes of its standard input, unless a read begins with such a letter,
    and prints the received bytes.
    """

    def __init__(self, folder: Path, *words: str) -> None:
        self.messages = folder / "messages"
        self.output = folder / "output"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                ["openssl", *words, "-tls1_3", "-msg", "-msgfile", str(self.messages)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def printed(self, kind: re.Pattern[bytes], count: int = 1) -> list[bytes]:
        """Return the matches in its output, once there are that many."""
        deadline = time.monotonic() + TIME_LIMIT
        while len(found := kind.findall(self.output.read_bytes())) < count:
            assert time.monotonic() < deadline, self.output.read_bytes()[-2000:]
            assert self.process.poll() is None, self.output.read_bytes()[-2000:]
            time.sleep(0.002)
        return found

    def type(self, data: bytes) -> None:
        """Gives it `data` for one read."""
        assert self.process.stdin is not None
        assert len(data) <= 4096
        self.process.stdin.write(data)
        self.process.stdin.flush()
        deadline = time.monotonic() + TIME_LIMIT
        left = array.array("i", [1])
        while left[0]:
            assert time.monotonic() < deadline
            assert self.process.poll() is None, self.output.read_bytes()[-2000:]
            fcntl.ioctl(self.process.stdin, termios.FIONREAD, left)

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.kill()
        self.process.wait(TIME_LIMIT)


# Bytes that s_server and s_client print of their own between received pieces.
ASCII = bytes(range(128))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl program")
@by_role
@pytest.mark.parametrize("factory", [Recorder, Buffered])
async def test_all_arrives_when_openssl_changes_the_keys(
    loop: Loop, role: str, factory: Callable[[], Any], tmp_path: Path
) -> None:
    """An independent program asks for it: both directions, or its own alone."""
    own = identity()
    rounds = 40
    down = [b"%04d%s\n" % (i, bytes([97 + i % 26]) * 3000) for i in range(rounds)]
    up = [bytes([128 + i]) * 40_000 for i in range(rounds)]
    made: asyncio.Future[Any] = loop.create_future()

    def protocol_factory() -> Any:
        protocol = factory()
        made.set_result(protocol)
        return protocol

    server: asyncio.AbstractServer | None = None
    if role == "client":
        # The server chooses its port, and prints it.
        words = ["s_server", "-accept", "127.0.0.1:0", "-cert", own.certificate, "-key", own.key]
        program = Program(tmp_path, *words, "-naccept", "1", "-num_tickets", "0")
    else:
        context = server_context(version=VERSIONS[1])
        context.num_tickets = 0
        server = await loop.create_server(protocol_factory, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        program = Program(tmp_path, "s_client", "-connect", f"127.0.0.1:{port}")
    try:
        if role == "client":
            accept = re.compile(rb"ACCEPT 127.0.0.1:(\d+)\n")
            (said,) = await asyncio.to_thread(program.printed, accept)
            await loop.create_connection(
                protocol_factory,
                *("127.0.0.1", int(said)),
                ssl=client_context(version=VERSIONS[1]),
                server_hostname="localhost",
            )
        protocol = await asyncio.wait_for(made, TIME_LIMIT)
        await until(lambda: protocol.transport is not None)
        for i in range(rounds):
            # Data in flight both before and after the change.
            protocol.transport.write(up[i])
            await asyncio.to_thread(program.type, b"Kk"[i % 2 : i % 2 + 1] + b"\n")
            await asyncio.to_thread(program.type, down[i])
        await until(lambda: len(protocol.data) >= len(b"".join(down)))
        assert hashlib.sha256(protocol.data).digest() == hashlib.sha256(b"".join(down)).digest()
        whole = b"".join(up)

        def received() -> bytes:
            return program.output.read_bytes().translate(None, ASCII)

        await until(lambda: len(received()) >= len(whole))
        assert hashlib.sha256(received()).digest() == hashlib.sha256(whole).digest()
        messages = program.messages.read_text()
        assert len(re.findall(r"^>>> .*KeyUpdate", messages, re.M)) == rounds
        assert len(re.findall(r"^<<< .*KeyUpdate", messages, re.M)) == rounds // 2
    finally:
        await asyncio.to_thread(program.end)
        if made.done() and made.result().transport is not None:
            made.result().transport.abort()
            await made.result().lost
        if server is not None:
            await close_all(server)


@by_version
@by_role
async def test_no_part_of_a_truncated_record_is_delivered(
    loop: Loop, role: str, version: ssl.TLSVersion
) -> None:
    """No part of a record is delivered, and the end is an end."""
    at, length = 1, 2
    while at < length:

        def talk(peer: Peer, at: int = at) -> int:
            # Unread bytes, which tickets are too, would make a reset of the end.
            assert peer.read_exactly(2) == b"up"
            peer.write(b"whole")
            sealed = peer.seal(b"cut")
            peer.sock.sendall(sealed[:at])
            peer.sock.shutdown(socket.SHUT_WR)
            while peer.sock.recv(65536):
                pass
            return len(sealed)

        protocols: list[Recorder] = []

        class Greeting(Recorder):
            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                protocols.append(self)  # noqa: B023
                transport.write(b"up")

        length, lost = await run(loop, role, version, Greeting, talk)
        assert lost is None
        assert protocols[0].data == b"whole"
        assert protocols[0].names() == ["made", "data", "eof", "lost"]
        at += 1


@by_version
@by_role
async def test_handshake_that_ends_early_is_an_error_and_leaks_nothing(
    loop: Loop, role: str, version: ssl.TLSVersion
) -> None:
    """A ConnectionResetError each time, and nothing left (which no_leaks looks after)."""
    step = limit = 13
    while True:
        ended = [False]

        def cut(data: bytes, ended: list[bool] = ended, limit: int = limit) -> Iterator[bytes]:
            room = limit - cut.sent  # type: ignore[attr-defined]
            cut.sent += len(data)  # type: ignore[attr-defined]
            if room < len(data):
                ended[0] = True
                yield data[: max(room, 0)]
                raise ConnectionAbortedError("enough")
            yield data

        cut.sent = 0  # type: ignore[attr-defined]

        def talk(peer: Peer) -> None:
            peer.cut = lambda data: iter((data,))
            assert peer.read_exactly(2) == b"up"
            peer.unwrap()

        class Greeting(Recorder):
            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                transport.write(b"up")

        try:
            await run(loop, role, version, Greeting, talk, cut=cut)
        except ConnectionResetError:
            assert ended[0]
            limit += step
        except ConnectionAbortedError:
            # The handshake was done on the loop's side, and the peer's next bytes
            # (tickets of a server) were cut.
            assert ended[0]
            limit += step
        else:
            assert not ended[0]
            break
    assert limit > 20 * step


@by_version
async def test_all_arrives_when_both_sides_send_much_at_once(
    loop: Loop, version: ssl.TLSVersion
) -> None:
    """Both sides send a lot at the same time, to readers that are slower."""
    size = 6_000_000
    up, down = (random.Random(seed).randbytes(size) for seed in (6, 7))

    class Talker(HaltingEcho):
        received: Any

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.received = hashlib.sha256()
            self.count = 0
            transport.write(down)

        def data_received(self, data: bytes) -> None:
            self.received.update(data)
            self.count += len(data)
            self.transport.pause_reading()
            loop.call_soon(self.transport.resume_reading)

    talkers = Made(Talker)

    def talk(peer: Peer) -> bytes:
        digest = hashlib.sha256()
        got = at = 0
        peer.sock.settimeout(None)
        pending = b""
        while at < size or pending or got < size:
            if not pending and at < size:
                pending = peer.seal(up[at : at + 50_000])
                at += 50_000
            try:
                if pending:
                    pending = pending[peer.sock.send(pending, socket.MSG_DONTWAIT) :]
                    continue
            except BlockingIOError:
                pass
            data = peer.read(100_000) if got < size else b""
            if not data:
                time.sleep(0.0005)
            got += len(data)
            digest.update(data)
        peer.unwrap()
        return digest.digest()

    digest, lost = await run(loop, "client", version, talkers, talk)
    assert lost is None
    assert digest == hashlib.sha256(down).digest()
    assert talkers[0].count == size
    assert talkers[0].received.digest() == hashlib.sha256(up).digest()
