"""The Makefile's targets: `python tools/dev.py TARGET`.

The interpreter that runs this program is the default Python of the target.
Every target creates the environments it needs, so a fresh checkout on a machine
with Python, a C compiler and make is enough.  The exit status is 0 only if
every step succeeded.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import checks
import docs
import environments
import release
import wheels
from demo import demo as show
from environments import BUILD, ROOT, Environment, Failed, Interpreter, run, say

# ---- targets ------------------------------------------------------------------


def build() -> None:
    """Builds goloop in the default Python's environment."""
    made = environments.built(environments.default_interpreter(), "test")
    say(f"goloop is built and installed for {made.home.name}/bin/python")


# Kinds of tests, and where each runs; tests/README.md has the table.  All tests without another
# kind are "behaviour", which runs in all columns except "default".
#
# The tests run on goloop's loop.  On the newest Python every third test runs on asyncio's loop too,
# which proves the tests' expectations.  "newest" is the newest Python with a GIL.  Kinds without a
# cross at "no GIL" have one thread, or depend little on the extension: the free-threaded Python is
# the slowest, and its time is for behaviour, servers and storms.  `make check` runs behaviour,
# storms and long tests under AddressSanitizer if they call the extension.
@dataclass(frozen=True)
class Kind:
    """Tests that run in the same columns of the table."""

    where: frozenset[str]
    paths: tuple[str, ...]


def kind(*where: str, paths: Sequence[str]) -> Kind:
    """Returns the kind with these crosses in the table, and these paths below tests/."""
    return Kind(frozenset(where), tuple(f"tests/{path}" for path in paths))


KINDS = {
    # Simulations: each has one thread, and runs the extension of its Python version.
    "simulations": kind(
        *("test", "newest", "others"),
        paths=[
            "simulation/explored",
            "simulation/test_busy.py",
            "simulation/test_failures.py",
            "simulation/test_network.py",
        ],
    ),
    # Tests that depend little on the interpreter: exporters, simulations, and one round of leaks/.
    "python": kind(
        *("test", "newest"),
        paths=[
            "leaks",
            "observe/test_alerts.py",
            "observe/test_export.py",
            "observe/test_otel.py",
            "observe/test_prometheus.py",
            "observe/test_systemd.py",
            "simulation/test_child_programs.py",
            "simulation/test_faults.py",
            "simulation/test_hosts.py",
            "simulation/test_jobs.py",
            "simulation/test_network_families.py",
            "simulation/test_pictures.py",
            "simulation/test_policies.py",
            "simulation/test_programs_inside.py",
            "simulation/test_simulate.py",
            "simulation/test_testing.py",
        ],
    ),
    # Commands of the command line: each test starts many processes.
    "commands": kind(
        *("test", "newest"),
        paths=[
            "observe/test_top.py",
            "project/test_command_line.py",
            "project/test_compare.py",
            "project/test_compare_runs.py",
            "project/test_compare_starts.py",
            "project/test_doctor.py",
            "project/test_documented_commands.py",
        ],
    ),
    # Programs of other projects, with the packages that they need.
    "programs": kind("default", "no GIL", paths=["real_programs"]),
    # Tools of developers, and programs in simulations.
    "developers": kind(
        "default",
        paths=[
            "real_programs/test_culprits.py",
            "real_programs/test_debugpy.py",
            "real_programs/test_jupyter.py",
            "real_programs/test_nest_asyncio.py",
            "real_programs/test_pytest_plugins.py",
            "real_programs/test_simulated_hours.py",
            "real_programs/test_simulated_programs.py",
            "real_programs/test_stdio_servers.py",
            "real_programs/test_switching.py",
            "real_programs/test_tools.py",
            "real_programs/test_tracing.py",
        ],
    ),
    # Tools, pages, benchmarks, the build and freezers: the same on every Python.
    "tree": kind(
        "default",
        paths=[
            "project/test_benchmarks.py",
            "project/test_docs.py",
            "project/test_figures.py",
            "project/test_first_steps.py",
            "project/test_front_page.py",
            "project/test_go_mirror.py",
            "project/test_internals.py",
            "project/test_kinds.py",
            "project/test_limits.py",
            "project/test_lints.py",
            "project/test_marks.py",
            "project/test_packaging.py",
            "project/test_settings.py",
            "project/test_signs.py",
            "project/test_site.py",
            "project/test_suites.py",
            "real_programs/test_freezers.py",
            "real_programs/test_pyinstaller.py",
        ],
    ),
    # Fuzzers and storms of minutes.
    "storms": kind(
        *("newest", "no GIL"),
        paths=["fuzz", "native", "threads/test_loops_storm.py", "threads/test_misuse.py"],
    ),
    # Long tests that do not depend on the GIL, and tests that start a pytest of their own.
    "long": kind(
        "newest",
        paths=[
            "project/test_pytest_loop_option.py",
            "simulation/corpus",
            "simulation/test_hypothesis.py",
            "simulation/test_oracle.py",
            "simulation/test_plugin.py",
            "tls/test_tls_stdlib.py",
            "tls/test_tls_torture.py",
            "transports/test_bulk_transfer.py",
            "what_works/test_other_loops.py",
        ],
    ),
}
# Tests of other kinds that skip without the packages and programs of the kind "programs": they run
# again together with that kind.
WITH_PROGRAMS = [
    "tests/loop/test_guest_windows.py",
    "tests/observe/test_alerts.py",
    "tests/observe/test_prometheus.py",
    "tests/project/test_deployment_page.py",
    "tests/what_works/test_other_loops.py",
]


