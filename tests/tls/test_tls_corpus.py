"""Attacked handshakes and records: the loop has the same outcomes as asyncio's.

Five hundred of the corpus; `python tests/tls/tls_corpus.py` compares five thousand.
"""

from __future__ import annotations

import pytest
from conftest import LOOP_NAMES, factory_of
from tls_corpus import Case, differences

SEED = 26
CASES, AT_ONCE = 500, 100


@pytest.mark.skipif("goloop" not in LOOP_NAMES, reason="it compares goloop with asyncio")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("first", range(0, CASES, AT_ONCE))
def test_an_attack_ends_as_on_asyncio(first: int, no_leaks: None) -> None:
    cases = [Case(SEED, number) for number in range(first, first + AT_ONCE)]
    found, tally = differences(factory_of("asyncio"), factory_of("goloop"), cases)
    told = "\n".join(f"{case}\n  asyncio {one}\n  goloop  {other}" for case, one, other in found)
    assert not found, told
    # The corpus has attacks: many fail, in many ways, but not all.
    assert tally["connected"]
    assert len(tally) > 5
