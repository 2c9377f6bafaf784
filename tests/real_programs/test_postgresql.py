"""asyncpg against Debian's PostgreSQL: in clear, over TLS (start_tls), over a Unix socket."""

from __future__ import annotations

import asyncio
import datetime
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tls_tools import client_context, identity

from real_programs.programs import Programs, free_port, needs, on_goloop

needs("asyncpg")
import asyncpg  # noqa: E402


def binaries() -> Path | None:
    """Return the folder of initdb and postgres; Debian keeps them off PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    initdb = shutil.which("initdb")
    return Path(initdb).parent if initdb else None


BINARIES = binaries()
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(BINARIES is None, reason="no PostgreSQL server: apt-get install postgresql"),
]


@pytest.fixture
def directory() -> Iterator[tuple[Path, str | None]]:
    """Of the server, which refuses to run as root; and the user that it runs as."""
    made = Path(tempfile.mkdtemp(prefix="goloop-postgresql-"))
    user = None
    if os.geteuid() == 0:
        try:
            user = pwd.getpwnam("postgres").pw_name
        except KeyError:
            user = "nobody"
        shutil.chown(made, user)
    yield made, user
    shutil.rmtree(made)


def test_asyncpg_queries_postgresql(programs: Programs, directory: tuple[Path, str | None]) -> None:
    assert BINARIES is not None
    home, user = directory
    port, own = free_port(), identity()
    subprocess.run(
        [BINARIES / "initdb", "-D", home / "data", "-U", "tester", "--auth=trust", "--no-sync"],
        check=True, capture_output=True, user=user, cwd=home, timeout=60,
    )  # fmt: skip
    for name, source in (("server.crt", own.certificate), ("server.key", own.key)):
        shutil.copy(source, home / name)
        if user is not None:
            shutil.chown(home / name, user)
        (home / name).chmod(0o600)
    server = programs.start(
        *(BINARIES / "postgres", "-D", home / "data", "-p", str(port), "-k", home, "-F"),
        *("-c", "listen_addresses=127.0.0.1", "-c", "ssl=on"),
        *("-c", f"ssl_cert_file={home}/server.crt", "-c", f"ssl_key_file={home}/server.key"),
        port=port,
        user=user,
    )
    server.until_says("ready to accept connections")

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
        assert await use(host=str(home)) is False
        async with asyncpg.create_pool(
            port=port, host="127.0.0.1", user="tester", database="postgres", min_size=5, max_size=5
        ) as pool:
            results = await asyncio.gather(
                *(pool.fetchval("SELECT $1::int", i) for i in range(200))
            )
            assert results == list(range(200))

    on_goloop(main())
