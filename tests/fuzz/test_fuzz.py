"""The fuzzers of this folder, with some seeds; GOLOOP_FUZZ_SEEDS=100 by hand."""

from __future__ import annotations

import os
from pathlib import Path

import ended
import pytest
from fuzz import crash_log

HERE = Path(__file__).parent
SEEDS = int(os.environ.get("GOLOOP_FUZZ_SEEDS", "6"))
LIMIT = 500


def run(program: str, path: Path, *words: object) -> None:
    """Run a fuzzer; print its last actions if it failed, or its interpreter died."""
    # Memory that was freed is filled, so that using it is noticed.
    command = [str(HERE / program), "--trail", str(path / "trail")]
    memory = os.environ.get("PYTHONMALLOC", "debug")
    done = ended.python(*command, *words, limit=LIMIT, PYTHONMALLOC=memory)
    if done.returncode != 0:
        last = "\n".join(crash_log.read(path / "trail"))
        pytest.fail(f"{' '.join(map(str, words))}: {done.returncode}\n{done.stdout}\nlast:\n{last}")


@pytest.mark.timeout(LIMIT + 60)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_lives_of_loops_end_without_failure(
    loop_name: str, seed: int, tmp_path: Path
) -> None:
    # Each third seed collects at each allocation, which takes its time.
    often = seed % 3 == 2
    steps = 60 if often else 150
    options = ("--seed", seed, "--steps", steps, "--loop", loop_name, "--gc", +often)
    run("connections.py", tmp_path, *options)


@pytest.mark.timeout(LIMIT + 60)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_calls_do_not_crash_the_interpreter(seed: int, tmp_path: Path) -> None:
    often = seed % 3 == 2
    run("calls.py", tmp_path, "--seed", seed, "--steps", 500 if often else 3000, "--gc", +often)
