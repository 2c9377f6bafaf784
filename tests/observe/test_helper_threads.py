"""goloop's helper threads import nothing.

A module that a thread imports is incomplete in sys.modules meanwhile, where others find it:
`@dataclass` looks for `typing` there, and has failed in programs that a thread of goloop's watched.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import ended
import pytest

SCENARIOS = Path(__file__).with_name("helper_threads_scenarios.py")

PATIENCE = 60.0

pytestmark = pytest.mark.skipif(
    os.environ.get("GOLOOP_TEST_LOOP") == "asyncio", reason="asyncio has no threads of its own"
)


def imports(name: str, *arguments: object, **environment: str) -> str:
    """Return the imports of helper threads in a scenario, which runs without site."""
    path = os.pathsep.join(filter(None, sys.path))
    done = ended.python(
        *("-S", SCENARIOS, name, *arguments), apart=True, PYTHONPATH=path, **environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("limit", ["set", "environment"])
def test_the_watchdog_imports_nothing_while_the_loop_is_blocked(limit: str) -> None:
    name = "the_watchdog_imports_nothing_while_the_loop_is_blocked"
    assert imports(name, limit, GOLOOP_WATCHDOG="0" if limit == "set" else "0.05") == "[]\n"


def test_lookup_threads_import_nothing() -> None:
    assert imports("lookup_threads_import_nothing") == "[]\n"


def test_introspection_thread_imports_nothing() -> None:
    assert imports("introspection_thread_imports_nothing", GOLOOP_INTROSPECT="1") == "[]\n"


def test_metrics_writer_thread_imports_nothing(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    assert imports("metrics_writer_thread_imports_nothing", tmp_path) == "[]\n"
