"""Processes that end while goloop's loops and threads are at work, in many ways, by a seed.

    .venv-3.13/bin/python tests/runtime/exits.py 200 [SEED]

Each exit is a program of its own (`program`), with some of: loops in daemon threads that compute,
write, are blocked for longer than the watchdog's limit, or look names up; goloop.run_threads() in a
daemon thread; a process that asks for stacks; and an end that leaves them running.  After it, a C
library's atexit handler takes its time, or a host embeds Python a second time.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).with_name("programs")

# Without a GIL CPython 3.13 itself hangs now and then where a daemon thread that it has stopped got
# a mutex just before: 14 of 60 programs did whose daemon threads only imported, without goloop.
MAY_HANG = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
PATIENCE = 20.0 if MAY_HANG else 100.0

# The work of daemon threads, the end of the main thread, and actions after Python's end.
WORK = ("timers", "computes", "streams", "blocked", "names", "run_threads", "executor", "closes")
ENDS = ("returns", "exit", "raises", "in the loop", "interrupted")
AFTER = ("nothing", "slow", "embedded")
STATUS = {"returns": 0, "exit": 3, "raises": 1, "in the loop": 4, "interrupted": -signal.SIGINT}


@dataclass(frozen=True)
class Exit:
    """An ended process, with its plan."""

    plan: dict[str, object]
    status: int | None
    stderr: str

    @property
    def well(self) -> bool:
        """Whether it ended as its main thread wanted."""
        if self.status is None:
            return MAY_HANG
        # CPython forgets that it was interrupted where another thread makes a dataclass then.
        wanted = STATUS[str(self.plan["end"])]
        return self.status == wanted or (wanted == -signal.SIGINT and self.status == 1)

    def __str__(self) -> str:
        return f"{self.status}: {json.dumps(self.plan)}\n{self.stderr[-2000:]}"


def plan(seed: int) -> dict[str, object]:
    """Return the plan of the process for a seed."""
    chosen = random.Random(seed)
    return {
        "work": chosen.sample(WORK, chosen.randint(1, 3)),
        "end": chosen.choice(ENDS),
        "after": chosen.choice(AFTER),
        # In the place of the end of the process, if the watchdog takes its end for a block.
        "gives_up": chosen.choice((0, 0.5)),
        "subscribes": chosen.random() < 0.3,
        "lives": chosen.uniform(0, 0.03),
        "introspect": chosen.random() < 0.3,
    }


def ends(seed: int) -> Exit:
    """Runs the process of that seed."""
    what = plan(seed)
    environment = {
        **os.environ,
        "GOLOOP_WATCHDOG": "0.05",
        # For the second interpreter, which does not know the folder of its program.
        "PYTHONHOME": sys.base_prefix,
        "GOLOOP_INTROSPECT": str(int(bool(what["introspect"]))),
    }
    if what["after"] == "embedded" and sys.version_info[:2] == (3, 12):
        what["after"] = "slow"  # CPython 3.12 crashes when it starts again, without goloop too
    process = subprocess.Popen(
        [sys.executable, PROGRAMS / "one_exit.py", json.dumps(what)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=environment,
    )
    try:
        _, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        _, err = process.communicate()
        return Exit(what, None, "hangs\n" + err)
    return Exit(what, process.returncode, err)


def main() -> int:
    """Run this number of processes, and print each that did not end as expected."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(ends, range(seed, seed + count)))
    wrong = [(seed + i, each) for i, each in enumerate(ended) if not each.well]
    for number, each in wrong:
        print(f"seed {number}: {each}")
    print(f"{sys.version.split()[0]}: {count} exits, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
