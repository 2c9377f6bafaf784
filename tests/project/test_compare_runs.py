"""`goloop compare --run` with a client that counts its requests, and the picture."""

from __future__ import annotations

import io
import json
import os
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from goloop.operations.commands import compare
from goloop.operations.compare import arguments, counts, results, rounds, servers
from goloop.operations.compare.output import picture, report

CLIENT = str(Path(__file__).with_name("programs") / "compared_client.py")
SIX_RUNS = ["--run", CLIENT, "--loops", "goloop,asyncio", "--rounds", "6"]

pytestmark = pytest.mark.goloop_only("asyncio has no such command")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def measured(*words: str) -> rounds.Measurement:
    return rounds.measure(arguments.parse([*SIX_RUNS, *words]), lambda progress: None)


# ---- automatic rounds ----------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "rounds_made"), [(40, 2), (1, 1)])
def test_automatic_rounds_go_on_while_they_are_needed(
    monkeypatch: pytest.MonkeyPatch, most: int, rounds_made: int
) -> None:
    monkeypatch.setattr(results, "needs_rounds", lambda found: found.rounds < 2)
    monkeypatch.setattr(rounds, "MOST_ROUNDS", most)
    found = measured("--rounds", "auto")
    assert found.rounds == rounds_made
    assert f"\n{rounds_made} rounds\n" in "\n".join(report.lines(found, "the machine"))


# ---- counted requests ----------------------------------------------------------------------------


def test_a_client_that_counts_has_a_rate_and_cpu_time(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare.main([*SIX_RUNS, "--json", "found.json"]) == 0
    shown = capsys.readouterr().out
    assert "\nthe program's requests\n  loop     requests/s" in shown
    assert "CPU/request" in shown
    assert "requests/s ÷ asyncio" in shown
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    assert found["unit"] == "requests"
    (load,) = found["loads"]
    assert {each["quantity"] for each in load["comparisons"]} == {"rate", "seconds", "cpu"}
    for row in load["loops"].values():
        assert row["rate"] > 0
    for sample in load["samples"]:
        assert sample["requests"] == 200
    assert not [each for each in load["comparisons"] if "fewer than" in each["reason"]]


def test_the_time_and_the_noun_are_those_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNT", "{number} messages in 0.125 s")
    found = measured("--rounds", "1")
    assert found.unit == "messages"
    assert [(each.requests, each.seconds) for each in found.samples] == [(200, 0.125)] * 2
    shown = "\n".join(report.lines(found, "the machine"))
    assert "messages/s ÷ asyncio" in shown
    assert "CPU time for one of the messages" in shown


def test_the_start_of_the_program_is_not_of_its_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNT", "{number} requests")
    begin = time.monotonic() - 1000
    monkeypatch.setattr(servers.Program, "start_costs", lambda program: (500.0, begin))
    for sample in measured("--rounds", "1").samples:
        assert sample.cpu is not None
        assert sample.cpu < 0  # 500 s less than the process used
        assert sample.seconds >= 1000


def test_start_costs_are_those_of_each_process_before_its_loop() -> None:
    program = servers.Program.__new__(servers.Program)
    lines = "process 7\nchosen a.Loop 0.25 10.5\nprocess 8\nchosen a.Loop 0.5 11.0\n"
    program._record = io.StringIO(lines)
    assert program.start_costs() == (0.75, 10.5)


def test_a_program_that_counts_in_some_runs_only_is_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COUNT", "{number} {loop}")
    found = measured("--rounds", "1")
    (failure,) = found.failures.values()
    assert "the program counts " in str(failure)
    assert "let each run end with the same kind of line" in str(failure)


@pytest.mark.parametrize(
    ("output", "count"),
    [
        ("5000 requests", counts.Count(5000, "requests")),
        ("5000 requests in 2 s", counts.Count(5000, "requests", 2.0)),
        ("5,000 requests in 2.5 s\n\n", counts.Count(5000, "requests", 2.5)),
        ("1 warning\n  12,345,678 queries  \n \n", counts.Count(12345678, "queries")),
        ("100 requests in 0.00 s", counts.Count(100, "requests")),
        ("12 requests\n0 errors", None),
        ("12 requests\nbye", None),
        ("done\n3 rows were written", None),
        ("5_000 requests", None),
        ("5,00 requests", None),
        ("5000 requests in 2.5s", None),
        ("1.5 s", None),
        ("999999999999999 rows", counts.Count(10**15 - 1, "rows")),
        ("1000000000000000 rows", None),
        ("9" * 5000 + " rows", None),
        ("5 rows in " + "9" * 400 + " s", None),
        ("", None),
    ],
)
def test_the_last_line_is_read_as_a_count(output: str, count: counts.Count | None) -> None:
    assert counts.read_count(output) == count


def test_help_and_page_have_the_rule_of_the_last_line() -> None:
    page = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()
    for words in (page, arguments.USAGE):
        assert "last line of output that is not empty" in " ".join(words.split())


# ---- the picture ---------------------------------------------------------------------------------


def words_of(path: Path) -> list[str | None]:
    root = ElementTree.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    return [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]


def test_the_last_line_names_the_file_of_the_picture(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare.main(SIX_RUNS) == 0
    shown = capsys.readouterr().out
    assert shown.endswith("\n\npicture: goloop-compare.svg\n")
    words = words_of(folder / "goloop-compare.svg")
    assert words[:3] == [
        "Divided by asyncio's, with 95 % intervals",
        "the program's requests: requests/s, more is better",
        "goloop",
    ]
    assert words[3] is not None
    assert words[3].partition(" disturbed")[0] in shown
    assert "the program's requests: CPU time for a request, less is better" in words


def test_the_file_of_the_picture_is_chosen_by_an_option(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare.main([*SIX_RUNS, "--rounds", "1", "--json", "-"]) == 0
    json.loads(capsys.readouterr().out)
    assert os.listdir(folder) == []
    assert compare.main([*SIX_RUNS, "--rounds", "1", "--json", "-", "--svg", "other.svg"]) == 0
    json.loads(capsys.readouterr().out)
    assert os.listdir(folder) == ["other.svg"]


def test_a_picture_that_cannot_be_written_is_no_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert compare.main([*SIX_RUNS, "--rounds", "1", "--svg", "missing/a.svg"]) == 0
    shown = capsys.readouterr()
    assert "picture:" not in shown.out
    assert "the picture cannot be written ([Errno 2]" in shown.err
    assert "name another file by --svg" in shown.err


def test_results_that_cannot_be_written_are_still_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert compare.main([*SIX_RUNS, "--rounds", "1", "--json", "missing/a.json"]) == 1
    shown = capsys.readouterr()
    assert "\nthe program's requests\n  loop     requests/s" in shown.out
    assert shown.err.startswith("goloop compare: the results cannot be written ([Errno 2]")
    assert shown.err.endswith("name another file by --json\n")


def test_there_is_no_picture_without_a_ratio(folder: Path) -> None:
    found = rounds.Measurement(arguments.parse(SIX_RUNS), [rounds.Scenario(0)], [], [])
    assert picture.draw(found) is None
