"""Changes of a handle's attributes by a program: asyncio's outcome, and never a crash."""

from __future__ import annotations

import ast
import asyncio
import gc
import json
import sys
import weakref
from pathlib import Path
from typing import Any

import ended
import pytest
from conftest import Errors, LoopFactory
from protocols import close_each, one_turn

SCENARIOS = Path(__file__).with_name("handle_state_scenarios.py")

Loop = asyncio.AbstractEventLoop


# ---- attributes that are written or deleted ---------------------------------------


def deliberate(case: tuple[Any, ...]) -> bool:
    """Return true for intended differences from asyncio's handles."""
    _kind, _arguments, way, name, value, _how = case
    # asyncio's slot of arguments that are stored elsewhere: its value has no effect.
    if way == "slot" and name == "_args":
        return True
    # asyncio's slot is empty until the context is needed, so there is nothing to delete.
    if way == "slot" and name == "_context" and value == "delete":
        return True
    # Not writable: whether a timer is armed is the loop's matter.
    if name == "_scheduled":
        return True
    # Both attributes read as None if nothing is stored.
    if value == "delete" and name in ("_repr", "_source_traceback"):
        return True
    # A heap is ordered by it in asyncio, and breaks.
    return bool(name == "_when")


def test_written_attributes_have_asyncios_effect() -> None:
    wanted = json.loads(ended.passes(SCENARIOS, "matrix", "asyncio"))
    found = json.loads(ended.passes(SCENARIOS, "matrix", "goloop"))
    assert wanted.keys() == found.keys()
    different = {
        case: (found[case], wanted[case])
        for case in wanted
        if found[case] != wanted[case] and not deliberate(ast.literal_eval(case))
    }
    assert not different, "\n".join(f"{c}\n   {f}\n   {w}" for c, (f, w) in different.items())


@pytest.mark.parametrize("attribute", ["_context", "_loop", "_callback", "_args"])
def test_a_deleted_attribute_is_an_attribute_error(
    loop: Loop, errors: Errors, attribute: str
) -> None:
    handle: Any = loop.call_soon(lambda: None)
    delattr(handle, attribute)
    with pytest.raises(AttributeError, match=attribute):
        getattr(handle, attribute)
    if attribute == "_loop":
        with pytest.raises(AttributeError):
            handle.cancel()
    loop.call_soon(loop.stop)
    if attribute in ("_callback", "_args"):  # asyncio's report needs them
        with pytest.raises(AttributeError):
            loop.run_forever()
        loop.run_forever()
    else:
        loop.run_forever()
    if attribute == "_context" and sys.version_info < (3, 12):  # later the report needs it too
        errors.expect(AttributeError, "Exception in callback")


def test_timer_with_a_replaced_loop_can_be_cancelled(
    loop_factory: LoopFactory,
) -> None:
    first, second = loop_factory(), loop_factory()
    ran: list[int] = []
    timer: Any = first.call_later(0, ran.append, 1)
    timer._loop = second
    timer.cancel()
    first.call_later(0.001, first.stop)
    first.run_forever()
    assert ran == []
    close_each(first, second)


# ---- collection --------------------------------------------------------------------


class Owner:
    """Keeps the handle of its own method: a cycle."""

    handle: Any = None

    def method(self) -> None: ...

    def fails(self) -> None:
        raise ZeroDivisionError


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("when", ["before", "running", "stopped", "weakly", "several"])
@pytest.mark.parametrize("method", ["call_soon", "call_soon_threadsafe"])
def test_an_unclosed_loop_that_holds_a_kept_handle_is_collected(
    loop_factory: LoopFactory, method: str, when: str
) -> None:
    def make() -> list[weakref.ref[Any]]:
        loop, owner = loop_factory(), Owner()

        def schedule() -> None:
            owner.handle = getattr(loop, method)(owner.method)

        if when == "running":
            # Callbacks scheduled while the loop stops stay in the queue.
            loop.call_soon(loop.stop)
            loop.call_soon(schedule)
            loop.run_forever()
        else:
            if when == "stopped":
                one_turn(loop)
            schedule()
        if when == "weakly":
            made = weakref.ref(owner.handle)
            owner.handle = None
            for _ in range(3):
                loop.call_soon(owner.method)
            owner.handle = made()
        if when == "several":
            for _ in range(3):
                schedule()
        return [weakref.ref(loop), weakref.ref(owner)]

    refs = make()
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def test_a_handle_that_an_exception_handler_keeps_is_collected(loop: Loop) -> None:
    refs = []

    def keep(_loop: Loop, context: dict[str, Any]) -> None:
        handle = context["handle"]
        handle._callback.__self__.handle = handle

    loop.set_exception_handler(keep)
    for schedule in (loop.call_soon, loop.call_soon_threadsafe):
        owner = Owner()
        refs.append(weakref.ref(owner))
        schedule(owner.fails)
    owner = Owner()
    refs.append(weakref.ref(owner))
    loop.call_later(0, owner.fails)
    del owner
    loop.call_later(0.001, loop.stop)
    loop.run_forever()
    gc.collect()
    assert [ref() for ref in refs] == [None] * 3


def test_the_handle_of_a_failed_step_is_known_to_the_collector(loop: Loop) -> None:
    """A task that fails outside of its coroutine is reported with a handle too."""

    class Awkward:
        _asyncio_future_blocking = True

        def __await__(self) -> Any:
            yield self

        def get_loop(self) -> Loop:
            return loop

        def add_done_callback(self, *args: Any, **kwargs: Any) -> None:
            raise ZeroDivisionError

    awkward = Awkward()
    kept: list[Any] = []

    def keep(_loop: Loop, context: dict[str, Any]) -> None:
        kept.append(context["handle"])

    loop.set_exception_handler(keep)

    async def main() -> None:
        await awkward  # type: ignore[misc]

    task: Any = loop.create_task(main())
    one_turn(loop)
    assert len(kept) == 1
    assert gc.is_tracked(kept[0])
    task._log_destroy_pending = False


# ---- long chains ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "what", ["handle", "tuple", "timer", "threadsafe", "future", "mixed", "exception"]
)
def test_a_long_chain_does_not_overflow_the_stack(what: str) -> None:
    assert ended.passes(SCENARIOS, "chains", what) == "alive\n"
