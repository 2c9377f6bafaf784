"""Datagrams there and back, over UDP and Unix sockets, and the arguments of sendto."""

from __future__ import annotations

import array
import asyncio
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Errors
from datagram_tools import LONGEST, close, endpoint, pair_of, unix_datagrams
from protocols import close_each, until

Loop = asyncio.AbstractEventLoop

# Since 3.13 empty datagrams are sent, and each queued one counts for 8 bytes more.
EMPTY_ARE_SENT = sys.version_info >= (3, 13)


# ---- there and back ------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_datagrams_go_both_ways(loop: Loop, host: str) -> None:
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


async def test_unix_datagrams_go_both_ways_by_path(loop: Loop, tmp_path: Path) -> None:
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
async def test_unix_datagrams_go_by_abstract_name(loop: Loop) -> None:
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


async def test_host_names_are_resolved_for_binding_and_connecting(loop: Loop) -> None:
    serving, server = await endpoint(loop, local_addr=("localhost", 0), family=socket.AF_INET)
    port = serving.get_extra_info("sockname")[1]
    asking, _ = await endpoint(loop, remote_addr=("localhost", port), family=socket.AF_INET)
    asking.sendto(b"connected")
    free, _ = await endpoint(loop, family=socket.AF_INET)
    free.sendto(b"by another", ("127.1", port))
    free.sendto(b"anywhere", ("", port))
    await until(lambda: len(server.got) == 3)
    assert server.data() == [b"connected", b"by another", b"anywhere"]
    await close(free, asking, serving)


async def test_a_given_socket_is_used_and_closed(loop: Loop, udp: socket.socket) -> None:
    sock = udp.dup()
    transport, protocol = await endpoint(loop, sock=sock)
    assert sock.gettimeout() == 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.sendto(b"x", udp.getsockname())
        await until(lambda: protocol.got)
        other.settimeout(10)
        transport.sendto(b"y", protocol.got[0][1])
        assert other.recvfrom(10) == (b"y", udp.getsockname())
    await close(transport)
    assert sock.fileno() == -1


async def test_broadcast_is_not_connected(loop: Loop, udp: socket.socket) -> None:
    address = udp.getsockname()
    transport, protocol = await endpoint(loop, remote_addr=address, allow_broadcast=True)
    sock = transport.get_extra_info("socket")
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST)
    assert transport.get_extra_info("peername") is None
    transport.sendto(b"one")
    transport.sendto(b"two", address)
    assert [udp.recv(10), udp.recv(10)] == [b"one", b"two"]
    # A socket that is not connected receives from all senders.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.sendto(b"x", ("127.0.0.1", sock.getsockname()[1]))
        await until(lambda: protocol.got)
    transport.sendto(b"three")
    assert udp.recv(10) == b"three"
    await close(transport)


async def test_two_endpoints_share_a_port_by_reuse_port(loop: Loop) -> None:
    first, one = await endpoint(loop, local_addr=("127.0.0.1", 0), reuse_port=True)
    address = first.get_extra_info("sockname")
    second, two = await endpoint(loop, local_addr=address, reuse_port=True)
    senders = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(50)]
    for sender in senders:
        sender.sendto(b"x", address)
    await until(lambda: len(one.got) + len(two.got) == 50)
    assert one.got
    assert two.got
    close_each(*senders)
    await close(first, second)


@pytest.mark.skipif(not hasattr(socket, "AF_NETLINK"), reason="netlink is Linux's")
async def test_a_family_that_only_python_knows_exchanges_datagrams(loop: Loop) -> None:
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


async def test_each_of_many_peers_keeps_its_address(loop: Loop) -> None:
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
    close_each(*peers)
    await close(transport)


async def test_datagrams_of_every_length_arrive_whole(loop: Loop, udp: socket.socket) -> None:
    transport, protocol = await endpoint(
        loop, local_addr=("127.0.0.1", 0), remote_addr=udp.getsockname()
    )
    sizes = [0, 1, 1400, 9000, LONGEST, 0, LONGEST]
    for number, size in enumerate(sizes):
        udp.sendto(bytes([number]) * size, transport.get_extra_info("sockname"))
        if size > 9000:
            await until(lambda want=number + 1: len(protocol.got) == want)
    await until(lambda: len(protocol.got) == len(sizes))
    assert protocol.data() == [bytes([number]) * size for number, size in enumerate(sizes)]
    await close(transport)


