"""redis.asyncio and a Redis that is killed, stopped, or reached by a bad network."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from typing import Any

import pytest

from real_programs.conftest import Run
from real_programs.programs import Programs, needs
from real_programs.servers import Server, reached, start_proxy

needs("redis")
import redis.asyncio  # noqa: E402
from redis.asyncio.retry import Retry  # noqa: E402
from redis.backoff import NoBackoff  # noqa: E402

pytestmark = pytest.mark.real


def client_of(port: int, connections: int = 100, **options: Any) -> redis.asyncio.Redis:
    """Return a client that tries each command once, and waits for a connection of its pool.

    It waits for answers, too: `options` are those of the connections.
    """
    once = Retry(NoBackoff(), 0)
    patient = {"timeout": None, "socket_timeout": None, "socket_connect_timeout": None}
    pool = redis.asyncio.BlockingConnectionPool(
        port=port, max_connections=connections, retry=once, **(patient | options)
    )
    return redis.asyncio.Redis.from_pool(pool)


async def check_answers(client: redis.asyncio.Redis) -> None:
    """Fails unless each of many commands gets its own answer."""
    texts = [b"answer %d" % number for number in range(200)]
    assert await asyncio.gather(*map(client.echo, texts)) == texts


def test_clients_continue_after_redis_is_killed_and_started(
    run_on_each_loop: Run, redis_server: Server
) -> None:
    answers: list[list[int]] = [[] for _ in range(20)]
    failures: list[redis.ConnectionError] = []

    async def count(client: redis.asyncio.Redis, number: int, ended: asyncio.Event) -> None:
        while not ended.is_set():
            try:
                answers[number].append(await client.incr(f"count {number}"))
            except redis.ConnectionError as failure:
                failures.append(failure)
                await asyncio.sleep(0.01)

    async def all_counted() -> None:
        """Returns once each counter has been incremented."""
        before = [len(each) for each in answers]
        await reached(lambda: all(len(e) > b + 20 for e, b in zip(answers, before, strict=True)))

    async def main() -> None:
        ended = asyncio.Event()
        async with client_of(redis_server.port) as client, asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(count(client, number, ended))
            for _ in range(3):
                await all_counted()
                failures.clear()
                redis_server.kill()
                await reached(lambda: len(failures) > 20)
                await asyncio.to_thread(redis_server.start)
            await all_counted()
            ended.set()

    run_on_each_loop(main())
    for counted in answers:
        # No answer is lost, repeated or another counter's; each new server counts from 1.
        assert [later for earlier, later in pairwise(counted) if later != earlier + 1] == [1, 1, 1]


def test_commands_time_out_while_redis_is_stopped(
    run_on_each_loop: Run, redis_server: Server
) -> None:
    async def waits(client: redis.asyncio.Redis) -> None:
        async with asyncio.timeout(0.2):
            await client.get("key")

    async def main() -> None:
        async with (
            client_of(redis_server.port) as client,
            client_of(redis_server.port, socket_timeout=0.2) as impatient,
        ):
            # Connections that the stopped server has accepted.
            await check_answers(client)
            with redis_server.stopped():
                found = await asyncio.gather(
                    *(impatient.get("key") for _ in range(50)),
                    *(waits(client) for _ in range(50)),
                    return_exceptions=True,
                )
            assert [type(each) for each in found] == 50 * [redis.TimeoutError] + 50 * [TimeoutError]
            # Late answers of the stopped server do not become those of other commands.
            for _ in range(5):
                await check_answers(client)

    run_on_each_loop(main())


def test_exhausted_pools_wait_or_fail_and_work_afterwards(
    run_on_each_loop: Run, redis_server: Server
) -> None:
    port = redis_server.port

    async def main() -> None:
        no_waiting = redis.asyncio.ConnectionPool(port=port, max_connections=5)
        short_waiting = redis.asyncio.BlockingConnectionPool(
            port=port, max_connections=1, timeout=0.1
        )
        async with (
            client_of(port, connections=5) as client,
            redis.asyncio.Redis.from_pool(no_waiting) as limited,
            redis.asyncio.Redis.from_pool(short_waiting) as impatient,
        ):
            counted = await asyncio.gather(*(client.incr("count") for _ in range(300)))
            assert sorted(counted) == list(range(1, 301))
            assert len(await client.client_list()) == 5

            blocked = [
                asyncio.ensure_future(each.blpop(["queue"], timeout=0))
                for each in [limited] * 5 + [impatient]
            ]
            while (await client.info("clients"))["blocked_clients"] < 6:
                await asyncio.sleep(0.01)
            with pytest.raises(redis.exceptions.MaxConnectionsError):
                await limited.get("count")
            with pytest.raises(redis.ConnectionError, match="No connection available"):
                await impatient.get("count")
            await client.rpush("queue", *range(6))
            pushed = await asyncio.gather(*blocked)
            assert sorted(int(value) for _, value in pushed) == list(range(6))
            assert await limited.get("count") == await impatient.get("count") == b"300"

    run_on_each_loop(main())


def test_hundred_thousand_messages_arrive_in_order(
    run_on_each_loop: Run, redis_server: Server
) -> None:
    count = 100_000
    heard: list[int] = []

    async def publish(client: redis.asyncio.Redis) -> None:
        for start in range(0, count, 1000):
            async with client.pipeline(transaction=False) as pipe:
                for number in range(start, start + 1000):
                    pipe.publish("numbers", number)
                assert await pipe.execute() == [1] * 1000

    async def listen(channel: Any) -> None:
        async for message in channel.listen():
            heard.append(int(message["data"]))
            if len(heard) == count:
                return

    async def main() -> None:
        async with client_of(redis_server.port) as client, client.pubsub() as channel:
            await channel.subscribe("numbers")
            assert (await channel.get_message(timeout=30))["type"] == "subscribe"
            await asyncio.gather(publish(client), listen(channel))

    run_on_each_loop(main())
    assert heard == list(range(count))


def test_pool_works_after_a_thousand_random_cancels(
    run_on_each_loop: Run, redis_server: Server
) -> None:
    rng = random.Random(51)
    cancelled: list[str] = []

    async def ask(client: redis.asyncio.Redis, number: int) -> None:
        for turn in range(50):
            text = f"{number} {turn}"
            asked = asyncio.ensure_future(client.echo(text))
            await asyncio.sleep(rng.random() * 0.004)
            asked.cancel()
            try:
                assert await asked == text.encode()
            except asyncio.CancelledError:
                cancelled.append(text)

    async def main() -> None:
        async with client_of(redis_server.port, connections=10) as client:
            await asyncio.gather(*(ask(client, number) for number in range(20)))
            assert cancelled
            # Each of the pool's ten places can still be used, and all at once.
            for _ in range(5):
                await check_answers(client)
            blocked = [asyncio.ensure_future(client.blpop(["queue"], timeout=0)) for _ in range(9)]
            while (await client.info("clients"))["blocked_clients"] < 9:
                await asyncio.sleep(0.01)
            await client.rpush("queue", *range(9))
            assert len(await asyncio.gather(*blocked)) == 9

    run_on_each_loop(main())


def test_values_survive_a_network_that_slices_them(
    run_on_each_loop: Run, redis_server: Server, programs: Programs
) -> None:
    proxy = start_proxy(programs, redis_server.port, largest_slice=20)

    async def use(client: redis.asyncio.Redis, seed: int) -> None:
        rng = random.Random(seed)
        for size in (0, 1, 19, 20, 1000, 16_384, 50_000):
            value = rng.randbytes(size)
            await client.set(f"key {seed}", value)
            assert await client.get(f"key {seed}") == value
        async with client.pipeline() as pipe:
            for number in range(100):
                pipe.echo(str(number))
            assert await pipe.execute() == [b"%d" % number for number in range(100)]

    async def main() -> None:
        async with client_of(proxy.port) as client:
            await asyncio.gather(*(use(client, seed) for seed in range(5)))

    run_on_each_loop(main())


def test_clients_continue_on_a_network_that_resets_connections(
    run_on_each_loop: Run, redis_server: Server, programs: Programs
) -> None:
    proxy = start_proxy(programs, redis_server.port, largest_slice=500, reset_after=4000)
    failures: list[redis.ConnectionError] = []

    async def use(client: redis.asyncio.Redis, name: str) -> None:
        for number in range(30):
            value = f"{number} ".encode() * 100
            while True:
                try:
                    assert await client.set(name, value)
                    assert await client.get(name) == value
                    break
                except redis.ConnectionError as failure:
                    failures.append(failure)

    async def main() -> None:
        async with client_of(proxy.port) as client:
            await asyncio.gather(*(use(client, f"key {number}") for number in range(10)))
        async with client_of(redis_server.port) as client:
            for number in range(10):
                assert await client.get(f"key {number}") == b"29 " * 100

    run_on_each_loop(main())
    assert failures
