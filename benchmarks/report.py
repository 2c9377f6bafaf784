"""Writes docs/performance.md, its plots and its data from the runs that were kept.

docs/performance.json holds the runs that the page shows, so that a checkout
can write the page again without measuring.  Runs in the results directory are newer
ones: for each Python and case the newest run that measured it is shown, and the
figures of one row always come from one run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import native, plot
from benchmarks.cases import BY_NAME, CASES, Case
from benchmarks.loops import BY_NAME as LOOP_NAMES
from benchmarks.loops import CEILINGS, LOOPS
from benchmarks.results import Run, dump, latest, load
from benchmarks.stats import (
    OTHERS,
    Summary,
    disturbed,
    paired_ratio,
    short,
    summarize,
    table,
    times,
)

OURS, BASE, CONTROL = "goloop", "uvloop", "asyncio"
DOCS = native.ROOT / "docs"
# Within this of the best peer a row counts as level: rounds differ by as much.
LEVEL = 0.02
# A core with less than this share of a window left over has no time left.
BUSY = 0.9

# Above this share of disturbed windows the page warns of its own rates.
TOLERATED = 0.1
DISTURBED = """\
> **Provisional.** Other programs, or the host of a virtual machine, had a part of the two
> cores in many of the network windows. The rates below say little then; the CPU time for
> one message says more. Take them anew on an idle machine."""

COSTS = "Microseconds of the server's CPU for one message (of a pipe: for one MiB):"
CHILD_COSTS = "Microseconds of the loop's CPU for one child, without the child's own:"

Chosen = dict[str, Run]  # case -> the run that is shown


# ---- figures -------------------------------------------------------------------


def figure(run: Run, case: Case, loop: str, key: str | None = None) -> Summary | None:
    """Condense one loop's figures of a case; None where it has none."""
    values = list(run.figures(case.name, loop, key or case.key).values())
    return summarize(values) if values else None


def ratio(run: Run, case: Case, ours: str, theirs: str, key: str | None = None) -> float | None:
    """Return ours / theirs, taken inside the rounds."""
    return paired_ratio(
        run.figures(case.name, ours, key or case.key),
        run.figures(case.name, theirs, key or case.key),
    )


def cell(run: Run, case: Case, loop: str, text: str | None) -> str:
    """Write a table cell: the text, or why there is none."""
    if text is not None:
        return text + ("\u00a0†" if loop in run.errors.get(case.name, {}) else "")
    return "failed" if loop in run.errors.get(case.name, {}) else "–"


def behind(run: Run, case: Case) -> list[str]:
    """Name the loops that are more than LEVEL better than goloop in a case, best first."""
    ahead: list[tuple[float, str]] = []
    for loop in run.samples.get(case.name, {}):
        if loop == OURS or loop in CEILINGS:
            continue
        theirs = ratio(run, case, loop, OURS)
        if theirs is None or theirs == 0:
            continue
        lead = theirs if case.higher_is_better else 1 / theirs
        if lead > 1 + LEVEL:
            ahead.append((lead, loop))
    return [f"{loop} {times(lead)}" for lead, loop in sorted(ahead, reverse=True)]


# ---- the terminal's table --------------------------------------------------------


def summary(run: Run, cases: Sequence[Case], loops: Sequence[str]) -> str:
    """Write the figures of a run for a terminal: medians, and ratios to uvloop."""
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
                against = ratio(run, case, loop, BASE)
                with_ratio = against is not None and loop != BASE and case.target is None
                text = short(found.median) + (f" ({times(against)})" if with_ratio else "")
            row.append(cell(run, case, loop, text))
        rows.append(row)
    missing = [
        f"{loop}: {run.loops[loop]['error']}" for loop in loops if "error" in run.loops[loop]
    ]
    missing += [
        f"{case.name}: {run.missing[case.name]}" for case in cases if case.name in run.missing
    ]
    head = f"CPython {run.python}; medians of {run.rounds} rounds, ratios to {BASE}"
    parts = [head, table(["case", "unit", *shown, *ceilings], rows)]
    for kind, text in (("net", COSTS), ("children", CHILD_COSTS)):
        some = [case for case in cases if case.kind == kind and case.name not in run.missing]
        if some:
            parts += [text, cpu_table({case.name: run for case in some}, some)]
    return "\n".join([*parts, *missing])


# ---- the page ----------------------------------------------------------------------


