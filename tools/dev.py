"""What the Makefile's targets do: `python tools/dev.py TARGET`.

The interpreter that runs this program is the default Python of the target.
Every target makes the environments it needs, so a fresh checkout on a machine
with Python, a C compiler and make is enough.  The exit status is 0 only where
every step succeeded.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType

import checks
import docs
import environments
import wheels
from demo import demo as show
from environments import BUILD, ROOT, Environment, Failed, Interpreter, run, say


def built(base: Interpreter, *groups: str) -> Environment:
    """An environment with goloop of this tree, built, and the groups' packages."""
    made = environments.environment(base, *groups)
    environments.install_editable(made)
    return made


# ---- targets ------------------------------------------------------------------


def build() -> None:
    """The development build, in the default Python's environment."""
    made = built(environments.default_interpreter(), "test")
    say(f"goloop is built; {made.home.name}/bin/python has it")


def test() -> None:
    """Go's tests and the Python tests on the default Python, real programs among them."""
    made = built(environments.default_interpreter(), "test")
    environments.install_real_programs(made)
    outcome = [go_tests(), python_tests(made)]
    conclude("test", all(outcome))


# Tests of what is the same on every interpreter: the tree, its tools, the benchmarks, the
# build, bugs that simulations find. Only the default one has them; `make wheels` builds for all.
ONCE = [
    "project/test_benchmarks.py",
    "project/test_benchmarks_where.py",
    "project/test_emulation.py",
    "project/test_go_mirror.py",
    "project/test_lint_c.py",
    "project/test_lint_rooms.py",
    "project/test_marks.py",
    "project/test_packaging.py",
    "project/test_settings.py",
    "project/test_single_benchmarks.py",
    "project/test_site.py",
    "project/test_units.py",
    "simulation/corpus",
    "simulation/test_hypothesis.py",
]
# Commands, pages and what the simulation says, in many processes: the default one has them, and
# the newest.
NEWEST = [
    "observability/test_top.py",
    "project/test_command_line.py",
    "project/test_docs.py",
    "simulation/test_oracle.py",
    "simulation/test_plugin.py",
]
# What takes long and depends least on the interpreter: the default one has it (hostile programs
# also under AddressSanitizer), the newest, and those without a GIL.
TWICE = ["fuzz", "native"]
# The same, and nothing that threads without a GIL would find: the default one and the newest.
LONG = [
    "tls/test_tls_stdlib.py",
    "tls/test_tls_torture.py",
    "transports/test_bulk_transfer.py",
]


def test_all() -> None:
    """The Python tests on every interpreter from 3.11, JOBS of them at a time.

    Those of ONCE are for the default one, those of NEWEST and LONG for the newest too, and those of
    TWICE for the newest and for free-threaded ones; of hostile arguments and the like only the
    default one has all (in CI none).  On asyncio's loop, which proves what the tests expect, all
    run on the default one and the newest (in CI on the newest).

    JOBS is 1 unless the environment says otherwise: the tests of one interpreter keep
    two cores busy.  The real programs of `make test` are there on free-threaded interpreters,
    where they run without a GIL.  EXCEPT=default leaves out the one that `make test` tests.
    """
    found = environments.all_interpreters()
    if os.environ.get("EXCEPT") == "default":
        default = environments.default_interpreter().tag
        found = [each for each in found if each.tag != default]
    say("interpreters: " + ", ".join(f"{each.tag} ({each.program})" for each in found))
    jobs = int(os.environ.get("JOBS") or 1)
    with ThreadPoolExecutor(jobs) as pool:
        each_one = pool.map if jobs > 1 else map  # alone, an interpreter's output passes through
        outcome = list(each_one(lambda base: _test_one(base, newest=base is found[-1]), found))
    for base, passed in zip(found, outcome, strict=True):
        say(f"Python {base.tag}: {'passed' if passed else 'FAILED'}")
    conclude("test-all", all(outcome))


def _test_one(base: Interpreter, *, newest: bool) -> bool:
    without: list[str] = []
    env: dict[str, str] = {}
    if base.tag != environments.default_interpreter().tag:
        without = [*ONCE, *(() if newest else (*NEWEST, *LONG))]
        if not newest and not base.free_threaded:
            without += TWICE
        env = {"GOLOOP_TEST_PART": "1"}
        if not newest:
            env["GOLOOP_TEST_LOOP"] = "goloop"
    try:
        made = built(base, "test")
        if base.free_threaded:  # what `make test` shows of programs with a GIL
            environments.install_real_programs(made)
        return python_tests(made, without=without, more=env)
    except Failed as reason:
        say(f"Python {base.tag}: {reason}")
        return False


