"""Datagram endpoints: UDP over both IP versions, and Unix datagrams."""

from __future__ import annotations

import array
import asyncio
import contextlib
import contextvars
import gc
import logging
import os
import socket
import struct
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Errors, LoopFactory
from protocols import turns, until

Loop = asyncio.AbstractEventLoop

# Since 3.13 empty datagrams are sent, and each queued one counts for 8 bytes more.
EMPTY_ARE_SENT = sys.version_info >= (3, 13)
HEADER = 8 if sys.version_info >= (3, 13) else 0

# The longest that UDP over IPv4 carries.
LONGEST = 65507


class Recorder(asyncio.DatagramProtocol):
    """Notes every call; what `on_datagram` holds is called with each datagram."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.got: list[tuple[bytes, Any]] = []
        self.errors: list[Exception] = []
        self.transport: Any = None
        self.on_datagram: Callable[[bytes, Any], object] = lambda data, addr: None
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.calls.append("made")

    def datagram_received(self, data: bytes, addr: Any) -> None:
        assert type(data) is bytes
        self.calls.append("datagram")
        self.got.append((data, addr))
        self.on_datagram(data, addr)

    def error_received(self, exc: Exception) -> None:
        self.calls.append("error")
        self.errors.append(exc)

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append("lost")
        self.lost.set_result(exc)

    def data(self) -> list[bytes]:
        return [data for data, _ in self.got]


async def endpoint(loop: Loop, *args: Any, **kwargs: Any) -> tuple[Any, Recorder]:
    transport, protocol = await loop.create_datagram_endpoint(Recorder, *args, **kwargs)
    return transport, protocol


async def pair_of(loop: Loop, host: str = "127.0.0.1") -> tuple[Any, Recorder, Any, Recorder]:
    """A bound endpoint and one that is connected to it."""
    serving, server = await endpoint(loop, local_addr=(host, 0))
    address = serving.get_extra_info("sockname")[:2]
    asking, client = await endpoint(loop, remote_addr=address)
    return serving, server, asking, client


async def close(*transports: Any) -> None:
    protocols = [transport.get_protocol() for transport in transports]
    for transport in transports:
        transport.close()
        assert transport.is_closing()
    for protocol in protocols:
        if protocol is not None:
            assert await protocol.lost is None


@pytest.fixture
def plain() -> Iterator[socket.socket]:
    """A bound UDP socket of the test's own, blocking."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        made.settimeout(10)
        yield made


def unix_datagrams(path: Path | str | None = None) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    if path is not None:
        made.bind(str(path))
    return made


# ---- there and back ------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_both_ways(loop: Loop, host: str) -> None:
    serving, server, asking, client = await pair_of(loop, host)
    address = serving.get_extra_info("sockname")
    here = asking.get_extra_info("sockname")
    for number in range(20):
        asking.sendto(b"%d" % number)
    await until(lambda: len(server.got) == 20)
    assert server.got == [(b"%d" % number, here) for number in range(20)]
    serving.sendto(b"answer", here)
    serving.sendto(b"again", server.got[-1][1])
    serving.sendto(b"short", here[:2])
    await until(lambda: len(client.got) == 3)
    assert client.got == [(b"answer", address), (b"again", address), (b"short", address)]
    await close(asking, serving)
    assert server.calls == ["made", *["datagram"] * 20, "lost"]


async def test_unix_datagrams_by_path(loop: Loop, tmp_path: Path) -> None:
    there, here = str(tmp_path / "server"), str(tmp_path / "client")
    serving, server = await endpoint(loop, local_addr=there, family=socket.AF_UNIX)
    asking, client = await endpoint(loop, local_addr=here, remote_addr=there, family=socket.AF_UNIX)
    asking.sendto(b"question")
    asking.sendto(b"more", there)
    await until(lambda: len(server.got) == 2)
    assert server.got == [(b"question", here), (b"more", here)]
    serving.sendto(b"answer", here)
    serving.sendto(b"as bytes", os.fsencode(here))
    await until(lambda: len(client.got) == 2)
    assert client.got == [(b"answer", there), (b"as bytes", there)]
    with unix_datagrams() as nameless:
        nameless.sendto(b"nobody", there)
        await until(lambda: len(server.got) == 3)
    assert server.got[2] == (b"nobody", None)
    await close(asking, serving)


@pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")
async def test_unix_datagrams_by_abstract_name(loop: Loop) -> None:
    there = f"\0goloop-{os.getpid()}"
    serving, server = await endpoint(loop, local_addr=there, family=socket.AF_UNIX)
    with unix_datagrams() as other:
        other.bind("")  # the kernel chooses a name
        other.sendto(b"x", there)
        await until(lambda: server.got)
        assert server.got == [(b"x", other.getsockname())]
        serving.sendto(b"y", server.got[0][1])
        assert other.recvfrom(10) == (b"y", there.encode())
        serving.sendto(b"z", bytes(bytearray(server.got[0][1])))
        assert other.recvfrom(10) == (b"z", there.encode())
    await close(serving)


async def test_names(loop: Loop) -> None:
    serving, server = await endpoint(loop, local_addr=("localhost", 0), family=socket.AF_INET)
    port = serving.get_extra_info("sockname")[1]
    asking, _ = await endpoint(loop, remote_addr=("localhost", port), family=socket.AF_INET)
    asking.sendto(b"connected")
    free, _ = await endpoint(loop, family=socket.AF_INET)
    free.sendto(b"by name", ("localhost", port))
    free.sendto(b"by another", ("127.1", port))
    free.sendto(b"anywhere", ("", port))
    await until(lambda: len(server.got) == 4)
    assert server.data() == [b"connected", b"by name", b"by another", b"anywhere"]
    await close(free, asking, serving)


