"""Other projects whose own tests suites.py runs, and how each is run."""

from __future__ import annotations

import dataclasses
import os


@dataclasses.dataclass(frozen=True)
class Service:
    """A server that a suite uses; {port} and {path} stand for its port and its Unix socket."""

    server: str
    """The name in suite_servers.SERVERS."""
    arguments: str = ""
    """Arguments of pytest that give the address to the tests."""
    variables: dict[str, str] = dataclasses.field(default_factory=dict)
    """Environment variables that give the address to the tests."""
    edits: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    """For each file with a fixed address: texts, and their replacements."""
    prepare: str = ""
    """A command that adds to the started server what the tests expect there."""
    started: bool = True
    """False if the tests start the server themselves, and only need the installed program."""


@dataclasses.dataclass(frozen=True)
class Suite:
    """A project, and how its tests are run."""

    version: str
    """The version that --install installs, which is that of the last recorded run."""
    needs: str
    """Packages that its tests import, for pip."""
    arguments: str = ""
    """Arguments of pytest, beside the project's configuration without its `addopts`."""
    tests: str = "tests"
    """Tests to run if the command line names none."""
    package: str = ""
    """The package's folder in the sources, which is removed so that the installed one is tested."""
    repository: str = ""
    """The address of a git repository, if pip's sources have no tests."""
    tag: str = "{version}"
    """The tag of the version in that repository."""
    services: tuple[Service, ...] = ()
    """Servers that the tests use.  The tests of those that are not installed do not run."""
    setup: str = ""
    """Python that runs before the tests, as in the project's own test runner."""
    builds: str = "setuptools wheel"
    """Packages that pip needs to unpack the sources."""
    different: dict[str, str] = dataclasses.field(default_factory=dict)
    """Tests that differ by design, with the reason."""


RABBITMQ_FIXTURES = """
import os
import types

import pytest
import yarl


@pytest.fixture(scope="session")
def amqp_direct_url():
    return yarl.URL(os.environ["AMQP_URL"])


@pytest.fixture(scope="session")
def rabbitmq_container(amqp_direct_url):
    ports = {"5672/tcp": amqp_direct_url.port, "5671/tcp": 5671}
    return types.SimpleNamespace(host=amqp_direct_url.host, ports=ports)
"""

