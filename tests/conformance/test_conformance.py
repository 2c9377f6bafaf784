"""CPython's own asyncio tests of the running interpreter pass on goloop.

One pytest test for each module of `test.test_asyncio` that run.py binds;
expectations.py names the tests that may fail.  GOLOOP_TEST_LOOP=asyncio runs them on
asyncio, where all must pass: that proves the harness.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import binding
import ended
import expectations
import pytest
import task_binding
from groups import Group

import goloop._internal.tasks.tasks

HERE = Path(__file__).parent
LOOP = "asyncio" if os.environ.get("GOLOOP_TEST_LOOP") == "asyncio" else "goloop"
NO_TASKS = goloop._internal.tasks.tasks.reason

# Modules that came with a later CPython than the first that we support.
SINCE = {
    "test_eager_task_factory": (3, 12),
    "test_free_threading": (3, 14),
    "test_graph": (3, 14),
    "test_server_context": (3, 15),
    "test_staggered": (3, 13),
}


def modules(groups: Iterable[Group]) -> list[str]:
    return [each.module for each in groups if sys.version_info >= SINCE.get(each.module, (3, 11))]


# Seconds for one module, on a busy machine.
LIMIT = 900 if expectations.STARTS_SLOWLY else 400


def check(kind: str, module: str) -> None:
    """A module's tests have the outcomes that are expected of it on that kind of loop."""
    command = [sys.executable, str(HERE / "run.py"), "--loop", kind, "--module", module]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr
    tests: dict[str, Any] = json.loads(done.stdout)["tests"]
    assert tests, "the module has no test"
    entries = expectations.active(kind)
    outcomes = {test_id: answer["outcome"] for test_id, answer in tests.items()}
    problems = expectations.judge(outcomes, entries)
    details = [
        f"--- {test_id}\n{answer['detail']}\n{answer.get('output', '')}"
        for test_id, answer in tests.items()
        if any(problem.startswith(f"{test_id}:") for problem in problems)
    ]
    problems += [
        f"{pattern}: matches no test" for pattern in expectations.unmatched(list(tests), entries)
    ]
    assert not problems, "\n".join(problems + details)


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize("module", modules(binding.GROUPS))
def test_cpythons_module_has_the_expected_outcomes(module: str) -> None:
    check(LOOP, module)


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.skipif(NO_TASKS is not None, reason=f"no classes of our own: {NO_TASKS}")
@pytest.mark.parametrize("kind", ["tasks", "tasks-goloop"])
@pytest.mark.parametrize("module", modules(task_binding.TASK_GROUPS))
def test_cpythons_module_of_tasks_has_the_expected_outcomes(module: str, kind: str) -> None:
    """With goloop's Task and Future, on CPython's test loops and on goloop's."""
    check(kind, module)


def test_judging_reports_unexpected_results() -> None:
    entry = expectations.Expectation("m.C.test_a*", "a reason")
    assert expectations.judge({"m.C.test_a": "failed", "m.C.test_b": "passed"}, [entry]) == []
    assert expectations.judge({"m.C.test_a": "passed"}, [entry]) == [
        "m.C.test_a: passed, expected failed"
    ]
    assert expectations.judge({"m.C.test_b": "crashed"}, [entry]) == [
        "m.C.test_b: crashed, expected passed"
    ]
    assert expectations.unmatched(["m.C.test_b"], [entry]) == ["m.C.test_a*"]


def test_a_hang_a_crash_and_an_exit_are_outcomes_of_their_own() -> None:
    assert json.loads(ended.passes(HERE / "bad_outcomes.py")) == {
        "test_hang": "timeout",
        "test_crash": "crashed",
        "test_exit": "crashed",
        "test_good": "passed",
        "test_skip": "skipped",
        "test_fail": "failed",
    }
