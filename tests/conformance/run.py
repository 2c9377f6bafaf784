"""Runs the bound CPython tests and prints one JSON object of their outcomes.

    python tests/conformance/run.py [--loop goloop] [--list] [PATTERN ...]

Owns: processes.  Everything is imported once; then a few tests of one class at a
time run in a forked child, in its own process group and directory, under a hard
time limit.  A test that failed there, or was not reached, runs once more in a child
of its own, and that decides.  So a hang or a crash is that test's outcome
("timeout", "crashed") and touches no other test.  The parent never makes a loop.

A PATTERN is a shell pattern over ids such as
"test_streams.StreamTests.test_readline".  With --verbose, each outcome that is
not "passed" is told on stderr with the last lines that the test printed.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import fnmatch
import gc
import json
import os
import selectors
import shutil
import signal
import sys
import tempfile
import time
import traceback
import unittest
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import binding
import expectations

# Seconds.  The slowest of these tests takes 4 s on asyncio.
TEST_LIMIT = 90.0 if expectations.STARTS_SLOWLY else 30.0
# The limit of tests that are expected to hang; they would take 1 s.
HOPELESS_LIMIT = 8.0
# The child prints its stacks this long before the limit.
STACKS_BEFORE = 3.0
OUTPUT_KEPT = 6000
# Tests of a class that one child runs, one after the other.
TOGETHER = 25
GOOD = ("passed", "skipped")

Outcome = dict[str, Any]


@dataclass
class Child:
    """A process that runs one test or several."""

    test_ids: list[str]
    pid: int
    pipe: int
    output: Path
    directory: Path
    started: float
    limit: float
    answer: bytes = b""
    timed_out: bool = False


def run_in_child(tests: list[unittest.TestCase], pipe: int, limit: float) -> None:
    """The child's whole life: runs the tests and reports by the pipe, a line for each."""
    faulthandler.enable()
    faulthandler.dump_traceback_later(limit - STACKS_BEFORE)
    with os.fdopen(pipe, "wb") as stream:
        for test in tests:
            stream.write(json.dumps(run_test(test)).encode() + b"\n")
            stream.flush()
    faulthandler.cancel_dump_traceback_later()


def run_test(test: unittest.TestCase) -> Outcome:
    """Runs one test in this process."""
    binding.foreign_loops.clear()
    result = unittest.TestResult()
    unittest.TestSuite([test]).run(result)
    outcome: Outcome = {"outcome": "passed", "detail": ""}
    broken = result.errors + result.failures
    if broken:
        outcome = {"outcome": "failed", "detail": "\n".join(text for _, text in broken)}
    elif result.unexpectedSuccesses:
        outcome = {"outcome": "failed", "detail": "unexpected success"}
    elif result.skipped and not result.testsRun - len(result.skipped):
        outcome = {"outcome": "skipped", "detail": result.skipped[0][1]}
    elif binding.foreign_loops:
        names = sorted({cls.__name__ for cls in binding.foreign_loops})
        outcome = {"outcome": "unbound", "detail": f"the test made {', '.join(names)}"}
    return outcome


def start(tests: dict[str, unittest.TestCase], limit: float) -> Child:
    """Forks the child that runs `tests`."""
    read_end, write_end = os.pipe()
    # Not beside each other in one directory: test.support names its scratch
    # files by the pid of the process that imported it, which is the parent.
    directory = Path(tempfile.mkdtemp(prefix="goloop-conformance-"))
    output = directory / "output.txt"
    pid = os.fork()
    if pid:
        os.close(write_end)
        return Child(list(tests), pid, read_end, output, directory, time.monotonic(), limit)
    status = 1
    try:
        os.setpgid(0, 0)
        os.close(read_end)
        os.chdir(directory)
        log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        run_in_child(list(tests.values()), write_end, limit)
        sys.stdout.flush()
        sys.stderr.flush()
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        # Not sys.exit: a thread that a failed test left must not hold us.
        os._exit(status)


