"""The network between the hosts of a simulation, as tests set it.

The rules of its packets: netloop/simulated/hosts_test.go.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import sys
from collections.abc import Callable
from typing import Any

import pytest

from goloop import testing

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")


async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers each byte, and notes when it came."""
    with contextlib.closing(writer):
        while data := await reader.read(1 << 20):
            writer.write(data)


async def serve() -> None:
    async with await asyncio.start_server(count, None, 80) as server:
        await server.serve_forever()


async def echoed(data: bytes, limit: float | None = None) -> float:
    """Return the seconds until the server has sent back this number of bytes."""
    reader, writer = await asyncio.open_connection("b", 80)
    loop = asyncio.get_running_loop()
    with contextlib.closing(writer):
        begun = loop.time()
        writer.write(data)
        async with asyncio.timeout(limit):
            assert await reader.readexactly(len(data)) == data
        return loop.time() - begun


def on_two(main: Callable[..., Any], seed: int = 0) -> Any:
    async def both(sim: testing.Simulation) -> Any:
        a, b = sim.host("a"), sim.host("b")
        b.spawn(serve)
        await asyncio.sleep(1)
        return await main(sim, a, b)

    return testing.run(both, seed=seed).value


def test_a_link_has_a_latency_and_a_bandwidth() -> None:
    async def main(sim: testing.Simulation, a: testing.Host, _: testing.Host) -> None:
        sim.net.set_link("a", "b", latency=0.5)
        assert await a.spawn(echoed, b"x") == pytest.approx(1)
        sim.net.set_link(a, "b", latency=(0.1, 0.2), bandwidth=1e4)
        assert 2.2 < await a.spawn(echoed, b"x" * 10_000) < 2.5
        sim.net.set_link("b", a)
        assert await a.spawn(echoed, b"x" * 10_000) < 0.1

    on_two(main)


def test_loss_delays_streams() -> None:
    async def main(sim: testing.Simulation, a: testing.Host, _: testing.Host) -> float:
        sim.net.set_link("a", "b", latency=0.001, loss=0.5, fragment=1)
        seconds: float = await a.spawn(echoed, b"x" * 100)
        return seconds

    assert on_two(main) > 0.2


def test_a_partition_lasts_until_it_heals() -> None:
    async def main(sim: testing.Simulation, a: testing.Host, b: testing.Host) -> None:
        sim.net.partition({"a"}, {"b"})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(a.spawn(echoed, b"x"), 60)
        with pytest.raises(TimeoutError) as info:
            await a.spawn(echoed, b"x")
        assert info.value.errno == errno.ETIMEDOUT
        await echoed(b"the main function's is open")
        sim.net.heal()
        sim.net.partition({"b"}, {"a", "b"})
        with pytest.raises(TimeoutError):
            await a.spawn(echoed, b"x")
        await sim.host("c").spawn(echoed, b"another host's is, too")
        await b.spawn(echoed, b"nor is a host parted from itself")
        sim.net.heal()
        assert await a.spawn(echoed, b"x") < 0.1

    on_two(main)


def test_a_partition_of_one_way() -> None:
    class Notes(asyncio.DatagramProtocol):
        def __init__(self, name: str) -> None:
            self.name = name

        def datagram_received(self, data: bytes, address: Any) -> None:
            seen.append((self.name, data))

    seen: list[tuple[str, bytes]] = []

    async def sends(name: str, peer: str) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: Notes(name), local_addr=("0.0.0.0", 53)
        )
        with contextlib.closing(transport):
            for n in range(5):
                transport.sendto(b"%d" % n, peer)
                await asyncio.sleep(10)

    async def main(sim: testing.Simulation) -> None:
        a, b = sim.host("a"), sim.host("b")
        done = [
            each.spawn(sends, each.name, (other.address, 53)) for each, other in ((a, b), (b, a))
        ]
        await asyncio.sleep(5)
        sim.net.partition_oneway([a], [b])
        await asyncio.sleep(10)
        sim.net.heal([b], [a])
        sim.net.partition([b], [a])
        await asyncio.sleep(10)
        sim.net.heal()
        sim.net.hold([a], [b])
        await asyncio.sleep(20)
        assert ("b", b"3") not in seen
        sim.net.heal()
        await asyncio.gather(*done)

    testing.run(main)
    assert sorted(each for each in seen if each[0] == "b") == [("b", b"%d" % n) for n in (0, 3, 4)]
    assert sorted(each for each in seen if each[0] == "a") == [
        ("a", b"%d" % n) for n in (0, 1, 3, 4)
    ]


def test_invalid_link_settings_are_refused() -> None:
    async def main(sim: testing.Simulation, a: testing.Host, _: testing.Host) -> None:
        net: Any = sim.net
        for wrong in (
            {"loss": 1.5},
            {"loss": -0.1},
            {"latency": (2, 1)},
            {"latency": -1},
            {"bandwidth": -1},
        ):
            with pytest.raises(ValueError, match=r"probabilities from 0 to 1|must be >= 0"):
                net.set_link("a", "b", **wrong)
        with pytest.raises(ValueError, match="no host 'c'"):
            net.set_link("a", "c")
        with pytest.raises(ValueError, match="no host 'c'"):
            net.partition({"a"}, {"c"})
        with pytest.raises(ValueError, match="must be a collection of hosts"):
            net.partition("a", "b")

    on_two(main)
