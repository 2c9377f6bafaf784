"""Writes docs/performance.md, its plots and its data from the runs that were kept.

docs/performance.json holds the runs that the page shows, so that a checkout
can write the page again without measuring.  Runs in the results directory are newer
ones: for each Python and case the newest run that measured it is shown, and the
figures of one row always come from one run.  docs/performance-NAME.json holds those of
another machine: machines.py.
"""

from __future__ import annotations

import string
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks import conditions, front, machines, native, plot, quiet
from benchmarks.cases import BY_NAME, CASES, PYTHON, Case
from benchmarks.markdown import table
from benchmarks.results import REACHED, Run, dump, load
from benchmarks.tables import (
    BASE,
    CONTROL,
    LEVEL,
    OURS,
    Chosen,
    Row,
    allocator_table,
    cpu_table,
    loops_in,
    measured,
    network_table,
    paced_table,
    plain_table,
    qualities,
    scaling_table,
    startup_table,
    time_table,
)
from benchmarks.usual import usual
from goloop.operations.compare.measuring import intervals
from goloop.operations.compare.verdicts import CANNOT_TELL, FASTER, NO_DIFFERENCE, SLOWER, judge

DOCS = native.ROOT / "docs"
# A core that is idle for less than this share of a window counts as fully used.
BUSY = 0.9

COSTS = """\
Microseconds of the server's CPU for one message (of a pipe: for one MiB), if known with
user + system in parentheses:"""
CLIENTS = """\
The process under the loop is the client, and the server is not in Python: nginx, Redis, PostgreSQL,
or an echo server in C. Each end has a core of its own. The rate is the client's:"""
CLIENT_COSTS = """\
Microseconds of the client's CPU for one message, if known with user + system in parentheses:"""
SHARED = """\
The same echoes and clients with both ends on one core. A message that wakes its receiver at once
costs a switch between the two, and can't be handled in parallel:"""
SHARED_COSTS = """\
Microseconds of CPU of the process under the loop for one message, without the other end:"""
LATENCY = f"""\
Microseconds from when a request was due to the end of its answer, median / 99th percentile,
at a constant rate: a share of the peak of {BASE} in the same round. A request that was delayed by
a late answer counts from its due time. A loop that answers less than {REACHED:.0%} of the requests
in its median round does not reach the rate, and has no figures."""
FIXED = f"""\
Microseconds: the server's CPU for one message / the median / the 99th percentile of the times from
when a message was due to the end of its answer, at a constant rate that is the same for every loop
and machine. A message that was delayed by a late answer counts from its due time. A loop that
answers less than {REACHED:.0%} of the messages in its median round does not reach the rate, and has
no figures."""
STORMS = """\
Microseconds by which a timer of 1 ms came late, 99th percentile, while 200 clients at a time
make TLS handshakes. A delayed tick counts from its due time."""
OPERATIONS = f"""\
Nanoseconds of CPU each: medians of the repeats in a process. {PYTHON} is the time of asyncio's
Python code for the same without a loop: a lower limit for loops that use that code."""
SEVERAL = """\
The work of all loops together, each in its own thread and on its own core. Two loops reach at most
twice the rate; the callback that computes shows the limit of interpreter and machine. If the server
uses all cores, the client of the echo shares them."""
SEVERAL_COSTS = "Microseconds of the process's CPU for one of these, all loops and threads:"
CALLS = "Nanoseconds per call in a thread that posts at its full speed:"
MEMORY = "Bytes of resident memory that one connection costs the server's process:"
ACCURACY = "Microseconds that a sleep took. One below the requested time woke too early."
CHILD_COSTS = "Microseconds of the loop's CPU for one child, without the child's own:"

# ---- the terminal --------------------------------------------------------------------


# A verdict beside a loop.
BESIDE = {
    FASTER: "faster than {}",
    SLOWER: "slower than {}",
    NO_DIFFERENCE: "no difference from {}",
    CANNOT_TELL: "can't tell beside {}",
}


