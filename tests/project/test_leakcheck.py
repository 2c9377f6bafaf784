"""The leak check finds each kind of leak, and every scenario of it runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

sys.path.append(str(ROOT / "tools"))

import leakcheck  # noqa: E402

# A process of its own for each: in this one, threads of other tests make blocks too, and
# malloc has room that they returned.
CHECK = """
import ctypes, os, resource, leakcheck
resource.setrlimit(resource.RLIMIT_NOFILE, (4000, 4000))
kept, malloc = [], ctypes.CDLL(None).malloc
malloc.restype = ctypes.c_void_p
print(leakcheck.check_plain(lambda: {body}, 2000))
"""


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("descriptors", "os.dup(1)"),
        ("objects", "kept.append([])"),
        ("blocks", "kept.append(object())"),
        ("resident", "ctypes.memset(malloc(ctypes.c_size_t(1000)), 1, 1000)"),
        ("", "[].append([])"),
    ],
)
def test_a_leak_is_found(kind: str, body: str) -> None:
    script = f"import sys; sys.path.append({str(ROOT / 'tools')!r})\n{CHECK.format(body=body)}"
    said = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert f"{kind} more in each round" in said if kind else said == "[]\n"


@pytest.mark.parametrize("scenario", leakcheck.SCENARIOS, ids=lambda body: body.__name__)
def test_a_scenario_runs(scenario: Callable[[], object]) -> None:
    leakcheck.goloop.run(scenario())
