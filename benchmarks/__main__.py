"""The command line of the benchmarks."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import compare, native, quiet, report, results, runner
from benchmarks.allocator import LAYOUTS
from benchmarks.cases import CASES, PINNINGS, SHARING, Case, select
from benchmarks.loops import BY_NAME, LOOPS, Loop
from benchmarks.runner import ROUNDS, UNTIL
from goloop.operations.compare.measuring.turns import Failure

RESULTS = Path(__file__).resolve().parent / "results"
QUICK_LOOPS = ("goloop", "asyncio", "uvloop")
QUICK_CASES = ("aiohttp-x100", "streams-1k-x100", "tls-1k-x100", "udp-512-x50", "create-task")


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and run the command; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.do(options)
    except (native.BuildError, Failure, ValueError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Compares event loops: interleaved, one process each, pinned to cores.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    usual = runner.Settings()

    def add(name: str, do: Callable[[argparse.Namespace], int], text: str) -> Any:
        command = commands.add_parser(name, help=text)
        command.set_defaults(do=do)
        return command.add_argument

    def add_times(option: Any) -> None:
        option("--seconds", type=float, default=usual.seconds, help="seconds of a window")
        option("--warmup", type=float, default=usual.warmup)

    def add_pinning(option: Any) -> None:
        option(
            "--pinning", choices=PINNINGS, default="both",
            help="split: rows whose two ends have a core each; same: rows whose ends share one "
            f"core (echoes and clients: {', '.join(SHARING)}); default: both",
        )  # fmt: skip

    add("list", _list, "list the loops and the cases")
    option = add("quick", _quick, "compare goloop, asyncio and uvloop in a minute")
    option("--python", default=sys.executable, help="the interpreter to measure")

    option = add("run", _run, "measure cases and save the results")
    option(
        "--cases", nargs="+", metavar="CASE",
        help="names, patterns (protocol-*), groups, kinds or all; default: all, then the "
        "cases of the allocator's table",
    )  # fmt: skip
    option("--loops", nargs="+", default=[loop.name for loop in LOOPS], choices=sorted(BY_NAME))
    option(
        "--rounds", type=int,
        help=f"exact number of rounds; default: {ROUNDS} or more, see --until",
    )  # fmt: skip
    option(
        "--until", type=float, metavar="SHARE",
        help=f"further rounds until the 95 %% interval of {runner.OURS} ÷ {runner.BASE} is "
        f"within this share of it; default without --rounds: {UNTIL}",
    )  # fmt: skip
    option("--max-rounds", type=int, default=usual.max_rounds)
    option(
        "--allocator", choices=("steady", "default"),
        help="steady: glibc's allocator with the settings of benchmarks/allocator.py, for the "
        "main tables; default: without settings, for the allocator's table",
    )  # fmt: skip
    option(
        "--layouts", type=int, default=len(LAYOUTS), metavar="N",
        help="with --allocator default: number of heap layouts, one a round",
    )  # fmt: skip
    add_times(option)
    option(
        "--python", action="append", metavar="PATH",
        help="an interpreter to measure; may be repeated; default: this one",
    )  # fmt: skip
    add_pinning(option)
    option("--no-save", action="store_true", help="do not save the results")

    option = add(
        "compare", _compare, "compare two builds of goloop, before and after a change, interleaved"
    )
    option(
        "--before", required=True, metavar="PYTHON",
        help="the interpreter of the environment with the goloop before the change",
    )  # fmt: skip
    option("--python", default=sys.executable, help="the interpreter with the new goloop")
    option("--cases", nargs="+", default=["all"], metavar="CASE")
    option("--rounds", type=int, default=9)
    add_pinning(option)
    add_times(option)

    option = add(
        "report",
        _report,
        "write docs/performance.md, its plots and its data from the saved runs; rows that "
        "were disturbed are refused",
    )
    option(
        "--machine", metavar="NAME", type=_machine_name,
        help="the saved runs are of another machine: docs/performance-NAME.json gets them, and the "
        "page shows their rows beside those of docs/performance.json",
    )  # fmt: skip
    return parser


def _list(_options: argparse.Namespace) -> int:
    print("loops:", ", ".join(BY_NAME))
    for case in CASES:
        if case.pinning == "same":
            continue
        rest = " (only if named)" * case.rare
        rest += " (and on the same core)" * (case.group in SHARING)
        if case.kind == "loops":
            rest = " (by default only without the GIL)"
        print(f"{case.name:29} {case.unit:14} {case.title}: {case.isolates}{rest}")
    return 0


def _quick(options: argparse.Namespace) -> int:
    """Run the comparison of `make demo`, with enough windows for an interval of each ratio."""
    settings = runner.Settings(rounds=9, seconds=0.3, warmup=0.1)
    loops = [BY_NAME[name] for name in QUICK_LOOPS]
    measuring = runner.Runner(options.python, settings, runner.to_stderr)
    cases = select(QUICK_CASES, pinning="split")
    run = measuring.new_run(loops, "python -m benchmarks quick", (), cases)
    measuring.measure(run, cases, loops)
    print(report.summary(run, cases))
    failed = "error" in run.loops["goloop"] or any("goloop" in each for each in run.errors.values())
    return 1 if failed else 0


def _run(options: argparse.Namespace) -> int:
    pythons = options.python or [sys.executable]
    plans = [_plans(options, free_threaded=runner.free_threaded(python)) for python in pythons]
    # In the order of the catalogue, independent of the command line.
    loops = [loop for loop in LOOPS if loop.name in options.loops]
    status = 0
    for python, planned in zip(pythons, plans, strict=True):
        for settings, cases in planned:
            status |= _run_one(python, settings, cases, loops, keep=not options.no_save)
    return status


def _plans(
    options: argparse.Namespace, *, free_threaded: bool
) -> list[tuple[runner.Settings, list[Case]]]:
    """Return the runs to measure, with their settings."""
    rounds, until = options.rounds, options.until
    if until is None:
        until = UNTIL if rounds is None else 0.0
    rounds = ROUNDS if rounds is None else rounds
    if rounds < 1 or options.seconds <= 0 or options.warmup < 0 or until < 0:
        raise ValueError(
            "--rounds is at least 1, --seconds above 0, --warmup and --until at least 0"
        )
    if not 1 <= options.layouts <= len(LAYOUTS):
        raise ValueError(f"--layouts is at least 1, at most {len(LAYOUTS)}")
    steady = runner.Settings(rounds, options.seconds, options.warmup, until, options.max_rounds)
    layouts = runner.Settings(
        options.layouts, options.seconds, options.warmup, layouts=options.layouts
    )
    plans = []
    if options.allocator != "default":
        chosen = select(
            options.cases or ["all"], free_threaded=free_threaded, pinning=options.pinning
        )
        plans.append((steady, chosen))
    if options.allocator == "default" or (options.allocator is None and options.cases is None):
        chosen = select(
            options.cases or ["full"], free_threaded=free_threaded, pinning=options.pinning
        )
        if not options.cases:
            chosen = [case for case in chosen if case.allocates]
        elif not all(case.kind == "net" for case in chosen):
            raise ValueError("--allocator default measures network cases only")
        plans += [(layouts, chosen)] * bool(chosen)
    return plans


def _run_one(
    python: str, settings: runner.Settings, cases: list[Case], loops: list[Loop], *, keep: bool
) -> int:
    measuring = runner.Runner(python, settings, runner.to_stderr)
    run = measuring.new_run(loops, _command(), cases=cases)
    path = RESULTS / f"{run.tag}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.json"
    # Saved after each case: an interrupted run loses one case only.
    measuring.measure(run, cases, loops, lambda: results.save(path, [run]) if keep else None)
    print(report.summary(run, cases))
    for line in quiet.told(quiet.choose([run], layouts=bool(run.layouts))[1]):
        runner.to_stderr(line)
    if keep:
        runner.to_stderr(f"saved in {path.name}; next: python -m benchmarks report")
    # A failed row is a result, and the report shows it; a goloop that can't be
    # loaded is none.
    return 1 if "error" in run.loops.get("goloop", {}) else 0


def _compare(options: argparse.Namespace) -> int:
    settings = runner.Settings(options.rounds, options.seconds, options.warmup)
    chosen = select(options.cases, pinning=options.pinning)
    print(compare.compare(options.before, options.python, chosen, settings, runner.to_stderr))
    return 0


def _command() -> str:
    """Return the command as a reader would type it: no path of this machine."""
    words = []
    skip = False
    for word in sys.argv[1:]:
        if skip or word == "--python":
            skip = not skip
            continue
        if not word.startswith("--python="):
            words.append(word)
    return " ".join(["python -m benchmarks", *map(shlex.quote, words)])


def _machine_name(word: str) -> str:
    """Return the name of a machine, which becomes part of a file's name."""
    if re.fullmatch(r"[a-z0-9][a-z0-9-]*", word) is None:
        raise argparse.ArgumentTypeError(
            f"a machine's name has lower-case letters, digits and hyphens, got {word!r}"
        )
    return word


def _report(options: argparse.Namespace) -> int:
    written = report.write(RESULTS, options.machine or "")
    for path in written.files:
        print(path.relative_to(native.ROOT))
    for line in quiet.told(written.refused):
        runner.to_stderr(line)
    return 1 if written.refused else 0


if __name__ == "__main__":
    sys.exit(main())
