"""Each bug of the corpus is found within 1000 seeds, and the right version passes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cases import CASES, Case

from goloop import testing
from goloop.testing.simulation.simulate import Plan

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")
PAGE = Path(__file__).resolve().parents[3] / "docs" / "testing.md"


def found(case: Case, fixed: bool, seeds: int) -> tuple[int, BaseException] | None:
    """Return the first seed that fails, with its exception."""
    plan = Plan(3600, case.policy, frozenset())

    async def main(sim: testing.Simulation) -> None:
        await case.main(sim, fixed)

    for seed in range(seeds):
        if (exc := plan.run(main, seed).exc) is not None:
            return seed, exc
    return None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.main.__name__)
def test_the_bug_is_found_and_the_right_version_passes(case: Case) -> None:
    result = found(case, False, 1000)
    assert result is not None
    assert isinstance(result[1], case.errors), result
    right = found(case, True, max(20, 2 * result[0]))
    assert right is None, right


def test_the_page_has_the_cases() -> None:
    text = PAGE.read_text()
    for case in CASES:
        assert f'| {case.name} | `"{case.policy}"` |' in text