def write(results: Path) -> list[Path]:
    """Write the page, its plots and its data; return the files.

    Raises ValueError where there is no run at all.
    """
    runs: dict[tuple[str, str], Run] = {}
    kept = DOCS / "performance.json"
    for path in [*([kept] if kept.exists() else []), *sorted(results.glob("*.json"))]:
        for run in load(path):
            runs[(run.tag, run.date)] = run
    chosen = latest(runs.values())
    missing: dict[str, dict[str, str]] = {}
    for run in sorted(runs.values(), key=lambda run: run.date):
        missing.setdefault(run.tag, {}).update(run.missing)
    # A catalogue that has lost or renamed a case shows no row for it.
    chosen = {
        tag: {case: run for case, run in by_case.items() if case in BY_NAME}
        for tag, by_case in chosen.items()
    }
    if not any(chosen.values()):
        raise ValueError("nothing has been measured; first: python -m benchmarks run")
    written = []
    sections = []
    for tag in sorted(chosen, reverse=True):
        images = plot.draw(chosen[tag], DOCS / "img", tag)
        written += images
        names = [f"img/{image.name}" for image in images]
        sections.append(section(chosen[tag], names, missing[tag]))
    page = DOCS / "performance.md"
    page.write_text("\n\n".join([HEAD, *sections]) + "\n")
    kept.write_text(dump(_shown_part(chosen)))
    return [page, kept, *written]


HEAD = """\
# Performance

Written by `python -m benchmarks report`; the figures behind it are in
[performance.json](performance.json). To take them anew: `make bench`.

How the figures are taken:

- Every loop's server is a process of its own, pinned to one core; the load generator
  (C, one thread, one message under way on each connection) is pinned to another. Both
  ends share the machine's kernel, so the *ratios* carry over to other machines, the
  absolute figures do not.
- The loops take turns in every round of one run, in a fresh process each time. A
  figure is the median over the rounds; a ratio is taken inside each round, and its
  median is shown.
- *c-epoll* is a C server that makes the same system calls with nothing around them,
  *c-uring* the same by io_uring with one system call a turn, *gnet* the same in Go:
  ceilings, not competitors. asyncio is the control.
- Rows of the network, of pipes and of child processes are rates (more is better), all
  others are times or sizes (less is better). Losses are printed like wins, and listed
  once more at the end of each part.
- The server programs and the timed operations are plain asyncio code, the same for
  every loop: `benchmarks/serve.py`, `benchmarks/children.py` and `benchmarks/micro.py`.
  What a row isolates is said in `benchmarks/README.md`."""


def section(chosen: Chosen, images: Sequence[str], missing: Mapping[str, str]) -> str:
    """Write one Python's part of the page; `missing` says what could not be measured."""
    newest = max(chosen.values(), key=lambda run: run.date)
    parts = [f"## CPython {newest.python}", facts(chosen)]
    parts += [f"![Ratios to {BASE}]({image})" for image in images]
    network = _measured(chosen, lambda case: case.kind == "net")
    if network:
        parts += ["### Network and pipes", network_table(chosen, network)]
        parts += [COSTS, cpu_table(chosen, network)]
        parts += limited_by_client(chosen, network)
    children = _measured(chosen, lambda case: case.kind == "children")
    if children:
        parts += ["### Child processes", network_table(chosen, children)]
        parts += [CHILD_COSTS, cpu_table(chosen, children)]
    parts += variants(chosen)
    operations = _measured(chosen, lambda case: case.kind == "micro" and case.target is None)
    if operations:
        parts += [
            "### Operations of the loop",
            "Nanoseconds of CPU each; what one process measured is the median of its repeats.",
            time_table(chosen, operations),
        ]
    sleeping = _measured(chosen, lambda case: case.target is not None)
    if sleeping:
        parts += [
            "### Timer accuracy",
            "Microseconds that a sleep took. One below what was asked woke too early.",
            plain_table(chosen, sleeping),
        ]
    startup = _measured(chosen, lambda case: case.kind == "startup")
    if startup:
        parts += ["### Start-up", startup_table(chosen, startup)]
    parts += ["### Where goloop is behind", losses(chosen)]
    failed = failures(chosen)
    if failed:
        parts += ["### What failed", failed]
    lacking = [
        f"- {case.title}: {missing[case.name]}."
        for case in CASES
        if case.name in missing and case.name not in chosen
    ]
    if lacking:
        parts += ["### What was not measured", "\n".join(lacking)]
    return "\n\n".join(parts)


