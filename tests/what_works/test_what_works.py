"""The programs of docs/what-works-here.md are right on goloop, and its table is up to date."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import showing

import goloop

ROWS = showing.rows()

pytestmark = [
    pytest.mark.skipif(not goloop.native, reason="of goloop's own loop"),
    pytest.mark.skipif(sys.platform != "linux", reason="the programs look into /proc"),
]


def test_programs_that_share_a_process() -> None:
    names = [row.name for row in ROWS if not row.alone]
    assert showing.run_all(names, "goloop") == dict.fromkeys(names, "right")


@pytest.mark.forks
def test_programs_with_a_process_of_their_own() -> None:
    names = [row.name for row in ROWS if row.alone]
    with ThreadPoolExecutor(2) as pool:
        words = dict(
            zip(names, pool.map(lambda name: showing.run(name, "goloop"), names), strict=True)
        )
    assert words == dict.fromkeys(names, "right")


def test_table_matches_the_programs() -> None:
    page = showing.PAGE.read_text(encoding="utf-8")
    assert showing.with_table(page) == page, "python tests/what_works/showing.py writes it"
    for row in ROWS:
        assert {"report", "asyncio", "uvloop"} <= row.fields.keys(), row.name
        assert {row.fields["asyncio"], row.fields["uvloop"]} != {"right"}, row.name
