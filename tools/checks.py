"""What `make check` looks at, beyond the tests themselves.

Each check is a function without arguments that returns whether it passed; it
prints what its program prints.  All of them run, whatever the earlier ones
found; `make check CHECKS='ruff mypy'` runs some.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aarch64
import docs
import environments
import sanitizers
import wheels
from environments import BUILD, ROOT, Environment, Failed, Skipped, say

# Runs without installing; its modules are pinned by this version's own go.mod.
STATICCHECK = "honnef.co/go/tools/cmd/staticcheck@v0.7.0"
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.9"

# Of a C function: lizard accepts as many.
MOST_PARAMETERS = 7

# What mypy reads: the package, and every program of the tree.
TYPED = ["goloop", "pytest_goloop", "build_backend", "tools", "examples"]


def tooling() -> Environment:
    """The default Python's environment with the tests' packages and the linters."""
    return environments.environment(environments.default_interpreter(), "test", "lint")


def built() -> Environment:
    """The same, with goloop in it."""
    made = tooling()
    environments.install_editable(made)
    return made


def _passes(*command: str | Path, env: dict[str, str] | None = None) -> bool:
    return environments.passes(command, env=tooling().variables() if env is None else env)


# ---- Python -------------------------------------------------------------------


def ruff() -> bool:
    """No finding in any Python file, and each as the formatter has it."""
    python = tooling().python
    checked = _passes(python, "-m", "ruff", "check", ".")
    return _passes(python, "-m", "ruff", "format", "--check", ".") and checked


def mypy() -> bool:
    """Strict types in the package and the tools."""
    present = [name for name in TYPED if (ROOT / name).exists()]
    return _passes(tooling().python, "-m", "mypy", "--strict", *present)


def groups() -> bool:
    """uv finds packages for all dependency groups together, on every Python from 3.11 on."""
    python = environments.default_interpreter().program
    options = ["--dry-run", "--quiet", "--no-python-downloads", "--python", python]
    return _passes(tooling().python, "-m", "uv", "lock", *options)


def stubtest() -> bool:
    """The stubs say what the built extension has; mypy reads all other modules themselves."""
    # disjoint_base (PEP 800) needs a package beyond the standard library before 3.15.
    options = ["--ignore-disjoint-bases"]
    command = [str(built().python), "-m", "mypy.stubtest", "goloop._core", *options]
    allowlist = ROOT / "tests" / "project" / "stubtest_allowlist.txt"
    if allowlist.exists():
        command += ["--allowlist", str(allowlist)]
    return _passes(*command)


# ---- Go -----------------------------------------------------------------------


def gofmt() -> bool:
    """Every Go file is formatted."""
    files = [str(path.relative_to(ROOT)) for path in _sources(".go")]
    done = subprocess.run(
        ["gofmt", "-l", *files],
        cwd=ROOT,
        env=environments.go_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.stdout:
        print("not formatted by gofmt:\n" + done.stdout, flush=True)
    return done.returncode == 0 and not done.stdout


def vet() -> bool:
    """go vet, cgo's rules included."""
    return _passes("go", "vet", "./...", env=environments.go_environment())


def vet_darwin() -> bool:
    """The rooms without cgo compile for the kqueue poller too."""
    env = {**environments.go_environment(), "GOOS": "darwin", "CGO_ENABLED": "0"}
    return _passes("go", "vet", "./...", env=env)


def kqueue() -> bool:
    """The kqueue poller passes the reactor's tests on Linux, by way of libkqueue."""
    asked = ["pkg-config", "--atleast-version=2.7", "libkqueue"]
    if shutil.which(asked[0]) is None or subprocess.run(asked, check=False).returncode:
        raise Skipped("there is no libkqueue 2.7: github.com/mheily/libkqueue")
    flags = ["-tags", "libkqueue"]
    env = environments.go_environment()
    return _passes("go", "vet", *flags, "./netloop", env=env) and _passes(
        "go", "test", *flags, "./netloop", env=env
    )


def staticcheck() -> bool:
    """staticcheck's default checks."""
    env = {**environments.go_environment(), "GOFLAGS": "-mod=mod"}
    return _passes("go", "run", STATICCHECK, "./...", env=env)


def workflows() -> bool:
    """actionlint on .github/workflows, where the tree has them: a source distribution does not."""
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    env = {**environments.go_environment(), "GOFLAGS": "-mod=mod"}
    return not files or _passes("go", "run", ACTIONLINT, *files, env=env)


def race() -> bool:
    """Go's tests under the race detector."""
    return _passes("go", "test", "-race", "./...", env=environments.go_environment())


# ---- C ------------------------------------------------------------------------


