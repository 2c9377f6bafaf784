"""pytest's options and fixtures of simulated tests, each in a pytest of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import ended
import pytest

PROGRAMS = Path(__file__).with_name("programs")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")

TESTS = (PROGRAMS / "tests_of_the_plugin.py").read_text()


def run(folder: Path, *options: str, tests: str = TESTS) -> str:
    """Return pytest's output for tests in a folder."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_project.py").write_text(tests)
    (folder / "seen").write_text("")
    words = ("-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *options)
    return ended.python(*words, cwd=folder, PYTHONPATH="", PYTEST_ADDOPTS="").stdout


def seeds(folder: Path) -> list[int]:
    """The seeds that test_seeds has run, in order."""
    return [int(line.split()[0]) for line in (folder / "seen").read_text().splitlines()]


def processes(folder: Path) -> set[str]:
    return {line.split()[1] for line in (folder / "seen").read_text().splitlines()}


def test_without_options_a_test_has_its_own_seeds(tmp_path: Path) -> None:
    said = run(tmp_path)
    assert "1 failed, 1 passed" in said
    assert "goloop-replay=io/7," in said
    assert "Two new processes gave the same run." in said
    assert seeds(tmp_path) == list(range(30))


def test_the_number_of_seeds(tmp_path: Path) -> None:
    assert "2 passed" in run(tmp_path, "--goloop-seeds=5")
    assert seeds(tmp_path) == list(range(5))


def test_long_exploration_reports_its_progress(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from goloop.testing.simulation import simulate\nsimulate.PROGRESS = 0.0\n"
    )
    said = run(tmp_path, "--goloop-seeds=3")
    assert [line for line in said.splitlines() if " of 3 seeds" in line] == [
        f"{test}: {done} of 3 seeds" for test in ("test_seeds", "test_fails") for done in (1, 2, 3)
    ]


def test_short_exploration_reports_no_progress(tmp_path: Path) -> None:
    assert "of 3 seeds" not in run(tmp_path, "--goloop-seeds=3")


def test_option_seed_runs_one_seed(tmp_path: Path) -> None:
    said = run(tmp_path, "--goloop-seed=8")
    assert "1 failed, 1 passed" in said
    assert "goloop-replay=io/8," in said
    assert seeds(tmp_path) == [8]


def test_the_seed_0(tmp_path: Path) -> None:
    assert "2 passed" in run(tmp_path, "--goloop-seed=0")
    assert seeds(tmp_path) == [0]


def test_a_replay(tmp_path: Path) -> None:
    said = run(tmp_path, "--goloop-replay=shuffle/11")
    assert "1 failed, 1 passed" in said
    assert "Simulation: seed 11, policy shuffle" in said
    assert seeds(tmp_path) == [11]


def test_seeds_over_processes(tmp_path: Path) -> None:
    said = run(tmp_path, "--goloop-jobs=3")
    assert "1 failed, 1 passed" in said
    assert "goloop-replay=io/7," in said  # the first that fails, as with one process
    assert sorted(seeds(tmp_path)) == list(range(30))
    assert len(processes(tmp_path)) == 3


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ("--goloop-replay=7", "--goloop-replay: a token of a simulation is like 'io/7', got '7'"),
        ("--goloop-replay=best/7", "policy must be"),
        ("--goloop-seeds=0", "argument --goloop-seeds: must be a whole number >= 1, got '0'"),
        ("--goloop-jobs=none", "argument --goloop-jobs: must be a whole number >= 1, got 'none'"),
    ],
)
def test_wrong_values(tmp_path: Path, option: str, error: str) -> None:
    said = run(tmp_path, option)
    assert error in said
    assert "passed" not in said


FIXTURES = (PROGRAMS / "tests_with_fixtures.py").read_text()


def test_fixtures(tmp_path: Path) -> None:
    assert "4 passed" in run(tmp_path, tests=FIXTURES)


BESIDE = (PROGRAMS / "beside_other_plugins.py").read_text()


def test_beside_anyios_plugin(tmp_path: Path) -> None:
    said = run(tmp_path, "-v", "-p", "anyio", tests=BESIDE)
    assert "3 passed" in said
