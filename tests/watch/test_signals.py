"""Signals stay Python's: their effect with a Go runtime in the process, and without.

The scenarios stand in signal_scenarios.py; each runs in a process of its own, on
asyncio and on goloop, with a limit on its time.  add_signal_handler as such is
CPython's own tests' business (tests/conformance).
"""

from __future__ import annotations

import signal
from pathlib import Path

import ended
import pytest
from conftest import LOOP_NAMES

SCENARIOS = Path(__file__).resolve().parent / "signal_scenarios.py"

TIME_LIMIT = 100  # seconds

TOOLS = {"new_loop", "alarm_storm"}

CRASHES = [
    "crash_with_faulthandler_enabled_before",
    "crash_with_faulthandler_enabled_after",
    "crash_without_faulthandler",
]


def run(name: str, loop: str) -> tuple[int, str]:
    """Runs a scenario; its exit code (negative: the signal it died of) and its output."""
    # GOLOOP_GOGC=1: Go's collector runs at every chance it gets.
    done = ended.python(SCENARIOS, name, loop, limit=TIME_LIMIT, GOLOOP_GOGC="1")
    return done.returncode, done.stdout


@pytest.mark.parametrize("loop", LOOP_NAMES)
@pytest.mark.parametrize("name", ended.scenarios(SCENARIOS, *TOOLS, *CRASHES))
def test_signal_has_the_same_effect_as_without_go(name: str, loop: str) -> None:
    code, output = run(name, loop)
    assert code == 0, f"{name} on {loop} ended with {code}\n{output}"
    assert "Traceback" not in output, output


@pytest.mark.parametrize("loop", LOOP_NAMES)
@pytest.mark.parametrize("name", CRASHES)
def test_a_crash_in_c_dies_of_its_signal_without_words_of_go(name: str, loop: str) -> None:
    code, output = run(name, loop)
    assert code == -signal.SIGSEGV, (code, output)
    assert ("Fatal Python error: Segmentation fault" in output) == ("enabled" in name), output
    assert "goroutine" not in output
