"""10,000 open connections at once: all are served, and the memory of all comes back."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from protocols import until

SCENARIOS = Path(__file__).with_name("many_connections_scenarios.py")

Loop = asyncio.AbstractEventLoop
COUNT = 10_000
# Descriptors of the process besides the connections.
SPARE = 200
# Turns of `until`, for actions of another process.
LONG = 1_000_000


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < COUNT + SPARE:
        pytest.skip(f"the hard limit of open files is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, COUNT + SPARE), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_ten_thousand_connections_are_served_and_give_their_memory_back(
    many_descriptors: None, loop: Loop
) -> None:
    live: set[asyncio.BaseTransport] = set()
    most = 0

    class Echo(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            nonlocal most
            assert isinstance(transport, asyncio.Transport)
            self.transport = transport
            live.add(transport)
            most = max(most, len(live))

        def data_received(self, data: bytes) -> None:
            self.transport.write(data)

        def connection_lost(self, exc: Exception | None) -> None:
            live.remove(self.transport)

    server = await loop.create_server(Echo, "127.0.0.1", 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    with subprocess.Popen(
        [sys.executable, SCENARIOS, "clients", str(port), str(COUNT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as clients:
        assert clients.stdin
        assert clients.stdout
        answers = clients.stdout.fileno()
        said = bytearray()
        loop.add_reader(answers, lambda: said.extend(os.read(answers, 1000)))
        await until(lambda: said == b"connected\n", LONG)
        await until(lambda: len(live) == COUNT)
        clients.stdin.write(b"go on\n")
        clients.stdin.flush()
        await until(lambda: said.endswith(b"echoed\n"), LONG)
        clients.stdin.write(b"go on\n")
        clients.stdin.flush()
        await until(lambda: said.endswith(b"half closed\n"), LONG)
        await until(lambda: len(live) == COUNT // 2)
        loop.remove_reader(answers)
        server.close()
        # The other half is ended from here, in one turn.
        for transport in list(live):
            assert isinstance(transport, asyncio.Transport)
            transport.abort()
        await until(lambda: not live)
        clients.stdin.close()
        assert clients.wait() == 0
    assert most == COUNT
    await server.wait_closed()
