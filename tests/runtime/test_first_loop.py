"""Memory that the first loop of a process leaves, and the stack on which Go assumes its thread."""

from __future__ import annotations

import resource
from pathlib import Path

import ended
import pytest

SCENARIOS = Path(__file__).with_name("first_loop_scenarios.py")


def said(name: str, *arguments: object) -> str:
    done = ended.python(SCENARIOS, name, *arguments, apart=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_pages_that_only_startup_reads_are_released() -> None:
    """Relocations and Go's tables of functions: nearly a megabyte."""
    size, left = map(int, said("sizes_of_pages_that_only_startup_reads").split())
    assert size > 1000
    assert left < 400


MIB = 1 << 20


@pytest.mark.parametrize("limit", [MIB, 64 * MIB, resource.RLIM_INFINITY])
def test_the_first_thread_of_a_process_with_any_limit_of_its_stack(limit: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    if hard != resource.RLIM_INFINITY and (limit == resource.RLIM_INFINITY or limit > hard):
        pytest.skip("the limit can't be raised so far")

    assert said("two_runs_with_a_limit_of_the_stack", limit) == "2\n"


@pytest.mark.forks
def test_fork_from_another_than_the_first_thread() -> None:
    """The thread's stack is elsewhere than the first thread's; no lock of ld.so is taken."""
    assert said("fork_from_another_than_the_first_thread") == "2\n"