async def test_long_datagrams_among_short_ones_arrive_whole(loop: Loop, udp: socket.socket) -> None:
    """Several wait at a time, for each of three sockets: they are received together."""
    opened = [await endpoint(loop, local_addr=("127.0.0.1", 0)) for _ in range(3)]
    sizes = [3, 1532, 20_000, 0, 1533, 1531, 7, 9000]
    sent: dict[Any, list[bytes]] = {protocol: [] for _, protocol in opened}
    for round in range(12):
        for number, (transport, protocol) in enumerate(opened):
            for at, size in enumerate(sizes if (round + number) % 3 else sizes[:1] * 8):
                data = bytes([round * 20 + number * 8 + at & 255]) * size
                udp.sendto(data, transport.get_extra_info("sockname"))
                sent[protocol].append(data)
        await until(lambda: all(len(each.got) == len(sent[each]) for each in sent))
    for transport, protocol in opened:
        assert protocol.got == [(data, udp.getsockname()) for data in sent[protocol]]
        await close(transport)


async def test_long_unix_datagrams_are_truncated_as_by_asyncio(loop: Loop, tmp_path: Path) -> None:
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


# ---- arguments of sendto ----------------------------------------------------------------


async def test_sendto_takes_every_kind_of_bytes(loop: Loop, udp: socket.socket) -> None:
    transport, _ = await endpoint(loop, remote_addr=udp.getsockname())
    numbers = array.array("H", [0x3130, 0x3332])
    for data in (b"0123", bytearray(b"0123"), memoryview(b"x0123")[1:], memoryview(numbers)):
        transport.sendto(data)
        assert udp.recv(10) == bytes(data)
    transport.sendto(data=b"named", addr=None)
    transport.sendto(b"half", addr=udp.getsockname())
    assert [udp.recv(10), udp.recv(10)] == [b"named", b"half"]
    await close(transport)


async def test_empty_datagrams_are_sent_where_asyncio_sends_them(
    loop: Loop, udp: socket.socket
) -> None:
    transport, protocol = await endpoint(loop, remote_addr=udp.getsockname())
    for empty in (b"", bytearray(), memoryview(b"")):
        transport.sendto(empty)
    transport.sendto(b"end")
    came = [udp.recv(10)]
    while came[-1] != b"end":
        came.append(udp.recv(10))
    assert came == ([b""] * 3 if EMPTY_ARE_SENT else []) + [b"end"]
    udp.sendto(b"", transport.get_extra_info("sockname"))
    await until(lambda: protocol.got)
    assert protocol.got == [(b"", udp.getsockname())]
    await close(transport)


async def test_connected_endpoint_accepts_only_its_own_address(
    loop: Loop, udp: socket.socket
) -> None:
    transport, _ = await endpoint(loop, remote_addr=udp.getsockname())
    host, port = udp.getsockname()
    transport.sendto(b"same", (host, port))
    assert udp.recv(10) == b"same"
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
@pytest.mark.parametrize("queued", [False, True])
async def test_a_wrong_address_is_reported(
    loop: Loop, loop_name: str, errors: Errors, address: Any, kind: type[Exception], queued: bool
) -> None:
    """In asyncio it ends the endpoint; a program with thousands of peers can't have that."""
    transport, protocol = await endpoint(loop, local_addr=("127.0.0.1", 0))
    if queued and loop_name == "goloop":
        transport._enqueue(b"x", address)
        transport._enqueue(b"y", transport.get_extra_info("sockname"))
        transport._drain()
    else:
        transport.sendto(b"x", address)
    if loop_name == "asyncio":
        assert isinstance(await protocol.lost, kind)
        errors.expect(kind, "Fatal write error on datagram transport")
        return
    context = errors.expect(kind, "A datagram was dropped, because its address is invalid")
    assert context["transport"] is transport
    assert context["protocol"] is protocol
    assert not transport.is_closing()
    if not queued:
        transport.sendto(b"y", transport.get_extra_info("sockname"))
    await until(protocol.data)
    assert protocol.data() == [b"y"]
    transport.close()
    assert await protocol.lost is None


async def test_a_view_in_pieces_is_fatal(loop: Loop, errors: Errors) -> None:
    transport, protocol = await endpoint(loop, remote_addr=("127.0.0.1", 9))
    transport.sendto(memoryview(b"abcd")[::2])
    assert isinstance(await protocol.lost, BufferError)
    errors.expect(BufferError, "Fatal write error on datagram transport")


async def test_each_datagram_goes_to_its_own_address(loop: Loop) -> None:
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
    close_each(*receivers)
    await close(transport)
