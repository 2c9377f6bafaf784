"""nest_asyncio and nest_asyncio2: refused by goloop's loops, and nothing is broken afterwards."""

from __future__ import annotations

import importlib.util
import inspect
import sys

import pytest

import goloop
from real_programs.programs import APPS, ASYNCIO_LOOP, LOOP, Programs

pytestmark = pytest.mark.real

PROGRAM = APPS / "nested_loops.py"


@pytest.fixture(params=["nest_asyncio", "nest_asyncio2"])
def nest(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed: it is in the dependency group `tools`")
    return name


@pytest.mark.parametrize("way", ["running", "policy", "given"])
def test_apply_is_refused_and_leaves_asyncio_as_it_was(
    programs: Programs, nest: str, way: str
) -> None:
    if way == "given" and importlib.util.find_spec("tornado") is None:
        pytest.skip("tornado is not installed: it is in the dependency group `real`")
    said = programs.ends_well(PROGRAM, nest, way)
    by_policy = LOOP if way == "policy" else ASYNCIO_LOOP
    assert f"goloop.run: {LOOP}\nasyncio.run: {by_policy}\n" in said
    assert f"asyncio's loop: {ASYNCIO_LOOP}\n" in said
    # The loop that refused goes on.
    assert said.count(f"same run: {LOOP}") == (way == "running")
    assert said.count(f"same loop: {LOOP}") == (way == "given")


def test_a_goloop_loop_works_beside_an_asyncio_loop_that_was_patched(
    programs: Programs, nest: str
) -> None:
    if nest == "nest_asyncio" and sys.version_info >= (3, 14):
        pytest.skip(
            "from 3.14 on nest_asyncio 1.6 leaves no loop a current task, asyncio's neither"
        )
    said = programs.ends_well(PROGRAM, nest, "patched")
    assert "asyncio, nested: 42\n" in said
    assert f"goloop.run: {LOOP}\n" in said
    assert f"goloop's loop: {LOOP}\n" in said
    # The patched asyncio.run runs any loop: goloop's refuses in one way or the other.
    (refused,) = [line for line in said.splitlines() if line.startswith("goloop, nested:")]
    assert "already running" in refused or "Can't patch loop" in refused
    assert "asyncio, nested again: 42\n" in said


def test_unused_nest_asyncio_leaves_no_patch_marks() -> None:
    loop = goloop.new_event_loop()
    assert not hasattr(loop, "_nest_patched")
    assert getattr(loop, "_nest_patched", False) is False
    assert not hasattr(goloop.Loop, "_nest_patched")
    assert "_nest_patched" not in dict(inspect.getmembers(loop))
    loop.close()