def summary(run: Run, cases: Sequence[Case]) -> str:
    """Write a run for a terminal: the page's tables, a verdict on each case, and missing rows.

    A row in which every window was disturbed has no figures: they would be those of other programs.
    """
    every = measured({case.name: run for case in cases if case.name not in run.missing})
    rows = [row for row in every if not quiet.is_all_disturbed(run, row.case.name)]
    parts = [
        f"CPython {run.python}; medians of {conditions.rounds(run)}. A ratio is the median of the "
        "ratios of the rounds, with its 95 % interval if there were six or more."
    ]
    parts += _tables({"layouts": rows} if run.layouts else _by_section(rows))
    verdicts = [f"- {row.case.title}: {words}" for row in every if (words := _verdict(row))]
    parts += ["\n".join(["Is goloop faster?\n", *verdicts])] * bool(verdicts)
    judged = {row.case.name: run for row in every}
    parts += [*conditions.disturbances(judged), *conditions.lost(judged)]
    parts += [f"{loop}: {each['error']}" for loop, each in run.loops.items() if "error" in each]
    missing = [case.name for case in cases if case.name in run.missing]
    return "\n\n".join([*parts, *(f"{name}: {run.missing[name]}" for name in missing)])


def _verdict(row: Row) -> str:
    """Return the words of `goloop compare` on goloop beside the two usual loops; "" without any."""
    if quiet.is_all_disturbed(row.run, row.case.name):
        return quiet.NO_FIGURES
    counts = quiet.windows(row.run, row.case.name)
    loops: dict[str, list[str]] = {}
    for loop in (BASE, CONTROL):
        if row.case.target is None and row.median(OURS) and row.median(loop):
            both = counts.get(OURS, quiet.Windows()) + counts.get(loop, quiet.Windows())
            word = judge(row.speed(OURS, loop), both.disturbed / max(both.known, 1)).word
            loops.setdefault(word, []).append(loop)
    return ", ".join(BESIDE[word].format(" and ".join(names)) for word, names in loops.items())


# ---- the page ----------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """The written files, and the rows that were disturbed and so are not in them."""

    files: list[Path]
    refused: list[quiet.Refusal]


@dataclass
class Data:
    """The runs of a machine: those that are shown, and the rows that were disturbed."""

    chosen: dict[str, Chosen]
    layouts: dict[str, Chosen]
    refused: list[quiet.Refusal]
    missing: dict[str, dict[str, str]]

    @classmethod
    def of(cls, files: Sequence[Path]) -> Data:
        """Read files of runs; a run that several files have counts once."""
        runs: dict[tuple[str, str, int], Run] = {}
        for path in files:
            for run in load(path):
                runs[(run.tag, run.date, run.layouts)] = run
        known = [_only(run, BY_NAME) for run in runs.values()]
        chosen, refused = quiet.choose(known)
        layouts, refused_layouts = quiet.choose(known, layouts=True)
        missing: dict[str, dict[str, str]] = {}
        for run in sorted(runs.values(), key=lambda run: run.date):
            missing.setdefault(run.tag, {}).update(run.missing)
        return cls(chosen, layouts, refused + refused_layouts, missing)

    def save(self, path: Path) -> None:
        """Write the shown runs.  Raises ValueError if no row remains."""
        if not any(self.chosen.values()):
            nothing = ["nothing has been measured; first: python -m benchmarks run"]
            raise ValueError("\n".join(quiet.told(self.refused) or nothing))
        path.write_text(dump(_shown_part([*self.chosen.values(), *self.layouts.values()])))


def write(results: Path, machine: str = "") -> Written:
    """Write the page, its plots and its data, without the rows that quiet.py refuses.

    The runs in `results` are those of the pages' machine; with `machine` they are those of another
    one, whose file is docs/performance-MACHINE.json.  Raises ValueError if no row remains, or if
    runs in `results` were made on another machine than those of the file.
    """
    kept = DOCS / "performance.json"
    added = DOCS / f"performance-{machine}.json" if machine else kept
    new = Data.of([*([added] if added.exists() else []), *sorted(results.glob("*.json"))])
    if fact := machines.different(new.chosen):
        raise ValueError(
            f"the runs in {results} and {added.name} are of several machines ({fact}): store those "
            "of another machine alone, with --machine"
        )
    new.save(added)
    data = Data.of([kept]) if machine and kept.exists() else new
    others = [Data.of([path]).chosen for path in machines.files(DOCS).values()]
    chosen = data.chosen
    written = []
    sections = []
    for tag in sorted(chosen, reverse=True):
        images = plot.draw(chosen[tag], DOCS / "img", tag)
        written += images
        names = [f"img/{image.name}" for image in images]
        layouts = data.layouts.get(tag, {})
        sections.append(section(chosen[tag], layouts, names, data.missing[tag]))
    pages = [DOCS / "performance.md", DOCS / "performance-tables.md"]
    pages[0].write_text(in_short(chosen, written, others))
    pages[1].write_text("\n\n".join([HEAD, *sections]) + "\n")
    written += front.draw(chosen, DOCS / "img")
    for page, images_at, pages_at in front_pages():
        if page.exists():
            text = page.read_text()
            text = front.rewritten(text, chosen, images_at, pages_at, elsewhere=bool(others))
            page.write_text(text)
            written.append(page)
    return Written([*pages, added, *written], new.refused)


