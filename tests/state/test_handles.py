"""Handle and TimerHandle: types, repr, cancellation, comparison, contexts."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import sys
import weakref
from typing import Any

import pytest
from conftest import LoopFactory
from protocols import one_turn

Loop = asyncio.AbstractEventLoop


def callback(*args: Any) -> None: ...


def test_handles_have_asyncios_types(loop: Loop) -> None:
    handle = loop.call_soon(callback)
    timer = loop.call_later(10, callback)
    threadsafe = loop.call_soon_threadsafe(callback)
    assert isinstance(handle, asyncio.Handle)
    assert not isinstance(handle, asyncio.TimerHandle)
    assert isinstance(threadsafe, asyncio.Handle)
    assert isinstance(timer, asyncio.Handle)
    assert isinstance(timer, asyncio.TimerHandle)


def arguments(shown: str) -> str:
    """How a repr outside debug mode shows arguments: not at all since 3.13."""
    return shown if sys.version_info < (3, 13) else ""


def test_repr_has_callback_arguments_and_source(loop: Loop) -> None:
    handle = loop.call_soon(callback, 1, "two")
    line = callback.__code__.co_firstlineno
    shown = arguments("1, 'two'")
    assert repr(handle) == f"<Handle callback({shown}) at {__file__}:{line}>"
    handle.cancel()
    assert repr(handle) == "<Handle cancelled>"


def test_repr_shows_partials_methods_and_builtins(loop: Loop) -> None:
    class Thing:
        def method(self) -> None: ...

    partial = functools.partial(callback, 1)
    assert repr(loop.call_soon(partial)).startswith(f"<Handle callback({arguments('1')})() at ")
    assert "Thing.method()" in repr(loop.call_soon(Thing().method))
    builtin = repr(loop.call_soon([].append, 1))
    assert builtin.startswith("<Handle ")
    assert "append" in builtin


def test_timer_repr_has_its_time(loop: Loop) -> None:
    when = loop.time() + 1000
    timer = loop.call_at(when, callback, 1)
    line = callback.__code__.co_firstlineno
    assert (
        repr(timer) == f"<TimerHandle when={when} callback({arguments('1')}) at {__file__}:{line}>"
    )
    timer.cancel()
    assert repr(timer) == f"<TimerHandle cancelled when={when}>"


def test_repr_in_debug_mode_has_the_place_of_creation(loop: Loop) -> None:
    loop.set_debug(True)
    handle = loop.call_soon(callback, 1)
    text = repr(handle)
    assert text.startswith("<Handle callback(1) at ")
    assert f" created at {__file__}:" in text
    handle.cancel()
    # The callback stays readable.
    assert repr(handle).startswith("<Handle cancelled callback(1) at ")


def test_a_cancelled_handle_does_not_run(loop: Loop) -> None:
    ran: list[int] = []
    handle = loop.call_soon(ran.append, 1)
    assert not handle.cancelled()
    handle.cancel()
    handle.cancel()
    assert handle.cancelled()
    one_turn(loop)
    assert ran == []


def test_a_handle_that_ran_is_not_cancelled(loop: Loop) -> None:
    handle = loop.call_soon(loop.stop)
    loop.run_forever()
    assert not handle.cancelled()
    handle.cancel()
    assert handle.cancelled()


def test_timers_compare_by_their_time(loop: Loop) -> None:
    when = loop.time() + 1000
    first = loop.call_at(when, callback)
    same = loop.call_at(when, callback)
    later = loop.call_at(when + 1, callback)
    other = loop.call_at(when, print)
    assert first < later
    assert first <= later
    assert not first > later
    assert not first >= later
    assert later > first
    assert first == same
    assert first <= same
    assert first >= same
    assert not first < same
    assert first != later
    assert first != other
    assert hash(first) == hash(when)
    assert sorted([later, first])[0] is first
    same.cancel()
    assert first != same
    for operation in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__"):
        assert getattr(first, operation)(1) is NotImplemented
    assert first != loop.call_soon(callback)
    for timer in (first, same, later, other):
        timer.cancel()


def test_a_timer_compares_with_a_plain_timer_handle(loop: Loop) -> None:
    when = loop.time() + 1000
    ours = loop.call_at(when, callback)
    plain = asyncio.TimerHandle(when + 1, callback, (), loop)
    assert ours < plain
    assert plain > ours
    ours.cancel()


def test_get_context_gives_the_context_that_was_passed(loop: Loop) -> None:
    if not hasattr(asyncio.Handle, "get_context"):  # 3.11
        pytest.skip("Handle.get_context is new in 3.12")
    context = contextvars.copy_context()
    assert loop.call_soon(callback, context=context).get_context() is context
    timer = loop.call_later(1000, callback, context=context)
    assert timer.get_context() is context
    timer.cancel()
    assert isinstance(loop.call_soon(callback).get_context(), contextvars.Context)


@pytest.mark.parametrize("end", ["cancel", "run"])
@pytest.mark.parametrize("kind", ["handle", "timer"])
def test_a_handle_that_ended_releases_callback_and_arguments(
    loop: Loop, kind: str, end: str
) -> None:
    class Thing:
        def __call__(self, *args: Any) -> None: ...

    things = [Thing(), Thing()]
    refs: list[Any] = [weakref.ref(each) for each in things]
    if kind == "handle":
        handle = loop.call_soon(*things)
    else:
        handle = loop.call_later(3600 if end == "cancel" else 0, *things)
    del things
    if end == "cancel":
        handle.cancel()
    else:
        refs.append(weakref.ref(handle))
        del handle
        loop.call_later(0.001, loop.stop)
        loop.run_forever()
    gc.collect()
    assert [ref() for ref in refs] == [None] * len(refs)


def test_callbacks_get_any_number_of_arguments(loop: Loop) -> None:
    seen: list[tuple[Any, ...]] = []

    def note(*args: Any) -> None:
        seen.append(args)

    for count in (0, 1, 2, 3, 4, 5, 8, 50):
        loop.call_soon(note, *range(count))
    one_turn(loop)
    assert seen == [tuple(range(count)) for count in (0, 1, 2, 3, 4, 5, 8, 50)]


def test_unrun_handles_with_a_cycle_are_collected(loop_factory: LoopFactory) -> None:
    """loop -> handle -> callback -> object -> loop, dropped together."""

    class Owner:
        def __init__(self) -> None:
            self.loop = loop_factory()
            self.handle = self.loop.call_soon(self.method)
            self.timer = self.loop.call_later(1000, self.method)

        def method(self) -> None: ...

    owner = Owner()
    ref = weakref.ref(owner)
    owner.loop.close()
    del owner
    gc.collect()
    assert ref() is None


def test_callbacks_run_in_the_context_of_their_call(loop: Loop) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    seen: list[str] = []

    def note() -> None:
        seen.append(variable.get())
        variable.set("changed by a callback")

    variable.set("outer")
    own = contextvars.copy_context()
    own.run(variable.set, "own")
    loop.call_soon(note)
    loop.call_soon(note, context=own)
    loop.call_soon(note, context=own)
    loop.call_later(0, note, context=own)
    variable.set("too late")
    loop.call_later(0.001, loop.stop)
    loop.run_forever()
    assert seen == ["outer", "own", "changed by a callback", "changed by a callback"]
    assert variable.get() == "too late"
    assert own[variable] == "changed by a callback"
