"""The context of a handle: a copy of the context in which it was scheduled.

goloop creates an empty one when it is needed, and reuses it, without a visible difference.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from protocols import turns

Loop = asyncio.AbstractEventLoop

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

Schedule = Callable[..., Any]


def in_empty_context(test: Callable[..., Any]) -> Callable[..., Any]:
    """Runs an asynchronous test in a context of its own: pytest has set variables in the usual."""

    @functools.wraps(test)
    def run(loop: Loop, **named: Any) -> None:
        contextvars.Context().run(loop.run_until_complete, test(loop, **named))

    return run


def ways(loop: Loop) -> dict[str, Schedule]:
    return {
        "call_soon": loop.call_soon,
        "call_soon_threadsafe": loop.call_soon_threadsafe,
        "call_later": lambda *args, **named: loop.call_later(0, *args, **named),
        "call_at": lambda *args, **named: loop.call_at(loop.time(), *args, **named),
    }


WAYS = ["call_soon", "call_soon_threadsafe", "call_later", "call_at"]


async def ran(handles: list[Any]) -> None:
    """Wait until the scheduled callbacks have run."""
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(0.001, done.set)
    await done.wait()
    handles.clear()


@pytest.mark.parametrize("way", WAYS)
@in_empty_context
async def test_context_variables_do_not_leak_between_callbacks(loop: Loop, way: str) -> None:
    schedule = ways(loop)[way]
    seen: list[str] = []

    def see_and_set() -> None:
        seen.append(variable.get())
        variable.set("another's")

    for _ in range(3):
        schedule(see_and_set)
        await ran([])
    for _ in range(3):
        schedule(see_and_set)
    await ran([])
    assert seen == ["unset"] * 6
    assert variable.get() == "unset"


@pytest.mark.parametrize("way", WAYS)
@in_empty_context
async def test_context_is_copied_when_scheduled(loop: Loop, way: str) -> None:
    schedule = ways(loop)[way]
    seen: list[str] = []
    schedule(lambda: seen.append(variable.get()))
    token = variable.set("set")
    schedule(lambda: seen.append(variable.get()))
    variable.reset(token)
    schedule(lambda: seen.append(variable.get()))
    await ran([])
    assert seen == ["unset", "set", "unset"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("look", ["before", "within", "after"])
@in_empty_context
async def test_the_handle_has_the_context_in_which_its_callback_runs(
    loop: Loop, way: str, look: str
) -> None:
    schedule = ways(loop)[way]
    handle: Any = None
    found: list[contextvars.Context] = []

    def callback() -> None:
        variable.set("set by the callback")
        if look == "within":
            found.append(handle._context)

    handle = schedule(callback)
    if look == "before":
        found.append(handle._context)
        assert len(found[0]) == 0
        assert handle._context is found[0]
    await ran([])
    if look == "after":
        found.append(handle._context)
    assert type(found[0]) is contextvars.Context
    assert found[0][variable] == "set by the callback"
    assert handle._context is found[0]


@in_empty_context
async def test_referenced_context_is_not_reused(loop: Loop) -> None:
    kept: list[contextvars.Context] = []
    names: list[str] = []

    def callback(name: str) -> None:
        names.append(variable.get())
        variable.set(name)

    for name in ("first", "second", "third"):
        handle: Any = loop.call_soon(callback, name)
        kept.append(handle._context)
        del handle
        await turns(2)
    assert names == ["unset"] * 3
    assert [context[variable] for context in kept] == ["first", "second", "third"]
    assert len({id(context) for context in kept}) == 3


@in_empty_context
async def test_referenced_empty_context_is_not_reused(loop: Loop) -> None:
    kept: list[contextvars.Context] = []
    for _ in range(3):
        handle: Any = loop.call_soon(int)
        kept.append(handle._context)
        del handle
        await turns(2)
    assert len({id(context) for context in kept}) == 3


@in_empty_context
async def test_weakly_referenced_context_is_not_reused(loop: Loop) -> None:
    known: list[weakref.ref[contextvars.Context]] = []
    for _ in range(5):
        handle: Any = loop.call_soon(int)
        known.append(weakref.ref(handle._context))
        del handle
        await turns(2)
        gc.collect()
    assert [reference() for reference in known] == [None] * 5


@in_empty_context
async def test_reset_variable_leaves_nothing_in_the_context(loop: Loop) -> None:
    seen: list[str] = []

    def callback() -> None:
        seen.append(variable.get())
        variable.reset(variable.set("for a moment"))

    for _ in range(5):
        loop.call_soon(callback)
        await turns(2)
    assert seen == ["unset"] * 5


@in_empty_context
async def test_a_copy_within_a_callback_is_its_own(loop: Loop) -> None:
    copies: list[contextvars.Context] = []

    def callback(name: str) -> None:
        copies.append(contextvars.copy_context())
        copies[-1].run(variable.set, name)

    for name in ("first", "second"):
        loop.call_soon(callback, name)
        await turns(2)
    assert [copy[variable] for copy in copies] == ["first", "second"]


@in_empty_context
async def test_the_context_can_be_written_and_deleted(loop: Loop) -> None:
    seen: list[str] = []
    context = contextvars.Context()
    context.run(variable.set, "given later")
    handle: Any = loop.call_soon(lambda: seen.append(variable.get()))
    handle._context = context
    await turns(2)
    assert seen == ["given later"]
    assert handle._context is context
    del handle._context
    with pytest.raises(AttributeError, match="_context"):
        assert handle._context
    with pytest.raises(AttributeError, match="_context"):
        del handle._context


@in_empty_context
async def test_unread_context_can_be_deleted(loop: Loop, errors: Any) -> None:
    handle: Any = loop.call_soon(int)
    del handle._context
    with pytest.raises(AttributeError, match="_context"):
        del handle._context
    handle.cancel()
    await turns(2)


@in_empty_context
async def test_a_cancelled_handle_still_has_a_context(loop: Loop) -> None:
    handle: Any = loop.call_soon(int)
    handle.cancel()
    assert type(handle._context) is contextvars.Context
    await turns(2)
    assert len(handle._context) == 0


@in_empty_context
async def test_a_callback_may_run_in_a_callback(loop: Loop) -> None:
    """_run() of another handle, within the first one's context."""
    seen: list[str] = []
    inner: Any = loop.call_soon(lambda: seen.append(variable.get()))

    def outer() -> None:
        variable.set("outer's")
        inner._run()

    loop.call_soon(outer)
    await turns(2)
    assert seen == ["unset", "unset"]


