"""Random programs do the same on goloop as on asyncio, and no run breaks what each has to hold."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")

if sys.platform == "linux":
    import exploring

SEEDS = int(os.environ.get("SEEDS", "300"))


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> Iterator[None]:
    with exploring.quiet():
        yield


@pytest.mark.parametrize("kind", ["talks", "timed"])
def test_random_programs(kind: str) -> None:
    for seed in range(SEEDS):
        found = exploring.KINDS[kind](seed)
        assert not found, f"seed {seed}:\n" + "\n".join(found[:40])