def _only(run: Run, cases: Mapping[str, object]) -> Run:
    """Return a run with the results of these cases."""
    return replace(
        run,
        samples={case: each for case, each in run.samples.items() if case in cases},
        errors={case: each for case, each in run.errors.items() if case in cases},
    )


def _shown_part(chosen: Sequence[Chosen]) -> list[Run]:
    """Return the runs that are shown, without the cases that a newer run replaced."""
    parts = {}
    for by_case in chosen:
        for run in by_case.values():
            parts[id(run)] = _only(run, {c: 0 for each in chosen for c in each if each[c] is run})
    return sorted(parts.values(), key=lambda run: (run.tag, run.date, run.layouts))


def front_pages() -> list[tuple[Path, str, str]]:
    """Return the pages with the front page's results, and the prefixes of their links.

    The first prefix is for pictures, the second for pages.
    """
    readme = (DOCS.parent / "README.md", "docs/img/", "docs/")
    return [readme, (DOCS / "index.md", "img/", "")]


def in_short(
    chosen: dict[str, Chosen], images: Sequence[Path], others: Sequence[dict[str, Chosen]] = ()
) -> str:
    """Write the short page: the usual rows, a picture, other machines, and all losses."""
    parts = [SHORT, usual(chosen)]
    newest = [image for image in images if "network" in image.name]
    if newest:
        largest = max(newest, key=lambda image: image.stat().st_size)
        parts.append(f"![Ratios to {BASE}, of the Python with the most rows](img/{largest.name})")
    parts += filter(None, [machines.beside([chosen, *others])])
    parts += ["## Where other loops are faster", LOST]
    for letter, each in zip(string.ascii_uppercase, [chosen, *others], strict=False):
        place = f" on machine {letter}" if others else ""
        for tag in sorted(each, reverse=True):
            parts += [f"### {_python(each[tag])}{place}", losses(each[tag])]
    return "\n\n".join(parts) + "\n"


def _python(chosen: Chosen) -> str:
    """Write the version of the newest run's Python."""
    newest = max(chosen.values(), key=lambda run: run.date)
    return f"CPython {newest.python}{', free-threaded' * newest.free_threaded}"


SHORT = f"""\
# Performance

Written by `python -m benchmarks report`. This page has the rows that most programs depend on, and
every row in which another loop is better by more than 2%. [All tables](performance-tables.md) have
the rest; [Benchmarks](benchmarks.md) explains the method. `make bench` measures again. Results of
another machine or program differ: measure your own.

A rate is better when it is higher. The CPU is the processor time of the process under the loop for
one message, and better when it is lower. Both are relative to {BASE}. Each end of a connection has
a core of its own, but in the columns *same core* both ends share one, if measured."""

LOST = f"""\
The measured values in which another loop is better than goloop by more than {LEVEL:.0%}. 1.13×
means that the other loop is 13 % better; the 95 % confidence interval is in parentheses."""