@pytest.mark.parametrize("empty", [True, False])
def test_threads_have_contexts_of_their_own(loop: Loop, empty: bool) -> None:
    seen: list[str] = []

    def sender() -> None:
        loop.call_soon_threadsafe(lambda: seen.append(variable.get()))
        variable.set("the thread's")
        loop.call_soon_threadsafe(lambda: seen.append(variable.get()))
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=sender)
    thread.start()
    context = contextvars.Context() if empty else contextvars.copy_context()
    context.run(loop.run_forever)
    thread.join()
    assert seen == ["unset", "the thread's"]


def test_a_loop_that_is_dropped_with_handles_is_freed(loop_factory: Callable[[], Loop]) -> None:
    """Their contexts may be garbage before they are."""
    reference = contextvars.Context().run(dropped, loop_factory())
    deadline = time.monotonic() + 10
    while reference() is not None and time.monotonic() < deadline:
        gc.collect()  # which does nothing while another thread collects
    assert reference() is None, kept_by(reference())


def kept_by(holder: Any) -> str:
    """Describe the objects that refer to an object, and to its loop."""
    lines = [f"threads: {threading.enumerate()}, collector: {gc.get_stats()} {gc.get_debug()}"]
    for each in (holder, holder.loop):
        lines += [f"{each!r}: {type(found)} {found!r:.200}" for found in gc.get_referrers(each)]
    return "\n".join(lines)


def dropped(loop: Loop) -> weakref.ref[Any]:
    """Handles in cycles with a loop that is closed; tells of the end of these."""
    kept: list[Any] = []

    class Holder:
        pass

    holder: Any = Holder()
    holder.loop = loop
    for _ in range(3):
        loop.call_soon(lambda holder: None, holder)
        handle: Any = loop.call_soon(lambda holder: None, holder)
        handle._context.run(variable.set, holder)
        kept.append(handle)
        kept.append(loop.call_later(1000, lambda holder: None, holder))
    holder.kept = kept
    reference = weakref.ref(holder)
    loop.close()
    return reference
