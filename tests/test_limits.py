"""The limits of a process: goloop changes none, and meets each with an exception.

Each scenario is a program of its own, since it lowers a limit for good.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from typing import Any

import pytest

TIME_LIMIT = 100  # seconds

PRELUDE = """
import asyncio, os, resource, sys
LOOP = sys.argv[1]

def new_loop():
    if LOOP == "asyncio":
        return asyncio.SelectorEventLoop()
    import goloop
    return goloop.new_event_loop()
"""


def run(program: str, loop: str, *arguments: str) -> tuple[int, str]:
    """Runs a program; its exit code (negative: the signal it died of) and its output."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program, loop, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    return done.returncode, done.stdout


def passes(program: str, loop: str, *arguments: str) -> None:
    """Runs a program that must end well."""
    code, output = run(program, loop, *arguments)
    assert code == 0, f"ended with {code}\n{output}"


@pytest.fixture(params=["asyncio", "goloop"])
def loop_name(request: pytest.FixtureRequest) -> Any:
    """Which loop this run of the test is for."""
    return request.param


# ---- the limit of open files -------------------------------------------------------


def test_the_limit_of_open_files_stays(loop_name: str) -> None:
    passes(
        """
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (123, hard))
loop = new_loop()
loop.run_until_complete(asyncio.sleep(0))
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (123, hard)

async def child():
    script = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=-1)
    out, _ = await process.communicate()
    assert out == b"123\\n", out

loop.run_until_complete(child())
loop.close()
pid = os.fork()
if pid == 0:
    new_loop().close()
    os._exit(resource.getrlimit(resource.RLIMIT_NOFILE) != (123, hard))
assert os.waitpid(pid, 0)[1] == 0
""",
        loop_name,
    )


def test_a_limit_without_bound_stays(loop_name: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    passes(
        """
before = resource.getrlimit(resource.RLIMIT_NOFILE)
new_loop().close()
assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
""",
        loop_name,
    )
