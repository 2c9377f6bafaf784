"""Celery: tasks that run coroutines, in workers that fork and in threads."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from real_programs.programs import APPS, LOOP, TIME_LIMIT, Programs, needs

needs("celery")

pytestmark = pytest.mark.real


def test_celery_runs_coroutines_in_processes_that_it_forks(
    programs: Programs, tmp_path: Path
) -> None:
    answers = tasks_of_a_worker(programs, tmp_path, "prefork")
    for loop, _, _ in answers["loop_of_its_own"]:
        assert loop == LOOP
    # Each process keeps one loop for all tasks.
    loops = {(identity, process) for _, identity, process in answers["loop_of_the_process"]}
    assert {loop for loop, _, _ in answers["loop_of_the_process"]} == {LOOP}
    assert len(loops) == len({process for _, process in loops})


def test_celery_runs_coroutines_in_threads(programs: Programs, tmp_path: Path) -> None:
    answers = tasks_of_a_worker(programs, tmp_path, "threads", "loop_of_its_own")
    assert {loop for loop, _, _ in answers["loop_of_its_own"]} == {LOOP}
    assert {process for *_, process in answers["loop_of_its_own"]} == {
        programs.started[0].process.pid
    }


def tasks_of_a_worker(
    programs: Programs, folder: Path, pool: str, *tasks: str
) -> dict[str, list[tuple[str, int, int]]]:
    """Return the results of twenty calls of each task."""
    worker = programs.python(
        *("-m", "celery", "-A", "celery_app", "worker", "--pool", pool, "--concurrency", "2"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "INFO"),
        FOLDER=str(folder),
    )
    worker.until_says("ready.")
    client = programs.python(APPS / "celery_app.py", *tasks, FOLDER=str(folder))
    client.process.wait(TIME_LIMIT)
    assert client.process.returncode == 0, client.output + worker.output
    worker.end()
    answers = {}
    for line in client.output.splitlines():
        name, _, answer = line.partition(" ")
        answers[name] = ast.literal_eval(answer)
    return answers
