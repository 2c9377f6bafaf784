"""The websockets package: server and clients over TLS, many at once."""

from __future__ import annotations

import asyncio
import random

import pytest
from tls_tools import client_context, identity

from real_programs.programs import APPS, Programs, free_port, needs, on_goloop

needs("websockets")
import websockets  # noqa: E402

pytestmark = pytest.mark.real


def test_websockets_echo_over_tls(programs: Programs) -> None:
    port, own = free_port(), identity()
    server = programs.python(
        APPS / "websockets_server.py", str(port), own.certificate, own.key, port=port
    )
    context = client_context()

    async def one(seed: int) -> None:
        rng = random.Random(seed)
        url = f"wss://localhost:{port}"
        async with websockets.connect(url, ssl=context, max_size=None) as socket:
            for size in (0, 1, 126, 70_000, 1_000_000):
                message = rng.randbytes(size)
                await socket.send(message)
                assert await socket.recv() == message
            await (await socket.ping())

    async def main() -> None:
        await asyncio.gather(*(one(seed) for seed in range(20)))

    on_goloop(main())
    server.end()
