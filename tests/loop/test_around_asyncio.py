"""Other parts of Python that make loops by themselves: unittest, and asyncio's REPL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import goloop

CASES = """
import asyncio
import sys
import unittest

import goloop

steps = []


class Cases(unittest.IsolatedAsyncioTestCase):
    if sys.version_info >= (3, 13):
        loop_factory = goloop.Loop

    def setUp(self):
        steps.append("setUp")

    async def asyncSetUp(self):
        self.loop = asyncio.get_running_loop()
        assert type(self.loop) is goloop.Loop
        self.addAsyncCleanup(self.clean)
        steps.append("asyncSetUp")

    async def test_first(self):
        assert asyncio.get_running_loop() is self.loop
        await asyncio.sleep(0)
        self.left_behind = asyncio.create_task(asyncio.sleep(3600))
        steps.append("test")

    async def test_second(self):
        with self.assertRaises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        steps.append("test")

    async def asyncTearDown(self):
        steps.append("asyncTearDown")

    async def clean(self):
        steps.append("cleanup")


if sys.version_info < (3, 13):
    goloop.install()
unittest.main(exit=False)
assert steps == ["setUp", "asyncSetUp", "test", "asyncTearDown", "cleanup"] * 2, steps
"""


def run(*words: str, told: str = "") -> subprocess.CompletedProcess[str]:
    """A Python program that is told something by its standard input."""
    return subprocess.run(
        [sys.executable, *words], input=told, capture_output=True, text=True, timeout=60
    )


def test_isolated_test_cases_pass_on_goloop(tmp_path: Path) -> None:
    program = tmp_path / "cases.py"
    program.write_text(CASES)
    done = run("-W", "error", str(program))
    assert done.returncode == 0, done.stderr
    assert "Ran 2 tests" in done.stderr
    assert "OK" in done.stderr


def test_the_repl_of_asyncio_runs_on_an_installed_goloop() -> None:
    start = (
        "import runpy, warnings, goloop\nwith warnings.catch_warnings(action='ignore'):\n"
        if sys.version_info >= (3, 14)
        else "import runpy, goloop\nif True:\n"
    )
    start += (
        "    goloop.install()\nrunpy.run_module('asyncio', run_name='__main__', alter_sys=True)\n"
    )
    told = """\
import asyncio
print("loop:", type(asyncio.get_running_loop()).__module__)
number = await asyncio.sleep(0.01, 42)
print("awaited:", number)
child = await asyncio.create_subprocess_exec("true")
print("child:", await child.wait())
1 / 0
print("still there")
exit()
"""
    done = run("-c", start, told=told)
    assert done.returncode == 0, done.stderr
    assert f"loop: {goloop.Loop.__module__}" in done.stdout
    assert "awaited: 42" in done.stdout
    assert "child: 0" in done.stdout
    assert "ZeroDivisionError" in done.stdout + done.stderr
    assert "still there" in done.stdout


def test_the_repl_runs_by_the_command_line() -> None:
    """`python -m goloop -m asyncio`, without a word of Python."""
    told = "import asyncio\nprint(type(asyncio.get_running_loop()).__name__)\nexit()\n"
    done = run("-m", "goloop", "-m", "asyncio", told=told)
    assert done.returncode == 0, done.stderr
    assert "Loop" in done.stdout