SUITES = {
    "aiohttp": Suite(
        "3.14.5",
        "aiohttp[speedups] pytest-mock pytest-cov pytest-xdist pytest-codspeed freezegun trustme"
        " proxy.py blockbuster isal zlib_ng python-on-whales setuptools-git",
        "-m 'not dev_mode and not autobahn and not internal' --ignore-glob=*benchmarks*"
        f" --ignore=tests/isolated --ignore=tests/autobahn -n {os.cpu_count() or 1}",
        package="aiohttp",
        different={
            "tests/test_web_functional.py::test_keepalive_expires_on_time[pyloop]": (
                "patches loop.time() and expects the loop's timers to go by it"
            )
        },
    ),
    "aiomqtt": Suite(
        "2.5.1",
        "aiomqtt anyio",
        # TLS and WebSockets need more ports; trio has no goloop.
        "-p no:asyncio -k 'not trio and not tls and not websockets'",
        package="aiomqtt",
        builds="hatchling",
        services=(
            Service(
                "mosquitto",
                edits={
                    "tests/test_client.py": {
                        'HOSTNAME = "test.mosquitto.org"': 'HOST = "127.0.0.1"',
                        "HOSTNAME": "HOST, {port}",
                    }
                },
            ),
        ),
    ),
    "aiomysql": Suite(
        "0.3.2",
        "aiomysql PyMySQL==1.1.2 uvloop pytest<9",
        # The tests of aiomysql.sa need SQLAlchemy 1.
        "-k 'not uvloop' --ignore-glob=*/test_sa_* --ignore=tests/test_async_iter.py"
        " --ignore=tests/test_async_with.py",
        package="aiomysql",
        builds="setuptools setuptools-scm wheel",
        services=(Service("mariadb", "--mysql-unix-socket={path}"),),
    ),
    "aiormq": Suite(
        "7.2.4",
        "aiormq aiomisc-pytest",
        "-p no:asyncio -k 'not amqps'",
        package="aiormq",
        builds="uv_build",
        services=(
            Service("rabbitmq", variables={"AMQP_URL": "amqp://guest:guest@127.0.0.1:{port}//"}),
        ),
        # The sources lack the fixtures that start a container.
        setup=RABBITMQ_FIXTURES,
    ),
    "asyncpg": Suite(
        "0.32.0",
        "asyncpg distro",
        package="asyncpg",
        builds="setuptools wheel Cython",
        services=(
            Service(
                "postgres",
                variables={"PGHOST": "127.0.0.1", "PGPORT": "{port}", "PGUSER": "postgres"},
            ),
        ),
    ),
    "asyncssh": Suite(
        "2.24.1",
        "asyncssh[bcrypt] pyOpenSSL python-pkcs11 fido2",
        "--ignore=tests/test_connection.py",  # hangs on asyncio, too
        package="asyncssh",
    ),
    "channels-redis": Suite(
        "4.3.0",
        "channels-redis cryptography pytest-asyncio async-timeout",
        # Redis Sentinel is another server.
        "--ignore-glob=*sentinel.py",
        package="channels_redis",
        services=(
            Service(
                "redis",
                edits={
                    file: {"redis://localhost:6379": "redis://127.0.0.1:{port}"}
                    for file in ("tests/test_core.py", "tests/test_pubsub.py")
                },
            ),
        ),
    ),
    "httpx": Suite(
        "0.28.1",
        "httpx[brotli,http2,socks,zstd] chardet trio trustme uvicorn cryptography",
        "-p no:asyncio -k 'not trio'",
        package="httpx",
        builds="hatchling hatch-fancy-pypi-readme",
    ),
    # Tests of nats-py start a server each, on ports from 4222 on.
    "nats-py": Suite(
        "2.15.0",
        "nats-py[nkeys,aiohttp]",
        "-p no:asyncio",
        tests="nats/tests",
        package="nats/src",
        repository="https://github.com/nats-io/nats.py",
        tag="v{version}",
        services=(Service("nats", started=False),),
    ),
    "psycopg": Suite(
        "3.3.4",
        "psycopg[binary] psycopg-pool anyio pproxy",
        # conftest.py stores a flag in pytest's cache.
        "-p no:asyncio -p cacheprovider -W 'ignore:Module already imported' -k asyncio"
        " -m 'not slow and not timing and not flakey'",
        package="psycopg",
        repository="https://github.com/psycopg/psycopg",
        services=(
            Service(
                "postgres", "--test-dsn='host=127.0.0.1 port={port} user=postgres dbname=postgres'"
            ),
        ),
    ),
    "redis": Suite(
        "8.1.0",
        "redis pytest-asyncio pytest-cov numpy redis-entraid pybreaker aiohttp xxhash cryptography"
        " opentelemetry-sdk",
        "-m 'not redismod and not onlycluster and not ssl and not cp_integration and"
        " not multidb_integration and not replica' --ignore=tests/test_asyncio/test_scenario"
        " --ignore=tests/test_asyncio/test_cluster.py --ignore=tests/test_asyncio/test_search.py",
        tests="tests/test_asyncio",
        package="redis",
        builds="hatchling",
        services=(Service("redis", "--redis-url=redis://localhost:{port}/0"),),
    ),
    # The drivers' loops: of each database, the tests of SQLAlchemy's own asyncio API and those that
    # it has for the authors of dialects.
    "sqlalchemy": Suite(
        "2.1.9",
        "sqlalchemy[asyncio] aiosqlite asyncpg psycopg[binary] aiomysql PyMySQL==1.1.2",
        # test_cancellation.py cancels at each step of many calls, which takes long.
        "-p no:asyncio --dburi=sqlite+aiosqlite:///:memory:"
        " --ignore=test/ext/asyncio/test_cancellation.py",
        tests="test/ext/asyncio test/dialect/test_suite.py",
        services=(
            Service(
                "postgres",
                "--dburi=postgresql+asyncpg://postgres@127.0.0.1:{port}/postgres"
                " --dburi=postgresql+psycopg_async://postgres@127.0.0.1:{port}/postgres",
                prepare="psql -q -h 127.0.0.1 -p {port} -U postgres -c 'CREATE SCHEMA test_schema'"
                " -c 'CREATE SCHEMA test_schema_2'",
            ),
            Service(
                "mariadb",
                "--dburi=mysql+aiomysql://root@127.0.0.1:{port}/test?charset=utf8mb4",
                prepare="mariadb --no-defaults -S {path} -u root -e 'CREATE DATABASE test_schema'",
            ),
        ),
    ),
    "starlette": Suite(
        "1.10.0",
        "starlette[full] httpx2 opentelemetry-sdk pytest-codspeed trio typing_extensions",
        "-p no:asyncio -k 'not trio'",
        package="starlette",
        builds="hatchling",
    ),
    "tornado": Suite(
        "6.6.1",
        "tornado pycurl",
        "-p no:asyncio -p no:logging -o python_files=*_test.py",
        tests="tornado/test",
        setup='import logging\n\nlogging.getLogger("tornado.access").setLevel(logging.CRITICAL)\n',
    ),
    "uvicorn": Suite(
        "0.54.0",
        "uvicorn[standard] pytest-mock pytest-xdist[psutil] pytest-codspeed trustme cryptography"
        " httpx2 a2wsgi wsproto",
        "-p no:asyncio -k 'not uvloop'",
        package="uvicorn",
        builds="hatchling",
        different={
            "tests/test_compat.py::test_asyncio_run__default_loop_factory": (
                "expects the default loop to be asyncio's own, which the policy changes"
            )
        },
    ),
    "websockets": Suite(
        "17.0.1",
        "websockets mitmproxy python-socks[asyncio] trio werkzeug",
        "-p no:asyncio --ignore=tests/trio",
        repository="https://github.com/python-websockets/websockets",
        package="src",
        different={
            f"tests/asyncio/test_connection.py::{side}ConnectionTests::test_{which}_address": (
                "puts a get_extra_info() into asyncio.Transport; goloop's transports have their own"
            )
            for side in ("Client", "Server")
            for which in ("local", "remote")
        },
    ),
}
