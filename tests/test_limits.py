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


# ---- the stack of a thread ---------------------------------------------------------

# A thread with CPython's least stack, of which `deep` calls take some 500 bytes each.
SMALL_STACK = """
import threading

async def echo(reader, writer):
    writer.write(await reader.read(10))
    writer.close()

async def main():
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"question")
    assert await reader.read() == b"question"
    writer.close()
    server.close()

def body():
    loop = new_loop()
    loop.run_until_complete(main())
    loop.close()

def call(deep, function):
    return next(map(call, [deep - 1], [function])) if deep else function()

def in_small_thread(deep, function):
    outcome = []
    def guarded():
        try:
            outcome.append(function())
        except Exception as exc:
            outcome.append(f"{type(exc).__name__}: {exc}")
    old = threading.stack_size(32768)
    thread = threading.Thread(target=call, args=(deep, guarded))
    thread.start()
    thread.join()
    threading.stack_size(old)
    return outcome[0]

deep = int(sys.argv[2])
if LOOP == "goloop":
    import goloop  # which takes more stack than a loop does
if sys.argv[3] == "opened":
    new_loop().close()
"""


@pytest.mark.parametrize("when", ["first", "opened"])
def test_a_loop_in_a_thread_of_32_kib(loop_name: str, when: str) -> None:
    if sys.version_info >= (3, 14):
        pytest.skip("CPython keeps more than that in reserve")
    passes(SMALL_STACK + "print(in_small_thread(0, body))", loop_name, "0", when)


@pytest.mark.parametrize("when", ["first", "opened"])
@pytest.mark.parametrize("deep", [8, 16, 24, 32])
def test_a_stack_that_is_too_small_is_refused(deep: int, when: str) -> None:
    if sys.version_info >= (3, 14):
        pytest.skip("CPython keeps more than that in reserve")
    program = SMALL_STACK + "print(in_small_thread(deep, body))"
    code, output = run(program, "goloop", str(deep), when)
    assert code == 0, f"ended with {code}\n{output}"
    assert output == "None\n" or output.startswith("RuntimeError: This thread has too little stack")


def test_a_run_on_a_stack_that_is_too_small_is_refused() -> None:
    if sys.version_info >= (3, 14):
        pytest.skip("CPython keeps more than that in reserve")
    passes(
        SMALL_STACK
        + """
loop = new_loop()
wrong = in_small_thread(deep, lambda: loop.run_forever())
assert wrong.startswith("RuntimeError: This thread has too little stack"), wrong
loop.run_until_complete(main())
loop.close()
""",
        "goloop",
        "30",
        "first",
    )
