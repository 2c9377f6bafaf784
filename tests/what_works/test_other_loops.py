"""The results of asyncio and uvloop in docs/what-works-here.md: the programs still give them.

A result that has become right fails the test as well: the row needs a new word, or is removed.
`make test` omits these tests; uvloop is installed with the programs of real_programs/.
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
