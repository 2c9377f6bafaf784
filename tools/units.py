"""Compiles each file of the C extension alone: `python tools/units.py [CORE]`.

A release is one translation unit, in which a file sees whatever stands before it and
module.c decides what that is.  Here GL_AMALGAMATION is not defined: each .c file has
only what its headers declare, each header only what it includes, and what the headers
declare has to be what the files define, for at last all objects are linked into one.

Every failure is reported, not the first alone; the compiler's own words go before.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

sys.path.insert(0, str(ROOT / "build_backend"))

from goloop_build import toolchain  # noqa: E402
from goloop_build.commands import core_extension  # noqa: E402

MODULE = "module.c"
# What the linker leaves open rightly: the interpreter defines it.
INTERPRETERS = re.compile(r"_?Py[A-Z_]")


@dataclass(frozen=True)
class Unit:
    """A file to compile: its name in reports, what is given to the compiler, more flags."""

    name: str
    source: Path
    flags: tuple[str, ...] = ()


class Units:
    """The files of one tree, compiled into the empty folder `out`."""

    def __init__(self, core: Path, out: Path) -> None:
        self.core = core
        self.out = out
        self.compiler = shlex.split(toolchain.c_compiler())
        # setup.py's flags, but faster: the warnings that -O2 adds are the release's own.
        self.flags = [*core_extension().extra_compile_args, "-O0", "-fPIC"]
        # A function that no header declares is static, or it is somebody's secret.
        self.flags += ["-Werror", "-Wmissing-prototypes"]
        include = sysconfig.get_paths()["include"]
        self.flags += [f"-I{core.parent}", f"-I{core}", f"-isystem{include}"]

    def check(self) -> list[str]:
        """What is wrong, each in a line; the compiler's messages are printed."""
        files = [self._file(path) for path in sorted(self.core.rglob("*.c"))]
        headers = [self._header(path) for path in sorted(self.core.rglob("*.h"))]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            failed = [wrong for wrong in pool.map(self._compile, [*files, *headers]) if wrong]
        if not files:
            return [f"{self.core} has no files"]
        return failed or self._link(files)

    def _object(self, unit: Unit) -> Path:
        return self.out / (unit.name.replace("/", "-") + ".o")

    def _file(self, path: Path) -> Unit:
        name = path.relative_to(self.core).as_posix()
        if name != MODULE:
            return Unit(name, path)
        # Without the other files; what it uses of them is what the rooms' headers offer.
        text = path.read_text().replace("#define GL_AMALGAMATION", "")
        text = re.sub(r'(?m)^#include "(\w+)/\w+\.c"$', r'#include "\1/\1.h"', text)
        alone = self.out / MODULE
        alone.write_text(f'#line 1 "{path}"\n{text}')
        return Unit(name, alone, ("-Wno-missing-prototypes",))  # PyInit__core has none

    def _header(self, path: Path) -> Unit:
        name = path.relative_to(self.core).as_posix()
        alone = self.out / (name.replace("/", "-") + ".c")
        alone.write_text(f'#include "{name}"\n' * 2)  # twice: it has to have a guard
        return Unit(name, alone, ("-fsyntax-only",))

    def _compile(self, unit: Unit) -> str | None:
        command = [*self.compiler, *self.flags, *unit.flags, "-c", str(unit.source)]
        said = _run([*command, "-o", str(self._object(unit))])
        return None if said is None else f"{said}{unit.name} does not compile alone"

    def _link(self, units: list[Unit]) -> list[str]:
        library = self.out / "core.so"
        objects = [str(self._object(unit)) for unit in units]
        said = _run([*self.compiler, "-shared", "-o", str(library), *objects, "-ldl", "-lm"])
        if said is not None:
            return [f"{said}the files do not link"]
        listing = subprocess.run(
            ["nm", "-D", "--undefined-only", str(library)],
            stdout=subprocess.PIPE, text=True, check=True,
        ).stdout  # fmt: skip
        # The C library's have a version, behind an @.
        wanted = re.findall(r"^\s+U ([^\s@]+)$", listing, re.MULTILINE)
        return [
            f"{name} is declared and used, and no file defines it"
            for name in wanted
            if INTERPRETERS.match(name) is None
        ]


def _run(command: list[str]) -> str | None:
    """What a command said that failed, or None."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return None if done.returncode == 0 else done.stdout


def main(arguments: list[str]) -> int:
    """Checks a folder like pybridge/core; the status is 1 where anything is wrong."""
    core = Path(arguments[0]) if arguments else ROOT / "pybridge" / "core"
    with tempfile.TemporaryDirectory(prefix="goloop-units-") as out:
        wrong = Units(core, Path(out)).check()
    for line in wrong:
        print(line)
    print(f"{len(list(core.rglob('*.[ch]')))} files, {len(wrong)} failures")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