async def test_a_given_socket(loop: Loop, plain: socket.socket) -> None:
    sock = plain.dup()
    transport, protocol = await endpoint(loop, sock=sock)
    assert sock.gettimeout() == 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.sendto(b"x", plain.getsockname())
        await until(lambda: protocol.got)
        other.settimeout(10)
        transport.sendto(b"y", protocol.got[0][1])
        assert other.recvfrom(10) == (b"y", plain.getsockname())
    await close(transport)
    assert sock.fileno() == -1


async def test_broadcast_is_not_connected(loop: Loop, plain: socket.socket) -> None:
    address = plain.getsockname()
    transport, protocol = await endpoint(loop, remote_addr=address, allow_broadcast=True)
    sock = transport.get_extra_info("socket")
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST)
    assert transport.get_extra_info("peername") is None
    transport.sendto(b"one")
    transport.sendto(b"two", address)
    assert [plain.recv(10), plain.recv(10)] == [b"one", b"two"]
    # A socket that is not connected hears everybody.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.sendto(b"x", ("127.0.0.1", sock.getsockname()[1]))
        await until(lambda: protocol.got)
    transport.sendto(b"three")
    assert plain.recv(10) == b"three"
    await close(transport)


async def test_reuse_port(loop: Loop) -> None:
    first, one = await endpoint(loop, local_addr=("127.0.0.1", 0), reuse_port=True)
    address = first.get_extra_info("sockname")
    second, two = await endpoint(loop, local_addr=address, reuse_port=True)
    senders = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(50)]
    for sender in senders:
        sender.sendto(b"x", address)
    await until(lambda: len(one.got) + len(two.got) == 50)
    assert one.got
    assert two.got
    for sender in senders:
        sender.close()
    await close(first, second)


@pytest.mark.skipif(not hasattr(socket, "AF_NETLINK"), reason="netlink is Linux's")
async def test_a_family_that_only_python_knows(loop: Loop) -> None:
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 0)
    transport, protocol = await endpoint(loop, sock=sock)
    assert isinstance(transport, asyncio.BaseTransport)
    assert "read=polling" in repr(transport)
    # RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP
    transport.sendto(struct.pack("=LHHLLB3x", 20, 18, 0x301, 1, 0, 0), (0, 0))
    await until(lambda: protocol.got)
    assert protocol.got[0][1] == (0, 0)
    await close(transport)
    assert "closed" in repr(transport)


async def test_many_peers(loop: Loop) -> None:
    """Each keeps its own address, however many there are."""
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    address = transport.get_extra_info("sockname")
    peers = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(300)]
    for peer in peers:
        peer.settimeout(10)
        peer.connect(address)
    transport.get_protocol().on_datagram = transport.sendto
    for count in range(1, 4):
        for number, peer in enumerate(peers):
            peer.send(b"%d" % number)
            if number % 50 == 49:
                await until(lambda want=300 * (count - 1) + number + 1: len(protocol.got) == want)
        for number, peer in enumerate(peers):
            assert peer.recv(10) == b"%d" % number
            assert protocol.got[300 * (count - 1) + number][1] == peer.getsockname()
    for peer in peers:
        peer.close()
    await close(transport)


async def test_lengths(loop: Loop, plain: socket.socket) -> None:
    transport, protocol = await endpoint(
        loop, local_addr=("127.0.0.1", 0), remote_addr=plain.getsockname()
    )
    sizes = [0, 1, 1400, 9000, LONGEST, 0, LONGEST]
    for number, size in enumerate(sizes):
        plain.sendto(bytes([number]) * size, transport.get_extra_info("sockname"))
        if size > 9000:
            await until(lambda want=number + 1: len(protocol.got) == want)
    await until(lambda: len(protocol.got) == len(sizes))
    assert protocol.data() == [bytes([number]) * size for number, size in enumerate(sizes)]
    await close(transport)


async def test_long_unix_datagrams(loop: Loop, tmp_path: Path) -> None:
    """asyncio asks for 256 KiB; of a longer one the rest is lost."""
    there = str(tmp_path / "server")
    transport, protocol = await endpoint(loop, local_addr=there, family=socket.AF_UNIX)
    with unix_datagrams() as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        for size in (100_000, 200_000, 256 * 1024, 256 * 1024 + 1000):
            message = os.urandom(size)
            try:
                sender.sendto(message, there)
            except OSError:
                assert size > 200_000  # the system's limit
                continue
            await until(lambda: protocol.got)
            assert protocol.got.pop() == (message[: 256 * 1024], None)
        # Several, of which only some have room in one turn.
        for number in range(6):
            sender.sendto(bytes([number]) * 60_000, there)
            sender.sendto(b"", there)
            if number % 2:
                await until(lambda want=2 * number + 2: len(protocol.got) == want)
    assert [len(set(data)) for data, _ in protocol.got] == [1, 0] * 6
    assert [data[:1] for data, _ in protocol.got[::2]] == [bytes([n]) for n in range(6)]
    await close(transport)


# ---- what sendto takes ------------------------------------------------------------------


