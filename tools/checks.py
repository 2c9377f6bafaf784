"""The checks of `make check`: linters, types, sanitizers, leaks, the release, aarch64.

Each check is a function without arguments that returns true if it passed.  The
output of its programs passes through.  A failed check does not stop the others;
`make check CHECKS='ruff mypy'` runs a selection.
"""

from __future__ import annotations

import os
import shutil
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

# `go run` starts these without an installation; their go.mod pins the dependencies.
STATICCHECK = "honnef.co/go/tools/cmd/staticcheck@v0.7.0"
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.9"

# Folders for mypy: the package, and every program of the tree.
TYPED = ["goloop", "pytest_goloop", "build_backend", "tools", "examples"]


def tooling() -> Environment:
    """Returns the default Python's environment with the packages of tests and linters."""
    return environments.environment(environments.default_interpreter(), "test", "lint")


def built() -> Environment:
    """Returns the environment of `tooling` with goloop installed."""
    return environments.built(environments.default_interpreter(), "test", "lint")


def _passes(*command: str | Path, env: dict[str, str] | None = None) -> bool:
    return environments.passes(command, env=tooling().variables() if env is None else env)


# ---- Python -------------------------------------------------------------------


def ruff() -> bool:
    """ruff's rules, and the format of every Python file."""
    python = tooling().python
    checked = _passes(python, "-m", "ruff", "check", ".")
    return _passes(python, "-m", "ruff", "format", "--check", ".") and checked


def format_sources() -> None:
    """Formats all Python, C and Go files."""
    tools = tooling()
    environments.run([tools.python, "-m", "ruff", "format", "."], env=tools.variables())
    clang_format_program = tools.home / "bin" / "clang-format"
    environments.run([clang_format_program, "-i", *_c_sources()], quiet=True)
    environments.run(
        ["gofmt", "-w", *_sources(".go")], env=environments.go_environment(), quiet=True
    )


def mypy() -> bool:
    """Strict type checks of the package and the tools."""
    present = [name for name in TYPED if (ROOT / name).exists()]
    return _passes(tooling().python, "-m", "mypy", "--strict", *present)


def groups() -> bool:
    """A resolution of all dependency groups together exists for every Python from 3.11 on."""
    python = environments.default_interpreter().program
    options = ["--dry-run", "--quiet", "--no-python-downloads", "--python", python]
    return _passes(tooling().python, "-m", "uv", "lock", *options)


def stubtest() -> bool:
    """The stubs agree with the built extension; mypy reads the sources of all other modules."""
    # disjoint_base (PEP 800) needs a package beyond the standard library before 3.15.
    options = ["--ignore-disjoint-bases"]
    command = [str(built().python), "-m", "mypy.stubtest", "goloop._core", *options]
    command += ["--allowlist", "tests/project/stubtest_allowlist.txt"]
    return _passes(*command)


# ---- Go -----------------------------------------------------------------------


def gofmt() -> bool:
    """The format of every Go file."""
    files = [str(path.relative_to(ROOT)) for path in _sources(".go")]
    found = environments.output(["gofmt", "-l", *files], env=environments.go_environment())
    if found:
        print(f"not formatted by gofmt:\n{found}", flush=True)
    return not found


def vet() -> bool:
    """go vet, with the rules for cgo."""
    return _passes("go", "vet", "./...", env=environments.go_environment())


def vet_darwin() -> bool:
    """The Go packages without cgo also compile with the kqueue poller."""
    env = {**environments.go_environment(), "GOOS": "darwin", "CGO_ENABLED": "0"}
    return _passes("go", "vet", "./...", env=env)


def kqueue() -> bool:
    """The kqueue poller passes the reactor's tests on Linux, with libkqueue."""
    asked = ["pkg-config", "--atleast-version=2.7", "libkqueue"]
    if environments.failure(asked) is not None:
        raise Skipped("libkqueue 2.7 is not installed: github.com/mheily/libkqueue")
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
    """actionlint on .github/workflows, which a source distribution does not contain."""
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    env = {**environments.go_environment(), "GOFLAGS": "-mod=mod"}
    return not files or _passes("go", "run", ACTIONLINT, *files, env=env)


def race() -> bool:
    """The Go tests under the race detector."""
    return _passes("go", "test", "-race", "./...", env=environments.go_environment())


# ---- C ------------------------------------------------------------------------


def lint_c() -> bool:
    """Misuse of Python's C API, and dense C in pybridge."""
    names = ["lint_c.py", "lint_flow.py", "lint_style.py"]
    passed = [_passes(tooling().python, f"tools/{name}") for name in names]
    return all(passed)


def clang_format() -> bool:
    """The format of every C file of pybridge, by .clang-format."""
    options = ["--dry-run", "--Werror", "--ferror-limit=20"]
    return _passes(tooling().home / "bin" / "clang-format", *options, *_c_sources())


def _c_sources() -> list[str]:
    files = [*_sources(".c"), *_sources(".h")]
    names = sorted(str(path.relative_to(ROOT)) for path in files)
    return [name for name in names if name.startswith("pybridge/")]


def rooms() -> bool:
    """Includes between the extension's rooms, and the sizes of files."""
    return _passes(tooling().python, "tools/lint_rooms.py", "pybridge")


