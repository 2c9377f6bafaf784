"""Storms of descriptors whose numbers are used again, by fd_storm.py and own_fd_storm.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import ended
import pytest

STORM = Path(__file__).parent / "fd_storm.py"
OWN_STORM = Path(__file__).parent / "own_fd_storm.py"

# 100,000 by hand.
ROUNDS = int(os.environ.get("GOLOOP_STORM_ROUNDS", "5000"))
LIMIT = 300 + ROUNDS // 20


@pytest.mark.timeout(LIMIT + 30)
def test_no_byte_reaches_another_connection(loop_name: str) -> None:
    command = [str(STORM), "--loop", loop_name, "--rounds", str(ROUNDS)]
    done = ended.python(*command, limit=LIMIT)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(f"{ROUNDS} rounds, wrong: nothing\n")


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_reused_numbers_of_goloops_own_descriptors_do_no_harm() -> None:
    rounds = ROUNDS // 50
    done = ended.python("-X", "faulthandler", str(OWN_STORM), "--rounds", str(rounds), limit=LIMIT)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(f" in {rounds} rounds, wrong: nothing\n"), done.stdout