def facts(chosen: Chosen) -> str:
    """Write machine, versions and commands."""
    runs = sorted({id(run): run for run in chosen.values()}.values(), key=lambda run: run.date)
    newest = runs[-1]
    machine = newest.machine
    lines = [
        f"- Machine: {machine['processor']}, {machine['cores']} cores, {machine['memory']}, "
        f"{machine['kernel']}, {machine['libc']}; {newest.cores}.",
        f"- Interpreter: {newest.build}.",
    ]
    versions: dict[str, str] = {}
    absent: dict[str, str] = {}
    for run in runs:
        for loop, entry in run.loops.items():
            if "error" in entry:
                absent[loop] = entry["error"]
            elif loop not in LOOP_NAMES or not LOOP_NAMES[loop].variant_of:
                versions[loop] = entry["version"]
                absent.pop(loop, None)
    # Runs of an earlier format name aiohttp alone.
    others = [machine.get(key, "") for key in ("packages", "openssl", "aiohttp")]
    named = [*versions.values(), *(version for version in others if version)]
    lines.append(f"- Versions: {'; '.join(named)}.")
    lines += [f"- Not measured: {loop} ({why})." for loop, why in absent.items()]
    for run in runs:
        count = sum(1 for shown in chosen.values() if shown is run)
        rows = "1 row" if count == 1 else f"{count} rows"
        rounds = "1 round" if run.rounds == 1 else f"{run.rounds} rounds"
        lines.append(
            f"- {rows} by `{run.command}` on {run.date[:10]}, tree {run.commit}: "
            f"{rounds} of {run.seconds:g} s after {run.warmup:g} s; "
            f"load generator: {run.client}."
        )
    windows, bad, unknown = _disturbances(chosen)
    if windows:
        lines.append(
            f"- In {bad} of {windows} network windows others (programs, the host) had more "
            f"than {OTHERS:.0%} of the two cores."
        )
    if unknown:
        lines.append(f"- What others had of the cores in {unknown} more windows is not known.")
    if bad > windows * TOLERATED:
        lines += ["", DISTURBED]
    return "\n".join(lines)


def network_table(chosen: Chosen, cases: Sequence[Case]) -> str:
    """Rates of goloop, and every loop's ratio to uvloop."""
    loops = [loop for loop in _loops(chosen, cases) if loop not in (OURS, BASE)]
    ceilings = [name for name in CEILINGS if any(name in case.ceilings for case in cases)]
    against = _compared(cases)
    header = ["case", f"{BASE}/s", f"{OURS}/s", *(f"{OURS} ÷ {theirs}" for theirs in against)]
    header += [f"{name} ÷ {BASE}" for name in [*loops, *ceilings]]
    rows = []
    for case in cases:
        run = chosen[case.name]
        row = [case.title]
        for loop in (BASE, OURS):
            found = figure(run, case, loop)
            row.append(cell(run, case, loop, None if found is None else short(found.median)))
        row += [times(ratio(run, case, OURS, theirs)) for theirs in against]
        for loop in [*loops, *ceilings]:
            found_ratio = ratio(run, case, loop, BASE)
            text = None if found_ratio is None else times(found_ratio)
            row.append(cell(run, case, loop, text))
        rows.append(row)
    return table(header, rows)


def _compared(cases: Sequence[Case]) -> list[str]:
    """Name what goloop is compared with in columns of their own."""
    return [BASE] + ["c-epoll"] * any("c-epoll" in case.ceilings for case in cases)


def cpu_table(chosen: Chosen, cases: Sequence[Case]) -> str:
    """The server's CPU time for one message: it does not depend on who waits for whom."""
    loops = _loops(chosen, cases)
    ceilings = [
        name
        for name in CEILINGS
        if any(name in chosen[case.name].samples.get(case.name, {}) for case in cases)
    ]
    against = _compared(cases)
    rows = []
    for case in cases:
        run = chosen[case.name]
        row = [case.title]
        for loop in [*loops, *ceilings]:
            found = figure(run, case, loop, "server_us")
            row.append(cell(run, case, loop, None if found is None else short(found.median)))
        row += [times(ratio(run, case, OURS, theirs, "server_us")) for theirs in against]
        rows.append(row)
    return table(["case", *loops, *ceilings, *(f"{OURS} ÷ {each}" for each in against)], rows)


def time_table(chosen: Chosen, cases: Sequence[Case]) -> str:
    """Times of every loop, and goloop's in relation to uvloop's and asyncio's."""
    loops = _loops(chosen, cases)
    header = ["case", *loops, f"{OURS} ÷ {BASE}", f"{OURS} ÷ {CONTROL}", f"{OURS} minimum"]
    rows = []
    for case in cases:
        run = chosen[case.name]
        row = [case.title]
        for loop in loops:
            found = figure(run, case, loop)
            row.append(cell(run, case, loop, None if found is None else short(found.median)))
        for theirs in (BASE, CONTROL):
            row.append(times(ratio(run, case, OURS, theirs)))
        ours = figure(run, case, OURS)
        row.append("–" if ours is None else short(ours.minimum))
        rows.append(row)
    return table(header, rows)


def plain_table(chosen: Chosen, cases: Sequence[Case]) -> str:
    """Medians only."""
    loops = _loops(chosen, cases)
    rows = []
    for case in cases:
        run = chosen[case.name]
        row = [case.title]
        for loop in loops:
            found = figure(run, case, loop)
            row.append(cell(run, case, loop, None if found is None else short(found.median)))
        rows.append(row)
    return table(["case", *loops], rows)


