"""Methods of a loop import nothing, so that no fork, interrupt or patch can make them fail."""

from __future__ import annotations

from pathlib import Path

import ended
import pytest
from tls_tools import identity

WALK = Path(__file__).with_name("import_walk.py")
SCENARIOS = Path(__file__).with_name("late_imports_scenarios.py")
pytestmark = pytest.mark.goloop_only("asyncio's loop is the comparison, in each test")


def imported(loop: str) -> set[str]:
    """The modules that a walk over the loop's methods imports."""
    it = identity()
    done = ended.python(WALK, loop, it.certificate, it.key, limit=100)
    assert done.returncode == 0, done.stdout
    found = [line for line in done.stdout.splitlines() if line.startswith("imported:")]
    return set(found[0].split()[1:])


def test_a_loop_imports_only_what_asyncio_imports_at_the_same_place() -> None:
    assert imported("goloop") - imported("asyncio") == set()


# ---- forks ------------------------------------------------------------------------------------


@pytest.mark.forks
@pytest.mark.parametrize("file", ["loop/library.py", "tls/protocol.py", "goloop/watchdog.py"])
def test_child_of_a_fork_during_the_import_can_import_goloop(file: str) -> None:
    done = ended.python(SCENARIOS, "fork_inside_an_import", file, limit=60)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stdout


# ---- interrupted imports -------------------------------------------------------------------------


@pytest.mark.forks
@pytest.mark.parametrize("by", ["audit", "trace"])
@pytest.mark.parametrize("error", ["KeyboardInterrupt", "MemoryError"])
def test_goloop_can_be_imported_after_an_interrupted_import(error: str, by: str) -> None:
    words = ("interrupted_imports", error, by, 40)
    # Without the compiled modules each of the imports would take half a second.
    kept = {"PYTHONDONTWRITEBYTECODE": ""}
    done = ended.python(SCENARIOS, *words, apart=True, **kept)
    assert (done.returncode, done.stdout) == (0, "True []\n"), done.stdout + done.stderr


# ---- sys.modules ---------------------------------------------------------------------------------

CASES = [
    "first_imported_within_a_patch_of_sys_modules",
    "dropped_and_imported_again",
    "reloaded",
    "dropped_with_a_loop_that_is_used_on",
    "dropped_within_a_patch_with_late_modules",
]


@pytest.mark.parametrize("case", CASES)
def test_goloop_works_when_sys_modules_was_changed(case: str) -> None:
    it = identity()
    done = ended.python(SCENARIOS, case, it.certificate, it.key, apart=True)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stdout + done.stderr
