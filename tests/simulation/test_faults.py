"""Faults of the simulated kernel, and the reactions of goloop's transports."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest

from goloop import testing

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")

PAYLOAD = bytes(range(256)) * 40
# Faults that lose no byte and break no connection.
HARMLESS = {
    "short_reads": 0.3,
    "short_writes": 0.3,
    "one_byte": 0.1,
    "interrupted": 0.2,
    "would_block": 0.2,
    "late_readiness": 0.2,
    "spurious_readiness": 0.3,
}


class Collector(asyncio.Protocol):
    """Receives bytes until the end; `lost` is the argument of connection_lost()."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


class Echo(Collector):
    """Sends all back."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)


async def connected(sim: testing.Simulation) -> tuple[Collector, Echo]:
    """A client and its server, before there are faults."""
    loop = asyncio.get_running_loop()
    made: list[Echo] = []

    def echo() -> Echo:
        made.append(Echo())
        return made[-1]

    server = await loop.create_server(echo, "localhost", 80)
    _, client = await loop.create_connection(Collector, "localhost", 80)
    while not made:
        await asyncio.sleep(0.001)
    server.close()
    return client, made[0]


async def echoed(sim: testing.Simulation, **faults: Any) -> bytes:
    """Return the echoed payload; the faults begin before there is a connection."""
    loop = asyncio.get_running_loop()
    sim.faults.set(**faults)
    server = await loop.create_server(Echo, "localhost", 80)
    _, client = await loop.create_connection(Collector, "localhost", 80)
    for start in range(0, len(PAYLOAD), 200):
        client.transport.write(PAYLOAD[start : start + 200])
        await asyncio.sleep(0.001)
    client.transport.write_eof()
    assert await client.lost is None
    server.close()
    return bytes(client.got)


@pytest.mark.parametrize("seed", range(50))
def test_every_byte_arrives_once_and_in_order(seed: int) -> None:
    async def main(sim: testing.Simulation) -> bytes:
        return await echoed(sim, **HARMLESS)

    result = testing.run(main, seed=seed, max_time=3600)
    assert result.value == PAYLOAD
    assert " = EINTR\n" in result.trace
    assert " * late\n" in result.trace


@pytest.mark.parametrize("seed", range(10))
def test_streams_deliver_every_byte_between_hosts(seed: int) -> None:
    """Streams of asyncio, from one host to another, which has the faults."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(700):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def server() -> None:
        async with await asyncio.start_server(serve, None, 80) as made:
            await made.serve_forever()

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("b", 80)
        with contextlib.closing(writer):
            writer.write(PAYLOAD)
            writer.write_eof()
            return await reader.read()

    async def main(sim: testing.Simulation) -> bytes:
        a, b = sim.host("a"), sim.host("b")
        b.faults.set(**HARMLESS)
        b.spawn(server)
        await asyncio.sleep(1)
        answer: bytes = await a.spawn(ask)
        return answer

    assert testing.run(main, seed=seed, max_time=3600).value == PAYLOAD


def sizes(trace: str, call: str) -> set[int]:
    """The results of a call."""
    lines = (line.split(" ", 1)[1] for line in trace.splitlines())
    found = (line.rpartition(" = ")[2] for line in lines if line.startswith(f"{call}("))
    return {int(each) for each in found if each.isdigit()}


