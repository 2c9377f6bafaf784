"""IPv6 between the hosts of a simulation, and keep-alive probes of TCP."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest

from goloop import testing

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)
    writer.close()


async def serve(host: str | None = None) -> None:
    async with await asyncio.start_server(echo, host, 80) as server:
        await server.serve_forever()


async def ask(*where: Any, **options: Any) -> tuple[Any, ...]:
    """Both names of a connection that answers."""
    reader, writer = await asyncio.open_connection(*where, **options)
    writer.write(b"x")
    assert await reader.readexactly(1) == b"x"
    names = writer.get_extra_info("sockname")[0], writer.get_extra_info("peername")[0]
    writer.close()
    return names


def test_a_host_has_addresses_of_both_families() -> None:
    async def main(sim: testing.Simulation) -> None:
        a, b = sim.host("a", ipv6=True), sim.host("b")
        a.spawn(serve)
        await asyncio.sleep(1)
        assert (a.address, a.address6, a.ipv6, b.ipv6) == ("10.0.0.1", "fd00::1", True, False)
        assert await b.spawn(ask, "a", 80) == (b.address, a.address)
        assert await b.spawn(ask, a.address6, 80) == (b.address6, a.address6)
        assert await b.spawn(ask, "a", 80, family=socket.AF_INET6) == (b.address6, a.address6)
        assert await a.spawn(ask, "localhost", 80) == ("::1", "::1")
        assert await a.spawn(ask, "::1", 80) == ("::1", "::1")
        assert await a.spawn(ask, "localhost", 80, family=socket.AF_INET) == ("127.0.0.1",) * 2
        with pytest.raises(OSError, match="Multiple exceptions"):
            await b.spawn(ask, "a", 81)
        with pytest.raises(ConnectionRefusedError):
            await a.spawn(ask, "b", 80)
        with pytest.raises(OSError, match="unreachable"):
            await b.spawn(ask, "fd00::9", 80)
        infos = socket.getaddrinfo("a", 80, type=socket.SOCK_STREAM)
        assert [each[4][0] for each in infos] == [a.address, a.address6]
        assert socket.getaddrinfo("b", 80, socket.AF_INET6)[0][4][0] == b.address6
        assert {each[0] for each in socket.getaddrinfo("b", 80)} == {socket.AF_INET}
        sim.net.partition({"a"}, {"b"})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(b.spawn(ask, a.address6, 80), 5)

    assert testing.run(main).trace == testing.run(main).trace


@testing.simulate(seeds=1)
async def test_datagrams_of_ipv6(sim: testing.Simulation) -> None:
    got = []

    class Receiver(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            got.append((data, addr[0]))

    async def receive() -> None:
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(Receiver, local_addr=("::", 53))
        await asyncio.sleep(100)

    async def send(to: str) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(Receiver, remote_addr=(to, 53))
        transport.sendto(b"x")
        await asyncio.sleep(1)
        transport.close()

    a, b = sim.host("a"), sim.host("b")
    a.spawn(receive)
    await asyncio.sleep(1)
    await b.spawn(send, a.address6)
    assert got == [(b"x", b.address6)]


@pytest.mark.parametrize("policy", ["io", "shuffle"])
def test_happy_eyeballs_take_the_family_that_answers_first(policy: str) -> None:
    async def deaf(host: testing.Host) -> None:
        """Do not answer on IPv4: the queue of connections is full."""
        with socket.socket() as listener, socket.socket() as other:
            listener.bind((host.address, 80))
            listener.listen(0)
            other.setblocking(False)
            await asyncio.get_running_loop().sock_connect(other, (host.address, 80))
            await serve(host.address6)

    async def main(sim: testing.Simulation) -> None:
        a, b = sim.host("a", ipv6=True), sim.host("b")
        a.spawn(deaf, a)
        await asyncio.sleep(1)
        began = sim.time()
        assert await b.spawn(ask, "a", 80, happy_eyeballs_delay=0.25) == (b.address6, a.address6)
        assert 0.25 < sim.time() - began < 0.5
        began = sim.time()
        assert await b.spawn(ask, "a", 80) == (b.address6, a.address6)
        assert sim.time() - began > 100  # the SYN was sent again and again

    testing.run(main, policy=policy)


def keeps_alive(sock: Any, idle: int, interval: int, count: int) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, count)


async def silent(outcomes: list[Any]) -> None:
    """A connection that sends nothing, until it ends."""
    reader, writer = await asyncio.open_connection("server", 80)
    keeps_alive(writer.get_extra_info("socket"), 60, 10, 5)
    began = asyncio.get_running_loop().time()
    try:
        await reader.read()
    except OSError as exc:
        outcomes.append((exc.errno, round(asyncio.get_running_loop().time() - began)))
    writer.close()


def restarts(sim: testing.Simulation) -> None:
    sim.host("unused")
    server = sim._session.hosts.by_name()["server"]
    server.crash()
    server.restart()


@pytest.mark.parametrize(
    ("trouble", "outcome"),
    [
        (lambda sim: sim.net.partition({"server"}, {"client"}), (errno.ETIMEDOUT, 110)),
        (restarts, (errno.ECONNRESET, 60)),
    ],
    ids=["partition", "restart"],
)
def test_keepalive_probes_find_the_state_of_a_peer(
    trouble: Callable[[testing.Simulation], None], outcome: tuple[int, int]
) -> None:
    outcomes: list[Any] = []

    async def main(sim: testing.Simulation) -> None:
        server, client = sim.host("server"), sim.host("client")
        server.spawn(serve)
        await asyncio.sleep(1)
        asking = client.spawn(silent, outcomes)
        await asyncio.sleep(1)
        trouble(sim)
        await asking

    testing.run(main, max_time=10_000)
    assert outcomes == [outcome]


def test_probes_that_are_answered_do_not_hide_a_deadlock() -> None:
    async def main(sim: testing.Simulation) -> None:
        server, client = sim.host("server"), sim.host("client")
        server.spawn(serve)
        await asyncio.sleep(1)
        await client.spawn(silent, [])

    with pytest.raises(testing.SimulationDeadlock):
        testing.run(main)


@testing.simulate(seeds=1)
async def test_options_of_probes_are_linuxs() -> None:
    with socket.socket() as sock:
        for option, usual, most in (
            (socket.TCP_KEEPIDLE, 7200, 32767),
            (socket.TCP_KEEPINTVL, 75, 32767),
            (socket.TCP_KEEPCNT, 9, 127),
        ):
            assert sock.getsockopt(socket.IPPROTO_TCP, option) == usual
            sock.setsockopt(socket.IPPROTO_TCP, option, most)
            assert sock.getsockopt(socket.IPPROTO_TCP, option) == most
            for wrong in (0, most + 1):
                with pytest.raises(OSError, match="Invalid argument"):
                    sock.setsockopt(socket.IPPROTO_TCP, option, wrong)


def trace_of_both_families(seed: int) -> str:
    async def main(sim: testing.Simulation) -> None:
        sim.host("a", ipv6=True).spawn(serve)
        await asyncio.sleep(1)

    trace = testing.run(main, seed=seed).trace
    assert "bind" in trace
    return trace
