"""Writes docs/performance.md, its plots and its data from the runs that were kept.

docs/performance.json holds the runs that the page shows, so that a checkout
can write the page again without measuring.  Runs in the results directory are newer
ones: for each Python and case the newest run that measured it is shown, and the
figures of one row always come from one run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import conditions, front, native, plot, quiet
from benchmarks.cases import BY_NAME, CASES, PYTHON, Case
from benchmarks.loops import CEILINGS, LOOPS
from benchmarks.results import REACHED, Run, dump, load
from benchmarks.stats import Ratio, paired_ratio, ratio_of, short, table, times
from benchmarks.tables import (
    BASE,
    CONTROL,
    LEVEL,
    OURS,
    Chosen,
    allocator_table,
    behind,
    calls_table,
    cell,
    claimed,
    cpu_table,
    figure,
    instructions_tables,
    loops_in,
    measured,
    median_cell,
    network_table,
    paced_table,
    plain_table,
    qualities,
    ratio,
    scaling_table,
    startup_table,
    time_table,
    with_gil,
)
from benchmarks.usual import usual

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
CHILD_COSTS = "Microseconds of the loop's CPU for one child, without the child's own:"

# ---- the terminal's table --------------------------------------------------------


def summary(run: Run, cases: Sequence[Case], loops: Sequence[str]) -> str:
    """Write the results of a run for a terminal: medians, and ratios to uvloop."""
    present = {loop for case in cases for loop in run.samples.get(case.name, {})}
    present |= {loop for case in cases for loop in run.errors.get(case.name, {})}
    shown = [loop for loop in loops if loop in present]
    ceilings = [
        name
        for name in CEILINGS
        if name in run.loops and any(name in case.ceilings for case in cases)
    ]
    rows = []
    for case in cases:
        row = [case.title, case.unit]
        for loop in [*shown, *ceilings]:
            found = figure(run, case, loop)
            text = None
            if found is not None:
                against = claimed(run, case, loop, BASE).replace(" (", ", ").rstrip(")")
                with_ratio = against != "–" and loop != BASE and case.target is None
                text = short(found.median) + (f" ({against})" if with_ratio else "")
            row.append(cell(run, case, loop, text))
        rows.append(row)
    missing = [
        f"{loop}: {run.loops[loop]['error']}" for loop in loops if "error" in run.loops[loop]
    ]
    missing += [
        f"{case.name}: {run.missing[case.name]}" for case in cases if case.name in run.missing
    ]
    head = f"CPython {run.python}; medians of {conditions.rounds(run)}, ratios to {BASE}"
    parts = [head, table(["case", "unit", *shown, *ceilings], rows)]
    if run.layouts:
        some = [case for case in cases if case.name in run.samples]
        parts += [
            "The lowest and highest rate over the heap's layouts, with those of the ratio:",
            allocator_table(dict.fromkeys(run.samples, run), some),
        ]
    for kind, text in (("net", COSTS), ("client", CLIENT_COSTS), ("children", CHILD_COSTS)):
        some = [case for case in cases if case.kind == kind and case.name not in run.missing]
        if some:
            parts += [text, cpu_table({case.name: run for case in some}, some)]
    some = [case for case in cases if case.kind == "loops" and case.name not in run.missing]
    if some:
        parts += several({case.name: run for case in some}, some)
    for kind, text in (("latency", LATENCY), ("fixed", FIXED)):
        some = [case for case in cases if case.kind == kind and case.name in run.samples]
        if some:
            parts += [text, paced_table({case.name: run for case in some}, some)]
    return "\n".join([*parts, *missing])


def several(chosen: Chosen, cases: Sequence[Case]) -> list[str]:
    """Write the tables of several loops in one process."""
    parts = [SEVERAL, scaling_table(chosen, cases)]
    gil = with_gil(chosen, cases)
    if gil:
        parts.append(f"Under the GIL, which lets one thread at a time run: {', '.join(gil)}.")
    calls = calls_table(chosen, cases)
    if calls:
        parts += [CALLS, calls]
    return [*parts, SEVERAL_COSTS, cpu_table(chosen, cases)]


# The verdict on a disturbed row.
UNKNOWN = "perhaps faster, perhaps slower (others used the cores: can't tell)"


def _verdict(run: Run, case: Case, ratio: Ratio) -> str:
    """Return how goloop's speed compares in one row, by the interval of the ratio."""
    if quiet.refusal(run, case.name) is not None:
        return UNKNOWN
    if ratio.low > 1:
        return "faster"
    return "slower" if ratio.high < 1 else "level"


