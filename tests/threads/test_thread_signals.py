"""goloop.run_threads and signals, each in a process of its own that gets real ones."""

from __future__ import annotations

import os
from pathlib import Path

import ended
import pytest

SCENARIOS = Path(__file__).with_name("thread_signals_scenarios.py")

pytestmark = pytest.mark.skipif(
    os.environ.get("GOLOOP_TEST_LOOP") == "asyncio", reason="these programs run on goloop"
)


def run(name: str, *arguments: str, status: int = 0) -> str:
    done = ended.python("-X", "faulthandler", SCENARIOS, name, *arguments)
    assert done.returncode == status, f"{done.returncode}: {done.stdout}"
    return done.stdout


@pytest.mark.parametrize(
    "name",
    [
        "sigint_cancels_all_and_raises_keyboard_interrupt",
        "signal_delivered_to_another_thread_is_handled_at_once",
        "a_signal_that_comes_after_the_last_main_is_not_lost",
        "programs_wakeup_fd_is_kept",
        "an_exception_after_a_signal_is_raised",
        "handlers_of_the_program_are_left_alone",
        "exception_of_a_signal_handler_cancels_all_threads",
        "run_threads_in_other_threads_sets_no_signal_handlers",
    ],
)
def test_threads_and_a_signal(name: str) -> None:
    run(name)


def test_sigterm_cancels_all_and_ends_the_program_with_143() -> None:
    output = run("sigterm_cancels_all_and_ends_the_program_with_143", status=143)
    assert output == "ended [0, 1, 2]\nat exit\n"


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_mains_that_return_when_cancelled_have_results(name: str) -> None:
    run("mains_that_return_when_cancelled_have_results", name)


@pytest.mark.parametrize(
    ("name", "kind"), [("SIGINT", "KeyboardInterrupt"), ("SIGTERM", "SystemExit")]
)
def test_a_second_signal_raises_at_once(name: str, kind: str) -> None:
    run("a_second_signal_raises_at_once", name, kind)
