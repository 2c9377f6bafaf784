"""Tools of the programs here: `python PROGRAM asyncio|uvloop|goloop` prints a word, `right` or a
description of the error, and ends with the status 0 for `right`.

The first line of a program's docstring is its row of docs/what-works-here.md, and the lines with
a colon are the other columns: the public report, and what each loop prints.  `python showing.py`
writes the table into the page.  A program that would disturb others in its process on goloop
says `process: its own`.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "what-works-here.md"
LOOPS = ("asyncio", "uvloop", "goloop")
# Seconds, after which a program that hangs is ended by SIGALRM.
LIMIT = 30
DEATHS = {signal.SIGALRM: "hangs", signal.SIGABRT: "aborts", signal.SIGSEGV: "crashes"}


# ---- in a program --------------------------------------------------------------------------------


def new_loop(name: str = "") -> asyncio.AbstractEventLoop:
    """A loop of the kind that the command line names."""
    name = name or sys.argv[1]
    if name == "asyncio":
        return asyncio.SelectorEventLoop()
    loop: asyncio.AbstractEventLoop = __import__(name).new_event_loop()
    return loop


def outcome(main: Callable[[], Coroutine[Any, Any, str]]) -> str:
    """The word that a coroutine function returns on a new loop, or the exception's name."""
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(main())
    except Exception as exc:
        return type(exc).__name__


def show(main: Callable[[], Coroutine[Any, Any, str]], limit: int = LIMIT) -> None:
    """Runs a program's main, prints its word and ends the process."""
    signal.alarm(limit)
    word = outcome(main)
    print(word, flush=True)
    sys.exit(word != "right")


def descriptors() -> int:
    """How many descriptors are open."""
    return len(os.listdir("/proc/self/fd"))


# ---- about the programs --------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A program's docstring."""

    name: str
    what: str
    fields: dict[str, str]

    @property
    def alone(self) -> bool:
        return self.fields.get("process") == "its own"

    def expected(self, loop: str) -> str:
        """Return the expected output on a loop: `leaks until 3.14` is `right` from 3.15 on."""
        said = self.fields.get(loop, "right")
        word, until, version = said.partition(" until 3.")
        return "right" if until and sys.version_info > (3, int(version), 99) else word


def row(path: Path) -> Row:
    text = path.read_text(encoding="utf-8").split('"""')[1]
    first, *_ = text.split("\n\n")
    found = re.findall(r"^(\w+): +(.+)$", text, re.MULTILINE)
    return Row(path.stem, " ".join(first.split()).removesuffix("."), dict(found))


def rows() -> list[Row]:
    """All programs, in the order of their names."""
    found = sorted(HERE.glob("*.py"))
    return [
        row(each) for each in found if "show(main" in each.read_text() and each.stem != "showing"
    ]


def run(name: str, loop: str) -> str:
    """A program's word in a process of its own; how the process ended, where there is none."""
    done = subprocess.run(
        [sys.executable, HERE / f"{name}.py", loop],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=4 * LIMIT,
        check=False,
    )
    if done.returncode < 0:
        number = signal.Signals(-done.returncode)
        return DEATHS.get(number, f"dies of {number.name}")
    said = done.stdout.split("\n")
    return said[-2] if len(said) > 1 else f"nothing: {done.stderr[-2000:]}"


def run_all(names: list[str], loop: str) -> dict[str, str]:
    """The words of several programs, in one process."""
    done = subprocess.run(
        [sys.executable, HERE / "showing.py", loop, *names],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=4 * LIMIT,
        check=False,
    )
    words = dict(re.findall(r"^(\w+)=(.+)$", done.stdout, re.MULTILINE))
    return {name: words.get(name, f"nothing: {done.stderr[-2000:]}") for name in names}


# ---- the page ------------------------------------------------------------------------------------

_REPORT = re.compile(r"([\w.-]+)/([\w.-]+)#(\d+)")


def table() -> str:
    """The table of the page."""
    lines = ["| | report | asyncio | uvloop | goloop |", "|---|---|---|---|---|"]
    for each in rows():
        program = f"[{each.what}](../tests/what_works/{each.name}.py)"
        report = _REPORT.sub(
            r"[\2#\3](https://github.com/\1/\2/issues/\3)", each.fields["report"]
        ).replace("none", "—")
        words = [each.fields[name] for name in ("asyncio", "uvloop")]
        shown = [word if word == "right" else f"**{word}**" for word in words]
        lines.append(f"| {program} | {report} | {shown[0]} | {shown[1]} | right |")
    return "\n".join(lines)


def with_table(text: str) -> str:
    """The page's text with the table of today."""
    begin, end = "<!-- table: written by python tests/what_works/showing.py -->", "<!-- end -->"
    before, rest = text.split(begin)
    return f"{before}{begin}\n\n{table()}\n\n{end}{rest.split(end)[1]}"


def _main() -> None:
    if not sys.argv[1:]:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    signal.alarm(2 * LIMIT)
    for name in sys.argv[2:]:
        print(f"{name}={outcome(__import__(name).main)}", flush=True)


if __name__ == "__main__":
    _main()