def go_tests() -> bool:
    """`go test` on every Go package."""
    say("go test ./...")
    return environments.passes(["go", "test", "./..."], env=environments.go_environment())


def python_tests(
    made: Environment,
    *,
    without: Sequence[str] = (),
    more: Mapping[str, str] = MappingProxyType({}),
) -> bool:
    """pytest in an environment, with PYTEST_ARGS."""
    say(f"pytest on Python {made.interpreter.tag}")
    asked = ["--durations=10", *environments.workers(), *os.environ.get("PYTEST_ARGS", "").split()]
    asked += [f"--ignore=tests/{name}" for name in without]
    return environments.pytest_passes(made, asked, env=made.test_variables(**more))


def conclude(target: str, passed: bool) -> None:
    """The last line of a target, and its exit status."""
    say(f"{target}: {'passed' if passed else 'FAILED'}")
    if not passed:
        raise Failed(target)


def check() -> None:
    """Linters, type checkers, the race detector, AddressSanitizer and leak checks."""
    conclude("check", checks.check())


def demo() -> None:
    """The examples, served by goloop, and a short comparison with other loops."""
    show(built(environments.default_interpreter(), "demo"))


# The interpreters whose figures docs/performance.md shows.
BENCHED = ("3.13", "3.14")


def bench() -> None:
    """The comparison with the other loops; writes docs/performance.md.

    BENCH_ARGS, if set, goes to the benchmarks' command line instead: one run of
    something, on the default Python, that leaves the document alone.
    """
    arguments = os.environ.get("BENCH_ARGS", "").split()
    bases = [environments.default_interpreter()]
    if not arguments:
        bases = [each for each in environments.all_interpreters() if each.tag in BENCHED] or bases
    made = []
    for base in bases:
        made.append(built(base, "bench"))
        environments.install_peers(made[-1])
    if not arguments:
        arguments = ["run", *(f"--python={each.python}" for each in made)]
    run([made[0].python, "-m", "benchmarks", *arguments], env=made[0].variables())
    if not os.environ.get("BENCH_ARGS"):
        run([made[0].python, "-m", "benchmarks", "report"], env=made[0].variables())


def explore() -> None:
    """SEEDS of random programs on both loops; and how many seeds the bugs of the corpus need."""
    made = built(environments.default_interpreter(), "test")
    seeds, jobs = os.environ.get("SEEDS", "1000"), os.environ.get("JOBS", str(os.cpu_count()))
    programs = ROOT / "tests" / "simulation"
    exploring = programs / "explored" / "exploring.py"
    run([made.python, exploring, "--count", seeds, "--jobs", jobs], env=made.variables())
    run([made.python, programs / "corpus" / "explore.py", seeds], env=made.variables())


def wheel() -> None:
    """The wheel for the default Python, in dist/, built in isolation as pip does."""
    made = environments.environment(environments.default_interpreter())
    pip = ["-m", "pip", "wheel", "-q", "--no-deps"]
    run([made.python, *pip, "-w", ROOT / "dist", ROOT], env=made.variables())
    newest = max((ROOT / "dist").glob("*.whl"), key=lambda path: path.stat().st_mtime)
    say(f"dist/{newest.name}")


def sdist() -> None:
    """The source distribution, in dist/."""
    made = environments.environment(environments.default_interpreter())
    hook = "import goloop_build; print(goloop_build.build_sdist('dist'))"
    variables = made.variables(PYTHONPATH=str(ROOT / "build_backend"))
    (ROOT / "dist").mkdir(exist_ok=True)
    run([made.python, "-c", hook], env=variables, quiet=True)
    newest = max((ROOT / "dist").glob("*.tar.gz"), key=lambda path: path.stat().st_mtime)
    say(f"dist/{newest.name}")


def clean() -> None:
    """Removes everything that the other targets made."""
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
    "docs": docs.build,
    "docs-serve": docs.serve,
    "wheel": wheel,
    "wheels": wheels.wheels,
    "sdist": sdist,
    "clean": clean,
}


def main() -> int:
    """Runs the target that the command line names."""
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
