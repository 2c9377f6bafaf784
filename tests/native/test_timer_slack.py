"""How punctual the threads of a process are: Go's own ones are not, all others are."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import ended
import pytest

PROGRAM = """
import asyncio, json, os, goloop

def slack(thread):
    with open(f"/proc/{thread}/timerslack_ns") as file:
        return int(file.read())

async def main():
    found = {}
    while "goloop-monitor" not in found: # a thread has no name at first
        await asyncio.sleep(0.001)
        found = {}
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/comm") as file:
                found.setdefault(file.read().strip(), []).append(slack(thread))
    return found

before = slack(os.getpid())
found = {"own": [before, slack(os.getpid())]}
threads = goloop.run(main())
found["own"].append(slack(os.getpid()))
found["go"] = threads["goloop-go"]
found["monitor"] = threads["goloop-monitor"]
if (child := os.fork()) == 0:
    again = goloop.run(main())
    good = set(again["goloop-go"]) == {10_000_000} and again["goloop-monitor"] == [before]
    os._exit(0 if good and slack(os.getpid()) == before else 1)
found["child"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(found))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="timer slack is Linux's")
@pytest.mark.forks
def test_only_gos_own_threads_have_timer_slack() -> None:
    done = ended.python("-c", PROGRAM, apart=True)
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


PROCESSORS = """
import json, os, goloop
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
loops = [goloop.new_event_loop() for _ in range(5)]
print(json.loads(loops[0]._diagnostics()["runtime"])["gomaxprocs"])
"""


@pytest.mark.parametrize(("setting", "processors"), [(None, 6), ("3", 3)])
def test_each_loop_has_a_go_processor_on_any_number_of_cores(
    setting: str | None, processors: int
) -> None:
    """Without one a loop would wait until a thread of Go's, which is not punctual, gives it one."""
    environment = {name: value for name, value in os.environ.items() if name != "GOLOOP_GOMAXPROCS"}
    if setting is not None:
        environment["GOLOOP_GOMAXPROCS"] = setting
    done = subprocess.run(
        [sys.executable, "-c", PROCESSORS],
        capture_output=True, text=True, timeout=60, check=True, env=environment,
    )  # fmt: skip
    assert int(done.stdout) == processors
