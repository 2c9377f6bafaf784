"""Public bug reports about datagram endpoints: each program of a report ends as on asyncio."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from protocols import turns, until

HOST = "127.0.0.1"


class Noting(asyncio.DatagramProtocol):
    """Notes the received datagrams."""

    def __init__(self) -> None:
        self.data: list[tuple[bytes, Any]] = []
        self.errors: list[type[Exception]] = []
        self.lost = False

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.data.append((data, addr))

    def error_received(self, exc: Exception) -> None:
        self.errors.append(type(exc))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


async def endpoint(**options: Any) -> tuple[asyncio.DatagramTransport, Noting]:
    return await asyncio.get_running_loop().create_datagram_endpoint(Noting, **options)


async def close(transport: asyncio.DatagramTransport, protocol: Noting) -> None:
    transport.close()
    await until(lambda: protocol.lost)


@pytest.mark.report("MagicStack/uvloop#45")
async def test_endpoint_with_both_addresses_sends_to_the_remote_one(
    loop: asyncio.AbstractEventLoop, udp: socket.socket
) -> None:
    made = await endpoint(local_addr=("127.0.0.2", 0), remote_addr=udp.getsockname())
    made[0].sendto(b"x")
    assert await asyncio.to_thread(udp.recvfrom, 10) == (b"x", made[0].get_extra_info("sockname"))
    await close(*made)


@pytest.mark.report("MagicStack/uvloop#98")
async def test_ipv6_endpoint_without_addresses(loop: asyncio.AbstractEventLoop) -> None:
    receiver = await endpoint(local_addr=("::1", 0))
    sender = await endpoint(family=socket.AF_INET6)
    sender[0].sendto(b"x", receiver[0].get_extra_info("sockname")[:2])
    await until(lambda: receiver[1].data)
    await close(*receiver)
    await close(*sender)


@pytest.mark.report("MagicStack/uvloop#196")
async def test_unix_socket_sends_to_a_path(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    first, second = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
    with first, second:
        first.bind(str(tmp_path / "first"))
        second.bind(str(tmp_path / "second"))
        made = await endpoint(sock=first)
        made[0].sendto(b"x", str(tmp_path / "second"))  # type: ignore[arg-type]
        assert await asyncio.to_thread(second.recv, 10) == b"x"
        await close(*made)


@pytest.mark.report("MagicStack/uvloop#207")
async def test_sendto_after_close_does_not_raise(
    loop: asyncio.AbstractEventLoop, udp: socket.socket
) -> None:
    made = await endpoint(remote_addr=udp.getsockname())
    made[0].close()
    made[0].sendto(b"x")
    await close(*made)


@pytest.mark.report("MagicStack/uvloop#214")
async def test_connected_endpoint_refuses_another_address(
    loop: asyncio.AbstractEventLoop, udp: socket.socket
) -> None:
    made = await endpoint(remote_addr=udp.getsockname())
    for _ in range(2):
        with pytest.raises(ValueError, match="Invalid address"):
            made[0].sendto(b"x", (HOST, 9))
    await close(*made)


@pytest.mark.report("MagicStack/uvloop#276")
async def test_endpoint_with_a_local_and_a_remote_address(loop: asyncio.AbstractEventLoop) -> None:
    server = await endpoint(local_addr=(HOST, 0))
    remote = server[0].get_extra_info("sockname")
    client = await endpoint(remote_addr=remote, local_addr=(HOST, 0))
    assert client[0].get_extra_info("peername") == remote
    await close(*client)
    await close(*server)


@pytest.mark.report("MagicStack/uvloop#304")
async def test_datagram_of_a_socket_without_an_address(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    bound, unbound = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
    with bound, unbound:
        bound.bind(str(tmp_path / "bound"))
        made = await endpoint(sock=bound)
        unbound.sendto(b"x", str(tmp_path / "bound"))
        await until(lambda: made[1].data or made[1].errors)
        assert [data for data, _ in made[1].data] == [b"x"]
        assert not made[1].data[0][1]
        await close(*made)


@pytest.mark.report("MagicStack/uvloop#319")
async def test_connected_endpoint_sends_to_its_own_remote_address(
    loop: asyncio.AbstractEventLoop, udp: socket.socket
) -> None:
    made = await endpoint(remote_addr=udp.getsockname())
    made[0].sendto(b"x", udp.getsockname())
    assert await asyncio.to_thread(udp.recv, 10) == b"x"
    await close(*made)


@pytest.mark.report("MagicStack/uvloop#338")
async def test_endpoint_survives_a_destination_that_cannot_be_sent_to(
    loop: asyncio.AbstractEventLoop, udp: socket.socket
) -> None:
    made = await endpoint(local_addr=(HOST, 0))
    made[0].sendto(b"x", (HOST, 0))
    await until(lambda: made[1].errors)
    await turns()
    assert not made[0].is_closing()
    made[0].sendto(b"y", udp.getsockname())
    assert await asyncio.to_thread(udp.recv, 10) == b"y"
    assert made[1].errors == [OSError]
    await close(*made)


@pytest.mark.report("MagicStack/uvloop#561")
async def test_sock_sendto_and_sock_recvfrom(
    loop: asyncio.AbstractEventLoop, udp: socket.socket
) -> None:
    udp.setblocking(False)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        assert await loop.sock_sendto(sender, b"test", udp.getsockname()) == 4
        assert await loop.sock_recvfrom(udp, 10) == (b"test", (HOST, sender.getsockname()[1]))


@pytest.mark.report("MagicStack/uvloop#601")
async def test_refused_datagram_comes_to_error_received_and_the_endpoint_goes_on(
    loop: asyncio.AbstractEventLoop,
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind((HOST, 0))
        remote = gone.getsockname()
    made = await endpoint(remote_addr=remote)
    made[0].sendto(b"x")
    await until(lambda: made[1].errors)
    assert made[1].errors == [ConnectionRefusedError]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as back:
        back.bind(remote)
        made[0].sendto(b"y")
        assert await asyncio.to_thread(back.recv, 10) == b"y"
    await close(*made)


@pytest.mark.report("python/asyncio#266")
async def test_endpoint_of_a_socket_that_the_program_prepared(
    loop: asyncio.AbstractEventLoop, udp: socket.socket
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as prepared:
        prepared.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        prepared.bind((HOST, 0))
        made = await endpoint(sock=prepared)
        own = made[0].get_extra_info("socket")
        assert own.getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST) == 1
        made[0].sendto(b"x", udp.getsockname())
        assert await asyncio.to_thread(udp.recv, 10) == b"x"
        await close(*made)