def chosen(*columns: str) -> list[str]:
    """Returns pytest's arguments for the tests with a cross in any of these columns."""
    kinds = {name: bool(each.where.intersection(columns)) for name, each in KINDS.items()}
    if columns == ("default",):  # the column without behaviour, which `make test` runs
        paths = [path for name, runs in kinds.items() if runs for path in KINDS[name].paths]
        return [*paths, *WITH_PROGRAMS]
    return [
        f"--ignore={path}" for name, runs in kinds.items() if not runs for path in KINDS[name].paths
    ]


def test() -> None:
    """Runs the Go tests, and the column "test" on the default Python and goloop's loop."""
    made = environments.built(environments.default_interpreter(), "test")
    outcome = [go_tests(), python_tests(made, "test")]
    conclude("test", all(outcome))


def test_all() -> None:
    """Runs the Python tests on every interpreter from 3.11, JOBS at a time: see KINDS.

    JOBS is 2 by default, because the processors are idle for a part of each interpreter's time:
    while its environment is made, and during its last tests.  EXCEPT=test omits the column "test".
    """
    found = environments.all_interpreters()
    default = environments.default_interpreter().tag
    columns: dict[str, list[str]] = {}
    for base in found:
        names = ["no GIL"] if base.free_threaded else []
        names += ["newest"] if base is found[-1] else []
        if base.tag == default:
            names += ["default"] if os.environ.get("EXCEPT") == "test" else ["test", "default"]
        columns[base.tag] = names or ["others"]
    # Interpreters with most tests first.
    found.sort(key=lambda base: columns[base.tag] == ["others"])
    say("interpreters: " + ", ".join(f"{each.tag} ({each.program})" for each in found))
    jobs = int(os.environ.get("JOBS") or 2)
    if jobs > 1:
        os.environ.setdefault("WORKERS", str((os.cpu_count() or 1) + 1))
    with ThreadPoolExecutor(jobs) as pool:
        each_one = pool.map if jobs > 1 else map  # alone, an interpreter's output passes through
        outcome = list(each_one(lambda base: _test_one(base, columns[base.tag]), found))
    for base, passed in zip(found, outcome, strict=True):
        say(f"Python {base.tag}: {'passed' if passed else 'FAILED'}")
    conclude("test-all", all(outcome))


def _test_one(base: Interpreter, columns: Sequence[str]) -> bool:
    try:
        made = environments.built(base, "test")
        if KINDS["programs"].where.intersection(columns):
            environments.install_real_programs(made)
        return python_tests(made, *columns)
    except Failed as reason:
        say(f"Python {base.tag}: {reason}")
        return False


def go_tests() -> bool:
    """Runs `go test` on every Go package; returns true if all passed."""
    say("go test ./... (the first time it compiles for a minute)")
    go = environments.go_environment()
    return environments.passes(["go", "test", "./..."], env=go, silent=True)


