"""A seed means the same run in every process, on every Python, and on the other machine.

The digests are of whole traces.  A change of a simulation's decisions, or of its trace, changes
them: then the new ones, which the failure shows, belong here, and CHANGELOG.md says that seeds
mean other runs from now on.  `make check CHECKS=aarch64` runs this on the other machine.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import sys
from pathlib import Path
from typing import Any

import ended
import pytest
from protocols import Echo

from goloop import testing

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")


class Client(Echo):
    """A protocol, because the code of asyncio's streams differs from version to version."""

    def __init__(self, size: int) -> None:
        self.missing = size
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.missing -= len(data)
        if not self.missing:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)


class Datagrams(asyncio.DatagramProtocol):
    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        if len(data) > 1:  # older asyncio sends no empty ones
            self.transport.sendto(data[1:], address)


async def serve() -> None:
    loop = asyncio.get_running_loop()
    await loop.create_server(Echo, None, 80)
    await loop.create_datagram_endpoint(Datagrams, local_addr=("0.0.0.0", 53))
    await asyncio.Event().wait()


async def ask(peer: str, jobs: bool) -> None:
    loop = asyncio.get_running_loop()
    _, datagrams = await loop.create_datagram_endpoint(Datagrams, remote_addr=(peer, 53))
    for _ in range(20):
        size = random.randrange(1, 40_000)
        transport, client = await loop.create_connection(lambda size=size: Client(size), peer, 80)
        transport.write(bytes(size))
        datagrams.transport.sendto(bytes(random.randrange(1, 20)))
        await client.lost
        if jobs:
            await loop.run_in_executor(None, random.random)
        await asyncio.sleep(random.expovariate(1))


async def main(sim: Any) -> None:
    a, b = sim.host("a"), sim.host("b")
    sim.net.set_link("a", "b", latency=(0.001, 0.05), bandwidth=1e6, loss=0.05, reorder=0.2,
                     duplicate=0.1, fragment=0.3)  # fmt: skip
    sim.faults.set(short_reads=0.1, interrupted=0.05, would_block=0.05, late_readiness=0.1)
    a.spawn(serve)
    await asyncio.sleep(0.1)
    # With odd seeds iterations take time, and a job's result takes one more of them before 3.14.
    tasks = [b.spawn(ask, "a", sim.seed % 2 == 0) for _ in range(3)]
    await asyncio.sleep(sim.random.uniform(5, 10))
    sim.net.partition({"a"}, {"b"})
    await asyncio.sleep(sim.random.uniform(1, 3))
    sim.net.heal()
    await asyncio.gather(*tasks)


@pytest.mark.parametrize(
    ("policy", "seed", "digest"),
    [
        ("io", 1, "96d90c4f8d99ef3e"),
        ("io", 2, "9b79cfbeb43ae84d"),
        ("shuffle", 3, "7edd339f92c768f0"),
        ("pct:3", 4, "ba1e305a9410191b"),
    ],
)
def test_a_seed_means_the_same_run(policy: str, seed: int, digest: str) -> None:
    result = testing.run(main, seed=seed, policy=policy)
    assert len(result.trace.splitlines()) > 1000
    assert hashlib.sha256(result.trace.encode()).hexdigest()[:16] == digest


@pytest.mark.parametrize(
    ("module", "function"),
    [
        ("test_testing", "trace_of_echo"),
        ("test_hosts", "trace_of_cluster"),
        ("test_network_families", "trace_of_both_families"),
        ("test_simulated_kernel", "trace_of_faulty_echo"),
    ],
)
def test_a_seed_gives_the_same_trace_in_two_processes(module: str, function: str) -> None:
    """Also if sets of strings have another order, as those of addresses."""
    program = Path(__file__).with_name("programs") / "trace_of.py"

    def trace(seed: int, hash_seed: int) -> str:
        return ended.passes(program, module, function, seed, PYTHONHASHSEED=str(hash_seed))

    [first] = {trace(7, hash_seed) for hash_seed in range(1, 5)}
    assert first != trace(8, 1)
