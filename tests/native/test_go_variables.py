"""Variables of the environment that are meant for programs in Go."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import ended

SCENARIOS = Path(__file__).with_name("go_variables_scenarios.py")

# By cgocheck=2, and by a GOMEMLIMIT that is no number, the runtime of Go ends the process.
VARIABLES = {
    "GODEBUG": "inittrace=1,gctrace=1,cgocheck=2",
    "GOGC": "1",
    "GOMAXPROCS": "1",
    "GOMEMLIMIT": "a few",
    "GOTRACEBACK": "crash",
}


def run(**variables: str) -> subprocess.CompletedProcess[str]:
    done = ended.python(SCENARIOS, "variables", *variables, apart=True, **variables)
    assert done.returncode == 0, done.stderr
    return done


def test_go_variables_of_other_programs_have_no_effect_and_stay_set() -> None:
    done = run(**VARIABLES)
    assert done.stderr == ""
    processors, seen, child = done.stdout.splitlines()
    assert int(processors) == 4  # a processor for each loop, and an additional one
    assert json.loads(seen) == VARIABLES
    assert child == VARIABLES["GODEBUG"]


def test_goloops_own_have_a_prefix() -> None:
    done = run(GOLOOP_GODEBUG="inittrace=1", GOLOOP_GOMAXPROCS="3", GODEBUG="")
    assert "init runtime @" in done.stderr
    assert done.stdout.startswith("3\n")