def python_tests(made: Environment, *columns: str) -> bool:
    """Runs pytest on the tests of some columns, with PYTEST_ARGS; returns true if all passed."""
    say(f"pytest on Python {made.interpreter.tag}")
    words = os.environ.get("PYTEST_ARGS", "").split()
    asked = ["--durations=10", *environments.workers(), *words]
    if not any(word.startswith("tests") for word in words):  # PYTEST_ARGS names no files
        asked += chosen(*columns)
    loop = os.environ.get("GOLOOP_TEST_LOOP") or ("both" if "newest" in columns else "goloop")
    part = os.environ.get("GOLOOP_TEST_PART", "1")
    env = made.test_variables(GOLOOP_TEST_LOOP=loop, GOLOOP_TEST_PART=part)
    return environments.pytest_passes(made, asked, env=env)


def conclude(target: str, passed: bool) -> None:
    """Prints the last line of a target; raises Failed unless it passed."""
    say(f"{target}: {'passed' if passed else 'FAILED'}")
    if not passed:
        raise Failed(target)


def check() -> None:
    """Runs the checks of checks.py."""
    conclude("check", checks.check())


def demo() -> None:
    """Runs the examples on goloop, and a short comparison with other loops."""
    show(environments.built(environments.default_interpreter(), "demo"))


# The interpreters of the measurements in docs/performance.md.
BENCHED = ("3.13", "3.14")


def bench() -> None:
    """Compares goloop with the other loops; writes docs/performance.md.

    BENCH_ARGS, if set, is the command line of a single run of the benchmarks on
    the default Python, which does not change the document.
    """
    arguments = os.environ.get("BENCH_ARGS", "").split()
    bases = [environments.default_interpreter()]
    if not arguments:
        bases = [each for each in environments.all_interpreters() if each.tag in BENCHED] or bases
    made = []
    for base in bases:
        made.append(environments.built(base, "bench"))
        environments.install_peers(made[-1])
    if not arguments:
        arguments = ["run", *(f"--python={each.python}" for each in made)]
    run([made[0].python, "-m", "benchmarks", *arguments], env=made[0].variables())
    if not os.environ.get("BENCH_ARGS"):
        run([made[0].python, "-m", "benchmarks", "report"], env=made[0].variables())


def explore() -> None:
    """Runs random programs of SEEDS seeds on both loops; counts the seeds that find known bugs."""
    made = environments.built(environments.default_interpreter(), "test")
    seeds, jobs = os.environ.get("SEEDS", "1000"), os.environ.get("JOBS", str(os.cpu_count()))
    programs = ROOT / "tests" / "simulation"
    exploring = programs / "explored" / "exploring.py"
    run([made.python, exploring, "--count", seeds, "--jobs", jobs], env=made.variables())
    run([made.python, programs / "corpus" / "explore.py", seeds], env=made.variables())


def wheel() -> None:
    """Builds the wheel for the default Python in dist/, isolated as pip does."""
    made = environments.environment(environments.default_interpreter())
    pip = ["-m", "pip", "wheel", "-q", "--no-deps"]
    run([made.python, *pip, "-w", ROOT / "dist", ROOT], env=made.variables())
    newest = max((ROOT / "dist").glob("*.whl"), key=lambda path: path.stat().st_mtime)
    say(f"dist/{newest.name}")


def sdist() -> None:
    """Builds the source distribution in dist/."""
    made = wheels.build_sdist(BUILD / "release" / "checkout", ROOT / "dist")
    say(f"dist/{made.name}")


def clean() -> None:
    """Removes all files that other targets have created."""
    for path in [BUILD, ROOT / "dist", *ROOT.glob(".venv*"), *ROOT.glob("*.egg-info")]:
        shutil.rmtree(path, ignore_errors=True)
    for name in (".pytest_cache", ".mypy_cache", ".ruff_cache"):
        shutil.rmtree(ROOT / name, ignore_errors=True)
    for pattern in ("goloop/**/*.so", "goloop/**/*.so.*", "goloop/**/*.new"):
        for path in ROOT.glob(pattern):
            path.unlink(missing_ok=True)


TARGETS: dict[str, Callable[[], None]] = {
    "build": build,
    "demo": demo,
    "bench": bench,
    "explore": explore,
    "test": test,
    "test-all": test_all,
    "check": check,
    "format": checks.format_sources,
    "docs": docs.build,
    "docs-serve": docs.serve,
    "wheel": wheel,
    "release": release.release,
    "sdist": sdist,
    "clean": clean,
}


def main() -> int:
    """Runs the target of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("target", choices=TARGETS)
    target = parser.parse_args().target
    os.chdir(ROOT)
    try:
        TARGETS[target]()
    except Failed as reason:
        print(f"{target}: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
