"""The results of `goloop compare`: medians of each loop, and the comparisons of two loops."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from .loops import ASYNCIO, GOLOOP
from .measuring.intervals import MIN_ROUNDS, Ratio, ratio
from .verdicts import (
    CANNOT_TELL,
    MOST_DISTURBED,
    NEAR,
    TOO_WIDE,
    Verdict,
    judge,
    round_values,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .rounds import Measurement, Sample, Scenario

# Loops that the others are compared with, if they are measured.
REFERENCES = (ASYNCIO.name, "uvloop")
# The load generator limits a burst if it used more of its core than this ...
_CLIENT_BUSY = 0.95
# ... and the server less of its core than this.
_SERVER_IDLE = 0.9
# Bursts with fewer requests than these are too short to compare rates.
MIN_REQUESTS = 100
# A server keeps up with a rate if it answers this share of the requests.
KEPT_UP = 0.97


@dataclass(frozen=True)
class Quantity:
    """A measured quantity: its name in JSON, in words and in a table, the words of the verdicts."""

    key: str
    words: str
    title: str
    more_is_better: bool
    better: str
    worse: str


_FASTER = True, "is faster than", "is slower than"
_LESS_TIME = False, "is faster than", "is slower than"
_LESS_CPU = False, "needs less CPU time than", "needs more CPU time than"
RATE = Quantity("rate", "requests/s", "requests/s", *_FASTER)
CPU = Quantity("cpu", "CPU time for a request", "CPU/request", *_LESS_CPU)
P50 = Quantity("p50", "p50", "p50", False, "has a shorter p50 than", "has a longer p50 than")
P99 = Quantity("p99", "p99", "p99", False, "has a shorter p99 than", "has a longer p99 than")
TIME = Quantity("seconds", "time", "time", *_LESS_TIME)
CPU_OF_RUN = Quantity("cpu", "CPU time", "CPU time", *_LESS_CPU)


@dataclass(frozen=True)
class Row:
    """The medians of a loop under a load, of its quiet bursts or of all if few are quiet.

    An unknown median is None. Bursts without an answer are neither disturbed nor unknown.
    """

    loop: str
    values: dict[str, float | None]
    bursts: int
    unanswered: int
    disturbed: int
    unknown: int
    errors: int


@dataclass(frozen=True)
class Comparison:
    """The ratio of two loops, of a quantity under a load, and the verdict on it.

    `disturbed` is true if so many bursts were disturbed that the ratio contains them.
    """

    loop: str
    reference: str
    quantity: Quantity
    ratio: Ratio | None
    verdict: Verdict
    disturbed: bool = False

    def shown(self) -> str:
        """Return the ratio with its interval, and with the mark of disturbed bursts; or "–"."""
        if self.ratio is None:
            return "–"
        return self.ratio.shown() + " disturbed" * self.disturbed

    def sentence(self) -> str:
        """Return the comparison as a sentence, in the same words for every loop."""
        both = f"{self.loop} and {self.reference}"
        mark = ", disturbed" * self.disturbed
        figures = "" if self.ratio is None else f": {self.ratio.shown()}"
        times = f"{figures} times the {self.quantity.words}{mark}" if figures else ""
        figures += mark if figures else ""
        if self.verdict.word == "faster":
            return f"{self.loop} {self.quantity.better} {self.reference}{times}"
        if self.verdict.word == "slower":
            return f"{self.loop} {self.quantity.worse} {self.reference}{times}"
        if self.verdict.word == "no difference":
            return f"{both}: no difference in {self.quantity.words}{figures}"
        return (
            f"{both}: can't tell the {self.quantity.words} apart{figures} ({self.verdict.reason})"
        )


def quantities(found: Measurement, scenario: Scenario) -> tuple[Quantity, ...]:
    """Return the quantities of a load; verdicts are given on the first and the last one."""
    if scenario.connections:
        return (RATE, P50, P99, CPU) if scenario.rate is None else (P99, RATE, P50, CPU)
    if not found.unit:
        return TIME, CPU_OF_RUN
    if found.unit == "requests":
        return RATE, TIME, CPU
    rate = f"{found.unit}/s"
    return (
        Quantity("rate", rate, rate, *_FASTER),
        TIME,
        Quantity("cpu", f"CPU time for one of the {found.unit}", "CPU for one", *_LESS_CPU),
    )


def title(found: Measurement, scenario: Scenario) -> str:
    """Return the heading of a load."""
    if scenario.connections or not found.unit:
        return str(scenario)
    return f"the program's {found.unit}"


def value(sample: Sample, key: str) -> float | None:
    """Return a quantity of a sample."""
    if key == "rate":
        return sample.requests / sample.seconds
    if key == "cpu":
        if sample.cpu is None or not sample.requests:
            return None
        return sample.cpu / sample.requests
    found: float | None = getattr(sample, key)
    return found


def rows(found: Measurement, scenario: Scenario) -> list[Row]:
    """Return the row of each loop that answered requests under a load."""
    made = []
    for loop in found.plan.loops:
        some = _samples(found, scenario, loop.name)
        if not any(sample.requests for sample in some):
            continue
        quiet = some
        if _disturbed_share(some) <= MOST_DISTURBED:
            quiet = [sample for sample in some if not sample.disturbance]
        values: dict[str, float | None] = {}
        for quantity in quantities(found, scenario):
            known = [v for s in quiet if (v := value(s, quantity.key)) is not None]
            values[quantity.key] = statistics.median(known) if known else None
        answered = _answered(some)
        unanswered = len(some) - len(answered)
        disturbed = sum(bool(sample.disturbance) for sample in answered)
        unknown = sum(sample.disturbance is None for sample in answered)
        errors = sum(sample.errors for sample in some)
        made.append(Row(loop.name, values, len(some), unanswered, disturbed, unknown, errors))
    return made


def references(found: Measurement) -> list[str]:
    """Return the loops that the others are compared with; the first one if no usual one is."""
    names = [loop.name for loop in found.plan.loops]
    return [name for name in REFERENCES if name in names] or names[:1]


def subjects(found: Measurement) -> list[str]:
    """Return the loops whose verdicts are sentences: goloop, or all if it is not measured."""
    names = [loop.name for loop in found.plan.loops]
    return [GOLOOP.name] if GOLOOP.name in names else names


def compare(
    found: Measurement, scenario: Scenario, loop: str, reference: str, quantity: Quantity
) -> Comparison:
    """Compare two loops under a load.

    There is no ratio if a loop answered nothing in a burst: the other bursts alone would make this
    loop look better than it is.
    """
    both = [_samples(found, scenario, name) for name in (loop, reference)]
    if missing := _missing_answers(both):
        return Comparison(loop, reference, quantity, None, Verdict(CANNOT_TELL, missing))
    share = _disturbed_share([sample for some in both for sample in some])
    disturbed = share > MOST_DISTURBED
    by_round = []
    for some in both:
        bursts = [
            (sample.round, v, bool(sample.disturbance) and not disturbed)
            for sample in some
            if (v := value(sample, quantity.key)) is not None
        ]
        by_round.append(round_values(bursts))
    made = ratio(*by_round)
    speed = made if quantity.more_is_better else _inverse(made)
    # Other programs take time from the rate and from latencies, but add nothing to the CPU time.
    limiting = 0.0 if quantity.key == "cpu" else share
    verdict = judge(speed, limiting, _obstacle(both, quantity, found), found.noun)
    return Comparison(loop, reference, quantity, made, verdict, disturbed)


def judged(found: Measurement, scenario: Scenario) -> list[Comparison]:
    """Return the comparisons whose verdicts are sentences of the report."""
    some = quantities(found, scenario)
    return [
        each
        for each in comparisons(found, scenario)
        if each.loop in subjects(found) and each.quantity in (some[0], some[-1])
    ]


def needs_rounds(found: Measurement) -> bool:
    """Return true if more rounds may change a verdict, or narrow a wide interval.

    The width decides, not the verdict, so that looking again after each round favours no loop. A
    ratio that another thing than the number of rounds makes useless needs none, nor does one of a
    loop that has failed and gets no further rounds.
    """
    if found.rounds < MIN_ROUNDS:
        return True
    for scenario in found.scenarios:
        for each in judged(found, scenario):
            if each.ratio is None or {each.loop, each.reference} & found.failures.keys():
                continue
            if each.ratio.low is None:
                return True
            if each.verdict.reason in ("", TOO_WIDE) and not each.ratio.within(NEAR):
                return True
    return False


def comparisons(found: Measurement, scenario: Scenario) -> list[Comparison]:
    """Return the comparisons of all loops with the references under a load."""
    measured = [row.loop for row in rows(found, scenario)]
    return [
        compare(found, scenario, loop, reference, quantity)
        for loop in measured
        for reference in references(found)
        if reference in measured and reference != loop
        for quantity in quantities(found, scenario)
    ]


def disturbed_bursts(found: Measurement) -> tuple[int, int]:
    """Return the numbers of bursts with a known disturbance, and of disturbed bursts.

    Bursts without an answer are left out.
    """
    known = [sample for sample in _answered(found.samples) if sample.disturbance is not None]
    return len(known), sum(bool(sample.disturbance) for sample in known)


def unknown_disturbances(found: Measurement) -> int:
    """Return the number of answered bursts whose disturbance is unknown."""
    return sum(sample.disturbance is None for sample in _answered(found.samples))


def unanswered_words(loop: str, unanswered: int, bursts: int) -> str:
    """Return the words for a loop that answered no request in some of its bursts."""
    return f"{loop} answered nothing in {unanswered} of {bursts} bursts"


def _answered(samples: Sequence[Sample]) -> list[Sample]:
    """Return the bursts in which at least one request was answered."""
    return [sample for sample in samples if sample.requests]


def _missing_answers(both: Sequence[Sequence[Sample]]) -> str:
    """Return that two loops did not answer in some of their bursts, as a reason; or ""."""
    counts = [(some, len(some) - len(_answered(some))) for some in both]
    words = ", ".join(
        unanswered_words(some[0].loop, missing, len(some)) for some, missing in counts if missing
    )
    samples = [sample for some in both for sample in some]
    is_slow = not any(sample.errors for sample in samples if not sample.requests)
    if words and is_slow and statistics.median(s.requests for s in samples) < MIN_REQUESTS:
        words += ": for slow requests pass a larger --seconds"
    return words


def _disturbed_share(samples: Sequence[Sample]) -> float:
    """Return the share of disturbed bursts among the answered ones."""
    answered = _answered(samples)
    return sum(bool(sample.disturbance) for sample in answered) / max(1, len(answered))


def _samples(found: Measurement, scenario: Scenario, loop: str) -> list[Sample]:
    """Return a loop's samples under a load."""
    return [s for s in found.samples if s.loop == loop and s.scenario == scenario]