async def test_kinds_of_data(loop: Loop, plain: socket.socket) -> None:
    transport, _ = await endpoint(loop, remote_addr=plain.getsockname())
    numbers = array.array("H", [0x3130, 0x3332])
    for data in (b"0123", bytearray(b"0123"), memoryview(b"x0123")[1:], memoryview(numbers)):
        transport.sendto(data)
        assert plain.recv(10) == bytes(data)
    for wrong in ("text", None, 5, [b"x"]):
        with pytest.raises(TypeError, match="data argument must be a bytes-like object, not '"):
            transport.sendto(wrong)
    for arguments in ((), (b"x", None, 3)):
        with pytest.raises(TypeError):
            transport.sendto(*arguments)
    with pytest.raises(TypeError):
        transport.sendto(b"x", nonsense=1)
    transport.sendto(data=b"named", addr=None)
    transport.sendto(b"half", addr=plain.getsockname())
    assert [plain.recv(10), plain.recv(10)] == [b"named", b"half"]
    await close(transport)


async def test_empty_datagrams(loop: Loop, plain: socket.socket) -> None:
    transport, protocol = await endpoint(loop, remote_addr=plain.getsockname())
    for empty in (b"", bytearray(), memoryview(b"")):
        transport.sendto(empty)
    transport.sendto(b"end")
    came = [plain.recv(10)]
    while came[-1] != b"end":
        came.append(plain.recv(10))
    assert came == ([b""] * 3 if EMPTY_ARE_SENT else []) + [b"end"]
    plain.sendto(b"", transport.get_extra_info("sockname"))
    await until(lambda: protocol.got)
    assert protocol.got == [(b"", plain.getsockname())]
    await close(transport)


async def test_a_connected_one_takes_its_own_address_only(loop: Loop, plain: socket.socket) -> None:
    transport, _ = await endpoint(loop, remote_addr=plain.getsockname())
    host, port = plain.getsockname()
    transport.sendto(b"same", (host, port))
    assert plain.recv(10) == b"same"
    with pytest.raises(ValueError, match=rf"Invalid address: must be None or \('{host}', {port}\)"):
        transport.sendto(b"x", (host, port + 1))

    class Strange:
        def __eq__(self, other: object) -> bool:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        transport.sendto(b"x", Strange())
    await close(transport)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        (None, TypeError),
        ("127.0.0.1", TypeError),
        (("127.0.0.1",), TypeError),
        (("127.0.0.1", "80"), TypeError),
        (("127.0.0.1", 65536), OverflowError),
        (("127.0.0.1", -1), OverflowError),
        ((b"127.0.0.1", None), TypeError),
        (("127.0.0.1\0", 80), TypeError),
    ],
)
async def test_a_wrong_address_is_fatal(
    loop: Loop, errors: Errors, address: Any, kind: type[Exception]
) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    transport.sendto(b"x", address)
    assert transport.is_closing()
    lost = await protocol.lost
    assert isinstance(lost, kind)
    context = errors.expect(kind, "Fatal write error on datagram transport")
    assert context["exception"] is lost
    assert context["transport"] is transport
    assert context["protocol"] is protocol


async def test_a_view_in_pieces_is_fatal(loop: Loop, errors: Errors) -> None:
    transport, protocol = await endpoint(loop, remote_addr=("127.0.0.1", 9))
    transport.sendto(memoryview(b"abcd")[::2])
    assert isinstance(await protocol.lost, BufferError)
    errors.expect(BufferError, "Fatal write error on datagram transport")


async def test_addresses_in_turns(loop: Loop) -> None:
    receivers = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for receiver in receivers:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(10)
    transport, _ = await endpoint(loop, family=socket.AF_INET)
    for _ in range(2):
        for receiver in receivers:
            address = receiver.getsockname()
            transport.sendto(b"x", address)
            transport.sendto(b"y", ("127.0.0.1", address[1]))
            assert [receiver.recv(5), receiver.recv(5)] == [b"x", b"y"]
    for receiver in receivers:
        receiver.close()
    await close(transport)


# ---- errors -----------------------------------------------------------------------------


async def test_nobody_listens(loop: Loop) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind(("127.0.0.1", 0))
        address = gone.getsockname()
    transport, protocol = await endpoint(loop, remote_addr=address)
    transport.sendto(b"x")
    await until(lambda: protocol.errors)
    assert isinstance(protocol.errors[0], ConnectionRefusedError)
    # Nothing has ended.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as back:
        back.bind(address)
        back.settimeout(10)
        transport.sendto(b"again")
        assert back.recv(10) == b"again"
        back.sendto(b"answer", transport.get_extra_info("sockname"))
        await until(lambda: protocol.got)
    assert protocol.got == [(b"answer", address)]
    transport.abort()
    assert await protocol.lost is None
    assert len(protocol.errors) == 1


async def test_errors_of_sending(loop: Loop) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    transport.sendto(b"x" * (LONGEST + 1), ("127.0.0.1", 9))
    assert [type(exc) for exc in protocol.errors] == [OSError]
    transport.sendto(b"x", ("no such host.invalid", 9))
    assert isinstance(protocol.errors[1], socket.gaierror)
    transport.sendto(b"x", ("255.255.255.255", 9))
    assert isinstance(protocol.errors[2], PermissionError)
    assert not transport.is_closing()

    def fail(exc: Exception) -> None:
        raise ZeroDivisionError

    protocol.error_received = fail  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        transport.sendto(b"x" * (LONGEST + 1), ("127.0.0.1", 9))
    await close(transport)


async def test_a_path_that_nobody_has(loop: Loop, tmp_path: Path) -> None:
    transport, protocol = await endpoint(
        loop, local_addr=str(tmp_path / "here"), family=socket.AF_UNIX
    )
    transport.sendto(b"x", str(tmp_path / "nowhere"))
    assert isinstance(protocol.errors[0], FileNotFoundError)
    transport.sendto(b"x", "y" * 200)
    assert type(protocol.errors[1]) is OSError
    await close(transport)


