"""What a release is built for: an old glibc of a machine that need not be this one.

GOLOOP_TARGET=x86_64-linux-gnu.2.17 in the environment asks for it, by the name that the
compiler has for it: zig, which carries the headers and the symbol versions of every
glibc.  The program is `zig` on PATH, the PyPI package `ziglang`, or what ZIG says.
Without GOLOOP_TARGET a build is for the machine, and the glibc, that it runs on.

Flags, link options and names are fixed here then, and none comes from the interpreter's
own build: two builds in different folders have the same bytes.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import sysconfig
from typing import NamedTuple

from .toolchain import Unbuildable

# zig's, hence the wheels', names of the machines; and Go's.
GO_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Target(NamedTuple):
    """A machine, and the oldest glibc to build for."""

    machine: str
    glibc: tuple[int, int]

    @property
    def name(self) -> str:
        """As zig and GOLOOP_TARGET have it."""
        return "{}-linux-gnu.{}.{}".format(self.machine, *self.glibc)

    @property
    def platform(self) -> str:
        """The last part of the wheel's name."""
        return "manylinux_{}_{}_{}".format(*self.glibc, self.machine)

    @property
    def goarch(self) -> str:
        """Go's name of the machine."""
        return GO_ARCHITECTURES[self.machine]

    def extension_suffix(self) -> str:
        """EXT_SUFFIX of this interpreter's version on that machine."""
        here = str(sysconfig.get_config_var("EXT_SUFFIX"))
        return re.sub(r"-[^-]+-linux-gnu\.so$", f"-{self.machine}-linux-gnu.so", here)

    def compiler(self) -> str:
        """The command line of a C compiler for it."""
        return f"{zig()} cc -target {self.name}"

    def compile_flags(self) -> list[str]:
        """What the interpreter's own flags stand for elsewhere; they come first."""
        return [
            "-fPIC",
            "-DNDEBUG",
            "-fwrapv",
            "-g0",
            # zig's default, even where it optimises.
            "-fno-sanitize=undefined",
            f"-ffile-prefix-map={os.getcwd()}=.",
        ]

    def headers(self, folder: str) -> list[str]:
        """Folders to look in for what of CPython's headers is filed by machine.

        Debian's pyconfig.h includes one that lies below the name of its machine, where a
        compiler for that machine alone would find it: it is copied into `folder`.
        """
        include = sysconfig.get_paths()["include"]
        version, here = os.path.basename(include), str(sysconfig.get_config_var("MULTIARCH"))
        for place in (include, os.path.dirname(include)):
            ours = os.path.join(place, here, version, "pyconfig.h")
            if os.path.exists(ours):
                theirs = os.path.join(folder, f"{self.machine}-linux-gnu", version, "pyconfig.h")
                os.makedirs(os.path.dirname(theirs), exist_ok=True)
                shutil.copyfile(ours, theirs)
                return [folder]
        return []


def target() -> Target | None:
    """What GOLOOP_TARGET asks for."""
    wanted = os.environ.get("GOLOOP_TARGET")
    if not wanted:
        return None
    found = re.fullmatch(r"(\w+)-linux-gnu\.(\d+)\.(\d+)", wanted)
    if found is None or found[1] not in GO_ARCHITECTURES:
        machines = " or ".join(GO_ARCHITECTURES)
        raise Unbuildable(
            f"GOLOOP_TARGET is {wanted!r} and not of the form MACHINE-linux-gnu.2.17, "
            f"where MACHINE is {machines}."
        )
    return Target(found[1], (int(found[2]), int(found[3])))


def zig() -> str:
    """The command line of zig."""
    chosen = os.environ.get("ZIG") or shutil.which("zig")
    if chosen:
        return chosen
    if importlib.util.find_spec("ziglang") is None:
        raise Unbuildable(
            "GOLOOP_TARGET needs zig, and none is on PATH; pip install ziglang, or let ZIG name it."
        )
    return f"{sys.executable} -m ziglang"