@pytest.mark.parametrize(
    ("name", "shows"),
    [
        ("short_reads", lambda trace: len(sizes(trace, "recv")) > 20),
        ("short_writes", lambda trace: len(sizes(trace, "send")) > 5),
        ("one_byte", lambda trace: {1} <= sizes(trace, "recv") & sizes(trace, "send")),
        ("interrupted", lambda trace: "EINTR" in trace),
        ("would_block", lambda trace: " * again\n" in trace),
        ("late_readiness", lambda trace: " * late\n" in trace),
        ("spurious_readiness", lambda trace: trace.count("EAGAIN") > 20),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_fault_has_the_effect_of_its_name(name: str, shows: Callable[[str], bool]) -> None:
    async def main(sim: testing.Simulation) -> bytes:
        return await echoed(sim, **{name: 0.5})

    async def without(sim: testing.Simulation) -> bytes:
        return await echoed(sim)

    result = testing.run(main, max_time=3600)
    assert result.value == PAYLOAD
    assert shows(result.trace)
    assert not shows(testing.run(without, max_time=3600).trace)


def test_the_same_seed_has_the_same_faults() -> None:
    async def main(sim: testing.Simulation) -> bytes:
        return await echoed(sim, **HARMLESS)

    traces = [testing.run(main, seed=seed).trace for seed in (3, 3, 4)]
    assert traces[0] == traces[1] != traces[2]


@pytest.mark.parametrize(
    ("name", "number"),
    [("connection_reset", errno.ECONNRESET), ("connection_timeout", errno.ETIMEDOUT)],
)
def test_a_broken_connection_reaches_connection_lost(name: str, number: int) -> None:
    async def main(sim: testing.Simulation) -> list[Exception | None]:
        client, server = await connected(sim)
        sim.faults.set(**{name: 1.0})
        client.transport.write(b"x")
        return [await client.lost, await server.lost]

    here, there = testing.run(main, max_time=60).value
    assert isinstance(here, OSError)
    assert isinstance(there, ConnectionResetError)
    assert here.errno == number


def test_resets_end_some_connections_and_no_bytes_are_made_up() -> None:
    ended = set()

    async def main(sim: testing.Simulation) -> None:
        client, _ = await connected(sim)
        sim.faults.set(connection_reset=0.02, short_reads=0.5)
        client.transport.write(PAYLOAD)
        client.transport.write_eof()
        lost = await client.lost
        ended.add(type(lost))
        assert PAYLOAD.startswith(bytes(client.got))
        assert lost is not None or bytes(client.got) == PAYLOAD

    for seed in range(40):
        testing.run(main, seed=seed, max_time=3600)
    assert ended == {type(None), ConnectionResetError}


def test_faults_never_report_an_unconnected_socket_as_connected() -> None:
    """Linux reports a socket that connects when it has the answer."""

    async def main(sim: testing.Simulation) -> None:
        loop = asyncio.get_running_loop()
        sim.faults.set(spurious_readiness=0.9, late_readiness=0.5, would_block=0.5)
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Collector, "localhost", 80)
        with socket.socket() as sock:
            sock.setblocking(False)
            with pytest.raises(ConnectionRefusedError):
                await loop.sock_connect(sock, ("127.0.0.1", 80))

    for seed in range(10):
        testing.run(main, seed=seed, max_time=3600)


def test_unix_sockets_are_reset_and_have_no_timeouts() -> None:
    async def main(sim: testing.Simulation) -> None:
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        _, a = await loop.create_connection(Collector, sock=one)
        _, b = await loop.create_connection(Echo, sock=other)
        sim.faults.set(connection_timeout=1.0)
        a.transport.write(b"x")
        await asyncio.sleep(1)
        assert a.got == b"x"
        sim.faults.set(connection_reset=1.0)
        b.transport.write(b"x")
        assert isinstance(await b.lost, ConnectionError)
        assert await a.lost is None  # all data had been read

    testing.run(main, max_time=3600)


@pytest.mark.parametrize("fault", [{"descriptors": 3}, {"no_buffers": 1.0}], ids=str)
def test_server_without_resources_backs_off_and_continues(fault: dict[str, Any]) -> None:
    """A listener and two connections are all that the host may have, or no connection."""
    contexts: list[dict[str, Any]] = []

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Echo, None, 80)
        await server.serve_forever()

    async def ask(number: int) -> bytes:
        reader, writer = await asyncio.open_connection("b", 80)
        with contextlib.closing(writer):
            writer.write(b"%d" % number)
            return await reader.readexactly(1)

    async def main(sim: testing.Simulation) -> list[bytes]:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: contexts.append(context)
        )
        a, b = sim.host("a"), sim.host("b")
        b.spawn(serve)
        await asyncio.sleep(1)
        b.faults.set(**fault)
        asked = [a.spawn(ask, number) for number in range(6)]
        await asyncio.sleep(10)
        b.faults.clear()
        return [await each for each in asked]

    result = testing.run(main, max_time=3600)
    assert result.value == [b"%d" % number for number in range(6)]
    named = errno.errorcode[errno.EMFILE if "descriptors" in fault else errno.ENOBUFS]
    assert 0 < result.trace.count(f" = {named}\n") < 100  # no busy loop in ten seconds
    assert [context["exception"].errno for context in contexts]


