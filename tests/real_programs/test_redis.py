"""redis.asyncio against Debian's redis-server, over TCP and a Unix socket."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from real_programs.programs import needs, on_goloop
from real_programs.servers import Server

needs("redis")
import redis.asyncio  # noqa: E402

pytestmark = pytest.mark.real


def test_redis_answers_over_tcp_and_a_unix_socket(redis_server: Server, tmp_path: Path) -> None:
    async def use(client: redis.asyncio.Redis) -> None:
        await client.flushall()
        value = b"v" * 1_000_000
        assert await client.set("key", value)
        assert await client.get("key") == value
        async with client.pipeline() as pipe:
            for i in range(1000):
                pipe.incrby("count", i)
            assert (await pipe.execute())[-1] == sum(range(1000))
        # Each on a connection of its own.
        await asyncio.gather(*(client.incr("many") for _ in range(90)))
        assert await client.get("many") == b"90"
        async with client.pubsub() as channel:
            await channel.subscribe("news")
            assert (await channel.get_message(timeout=10))["type"] == "subscribe"
            await client.publish("news", "today")
            message = await channel.get_message(ignore_subscribe_messages=True, timeout=10)
            assert message["data"] == b"today"
        # A blocking command that times out, and one that is cancelled.
        assert await client.blpop(["nothing"], timeout=0.1) is None
        waiting = asyncio.ensure_future(client.blpop(["nothing"], timeout=0))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await client.aclose()

    async def main() -> None:
        await use(redis.asyncio.Redis(port=redis_server.port))
        await use(redis.asyncio.Redis(unix_socket_path=str(tmp_path / "redis.sock")))

    on_goloop(main())
