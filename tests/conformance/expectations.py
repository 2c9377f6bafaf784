"""The one list of CPython's tests that goloop does not pass, each with its reason.

Strict in both directions: a test that fails and matches no entry fails the
run, and so does a test that passes though an entry says that it does not, and
an entry that matches no test of a version that it names.
"""

from __future__ import annotations

import fnmatch
import sys
import sysconfig
from dataclasses import dataclass

# Each start of CPython 3.13 without a GIL calls sched_yield() some 4,400 times: that takes 0.1 s on
# an idle machine, and 13 s with two busy processes on each processor.
STARTS_SLOWLY = sys.version_info < (3, 14) and bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

ALL = ((3, 11), (3, 12), (3, 13), (3, 14), (3, 15))


@dataclass(frozen=True)
class Expectation:
    """A pattern over test ids that are expected not to pass, with the reason."""

    pattern: str
    reason: str
    versions: tuple[tuple[int, int], ...] = ALL
    # The outcome that is expected: "failed", or "skipped" where the test skips
    # itself on a loop that is not asyncio's selector loop.
    outcome: str = "failed"
    # Whether it is so on asyncio too.
    everywhere: bool = False
    # Whether the test came with a patch release, so that it need not be there.
    newer: bool = False

    def covers(self, test_id: str) -> bool:
        return fnmatch.fnmatchcase(test_id, self.pattern)


EVENTS = "test_events.SelectEventLoopTests."

# Parts of 3.14 that 3.13.15 has, but 3.13.0 has not.
LATE_313 = [(3, 13)] if (3, 13, 15) <= sys.version_info < (3, 14) else []

EXPECTATIONS: tuple[Expectation, ...] = (
    Expectation(
        EVENTS + "test_internal_fds",
        "counts the _internal_fds of asyncio's selector loops and skips itself elsewhere",
        outcome="skipped",
    ),
    Expectation(
        EVENTS + "test_timeout_rounding",
        "counts calls of the private _run_once and puts a wrapper round the private _selector",
    ),
    Expectation(
        "test_subprocess.*.test_watcher_implementation",
        "asks for the private attribute _watcher of asyncio's loop",
        versions=((3, 14), (3, 15)),
    ),
    Expectation(
        "test_subprocess.SubprocessThreadedWatcherTests.test_pid_not_reaped_before_exit_published",
        "looks for the thread that waits in the private attribute _watcher; that the child "
        "stays unreaped is tested in tests/processes/test_reaping.py",
        versions=((3, 14), (3, 15)),
        newer=True,
    ),
    Expectation(
        "test_ssl.TestSSL.test_create_server_ssl_[1o]*",
        "asks for more memory than test.support allows by itself",
        versions=((3, 14), (3, 15), *LATE_313),
        outcome="skipped",
        everywhere=True,
    ),
)


# Of Task and Future on goloop's classes.
TASKS = [
    Expectation(
        "test_tasks.CTask_CFuture_Tests.test_refleaks_in_task___init__",
        "counts references of a debug build of CPython, and skips itself elsewhere",
        versions=((3, 11), (3, 12), (3, 13), (3, 14)),
        outcome="skipped",
    )
]


def active(loop: str, version: tuple[int, int] = sys.version_info[:2]) -> list[Expectation]:
    """Return the entries for a loop of run.py's `--loop`, and for a version."""
    if loop.startswith("tasks"):
        return [entry for entry in TASKS if version in entry.versions]
    return [
        entry
        for entry in EXPECTATIONS
        if version in entry.versions and (loop == "goloop" or entry.everywhere)
    ]


def hopeless(test_id: str) -> bool:
    """Whether the test is known to hang on goloop, so that waiting long is no use."""
    return any(entry.outcome == "timeout" and entry.covers(test_id) for entry in active("goloop"))


def judge(outcomes: dict[str, str], entries: list[Expectation]) -> list[str]:
    """Compares test id -> outcome with the list; returns the differences, in words."""
    problems: list[str] = []
    for test_id, outcome in outcomes.items():
        covering = [entry for entry in entries if entry.covers(test_id)]
        if len(covering) > 1:
            problems.append(f"{test_id}: stands in the list {len(covering)} times")
        wanted = covering[0].outcome if covering else "passed"
        if outcome != wanted:
            problems.append(f"{test_id}: {outcome}, expected {wanted}")
    return problems


def unmatched(test_ids: list[str], entries: list[Expectation]) -> list[str]:
    """The patterns of entries that match no test, of modules that were run."""
    modules = {test_id.split(".")[0] for test_id in test_ids}
    return [
        entry.pattern
        for entry in entries
        if entry.pattern.split(".")[0] in modules
        and not entry.newer
        and not any(entry.covers(test_id) for test_id in test_ids)
    ]