def _inverse(found: Ratio | None) -> Ratio | None:
    """Return the ratio of speeds for a ratio of times."""
    if found is None:
        return None
    low = None if found.high is None else 1 / found.high
    high = None if found.low is None else 1 / found.low
    return Ratio(1 / found.median, low, high, found.rounds)


def _obstacle(both: Sequence[Sequence[Sample]], quantity: Quantity, found: Measurement) -> str:
    """Return why a quantity of these two loops cannot be compared, or ""."""
    if quantity.key not in ("rate", "p50", "p99") or not all(both) or found.plan.kind == "run":
        return ""
    if statistics.median(sample.requests for some in both for sample in some) < MIN_REQUESTS:
        return f"fewer than {MIN_REQUESTS} requests in a burst: pass a larger --seconds"
    if all(_is_client_limited(some, found) for some in both):
        return "the load generator was busier than the server"
    return ""


def _is_client_limited(some: Sequence[Sample], found: Measurement) -> bool:
    """Return true if the load generator limited most of the samples."""
    if found.server_cores == found.client_cores:
        return False
    limited = [
        sample.client_cpu > _CLIENT_BUSY * sample.seconds
        and sample.cpu is not None
        and sample.cpu < _SERVER_IDLE * sample.seconds
        for sample in some
    ]
    return sum(limited) > len(limited) / 2