async def test_datagram_received_raises(loop: Loop, errors: Errors) -> None:
    serving, server, asking, _ = await pair_of(loop)

    def fail(data: bytes, addr: Any) -> None:
        if data == b"bad":
            raise ZeroDivisionError

    server.on_datagram = fail
    for data in (b"good", b"bad", b"bad", b"good"):
        asking.sendto(data)
    await until(lambda: len(server.got) == 4)
    for _ in range(2):
        errors.expect(ZeroDivisionError, "Exception in callback")
    await close(serving, asking)


async def test_error_received_raises(loop: Loop, errors: Errors) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind(("127.0.0.1", 0))
        address = gone.getsockname()
    transport, protocol = await endpoint(loop, remote_addr=address)

    def fail(exc: Exception) -> None:
        raise ZeroDivisionError

    protocol.error_received = fail  # type: ignore[method-assign]
    transport.sendto(b"x")
    await until(lambda: errors.contexts)
    errors.expect(ZeroDivisionError, "Exception in callback")
    assert not transport.is_closing()
    await close(transport)


async def test_connection_made_and_connection_lost_raise(loop: Loop, errors: Errors) -> None:
    class Failing(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            raise ZeroDivisionError

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            raise ValueError

    transport, protocol = await loop.create_datagram_endpoint(Failing, local_addr=("127.0.0.1", 0))
    errors.expect(ZeroDivisionError)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.sendto(b"x", transport.get_extra_info("sockname"))
        await until(lambda: protocol.got)
    transport.close()
    await protocol.lost
    await turns()
    errors.expect(ValueError)
    assert transport.get_extra_info("socket").fileno() == -1


def test_keyboard_interrupt_leaves_and_loses_nothing(loop: Loop) -> None:
    def interrupt(data: bytes, addr: Any) -> None:
        if data == b"1":
            raise KeyboardInterrupt

    async def prepare() -> tuple[Any, ...]:
        everything = await pair_of(loop)
        everything[1].on_datagram = interrupt
        return everything

    serving, server, asking, _ = loop.run_until_complete(prepare())
    for number in range(4):
        asking.sendto(b"%d" % number)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    assert server.data() == [b"0", b"1"]
    loop.run_until_complete(until(lambda: len(server.got) == 4))
    loop.run_until_complete(close(serving, asking))


# ---- many at once --------------------------------------------------------------------------


async def flood(server: Recorder, count: int) -> socket.socket:
    """Sends numbers that all are there before the loop polls next."""
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect(server.transport.get_extra_info("sockname"))
    for number in range(count):
        sender.send(b"%d" % number)
    return sender


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, count)]


async def test_a_flood_leaves_others_their_turn(loop: Loop) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    sender = await flood(protocol, 200)
    counts = []
    while len(protocol.got) < 200:
        before = len(protocol.got)
        await asyncio.sleep(0)
        counts.append(len(protocol.got) - before)
    assert max(counts) <= 64
    assert protocol.data() == numbers(200)
    sender.close()
    await close(transport)


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_closing_in_the_middle(loop: Loop, how: str) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))

    def end(data: bytes, addr: Any) -> None:
        if data == b"2":
            getattr(transport, how)()

    protocol.on_datagram = end
    sender = await flood(protocol, 10)
    assert await protocol.lost is None
    assert protocol.data() == numbers(3)
    assert protocol.calls[-1] == "lost"
    sender.close()


async def test_another_protocol_in_the_middle(loop: Loop) -> None:
    transport, first = await endpoint(loop, local_addr=("127.0.0.1", 0))
    second = Recorder()

    def change(data: bytes, addr: Any) -> None:
        if data == b"2":
            transport.set_protocol(second)
            assert transport.get_protocol() is second

    first.on_datagram = change
    sender = await flood(first, 10)
    await until(lambda: len(second.got) == 7)
    assert first.data() == numbers(3)
    assert second.data() == numbers(10, 3)
    sender.close()
    transport.close()
    await second.lost
    assert first.calls[-1] == "datagram"


async def test_pausing_in_the_middle(loop: Loop) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))

    def pause(data: bytes, addr: Any) -> None:
        if data in (b"2", b"5"):
            transport.pause_reading()
            assert not transport.is_reading()
        if data == b"3":  # and back again
            transport.pause_reading()
            transport.resume_reading()

    protocol.on_datagram = pause
    sender = await flood(protocol, 10)
    await until(lambda: len(protocol.got) == 3)
    sender.send(b"10")
    await turns(10)
    assert protocol.data() == numbers(3)
    assert "read=idle" in repr(transport)
    transport.resume_reading()
    assert transport.is_reading()
    transport.resume_reading()
    await until(lambda: len(protocol.got) == 6)
    await turns(10)
    assert protocol.data() == numbers(6)
    transport.resume_reading()
    await until(lambda: len(protocol.got) == 11)
    assert protocol.data() == numbers(11)
    sender.send(b"11")
    await until(lambda: len(protocol.got) == 12)
    # What was held is dropped at the end.
    protocol.on_datagram = lambda data, addr: transport.pause_reading()
    sender.send(b"12")
    sender.send(b"13")
    await until(lambda: len(protocol.got) == 13)
    transport.pause_reading()
    sender.close()
    await close(transport)
    transport.pause_reading()
    transport.resume_reading()
    assert protocol.data() == numbers(13)