def quick_summary(run: Run, cases: Sequence[Case]) -> str:
    """Return the results of a short run, with a summary that includes losses."""
    against = [
        loop for loop in (BASE, CONTROL) if "error" not in run.loops.get(loop, {"error": ""})
    ]
    rows = []
    verdicts: dict[str, dict[str, list[str]]] = {loop: {} for loop in against}
    for case in cases:
        figures = {loop: run.figures(case.name, loop, case.key) for loop in (OURS, *against)}
        row = [case.title, case.unit, *(median_cell(run, case, loop) for loop in figures)]
        for loop in against:
            ends = [figures[OURS], figures[loop]]
            found = ratio_of(*(ends if case.higher_is_better else ends[::-1]))
            if found is None:
                row.append("–")
                continue
            row.append(f"{found.median:.2f} ({found.low:.2f}–{found.high:.2f})")
            verdicts[loop].setdefault(_verdict(run, case, found), []).append(case.title)
        rows.append(row)
    header = ["case", "unit", OURS, *against, *(f"speed ÷ {loop}" for loop in against)]
    parts = [
        f"CPython {run.python}; medians of {conditions.rounds(run)}; ratios with their 95 % "
        "intervals, more is better:",
        table(header, rows),
    ]
    for loop, words in verdicts.items():
        said = "; ".join(
            f"{word} in {', '.join(words[word])}"
            for word in ("faster", "slower", "level", UNKNOWN)
            if word in words
        )
        parts += [f"Beside {loop}, goloop is {said}."] * bool(said)
    parts += conditions.disturbances({case.name: run for case in cases})
    parts += [f"{loop}: {each['error']}" for loop, each in run.loops.items() if "error" in each]
    return "\n".join([*parts, *(f"{case}: {why}" for case, why in run.missing.items())])


# ---- the page ----------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """The written files, and the rows that were disturbed and so are not in them."""

    files: list[Path]
    refused: list[quiet.Refusal]


def write(results: Path) -> Written:
    """Write the page, its plots and its data, without the rows that quiet.py refuses.

    Raises ValueError if no row remains.
    """
    kept = DOCS / "performance.json"
    runs: dict[tuple[str, str, int], Run] = {}
    for path in [*([kept] if kept.exists() else []), *sorted(results.glob("*.json"))]:
        for run in load(path):
            runs[(run.tag, run.date, run.layouts)] = run
    known = [_known(run) for run in runs.values()]
    chosen, refused = quiet.choose(known)
    layouts, refused_layouts = quiet.choose(known, layouts=True)
    refused += refused_layouts
    missing: dict[str, dict[str, str]] = {}
    for run in sorted(runs.values(), key=lambda run: run.date):
        missing.setdefault(run.tag, {}).update(run.missing)
    if not any(chosen.values()):
        nothing = ["nothing has been measured; first: python -m benchmarks run"]
        raise ValueError("\n".join(quiet.told(refused) or nothing))
    written = []
    sections = []
    for tag in sorted(chosen, reverse=True):
        images = plot.draw(chosen[tag], DOCS / "img", tag)
        written += images
        names = [f"img/{image.name}" for image in images]
        sections.append(section(chosen[tag], layouts.get(tag, {}), names, missing[tag]))
    pages = [DOCS / "performance.md", DOCS / "performance-tables.md"]
    pages[0].write_text(in_short(chosen, written))
    pages[1].write_text("\n\n".join([HEAD, *sections]) + "\n")
    kept.write_text(dump(_shown_part([*chosen.values(), *layouts.values()])))
    written += front.draw(chosen, DOCS / "img")
    for page, images_at, pages_at in front_pages():
        if page.exists():
            page.write_text(front.rewritten(page.read_text(), chosen, images_at, pages_at))
            written.append(page)
    return Written([*pages, kept, *written], refused)


