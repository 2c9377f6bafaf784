"""The conditions of the shown runs: machines, versions, rounds, disturbed windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.allocator import setting
from benchmarks.cases import BY_NAME as CASES
from benchmarks.loops import BY_NAME, CEILINGS
from benchmarks.markdown import short
from benchmarks.quiet import Windows, windows
from benchmarks.results import Run
from benchmarks.tables import BASE, OURS, Chosen

# The kinds of cases whose windows have an account of the cores.
JUDGED = ("net", "client", "latency", "fixed")
# The costs of a machine, as ceiling/machine.c names them, with their units.
COSTS = (
    ("null_call_ns", "a system call that does nothing: {} ns"),
    ("wake_us", "a wake-up between two threads on two cores: {} µs"),
)


def facts(chosen: Chosen) -> str:
    """Write machine, versions, and the conditions of the runs."""
    runs = sorted({id(run): run for run in chosen.values()}.values(), key=lambda run: run.date)
    newest = runs[-1]
    lines = [*_machines(chosen, runs), f"- Interpreter: {newest.build}."]
    versions: dict[str, str] = {}
    absent: dict[str, str] = {}
    for run in runs:
        for loop, entry in run.loops.items():
            if "error" in entry:
                absent[loop] = entry["error"]
            elif loop in BY_NAME or loop in CEILINGS:  # not one that was measured once
                versions[loop] = entry["version"]
                absent.pop(loop, None)
    others = [newest.machine.get(key, "") for key in ("packages", "openssl", "services")]
    named = [*versions.values(), *filter(None, others)]
    lines.append(f"- Versions: {'; '.join(named)}.")
    lines += [f"- Not measured: {loop} ({why})." for loop, why in absent.items()]
    # The data has the command, the date and the tree of each run.
    for conditions, some in _alike(runs, _way).items():
        days = sorted({some[0].date[:10], some[-1].date[:10]})
        measured = f"{_rows(chosen, some)} rows, measured {' to '.join(days)}"
        lines.append(f"- {measured}: {conditions}.")
    notes = [*disturbances(chosen), *lost(chosen)]
    return "\n".join([*lines, *(f"- {line}" for line in notes)])


def processor(run: Run) -> str:
    """Write the processor of a run, with its family and model if the run recorded them."""
    found = run.machine
    family = found.get("family", "").removeprefix("AuthenticAMD ").removeprefix("GenuineIntel ")
    return found["processor"] + (f" ({family.partition(', stepping')[0]})" if family else "")


def machine(run: Run) -> str:
    """Write the machine of a run: as much of it as the run recorded, without the stepping."""
    found = run.machine
    words = [processor(run), f"{found['cores']} cores"]
    if "hypervisor" in found:
        # KVM gives its name three times, to fill the processor's answer.
        named = found["hypervisor"].replace("KVMKVMKVM", "KVM")
        words += [found["kernel"], f"hypervisor: {named}"]
    if found.get("polling", "none") != "none":
        words.append(f"idle cores poll for {found['polling']}")
    return ", ".join(words)


def costs(runs: Sequence[Run]) -> str:
    """Write the costs of a machine, each as the range over the runs; empty if none is known."""
    parts = []
    for key, text in COSTS:
        known = sorted(float(run.machine[key]) for run in runs if key in run.machine)
        ends = dict.fromkeys(short(value) for value in (known[:1] + known[-1:]))
        if ends:
            parts.append(text.format(" to ".join(ends)))
    return "; ".join(parts)


def rounds(run: Run) -> str:
    """Write how many rounds a run had."""
    if run.until:
        return (
            f"{run.rounds} to {run.max_rounds} rounds (until the interval of {OURS} ÷ {BASE} was "
            f"within ± {run.until:.0%})"
        )
    return "1 round" if run.rounds == 1 else f"{run.rounds} rounds"


def disturbances(chosen: Chosen) -> list[str]:
    """Write the number of disturbed windows."""
    served = {name: run for name, run in chosen.items() if CASES[name].kind in JUDGED}
    each = [count for name, run in served.items() for count in windows(run, name).values()]
    found = sum(each, Windows())
    words = f"Other programs or the host disturbed {found.disturbed} of {found.known} network"
    return [f"{words} windows."] if found.known else []


def lost(chosen: Chosen) -> list[str]:
    """Write the datagrams that the load generator sent again, of each loop that had some."""
    parts = []
    for name, run in chosen.items():
        for loop, rounds in run.samples.get(name, {}).items():
            again = sum(sample.get("lost", 0) for sample in rounds.values())
            if again:
                all_of_them = sum(sample["messages"] for sample in rounds.values())
                parts.append(f"{CASES[name].title}, {loop} {again:,.0f} of {all_of_them:,.0f}")
    words = "Datagrams without an answer for 100 ms, which were sent again"
    return [f"{words}: {'; '.join(parts)}."] if parts else []


def _machines(chosen: Chosen, runs: Sequence[Run]) -> list[str]:
    """Write a line for each machine, with its costs."""
    lines = []
    alike = _alike(runs, _place)
    for place, some in alike.items():
        count = f"Rows on this machine: {_rows(chosen, some)}. " if len(alike) > 1 else ""
        lines.append(f"- Machine: {place}. {count}".rstrip())
        found = costs(some)
        if found:
            lines.append(f"- Its costs, measured before each run: {found}.")
    return lines


def _place(run: Run) -> str:
    found = run.machine
    words = [machine(run), found["memory"], found["libc"]]
    if "hypervisor" not in found:
        words.insert(2, found["kernel"])
    return f"{', '.join(words)}; {run.cores}"


def _way(run: Run) -> str:
    gil = f"; PYTHON_GIL={run.gil}" if run.gil else ""
    return (
        f"{rounds(run)} of {run.seconds:g} s after {run.warmup:g} s; "
        f"load generator: {run.client}; {setting(run.allocator)}{gil}"
    )


def _alike(runs: Sequence[Run], words: Callable[[Run], str]) -> dict[str, list[Run]]:
    """Group runs by their words, in the order of each group's first run."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(words(run), []).append(run)
    return groups


def _rows(chosen: Chosen, some: Sequence[Run]) -> int:
    """Count the shown rows of some runs."""
    return sum(any(shown is run for run in some) for shown in chosen.values())
