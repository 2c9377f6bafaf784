"""Loops in threads that make random allowed calls; loops_storm.py has the invariants.

GOLOOP_TEST_LOOPS_SECONDS sets how long (10 seconds where it is unset).
"""

from __future__ import annotations

import os
from pathlib import Path

import ended
import pytest

STORM = Path(__file__).parent / "loops_storm.py"

SECONDS = float(os.environ.get("GOLOOP_TEST_LOOPS_SECONDS", "10"))
LIMIT = SECONDS + 150


@pytest.mark.skipif(
    os.environ.get("GOLOOP_TEST_LOOP") == "asyncio", reason="the storm is about goloop's loops"
)
@pytest.mark.timeout(LIMIT + 30)
def test_loops_in_threads_lose_nothing() -> None:
    done = ended.python(
        "-W", "error::ResourceWarning", str(STORM), "--seconds", str(SECONDS), limit=LIMIT
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("wrong: nothing\n"), done.stdout
