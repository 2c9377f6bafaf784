"""pytest's plugins for asyncio: each runs tests and fixtures of a small project on goloop."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

import goloop
from real_programs.programs import Programs, needs

needs("pytest_asyncio", "pytest_aiohttp", "anyio")

pytestmark = pytest.mark.real

# The common part of the projects' tests: print the loop's class, and use the loop.
BODY = """
import asyncio

import goloop
import pytest

def is_goloop():
    return type(asyncio.get_running_loop()) is goloop.Loop

async def echo(reader, writer):
    writer.write(await reader.readline())
    writer.close()

async def works():
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"hello\\n")
    assert await reader.readline() == b"hello\\n"
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()
"""

PYTEST_ASYNCIO = """
import pytest_asyncio

@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def service():
    assert is_goloop()
    yield asyncio.get_running_loop()
    assert is_goloop()

@pytest.mark.asyncio
async def test_loop():
    assert is_goloop()
    await works()

@pytest.mark.asyncio(loop_scope="module")
async def test_loop_of_a_module(service):
    assert asyncio.get_running_loop() is service
    await works()

@pytest.mark.asyncio(loop_scope="module")
async def test_the_same_loop(service):
    assert asyncio.get_running_loop() is service
"""

FACTORIES = """
import asyncio
import goloop

def pytest_asyncio_loop_factories(config, item):
    return {"goloop": goloop.new_event_loop}
"""

# Each test on both.
BOTH_FACTORIES = """
import asyncio
import goloop

def pytest_asyncio_loop_factories(config, item):
    return {"asyncio": asyncio.SelectorEventLoop, "goloop": goloop.new_event_loop}
"""

BOTH = """
@pytest.mark.asyncio
async def test_loop(request):
    assert is_goloop() == ("goloop" in request.node.name)
    assert is_goloop() != ("asyncio" in request.node.name)
    await works()

@pytest.mark.asyncio(loop_factories=["goloop"])
async def test_on_goloop_alone():
    assert is_goloop()
"""

POLICY = """
import goloop
import pytest

@pytest.fixture(scope="session")
def event_loop_policy():
    return goloop.EventLoopPolicy()
"""

ANYIO = """
pytestmark = pytest.mark.anyio

@pytest.fixture
async def service():
    assert is_goloop()
    yield asyncio.get_running_loop()
    assert is_goloop()

async def test_loop(service):
    assert asyncio.get_running_loop() is service
    await works()

async def test_anyio_itself():
    import anyio
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep, 0)
    assert is_goloop()
    assert await anyio.to_thread.run_sync(lambda: 1) == 1
"""

ANYIO_BACKEND = """
import goloop
import pytest

@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio", {"loop_factory": goloop.new_event_loop}
"""

AIOHTTP = """
from aiohttp import web

async def hello(request):
    return web.json_response({"goloop": is_goloop()})

async def test_client_and_server(aiohttp_client):
    app = web.Application()
    app.router.add_get("/", hello)
    client = await aiohttp_client(app)
    answer = await client.get("/")
    assert await answer.json() == {"goloop": True}
    assert is_goloop()

async def test_raw_server(aiohttp_raw_server, aiohttp_client):
    client = await aiohttp_client(await aiohttp_raw_server(hello))
    assert await (await client.get("/")).json() == {"goloop": True}
"""

# The plugin within aiohttp, which pytest-aiohttp was before 1.0.  It chooses among factories of
# its own, so a project replaces the fixture `loop`.
AIOHTTP_OWN = """
def test_loop(loop):
    loop.run_until_complete(works())
    assert type(loop) is goloop.Loop

async def test_client(aiohttp_client):
    from aiohttp import web
    async def hello(request):
        return web.json_response({"goloop": is_goloop()})
    app = web.Application()
    app.router.add_get("/", hello)
    client = await aiohttp_client(app)
    assert await (await client.get("/")).json() == {"goloop": True}
"""

AIOHTTP_OWN_LOOP = """
import asyncio
import goloop
import pytest
from aiohttp.test_utils import loop_context

@pytest.fixture
def loop():
    with loop_context(goloop.new_event_loop) as loop:
        asyncio.set_event_loop(loop)
        yield loop