def sizes() -> bool:
    """Limits for the lines and the parameters of a C function, by lizard."""
    limits = ["--length=60", "--arguments=6", "--CCN=1000", "--warnings_only"]
    limits += ["--languages=c", "--exclude=*/testdata/*"]
    return _passes(tooling().python, "-m", "lizard", *limits, "pybridge")


def units() -> bool:
    """Each C file compiles alone and all link, also for the newest Python and without a GIL."""
    units: list[str | Path] = [tooling().python, "tools/units.py"]
    question = "import sysconfig; print(sysconfig.get_paths()['include'])"
    passed = _passes(*units)
    found = environments.all_interpreters()
    others = [each for each in found if each.free_threaded][-1:] + found[-1:]
    for base in others:
        if base != environments.default_interpreter():
            include = environments.output([base.program, "-c", question]).strip()
            passed = _passes(*units, "pybridge/core", include) and passed
    return passed


# Tests that do not run the extension's code, or that do not work in a process with
# AddressSanitizer.
NOT_SANITIZED = [
    "conformance",  # a process for each of CPython's tests: half an hour
    "loop/test_limits.py",  # limits of address space, of which AddressSanitizer maps terabytes
    "leaks",  # a single round of operations that other folders test
    "native",  # another C library, which forks without the allocator's handlers
    "observe/test_alerts.py",  # exporters in Python
    "observe/test_export.py",  # exporters in Python
    "observe/test_otel.py",  # exporters in Python
    "observe/test_prometheus.py",  # exporters in Python
    "observe/test_top.py",  # a client in Python, for a socket
    "project",  # pages, tools, builds, and short programs
    "real_programs",  # programs that run for minutes; the functions they call are tested elsewhere
    "simulation/corpus",  # Python; simulation/explored runs more of it
    "simulation/test_*.py",  # Python; simulation/explored runs more of it
    "tls/test_tls_stdlib.py",  # TLS without the extension's calls of OpenSSL
    "watch/test_signal_stack.py",  # AddressSanitizer gives threads signal stacks of its own
]


# AddressSanitizer's allocator does not survive every fork: if a thread that Go has just started
# owns one of its locks, the child blocks forever.  The check `forks` forks 1000 times without it.
# Forked children of threaded programs hang under ThreadSanitizer, too.
NOT_FORKING = ["-k", "not fork"]


def asan() -> bool:
    """The Python tests on an extension built with AddressSanitizer and warnings as errors."""
    made = sanitizers.sanitized(environments.default_interpreter(), "address")
    env = made.variables(
        # The interpreter is not instrumented, so the runtime must be loaded before it.
        LD_PRELOAD=sanitizers.library("asan"),
        # detect_leaks: CPython frees much memory only at the end of the process.
        # handle_segv: Go handles SIGSEGV, and forwards signals that are not Go's.
        # max_free_fill_size: the interpreter, which is not instrumented, then fails visibly if it
        # reads freed memory.
        ASAN_OPTIONS="detect_leaks=0:allow_user_segv_handler=1:handle_segv=0"
        ":max_free_fill_size=4096:free_fill_byte=221",
        # Python's own allocator would hide the bounds of small objects.
        PYTHONMALLOC="malloc",
        GOLOOP_SANITIZE="address",
        # With asyncio's loop the tests would not run the extension.
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
    """1000 forked children, each of which starts its own Go runtime."""
    made = built()
    env = made.variables(GOLOOP_TEST_FORKS=os.environ.get("GOLOOP_TEST_FORKS", "1000"))
    tests = ["tests/runtime/test_fork.py", "-k", "stress"]
    return _passes(made.python, "-m", "pytest", "-q", *tests, env=env)


def release() -> bool:
    """Wheels and the source distribution are reproducible, install and run."""
    return wheels.check()


def leaks() -> bool:
    """Memory, objects and file descriptors do not grow over many rounds, also in debug mode."""
    made = built()
    pytest = ["-m", "pytest", "-q", "--durations=0", "--durations-min=5"]
    pytest += ["tests/leaks", "-k", "leaks_nothing"]
    # Go starts its first collection at a heap of 4 MiB, so garbage of thousands of rounds would
    # look like a leak.  With GOLOOP_GOGC=1 it collects continually.
    env = made.variables(GOLOOP_GOGC="1", GOLOOP_TEST_LOOP="goloop", GOLOOP_TEST_LEAK_ROUNDS="2000")
    level = _passes(made.python, *pytest, env=env)
    env |= {"PYTHONASYNCIODEBUG": "1", "GOLOOP_TEST_LEAK_ROUNDS": "1000"}
    return _passes(made.python, *pytest, env=env) and level


# ---- the tree -------------------------------------------------------------------


def prose() -> bool:
    """Openings of comments, and listed words, in code and pages."""
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


# The longest checks, which start first.
LONGEST = ("asan", "aarch64", "tsan", "wheels", "docs", "leaks", "forks", "race", "staticcheck")


def check() -> bool:
    """Runs the checks in CHECKS, or all, two at a time; prints a line for each at the end.

    Most checks use one processor.  The output of a single check is not buffered.
    """
    names = os.environ.get("CHECKS", "").split() or list(CHECKS)
    for name in names:
        if name not in CHECKS:
            raise Failed(f"CHECKS must name checks out of: {' '.join(CHECKS)}; got {name!r}")
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
