"""The statistics and the words of `goloop compare`, with samples whose truth is known."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from goloop.operations import proc_stat
from goloop.operations.compare import results, verdicts
from goloop.operations.compare.arguments import Plan
from goloop.operations.compare.loops import parse_loops
from goloop.operations.compare.measuring import intervals, machine, others, text
from goloop.operations.compare.measuring.turns import Failure, take_turns
from goloop.operations.compare.output import report
from goloop.operations.compare.rounds import Measurement, Sample, Scenario, progress_words

FULL = Scenario(4)
ROUNDS = 9
BURSTS = 3


def measured(
    speeds: dict[str, float],
    seed: int = 1,
    noise: float = 0.01,
    rounds: int = ROUNDS,
    change: Callable[[Sample], Sample] = lambda sample: sample,
) -> Measurement:
    """A measurement of loops with these speeds, on a machine whose own speed drifts by half."""
    chance = random.Random(seed)
    loops = parse_loops(",".join(f"{name}=made:{name}" for name in speeds))
    found = Measurement(Plan(["server.py"], loops, "http"), [FULL], [0], [1], rounds=rounds)
    for number in range(rounds):
        drift = chance.uniform(0.7, 1.3)
        for _ in range(BURSTS):
            for name, speed in speeds.items():
                rate = 10_000 * speed * drift * chance.gauss(1, noise)
                time = 4 / rate
                made = Sample(
                    FULL, name, number, round(rate), 1.0, 0.9, 0.5, time, 2 * time, ""
                )  # fmt: skip
                found.samples.append(change(made))
    return found


def verdict(found: Measurement, quantity: results.Quantity = results.RATE) -> str:
    first, second = (loop.name for loop in found.plan.loops)
    return results.compare(found, FULL, second, first, quantity).verdict.word


@pytest.mark.parametrize("seed", range(20))
def test_a_loop_that_is_slower_by_a_fifth_is_slower(seed: int) -> None:
    found = measured({"asyncio": 1.0, "slow": 1 / 1.2}, seed, noise=0.03)
    assert verdict(found) == "slower"
    assert verdict(found, results.P99) == "slower"
    assert verdict(found, results.CPU) == "slower"
    assert verdict(measured({"slow": 1 / 1.2, "asyncio": 1.0}, seed, noise=0.03)) == "faster"


def test_the_same_loop_twice_is_no_difference() -> None:
    assert verdict(measured({"one": 1.0, "two": 1.0}, noise=0.005)) == "no difference"


def test_the_same_loop_twice_is_rarely_called_different() -> None:
    words = [verdict(measured({"one": 1.0, "two": 1.0}, seed, noise=0.1)) for seed in range(400)]
    wrong = sum(word in ("faster", "slower") for word in words)
    assert wrong <= 0.08 * len(words)
    assert "can't tell" in words


def test_a_wide_interval_around_one_cannot_tell() -> None:
    found = measured({"one": 1.0, "two": 1.0}, noise=0.3)
    made = results.compare(found, FULL, "two", "one", results.RATE)
    assert made.verdict.word == "can't tell"
    assert "--rounds" in made.verdict.reason


def test_fewer_than_six_rounds_cannot_tell() -> None:
    found = measured({"asyncio": 1.0, "slow": 0.5}, rounds=5)
    made = results.compare(found, FULL, "slow", "asyncio", results.RATE)
    assert made.verdict == verdicts.Verdict(
        "can't tell", "5 rounds were measured, and an interval needs 6"
    )
    assert verdict(measured({"asyncio": 1.0, "slow": 0.5}, rounds=6)) == "slower"


def test_disturbed_bursts_do_not_count() -> None:
    def spoil(sample: Sample) -> Sample:
        if sample.loop == "two" and sample.round % 3 == 0:
            return replace(sample, requests=sample.requests // 10, disturbance="others")
        return sample

    made = results.compare(
        measured({"one": 1.0, "two": 1.0}, noise=0.005, change=spoil),
        FULL,
        "two",
        "one",
        results.RATE,
    )
    assert made.verdict.word == "no difference"
    assert made.ratio is not None
    assert made.ratio.rounds == 6


def test_many_disturbed_bursts_cannot_tell() -> None:
    def spoil(sample: Sample) -> Sample:
        return replace(sample, disturbance="others" if sample.round % 2 else "")

    found = measured({"asyncio": 1.0, "slow": 0.5}, rounds=20, change=spoil)
    made = results.compare(found, FULL, "slow", "asyncio", results.RATE)
    assert made.verdict == verdicts.Verdict("can't tell", "50% of the bursts were disturbed")


def test_cpu_time_is_judged_where_most_bursts_are_disturbed() -> None:
    def spoil(sample: Sample) -> Sample:
        return replace(sample, disturbance="others" if sample.round % 4 else "")

    found = measured({"asyncio": 1.0, "slow": 1 / 1.11}, change=spoil)
    rate = results.compare(found, FULL, "slow", "asyncio", results.RATE)
    cpu = results.compare(found, FULL, "slow", "asyncio", results.CPU)
    for each in (rate, cpu):
        assert each.disturbed
        assert each.ratio is not None
        assert each.ratio.rounds == ROUNDS  # the disturbed ones count
    assert rate.verdict == verdicts.Verdict("can't tell", "67% of the bursts were disturbed")
    assert rate.sentence().startswith("slow and asyncio: can't tell the requests/s apart: 0.90 (")
    assert rate.sentence().endswith("), disturbed (67% of the bursts were disturbed)")
    assert cpu.verdict.word == "slower"
    assert cpu.sentence().endswith(") times the CPU time for a request, disturbed")
    text = "\n".join(report.lines(found, "the machine"))
    assert re.search(r"  slow  .* 0\.90 \(0\.\d\d–0\.\d\d\) disturbed\n", text)
    (load,) = results.as_json(found, {})["loads"]
    assert {each["disturbed"] for each in load["comparisons"]} == {True}


@pytest.mark.parametrize("seed", range(40))
def test_the_same_loop_twice_has_no_winner_on_a_disturbed_machine(seed: int) -> None:
    found = measured(
        {"one": 1.0, "two": 1.0}, seed, 0.005, change=lambda each: replace(each, disturbance="x")
    )
    assert verdict(found) == "can't tell"
    assert verdict(found, results.CPU) == "no difference"


def test_loops_that_answer_no_request_have_no_table() -> None:
    def fail(sample: Sample) -> Sample:
        return replace(sample, requests=0, p50=None, p99=None, disturbance="no request")

    found = measured({"goloop": 1.0, "asyncio": 1.0}, change=fail)
    assert results.rows(found, FULL) == []
    assert "full load" not in "\n".join(report.lines(found, "the machine"))


def unanswered(loop: str, every: int) -> Callable[[Sample], Sample]:
    """A change of samples: a loop answers nothing in one of so many rounds."""

    def change(sample: Sample) -> Sample:
        if sample.loop != loop or sample.round % every:
            return sample
        return replace(sample, requests=0, p50=None, p99=None)

    return change


def test_a_loop_without_answers_in_some_bursts_is_not_compared() -> None:
    found = measured({"asyncio": 1.0, "goloop": 1.0}, noise=0.005, change=unanswered("goloop", 3))
    reason = "goloop answered nothing in 9 of 27 bursts"
    for loop, reference in (("goloop", "asyncio"), ("asyncio", "goloop")):
        for quantity in (results.RATE, results.P99, results.CPU):
            made = results.compare(found, FULL, loop, reference, quantity)
            assert made.verdict == verdicts.Verdict("can't tell", reason)
            assert made.ratio is None
    text = "\n".join(report.lines(found, "the machine"))
    assert f"\n  goloop and asyncio: can't tell ({reason})\n" in text
    assert f"note: {reason} with 4 connections, full load" in text
    assert "disturbed 0 of 45 bursts" in text
    assert results.disturbed_bursts(found) == (45, 0)
    (load,) = results.as_json(found, {})["loads"]
    assert load["loops"]["goloop"]["unanswered"] == 9
    assert load["loops"]["asyncio"]["unanswered"] == 0


def test_bursts_without_an_answer_count_in_the_rate_of_their_loop() -> None:
    found = measured({"asyncio": 1.0, "goloop": 1.0}, change=unanswered("goloop", 1))
    found.samples[:6] = measured({"asyncio": 1.0, "goloop": 1.0}, rounds=1).samples
    rows = {row.loop: row for row in results.rows(found, FULL)}
    assert rows["goloop"].values["rate"] == 0
    assert (rows["goloop"].disturbed, rows["goloop"].unanswered) == (0, 24)
    assert rows["asyncio"].unanswered == 0


def test_two_loops_without_answers_are_both_named_with_the_way_out() -> None:
    def slow(sample: Sample) -> Sample:
        requests = int(sample.round > (2 if sample.loop == "goloop" else 4))
        return replace(sample, requests=requests, disturbance="others" * (1 - requests))

    found = measured({"asyncio": 1.0, "goloop": 1.0}, change=slow)
    made = results.compare(found, FULL, "goloop", "asyncio", results.RATE)
    assert made.verdict.reason == (
        "goloop answered nothing in 9 of 27 bursts, asyncio answered nothing in 15 of 27 bursts: "
        "for slow requests pass a larger --seconds"
    )
    assert results.disturbed_bursts(found) == (30, 0)
    found.samples[0] = replace(found.samples[0], errors=5)  # closed connections, not a slow answer
    made = results.compare(found, FULL, "goloop", "asyncio", results.RATE)
    assert made.verdict.reason.endswith("asyncio answered nothing in 15 of 27 bursts")


# ---- rounds and progress -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rounds", "noise", "disturbance", "goes_on"),
    [
        (0, 0.001, "", True),
        (5, 0.001, "", True),  # no interval yet
        (6, 0.001, "", False),
        (9, 0.2, "", True),
        (9, 0.001, "others", False),
        (9, 0.2, "others", True),  # of CPU time: the rate cannot be told by any number
    ],
)
def test_automatic_rounds_end_with_narrow_intervals(
    rounds: int, noise: float, disturbance: str, goes_on: bool
) -> None:
    found = measured(
        {"asyncio": 1.0, "slow": 0.5},
        noise=noise,
        rounds=rounds,
        change=lambda each: replace(each, disturbance=disturbance),
    )
    assert results.needs_rounds(found) is goes_on


def test_a_loop_that_failed_needs_no_further_rounds() -> None:
    speeds = {"asyncio": 1.0, "again": 1.0, "failed": 1.0}
    for failed in ("failed", "asyncio"):
        found = measured(speeds, noise=0.001)
        found.samples = [s for s in found.samples if s.loop != failed or s.round < 2]
        assert results.needs_rounds(found)
        found.failures[failed] = Failure("the server ended")
        assert not results.needs_rounds(found)


def test_a_wide_rate_needs_no_round_if_only_cpu_time_can_be_told() -> None:
    def spoil(sample: Sample) -> Sample:
        chance = random.Random(f"{sample.loop} {sample.round} {sample.requests}")
        requests = sample.requests * chance.uniform(0.2, 1)
        return replace(sample, requests=round(requests), cpu=requests * 1e-4, disturbance="others")

    found = measured({"asyncio": 1.0, "slow": 0.5}, change=spoil)
    rate = results.compare(found, FULL, "slow", "asyncio", results.RATE)
    assert rate.ratio is not None
    assert not rate.ratio.within(verdicts.NEAR)
    assert not results.needs_rounds(found)


def test_the_progress_tells_the_disturbed_bursts_and_their_programs() -> None:
    def spoil(sample: Sample) -> Sample:
        return replace(sample, disturbance="others" if sample.loop == "two" else "")

    found = measured({"one": 1.0, "two": 1.0}, rounds=1, change=spoil)
    found.others.shares = lambda: {"cc1": 0.381, "make": 0.04, "idle": 0.001}  # type: ignore[method-assign]
    found.plan.rounds = 9
    assert progress_words(found, 2.0) == (
        "round 2 of 9, 16 s left, 3 of 6 bursts disturbed by cc1 38 %, make 4 %"
    )
    note = "other programs or the host (cc1 38 %, make 4 % of a core) disturbed 3 of 6 bursts"
    assert note in "\n".join(report.lines(found, "the machine"))
    found.plan.rounds = None
    assert progress_words(found, 2.0).startswith("round 2 of at most 40, 3 of 6 bursts")
    quiet = measured({"one": 1.0, "two": 1.0}, rounds=1)
    assert progress_words(quiet, 2.0) == "round 2 of 9, 16 s left"
    assert progress_words(measured({"one": 1.0, "two": 1.0}, rounds=0), 0.0) == "round 1 of 9"


@pytest.mark.forks
def test_the_largest_users_are_other_programs(tmp_path: Path) -> None:
    """A program of another family works until it is seen; one of ours does all the time."""
    name = "other work"
    spin = f"open('/proc/self/comm', 'w').write({name!r})\nprint(flush=True)\nwhile True: pass"
    apart = "import os, sys\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
    apart += f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
    found = others.OtherPrograms()
    found.look()
    assert found.shares() == {}
    own = subprocess.Popen([sys.executable, "-c", spin.replace("other", "own")], stdout=-1)
    with own, subprocess.Popen([sys.executable, "-c", apart + spin], stdout=-1) as other:
        assert own.stdout is not None
        assert other.stdout is not None
        try:
            assert own.stdout.readline() == other.stdout.readline() == b"\n"
            while name not in found.shares():
                found.look()
            before = found.shares()
            while proc_stat.cpu_seconds(own.pid) == 0:
                found.look()
        finally:
            own.kill()
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert before[name] > 0
    assert "own work" not in found.shares()


def test_the_largest_users_in_words() -> None:
    shares = {"cc1": 0.5, "(a b)": 0.25, "sh": 0.125, "make": 0.06}
    assert others.in_words(shares) == "cc1 50 %, (a b) 25 %, sh 12 %"
    assert others.in_words({"sshd": 0.01}) == ""


def test_programs_in_sessions_of_the_measured_ones_are_not_others() -> None:
    def process(parent: int, session: int) -> others.Process:
        return others.Process("x", parent, session, 0, 0.0)

    found = {
        10: process(1, 10),  # the present process, which leads a session
        11: process(10, 11),  # a server
        12: process(11, 11),
        13: process(1, 11),  # an orphan of the same session
        14: process(1, 10),  # another job of the same session
        15: process(1, 1),
    }
    assert others.measured(found, 10) == {10, 11, 12, 13}


def test_sessions_stay_measured_after_their_leaders_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, alien = os.getpid(), 4_999_999
    session = os.getsid(0)

    def process(name: str, parent: int, session: int, cpu: float) -> others.Process:
        return others.Process(name, parent, session, 0, cpu)

    before = {
        own: process("own", 1, session, 0.0),
        5_000_000: process("leader", own, 5_000_000, 0.0),
        5_000_001: process("child", 5_000_000, 5_000_000, 0.0),
        alien: process("alien", 1, session, 0.0),
    }
    after = {
        own: before[own],
        5_000_001: process("child", 1, 5_000_000, 3.0),
        5_000_011: process("begun", 1, 5_000_010, 2.0),  # without a leader in any look
        alien: process("alien", 1, session, 1.0),
    }
    found = others.OtherPrograms()
    monkeypatch.setattr(others, "_processes", lambda: before)
    found.look()
    found.add_session(5_000_010)
    monkeypatch.setattr(others, "_processes", lambda: after)
    found.look()
    found.look()
    assert set(found.shares()) - {others.HOST} == {"alien"}


# ---- verdicts ------------------------------------------------------------------------------------


def test_few_requests_cannot_tell_rates_but_cpu_time() -> None:
    def few(sample: Sample) -> Sample:
        requests = sample.requests // 1000
        return replace(sample, requests=requests, cpu=requests * 1e-4)

    found = measured({"asyncio": 1.0, "slow": 0.5}, change=few)
    assert verdict(found) == "can't tell"
    assert verdict(found, results.CPU) == "no difference"


def test_a_busy_load_generator_cannot_tell() -> None:
    def busy(sample: Sample) -> Sample:
        return replace(sample, client_cpu=0.99, cpu=0.6)

    found = measured({"asyncio": 1.0, "slow": 0.5}, change=busy)
    made = results.compare(found, FULL, "slow", "asyncio", results.RATE)
    assert made.verdict.reason == "the load generator was busier than the server"
    found.server_cores = found.client_cores  # a single core: the two take turns on it
    assert verdict(found) == "slower"


def test_each_loop_is_described_in_the_same_words() -> None:
    found = measured({"asyncio": 1.0, "goloop": 0.5}, noise=0.0)
    slower = results.compare(found, FULL, "goloop", "asyncio", results.RATE).sentence()
    other = results.compare(found, FULL, "asyncio", "goloop", results.RATE).sentence()
    assert slower.startswith("goloop is slower than asyncio: 0.50 (")
    assert slower.endswith(") times the requests/s")
    assert other.startswith("asyncio is faster than goloop: 2.0")
    cpu = results.compare(found, FULL, "goloop", "asyncio", results.CPU).sentence()
    assert cpu.startswith("goloop needs more CPU time than asyncio: 2.0")


def test_the_report_has_tables_verdicts_notes_and_failures() -> None:
    found = measured({"goloop": 0.5, "asyncio": 1.0, "uvloop": 1.0})
    found.failures["rloop"] = Failure("the server ended", "a\nb")
    found.failures["zuvloop"] = Failure("the server ended", "a\nb")
    text = "\n".join(report.lines(found, "the machine"))
    assert "4 connections, full load\n  loop     requests/s" in text
    assert "requests/s ÷ asyncio" in text
    assert "goloop is slower than uvloop: 0.50" in text
    assert "disturbed 0 of 81 bursts. Disturbed bursts are left out; if" in text
    assert "\nrloop, zuvloop failed: the server ended\n  | a\n  | b" in text


def test_the_page_shows_the_layout_of_the_report() -> None:
    page = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()
    found = measured({"asyncio": 1.0, "slow": 1 / 1.2, "again": 1.0}, noise=0.008)
    found.plan.program = ["server.py"]
    text = "\n".join(report.lines(found, "CPython 3.14.10, AMD EPYC, 2 cores, Linux 6.18"))
    assert f"```text\n{text}\n```" in page


def test_a_rate_that_a_loop_does_not_reach_is_a_note() -> None:
    found = measured({"asyncio": 1.0, "slow": 0.5})
    load = Scenario(4, 10_000.0)
    found.scenarios = [load]
    found.samples = [replace(sample, scenario=load) for sample in found.samples]
    text = "\n".join(report.lines(found, "the machine"))
    assert "p99 ÷ asyncio" in text
    assert "slow has a longer p99 than asyncio" in text
    assert "slow answered only" in text


def test_json_has_the_comparisons_of_all_loops() -> None:
    found = measured({"asyncio": 1.0, "slow": 0.5})
    made = results.as_json(found, {"goloop": "1"})
    (load,) = made["loads"]
    rate = next(each for each in load["comparisons"] if each["quantity"] == "rate")
    assert (rate["loop"], rate["reference"], rate["verdict"]) == ("slow", "asyncio", "slower")
    assert rate["low"] < rate["ratio"] < rate["high"] < 1
    assert len(load["samples"]) == 2 * ROUNDS * BURSTS


# Ranks of the 95 % interval of a median, as the tables of the sign test have them: twice
# the sum of the binomial below is at most 0.05, and with one term more it is above.
RANKS = {
    6: 1, 7: 1, 8: 1, 9: 2, 10: 2, 11: 2, 12: 3, 13: 3, 14: 3, 15: 4, 16: 4, 17: 5, 18: 5,
    19: 5, 20: 6, 21: 6, 22: 6, 23: 7, 24: 7, 25: 8, 30: 10, 40: 14, 50: 18, 100: 40,
}  # fmt: skip


def test_the_medians_interval_has_the_binomials_ranks() -> None:
    assert {count: intervals.rank(count) for count in RANKS} == RANKS
    assert [intervals.rank(count) for count in range(6)] == [None] * 6


def test_ratios_are_taken_inside_the_rounds_that_both_have() -> None:
    # The machine was twice as slow in round 1: the ratio of the medians would be 150/100.
    found = intervals.ratio({0: 200, 1: 100, 2: 200, 4: 7}, {0: 100, 1: 50, 2: 100, 3: 7})
    assert found == intervals.Ratio(2, None, None, 3)
    assert found.shown("×") == "2.00×"
    assert not found.within(1)
    values = {number: 1 + number / 100 for number in (5, 1, 4, 2, 6, 3, 0)}
    found = intervals.ratio(values, dict.fromkeys(range(7), 1.0))
    assert found == intervals.Ratio(1.03, 1.0, 1.06, 7)
    assert found.shown("×") == "1.03× (1.00–1.06)"
    assert found.within(0.03)
    assert not found.within(0.02)
    for ours, theirs in (({0: 1.0}, {1: 1.0}), ({}, {}), ({0: 1.0}, {0: 0.0})):
        assert intervals.ratio(ours, theirs) is None
    assert verdicts.judge(None, 0).word == "can't tell"


def test_turns_are_random_and_go_on_after_a_failure() -> None:
    turns: list[int] = []
    failures = []

    def measure(entrant: int) -> None:
        turns.append(entrant)
        if entrant == 3:
            raise Failure("out of luck")

    for number in (1, 1, 2):
        take_turns(range(8), measure, lambda *each: failures.append(each), number)
    assert sorted(turns[:8]) == list(range(8))
    assert turns[:8] == turns[8:16] != turns[16:]
    assert [(entrant, str(failure)) for entrant, failure in failures] == [(3, "out of luck")] * 3


# ---- disturbances --------------------------------------------------------------------------------

QUIET = machine.Account(cpu=0.5, waited=0.01, idle=1.0, interrupts=0.1, steal=0.0, whole=2.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"waited": 0.2}, "the program waited for a core for 20% of the time"),
        ({"idle": 0.5}, "other programs or the host used 25% of the cores"),
        ({"steal": 0.4}, "other programs or the host used 20% of the cores"),
        ({"idle": None}, None),
        ({"cpu": None}, None),
    ],
)
def test_disturbances_are_found(changes: dict[str, Any], words: str | None) -> None:
    account = replace(QUIET, **changes)
    assert machine.disturbance(account, client_cpu=0.4, seconds=1.0) == words


def test_a_server_on_the_only_core_may_wait_for_the_load_generator() -> None:
    account = replace(QUIET, waited=0.45, idle=0.5, whole=1.5)
    assert machine.disturbance(account, 0.4, 1.0, shares_core=True) == ""
    assert machine.disturbance(account, 0.4, 1.0) != ""
    assert machine.disturbance(replace(account, waited=0.6), 0.4, 1.0, shares_core=True) != ""


@pytest.mark.parametrize("apart", [True, False])
def test_account_is_the_difference_of_two_snapshots(
    monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    monkeypatch.setattr(machine, "excludes_interrupt_time", lambda: apart)
    before = machine.Snapshot(
        {7: 6.0, 9: 1.0}, {7: (4.0, 2.0)}, {1: (1.0, 0.5), 2: (5.0, 4.0)}, (10.0, 1.0, 0.0, 20.0)
    )
    after = machine.Snapshot(
        {7: 7.3}, {7: (4.2, 2.6)}, {1: (2.0, 1.3), 2: (5.1, 9.0), 3: (0.2, 0.0)},
        (10.5, 1.1, 0.2, 22.0),
    )  # fmt: skip
    found = machine.account(before, after)
    assert found.cpu == pytest.approx(1.3)  # process 9 has ended
    assert (found.user, found.system) == pytest.approx((0.2, 0.6))
    assert found.waited == pytest.approx(0.5)  # of the busiest thread, for other programs
    assert (found.idle, found.whole) == (0.5, 2.0)
    assert found.interrupts == pytest.approx(0.1 if apart else 0)
    assert machine.account(before, machine.Snapshot({}, {}, {}, None)).cpu is None


def test_the_cpu_time_of_a_process_has_its_ended_threads() -> None:
    pid = os.getpid()
    thread = threading.Thread(target=lambda: sum(range(200_000)))
    before = machine.snapshot([pid], [])
    began = time.process_time()
    thread.start()
    thread.join()
    spent = time.process_time() - began
    found = machine.account(before, machine.snapshot([pid], [])).cpu
    assert found is None or found >= spent > 0
    assert machine.cpu_seconds(2**22 + 1) is None


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(7.512e-5, "75.1 µs"), (9.996e-4, "1.00 ms"), (0.0123, "12.3 ms"), (2.5, "2.50 s")],
)
def test_times_have_three_digits(seconds: float, shown: str) -> None:
    assert text.duration(seconds) == shown


def test_the_machine_is_described_by_its_first_processor() -> None:
    facts = "vendor_id: AuthenticAMD\ncpu family: 26\nmodel: 2\nstepping: 1\nflags: fpu hypervisor"
    cpuinfo = f"processor: 0\n{facts}\n\nprocessor: 1\nmodel: 99\n".splitlines()
    assert machine.family(cpuinfo) == "AuthenticAMD family 26, model 2, stepping 1"
    assert machine.family([]) == "unknown"
    assert machine.hypervisor_name(cpuinfo, "", [], [[], []]) == "unnamed"
    named = machine.hypervisor_name(cpuinfo, "KVMKVMKVM", [], [["Maker"], ["Machine 5"]])
    assert named == "KVMKVMKVM (Maker Machine 5)"


@pytest.mark.parametrize(
    ("driver", "nanoseconds", "polling"),
    [
        (["haltpoll"], ["200000"], "200 µs"),
        (["haltpoll"], ["0"], "none"),
        (["intel_idle"], ["200000"], "none"),
        ([], [], "none"),
    ],
)
def test_a_machine_says_how_long_idle_cores_poll(
    driver: list[str], nanoseconds: list[str], polling: str
) -> None:
    assert machine.halt_polling(driver, nanoseconds) == polling
