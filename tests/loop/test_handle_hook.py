"""A program that replaces asyncio.Handle._run sees each callback, as aiodebug does to time them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ended
import pytest
from protocols import one_turn, turns

SCENARIOS = Path(__file__).with_name("handle_hook_scenarios.py")

Loop = asyncio.AbstractEventLoop


@pytest.fixture
def hooked(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Record the callbacks that run from now on; return the list."""
    ran: list[str] = []

    def begin() -> list[str]:
        original: Any = asyncio.Handle._run

        def run(self: Any) -> Any:
            callback: Any = self._callback
            owner = getattr(callback, "__self__", None)
            name = owner.get_name() if isinstance(owner, asyncio.Task) else callback.__name__
            ran.append(name)
            return original(self)

        monkeypatch.setattr(asyncio.Handle, "_run", run)
        return ran

    return begin


def noted(n: int = 0) -> None:
    pass


async def test_callbacks_timers_and_steps_are_seen(
    loop: Loop, hooked: Callable[[], list[str]]
) -> None:
    ran = hooked()  # while the loop runs

    async def steps() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)

    loop.call_soon(noted)
    loop.call_soon(noted, 1)
    await loop.create_task(steps(), name="stepper")
    assert ran.count("noted") == 2
    assert ran.count("stepper") == 3
    done = loop.create_future()
    loop.call_later(0.001, noted)
    loop.call_later(0.002, done.set_result, None)
    await done
    assert ran.count("noted") == 3
    assert "set_result" in ran
    thread = threading.Thread(target=loop.call_soon_threadsafe, args=(noted,))
    thread.start()
    while ran.count("noted") < 4:
        await asyncio.sleep(0.001)
    thread.join()


def test_hook_applies_to_loops_made_before_and_later(
    loop_factory: Callable[[], Loop], hooked: Callable[[], list[str]]
) -> None:
    before = loop_factory()
    ran = hooked()
    later = loop_factory()
    for loop in (before, later):
        ran.clear()
        loop.call_soon(noted)
        one_turn(loop)
        assert ran == ["noted", "stop"]
        loop.close()


def test_exceptions_of_the_hook_are_handled_as_on_asyncio(
    loop: Loop, hooked: Callable[[], list[str]], errors: Any
) -> None:
    ran = hooked()

    def fails() -> None:
        raise ZeroDivisionError("of a test")

    def leaves() -> None:
        raise SystemExit(3)

    loop.call_soon(fails)
    one_turn(loop)
    [context] = errors.contexts
    errors.contexts.clear()
    assert isinstance(context["exception"], ZeroDivisionError)
    loop.call_soon(leaves)
    with pytest.raises(SystemExit):
        loop.run_forever()
    assert ran == ["fails", "stop", "leaves"]


async def test_cancelled_handles_are_not_seen(loop: Loop, hooked: Callable[[], list[str]]) -> None:
    ran = hooked()
    loop.call_soon(noted).cancel()
    loop.call_later(0.0005, noted).cancel()
    await asyncio.sleep(0.001)
    assert "noted" not in ran


async def test_the_context_is_the_handles(loop: Loop, hooked: Callable[[], list[str]]) -> None:
    import contextvars

    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    hooked()
    seen: list[int] = []
    context = contextvars.Context()
    context.run(variable.set, 7)
    loop.call_soon(lambda: seen.append(variable.get()), context=context)
    loop.call_soon(lambda: seen.append(variable.get()), context=contextvars.Context())
    await turns(2)
    assert seen == [7, 0]


async def test_removed_hook_is_not_called(
    loop: Loop, hooked: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = hooked()
    loop.call_soon(noted)
    await turns(2)
    monkeypatch.undo()
    before = len(ran)
    assert before > 0
    loop.call_soon(noted)
    await asyncio.create_task(asyncio.sleep(0.001))
    assert len(ran) == before


def test_a_function_that_was_replaced_before_the_import_is_seen() -> None:
    done = ended.python(
        SCENARIOS, "a_function_that_was_replaced_before_the_import_is_seen", apart=True
    )
    assert (done.returncode, done.stdout) == (0, "called\ncalled\n"), done.stderr