def lint_c() -> bool:
    """No misuse of Python's C API, and no dense C in the rooms that are clean."""
    rooms = ["pybridge/core", "pybridge/golib"]
    commands = [["lint_c.py", *rooms], ["lint_flow.py", *rooms], ["lint_style.py"]]
    python = tooling().python
    passed = [_passes(python, f"tools/{name}", *paths) for name, *paths in commands]
    return all(passed)


def clang_format() -> bool:
    """Every C file of pybridge is formatted as .clang-format says."""
    files = [*_sources(".c"), *_sources(".h")]
    names = sorted(str(path.relative_to(ROOT)) for path in files)
    options = ["--dry-run", "--Werror", "--ferror-limit=20"]
    ours = [name for name in names if name.startswith("pybridge/")]
    return _passes(tooling().home / "bin" / "clang-format", *options, *ours)


def rooms() -> bool:
    """The extension's rooms keep to their doors, their names and their sizes."""
    return _passes(tooling().python, "tools/lint_rooms.py", "pybridge")


def sizes() -> bool:
    """lizard's limits: lines of a C function, and its parameters."""
    limits = ["--length=60", f"--arguments={MOST_PARAMETERS}", "--CCN=1000", "--warnings_only"]
    limits += ["--languages=c", "--exclude=*/testdata/*"]
    return _passes(tooling().python, "-m", "lizard", *limits, "pybridge")


def units() -> bool:
    """Each file of the extension compiles alone, for the newest and no GIL too, and all link."""
    units: list[str | Path] = [tooling().python, "tools/units.py"]
    question = "import sysconfig; print(sysconfig.get_paths()['include'])"
    passed = _passes(*units)
    found = environments.all_interpreters()
    others = [each for each in found if each.free_threaded][-1:] + found[-1:]
    for base in others:
        if base != environments.default_interpreter():
            include = subprocess.check_output([base.program, "-c", question], text=True).strip()
            passed = _passes(*units, "pybridge/core", include) and passed
    return passed


# Tests that do not run the extension's code, or mind what AddressSanitizer does to
# a process.
NOT_SANITIZED = [
    "conformance",  # a process for each of CPython's tests: half an hour
    "loop/test_limits.py",  # of address space, of which AddressSanitizer takes terabytes
    "leaks",  # one round each of what other folders run many times
    "native",  # a C library of its own; forks behind the allocator's back
    "observability/test_alerts.py",  # Python that shows the figures
    "observability/test_export.py",  # likewise
    "observability/test_otel.py",  # likewise
    "observability/test_prometheus.py",  # likewise
    "observability/test_top.py",  # a program that draws what a socket answers, in Python
    "project",  # pages, tools, builds, and programs that end at once
    "real_programs",  # others' programs, for minutes; what they call is tested elsewhere
    "simulation/corpus",  # Python, of which simulation/explored runs more
    "simulation/test_*.py",  # likewise
    "tls/test_tls_stdlib.py",  # TLS without the extension's calls of OpenSSL
    "watch/test_signal_stack.py",  # AddressSanitizer gives threads signal stacks of its own
]


# AddressSanitizer's allocator does not survive every fork: where a thread that Go has just
# started holds one of its locks, the child waits for ever.  `forks` has 1000 without it.
# Under ThreadSanitizer, too, forked children of threaded programs hang.
NOT_FORKING = ["-k", "not fork"]


def asan() -> bool:
    """The Python tests on an extension built with AddressSanitizer and warnings as errors."""
    made = sanitizers.sanitized(environments.default_interpreter(), "address")
    env = made.variables(
        # The interpreter itself is not instrumented, so the runtime has to be there first.
        LD_PRELOAD=sanitizers.library("asan"),
        # CPython keeps much until the process ends, which is no leak to report here.
        # Go catches SIGSEGV itself and hands on what is not its own.
        # The interpreter's own look at freed memory is seen by what fills it.
        ASAN_OPTIONS="detect_leaks=0:allow_user_segv_handler=1:handle_segv=0"
        ":max_free_fill_size=4096:free_fill_byte=221",
        # Python's own allocator would hide the bounds of small objects.
        PYTHONMALLOC="malloc",
        GOLOOP_SANITIZE="address",
        # On asyncio's loop the tests run nothing of the extension.
        GOLOOP_TEST_LOOP="goloop",
    )
    tests = [*environments.workers(), *NOT_FORKING]
    tests += [f"--ignore-glob=tests/{name}" for name in NOT_SANITIZED]
    return environments.pytest_passes(made, tests, env=env, cwd=BUILD / "asan")