HEAD = """\
# Performance: all tables

Written by `python -m benchmarks report`. [performance.json](performance.json) has the data, with
the command, the date and the commit of each run. [Performance](performance.md) lists the most
important rows and all rows in which another loop is better by more than 2%. `make bench` measures
again.

## How the figures are taken

- Every loop's server is a process on one core; the load generator (C, one thread, one message
  under way per connection) runs on another. Both share the machine's kernel.
- A row of a client has the client under the loop on one core, and a server that is not in Python on
  the other. A row of the *same core* has both ends on the first core.
- The servers (or clients) of a row run at the same time. In every round each gets a short window,
  in a random order; after eight windows a new process replaces it. Other measurements (operations,
  start-up, memory) use a new process every time.
- A figure is the median over the rounds. A ratio is taken inside each round, and its median is
  shown, with its 95 % confidence interval (order statistics; at least six rounds). Rounds continue
  until the interval of goloop ÷ uvloop is within ± 5 %, or up to a limit; wide intervals are shown.
- **The allocator.** glibc returns memory at the top of the heap to the kernel if 128 KiB are free
  there, and gets it back with a page fault for every 4 KiB. A loop that allocates a block of 64 to
  256 KiB for each read may pay for that in every message, up to a factor of four, depending on the
  layout of the heap. So the main tables are measured with `MALLOC_TRIM_THRESHOLD_`,
  `MALLOC_MMAP_THRESHOLD_` and `MALLOC_TOP_PAD_` (values: `benchmarks/allocator.py`). "The allocator
  as it comes" shows glibc's defaults under several layouts, from the lowest rate to the highest.
- A window is disturbed if other programs, or the host, had more than a tenth of the two cores, or
  kept the server from its core for more than a tenth of the time. A row with more than a tenth of
  such windows, or more than a third in one loop's, is not shown.
- *c-epoll* is a C server with the same system calls and nothing else, *c-uring* the same by
  io_uring, *gnet* the same in Go: upper limits, not competitors. asyncio is the control.
- Rows of the network, of pipes and of child processes are rates (higher is better), all others are
  times or sizes (lower is better).
- The server programs, clients and timed operations are plain asyncio code: `benchmarks/serve.py`,
  `benchmarks/clients.py`, `benchmarks/children.py` and `benchmarks/micro.py`.
  `python -m benchmarks list` names the purpose of each row."""


# ---- a section of a Python --------------------------------------------------------------


def limited_by_peer(rows: Sequence[Row], peer: str, ours: str) -> str:
    """List the rows in which goloop's peer had no time left while goloop had."""
    limited = []
    for row in rows:
        theirs, mine = (
            intervals.ratio(row.values(OURS, key), row.values(OURS, "seconds"))
            for key in ("client_cpu", "server_cpu")
        )
        if theirs is not None and mine is not None and theirs.median > BUSY > mine.median:
            limited.append(row.case.title)
    if not limited:
        return ""
    return (
        f"The {peer} had no time left in these rows while goloop's {ours} had, so their rates "
        f"understate it and the CPU time says more: {'; '.join(limited)}."
    )


def with_gil(rows: Sequence[Row]) -> str:
    """Name the loops that had the GIL."""
    loops = [
        loop
        for loop in loops_in(rows)
        if any(any(row.values(loop, "gil").values()) for row in rows)
    ]
    words = f"Under the GIL, which lets one thread at a time run: {', '.join(loops)}."
    return words if loops else ""


def calls_table(rows: Sequence[Row]) -> str:
    """Write the time of a call in a thread that makes calls in sequence, if measured."""
    calls = [row for row in rows if any(row.values(loop, "call_ns") for loop in loops_in(rows))]
    return f"{CALLS}\n\n{plain_table(calls, 'call_ns')}" if calls else ""


def layouts(rows: Sequence[Row]) -> str:
    """Write how the allocator's table was measured."""
    count = max(row.run.layouts for row in rows)
    return (
        f"With glibc's defaults, under {count} layouts of the heap, the same for all loops in each "
        f"round: the lowest and the highest rate, and in parentheses those of the ratio to {BASE} "
        "inside a round."
    )


