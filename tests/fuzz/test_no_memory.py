"""No entry point of the extension crashes, or loses an exception, for want of memory.

no_memory.py makes the calls, in processes of their own.  With --leaks, which takes minutes and is
run by hand, it also checks that a failed call leaks no memory.
"""

from __future__ import annotations

import os
from pathlib import Path

import ended
import hostile
import pytest
from fuzz import crash_log

pytest.importorskip("_testcapi", reason="CPython's own tests have what refuses memory")

PROGRAM = Path(__file__).parent / "no_memory.py"
LIMIT = 200

pytestmark = [
    pytest.mark.skipif(
        "GOLOOP_SANITIZE" in os.environ, reason="the sanitizer's allocator is refused nothing"
    ),
    pytest.mark.skipif(
        os.environ.get("GOLOOP_TEST_LOOP") == "asyncio", reason="it is about goloop's types"
    ),
]


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize("kind", hostile.MAKERS)
def test_each_allocation_of_each_entry_may_fail(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "trail"
    done = ended.python(str(PROGRAM), "--types", kind, "--trail", str(path), limit=LIMIT)
    last = crash_log.read(path, 1)[-1:]
    assert done.returncode == 0, f"status {done.returncode} at {last}\n{done.stdout[-4000:]}"