def front_pages() -> list[tuple[Path, str, str]]:
    """Return the pages with the front page's results, and the prefixes of their links.

    The first prefix is for pictures, the second for pages.
    """
    readme = (DOCS.parent / "README.md", "docs/img/", "docs/")
    return [readme, (DOCS / "index.md", "img/", "")]


def in_short(chosen: dict[str, Chosen], images: Sequence[Path]) -> str:
    """Write the short page: the usual rows, a picture, and all losses."""
    parts = [SHORT, usual(chosen)]
    newest = [image for image in images if "network" in image.name]
    if newest:
        largest = max(newest, key=lambda image: image.stat().st_size)
        parts.append(f"![Ratios to {BASE}, of the Python with the most rows](img/{largest.name})")
    parts += ["## Where other loops are faster", LOST]
    for tag in sorted(chosen, reverse=True):
        newest_run = max(chosen[tag].values(), key=lambda run: run.date)
        build = ", free-threaded" if newest_run.free_threaded else ""
        parts += [f"### CPython {newest_run.python}{build}", losses(chosen[tag])]
    return "\n\n".join(parts) + "\n"


SHORT = f"""\
# Performance

Written by `python -m benchmarks report`. This page has the rows that most programs depend on, and
every row in which another loop is better. [All tables](performance-tables.md) have the rest;
[Benchmarks](benchmarks.md) explains the method. `make bench` measures again. Results of another
machine or program differ: measure your own.

A rate is better when it is higher. The CPU is the processor time of the process under the loop for
one message, and better when it is lower. Both are relative to {BASE}. Each end of a connection has
a core of its own, but in the columns *same core* both ends share one, if measured."""

LOST = f"""\
The measured values in which another loop is better than goloop by more than {LEVEL:.0%}. 1.13×
means that the other loop is 13 % better; the 95 % confidence interval is in parentheses."""


def _known(run: Run) -> Run:
    """Omit cases that the catalogue no longer has."""
    return replace(
        run,
        samples={case: each for case, each in run.samples.items() if case in BY_NAME},
        errors={case: each for case, each in run.errors.items() if case in BY_NAME},
    )


HEAD = """\
# Performance: all tables

Written by `python -m benchmarks report`. [performance.json](performance.json) has the data, with
the command, the date and the commit of each run. [Performance](performance.md) lists the most
important rows and all rows in which another loop is better. `make bench` measures again.

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
- A window in which other programs, or the host, had more than a tenth of the two cores is
  disturbed. A row with more than a tenth of such windows, or more than a third in one loop's, is
  not shown.
- *c-epoll* is a C server with the same system calls and nothing else, *c-uring* the same by
  io_uring, *gnet* the same in Go: upper limits, not competitors. asyncio is the control.
- Rows of the network, of pipes and of child processes are rates (higher is better), all others are
  times or sizes (lower is better).
- The server programs, clients and timed operations are plain asyncio code: `benchmarks/serve.py`,
  `benchmarks/clients.py`, `benchmarks/children.py` and `benchmarks/micro.py`.
  `benchmarks/README.md` describes the purpose of each row."""