def tsan() -> bool:
    """Tests of several loops in threads without the GIL, under ThreadSanitizer."""
    base = environments.free_threaded_interpreter()
    sanitizers.check_thread_sanitizer(base)
    made = sanitizers.sanitized(base, "thread")
    reports = BUILD / "tsan-reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    seconds = os.environ.get("GOLOOP_TEST_LOOPS_SECONDS", "20")
    env = made.test_variables(
        **sanitizers.thread_sanitizer(reports),
        GOLOOP_SANITIZE="thread",
        GOLOOP_TEST_LOOP="goloop",
        GOLOOP_TEST_LOOPS_SECONDS=seconds,
    )
    tests = ["tests/threads", *environments.workers(), *NOT_FORKING]
    passed = environments.pytest_passes(
        made, tests, env=env, cwd=BUILD / "tsan", hopeless=lambda: sanitizers.races(reports)
    )
    races = sanitizers.races(reports)
    for race in races:
        print(race.text, flush=True)
    if races:
        say(f"races, and how often each was seen; {reports.relative_to(ROOT)} has all of them:")
    for race in races:
        print(f"{race.seen:6}  {race.places}", flush=True)
    return passed and not races


def forks() -> bool:
    """1000 forked children, each with a Go runtime of its own that has to live."""
    made = built()
    env = made.variables(GOLOOP_TEST_FORKS=os.environ.get("GOLOOP_TEST_FORKS", "1000"))
    tests = ["tests/runtime/test_fork.py", "-k", "stress"]
    return _passes(made.python, "-m", "pytest", "-q", *tests, env=env)


def release() -> bool:
    """Wheels and the source distribution: built twice, the same; they install and run."""
    return wheels.check()


def leaks() -> bool:
    """Memory, objects and file descriptors stay level over many rounds; also in debug mode."""
    made = built()
    pytest = ["-m", "pytest", "-q", "--durations=0", "--durations-min=5", "tests/leaks"]
    # Go usually collects a heap of 4 MiB first: garbage of thousands of rounds would look like
    # a leak.  GOLOOP_GOGC=1 makes it collect all the time.
    env = made.variables(GOLOOP_GOGC="1", GOLOOP_TEST_LOOP="goloop", GOLOOP_TEST_LEAK_ROUNDS="2000")
    level = _passes(made.python, *pytest, env=env)
    env |= {"PYTHONASYNCIODEBUG": "1", "GOLOOP_TEST_LEAK_ROUNDS": "1000"}
    return _passes(made.python, *pytest, env=env) and level


# ---- the tree -------------------------------------------------------------------


def prose() -> bool:
    """No comment without a noun, and no word that the lint lists, in the paths that are clean."""
    return _passes(tooling().python, "tools/lint_prose.py")


def _sources(suffix: str) -> list[Path]:
    return [path for path in environments.tree() if path.suffix == suffix]


FAILED = "FAILED"
CHECKS: dict[str, Callable[[], bool]] = {
    "ruff": ruff,
    "mypy": mypy,
    "groups": groups,
    "stubtest": stubtest,
    "gofmt": gofmt,
    "vet": vet,
    "vet-darwin": vet_darwin,
    "kqueue": kqueue,
    "staticcheck": staticcheck,
    "workflows": workflows,
    "docs": docs.check,
    "prose": prose,
    "race": race,
    "clang-format": clang_format,
    "lint-c": lint_c,
    "rooms": rooms,
    "sizes": sizes,
    "units": units,
    "asan": asan,
    "tsan": tsan,
    "leaks": leaks,
    "forks": forks,
    "wheels": release,
    "aarch64": aarch64.check,
}


# The longest, which begin first.
LONGEST = ("asan", "aarch64", "tsan", "wheels", "docs", "leaks", "forks", "race", "staticcheck")


def check() -> bool:
    """Runs the checks that CHECKS names, or all, two at a time; prints a line for each at the end.

    Most of them keep one processor busy.  One alone shows what its programs print as they run.
    """
    names = os.environ.get("CHECKS", "").split() or list(CHECKS)
    for name in names:
        if name not in CHECKS:
            raise Failed(f"there is no check {name!r}; there are: {' '.join(CHECKS)}")
    order = [name for name in LONGEST if name in names]
    order += [name for name in names if name not in order]
    if len(order) == 1:
        outcome = {order[0]: _outcome(order[0])}
    else:
        with ThreadPoolExecutor(2) as pool:
            outcome = dict(zip(order, pool.map(_outcome, order), strict=True))
    for name in names:
        say(f"{name}: {outcome[name]}")
    return not any(what.startswith(FAILED) for what in outcome.values())


def _outcome(name: str) -> str:
    say(f"check {name}: {(CHECKS[name].__doc__ or '').splitlines()[0]}")
    began = time.monotonic()
    try:
        what = "passed" if CHECKS[name]() else FAILED
    except Failed as reason:
        say(str(reason))
        what = FAILED
    except Skipped as reason:
        what = f"skipped: {reason}"
    return f"{what} ({time.monotonic() - began:.0f} s)"
