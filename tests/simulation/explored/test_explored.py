"""Random programs behave the same on goloop as on asyncio, and no run breaks an invariant."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from partial_run import PART

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")

if sys.platform == "linux":
    import exploring

# Number of seeds of each kind, fewer for slow ones, and the number in a test.
SEEDS = {"talks": 300, "timed": 300, "bulk": 100, "lives": 100}
AT_ONCE = 25


def _some(kind: str) -> range:
    count = int(os.environ.get("SEEDS", SEEDS[kind]))
    part = count // 6 if PART else count
    first = part * sys.version_info.minor if PART else 0
    return range(first, first + part, AT_ONCE)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with exploring.quiet():
        yield


@pytest.mark.parametrize(("kind", "first"), [(kind, at) for kind in SEEDS for at in _some(kind)])
def test_random_programs(kind: str, first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        found = exploring.KINDS[kind](seed)
        assert not found, f"seed {seed}:\n" + "\n".join(found[:40])
