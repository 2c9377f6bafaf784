"""Without a GIL, the stack of another thread is read while that thread stands still."""

from __future__ import annotations

import sys
import sysconfig
import threading
from collections.abc import Callable

import pytest

from goloop import _core
from goloop._internal.frames import read_stack

pytestmark = pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED") or sys.version_info >= (3, 14),
    reason="with a GIL, and from 3.14 on, Python itself tells the stack of any thread",
)


def deeper(n: int) -> int:
    return 0 if n == 0 else 1 + max([deeper(n - 1) for _ in range(1)])


def asked_meanwhile(run: Callable[[threading.Event], None], ask: Callable[[int], None]) -> None:
    """Runs a function on a thread until its event is set, and asks about that thread."""
    ended = threading.Event()
    thread = threading.Thread(target=run, args=(ended,))
    thread.start()
    try:
        for _ in range(60):
            ask(thread.ident or 0)
    finally:
        ended.set()
        thread.join()


def test_a_stack_is_whole_though_its_thread_calls_and_returns() -> None:
    # A thread that ran on would tear the chain of frames now and then.  Its entry in the list of
    # thread states could be freed, too: the list may be walked in the stopped world only.
    def run(ended: threading.Event) -> None:
        while not ended.is_set():
            deeper(15)

    def ask(ident: int) -> None:
        stack = read_stack(_core._thread_stack, ident)
        assert [each[0] for each in stack[:1]] == ["Thread._bootstrap"]
        assert all(each[0].isprintable() for each in stack)

    asked_meanwhile(run, ask)


def test_the_stack_of_a_thread_that_has_ended_is_empty() -> None:
    def run(ended: threading.Event) -> None:
        while not ended.is_set():
            several = [threading.Thread(target=int) for _ in range(5)]
            for each in several:
                each.start()
            for each in several:
                each.join()

    def ask(ident: int) -> None:
        read_stack(_core._thread_stack, ident)

    asked_meanwhile(run, ask)
    gone = threading.Thread(target=int)
    gone.start()
    gone.join()
    assert read_stack(_core._thread_stack, gone.ident or 0) == []


def test_thread_reads_its_own_stack() -> None:
    stack = read_stack(_core._thread_stack, threading.get_ident())
    assert "test_thread_reads_its_own_stack" in [each[0] for each in stack]