async def test_errors_wait_while_paused(loop: Loop) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind(("127.0.0.1", 0))
        address = gone.getsockname()
    transport, protocol = await endpoint(loop, remote_addr=address)
    transport.pause_reading()
    transport.sendto(b"x")
    await turns(10)
    assert protocol.errors == []
    transport.resume_reading()
    await until(lambda: protocol.errors)
    assert isinstance(protocol.errors[0], ConnectionRefusedError)
    await close(transport)


async def test_what_was_held_raises(loop: Loop, errors: Errors) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))

    def pause(data: bytes, addr: Any) -> None:
        if data == b"0":
            transport.pause_reading()
        if data == b"2":
            raise ZeroDivisionError

    protocol.on_datagram = pause
    sender = await flood(protocol, 5)
    await until(lambda: len(protocol.got) == 1)
    transport.resume_reading()
    await until(lambda: len(protocol.got) == 5)
    assert protocol.data() == numbers(5)
    errors.expect(ZeroDivisionError, "Exception in callback")
    sender.close()
    await close(transport)


def test_an_interrupt_while_the_held_is_delivered(loop: Loop) -> None:
    async def prepare() -> tuple[Any, Recorder, socket.socket]:
        transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))

        def pause(data: bytes, addr: Any) -> None:
            if data == b"0":
                transport.pause_reading()
            if data == b"2":
                raise KeyboardInterrupt

        protocol.on_datagram = pause
        sender = await flood(protocol, 5)
        await until(lambda: len(protocol.got) == 1)
        return transport, protocol, sender

    transport, protocol, sender = loop.run_until_complete(prepare())
    transport.resume_reading()
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    loop.run_until_complete(until(lambda: len(protocol.got) == 5))
    assert protocol.data() == numbers(5)
    sender.close()
    loop.run_until_complete(close(transport))


# ---- flow control ---------------------------------------------------------------------------


class Blocked:
    """A connected Unix endpoint whose peer reads only when the test does."""

    def __init__(self, path: Path) -> None:
        self.peer = unix_datagrams(path / "peer")
        self.peer.setblocking(False)
        self.address = str(path / "peer")
        self.sent = 0

    async def open(self, loop: Loop) -> None:
        self.transport, self.protocol = await endpoint(
            loop, remote_addr=self.address, family=socket.AF_UNIX
        )

    def send(self, size: int = 100) -> None:
        self.transport.sendto(b"%06d" % self.sent + b"." * (size - 6))
        self.sent += 1

    def fill(self) -> None:
        """Sends until the kernel has no room."""
        while self.transport.get_write_buffer_size() == 0:
            self.send()

    def read(self) -> list[int]:
        """What has come, by number."""
        came = []
        with contextlib.suppress(BlockingIOError):
            while True:
                came.append(int(self.peer.recv(1 << 17)[:6]))
        return came

    async def read_all(self) -> None:
        came: list[int] = []

        def everything() -> bool:
            came.extend(self.read())
            return len(came) >= self.sent

        await until(everything)
        assert came == list(range(self.sent))


@pytest.fixture
def blocked(tmp_path: Path) -> Iterator[Blocked]:
    made = Blocked(tmp_path)
    with made.peer:
        yield made


async def test_what_has_no_room_is_queued(loop: Loop, blocked: Blocked) -> None:
    await blocked.open(loop)
    transport = blocked.transport
    assert "write=<idle, bufsize=0>" in repr(transport)
    blocked.fill()
    assert transport.get_write_buffer_size() == 100 + HEADER
    assert f"write=<polling, bufsize={100 + HEADER}>" in repr(transport)
    for _ in range(9):
        blocked.send()
    assert transport.get_write_buffer_size() == 10 * (100 + HEADER)
    await turns(5)
    assert transport.get_write_buffer_size() == 10 * (100 + HEADER)
    await blocked.read_all()
    if HEADER == 0 or hasattr(asyncio.selector_events._SelectorDatagramTransport, "_header_size"):  # type: ignore[attr-defined]
        # 3.13.0 forgets to take the header off again.
        assert transport.get_write_buffer_size() == 0
        assert "write=<idle, bufsize=0>" in repr(transport)
    await close(transport)
    assert blocked.protocol.calls == ["made", "lost"]


async def test_the_protocol_is_paused_and_resumed(loop: Loop, blocked: Blocked) -> None:
    await blocked.open(loop)
    transport, protocol = blocked.transport, blocked.protocol
    assert transport.get_write_buffer_limits() == (16384, 65536)
    transport.set_write_buffer_limits(high=1000)
    assert transport.get_write_buffer_limits() == (250, 1000)
    blocked.fill()
    while transport.get_write_buffer_size() <= 1000:
        assert protocol.calls == ["made"]
        blocked.send()
    assert protocol.calls == ["made", "pause"]
    blocked.send()
    assert protocol.calls == ["made", "pause"]
    if HEADER:
        # 3.13.0 counts the headers for ever.
        transport.set_write_buffer_limits(high=1000, low=900)
    await blocked.read_all()
    await until(lambda: protocol.calls == ["made", "pause", "resume"])
    await close(transport)


async def test_limits(loop: Loop, blocked: Blocked) -> None:
    await blocked.open(loop)
    transport = blocked.transport
    for arguments in ({"high": 1, "low": 2}, {"high": -1}):
        with pytest.raises(ValueError, match="must be >="):
            transport.set_write_buffer_limits(**arguments)
    blocked.fill()
    assert blocked.protocol.calls == ["made"]
    transport.set_write_buffer_limits(high=0)
    assert blocked.protocol.calls == ["made", "pause"]
    transport.abort()
    assert transport.get_write_buffer_size() in (0, 100 + HEADER)
    await blocked.protocol.lost


