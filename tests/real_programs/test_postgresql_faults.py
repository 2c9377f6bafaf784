"""asyncpg and a PostgreSQL that is killed, stopped, full, or reached by a bad network."""

from __future__ import annotations

import asyncio
import random
import resource
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tls_tools import client_context

from real_programs.conftest import Run
from real_programs.programs import Programs, needs
from real_programs.servers import POSTGRESQL_CONNECTIONS, PostgreSQL, reached, start_proxy

needs("asyncpg")
import asyncpg  # noqa: E402

pytestmark = pytest.mark.real

# asyncpg's errors of a connection that can't be made or has ended, on each loop.  The internal one
# comes from a pool that gets the connection of an interrupted query back.
LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
# PostgreSQL's errors while it starts or ends: cannot_connect_now, crash_shutdown, admin_shutdown.
UNAVAILABLE = (asyncpg.OperatorInterventionError,)


def address(port: int) -> dict[str, Any]:
    """Return the arguments of a connection in clear."""
    return {
        "host": "127.0.0.1",
        "port": port,
        "user": "tester",
        "database": "postgres",
        "ssl": False,
    }


def pool_of(port: int, size: int) -> Any:
    """Return a pool with this number of connections."""
    return asyncpg.create_pool(**address(port), min_size=size, max_size=size)


async def check_answers(pool: Any) -> None:
    """Fails unless each of many queries gets its own answer."""
    numbers = range(200)
    answers = await asyncio.gather(*(pool.fetchval("SELECT $1::int", each) for each in numbers))
    assert answers == list(numbers)


async def make_table(port: int, columns: str) -> None:
    """Creates the table "kept", without the rows of an earlier test."""
    connection = await asyncpg.connect(**address(port))
    await connection.execute(f"DROP TABLE IF EXISTS kept; CREATE TABLE kept ({columns})")
    await connection.close()


def test_pools_continue_after_postgresql_is_killed_and_started(
    run_on_each_loop: Run, postgresql: PostgreSQL
) -> None:
    tried: set[tuple[int, int]] = set()
    confirmed: set[tuple[int, int]] = set()
    failures: list[BaseException] = []

    async def insert(pool: Any, name: int, ended: asyncio.Event) -> None:
        number = 0
        while not ended.is_set():
            number += 1
            tried.add((name, number))
            try:
                await pool.execute("INSERT INTO kept VALUES ($1, $2)", name, number)
                confirmed.add((name, number))
            except (*LOST, *UNAVAILABLE) as failure:
                failures.append(failure)
                await asyncio.sleep(0.01)

    async def main() -> None:
        await make_table(postgresql.port, "name int, number int")
        ended = asyncio.Event()
        async with pool_of(postgresql.port, 10) as pool:
            async with asyncio.TaskGroup() as group:
                for name in range(20):
                    group.create_task(insert(pool, name, ended))
                for _ in range(2):
                    enough = len(confirmed) + 400
                    await reached(lambda enough=enough: len(confirmed) >= enough)
                    failures.clear()
                    postgresql.kill()
                    await reached(lambda: len(failures) > 20)
                    await asyncio.to_thread(postgresql.start)
                enough = len(confirmed) + 400
                await reached(lambda: len(confirmed) >= enough)
                ended.set()
            stored = {tuple(row) for row in await pool.fetch("SELECT name, number FROM kept")}
            assert confirmed <= stored <= tried
            await check_answers(pool)

    run_on_each_loop(main())


def test_queries_time_out_while_postgresql_is_stopped(
    run_on_each_loop: Run, postgresql: PostgreSQL
) -> None:
    async def main() -> None:
        async with pool_of(postgresql.port, 10) as pool:
            held = [await pool.acquire() for _ in range(10)]
            with postgresql.stopped():
                found = await asyncio.gather(
                    *(each.fetchval("SELECT 1", timeout=0.2) for each in held),
                    asyncpg.connect(**address(postgresql.port), timeout=0.2),
                    return_exceptions=True,
                )
                assert {type(each) for each in found} == {TimeoutError}
            for each in held:
                await pool.release(each)
            for _ in range(3):
                await check_answers(pool)

    run_on_each_loop(main())


def test_exhausted_pool_and_full_server_work_afterwards(
    run_on_each_loop: Run, postgresql: PostgreSQL
) -> None:
    async def main() -> None:
        async with pool_of(postgresql.port, 3) as pool:
            held = [await pool.acquire() for _ in range(3)]
            with pytest.raises(TimeoutError):
                await pool.acquire(timeout=0.1)
            waiting = asyncio.ensure_future(check_answers(pool))
            for each in held:
                await pool.release(each)
            await waiting
            query = "SELECT pg_backend_pid()"
            servers = await asyncio.gather(*(pool.fetchval(query) for _ in range(100)))
            assert len(set(servers)) <= 3

            opened: list[Any] = []
            with pytest.raises(asyncpg.TooManyConnectionsError):
                await open_all(opened)
            assert 0 < len(opened) <= POSTGRESQL_CONNECTIONS - 3  # the pool's
            await check_answers(pool)
            for each in opened:
                await each.close()
        await check_answers_of_new_pool()

    async def open_all(opened: list[Any]) -> None:
        while len(opened) < 2 * POSTGRESQL_CONNECTIONS:
            opened.append(await asyncpg.connect(**address(postgresql.port)))

    async def check_answers_of_new_pool() -> None:
        while True:
            try:
                async with pool_of(postgresql.port, 30) as pool:
                    return await check_answers(pool)
            except asyncpg.TooManyConnectionsError:  # the server has not ended those of before
                await asyncio.sleep(0.02)

    run_on_each_loop(main())