def section(
    chosen: Chosen, layouts: Chosen, images: Sequence[str], missing: Mapping[str, str]
) -> str:
    """Write one Python's part of the page; `missing` has the cases that could not be measured.

    `layouts` has the runs of the allocator's table.
    """
    newest = max(chosen.values(), key=lambda run: run.date)
    build = ", free-threaded" if newest.free_threaded else ""
    parts = [f"## CPython {newest.python}{build}", conditions.facts(chosen)]
    parts += [f"![Ratios to {BASE}]({image})" for image in images]
    network = measured(chosen, lambda case: case.kind == "net" and case.pinning == "split")
    if network:
        parts += ["### Network and pipes", network_table(chosen, network)]
        parts += [COSTS, cpu_table(chosen, network)]
        parts += instructions_tables(chosen, network)
        parts += limited_by_peer(chosen, network, "load generator", "server")
    clients = measured(chosen, lambda case: case.kind == "client" and case.pinning == "split")
    if clients:
        parts += ["### Clients of real servers", CLIENTS, network_table(chosen, clients)]
        parts += [CLIENT_COSTS, cpu_table(chosen, clients)]
        parts += limited_by_peer(chosen, clients, "server", "client")
    shared = measured(chosen, lambda case: case.pinning == "same")
    if shared:
        parts += ["### Both ends on the same core", SHARED, network_table(chosen, shared)]
        parts += [SHARED_COSTS, cpu_table(chosen, shared)]
    parts += allocations(layouts)
    fixed = measured(chosen, lambda case: case.kind == "fixed")
    if fixed:
        parts += ["### Messages at a fixed rate", FIXED, paced_table(chosen, fixed)]
    latency = measured(chosen, lambda case: case.kind == "latency")
    if latency:
        parts += ["### Latency at a share of the peak rate", LATENCY, paced_table(chosen, latency)]
    children = measured(chosen, lambda case: case.kind == "children")
    if children:
        parts += ["### Child processes", network_table(chosen, children)]
        parts += [CHILD_COSTS, cpu_table(chosen, children)]
    parts += variants(chosen)
    operations = measured(chosen, lambda case: case.kind == "micro" and case.target is None)
    if operations:
        parts += [
            "### Operations of the loop",
            OPERATIONS,
            time_table(chosen, operations),
        ]
    sleeping = measured(chosen, lambda case: case.target is not None)
    if sleeping:
        parts += [
            "### Timer accuracy",
            "Microseconds that a sleep took. One below the requested time woke too early.",
            plain_table(chosen, sleeping),
        ]
    scaling = measured(chosen, lambda case: case.kind == "loops")
    if scaling:
        parts += ["### Several loops in one process", *several(chosen, scaling)]
    storms = measured(chosen, lambda case: case.kind == "storm")
    if storms:
        parts += ["### Timers while others shake hands", STORMS, time_table(chosen, storms)]
    held = measured(chosen, lambda case: case.kind == "memory")
    if held:
        parts += ["### Memory of a connection", MEMORY, time_table(chosen, held)]
    startup = measured(chosen, lambda case: case.kind == "startup")
    if startup:
        parts += ["### Start-up", startup_table(chosen, startup)]
    failed = failures(chosen)
    if failed:
        parts += ["### Failures", failed]
    lacking = [
        f"- {case.title}: {missing[case.name]}."
        for case in CASES
        if case.name in missing and case.name not in chosen
    ]
    if lacking:
        parts += ["### Not measured", "\n".join(lacking)]
    return "\n\n".join(parts)


def allocations(layouts: Chosen) -> list[str]:
    """Write the table of the allocator as it comes."""
    cases = measured(layouts, lambda case: case.kind == "net")
    if not cases:
        return []
    count = max(layouts[case.name].layouts for case in cases)
    return [
        "### The allocator as it comes",
        f"With glibc's defaults, under {count} layouts of the heap, the same for all loops in each "
        f"round: the lowest and the highest rate, and in parentheses those of the ratio to {BASE} "
        "inside a round.",
        allocator_table(layouts, cases),
    ]


