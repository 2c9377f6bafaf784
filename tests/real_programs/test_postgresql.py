"""asyncpg against Debian's PostgreSQL: in clear, over TLS (start_tls), over a Unix socket."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest
from tls_tools import client_context

from real_programs.programs import needs, on_goloop
from real_programs.servers import PostgreSQL

needs("asyncpg")
import asyncpg  # noqa: E402

pytestmark = pytest.mark.real


def test_asyncpg_queries_postgresql(postgresql: PostgreSQL) -> None:
    port = postgresql.port

    async def use(**options: Any) -> Any:
        connection = await asyncpg.connect(port=port, user="tester", database="postgres", **options)
        try:
            await connection.execute("CREATE TEMP TABLE t (n int, b bytea, at timestamptz)")
            now = datetime.datetime.now(datetime.UTC)
            rows = [(i, bytes([i % 256]) * 1000, now) for i in range(3000)]
            await connection.copy_records_to_table("t", records=rows)
            assert await connection.fetchval("SELECT sum(length(b)) FROM t") == 3_000_000
            async with connection.transaction():
                read = [tuple(row) async for row in connection.cursor("SELECT * FROM t ORDER BY n")]
            assert read == rows
            with pytest.raises(asyncpg.DivisionByZeroError):
                await connection.execute("SELECT 1/0")
            with pytest.raises(asyncio.TimeoutError):
                await connection.execute("SELECT pg_sleep(60)", timeout=0.1)
            heard: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            await connection.add_listener("news", lambda *args: heard.set_result(args[-1]))
            await connection.execute("NOTIFY news, 'today'")
            assert await heard == "today"
            return await connection.fetchval(
                "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            )
        finally:
            await connection.close()

    async def main() -> None:
        assert await use(host="127.0.0.1", ssl=False) is False
        assert await use(host="localhost", ssl=client_context()) is True
        assert await use(host=str(postgresql.home)) is False
        async with asyncpg.create_pool(
            port=port, host="127.0.0.1", user="tester", database="postgres", min_size=5, max_size=5
        ) as pool:
            results = await asyncio.gather(
                *(pool.fetchval("SELECT $1::int", i) for i in range(200))
            )
            assert results == list(range(200))

    on_goloop(main())