async def test_resume_writing_sends_more(loop: Loop, blocked: Blocked) -> None:
    await blocked.open(loop)
    transport, protocol = blocked.transport, blocked.protocol

    def resume() -> None:
        protocol.calls.append("resume")
        blocked.send()

    protocol.resume_writing = resume  # type: ignore[method-assign]
    transport.set_write_buffer_limits(high=1, low=1 if not HEADER else 0)
    transport.set_write_buffer_limits(high=500, low=500)
    blocked.fill()
    while protocol.calls[-1] != "pause":
        blocked.send()
    await blocked.read_all()
    assert protocol.calls.count("resume") >= 1
    await close(transport)


async def test_close_sends_what_is_queued(loop: Loop, blocked: Blocked) -> None:
    await blocked.open(loop)
    blocked.fill()
    for _ in range(30):
        blocked.send()
    blocked.transport.close()
    assert blocked.transport.is_closing()
    assert not blocked.transport.is_reading()
    blocked.send()  # asyncio takes it still
    await turns(5)
    assert not blocked.protocol.lost.done()
    await blocked.read_all()
    assert await blocked.protocol.lost is None
    assert blocked.protocol.calls == ["made", "lost"]


async def test_nothing_is_received_while_what_is_queued_leaves(
    loop: Loop, blocked: Blocked, tmp_path: Path
) -> None:
    blocked.transport, blocked.protocol = await endpoint(
        loop,
        local_addr=str(tmp_path / "here"),
        remote_addr=blocked.address,
        family=socket.AF_UNIX,
    )
    blocked.fill()
    blocked.protocol.on_datagram = lambda data, addr: blocked.transport.close()
    for number in range(3):
        blocked.peer.sendto(b"%d" % number, str(tmp_path / "here"))
    await until(blocked.transport.is_closing)
    await turns(5)
    assert not blocked.protocol.lost.done()
    await blocked.read_all()
    assert await blocked.protocol.lost is None
    assert blocked.protocol.calls == ["made", "datagram", "lost"]


async def test_abort_drops_what_is_queued(loop: Loop, blocked: Blocked) -> None:
    await blocked.open(loop)
    blocked.fill()
    for _ in range(5):
        blocked.send()
    blocked.transport.abort()
    assert await blocked.protocol.lost is None
    assert len(blocked.read()) == blocked.sent - 6


async def test_the_peer_goes_while_it_is_waited_for(loop: Loop, blocked: Blocked) -> None:
    await blocked.open(loop)
    blocked.fill()
    for _ in range(3):
        blocked.send()
    blocked.peer.close()
    await until(lambda: len(blocked.protocol.errors) >= 3)
    assert isinstance(blocked.protocol.errors[0], ConnectionError)
    await until(lambda: "write=<idle" in repr(blocked.transport))
    assert not blocked.transport.is_closing()
    await close(blocked.transport)


async def test_a_change_of_mutable_data_is_not_seen(loop: Loop, blocked: Blocked) -> None:
    await blocked.open(loop)
    blocked.fill()
    data = bytearray(b"%06d" % blocked.sent)
    blocked.transport.sendto(data)
    blocked.transport.sendto(memoryview(data))
    blocked.sent += 1
    data[:] = b"999999"
    came: list[int] = []
    await until(lambda: came.extend(blocked.read()) or len(came) == blocked.sent + 1)
    assert came == [*range(blocked.sent), blocked.sent - 1]
    await close(blocked.transport)


async def test_an_unconnected_one_is_blocked(loop: Loop, blocked: Blocked, tmp_path: Path) -> None:
    blocked.transport, blocked.protocol = await endpoint(
        loop, local_addr=str(tmp_path / "here"), family=socket.AF_UNIX
    )
    sendto = blocked.transport.sendto
    for number in range(1000):
        sendto(b"%06d" % number, blocked.address)
        blocked.sent += 1
        if blocked.transport.get_write_buffer_size() > 1000:
            break
    await blocked.read_all()
    await close(blocked.transport)


# ---- the ends ---------------------------------------------------------------------------------


