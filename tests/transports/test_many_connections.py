"""10,000 open connections at once: all are served, and the memory of all comes back."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest
from protocols import until

Loop = asyncio.AbstractEventLoop
COUNT = 10_000
# Descriptors of the process besides the connections.
SPARE = 200
# Turns of `until`, for actions of another process.
LONG = 1_000_000

# Holds the clients' ends: one process has not enough descriptors for both ends
# where the hard limit is 20,000. It speaks in lines on stdin and stdout.
CLIENTS = """
import resource, socket, struct, sys
port, count = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
clients = []
for number in range(count):
    clients.append(socket.create_connection(("127.0.0.1", port)))
    # Ended by a reset: thousands of ports that wait would slow the next run down.
    clients[-1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if number % 500 == 499:
        # The queue is taken in order, so an answer means that there is room in it.
        clients[-1].sendall(b"!")
        assert clients[-1].recv(1) == b"!"
print("connected", flush=True)
sys.stdin.readline()
for number, client in enumerate(clients):
    client.sendall(b"%08d" % number)
for number, client in enumerate(clients):
    assert client.recv(8, socket.MSG_WAITALL) == b"%08d" % number, number
print("echoed", flush=True)
sys.stdin.readline()
for client in clients[::2]:
    client.close()
print("half closed", flush=True)
sys.stdin.readline()
"""


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
        [sys.executable, "-c", CLIENTS, str(port), str(COUNT)],
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
