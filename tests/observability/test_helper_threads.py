"""goloop's helper threads import nothing.

A module that a thread imports is incomplete in sys.modules meanwhile, where others find it:
`@dataclass` looks for `typing` there, and has failed in programs that a thread of goloop's watched.
"""

from __future__ import annotations

import os
import sys

import ended
import pytest

PATIENCE = 60.0

pytestmark = pytest.mark.skipif(
    os.environ.get("GOLOOP_TEST_LOOP") == "asyncio", reason="asyncio has no threads of its own"
)

# As little as can be is imported before: no site, no modules of the test's own.
PRELUDE = f"""
import sys, threading
sys.path[:0] = {[entry for entry in sys.path if entry]!r}
first = threading.get_ident()
imported = []
class Recorder:
    def find_spec(name, path=None, target=None):
        if threading.get_ident() != first:
            imported.append((threading.current_thread().name, name))
sys.meta_path.insert(0, Recorder)
import asyncio, time, goloop
"""


def program(text: str, **environment: str) -> str:
    done = ended.python("-S", "-c", PRELUDE + text, apart=True, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "limit",
    [
        "asyncio.get_running_loop().set_watchdog(0.05)",
        "",  # the environment's
    ],
    ids=["set", "environment"],
)
def test_the_watchdog_imports_nothing_while_the_loop_is_blocked(limit: str) -> None:
    out = program(
        f"""
told = []
class Handler:
    level = 0
    def handle(self, record):
        told.append(record.getMessage())
import logging
logging.getLogger("goloop").addHandler(Handler())
async def main():
    {limit or "pass"}
    await asyncio.sleep(0)
    while not told:
        pass
    while len(told) < 2:
        await asyncio.sleep(0.001)
goloop.run(main())
print(imported)
""",
        GOLOOP_WATCHDOG="0" if limit else "0.05",
    )
    assert out == "[]\n"


def test_lookup_threads_import_nothing() -> None:
    out = program(
        """
async def main():
    await asyncio.get_running_loop().getaddrinfo("localhost", 80)
goloop.run(main())
print(imported)
"""
    )
    assert out == "[]\n"


def test_introspection_thread_imports_nothing() -> None:
    out = program(
        """
import json, os
from goloop.operations import introspection
async def ask(what):
    path = introspection.address(os.getpid())
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(json.dumps({"ask": what}).encode() + b"\\n")
    answer = json.loads(await reader.read())
    assert "error" not in answer, answer
    writer.close()
async def main():
    await ask("tasks")
    await ask("top")
goloop.run(main())
print(imported)
""",
        GOLOOP_INTROSPECT="1",
    )
    assert out == "[]\n"


def test_metrics_writer_thread_imports_nothing(tmp_path: object) -> None:
    pytest.importorskip("prometheus_client")
    out = program(
        f"""
import os, goloop.prometheus
folder = {str(tmp_path)!r}
goloop.run(asyncio.sleep(0))
goloop.prometheus.Collector(folder, 0.01)
end = time.monotonic() + 60
while not any(name.endswith(".json") for name in os.listdir(folder)):
    assert time.monotonic() < end
    time.sleep(0.001)
print(imported)
"""
    )
    assert out == "[]\n"
