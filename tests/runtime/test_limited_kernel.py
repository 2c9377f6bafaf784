"""A loop runs even if the kernel lacks, refuses or limits the features that goloop asks for."""

from __future__ import annotations

import sys
from pathlib import Path

import ended
import pytest

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="filters and mounts are Linux's"),
    pytest.mark.forks,
]

PROGRAM = Path(__file__).with_name("limited_kernel.py")


@pytest.mark.parametrize(
    ("case", "moment"),
    [
        ("EPERM", "first"),
        ("ENOSYS", "first"),
        ("EPERM", "later"),
        ("ENOSYS", "later"),
        ("no /proc", "first"),
        ("flags only", "first"),
        ("empty files", "first"),
        ("own table", "first"),
    ],
)
def test_a_loop_runs_forks_and_closes_on_a_kernel_that_does_less(case: str, moment: str) -> None:
    done = ended.python("-W", "ignore::DeprecationWarning", PROGRAM, case, moment)
    if done.returncode == 77:
        pytest.skip(done.stdout)
    assert (done.returncode, done.stdout) == (0, "passed\n")