def finish(child: Child) -> dict[str, Outcome]:
    """Reaps the child and its group, and names its tests' outcomes, as far as they count."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    _, status = os.waitpid(child.pid, 0)
    os.close(child.pipe)
    seconds = round(time.monotonic() - child.started, 3)
    text = child.output.read_text(errors="replace") if child.output.exists() else ""
    shutil.rmtree(child.directory, ignore_errors=True)
    answers: list[Outcome] = [json.loads(line) for line in child.answer.splitlines()]
    if len(child.test_ids) > 1:
        # The rest runs again, each alone.
        told = zip(child.test_ids, answers, strict=False)
        return {test_id: answer for test_id, answer in told if answer["outcome"] in GOOD}
    if answers and not child.timed_out:
        outcome = answers[0]
    elif child.timed_out:
        outcome = {"outcome": "timeout", "detail": ""}
    elif os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL:
        name = signal.Signals(os.WTERMSIG(status)).name
        outcome = {"outcome": "crashed", "detail": f"killed by {name}"}
    else:
        outcome = {"outcome": "crashed", "detail": "the process ended without an answer"}
    if outcome["outcome"] not in GOOD:
        outcome["output"] = text[-OUTPUT_KEPT:]
    outcome["seconds"] = seconds
    return {child.test_ids[0]: outcome}


def run_all(
    tests: dict[str, unittest.TestCase], jobs: int, limit: float, verbose: bool
) -> dict[str, Outcome]:
    """Runs the tests, `jobs` at a time."""
    outcomes: dict[str, Outcome] = {}
    waiting = portions(tests)
    running: dict[int, Child] = {}
    with selectors.DefaultSelector() as selector:
        while waiting or running:
            while waiting and len(running) < jobs:
                portion = waiting.pop(0)
                hopeless = any(map(expectations.hopeless, portion))
                own_limit = min(limit, HOPELESS_LIMIT) if hopeless else limit
                child = start({test_id: tests[test_id] for test_id in portion}, own_limit)
                running[child.pipe] = child
                selector.register(child.pipe, selectors.EVENT_READ)
            now = time.monotonic()
            first_end = min(child.started + child.limit for child in running.values())
            for key, _ in selector.select(max(0.0, first_end - now)):
                child = running[key.fd]
                data = os.read(key.fd, 65536)
                child.answer += data
                if not data:
                    waiting += _done(selector, running, child, outcomes, verbose)
            now = time.monotonic()
            for child in list(running.values()):
                if now - child.started >= child.limit:
                    child.timed_out = True
                    waiting += _done(selector, running, child, outcomes, verbose)
    return {test_id: outcomes[test_id] for test_id in tests}


def portions(tests: dict[str, unittest.TestCase]) -> list[list[str]]:
    """The tests that a child runs, in their order; each test that will hang has its own child."""
    made: list[list[str]] = []
    of_last: type | None = None
    for test_id, test in tests.items():
        alone = expectations.hopeless(test_id)
        if alone or type(test) is not of_last or len(made[-1]) >= TOGETHER:
            made.append([])
        made[-1].append(test_id)
        of_last = None if alone else type(test)
    return made


def _done(
    selector: selectors.BaseSelector,
    running: dict[int, Child],
    child: Child,
    outcomes: dict[str, Outcome],
    verbose: bool,
) -> list[list[str]]:
    """Record the child's results; return the portions that must run again."""
    selector.unregister(child.pipe)
    del running[child.pipe]
    found = finish(child)
    outcomes.update(found)
    for test_id, outcome in found.items():
        if verbose and outcome["outcome"] != "passed":
            print(f"{outcome['outcome']}: {test_id}: {outcome['detail']}", file=sys.stderr)
            if outcome.get("output"):
                print(outcome["output"], file=sys.stderr)
    return [[test_id] for test_id in child.test_ids if test_id not in found]


def collect(loop_name: str, modules: list[str]) -> dict[str, unittest.TestCase]:
    """Binds, imports and lists the tests of the given modules (all: none given)."""
    factory = binding.bind(loop_name)
    loader = unittest.TestLoader()
    tests: dict[str, unittest.TestCase] = {}
    for group in binding.groups(loop_name):
        if modules and group.module not in modules:
            continue
        try:
            classes = binding.load(group, factory, loop_name)
        except ModuleNotFoundError as error:
            # The set of modules differs between versions of CPython.
            if error.name != f"test.test_asyncio.{group.module}":
                raise
            continue
        for cls in classes:
            for name in loader.getTestCaseNames(cls):
                tests[f"{group.module}.{cls.__name__}.{name}"] = cls(name)
    return tests


def main() -> int:
    # A shell that starts this in the background lets it ignore SIGINT, and then the tests
    # that interrupt themselves would wait for ever.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loop", default=os.environ.get("GOLOOP_TEST_LOOP", "goloop"))
    parser.add_argument("--module", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=TEST_LIMIT)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("pattern", nargs="*")
    args = parser.parse_args()
    tests = collect(args.loop, args.module)
    if args.pattern:
        tests = {
            test_id: test
            for test_id, test in tests.items()
            if any(fnmatch.fnmatch(test_id, pattern) for pattern in args.pattern)
        }
    if args.list:
        print("\n".join(tests))
        return 0
    # The children's collections, of which some modules make three a test, leave all this alone.
    gc.collect()
    gc.freeze()
    outcomes = run_all(tests, args.jobs, args.limit, args.verbose)
    counts: dict[str, int] = {}
    for outcome in outcomes.values():
        counts[outcome["outcome"]] = counts.get(outcome["outcome"], 0) + 1
    print(json.dumps({"loop": args.loop, "counts": counts, "tests": outcomes}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
