"""A run's data, and its form as JSON.

A *run* is one command under one interpreter.  Figures are compared within a run
only, never across runs.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

FORMAT = 1
# A loop reaches a constant rate if it answers this share of the messages in its median round.
REACHED = 0.95
# The figures that a loop has even if it does not reach the rate.
RATES = {"rate", "asked"}
Sample = dict[str, float]
# The only setting of Python that is passed on to measured processes.
GIL = "PYTHON_GIL"


@dataclass
class Run:
    """A run.  Round numbers are keys, so that a failed round leaves a gap."""

    python: str
    build: str
    command: str
    date: str
    machine: dict[str, str]
    client: str
    cores: str
    rounds: int
    seconds: float
    warmup: float
    commit: str
    loops: dict[str, dict[str, str]]  # name -> version and class, or error
    # case -> loop -> round -> sample
    samples: dict[str, dict[str, dict[int, Sample]]] = field(default_factory=dict)
    # case -> loop -> the last error's sentence
    errors: dict[str, dict[str, str]] = field(default_factory=dict)
    # case -> why it can't be measured there
    missing: dict[str, str] = field(default_factory=dict)
    # Fields that older runs lack have defaults, so that their files still load.
    # The allocator's variables of every measured process; none: glibc's defaults.
    allocator: dict[str, str] = field(default_factory=dict)
    # Layouts of the heap, one in each round; 0: none, the run is one of the main tables.
    layouts: int = 0
    # The maximum number of rounds, and the share of goloop ÷ uvloop within which its interval
    # had to be to end them earlier; 0: there were exactly `rounds`.
    until: float = 0
    max_rounds: int = 0
    # PYTHON_GIL of every measured process; none: as the interpreter decides.
    gil: str = ""

    def add(self, case: str, loop: str, number: int, sample: Sample) -> None:
        """Record a sample."""
        self.samples.setdefault(case, {}).setdefault(loop, {})[number] = sample

    def fail(self, case: str, loop: str, sentence: str) -> None:
        """Record that a loop did not finish a round of a case."""
        self.errors.setdefault(case, {})[loop] = sentence

    def figures(self, case: str, loop: str, key: str) -> dict[int, float]:
        """Return one figure of each round; rates and CPU costs are derived here.

        Rounds without this figure are omitted: an older run does not have it.  A loop that does not
        reach a constant rate has no figures at this rate, in no round: its waiting times would be a
        function of the window's length.
        """
        rounds = self.samples.get(case, {}).get(loop, {})
        if key not in RATES and not self.reaches(case, loop):
            return {}
        found = {number: _figure(sample, key) for number, sample in rounds.items()}
        return {number: figure for number, figure in found.items() if figure is not None}

    def reaches(self, case: str, loop: str) -> bool:
        """Return false if a loop was slower than the constant rate that a case asks for."""
        shares = [
            sample["messages"] / sample["seconds"] / sample["asked"]
            for sample in self.samples.get(case, {}).get(loop, {}).values()
            if sample.get("asked")
        ]
        return not shares or statistics.median(shares) >= REACHED

    def tried(self, case: str) -> int:
        """Return the number of rounds of a case."""
        loops = self.samples.get(case, {}).values()
        return max([self.rounds, *(number + 1 for rounds in loops for number in rounds)])

    @property
    def tag(self) -> str:
        """Name the interpreter in file names: cp314, or cp314t without the GIL."""
        return "cp" + "".join(self.python.split(".")[:2]) + "t" * self.free_threaded

    @property
    def free_threaded(self) -> bool:
        """Return true if the interpreter was built to run without the GIL."""
        return "free-threading build" in self.build


def _figure(sample: Sample, key: str) -> float | None:
    if key == "rate":
        return sample["messages"] / sample["seconds"]
    if key == "server_us":  # microseconds of the server's CPU for a message
        found = sample.get("server_cpu")
        return None if found is None else 1e6 * found / max(sample["messages"], 1)
    return sample.get(key)


def dump(runs: Iterable[Run]) -> str:
    """Write runs as JSON text: one line for each loop of a case.

    The samples of a loop become columns, one list for each key, because hundreds
    of little objects with the same keys would make the file three times as long.
    """
    blocks = []
    for run in runs:
        head = dataclasses.asdict(run)
        samples = head.pop("samples")
        lines = [f"  {_json(key)}: {_json(value)}" for key, value in head.items()]
        cases = []
        for case, loops in samples.items():
            rows = [
                f"    {_json(loop)}: {_json(_columns(rounds))}" for loop, rounds in loops.items()
            ]
            cases.append(f"   {_json(case)}: {{\n" + ",\n".join(rows) + "\n   }")
        lines.append('  "samples": {\n' + ",\n".join(cases) + "\n  }")
        blocks.append(" {\n" + ",\n".join(lines) + "\n }")
    return f'{{"format": {FORMAT}, "runs": [\n' + ",\n".join(blocks) + "\n]}\n"


def load(path: Path) -> list[Run]:
    """Read the runs of a file.  Raises ValueError for a file of another format."""
    document = json.loads(path.read_text())
    if document.get("format") != FORMAT:
        raise ValueError(f"{path.name} is of format {document.get('format')}, not {FORMAT}")
    for entry in document["runs"]:
        entry["samples"] = {
            case: {loop: _rounds(columns) for loop, columns in loops.items()}
            for case, loops in entry["samples"].items()
        }
    return [Run(**entry) for entry in document["runs"]]


def _columns(rounds: dict[int, Sample]) -> dict[str, list[float]]:
    columns: dict[str, list[float]] = {"round": list(rounds)}
    for key in next(iter(rounds.values()), {}):
        # A counter that is missing in some rounds is not a column.
        if all(key in sample for sample in rounds.values()):
            columns[key] = [_rounded(sample[key]) for sample in rounds.values()]
    return columns


def _rounds(columns: dict[str, list[float]]) -> dict[int, Sample]:
    numbers = columns.pop("round")
    return {
        int(number): {key: values[index] for key, values in columns.items()}
        for index, number in enumerate(numbers)
    }


def _rounded(value: float) -> float:
    """Cut to six significant digits: more is noise."""
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() else short


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def save(path: Path, runs: Iterable[Run]) -> None:
    """Write a file so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(dump(runs))
    partial.replace(path)


def latest(
    runs: Iterable[Run],
    *,
    layouts: bool = False,
    fits: Callable[[Run, str], bool] = lambda _run, _case: True,
) -> dict[str, dict[str, Run]]:
    """Return tag -> case -> the newest run of that Python that measured the case.

    The runs are those of the main tables, or with `layouts` those of the allocator's table; `fits`
    selects among their rows.  A case counts as measured even if every loop failed, because
    failures are results.
    """
    chosen: dict[str, dict[str, Run]] = {}
    wanted = [run for run in runs if bool(run.layouts) == layouts]
    for run in sorted(wanted, key=lambda run: run.date):
        for case in [*run.samples, *run.errors]:
            if fits(run, case):
                chosen.setdefault(run.tag, {})[case] = run
    return chosen