def test_copy_of_256_mb_in_both_directions(run_on_each_loop: Run, postgresql: PostgreSQL) -> None:
    rows, size = 256, 1 << 20
    sent = received = received_bytes = 0

    async def source() -> AsyncIterator[bytes]:
        nonlocal sent
        for number in range(rows):
            start = b"%06d\t" % number
            row = start + (b"%06d" % (number % 7)) * (size // 6)
            row = row[: size - 1] + b"\n"
            sent = zlib.crc32(row, sent)
            yield row

    async def sink(data: bytes) -> None:
        nonlocal received, received_bytes
        received = zlib.crc32(data, received)
        received_bytes += len(data)
        await asyncio.sleep(0)

    async def main() -> None:
        await make_table(postgresql.port, "number text, body text")
        connection = await asyncpg.connect(**address(postgresql.port))
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak of earlier tests
        # Largest resident memory of this process until now, in KiB.
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert await connection.copy_to_table("kept", source=source()) == f"COPY {rows}"
        query = "SELECT * FROM kept ORDER BY number"
        assert await connection.copy_from_query(query, output=sink) == f"COPY {rows}"
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        await connection.execute("DROP TABLE kept")
        await connection.close()
        assert (received_bytes, received) == (rows * size, sent)
        # Flow control holds in both directions: the data are never in memory as a whole.
        assert grown < 128 * 1024

    run_on_each_loop(main())


def test_hundred_thousand_notifications_arrive_in_order(
    run_on_each_loop: Run, postgresql: PostgreSQL
) -> None:
    count, part = 100_000, 5000
    heard: list[int] = []

    async def main() -> None:
        listener = await asyncpg.connect(**address(postgresql.port))
        sender = await asyncpg.connect(**address(postgresql.port))
        await listener.add_listener("numbers", lambda *words: heard.append(int(words[-1])))
        query = "SELECT count(pg_notify('numbers', n::text)) FROM generate_series($1::int, $2) n"
        for start in range(0, count, part):
            assert await sender.fetchval(query, start, start + part - 1) == part
        await reached(lambda: len(heard) >= count)
        await listener.close()
        await sender.close()

    run_on_each_loop(main())
    assert heard == list(range(count))


def test_pool_works_after_a_thousand_random_cancels(
    run_on_each_loop: Run, postgresql: PostgreSQL
) -> None:
    rng = random.Random(51)
    cancelled: list[int] = []

    async def ask(pool: Any, first: int) -> None:
        for number in range(first, first + 50):
            query = "SELECT $1::int FROM pg_sleep(0.002)"
            asked = asyncio.ensure_future(pool.fetchval(query, number))
            await asyncio.sleep(rng.random() * 0.008)
            asked.cancel()
            try:
                assert await asked == number
            except asyncio.CancelledError:
                cancelled.append(number)

    async def main() -> None:
        async with pool_of(postgresql.port, 10) as pool:
            await asyncio.gather(*(ask(pool, 50 * number) for number in range(20)))
            assert cancelled
            for _ in range(3):
                await check_answers(pool)
            # Each of the pool's ten connections can still be used, and all at once.
            held = [await pool.acquire() for _ in range(10)]
            for each in held:
                await pool.release(each)
            assert pool.get_idle_size() == 10

    run_on_each_loop(main())


@pytest.mark.parametrize("secure", [False, True], ids=["clear", "TLS"])
def test_values_survive_a_network_that_slices_them(
    run_on_each_loop: Run, postgresql: PostgreSQL, programs: Programs, secure: bool
) -> None:
    proxy = start_proxy(programs, postgresql.port, largest_slice=20)
    security = {"host": "localhost", "ssl": client_context()} if secure else {}

    async def use(seed: int) -> None:
        rng = random.Random(seed)
        connection = await asyncpg.connect(**(address(proxy.port) | security))
        for size in (0, 1, 19, 1000, 16_384, 50_000):
            value = rng.randbytes(size)
            assert await connection.fetchval("SELECT $1::bytea", value) == value
        rows = await connection.fetch("SELECT n FROM generate_series(1, 2000) n")
        assert [row["n"] for row in rows] == list(range(1, 2001))
        with pytest.raises(asyncpg.DivisionByZeroError):
            await connection.execute("SELECT 1/0")
        await connection.close()

    async def main() -> None:
        await asyncio.gather(*map(use, range(5)))

    run_on_each_loop(main())


def test_pools_continue_on_a_network_that_resets_connections(
    run_on_each_loop: Run, postgresql: PostgreSQL, programs: Programs
) -> None:
    proxy = start_proxy(programs, postgresql.port, largest_slice=500, reset_after=8000)
    failures: list[BaseException] = []

    async def insert(pool: Any, name: int) -> None:
        query = "INSERT INTO kept VALUES ($1, $2) ON CONFLICT DO NOTHING"
        for number in range(50):
            while True:
                try:
                    await pool.execute(query, name, number)
                    break
                except LOST as failure:
                    failures.append(failure)

    async def main() -> None:
        await make_table(postgresql.port, "name int, number int, PRIMARY KEY (name, number)")
        pool = asyncpg.create_pool(**address(proxy.port), min_size=0, max_size=5)
        async with pool:
            await asyncio.gather(*(insert(pool, name) for name in range(10)))
            pool.terminate()
        async with pool_of(postgresql.port, 5) as pool:
            rows = await pool.fetch("SELECT * FROM kept ORDER BY name, number")
            assert [tuple(row) for row in rows] == [(n, i) for n in range(10) for i in range(50)]

    run_on_each_loop(main())
    assert failures
