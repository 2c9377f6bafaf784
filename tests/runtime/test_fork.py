"""goloop and fork: after any kind of fork the child has a Go runtime of its own.

The scenarios stand in fork_scenarios.py; each runs in a process of its own, with a
limit on its time, so that a hang is a failure and takes no other test down.
GOLOOP_TEST_FORKS sets how many forks the stress makes (150 where it is unset).
"""

from __future__ import annotations

import os
from pathlib import Path

import ended
import pytest

from goloop import _core

SCENARIOS = Path(__file__).resolve().parent / "fork_scenarios.py"

# Seconds; the scenarios take one or two on an idle machine.
TIME_LIMIT = 100

FORKS = int(os.environ.get("GOLOOP_TEST_FORKS", "150"))


def run(name: str, limit: float, **environ: str) -> None:
    """Runs a scenario; it must end well, and so must all that it forked."""
    # GOLOOP_GOGC=1: Go's collector runs at every chance it gets, in every child.
    done = ended.python(
        *("-X", "faulthandler", SCENARIOS, name), limit=limit, **{"GOLOOP_GOGC": "1", **environ}
    )
    assert done.returncode == 0, f"{name} ended with {done.returncode}\n{done.stdout}"
    assert "Traceback" not in done.stdout, done.stdout
    assert "Warning" not in done.stdout, done.stdout


@pytest.mark.parametrize(
    "name", ended.scenarios(SCENARIOS, "refused", "raw_clone", "stopped_world", "stress")
)
def test_a_forked_child_lives(name: str) -> None:
    run(name, TIME_LIMIT)


@pytest.mark.timeout(120 + FORKS)
def test_every_child_of_a_fork_stress_lives() -> None:
    run("stress", 100 + FORKS, FORKS=str(FORKS))


@pytest.mark.skipif(
    not hasattr(_core, "_await_frames"),
    reason="with a GIL, and from 3.14 on, goloop reads stacks without a stop of the world",
)
@pytest.mark.parametrize("way", ["await chain", "stack", "lock of a loop"])
def test_a_child_can_collect_garbage_if_a_thread_stopped_the_world_at_the_fork(way: str) -> None:
    run("stopped_world", TIME_LIMIT, WAY=way, FORKS="60")
