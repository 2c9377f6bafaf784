"""Builds the programs without Python: load generators and ceilings.

They are built on the fly into a cache directory of the repository, again
whenever a source is newer than the program.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CACHE = ROOT / ".cache" / "benchmarks"


class BuildError(Exception):
    """A program could not be built; the text says why in one line."""


def c_program(name: str) -> Path:
    """Compile ceiling/NAME.c and return the program's path."""
    source = HERE / "ceiling" / f"{name}.c"
    program = CACHE / name
    if not _stale(program, [source]):
        return program
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise BuildError("no C compiler is on PATH")
    _build([compiler, "-std=c11", "-O2", "-Wall", "-Wextra", "-o", "{}", str(source)], program)
    return program


def go_program() -> Path:
    """Build load/ and return the program's path."""
    program = CACHE / "load"
    sources = [*(HERE / "load").glob("*.go"), ROOT / "go.mod"]
    if not _stale(program, sources):
        return program
    go = shutil.which("go")
    if go is None:
        raise BuildError("no Go toolchain is on PATH")
    _build([go, "build", "-buildvcs=false", "-trimpath", "-o", "{}", "./benchmarks/load"], program)
    return program


def version(ceiling: str) -> str:
    """Name a ceiling as the report does: gnet by the version that go.mod pins."""
    if ceiling == "c-epoll":
        return "c-epoll (C)"
    pinned = re.search(r"panjf2000/gnet/v2 (v\S+)", (ROOT / "go.mod").read_text())
    return f"gnet {pinned[1]}" if pinned else "gnet"


def _stale(program: Path, sources: list[Path]) -> bool:
    if not program.exists():
        return True
    built = program.stat().st_mtime
    return any(source.exists() and source.stat().st_mtime > built for source in sources)


def _build(command: list[str], program: Path) -> None:
    """Build beside the program and rename, so that a run never sees half a file."""
    CACHE.mkdir(parents=True, exist_ok=True)
    partial = program.with_name(f"{program.name}.{os.getpid()}")
    filled = [part.replace("{}", str(partial)) for part in command]
    built = subprocess.run(filled, cwd=ROOT, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        lines = built.stderr.strip().splitlines() or [f"exit status {built.returncode}"]
        raise BuildError(f"{Path(command[0]).name}: {lines[-1]}")
    partial.replace(program)
