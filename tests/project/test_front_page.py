"""The front page: its sentence, table and pictures from made data; rows of other machines.

test_benchmarks.py compares the pages of the tree with docs/performance.json.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from benchmarks import __main__ as program
from benchmarks import cases, conditions, front, native, plot, report, results, svg, tables

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/index.md")
CASES = [*dict.fromkeys([*(name for _words, name in front.ROWS), "uvicorn-x100"])]
LOOPS = {"goloop": 1.2, "uvloop": 1.0, "zuvloop": 1.1, "asyncio": 0.8}


def made(processor: str = "a processor", rounds: int = 6, **rates: dict[str, float]) -> results.Run:
    """A run of all rows of the front page, and of uvicorn.

    `rates` has rates of loops by the case, with _ for its hyphens; other rates are those of LOOPS.
    """
    run = results.Run(
        python="3.14.3", build="CPython", command="python -m benchmarks run",
        date="2026-01-01 00:00:00",
        machine={
            "processor": processor, "kernel": "a kernel", "libc": "a libc", "openssl": "an openssl",
            "cores": "2", "memory": "1 GiB", "packages": "aiohttp 3", "null_call_ns": "100",
            "wake_us": "5",
        },
        client="C epoll", cores="two cores", rounds=rounds, seconds=1.0, warmup=0.1, commit="abc",
        loops={name: {"version": f"{name} 1"} for name in [*LOOPS, "c-epoll"]},
    )  # fmt: skip
    for name in CASES:
        for loop, rate in {**LOOPS, **rates.get(name.replace("-", "_"), {})}.items():
            for number in range(rounds):
                sample = {
                    "messages": rate * 1000, "seconds": 1.0, "p50_us": 1.0, "p99_us": 2.0,
                    "client_cpu": 0.5, "server_cpu": 0.6, "cores": 2, "idle": 0.9, "steal": 0.0,
                    "interrupts": 0.0,
                }  # fmt: skip
                ns = 100 / rate
                micro = cases.BY_NAME[name].kind == "micro"
                run.add(name, loop, number, {"ns": ns, "best_ns": ns} if micro else sample)
    return run


def chosen(run: results.Run) -> dict[str, tables.Chosen]:
    return {run.tag: dict.fromkeys(run.samples, run)}


# ---- the sentence and the table --------------------------------------------------------------


def test_headline_has_the_range_over_web_servers_and_the_lost_rows() -> None:
    run = made(
        fastapi_x100={"goloop": 1.5}, aiohttp_x4={"goloop": 0.8}, tls_1k_x4={"goloop": 9.0}
    )  # fmt: skip
    words = " ".join(front.headline(chosen(run), "img/", "").split())
    # aiohttp-x4 and fastapi-x100 are the ends; a row of TLS is no web server.
    assert words.startswith(
        "Web servers (aiohttp, FastAPI) answer 0.8 to 1.5 times as many requests per "
        "second as on uvloop, 1.0 to 1.9 times as many as on asyncio, and 0.7 to 1.4 times as "
        "many as on zuvloop. A request takes 25 % more to 33 % less processor time than on uvloop. "
        f"In 1 of {len(CASES)} measured rows another loop is better for certain, and by more than "
        "2% ([where](performance.md#where-other-loops-are-faster)).",
    )
    assert "processor," not in words


def test_headline_omits_a_loop_that_was_not_measured() -> None:
    run = made()
    for loops in run.samples.values():
        del loops["asyncio"]
    words = front.headline(chosen(run), "img/", "")
    assert "as on uvloop, and 1.1 to 1.1 times as many as on zuvloop. A request" in " ".join(
        words.split()
    )


def test_table_marks_ratios_that_may_be_one() -> None:
    run = made(fastapi_x4={"zuvloop": 1.2})
    for number in range(6):  # goloop ÷ uvloop is 0.9 and 1.1 in turns
        run.samples["fastapi-x4"]["uvloop"][number]["messages"] = 1200 / (0.9 + number % 2 * 0.2)
    text = front.block(chosen(run), "docs/")
    assert (
        "| FastAPI ×4 | *1.00* | *1.00* zuvloop | 1.50 | *1.01* | 1.20k/s | "
        "0.90–1.10, 1.00–1.00 |" in text
    )
    assert "| FastAPI ×100 | 1.20 | 1.09 zuvloop | 1.50 | 0.83 | 1.20k/s |" in text
    few = front.block(chosen(made(rounds=2)), "docs/")
    assert "| FastAPI ×100 | *1.20* | *1.09* zuvloop | *1.50* | *0.83* | 1.20k/s | –, – |" in few


@pytest.mark.parametrize("page", PAGES)
def test_a_narrow_screen_shows_the_ratio_to_the_best_other_loop(page: str) -> None:
    """Characters of the first three columns: more do not fit into 390 pixels."""
    lines = re.findall(r"^\| (?:program|.*×\d+|a task) \|.*$", (ROOT / page).read_text(), re.M)
    table = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in lines]
    assert len(table) == len(front.ROWS) + 1
    assert table[0][:3] == ["program", "÷ uvloop", "÷ best other"]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    assert sum(widths[:3]) <= 42


@pytest.mark.parametrize("page", PAGES)
def test_the_machine_of_the_figures_stands_once_below_the_table(page: str) -> None:
    text = " ".join((ROOT / page).read_text().split())
    found = front.chosen_run(report.Data.of([ROOT / "docs/performance.json"]).chosen)
    assert found is not None
    _version, runs = found
    newest = max((runs[name] for _words, name in front.ROWS), key=lambda run: run.date)
    assert text.count(conditions.machine(newest)) == 1
    assert text.index(conditions.machine(newest)) > text.index("| a task |")


def test_the_commands_to_try_stand_in_the_first_third() -> None:
    text = (ROOT / "README.md").read_text()
    assert 0 < text.index("make demo\nmake test\n") < len(text) / 3


# ---- the pictures ----------------------------------------------------------------------------


def test_front_picture_has_four_programs_on_four_loops(tmp_path: Path) -> None:
    run = made(client_aiohttp_x100={"goloop": 5.0})
    [path] = front.draw(chosen(run), tmp_path)
    text = path.read_text()
    assert re.findall(r'class="row">(.*?)<', text) == [
        "FastAPI", "streams", "aiohttp", "HTTP client",
    ]  # fmt: skip
    assert re.findall(r'class="key">(.*?)<', text) == ["goloop", "uvloop", "zuvloop", "asyncio"]
    assert re.findall(r'class="value ours">(.*?)<', text) == ["1.20", "1.20", "1.20", "»5.00"]
    # A column for each loop and program, a square for each loop, and the paper.
    assert text.count("<rect") == 4 * 4 + 4 + 1
    assert "CPython 3.14, a processor" in text
    # As wide as a telephone's column at most by a sixth, so that its text stays legible there.
    assert re.findall(r'width="(\d+)" role', text) == [str(front.WIDTH)]
    assert front.WIDTH <= 420


def test_plot_has_its_legend_on_top_and_plain_c_as_an_outline(tmp_path: Path) -> None:
    run = made(fastapi_x100={"c-epoll": 1.4})
    [path, _operations] = plot.draw(chosen(run)["cp314"], tmp_path, "cp314")
    text = path.read_text()
    keys = {name: float(y) for y, name in re.findall(r'y="([\d.]+)" class="key">(.*?)<', text)}
    bars = [float(y) for y in re.findall(r'<rect x="330.0" y="([\d.]+)"', text)]
    assert [*keys] == ["goloop", "asyncio", "zuvloop", svg.LIMITS["c-epoll"]]
    assert svg.LIMITS["c-epoll"].startswith("limit")
    assert max(keys.values()) < min(bars)
    outlines = re.findall(r'<rect [^>]*fill="none" stroke="var\(--c-epoll, [^>]*/>', text)
    assert len(outlines) == 2  # the legend's and the row's
    assert 'fill="var(--c-epoll' not in text
    assert "CPython 3.14.3, a processor, 2 cores" in text


# ---- other machines ------------------------------------------------------------------------


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder docs with the data of one machine, and the pages beside it."""
    docs = tmp_path / "docs"
    monkeypatch.setattr(report, "DOCS", docs)
    monkeypatch.setattr(program, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(native, "ROOT", tmp_path)
    docs.mkdir()
    for name in PAGES:
        shutil.copy(ROOT / name, tmp_path / name)
    results.save(docs / "performance.json", [made("the main processor")])
    return docs


def test_rows_of_another_machine_stand_beside_those_of_the_first(docs: Path) -> None:
    report.write(docs / "none")
    text = (docs / "performance.md").read_text()
    assert "Other machines" not in text
    assert "other machines" not in (docs / "index.md").read_text()
    other = made("the other processor", fastapi_x100={"goloop": 0.5})
    other.machine["wake_us"] = "50"
    del other.samples["streams-1k-x4"]
    results.save(docs.parent / "results" / "a.json", [other])
    before = (docs / "performance.json").read_text()
    assert program.main(["report", "--machine", "other"]) == 0
    assert (docs / "performance.json").read_text() == before
    [there] = results.load(docs / "performance-other.json")
    assert there.machine["processor"] == "the other processor"

    text = re.sub(" +", " ", (docs / "performance.md").read_text())
    section = text.partition("\n## Other machines\n")[2].partition("\n## ")[0]
    assert "- **A**: CPython 3.14.3 on the main processor, 2 cores; a system call" in section
    assert "- **B**: CPython 3.14.3 on the other processor, 2 cores; a system call" in section
    assert "on two cores: 50.0 µs." in section
    assert "| case | A: rate ÷ uvloop | A: CPU ÷ uvloop | B: rate ÷ uvloop |" in section
    row = "| FastAPI hello ×100 | 1.20 (1.20–1.20) | 0.83 (0.83–0.83) | 0.50 (0.50–0.50) |"
    assert row in section
    assert "streams" not in section.replace("streams echo, read(), 1 KiB ×100", "")
    lost = text.partition("\n### CPython 3.14.3 on machine B\n")[2]
    assert "| FastAPI hello ×100 | requests/s | zuvloop 2.20× (2.20–2.20), " in lost
    # The front page is of the first machine, and leads to the others.
    index = " ".join((docs / "index.md").read_text().split())
    assert "on the main processor" in index
    assert "[other machines](performance.md#other-machines)" in index
    assert "the other processor" not in index

    # Without new runs the pages are the same.
    shutil.rmtree(docs.parent / "results")
    assert program.main(["report"]) == 0
    assert re.sub(" +", " ", (docs / "performance.md").read_text()) == text


def test_a_machines_name_is_part_of_a_files_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program.main(["report", "--machine", "../elsewhere"])
    assert "lower-case letters, digits and hyphens, got '../elsewhere'" in capsys.readouterr().err
