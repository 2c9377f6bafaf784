"""Debug mode: slow callbacks, calls from the wrong thread, tracebacks, coroutine origins."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.machinery
import logging
import subprocess
import sys
import threading
import time
import traceback
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest
from conftest import LoopFactory
from protocols import in_thread, one_turn

PROGRAMS = Path(__file__).with_name("programs")

Loop = asyncio.AbstractEventLoop


def busy(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_get_debug_returns_the_set_value(loop: Loop) -> None:
    assert loop.get_debug() is False
    loop.set_debug(True)
    assert loop.get_debug() is True
    loop.set_debug(False)
    assert loop.get_debug() is False


def test_environment_and_dev_mode_enable_debug_mode(loop_name: str) -> None:
    for options, variables, expected in (
        ([], {}, "False"),
        (["-X", "dev"], {}, "True"),
        ([], {"PYTHONASYNCIODEBUG": "1"}, "True"),
        (["-E"], {"PYTHONASYNCIODEBUG": "1"}, "False"),
    ):
        import os

        done = subprocess.run(
            [sys.executable, *options, PROGRAMS / "prints_debug.py", loop_name],
            env={**{k: v for k, v in os.environ.items() if k != "PYTHONASYNCIODEBUG"}, **variables},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == expected, (options, variables)


def test_slow_callbacks_are_logged(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    loop.set_debug(True)
    assert loop.slow_callback_duration == 0.1  # type: ignore[attr-defined]
    loop.slow_callback_duration = 0.005  # type: ignore[attr-defined]
    loop.call_soon(busy, 0.01)
    loop.call_soon(busy, 0)
    one_turn(loop)
    (record,) = [r for r in caplog.records if r.message.startswith("Executing")]
    assert record.name == "asyncio"
    assert record.levelno == logging.WARNING
    assert record.message.startswith("Executing <Handle busy(0.01) at ")
    assert record.message.endswith(" seconds")
    assert " took 0.0" in record.message


def test_slow_tasks_are_logged_by_their_name(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    async def slow() -> None:
        busy(0.01)

    loop.set_debug(True)
    loop.slow_callback_duration = 0.005  # type: ignore[attr-defined]
    loop.run_until_complete(loop.create_task(slow(), name="the slow one"))
    messages = [r.message for r in caplog.records if r.message.startswith("Executing")]
    assert any("name='the slow one'" in message for message in messages)
    assert all(message.startswith("Executing <Task ") for message in messages)


def test_slow_timers_are_logged(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    loop.set_debug(True)
    loop.slow_callback_duration = 0.005  # type: ignore[attr-defined]
    loop.call_later(0, busy, 0.01)
    loop.call_later(0.02, loop.stop)
    loop.run_forever()
    messages = [r.message for r in caplog.records if r.message.startswith("Executing")]
    assert len(messages) == 1
    assert messages[0].startswith("Executing <TimerHandle when=")


def test_nothing_is_logged_outside_debug_mode(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    loop.slow_callback_duration = 0  # type: ignore[attr-defined]
    loop.call_soon(busy, 0.001)
    one_turn(loop)
    assert caplog.records == []


@pytest.mark.parametrize("method", ["call_soon", "call_later", "call_at"])
def test_calls_from_another_thread_are_refused(loop: Loop, method: str) -> None:
    caught: list[BaseException] = []
    arguments: list[Any] = [print] if method == "call_soon" else [1, print]

    def elsewhere() -> None:
        try:
            getattr(loop, method)(*arguments).cancel()
        except RuntimeError as error:
            caught.append(error)

    def from_a_thread() -> None:
        in_thread(elsewhere)

    loop.set_debug(True)
    loop.call_soon(from_a_thread)
    one_turn(loop)
    assert [str(error) for error in caught] == [
        "Non-thread-safe operation invoked on an event loop other than the current one"
    ]
    caught.clear()
    # A loop that does not run may be prepared from any thread.
    from_a_thread()
    assert caught == []
    loop.set_debug(False)
    loop.call_soon(from_a_thread)
    one_turn(loop)
    assert caught == []


def test_futures_and_tasks_record_where_they_were_made(loop: Loop) -> None:
    loop.set_debug(True)
    future: Any = loop.create_future()
    names = [frame.name for frame in future._source_traceback]
    assert "test_futures_and_tasks_record_where_they_were_made" in names[-2:]
    assert " created at " in repr(future)

    async def nothing() -> None: ...

    task: Any = loop.create_task(nothing())
    assert task._source_traceback[-1].name == "test_futures_and_tasks_record_where_they_were_made"
    loop.run_until_complete(task)


def test_coroutine_origins_are_tracked_while_running(loop: Loop) -> None:
    async def never() -> None: ...

    depths: list[int] = []
    loop.call_soon(lambda: depths.append(sys.get_coroutine_origin_tracking_depth()))
    loop.call_soon(loop.set_debug, True)

    def note_and_stop() -> None:
        depths.append(sys.get_coroutine_origin_tracking_depth())
        loop.stop()

    # Set from within, it holds from the next turn on.
    loop.call_soon(loop.call_soon, note_and_stop)
    loop.run_forever()
    assert depths[0] == 0
    assert depths[1] > 0
    assert sys.get_coroutine_origin_tracking_depth() == 0

    def forget() -> None:
        never()
        gc.collect()

    loop.call_soon(forget)
    loop.call_soon(loop.stop)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop.run_forever()
    messages = [str(entry.message) for entry in caught]
    assert any("was never awaited" in m and "Coroutine created at" in m for m in messages)


def test_set_debug_from_another_thread_reaches_the_running_loop(loop: Loop) -> None:
    seen: list[int] = []

    def elsewhere() -> None:
        loop.set_debug(True)
        loop.call_soon_threadsafe(lambda: seen.append(sys.get_coroutine_origin_tracking_depth()))
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=elsewhere)
    loop.call_soon(thread.start)
    loop.run_forever()
    thread.join()
    assert seen[0] > 0
    assert sys.get_coroutine_origin_tracking_depth() == 0


def test_a_runner_turns_debug_mode_on(loop_name: str, loop_factory: LoopFactory) -> None:
    if sys.version_info < (3, 12) and loop_name == "asyncio":
        runner = asyncio.Runner(debug=True)
    else:
        runner = asyncio.Runner(debug=True, loop_factory=loop_factory)
    with runner:
        assert runner.get_loop().get_debug()


def handles_of(loop: Loop) -> list[Any]:
    return [
        loop.call_soon(int),
        loop.call_soon_threadsafe(int),
        loop.call_later(9, int),
        loop.call_at(9, int),
    ]


def frames(handle: Any) -> list[tuple[str, int | None, str, str | None]]:
    assert type(handle._source_traceback) is traceback.StackSummary
    return [(each.filename, each.lineno, each.name, each.line) for each in handle._source_traceback]


@pytest.mark.parametrize("depth", [0, 1, 4, 10, 1000])
def test_a_handle_has_the_frames_that_asyncios_has(
    loop: Loop, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio's methods are frames of their own, which count, and are dropped."""
    monkeypatch.setattr(asyncio.constants, "DEBUG_STACK_DEPTH", depth)
    with contextlib.closing(asyncio.SelectorEventLoop()) as asyncios:
        found = []
        for each in (loop, asyncios):
            each.set_debug(True)
            found.append(handles_of(each))
        for mine, theirs in zip(*found, strict=True):
            expected, have = frames(theirs), frames(mine)
            assert len(have) <= depth
            assert have[len(have) - len(expected) :] == expected
            if depth > 4:
                assert [name for _, _, name, _ in have[-2:]] == [
                    "test_a_handle_has_the_frames_that_asyncios_has",
                    "handles_of",
                ]
            assert mine._source_traceback is mine._source_traceback
            mine._source_traceback = [("file", 1)]
            assert "created at file:1" in repr(mine)
            mine.cancel()


