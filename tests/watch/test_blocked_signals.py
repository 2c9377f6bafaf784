"""A signal that the program blocks in its own threads is pending until the program collects it.

Each scenario is a program of its own: a signal that reaches another thread ends it.  All its
threads block all signals after goloop's have started; then another process sends each of them.
"""

from __future__ import annotations

import os
from pathlib import Path

import ended
import pytest

SCENARIOS = Path(__file__).with_name("blocked_signals_scenarios.py")

pytestmark = pytest.mark.skipif(
    os.environ.get("GOLOOP_TEST_LOOP") == "asyncio",
    reason="asyncio's threads have the masks of the threads that start them",
)


def passes(name: str, *arguments: str) -> None:
    """Runs a scenario with many threads of Go's."""
    environ = {"GOLOOP_GOGC": "1", "GOLOOP_GOMAXPROCS": "8"}
    ended.passes(SCENARIOS, name, *arguments, options=("-X", "faulthandler=0"), **environ)


@pytest.mark.parametrize(
    "name",
    [
        "signals_blocked_after_the_start_of_a_loop_stay_pending",
        "signals_stay_pending_while_several_loops_run",
        "signals_stay_pending_while_a_guest_polls",
        "signals_stay_pending_while_a_thread_waits_for_a_child",
        "signals_stay_pending_while_a_process_answers_introspection",
        "signals_stay_pending_while_a_block_is_reported",
        "signals_blocked_by_the_starting_thread_stay_blocked_there_only",
    ],
)
def test_blocked_signals_stay_pending(name: str) -> None:
    passes(name)


@pytest.mark.forks
def test_signals_stay_pending_in_the_child_of_a_process_with_a_loop() -> None:
    passes("signals_stay_pending_in_the_child_of_a_process_with_a_loop")


def test_signals_stay_pending_while_metrics_are_written() -> None:
    pytest.importorskip("prometheus_client")
    passes("signals_stay_pending_while_metrics_are_written")


@pytest.mark.parametrize("raises_while", ["signals are blocked", "the thread starts"])
def test_exceptions_leave_the_mask_of_the_starting_thread(raises_while: str) -> None:
    """A signal handler's exception, which pthread_sigmask() raises after it has set the mask."""
    passes("exceptions_leave_the_mask_of_the_starting_thread", raises_while)
