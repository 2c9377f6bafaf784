"""Random programs of tasks and futures do the same on asyncio and on goloop."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "run.py"
COUNT = 1000


@pytest.mark.parametrize(
    "eager",
    [
        False,
        pytest.param(
            True,
            marks=pytest.mark.skipif(
                sys.version_info < (3, 12), reason="eager tasks came with Python 3.12"
            ),
        ),
    ],
)
def test_traces_are_equal(eager: bool) -> None:
    command = [sys.executable, str(SCRIPT), "--count", str(COUNT)] + ["--eager"] * eager
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == f"{COUNT} programs, no difference\n"
