"""The stack for signal handlers: large enough in a loop, and the thread's own after it.

Go gives each thread that enters it a small alternate signal stack, on which CPython's
handlers nest.  Each scenario is a program of its own, for it may die of a signal.
"""

from __future__ import annotations

from pathlib import Path

import ended
import pytest

SCENARIOS = Path(__file__).with_name("signal_stack_scenarios.py")


def passes(name: str, loop: str, *arguments: object) -> None:
    ended.passes(SCENARIOS, name, loop, *arguments, options=("-X", "faulthandler=0"))


# ---- bursts ------------------------------------------------------------------------------

# CPython's main thread has a stack of faulthandler's, of a few frames, on which such a burst
# kills asyncio; in a loop of goloop it has a larger one.


def test_all_signals_at_once_from_another_process_are_handled() -> None:
    passes("all_signals_at_once_from_another_process_are_handled", "goloop")


@pytest.mark.parametrize("thread", [False, True])
def test_all_kinds_at_once_in_a_callback_are_handled(thread: bool) -> None:
    passes("all_kinds_at_once_in_a_callback_are_handled", "goloop", thread)


def test_all_signals_at_once_are_handled_with_faulthandler() -> None:
    """faulthandler's stack is small, too: in a loop the signals nest on ours."""
    passes("all_signals_at_once_are_handled_with_faulthandler", "goloop")


# ---- the thread's own stack --------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 65536, 8 << 20], ids=["none", "small", "large"])
@pytest.mark.parametrize("thread", [False, True])
def test_the_threads_stack_is_as_before(loop_name: str, size: int, thread: bool) -> None:
    passes("the_threads_stack_is_as_before", loop_name, size, thread)


def test_loop_collected_by_another_thread_restores_the_signal_stack(loop_name: str) -> None:
    passes("loop_collected_by_another_thread_restores_the_signal_stack", loop_name)


def test_a_stack_that_faulthandler_sets_in_a_loop_stays(loop_name: str) -> None:
    passes("a_stack_that_faulthandler_sets_in_a_loop_stays", loop_name)


def test_a_child_forked_in_a_loop_handles_all_kinds_at_once() -> None:
    passes("a_child_forked_in_a_loop_handles_all_kinds_at_once", "goloop")


def test_stacks_are_given_back(loop_name: str) -> None:
    passes("stacks_are_given_back", loop_name)