def startup_table(chosen: Chosen, cases: Sequence[Case]) -> str:
    """Medians, and what each loop adds to asyncio."""
    loops = _loops(chosen, cases)
    rows = []
    for case in cases:
        run = chosen[case.name]
        base = figure(run, case, CONTROL)
        row = [f"{case.title}, {case.unit}"]
        for loop in loops:
            found = figure(run, case, loop)
            text = None
            if found is not None:
                text = short(found.median)
                if base is not None and loop != CONTROL:
                    more = found.median - base.median
                    text += f" ({'+' if more >= 0 else ''}{short(more)})"
            row.append(cell(run, case, loop, text))
        rows.append(row)
    return table(["case (more than asyncio)", *loops], rows)


def limited_by_client(chosen: Chosen, cases: Sequence[Case]) -> list[str]:
    """Say in which rows the load generator had no time left while goloop's server had."""
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
        "The load generator had no time left in these rows while goloop's server had, so their "
        f"rates understate it and the CPU time says more: {'; '.join(limited)}."
    ]


def variants(chosen: Chosen) -> list[str]:
    """Write a table of each loop that was measured in another setting too."""
    parts = []
    for variant in LOOPS:
        cases = [
            case
            for case in _measured(chosen, lambda _case: True)
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
            for loop in (original, variant.name):
                found = figure(run, case, loop)
                row.append(cell(run, case, loop, None if found is None else short(found.median)))
            row.append(times(ratio(run, case, original, variant.name)))
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
    """List every row in which another loop is ahead of goloop."""
    lines = []
    for case in _measured(chosen, lambda case: case.target is None):
        run = chosen[case.name]
        if OURS not in run.samples.get(case.name, {}):
            lines.append(f"- {case.title}: goloop has no figure.")
            continue
        # Every package costs more than asyncio alone; the table above says how much.
        ahead = [] if case.kind == "startup" else behind(run, case)
        if ahead:
            lines.append(f"- {case.title}: {', '.join(ahead)} as good.")
    if not lines:
        return f"In no row is a loop more than {LEVEL:.0%} ahead."
    return (
        "Rows in which a loop is more than "
        f"{LEVEL:.0%} ahead, with how many times goloop's figure it reaches:\n\n" + "\n".join(lines)
    )


def failures(chosen: Chosen) -> str:
    """List what did not finish, in the words of the program that failed."""
    lines = []
    for case in _measured(chosen, lambda _case: True):
        run = chosen[case.name]
        for loop, sentence in run.errors.get(case.name, {}).items():
            finished = len(run.samples.get(case.name, {}).get(loop, {}))
            lines.append(
                f"- {case.title}: {loop} finished {finished} of {run.rounds} rounds: {sentence}"
            )
    return "\n".join(lines)


# ---- choices -------------------------------------------------------------------------


def _measured(chosen: Chosen, wanted: plot.Wanted) -> list[Case]:
    return [case for case in CASES if case.name in chosen and wanted(case)]


def _loops(chosen: Chosen, cases: Sequence[Case]) -> list[str]:
    """Return the loops with a figure or a failure in one of the cases, in catalogue order.

    Not those that are another loop in another setting: see variants().
    """
    present: set[str] = set()
    for case in cases:
        run = chosen[case.name]
        present |= run.samples.get(case.name, {}).keys() | run.errors.get(case.name, {}).keys()
    return [loop.name for loop in LOOPS if loop.name in present and not loop.variant_of]


def _disturbances(chosen: Chosen) -> tuple[int, int, int]:
    """Count the network windows whose account is known, the disturbed of them, the unknown."""
    known = bad = unknown = 0
    for name, run in chosen.items():
        if BY_NAME[name].kind != "net":
            continue
        # As machine.interrupts_apart() takes a kernel of which it knows nothing.
        apart = run.machine.get("interrupts") != "within"
        for rounds in run.samples.get(name, {}).values():
            for sample in rounds.values():
                found = disturbed(sample, interrupts_apart=apart)
                known += found is not None
                bad += bool(found)
                unknown += found is None
    return known, bad, unknown


def _shown_part(chosen: dict[str, Chosen]) -> list[Run]:
    """Return the runs that are shown, without the cases that a newer run replaced."""
    kept: dict[int, Run] = {}
    for by_case in chosen.values():
        for run in by_case.values():
            kept[id(run)] = run
    parts = []
    for run in kept.values():
        mine = {case for by_case in chosen.values() for case in by_case if by_case[case] is run}
        parts.append(
            Run(
                **{
                    **vars(run),
                    "samples": {name: run.samples[name] for name in run.samples if name in mine},
                    "errors": {name: run.errors[name] for name in run.errors if name in mine},
                }
            )
        )
    return sorted(parts, key=lambda run: (run.tag, run.date))