def limited_by_peer(chosen: Chosen, cases: Sequence[Case], peer: str, ours: str) -> list[str]:
    """List the rows in which goloop's peer had no time left while goloop had."""
    limited = []
    for case in cases:
        run = chosen[case.name]
        shares = [
            ratio_of
            for key in ("client_cpu", "server_cpu")
            if (ratio_of := paired_ratio(
                run.figures(case.name, OURS, key), run.figures(case.name, OURS, "seconds")
            )) is not None
        ]  # fmt: skip
        if len(shares) == 2 and shares[0] > BUSY > shares[1]:
            limited.append(case.title)
    if not limited:
        return []
    return [
        f"The {peer} had no time left in these rows while goloop's {ours} had, so their rates "
        f"understate it and the CPU time says more: {'; '.join(limited)}."
    ]


def variants(chosen: Chosen) -> list[str]:
    """Write a table for each loop that was also measured with another setting."""
    parts = []
    for variant in LOOPS:
        cases = [
            case
            for case in measured(chosen, lambda _case: True)
            if variant.name in chosen[case.name].samples.get(case.name, {})
        ]
        if not variant.variant_of or not cases:
            continue
        original = variant.variant_of
        setting = ", ".join(f"`{name}={value}`" for name, value in variant.environment.items())
        rows = []
        for case in cases:
            run = chosen[case.name]
            row = [f"{case.title}, {case.unit}"]
            row += [median_cell(run, case, loop) for loop in (original, variant.name)]
            row.append(claimed(run, case, original, variant.name))
            cpu = None
            if case.higher_is_better:
                cpu = ratio(run, case, original, variant.name, "server_us")
            row.append(times(cpu))
            rows.append(row)
        parts += [
            f"### {variant.name}",
            f"The same loop in another setting, {setting}, in the same run:",
            table(
                ["case", original, variant.name, f"{original} ÷ {variant.name}", "the same of CPU"],
                rows,
            ),
        ]
    return parts


def losses(chosen: Chosen) -> str:
    """Write a table with a line for every figure in which another loop is ahead of goloop."""
    lines = []
    cases = measured(chosen, lambda case: case.target is None)
    for case in cases:
        run = chosen[case.name]
        if OURS not in run.samples.get(case.name, {}):
            lines.append([case.title, "goloop has no figure", ""])
            continue
        if not run.reaches(case.name, OURS):
            lines.append([case.title, "goloop does not reach the rate", ""])
            continue
        for words, key, more_is_better in qualities(case):
            ahead = behind(run, case, key, more_is_better)
            if ahead:
                lines.append([case.title, words or case.unit, ", ".join(ahead)])
    rivals = [loop for loop in loops_in(chosen, cases) if loop != OURS]
    of = f"{len(cases)} cases, measured with {', '.join(rivals)}"
    if not lines:
        return f"None of {of}."
    table_of_losses = table(["case", "figure", "faster loops"], lines)
    return f"{len(lines)} values of {of}:\n\n{table_of_losses}"


def failures(chosen: Chosen) -> str:
    """List failed measurements, with the error of the failed program."""
    lines = []
    for case in measured(chosen, lambda _case: True):
        run = chosen[case.name]
        for loop, sentence in run.errors.get(case.name, {}).items():
            finished = len(run.samples.get(case.name, {}).get(loop, {}))
            rounds = f"{finished} of {run.tried(case.name)} rounds"
            lines.append(f"- {case.title}: {loop} finished {rounds}: {sentence}")
    return "\n".join(lines)


# ---- choices -------------------------------------------------------------------------


def _shown_part(chosen: Sequence[Chosen]) -> list[Run]:
    """Return the runs that are shown, without the cases that a newer run replaced."""
    kept: dict[int, Run] = {}
    for by_case in chosen:
        for run in by_case.values():
            kept[id(run)] = run
    parts = []
    for run in kept.values():
        mine = {case for by_case in chosen for case in by_case if by_case[case] is run}
        parts.append(
            Run(
                **{
                    **vars(run),
                    "samples": {name: run.samples[name] for name in run.samples if name in mine},
                    "errors": {name: run.errors[name] for name in run.errors if name in mine},
                }
            )
        )
    return sorted(parts, key=lambda run: (run.tag, run.date, run.layouts))
