"""How punctual the threads of a process are: Go's own ones are not, all others are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import ended
import pytest

SCENARIOS = Path(__file__).with_name("timer_slack_scenarios.py")


@pytest.mark.skipif(sys.platform != "linux", reason="timer slack is Linux's")
@pytest.mark.forks
def test_only_gos_own_threads_have_timer_slack() -> None:
    done = ended.python(SCENARIOS, "timer_slack", apart=True)
    if "PermissionError" in done.stderr:
        pytest.skip("reading another thread's timer slack needs CAP_SYS_NICE here")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    usual = found["own"][0]
    assert usual < 1_000_000
    assert found["own"] == [usual] * 3
    assert found["monitor"] == [usual]
    assert found["go"]
    assert set(found["go"]) == {10_000_000}
    assert found["child"] == 0


@pytest.mark.parametrize(("setting", "processors"), [(None, 6), ("3", 3)])
def test_each_loop_has_a_go_processor_on_any_number_of_cores(
    setting: str | None, processors: int
) -> None:
    """Without one a loop would wait until a thread of Go's, which is not punctual, gives it one."""
    environment = {name: value for name, value in os.environ.items() if name != "GOLOOP_GOMAXPROCS"}
    if setting is not None:
        environment["GOLOOP_GOMAXPROCS"] = setting
    done = subprocess.run(
        [sys.executable, SCENARIOS, "processors_of_few_cores"],
        capture_output=True, text=True, timeout=60, check=True, env=environment,
    )  # fmt: skip
    assert int(done.stdout) == processors
