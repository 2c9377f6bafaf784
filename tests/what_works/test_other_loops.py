"""docs/what-works-here.md: whether asyncio or uvloop has caught up, or does otherwise than it says.

What is right now, and wrong on the page, fails as well: the row wants a new word, or goes.
`make test` leaves this out; uvloop is installed beside the programs of real_programs/.
"""

from __future__ import annotations

import importlib.util

import pytest
import showing


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("row", showing.rows(), ids=lambda row: row.name)
def test_other_loop_behaves_as_the_page_says(row: showing.Row, loop: str) -> None:
    if importlib.util.find_spec(loop) is None:
        pytest.skip(f"{loop} is not installed")
    assert showing.run(row.name, loop) == row.expected(loop)
