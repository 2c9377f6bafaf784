"""Tests that hang, and workers that end: the rest of the run goes on (support/limits.py)."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import ended
import limits
import pytest

import environments

pytestmark = pytest.mark.goloop_only("about the tests themselves")

ROOT = Path(__file__).resolve().parents[2]
OTHERS = "import pytest\n@pytest.mark.parametrize('n', range(8))\ndef test_other(n): pass\n"
# A test that an exception in the main thread ends, one that C code keeps, and two that end the
# process.
HANGS = "import time\ndef test_hangs(): time.sleep(1000)\n"
HOLDS = "\ndef test_holds(): sum(range(10**15))\n"
DIES = "import os\ndef test_dies(): os._exit(3)\n"
KILLED = "import os\ndef test_killed(): os.kill(os.getpid(), 9)\n"


def run(folder: Path, *words: str, **files: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on these tests and OTHERS, with a limit of a second."""
    for name, source in {**files, "others": OTHERS}.items():
        (folder / f"test_{name}.py").write_text(source)
    with (ROOT / "pyproject.toml").open("rb") as file:
        method = tomllib.load(file)["tool"]["pytest"]["ini_options"]["timeout_method"]
    (folder / "pytest.ini").write_text(f"[pytest]\ntimeout = 1\ntimeout_method = {method}\n")
    command = ("-m", "pytest", "-p", "limits", "-p", "no:cacheprovider", "-rA", *words, folder)
    support = str(Path(limits.__file__).parent)
    return ended.python(
        *command, cwd=folder, limit=110, GOLOOP_TEST_GRACE="1", PYTHONPATH=support,
        PYTEST_ADDOPTS="",
    )  # fmt: skip


def passed(done: subprocess.CompletedProcess[str]) -> int:
    return len(set(re.findall(r"^PASSED \S*(test_other\[\d\])", done.stdout, re.MULTILINE)))


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_test_that_hangs_fails_and_the_others_run(tmp_path: Path, workers: str) -> None:
    done = run(tmp_path, "-n", workers, hangs=HANGS)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert re.search(r"^FAILED \S*test_hangs", done.stdout, re.MULTILINE), done.stdout
    assert "Timeout (>1.0s) from pytest-timeout" in done.stdout
    assert passed(done) == 8
    assert "crashed" not in done.stdout
    assert "NOT RUN" not in done.stdout


@pytest.mark.parametrize("source", [HOLDS, KILLED])
def test_a_worker_that_ends_is_replaced(
    tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKERS", "2")
    done = run(tmp_path, *environments.workers(), bad=source, dies=DIES)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert passed(done) == 8, done.stdout
    # Each of the two tests has ended one worker: it was not run again.
    assert done.stdout.count("replacing crashed worker") == 2
    assert "NOT RUN" not in done.stdout
    if source is HOLDS:
        assert 'test_bad.py", line 2 in test_holds' in done.stdout


@pytest.mark.parametrize(
    ("words", "bad"),
    [
        (["-n", "1", "--max-worker-restart=0"], DIES),
        (["-x"], "def test_fails(): assert False\n"),
        ([], "def test_stops(request): request.session.shouldstop = 'enough'\n"),
    ],
)
def test_a_run_that_is_cut_fails_and_says_how_many_tests_were_not_run(
    tmp_path: Path, words: list[str], bad: str
) -> None:
    done = run(tmp_path, *words, bad=bad)
    assert done.returncode != 0
    assert "= 8 of 9 tests were NOT RUN (89%) =" in done.stdout


def test_a_whole_run_says_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "-n", "2")
    assert (done.returncode, "NOT RUN" in done.stdout) == (0, False)
    assert passed(done) == 8
