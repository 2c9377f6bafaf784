"""The TLS tests once more, on the path that calls SSLObject's own methods.

Which path goloop takes is decided once in a process, so pytest runs in another one.
"""

from __future__ import annotations

import os
from pathlib import Path

import ended
import pytest

HERE = Path(__file__).resolve().parent
TORTURE = HERE / "test_tls_torture.py"
# Two files are left out: this one, and the one that replaces objects of the direct calls.
LEFT_OUT = {HERE / "test_tls_stdlib.py", HERE / "test_tls_safety.py"}
OTHERS = sorted(set(HERE.glob("test_*.py")) - LEFT_OUT - {TORTURE})


PARTS = {"connections": OTHERS, "torture": [TORTURE]}


@pytest.mark.skipif(os.environ.get("GOLOOP_TEST_LOOP") == "asyncio", reason="asyncio has one path")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("files", PARTS.values(), ids=PARTS.keys())
def test_tls_passes_its_tests_without_direct_calls_of_openssl(files: list[Path]) -> None:
    pytest = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    environ = {"GOLOOP_TLS": "stdlib", "GOLOOP_TEST_LOOP": "goloop"}
    done = ended.python(*pytest, *files, limit=390, cwd=HERE.parent, **environ)
    assert done.returncode == 0, done.stdout[-20_000:]
