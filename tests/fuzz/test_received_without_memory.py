"""A connection that receives while memory is short loses no byte and goes on whole, or ends.

received_without_memory.py makes the connections, in processes of their own.
"""

from __future__ import annotations

import os
from pathlib import Path

import ended
import pytest

pytest.importorskip("_testcapi", reason="CPython's own tests have what refuses memory")

PROGRAM = Path(__file__).parent / "received_without_memory.py"
LIMIT = 200

pytestmark = [
    pytest.mark.skipif(
        "GOLOOP_SANITIZE" in os.environ, reason="the sanitizer's allocator is refused nothing"
    ),
    pytest.mark.skipif(
        os.environ.get("GOLOOP_TEST_LOOP") == "asyncio", reason="it is about goloop's transports"
    ),
]


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize(
    "kind",
    [
        *("reader", "protocol", "buffered"),
        *("tls reader", "tls protocol", "tls buffered"),
        *("pipe reader", "pipe protocol"),
        "written",
    ],
)
def test_streams_have_no_gap_if_an_allocation_fails(kind: str) -> None:
    done = ended.python(str(PROGRAM), kind, limit=LIMIT)
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout[-4000:]}"
