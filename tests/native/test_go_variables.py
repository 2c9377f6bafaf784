"""Variables of the environment that are meant for programs in Go."""

from __future__ import annotations

import json
import os
import subprocess
import sys

PROGRAM = """
import json, os, subprocess, goloop
loops = [goloop.new_event_loop() for _ in range(3)]
print(json.loads(loops[0]._diagnostics()["runtime"])["gomaxprocs"])
print(json.dumps({name: os.environ[name] for name in NAMES}))
print(subprocess.run(["printenv", "GODEBUG"], capture_output=True, text=True).stdout, end="")
"""
# By cgocheck=2, and by a GOMEMLIMIT that is no number, the runtime of Go ends the process.
VARIABLES = {
    "GODEBUG": "inittrace=1,gctrace=1,cgocheck=2",
    "GOGC": "1",
    "GOMAXPROCS": "1",
    "GOMEMLIMIT": "a few",
    "GOTRACEBACK": "crash",
}


def run(**variables: str) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.replace("NAMES", repr(list(variables)))
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, **variables},
    )


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
