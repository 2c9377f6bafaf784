"""Python ends, and the process lives on: no thread of goloop's uses freed objects."""

from __future__ import annotations

import os
from pathlib import Path

import ended
import exits
import pytest

from goloop import _core

SCENARIOS = Path(__file__).with_name("finalization_scenarios.py")

pytestmark = pytest.mark.skipif(
    os.environ.get("GOLOOP_TEST_LOOP") == "asyncio", reason="asyncio has no threads of its own"
)


@pytest.mark.parametrize("slow", ["c", "python"])
@pytest.mark.parametrize("gives_up", ["0", "0.1"])
def test_a_loop_that_python_s_end_has_stopped_is_not_blocked(slow: str, gives_up: str) -> None:
    environ = {"GOLOOP_WATCHDOG": "0.05", "GOLOOP_WATCHDOG_ABORT": gives_up}
    done = ended.python(SCENARIOS, "a_loop_that_wakes_after_the_end_has_begun", slow, **environ)
    assert (done.returncode, done.stdout) == (0, "ends\n")


@pytest.mark.parametrize("seed", range(1000, 1008))
def test_a_process_ends_well_while_its_daemon_threads_run_loops(seed: int) -> None:
    """A part of `python tests/runtime/exits.py 200`."""
    ended = exits.ends(seed)
    assert ended.well, str(ended)


@pytest.mark.skipif(
    not hasattr(_core, "_await_frames"),
    reason="with a GIL, and from 3.14 on, goloop reads stacks without a stop of the world",
)
def test_python_ends_while_daemon_threads_stop_the_world() -> None:
    done = ended.python("-W", "ignore", SCENARIOS, "daemon_threads_that_stop_the_world", limit=30)
    assert (done.returncode, done.stdout) == (0, "ends\n")