"""


def passed(
    programs: Programs,
    folder: Path,
    tests: str,
    conftest: str,
    *options: str,
    ini: str = "",
    **environ: str,
) -> tuple[int, str]:
    """Return the number of passed tests of a project, which must be all, and pytest's output."""
    (folder / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
    (folder / "conftest.py").write_text(textwrap.dedent(conftest))
    (folder / "test_project.py").write_text(BODY + tests)
    said = programs.ends_well(
        *("-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-v", *options),
        *("--rootdir", folder, folder),
        **environ,
    )
    found = re.search(r"=+ (\d+) passed(?:, \d+ warnings?)? in", said)
    assert found is not None, said
    return int(found[1]), said


def test_pytest_asyncio_takes_loop_factories(programs: Programs, tmp_path: Path) -> None:
    count, said = passed(programs, tmp_path, PYTEST_ASYNCIO, FACTORIES)
    assert count == 3
    assert "warning" not in said


def test_pytest_asyncio_runs_a_test_on_each_of_two_loops(
    programs: Programs, tmp_path: Path
) -> None:
    count, said = passed(programs, tmp_path, BOTH, BOTH_FACTORIES)
    assert count == 3
    assert said.count("test_loop[goloop]") == said.count("test_loop[asyncio]") == 1


def test_pytest_asyncio_takes_a_policy(programs: Programs, tmp_path: Path) -> None:
    # The fixture is deprecated, and so are policies from 3.14 on.
    count, _ = passed(programs, tmp_path, PYTEST_ASYNCIO, POLICY)
    assert count == 3


def test_anyio_takes_a_factory_as_its_backend_s_option(programs: Programs, tmp_path: Path) -> None:
    count, _ = passed(programs, tmp_path, ANYIO, ANYIO_BACKEND)
    assert count == 2


def test_pytest_aiohttp_takes_loop_factories(programs: Programs, tmp_path: Path) -> None:
    count, _ = passed(programs, tmp_path, AIOHTTP, FACTORIES, ini="asyncio_mode = auto")
    assert count == 2


def test_the_plugin_within_aiohttp_takes_the_fixture_loop(
    programs: Programs, tmp_path: Path
) -> None:
    count, _ = passed(
        *(programs, tmp_path, AIOHTTP_OWN, AIOHTTP_OWN_LOOP),
        *("-p", "no:asyncio", "-p", "no:aiohttp", "-p", "aiohttp.pytest_plugin"),
    )
    assert count == 2


# ---- the option ----------------------------------------------------------------------------------

# Not through any plugin: asyncio's own ways to run a coroutine in a test.
STDLIB = """
import unittest

async def is_on_goloop():
    assert is_goloop()
    await works()

def test_run():
    asyncio.run(is_on_goloop())

def test_runner():
    with asyncio.Runner() as runner:
        runner.run(is_on_goloop())

class Case(unittest.IsolatedAsyncioTestCase):
    async def test_loop(self):
        await is_on_goloop()
"""


@pytest.mark.parametrize(
    ("tests", "count", "options"),
    [
        pytest.param(PYTEST_ASYNCIO, 3, (), id="pytest-asyncio"),
        pytest.param(ANYIO, 2, ("-k", "asyncio"), id="anyio"),
        pytest.param(AIOHTTP, 2, ("-o", "asyncio_mode=auto"), id="pytest-aiohttp"),
        pytest.param(STDLIB, 3, ("-p", "no:asyncio", "-p", "no:aiohttp"), id="stdlib"),
    ],
)
def test_the_option_loop_puts_tests_of_every_plugin_on_goloop(
    programs: Programs, tmp_path: Path, tests: str, count: int, options: tuple[str, ...]
) -> None:
    found, said = passed(programs, tmp_path, tests, "", "--loop=goloop", *options)
    assert found == count
    assert f"loop: goloop {goloop.__version__}\n" in said
    assert "DeprecationWarning" not in said


def test_without_the_option_tests_run_on_asyncio(programs: Programs, tmp_path: Path) -> None:
    tests = STDLIB.replace("assert is_goloop()", "assert not is_goloop()")
    for options in ((), ("--loop=asyncio",)):
        found, said = passed(programs, tmp_path, tests, "", *options)
        assert found == 3
        assert "loop: goloop" not in said


SIMULATED = """
import asyncio
import pytest
from goloop import testing

@testing.simulate(seeds=3)
async def test_simulated(sim):
    await asyncio.sleep(3600)
    assert sim.time() == 3600

@pytest.mark.asyncio
@testing.simulate(seeds=3)
async def test_marked(sim):
    await asyncio.sleep(3600)

async def test_of_pytest_asyncio():
    await asyncio.sleep(0)
"""


def test_simulated_tests_run_with_pytest_asyncio(programs: Programs, tmp_path: Path) -> None:
    found, _ = passed(
        programs, tmp_path, SIMULATED, "", "--goloop-seeds=2", ini="asyncio_mode = auto"
    )
    assert found == 3


def test_without_the_option_the_plugin_imports_nothing(programs: Programs, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_project.py").write_text(
        "import sys\ndef test_modules():\n"
        "    assert 'pytest_goloop' in sys.modules and 'goloop' not in sys.modules\n"
    )
    programs.ends_well("-m", "pytest", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path)


def test_a_loop_that_a_test_names_is_not_replaced_by_the_option(
    programs: Programs, tmp_path: Path
) -> None:
    found, _ = passed(programs, tmp_path, BOTH, BOTH_FACTORIES, "--loop=goloop")
    assert found == 3


def test_same_option_of_another_plugin_is_not_used(programs: Programs, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--loop', type=int)\n"
    )
    tests = "\ndef test_number(request):\n    assert request.config.getoption('--loop') == 7\n"
    found, _ = passed(
        *(programs, tmp_path, tests, ""),
        # -p is read before entry points are.
        *("-p", "other", "--loop=7"),
        PYTHONPATH=str(tmp_path),
    )
    assert found == 1
