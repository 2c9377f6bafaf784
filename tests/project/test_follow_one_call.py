"""The steps of the page Follow one call: they exist, call each other, and are as few as it says."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "internals" / "follow-one-call.md").read_text()
STEP = re.compile(r"^\d+\. `([\w./]+):(\w+)`", re.MULTILINE)

# The first line of a function's definition, by the ending of its file.
DEFINITIONS = {
    ".c": r"^{}\([^;]*$",
    ".go": r"^func (?:\([^)]*\) )?{}\(",
    ".py": r"^ *(?:async )?def {}\(",
}
# The line after the last one of a definition.
ENDS = {".c": r"}$", ".go": r"}$", ".py": r" *(async )?def |class |@"}

# Steps that are called through a table or by Python, and the text of that call.
THROUGH_TABLES = {
    "goloop_turn": "loop->go->turn(",
    "stream_complete": "->complete(",
    "listener_handle_accept": "->complete(",
    "future_iter_send": "PyIter_Send(",
    "_accepted": "G.s__accepted",
    "listener_make_transport": "self._take(",
    "stream_start": "->start(",
}

# The largest numbers of steps, with those of the turn that a trip passes, and of files.
LIMITS = {
    "a write that is sent at once": (6, 3),
    "a deferred write": (30, 10),
    "call_later, armed": (9, 4),
    "call_later, due, in C": (5, 4),
    "sleep(0)": (12, 5),
    "received bytes, by Go": (20, 10),
    "received bytes, by C": (19, 9),
}

Steps = list[tuple[str, str]]


def lists_of(title: str) -> list[Steps]:
    """Return the numbered lists of a section; a list begins with the number 1."""
    [section] = [part for part in re.split(r"^## ", PAGE, flags=re.M) if part.startswith(title)]
    found: list[Steps] = []
    for match in STEP.finditer(section):
        if match[0].startswith("1. "):
            found.append([])
        found[-1].append((match[1], match[2]))
    return found


def source_of(name: str, function: str) -> str:
    """Return the lines of a function's definition, "" if the file does not define it."""
    path = ROOT / name
    lines = path.read_text().splitlines()
    pattern = re.compile(DEFINITIONS[path.suffix].format(re.escape(function)))
    for number, line in enumerate(lines):
        if pattern.match(line):
            end = number + 1
            while not re.match(ENDS[path.suffix], lines[end]):
                end += 1
            return "\n".join(lines[number:end])
    return ""


def calls(caller: tuple[str, str], function: str) -> bool:
    body = source_of(*caller).partition("\n")[2]
    if function in THROUGH_TABLES:
        return THROUGH_TABLES[function] in body
    return re.search(rf"(?<!\w){function}\(", body) is not None


SECTIONS = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
TURN = lists_of("Every trip through Go")[0]
IN, OUT = TURN[:5], TURN[5:]
WRITE = lists_of("`transport.write")
LATER = lists_of("`loop.call_later")
SLEEP = lists_of("`await asyncio.sleep(0)`")
RECEIVED = lists_of("Received bytes")

TRIPS: dict[str, Steps] = {
    "a write that is sent at once": WRITE[0],
    "a deferred write": WRITE[1] + IN + WRITE[2],
    "call_later, armed": LATER[0],
    "call_later, due, in C": LATER[2],
    "sleep(0)": SLEEP[0] + SLEEP[1],
    "received bytes, by Go": IN + RECEIVED[0] + OUT[:1] + RECEIVED[1],
    "received bytes, by C": IN + RECEIVED[0][:5] + OUT[:1] + RECEIVED[2],
}


@pytest.mark.parametrize(("name", "function"), sorted(set(STEP.findall(PAGE))))
def test_steps_exist(name: str, function: str) -> None:
    assert source_of(name, function)


@pytest.mark.parametrize("title", SECTIONS)
def test_each_step_is_called_by_one_before_it(title: str) -> None:
    """So the page leaves out no function that calls the next one."""
    for steps in lists_of(title):
        for number, (_, function) in enumerate(steps[1:], 1):
            callers = [*TURN, *steps[:number]]
            assert any(calls(each, function) for each in callers), function


@pytest.mark.parametrize("trip", TRIPS)
def test_trips_have_at_most_so_many_steps(trip: str) -> None:
    most_steps, most_files = LIMITS[trip]
    steps = set(TRIPS[trip])
    assert len(steps) <= most_steps
    assert len({name for name, _ in steps}) <= most_files


def test_no_step_only_calls_the_next() -> None:
    """A function with one statement is written where it is called."""
    for trip in TRIPS.values():
        for caller, (_, called) in pairwise(trip):
            body = re.sub(r"/\*.*?\*/|//[^\n]*", "", source_of(*caller), flags=re.DOTALL)
            lines = [line for line in body.splitlines()[1:] if line.strip(" \t{}")]
            assert len(lines) > 1 or not calls(caller, called), caller


def test_a_function_that_is_only_called_or_declared_is_not_defined(tmp_path: Path) -> None:
    source = tmp_path / "source.c"
    source.write_text(
        "static int\nmade(void)\n{\n    return called(1);\n}\n\nint declared(void);\n"
    )
    assert source_of(str(source), "made").endswith("return called(1);")
    assert source_of(str(source), "called") == ""
    assert source_of(str(source), "declared") == ""
