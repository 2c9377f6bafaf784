"""The stack that is read without the GIL equals the stack that Python reports."""

from __future__ import annotations

import contextlib
import functools
import random
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from goloop import _core
from goloop._internal.frames import read_stack

PATIENCE = 60.0

pytestmark = pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="without a GIL Python tells the stack of any thread itself, at any time",
)


class Parked:
    """A thread that waits somewhere."""

    def __init__(self, where: Callable[[Callable[[], None]], object]) -> None:
        self._inside, self._end = threading.Event(), threading.Lock()
        self._end.acquire()
        self.thread = threading.Thread(target=where, args=(self._wait,))

    def _wait(self) -> None:
        self._inside.set()
        self._end.acquire()

    def __enter__(self) -> tuple[list[Any], list[Any]]:
        """Return the stack that goloop reads, and the one that Python reports."""
        self.thread.start()
        assert self._inside.wait(PATIENCE)
        ident = self.thread.ident
        assert ident is not None
        # acquire() is about to wait, or waits.
        frame = sys._current_frames()[ident]
        while frame.f_code.co_name != "_wait":
            time.sleep(0.001)
            frame = sys._current_frames()[ident]
        time.sleep(0.01)
        told = [
            (each.f_code.co_qualname, each.f_code.co_filename, line)
            for each, line in traceback.walk_stack(sys._current_frames()[ident])
        ]
        return read_stack(_core._thread_stack, ident), told[::-1]

    def __exit__(self, *exc: object) -> None:
        self._end.release()
        self.thread.join()


def plain(wait: Callable[[], None]) -> None:
    wait()


def over_lines(wait: Callable[[], None]) -> None:
    value = [1, wait(), 3]
    del value


def through_c(wait: Callable[[], None]) -> None:
    # Frames of Python's on both sides of calls of C.
    def key(value: int) -> int:
        if value == 2:
            functools.partial(lambda: wait())()
        return value

    sorted([3, 2, 1], key=key)


def in_a_generator(wait: Callable[[], None]) -> None:
    def numbers() -> Iterator[int]:
        yield 1
        wait()
        yield 2

    list(numbers())


def in_a_coroutine(wait: Callable[[], None]) -> None:
    async def inner() -> None:
        wait()

    async def outer() -> None:
        await inner()

    with contextlib.suppress(StopIteration):
        outer().send(None)


def in_a_finalizer(wait: Callable[[], None]) -> None:
    class Ends:
        def __del__(self) -> None:
            wait()

    Ends()


def in_an_exception(wait: Callable[[], None]) -> None:
    try:
        raise ValueError
    except ValueError:
        with contextlib.suppress(KeyError):
            try:
                raise KeyError from None
            finally:
                wait()


def nested(wait: Callable[[], None], depth: int = 30) -> None:
    if depth == 0:
        wait()
    else:
        nested(wait, depth - 1)


def after_many_lines(wait: Callable[[], None]) -> None:
    body = "\n".join(f"    x{n} = {n}" for n in range(2000))
    space: dict[str, Any] = {"wait": wait}
    exec(compile(f"def f():\n{body}\n    wait()\n", "made-up.py", "exec"), space)
    space["f"]()


def of_other_names(wait: Callable[[], None]) -> None:
    for name in ("Größe", "функция", "関数", "𝒻𝓊𝓃"):
        space: dict[str, Any] = {"wait": wait}
        exec(compile(f"def {name}():\n    wait()\n", f"{name}-😀.py", "exec"), space)
        wait = next(value for key, value in space.items() if key not in ("wait", "__builtins__"))
    wait()


PLACES = [
    plain,
    over_lines,
    through_c,
    in_a_generator,
    in_a_coroutine,
    in_a_finalizer,
    in_an_exception,
    nested,
    after_many_lines,
    of_other_names,
]


@pytest.mark.parametrize("where", PLACES, ids=lambda where: where.__name__)
def test_stack_equals_the_one_that_python_reports(where: Callable[..., object]) -> None:
    with Parked(where) as (read, told):
        assert read == told
    assert any(function == where.__name__ for function, _, _ in read)


def test_deep_stack_is_cut_to_the_innermost_frames() -> None:
    with Parked(lambda wait: nested(wait, 200)) as (read, told):
        assert read == told[-len(read) :]
        assert len(read) == 48


def test_control_characters_are_left_out() -> None:
    def where(wait: Callable[[], None]) -> None:
        space: dict[str, Any] = {"wait": wait}
        exec(compile("def f():\n    wait()\n", "a\x1b[31m\nb\x7f.py", "exec"), space)
        space["f"]()

    with Parked(where) as (read, _):
        assert ("f", "a?[31m?b?.py", 2) in read


def test_long_names_are_cut() -> None:
    def where(wait: Callable[[], None]) -> None:
        space: dict[str, Any] = {"wait": wait}
        exec(compile(f"def {'f' * 5000}():\n    wait()\n", "ü" * 5000, "exec"), space)
        space["f" * 5000]()

    with Parked(where) as (read, _):
        function, file, line = next(each for each in read if each[0].startswith("ff"))
    assert set(function) == {"f"}
    assert len(function) >= 80
    assert set(file) == {"ü"}
    assert len(file) >= 100
    assert line == 2


def test_unknown_thread_has_no_stack() -> None:
    assert read_stack(_core._thread_stack, 1) == []


def test_stack_that_changes_while_read_is_harmless() -> None:
    # The stack may change while it is read: then it is read again or omitted, but is never wrong.
    ended = threading.Event()

    def deeper(n: int, make: random.Random) -> int:
        if n == 0:
            return 0
        space: dict[str, Any] = {}
        exec(compile("def made(f): return f()", f"{make.random()}.py", "exec"), space)

        def numbers() -> Iterator[int]:
            yield space["made"](lambda: deeper(n - 1, make))

        return sum(numbers())

    def run() -> None:
        make = random.Random(1)
        while not ended.is_set():
            deeper(make.randrange(12), make)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        whole = 0
        for _ in range(3000):
            stack = read_stack(_core._thread_stack, thread.ident or 0)
            for function, file, line in stack:
                assert function.isprintable(), stack
                assert file.endswith(".py"), stack
                assert 0 <= line < 3000, stack
            whole += bool(stack) and stack[0][0].endswith("_bootstrap")
        assert whole > 0
    finally:
        ended.set()
        thread.join()
