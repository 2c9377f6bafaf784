"""nest_asyncio and nest_asyncio2: refused by goloop's loops, and nothing is broken afterwards."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from real_programs.programs import LOOP, Programs

pytestmark = pytest.mark.real

ASYNCIO_LOOP = "asyncio.unix_events._UnixSelectorEventLoop"

START = """
import asyncio, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # policies, from 3.14 on
import NEST, goloop
from asyncio_works import asyncio_works

def names():
    return [
        asyncio.run, asyncio.get_event_loop, asyncio.events.get_event_loop,
        asyncio.Task, asyncio.tasks.Task, asyncio.tasks._CTask,
        asyncio.Future, asyncio.futures.Future, asyncio.futures._CFuture,
        getattr(asyncio.events, "_get_event_loop", None),
        hasattr(asyncio, "_nest_patched"), hasattr(asyncio, "_nest_asyncio2"),
    ]

def is_refused(*loop):
    try:
        NEST.apply(*loop)
    except ValueError as error:
        assert "Can't patch loop of type <class 'goloop.Loop'>" in str(error), error
        assert "goloop.run" in str(error), error
        return True
    return False

before = names()
"""

RUNNING = """
async def main():
    assert is_refused()
    assert names() == before
    return await asyncio_works()

print("same run:", goloop.run(main()))
"""

POLICY = """
goloop.install()
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
assert is_refused()
asyncio.set_event_loop(None)
loop.close()
assert names() == before
assert "get_event_loop" not in vars(goloop.EventLoopPolicy)
"""

GIVEN = """
import tornado.concurrent
loop = goloop.new_event_loop()
assert is_refused(loop)
assert names() == before
assert tornado.concurrent.Future is asyncio.Future
print("same loop:", loop.run_until_complete(asyncio_works()))
loop.close()
"""

# Afterwards both loops work, by all functions that run one.
END = """
print("goloop.run:", goloop.run(asyncio_works()))
print("asyncio.run:", asyncio.run(asyncio_works()))
with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
    print("asyncio's loop:", runner.run(asyncio_works()))
"""

# A loop of asyncio's is patched, and goloop's must neither break it nor be broken.
AFTERWARDS = """
async def answer():
    return 42

async def nested():
    return asyncio.run(answer())

async def not_nested():
    coroutine = answer()
    try:
        asyncio.run(coroutine)
    except (RuntimeError, ValueError) as error:
        return str(error)
    finally:
        coroutine.close()

theirs = asyncio.SelectorEventLoop()
asyncio.set_event_loop(theirs)
NEST.apply(theirs)
print("asyncio, nested:", theirs.run_until_complete(nested()))
print("goloop.run:", goloop.run(asyncio_works()))
ours = goloop.new_event_loop()
assert is_refused(ours)
print("goloop's loop:", ours.run_until_complete(asyncio_works()))
ours.close()
print("goloop, nested:", goloop.run(not_nested()))
asyncio.set_event_loop(theirs)
print("asyncio, nested again:", theirs.run_until_complete(nested()))
theirs.close()
"""


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
    middle = {"running": RUNNING, "policy": POLICY, "given": GIVEN}[way]
    said = programs.ends_well("-c", (START + middle + END).replace("NEST", nest))
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
    said = programs.ends_well("-c", (START + AFTERWARDS).replace("NEST", nest))
    assert "asyncio, nested: 42\n" in said
    assert f"goloop.run: {LOOP}\n" in said
    assert f"goloop's loop: {LOOP}\n" in said
    # asyncio.run is theirs, of any loop: a goloop loop says no, in one way or the other.
    (refused,) = [line for line in said.splitlines() if line.startswith("goloop, nested:")]
    assert "already running" in refused or "Can't patch loop" in refused
    assert "asyncio, nested again: 42\n" in said


INSPECTED = """
import inspect, goloop
loop = goloop.new_event_loop()
assert not hasattr(loop, "_nest_patched")
assert getattr(loop, "_nest_patched", False) is False
assert not hasattr(goloop.Loop, "_nest_patched")
assert "_nest_patched" not in dict(inspect.getmembers(loop))
loop.close()
"""


def test_unused_nest_asyncio_leaves_no_patch_marks(programs: Programs) -> None:
    programs.ends_well("-c", INSPECTED)
