"""The target of a release: an old glibc, and possibly another machine.

GOLOOP_TARGET=x86_64-linux-gnu.2.17 in the environment selects the target, by zig's name
for it.  zig contains the headers and the symbol versions of every glibc.  The program is
the command in ZIG, `zig` on PATH, or the PyPI package `ziglang`.  Without GOLOOP_TARGET a
build is for the machine and the glibc that it runs on.

For a release this module fixes flags, link options and names; none comes from the
interpreter's own build.  So two builds in different folders have the same bytes.
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

# Names of the machines: zig's, which wheels use too, and Go's.
GO_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Target(NamedTuple):
    """A machine, and the oldest glibc that the build supports."""

    machine: str
    glibc: tuple[int, int]

    @property
    def name(self) -> str:
        """The name for zig and GOLOOP_TARGET."""
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
        """Returns EXT_SUFFIX of this interpreter's version on the target machine."""
        here = str(sysconfig.get_config_var("EXT_SUFFIX"))
        return re.sub(r"-[^-]+-linux-gnu\.so$", f"-{self.machine}-linux-gnu.so", here)

    def compiler(self) -> str:
        """Returns the command line of a C compiler for the target."""
        return f"{zig()} cc -target {self.name}"

    def compile_flags(self) -> list[str]:
        """Returns the flags that replace the interpreter's own; they come first."""
        return [
            "-fPIC",
            "-DNDEBUG",
            "-fwrapv",
            "-g0",
            # zig enables this sanitizer by default, even in optimised builds.
            "-fno-sanitize=undefined",
            f"-ffile-prefix-map={os.getcwd()}=.",
        ]

    def headers(self, folder: str) -> list[str]:
        """Returns include folders for CPython's headers that depend on the machine.

        Debian's pyconfig.h includes a file below the name of the machine, where only a
        compiler for that machine searches.  The method copies it into `folder`.
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
    """Returns the target that GOLOOP_TARGET names, None without it; Unbuildable if invalid."""
    wanted = os.environ.get("GOLOOP_TARGET")
    if not wanted:
        return None
    found = re.fullmatch(r"(\w+)-linux-gnu\.(\d+)\.(\d+)", wanted)
    if found is None or found[1] not in GO_ARCHITECTURES:
        machines = " or ".join(GO_ARCHITECTURES)
        raise Unbuildable(
            f"GOLOOP_TARGET must have the form MACHINE-linux-gnu.2.17 with {machines} for "
            f"MACHINE, got {wanted!r}."
        )
    return Target(found[1], (int(found[2]), int(found[3])))


def zig() -> str:
    """Returns the command line of zig; raises Unbuildable if there is none."""
    chosen = os.environ.get("ZIG") or shutil.which("zig")
    if chosen:
        return chosen
    if importlib.util.find_spec("ziglang") is None:
        raise Unbuildable(
            "GOLOOP_TARGET needs zig, and none is on PATH; pip install ziglang, or set ZIG to it."
        )
    return f"{sys.executable} -m ziglang"
