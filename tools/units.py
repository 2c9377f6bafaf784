"""Compiles each file of the C extension alone: `python tools/units.py [CORE [INCLUDE]]`.

A release is one translation unit, in which a file can use all files that module.c includes
before it.  Here GL_AMALGAMATION is not defined: a .c file has only the declarations of its
headers, and a header only those of its includes.  At the end all objects are linked, which
proves that the files define every declared function.

The objects' symbols then show three kinds of faults:

    names            a function that another room uses must begin with gl_ and be declared in its
                     room's public header; other functions must not begin with gl_
    circle           more than two files must not call each other in a circle (lint_rooms.py
                     forbids calls into a room below)
    mutable-static   static objects must not change at run time: mutable state belongs to a loop,
                     to the module's state or to a thread, where a comment names its owner

A comment at the definition exempts it, with the reason, as in lint_rooms.py.  INCLUDE is the
folder of another interpreter's headers, for example a free-threaded one, which selects other
preprocessor branches.

All failures are reported, each after the compiler's own messages.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import environments  # first, because it adds build_backend/ to sys.path
import lint_c
from environments import ROOT
from goloop_build import toolchain
from goloop_build.commands import core_extension

MODULE = "module.c"
# Undefined symbols that the interpreter defines.
INTERPRETERS = re.compile(r"_?Py[A-Z_]")
# The prefix of functions that other rooms use.
PREFIX = "gl_"
# Tables that are never written although the API does not declare them const; argument names.
TABLES = (
    r"(?:Py(?:MethodDef|GetSetDef|MemberDef|Type_Slot|Type_Spec|ModuleDef|ModuleDef_Slot"
    r"|AsyncMethods|NumberMethods|BufferProcs|StructSequence_Field|StructSequence_Desc)\s"
    r"|static\s+char\s*\*)"
)
# A line of `objdump -t` for a function or an object, with its section.
SYMBOL = re.compile(r"^\w+ ......([FO ]) (\S+)\t\w+ +(?:\.hidden )?(\S+)$", re.MULTILINE)
WRITABLE = re.compile(r"\.data(\.rel(\.local)?)?$|\.bss$|\*COM\*$")


@dataclass(frozen=True)
class Unit:
    """A file to compile: its name in reports, its path, and additional flags."""

    name: str
    source: Path
    flags: tuple[str, ...] = ()


class Symbols:
    """Symbols of an object file: defined, undefined, and writable."""

    def __init__(self, compiled: Path) -> None:
        found = SYMBOL.findall(environments.output(["objdump", "-t", compiled]))
        self.wanted = {name for _, section, name in found if section == "*UND*"}
        self.defined = {name for kind, _, name in found if kind != " "}
        self.writable = {
            name for kind, section, name in found if kind == "O" and WRITABLE.match(section)
        }


class Units:
    """The files of one tree, compiled into the empty folder `out`."""

    def __init__(self, core: Path, out: Path, include: str = "") -> None:
        self.core = core
        self.out = out
        self.compiler = shlex.split(toolchain.c_compiler())
        # setup.py's flags, but faster: the warnings that -O2 adds are the release's own.
        self.flags = [*core_extension().extra_compile_args, "-O0", "-fPIC"]
        # A function that no header declares must be static.
        self.flags += ["-Werror", "-Wmissing-prototypes"]
        include = include or sysconfig.get_paths()["include"]
        self.flags += [f"-I{core.parent}", f"-I{core}", f"-isystem{include}"]

    def check(self) -> list[str]:
        """Returns the failures, one on each line, after the compiler's messages."""
        files = [self._file(path) for path in sorted(self.core.rglob("*.c"))]
        headers = [self._header(path) for path in sorted(self.core.rglob("*.h"))]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            failed = [wrong for wrong in pool.map(self._compile, [*files, *headers]) if wrong]
        if not files:
            return [f"{self.core} has no files"]
        return failed or self._link(files) or self._lint(files)

    def _object(self, unit: Unit) -> Path:
        return self.out / (unit.name.replace("/", "-") + ".o")

    def _file(self, path: Path) -> Unit:
        name = path.relative_to(self.core).as_posix()
        if name != MODULE:
            return Unit(name, path)
        # With the rooms' public headers in place of their .c files.
        text = path.read_text().replace("#define GL_AMALGAMATION", "")
        text = re.sub(r'(?m)^#include "(\w+)/\w+\.c"$', r'#include "\1/\1.h"', text)
        alone = self.out / MODULE
        alone.write_text(f'#line 1 "{path}"\n{text}')
        return Unit(name, alone, ("-Wno-missing-prototypes",))  # PyInit__core has none

    def _header(self, path: Path) -> Unit:
        name = path.relative_to(self.core).as_posix()
        alone = self.out / (name.replace("/", "-") + ".c")
        alone.write_text(f'#include "{name}"\n' * 2)  # twice, to test the include guard
        return Unit(name, alone, ("-fsyntax-only",))

    def _compile(self, unit: Unit) -> str | None:
        command = [*self.compiler, *self.flags, *unit.flags, "-c", str(unit.source)]
        said = environments.failure([*command, "-o", self._object(unit)])
        return None if said is None else f"{said}\n{unit.name} does not compile alone"

    def _link(self, units: list[Unit]) -> list[str]:
        library = self.out / "core.so"
        objects = [self._object(unit) for unit in units]
        link: list[str | Path] = [*self.compiler, "-shared", "-o", library, *objects, "-ldl", "-lm"]
        said = environments.failure(link)
        if said is not None:
            return [f"{said}\nthe files do not link"]
        listing = environments.output(["nm", "-D", "--undefined-only", library])
        # Symbols of the C library have a version, after an @.
        wanted = re.findall(r"^\s+U ([^\s@]+)$", listing, re.MULTILINE)
        return [
            f"{name} is declared and used, and no file defines it"
            for name in wanted
            if INTERPRETERS.match(name) is None
        ]

    # ---- rules about symbols ------------------------------------------------------

    def _lint(self, units: list[Unit]) -> list[str]:
        objects = {unit.name: Symbols(self._object(unit)) for unit in units}
        sources = {}
        for path in self.core.rglob("*.[ch]"):
            where = path.relative_to(self.core).as_posix()
            sources[where] = lint_c.parse(where, path.read_text())
        findings = []
        for name, home in self._homes(objects, sources).items():
            used = {
                where.partition("/")[0]
                for where, of in objects.items()
                if name in of.wanted or (home.endswith(".h") and name in of.defined)
            }
            findings.append((home, name, "names", self._misnamed(name, home, used)))
        for where, of in objects.items():
            for name in {symbol.partition(".")[0] for symbol in of.writable}:
                if not re.search(rf"\b{TABLES}[\s*]*{name}\b", sources[where].code):
                    what = f"{name} can change at run time"
                    findings.append((where, name, "mutable-static", what))
        wrong = self._circles(objects)
        for where, name, rule, what in findings:
            place = re.search(rf"\b{name}\b", sources[where].code)
            line = sources[where].line(place.start()) if place else 1
            if what and not lint_c.allowed(sources[where].text, line, rule):
                wrong.append(f"{where}:{line}: {rule}: {what}")
        return sorted(wrong)

    def _circles(self, objects: dict[str, Symbols]) -> list[str]:
        """Returns the circles of more than two files that call each other."""
        homes = {name: where for where, of in objects.items() for name in of.defined}
        calls = {
            where: {homes[name] for name in of.wanted & homes.keys()}
            for where, of in objects.items()
        }
        for through in calls:
            for where in calls:
                if through in calls[where]:
                    calls[where] |= calls[through]
        circles = {
            tuple(sorted(other for other in calls[where] if where in calls[other]))
            for where in calls
        }
        return [
            f"circle: {', '.join(circle)} call each other"
            for circle in sorted(circles)
            if len(circle) > 2
        ]

    def _homes(
        self, objects: dict[str, Symbols], sources: dict[str, lint_c.Source]
    ) -> dict[str, str]:
        """Returns the file of each name: of an inline function its header, not the includer."""
        inline = {
            function.name: where
            for where, source in sources.items()
            if where.endswith(".h")
            for function in source.functions
        }
        shared = {
            function.name
            for path in self.core.parent.glob("*.h")
            for function in lint_c.parse(path.name, path.read_text()).functions
        }
        return {
            name: inline.get(name, where)
            for where, of in objects.items()
            for name in of.defined - shared
        }

    def _misnamed(self, name: str, home: str, used: set[str]) -> str:
        """Returns the fault of a name, or an empty string."""
        room = home.partition("/")[0]
        others = sorted(used - {room})
        prefixed = name.startswith(PREFIX)
        if others and not prefixed:
            return f"{name} is used in {others[0]}: the name must begin with {PREFIX}"
        if prefixed and name not in self._door(room):
            if others:
                return f"{name} is used in {others[0]}: declare the function in {room}/{room}.h"
            return f"{name} is used in {room} only: the name must not begin with {PREFIX}"
        return ""

    def _door(self, room: str) -> set[str]:
        """Returns the words of a room's public header, and of the headers that it includes."""
        wanted, found, words = [f"{room}/{room}.h"], set[str](), set[str]()
        while wanted:
            name = wanted.pop()
            if name not in found and (self.core / name).exists():
                found.add(name)
                text = (self.core / name).read_text()
                wanted += re.findall(rf'#include "({room}/\w+\.h)"', text)
                words |= set(re.findall(r"\w+", lint_c.blank(text)))
        return words


def main(arguments: list[str]) -> int:
    """Checks a folder like pybridge/core; returns 1 if there is a failure."""
    core = Path(arguments[0]) if arguments else ROOT / "pybridge" / "core"
    with tempfile.TemporaryDirectory(prefix="goloop-units-") as out:
        wrong = Units(core, Path(out), *arguments[1:]).check()
    for line in wrong:
        print(line)
    print(f"{len(list(core.rglob('*.[ch]')))} files, {len(wrong)} failures")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
