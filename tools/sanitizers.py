"""What the checks `asan` and `tsan` share, and what ThreadSanitizer needs and says.

ThreadSanitizer sees the extension alone.  The C in the Go library could be built with it, and runs:
but then cgo orders all threads at each call of Go, for it can't tell what Go's locks do, and most
races of the extension are no longer seen.  `race` looks at Go.  Neither is the interpreter built
with it: tools/tsan/interpreter.c says what stands in for that.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import environments
from environments import BUILD, ROOT, Environment, Interpreter, Skipped
from goloop_build import toolchain

NAMES = {"address": "asan", "thread": "tsan"}


def sanitized(base: Interpreter, kind: str) -> Environment:
    """A copy of the tree with a sanitized extension, and the environment that has it.

    The copy is needed because an extension is built in place: the sanitized one
    would take the place of the one that everybody else is using.
    """
    name = NAMES[kind]
    tree = BUILD / name
    made = environments.environment(base, "test", name=f".venv-{base.tag}-{name}")
    with environments.locked(name):
        kept = tree / "build"  # so that only what changed is compiled
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
    """The path of a sanitizer's runtime; the bare name where the compiler has none."""
    command = [*toolchain.c_compiler().split(), f"-print-file-name=lib{name}.so"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


# ---- ThreadSanitizer ------------------------------------------------------------------


def check_thread_sanitizer(base: Interpreter) -> None:
    """Whether an interpreter runs under it; raises Skipped."""
    machine = os.uname().machine
    if machine != "x86_64":
        raise Skipped(f"tools/tsan/interpreter.c is for x86-64, and this is {machine}")
    runtime = library("tsan")
    if not os.path.isabs(runtime):
        raise Skipped("the C compiler has no libtsan.so")
    done = subprocess.run(
        [base.program, "-I", "-c", "pass"],
        env={**os.environ, "LD_PRELOAD": runtime},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        # Older ones do not know where kernels with more random addresses map.
        raise Skipped(f"{base.program} does not run with {runtime}: {done.stdout.strip()}")


def thread_sanitizer(reports: Path) -> dict[str, str]:
    """The environment of a process that is looked at, and leaves its reports in a folder."""
    options = {
        "log_path": f"'{reports / 'report'}'",
        "suppressions": f"'{ROOT / 'tools' / 'tsan' / 'suppressions.txt'}'",
        # The interpreter's calls of memcpy and the like are not ordered for it.
        "ignore_noninstrumented_modules": "1",
        "detect_deadlocks": "0",
        "history_size": "4",  # of a thread: the older access has its stack, too
        "exitcode": "0",  # `races` says what is one
    }
    return {
        "LD_PRELOAD": library("tsan"),
        "TSAN_OPTIONS": ":".join(f"{name}={value}" for name, value in options.items()),
    }


@dataclass(frozen=True)
class Race:
    """Two accesses that nothing orders, and the first report of them."""

    seen: int
    places: str
    text: str


def races(reports: Path) -> list[Race]:
    """What the reports in a folder say of the extension, most frequent first."""
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
    """The innermost frame of the extension, as queue/ready.c:92 gl_ready_push."""
    lines = frames.splitlines()
    line = next((line for line in lines if EXTENSION in line), lines[0])
    _, function, place, *_ = line.split()
    return f"{place.split('/core/')[-1]} {function}"
