"""The leak check finds each kind of leak, and none where there is none."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

sys.path.append(str(ROOT / "tools"))

import leakcheck  # noqa: E402

kept: list[object] = []


def leak_descriptors() -> None:
    os.open("/dev/null", os.O_RDONLY)


def leak_objects() -> None:
    kept.append([])


def leak_blocks() -> None:
    kept.append(object())


def level() -> None:
    with open("/dev/null") as file:
        file.read()
    [].append([])


@pytest.fixture(autouse=True)
def _tidy():
    yield
    kept.clear()


@pytest.fixture
def _closing_descriptors():
    before = set(os.listdir("/proc/self/fd"))
    yield
    for name in set(os.listdir("/proc/self/fd")) - before:
        with contextlib.suppress(OSError):  # the one that listed the others
            os.close(int(name))


@pytest.mark.usefixtures("_closing_descriptors")
@pytest.mark.parametrize("leak", [leak_descriptors, leak_objects, leak_blocks])
def test_a_leak_is_found(leak: Callable[[], None]) -> None:
    found = leakcheck.check_plain(leak, 400 if leak is leak_descriptors else 2000)
    what = leak.__name__.removeprefix("leak_")
    assert any(what in phrase for phrase in found), found


def test_leaked_memory_is_found() -> None:
    """This process has room that earlier tests gave back."""
    script = """
import ctypes
malloc = ctypes.CDLL(None).malloc
malloc.restype = ctypes.c_void_p
def leak():
    ctypes.memset(malloc(ctypes.c_size_t(1000)), 1, 1000)
"""
    assert "resident more in each round" in checked_alone(script, "check_plain(leak, 2000)")


def checked_alone(script: str, check: str) -> str:
    """What a check in a process of its own says."""
    return subprocess.run(
        [sys.executable, "-c", f"import leakcheck\n{script}\nprint(leakcheck.{check})"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tools")},
        stdout=subprocess.PIPE, text=True, check=True,
    ).stdout  # fmt: skip


def test_a_leaking_coroutine_is_found() -> None:
    async def body() -> None:
        await asyncio.sleep(0)
        leak_blocks()

    assert any("blocks" in phrase for phrase in asyncio.run(leakcheck.check(body, 400)))


def test_level_code_passes() -> None:
    """Threads of earlier tests may still make blocks in this process."""
    assert checked_alone(inspect.getsource(level), "check_plain(level, 2000)") == "[]\n"


@pytest.mark.parametrize("scenario", leakcheck.SCENARIOS, ids=lambda body: body.__name__)
def test_the_scenarios_run(scenario: Callable[[], object]) -> None:
    """So that a scenario that fails is seen here, not only in the long round."""
    leakcheck.goloop.run(scenario())
