"""Arguments that do something in the middle of a call; hostile.py generates the calls.

The calls run in processes of their own.  A call that kills its process is reported, and the
next process makes the calls after it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import ended
import hostile
import pytest
from fuzz import crash_log
from partial_run import PART

PROGRAM = Path(__file__).parent / "hostile.py"
LIMIT = 500
# Each action with each value on one interpreter; a part on others.
WHICH = ["--seed", str(4 * sys.version_info.minor)] if PART else ["--all"]
DEATHS = 3


@pytest.mark.timeout(LIMIT + 60)
@pytest.mark.parametrize("kind", hostile.MAKERS)
def test_no_hostile_argument_crashes_or_hangs_the_process(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "trail"
    told: list[str] = []
    first = 0
    for _ in range(DEATHS):
        # Memory that was freed is filled, so that using it is noticed.
        done = ended.python(
            *(PROGRAM, "--types", kind, *WHICH, "--trail", path, "--first", first),
            limit=LIMIT,
            PYTHONMALLOC=os.environ.get("PYTHONMALLOC", "debug"),
        )
        if done.returncode == 0:
            break
        last = crash_log.read(path, 1)[-1:]
        told.append(f"status {done.returncode} at {last}\n{done.stdout[-6000:]}")
        if " calls, " in done.stdout or not last:
            break
        first = int(last[0].split()[0]) + 1
    assert not told, "\n".join(told)


def test_every_type_is_made() -> None:
    """A type that is added to the extension needs a maker in hostile.py."""
    assert hostile.TYPES.keys() | {"module"} == hostile.MAKERS.keys()


@pytest.mark.parametrize("kind", hostile.MAKERS)
def test_every_name_is_called(kind: str) -> None:
    """Each name of each table is called, or stands in SKIPPED with a reason."""
    called = {call.name for call in hostile.generate([kind], everything=False)}
    data = {
        name
        for name, value in hostile.table_of(kind).items()
        if isinstance(value, hostile.PLAIN_DATA) or not hostile.is_entry(value)
    }
    skipped = {name.split(".")[1] for name in hostile.SKIPPED if name.startswith(f"{kind}.")}
    assert called | data | skipped == set(hostile.table_of(kind))
    assert not called & skipped


@pytest.mark.parametrize("seed", [0, 4])
def test_each_action_is_done_with_each_value(seed: int) -> None:
    calls = [call for call in hostile.generate(["Loop"], False, seed) if call.at == 0]
    seen = {(call.value, call.action) for call in calls if call.value in hostile.VALUES}
    assert seen == {(value, action) for value in hostile.VALUES for action in hostile.ACTIONS}
