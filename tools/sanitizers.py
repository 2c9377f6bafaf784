"""Sanitized builds for the checks `asan` and `tsan`, and the reports of ThreadSanitizer.

Only the extension is built with ThreadSanitizer.  The C in the Go library could be: but then cgo
orders all threads at each call of Go, because it does not know Go's locks, and ThreadSanitizer
misses most races of the extension.  The check `race` covers Go.  The interpreter is not built with
ThreadSanitizer either: tools/tsan/interpreter.c replaces its instrumentation.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import environments
from environments import BUILD, ROOT, Environment, Interpreter, Skipped
from goloop_build import toolchain

NAMES = {"address": "asan", "thread": "tsan"}


def sanitized(base: Interpreter, kind: str) -> Environment:
    """Builds a sanitized extension in a copy of the tree; returns its environment.

    An extension is built in place.  In the tree itself, the sanitized extension would
    replace the ordinary one, which other programs use.
    """
    name = NAMES[kind]
    tree = BUILD / name
    made = environments.environment(base, "test", name=f".venv-{base.tag}-{name}")
    with environments.locked(name):
        kept = tree / "build"  # so that only changed files are compiled
        for path in tree.glob("*"):
            if path != kept:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for source in environments.tree():
            target = tree / source.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
        environments.install_editable(made, tree, GOLOOP_SANITIZE=kind, GOLOOP_WERROR="1")
    return made


def library(name: str) -> str:
    """Returns the path of a sanitizer's runtime; the bare name if the compiler has none."""
    command = [*toolchain.c_compiler().split(), f"-print-file-name=lib{name}.so"]
    return environments.output(command).strip()


# ---- ThreadSanitizer ------------------------------------------------------------------


def check_thread_sanitizer(base: Interpreter) -> None:
    """Raises Skipped if an interpreter does not run with ThreadSanitizer."""
    machine = os.uname().machine
    if machine != "x86_64":
        raise Skipped(f"tools/tsan/interpreter.c is for x86-64, and this machine is {machine}")
    runtime = library("tsan")
    if not os.path.isabs(runtime):
        raise Skipped("the C compiler has no libtsan.so")
    env = {**os.environ, "LD_PRELOAD": runtime}
    wrong = environments.failure([base.program, "-I", "-c", "pass"], env=env)
    if wrong is not None:
        # Older runtimes do not support kernels with more bits of address randomisation.
        raise Skipped(f"{base.program} does not run with {runtime}: {wrong}")


def thread_sanitizer(reports: Path) -> dict[str, str]:
    """Returns variables for a process that writes ThreadSanitizer's reports to a folder."""
    options = {
        "log_path": f"'{reports / 'report'}'",
        "suppressions": f"'{ROOT / 'tools' / 'tsan' / 'suppressions.txt'}'",
        # The interpreter's calls of memcpy and similar functions would be reported.
        "ignore_noninstrumented_modules": "1",
        "detect_deadlocks": "0",
        "history_size": "4",  # large enough for the stack of the older access
        "exitcode": "0",  # `races` selects the reports that count
    }
    return {
        "LD_PRELOAD": library("tsan"),
        "TSAN_OPTIONS": ":".join(f"{name}={value}" for name, value in options.items()),
    }


@dataclass(frozen=True)
class Race:
    """Two unordered accesses, with the number of their reports and the first report."""

    seen: int
    places: str
    text: str


def races(reports: Path) -> list[Race]:
    """Returns the races of the extension in a folder's reports, most frequent first."""
    seen: Counter[str] = Counter()
    texts: dict[str, str] = {}
    for path in sorted(reports.iterdir()):
        for text in path.read_text(errors="replace").split("=" * 18):
            accesses = [_place(frames) for frames in ACCESS.findall(text)]
            if "WARNING: ThreadSanitizer" in text and EXTENSION in text:
                places = " | ".join(sorted(accesses)) or text.strip().splitlines()[0]
                seen[places] += 1
                texts.setdefault(places, text.strip("\n"))
    return [Race(number, places, texts[places]) for places, number in seen.most_common()]


# The frames of an access, innermost first, and a frame's module.
ACCESS = re.compile(r"^  [\w ]*(?:[Rr]ead|[Ww]rite) of size .*\n((?:    #.*\n)+)", re.MULTILINE)
EXTENSION = "(_core."


def _place(frames: str) -> str:
    """Returns the innermost frame of the extension, like queue/ready.c:92 gl_ready_push."""
    lines = frames.splitlines()
    line = next((line for line in lines if EXTENSION in line), lines[0])
    _, function, place, *_ = line.split()
    return f"{place.split('/core/')[-1]} {function}"