async def test_sending_after_close(
    loop: Loop, plain: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    transport, protocol = await endpoint(loop, remote_addr=plain.getsockname())
    transport.close()
    for _ in range(3):
        transport.sendto(b"late")
    assert await protocol.lost is None
    assert not caplog.records
    for _ in range(5):
        transport.sendto(b"late")
    assert "socket.send() raised exception." in caplog.text
    with pytest.raises(ValueError, match="Invalid address"):
        transport.sendto(b"x", ("127.0.0.1", 1))
    plain.setblocking(False)
    with pytest.raises(BlockingIOError):
        plain.recv(10)


async def test_sending_after_close_without_a_remote_address(
    loop_name: str, loop: Loop, plain: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    transport.close()
    transport.sendto(b"in between", plain.getsockname())
    assert plain.recv(20) == b"in between"
    assert await protocol.lost is None
    if loop_name == "asyncio":
        with pytest.raises(AttributeError):
            transport.sendto(b"late", plain.getsockname())
        return
    for _ in range(5):
        transport.sendto(b"late", plain.getsockname())
    assert "socket.send() raised exception." in caplog.text


async def test_closing_twice(loop: Loop) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    assert not transport.is_closing()
    transport.close()
    transport.close()
    transport.abort()
    await protocol.lost
    transport.close()
    transport.abort()
    await turns()
    assert protocol.calls == ["made", "lost"]
    assert transport.get_protocol() is None
    assert transport.get_extra_info("sockname")[0] == "127.0.0.1"


async def test_closing_in_connection_made(loop: Loop) -> None:
    class Short(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.close()

    transport, protocol = await loop.create_datagram_endpoint(Short, local_addr=("127.0.0.1", 0))
    assert transport.is_closing()
    assert await protocol.lost is None
    assert protocol.calls == ["made", "lost"]


async def test_pausing_and_sending_in_connection_made(loop: Loop, plain: socket.socket) -> None:
    class Early(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.pause_reading()
            transport.sendto(b"early")

    transport, protocol = await loop.create_datagram_endpoint(
        Early, remote_addr=plain.getsockname()
    )
    data, address = plain.recvfrom(10)
    assert data == b"early"
    plain.sendto(b"x", address)
    await turns(10)
    assert protocol.got == []
    transport.resume_reading()
    await until(lambda: protocol.got)
    await close(transport)


async def test_the_number_is_taken_while_open(loop_name: str, loop: Loop) -> None:
    transport, _ = await endpoint(loop, local_addr=("127.0.0.1", 0))
    sock = transport.get_extra_info("socket")
    fd = sock.fileno()
    raw = transport._sock
    for call in (
        lambda: loop.add_reader(fd, print),
        lambda: loop.add_writer(fd, print),
        lambda: loop.remove_reader(fd),
        lambda: loop.remove_writer(sock),
    ):
        with pytest.raises(RuntimeError, match="is used by transport"):
            call()
    with pytest.raises(RuntimeError, match="is used by transport"):
        await loop.sock_recvfrom(raw, 10)
    with pytest.raises(RuntimeError, match="is used by transport"):
        await loop.sock_recv(raw, 10)
    if loop_name == "goloop" or sys.version_info >= (3, 12):
        with pytest.raises(RuntimeError, match="is used by transport"):
            await loop.create_datagram_endpoint(Recorder, sock=raw)
    await close(transport)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as next_one:
        loop.add_reader(next_one, print)
        assert loop.remove_reader(next_one)


async def test_a_watch_before_is_no_hindrance(loop: Loop, plain: socket.socket) -> None:
    """connect() of a socket may have left a silent registration behind."""
    sock = plain.dup()
    sock.setblocking(False)
    waiting = asyncio.ensure_future(loop.sock_recvfrom(sock, 10))
    await turns()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.sendto(b"first", plain.getsockname())
        assert (await waiting)[0] == b"first"
        transport, protocol = await endpoint(loop, sock=sock)
        other.sendto(b"second", plain.getsockname())
        await until(lambda: protocol.got)
    await close(transport)


def test_an_endpoint_that_nobody_closed(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    transport, protocol = loop.run_until_complete(endpoint(loop, local_addr=("127.0.0.1", 0)))
    gone = weakref.ref(transport)
    protocol.transport = None
    # The loop holds it, as asyncio's selector does.
    del transport
    gc.collect()
    assert gone() is not None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        loop.close()
        del loop, protocol
        gc.collect()
    texts = [str(warning.message) for warning in caught if warning.category is ResourceWarning]
    assert any("DatagramTransport fd=" in text for text in texts), texts
    caught.clear()  # a warning holds what it is about
    assert gone() is None


def test_the_loop_is_closed_before(loop_factory: LoopFactory, plain: socket.socket) -> None:
    loop = loop_factory()
    transport, protocol = loop.run_until_complete(endpoint(loop, local_addr=("127.0.0.1", 0)))
    loop.close()
    assert "read=" not in repr(transport)
    transport.sendto(b"x", plain.getsockname())
    assert plain.recv(10) == b"x"
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        transport.close()
    transport._sock.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        protocol.transport = None
        del transport, protocol, loop
        gc.collect()


async def test_a_lost_one_is_garbage(loop: Loop) -> None:
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    transport.extra_attribute = protocol
    await close(transport)
    gone = weakref.ref(transport)
    del transport, protocol
    await turns()
    gc.collect()
    assert gone() is None


def test_the_child_of_a_fork_is_refused(loop_name: str, loop: Loop, plain: socket.socket) -> None:
    if loop_name == "asyncio":
        pytest.skip("asyncio lets the child use its parent's transports")
    transport, protocol = loop.run_until_complete(endpoint(loop, remote_addr=plain.getsockname()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            for call in (
                lambda: transport.sendto(b"child"),
                transport.close,
                transport.abort,
                transport.pause_reading,
                lambda: transport._call_connection_lost(None),
            ):
                with pytest.raises(RuntimeError, match="parent process"):
                    call()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    transport.sendto(b"parent")
    data, address = plain.recvfrom(10)
    assert data == b"parent"
    plain.sendto(b"answer", address)
    loop.run_until_complete(until(lambda: protocol.got))
    loop.run_until_complete(close(transport))


async def test_calls_of_another_thread(loop: Loop) -> None:
    """asyncio forbids them outside of debug mode only in words; nothing may break."""
    serving, server, asking, _ = await pair_of(loop)
    server.on_datagram = lambda data, addr: serving.sendto(data, addr)

    def disturb() -> None:
        for number in range(500):
            asking.sendto(b"%d" % number)
            serving.pause_reading()
            serving.resume_reading()
            loop.call_soon_threadsafe(len, "")

    await loop.run_in_executor(None, disturb)
    await until(lambda: server.got)
    await loop.run_in_executor(None, serving.close)
    await loop.run_in_executor(None, asking.abort)
    assert await server.lost is None


# ---- what it is -------------------------------------------------------------------------------


async def test_types_and_extra_info(loop: Loop) -> None:
    serving, server, asking, _ = await pair_of(loop)
    for transport in (serving, asking):
        assert isinstance(transport, asyncio.BaseTransport)
        assert isinstance(transport, asyncio.Transport)
        if sys.version_info >= (3, 12):
            assert isinstance(transport, asyncio.DatagramTransport)
        sock = transport.get_extra_info("socket")
        assert sock.type == socket.SOCK_DGRAM
        assert transport.get_extra_info("sockname") == sock.getsockname()
        assert transport.get_extra_info("nonsense") is None
        assert transport.get_extra_info("nonsense", 5) == 5
        assert transport.max_size == 256 * 1024
        with pytest.raises(NotImplementedError):
            transport.write(b"x")
    assert serving.get_extra_info("peername") is None
    assert asking.get_extra_info("peername") == serving.get_extra_info("sockname")
    assert serving.get_protocol() is server
    serving.a_note = 1
    assert serving.a_note == 1
    fd = serving.get_extra_info("socket").fileno()
    assert f"fd={fd} read=polling write=<idle, bufsize=0>" in repr(serving)
    serving.close()
    assert f"closing fd={fd} read=idle" in repr(serving)
    await close(asking)
    await server.lost
    assert f"closed fd={fd}>" in repr(serving)


def test_the_native_type(loop_name: str, loop: Loop, plain: socket.socket) -> None:
    if loop_name == "asyncio":
        pytest.skip("goloop's type")
    from goloop.datagrams import DatagramTransport

    kind: Any = DatagramTransport
    assert issubclass(kind, asyncio.DatagramTransport)

    class Other(kind):  # type: ignore[misc]
        pass

    for made in (kind, Other):
        empty = made.__new__(made)
        assert empty.is_closing()
        empty.sendto(b"x", ("127.0.0.1", 9))
        empty.close()
        empty.abort()
        empty.pause_reading()
        assert "closed" in repr(empty)
        del empty
        with pytest.raises(TypeError):
            made()
        with pytest.raises(TypeError):
            made(None, plain, None)
        with pytest.raises(AttributeError):
            made(loop, plain, object())  # no connection_made
        with pytest.raises(ValueError, match="Invalid file"):
            made(loop, object(), None)
    # The socket is still its owner's.
    assert plain.fileno() >= 0
    loop.run_until_complete(turns())

    async def use() -> None:
        protocol = Recorder()
        waiter = loop.create_future()
        transport = Other(loop, plain.dup(), protocol, None, waiter, {"peername": None, "a": 1})
        with pytest.raises(RuntimeError, match="has a socket already"):
            transport.__init__(loop, plain, protocol)
        await waiter
        assert transport.get_extra_info("a") == 1
        await close(transport)

    loop.run_until_complete(use())


async def test_callbacks_run_in_the_context_of_the_creation(loop: Loop) -> None:
    where: contextvars.ContextVar[str] = contextvars.ContextVar("where", default="nowhere")
    seen: list[str] = []

    class Looking(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            seen.append(where.get())

        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            seen.append(where.get())

        def error_received(self, exc: Exception) -> None:
            super().error_received(exc)
            seen.append(where.get())

        def connection_lost(self, exc: Exception | None) -> None:
            seen.append(where.get())
            super().connection_lost(exc)

    async def create() -> tuple[Any, Looking]:
        where.set("inside")
        return await loop.create_datagram_endpoint(Looking, local_addr=("127.0.0.1", 0))

    transport, protocol = await asyncio.create_task(create())
    sender = await flood(protocol, 2)
    await until(lambda: len(protocol.got) == 2)
    transport.sendto(b"x" * 70_000, sender.getsockname())  # in the caller's
    sender.close()
    transport.close()
    await protocol.lost
    assert seen[:3] == ["inside"] * 3
    assert seen[3] == "nowhere"


async def test_debug_mode(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    loop.set_debug(True)
    caplog.set_level(logging.DEBUG, logger="asyncio")
    serving, server, asking, _ = await pair_of(loop)
    serving.pause_reading()
    serving.resume_reading()
    assert "pauses reading" in caplog.text
    assert "resumes reading" in caplog.text
    loop.slow_callback_duration = 0.0  # type: ignore[attr-defined]
    asking.sendto(b"x")
    await until(lambda: server.got)
    assert "took" in caplog.text
    loop.slow_callback_duration = 10.0  # type: ignore[attr-defined]
    await close(serving, asking)


async def test_audit_hook(loop: Loop, plain: socket.socket) -> None:
    """Python's own sendto() raises this event, and programs may watch for it."""
    events: list[Any] = []
    watching = True

    def hook(event: str, args: Any) -> None:
        if watching and event == "socket.sendto":
            events.append(args[1])

    sys.addaudithook(hook)
    transport, _ = await endpoint(loop, local_addr=("127.0.0.1", 0))
    transport.sendto(b"x", plain.getsockname())
    transport.sendto(b"x", ("localhost", plain.getsockname()[1]))
    watching = False
    assert events == [plain.getsockname(), ("localhost", plain.getsockname()[1])]
    await close(transport)


def test_a_thread_of_its_own_loop(loop_factory: LoopFactory) -> None:
    """Endpoints of loops in several threads do not meet."""

    async def echo() -> list[bytes]:
        loop = asyncio.get_running_loop()
        serving, server, asking, client = await pair_of(loop)
        server.on_datagram = serving.sendto
        for number in range(50):
            asking.sendto(b"%d" % number)
            await until(lambda want=number + 1: len(client.got) == want)
        await close(serving, asking)
        return client.data()

    results: list[list[bytes]] = []

    def run() -> None:
        loop = loop_factory()
        try:
            results.append(loop.run_until_complete(echo()))
        finally:
            loop.close()

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [numbers(50)] * 3
