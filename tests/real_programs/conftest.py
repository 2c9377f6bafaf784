"""Real programs on goloop, each in a process of its own and over real sockets.

They need the packages of the groups `real` and `tools`; a program whose package is not
installed is skipped and says so.  Nothing here runs on asyncio: what is tested is that programs
written for it don't notice.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from real_programs.programs import Programs


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Starts programs, and ends them with the test."""
    made = Programs(tmp_path)
    try:
        yield made
    finally:
        made.kill()