def test_a_host_may_have_so_many_sockets_until_it_is_killed() -> None:
    async def hold(counts: asyncio.Queue[int]) -> None:
        held: list[socket.socket] = []
        with pytest.raises(OSError, match="Too many open files") as failed:  # noqa: PT012
            while True:
                held.append(socket.socket())
        assert failed.value.errno == errno.EMFILE
        counts.put_nowait(len(held))
        held.pop().close()
        held.append(socket.socket())  # in the place of that one
        with pytest.raises(OSError, match="Too many open files"):
            held[0].dup()
        counts.put_nowait(len(held))
        await asyncio.get_running_loop().create_future()

    async def main(sim: testing.Simulation) -> list[int]:
        counts: asyncio.Queue[int] = asyncio.Queue()
        sim.faults.set(descriptors=4)
        a, b = sim.host("a"), sim.host("b")
        b.faults.set(descriptors=2)
        found = []
        for host in (a, b):
            host.spawn(hold, counts)
            found += [await counts.get(), await counts.get()]
        for end in (b.kill, b.crash):
            end()
            b.restart()
            found += [await counts.get(), await counts.get()]
        return found

    assert testing.run(main, max_time=60).value == [4, 4, 2, 2, 2, 2, 2, 2]


def test_faults_are_of_a_host_and_end() -> None:
    async def main(sim: testing.Simulation) -> list[str]:
        a, b = sim.host("a"), sim.host("b")

        async def send(to: str) -> str:
            loop = asyncio.get_running_loop()
            lost = loop.create_future()

            class Errors(asyncio.DatagramProtocol):
                def error_received(self, exc: Exception) -> None:
                    lost.set_result(exc)

            transport, _ = await loop.create_datagram_endpoint(Errors, local_addr=("0.0.0.0", 0))
            with contextlib.closing(transport):
                transport.sendto(b"x", (to, 9))
                done, _ = await asyncio.wait([lost], timeout=0.01)
                return errno.errorcode[lost.result().errno] if done else "sent"

        async def both() -> str:
            first = await a.spawn(send, b.address)
            second = await b.spawn(send, a.address)
            return f"{first} {second}"

        found = []
        sim.faults.set(no_buffers=1)
        found.append(await both())
        b.faults.set()
        found.append(await both())
        b.faults.clear()
        found.append(await both())
        sim.faults.clear()
        a.faults.set(no_buffers=1)
        a.crash()
        a.restart()
        found.append(await both())
        return found

    assert testing.run(main, max_time=60).value == [
        "ENOBUFS ENOBUFS",
        "ENOBUFS sent",
        "ENOBUFS ENOBUFS",
        "ENOBUFS sent",
    ]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"short_reads": -0.1}, ValueError),
        ({"short_reads": 1.1}, ValueError),
        ({"short_reads": float("nan")}, ValueError),
        ({"short_reads": "0.1"}, TypeError),
        ({"short_reads": True}, TypeError),
        ({"interrupted": 1}, ValueError),
        ({"would_block": 1}, ValueError),
        ({"spurious_readiness": 1}, ValueError),
        ({"descriptors": 0}, ValueError),
        ({"descriptors": 1 << 31}, ValueError),
        ({"descriptors": 1.5}, TypeError),
        ({"descriptors": True}, TypeError),
        ({"lightning": 0.1}, TypeError),
    ],
)
def test_wrong_faults(wrong: dict[str, Any], error: type[Exception]) -> None:
    async def main(sim: testing.Simulation) -> None:
        sim.faults.set(connection_reset=1.0)
        with pytest.raises(error, match=next(iter(wrong))):
            sim.faults.set(**wrong)
        client, _ = await connected(sim)
        client.transport.write(b"x")
        assert isinstance(await client.lost, ConnectionResetError)  # the connection still exists

    testing.run(main, max_time=60)
