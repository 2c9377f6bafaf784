"""CPython's own tests of Task and Future pass on goloop's classes.

On the test loops of CPython (`tasks`) and on goloop's (`tasks-goloop`); what may fail
stands in TASK_EXPECTATIONS, strict in both directions.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import expectations
import pytest
import task_binding
from expectations import Expectation

import goloop._internal.tasks.tasks

HERE = Path(__file__).parent
MODULE_LIMIT = 400

TASK_EXPECTATIONS: tuple[Expectation, ...] = (
    Expectation(
        "test_tasks.CTask_CFuture_Tests.test_refleaks_in_task___init__",
        "counts references of a debug build of CPython, and skips itself elsewhere",
        versions=((3, 11), (3, 12), (3, 13), (3, 14)),
        outcome="skipped",
    ),
)

SINCE = {
    "test_eager_task_factory": (3, 12),
    "test_graph": (3, 14),
    "test_free_threading": (3, 14),
}

pytestmark = pytest.mark.skipif(
    goloop._internal.tasks.tasks.reason is not None,
    reason=f"no classes of our own: {goloop._internal.tasks.tasks.reason}",
)


@pytest.mark.parametrize("kind", ["tasks", "tasks-goloop"])
@pytest.mark.parametrize(
    "module",
    [
        group.module
        for group in task_binding.TASK_GROUPS
        if sys.version_info[:2] >= SINCE.get(group.module, (3, 11))
    ],
)
def test_cpythons_module_of_tasks_has_the_expected_outcomes(module: str, kind: str) -> None:
    command = [sys.executable, str(HERE / "run.py"), "--loop", kind, "--module", module]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=MODULE_LIMIT, check=False
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)["tests"]
    assert answers, "the module has no test"
    outcomes = {test_id: answer["outcome"] for test_id, answer in answers.items()}
    entries = [each for each in TASK_EXPECTATIONS if sys.version_info[:2] in each.versions]
    problems = expectations.judge(outcomes, entries)
    details = [
        f"--- {test_id}\n{answer['detail']}\n{answer.get('output', '')}"
        for test_id, answer in answers.items()
        if any(problem.startswith(f"{test_id}:") for problem in problems)
    ]
    problems += [
        f"{pattern}: matches no test" for pattern in expectations.unmatched(list(outcomes), entries)
    ]
    assert not problems, "\n".join(problems + details)