Contents = Sequence[str | Callable[[Sequence[Row]], str]]
# The sections: the cases as _section_of() names them, heading, words and tables.
SECTIONS: tuple[tuple[str, str, Contents], ...] = (
    ("net", "Network and pipes", (
        network_table, COSTS, cpu_table,
        partial(limited_by_peer, peer="load generator", ours="server"),
    )),
    ("client", "Clients of real servers", (
        CLIENTS, network_table, CLIENT_COSTS, cpu_table,
        partial(limited_by_peer, peer="server", ours="client"),
    )),
    ("same", "Both ends on the same core", (SHARED, network_table, SHARED_COSTS, cpu_table)),
    ("layouts", "The allocator as it comes", (layouts, allocator_table)),
    ("fixed", "Messages at a fixed rate", (FIXED, paced_table)),
    ("latency", "Latency at a share of the peak rate", (LATENCY, paced_table)),
    ("children", "Child processes", (network_table, CHILD_COSTS, cpu_table)),
    ("micro", "Operations of the loop", (OPERATIONS, time_table)),
    ("accuracy", "Timer accuracy", (ACCURACY, plain_table)),
    ("loops", "Several loops in one process", (
        SEVERAL, scaling_table, with_gil, calls_table, SEVERAL_COSTS, cpu_table,
    )),
    ("storm", "Timers while others shake hands", (STORMS, time_table)),
    ("memory", "Memory of a connection", (MEMORY, time_table)),
    ("startup", "Start-up", (startup_table,)),
)  # fmt: skip


def _section_of(case: Case) -> str:
    if case.pinning == "same":
        return "same"
    return case.kind if case.target is None else "accuracy"


def _by_section(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(_section_of(row.case), []).append(row)
    return found


def _tables(by_section: Mapping[str, Sequence[Row]]) -> list[str]:
    """Write the heading, words and tables of each section with rows."""
    parts = []
    for name, heading, contents in SECTIONS:
        if rows := by_section.get(name):
            parts.append(f"### {heading}")
            parts += [each if isinstance(each, str) else each(rows) for each in contents]
    return [part for part in parts if part]


def section(
    chosen: Chosen, layouts: Chosen, images: Sequence[str], missing: Mapping[str, str]
) -> str:
    """Write one Python's part of the page; `missing` has the cases that could not be measured.

    `layouts` has the runs of the allocator's table.
    """
    parts = [f"## {_python(chosen)}", conditions.facts(chosen)]
    parts += [f"![Ratios to {BASE}]({image})" for image in images]
    parts += _tables({"layouts": measured(layouts), **_by_section(measured(chosen))})
    lacking = [
        f"- {case.title}: {missing[case.name]}."
        for case in CASES
        if case.name in missing and case.name not in chosen
    ]
    for heading, lines in (("Failures", failures(chosen)), ("Not measured", lacking)):
        if lines:
            parts += [f"### {heading}", "\n".join(lines)]
    return "\n\n".join(parts)


def losses(chosen: Chosen) -> str:
    """Write a table with a line for every figure in which another loop is ahead of goloop."""
    lines = []
    rows = measured(chosen, lambda case: case.target is None)
    for row in rows:
        if OURS not in row.run.samples.get(row.case.name, {}):
            lines.append([row.case.title, "goloop has no figure", ""])
            continue
        if not row.run.reaches(row.case.name, OURS):
            lines.append([row.case.title, "goloop does not reach the rate", ""])
            continue
        for words, key, _more in qualities(row.case):
            ahead = _ahead(row, key)
            if ahead:
                lines.append([row.case.title, words or row.case.unit, ", ".join(ahead)])
    rivals = [loop for loop in loops_in(rows) if loop != OURS]
    of = f"{len(rows)} cases, measured with {', '.join(rivals)}"
    if not lines:
        return f"None of {of}."
    certain = (
        f"In {sum(map(front.is_lost, rows)) or 'none'} of the cases a whole interval is above 1."
    )
    words = textwrap.fill(f"{len(lines)} values of {of}. {certain}", 100)
    return f"{words}\n\n{table(['case', 'figure', 'faster loops'], lines)}"


def _ahead(row: Row, key: str) -> list[str]:
    """Name the loops that are more than LEVEL better than goloop, best first."""
    ahead = []
    for loop in row.rivals():
        lead = row.speed(loop, OURS, key)
        if lead is not None and lead.median > 1 + LEVEL:
            ahead.append((lead.median, f"{loop} {lead.shown('×')}"))
    return [text for _lead, text in sorted(ahead, reverse=True)]


def failures(chosen: Chosen) -> list[str]:
    """List failed measurements, with the error of the failed program."""
    lines = []
    for row in measured(chosen):
        run, name = row.run, row.case.name
        for loop, sentence in run.errors.get(name, {}).items():
            rounds = f"{len(run.samples.get(name, {}).get(loop, {}))} of {run.tried(name)} rounds"
            lines.append(f"- {row.case.title}: {loop} finished {rounds}: {sentence}")
    return lines