def as_json(found: Measurement, facts: dict[str, Any]) -> dict[str, Any]:
    """Return all results for JSON, beginning with facts about the machine."""
    return {
        **facts,
        "program": found.plan.program,
        "kind": found.plan.kind,
        "loops": {loop.name: loop.factory for loop in found.plan.loops},
        "server_cores": found.server_cores,
        "client_cores": found.client_cores,
        "unit": found.unit or None,
        "rounds": found.rounds,
        "interrupted": found.interrupted,
        "other_programs": found.others.shares(),
        "failures": {
            name: {"message": str(failure), "output": failure.output}
            for name, failure in found.failures.items()
        },
        "loads": [_load_as_json(found, scenario) for scenario in found.scenarios],
    }


def _load_as_json(found: Measurement, scenario: Scenario) -> dict[str, Any]:
    """Return the results under a load for JSON; times are in seconds."""
    return {
        "connections": scenario.connections,
        "rate": scenario.rate,
        "loops": {
            row.loop: {
                **row.values,
                "bursts": row.bursts,
                "unanswered": row.unanswered,
                "disturbed": row.disturbed,
                "unknown": row.unknown,
                "errors": row.errors,
            }
            for row in rows(found, scenario)
        },
        "comparisons": [
            {
                "loop": each.loop,
                "reference": each.reference,
                "quantity": each.quantity.key,
                "ratio": each.ratio and each.ratio.median,
                "low": each.ratio and each.ratio.low,
                "high": each.ratio and each.ratio.high,
                "rounds": each.ratio.rounds if each.ratio else 0,
                "verdict": each.verdict.word,
                "reason": each.verdict.reason,
                "disturbed": each.disturbed,
            }
            for each in comparisons(found, scenario)
        ],
        "samples": [
            {
                name: value
                for name, value in vars(sample).items()
                if name not in ("scenario", "errors")
            }
            for sample in found.samples
            if sample.scenario == scenario
        ],
    }
