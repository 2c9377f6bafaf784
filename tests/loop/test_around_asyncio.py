"""Other parts of Python that make loops by themselves: unittest, and asyncio's REPL."""

from __future__ import annotations

import sys
from pathlib import Path

import ended

import goloop

PROGRAMS = Path(__file__).with_name("programs")


def test_isolated_test_cases_pass_on_goloop() -> None:
    done = ended.python("-W", "error", PROGRAMS / "unittest_cases.py", apart=True)
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
    done = ended.python("-c", start, apart=True, text=told)
    assert done.returncode == 0, done.stderr
    assert f"loop: {goloop.Loop.__module__}" in done.stdout
    assert "awaited: 42" in done.stdout
    assert "child: 0" in done.stdout
    assert "ZeroDivisionError" in done.stdout + done.stderr
    assert "still there" in done.stdout


def test_the_repl_runs_by_the_command_line() -> None:
    """`python -m goloop -m asyncio`, without a word of Python."""
    told = "import asyncio\nprint(type(asyncio.get_running_loop()).__name__)\nexit()\n"
    done = ended.python("-m", "goloop", "-m", "asyncio", apart=True, text=told)
    assert done.returncode == 0, done.stderr
    assert "Loop" in done.stdout