@pytest.mark.parametrize("depth", [3, 10, 13, 40])
def test_truncated_stack_keeps_no_frame_of_the_scheduler(loop: Loop, depth: int) -> None:
    """Locals of these frames are freed: a handle has codes and globals, as asyncio's has names."""

    class Local:
        pass

    alive: list[weakref.ref[Local]] = []
    handles: list[Any] = []

    def below(n: int) -> None:
        local = Local()
        alive.append(weakref.ref(local))
        if n > 0:
            below(n - 1)
        else:
            handles.extend(handles_of(loop))

    loop.set_debug(True)
    below(depth)
    gc.collect()
    assert len(alive) == depth + 1
    assert [ref for ref in alive if ref() is not None] == []
    for handle in handles:
        handle.cancel()


def test_the_stack_of_a_handle_shows_sources_that_only_a_loader_has(loop: Loop) -> None:
    class Loader:
        def get_source(self, name: str) -> str:
            return "def schedule(loop):\n    return loop.call_soon(int)  # here\n"

    loader: Any = Loader()
    spec = importlib.machinery.ModuleSpec("in_an_archive", loader)
    names: dict[str, Any] = {"__name__": spec.name, "__loader__": loader, "__spec__": spec}
    source = Loader().get_source("")
    exec(compile(source, "<archive>/in_an_archive.py", "exec"), names)
    loop.set_debug(True)
    handle = names["schedule"](loop)
    assert handle._source_traceback[-1].line == "return loop.call_soon(int)  # here"
    handle.cancel()


def test_error_context_has_the_callbacks_source(loop: Loop) -> None:
    told: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: told.append(context))
    loop.set_debug(True)
    loop.call_soon(int, "no number")
    one_turn(loop)
    (context,) = told
    assert isinstance(context["exception"], ValueError)
    assert context["source_traceback"][-1].line == 'loop.call_soon(int, "no number")'


@pytest.mark.goloop_only("asyncio's own create_future() is its last frame")
def test_a_future_of_the_loop_was_made_by_its_caller(loop: Loop) -> None:
    loop.set_debug(True)
    future: Any = loop.create_future()
    assert future._source_traceback[-1].filename == __file__
