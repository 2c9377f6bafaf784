"""The limits of a process: goloop changes none, and meets each with an exception.

Each scenario is a program of its own, since it lowers a limit for good.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import ended
import pytest

SCENARIOS = Path(__file__).with_name("limits_scenarios.py")


def passes(name: str, loop: str, *arguments: object) -> str:
    return ended.passes(SCENARIOS, name, loop, *arguments)


# ---- the limit of open files -------------------------------------------------------


@pytest.mark.forks
def test_the_limit_of_open_files_stays(loop_name: str) -> None:
    passes("the_limit_of_open_files_stays", loop_name)


def test_the_limit_that_was_found_stays(loop_name: str) -> None:
    passes("the_limit_that_was_found_stays", loop_name)


# ---- the stack of a thread ---------------------------------------------------------

less_than_reserve = pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="CPython keeps more than that in reserve"
)


@less_than_reserve
@pytest.mark.parametrize("when", ["first", "opened"])
def test_a_loop_runs_in_a_thread_of_32_kib(loop_name: str, when: str) -> None:
    passes("a_loop_in_a_small_thread", loop_name, 0, when)


@less_than_reserve
@pytest.mark.parametrize("when", ["first", "opened"])
@pytest.mark.parametrize("deep", [8, 16, 24, 32])
def test_a_stack_that_is_too_small_is_refused(deep: int, when: str) -> None:
    output = passes("a_loop_in_a_small_thread", "goloop", deep, when)
    assert output == "None\n" or output.startswith("RuntimeError: This thread has less stack")


@less_than_reserve
def test_a_run_on_a_stack_that_is_too_small_is_refused() -> None:
    passes("a_run_on_a_stack_that_is_too_small_is_refused", "goloop", 30, "first")


# ---- requirements of Go at its start -------------------------------------------------


def test_a_limit_of_address_space_is_met_by_an_exception(loop_name: str) -> None:
    """A limit of any size is met by an exception, and lifting it helps."""
    sizes = [1, 2, 3, 4, 8, 16, 40, 100, 300, 600, 700, 800, 1000, 1100, 1200, 1400, 1700, 2500]
    outcomes = {size: passes("a_limit_of_address_space", loop_name, size) for size in sizes}
    assert outcomes[2500] == "fine\n", outcomes
    if loop_name == "goloop":
        assert "address space" in outcomes[300], outcomes


def test_locked_memory_is_met_by_an_exception(loop_name: str) -> None:
    """If all mapped memory has to be locked, and may not be, Go would end the process."""
    outcome = passes("locked_memory", loop_name)
    if loop_name == "goloop":
        assert "RLIMIT_MEMLOCK after mlockall" in outcome


# The numbers of x86-64.
REFUSED = {
    "sigaltstack": 131,
    "clone3": 435,
    "eventfd2": 290,
    "epoll_create1": 291,
    "epoll_pwait2": 441,
    "timerfd_create": 283,
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are x86-64's")
@pytest.mark.parametrize("errno", [1, 38], ids=["EPERM", "ENOSYS"])
@pytest.mark.parametrize("when", ["first", "later"])
@pytest.mark.parametrize("call", [*REFUSED, "epoll_pwait2+timerfd_create"])
def test_a_refused_system_call_is_survived_or_an_exception(
    call: str, when: str, errno: int
) -> None:
    numbers = [REFUSED[each] for each in call.split("+")]
    output = passes("refused_system_calls", "goloop", when, errno, *numbers)
    first, second = output.splitlines()
    assert first == second, output
    unharmed = {"epoll_pwait2", "timerfd_create"}
    if unharmed.issuperset(call.split("+")) or (
        call == "clone3" and (errno == 38 or when == "later")
    ):
        assert first == "fine"
    else:
        assert first.startswith(("ImportError", "OSError", "RuntimeError", "PermissionError"))


@pytest.mark.parametrize("free", range(12))
def test_too_few_descriptors_are_met_by_an_exception(loop_name: str, free: int) -> None:
    passes("too_few_descriptors_are_met_by_an_exception", loop_name, free)


# A poller and a pair of sockets that wakes it; or a poller, its wakeup, and a pipe for signals.
NEEDED = {"asyncio": 3, "goloop": 4}


@pytest.mark.forks
@pytest.mark.parametrize("forks", [False, True], ids=["here", "in a child"])
@pytest.mark.parametrize("free", range(5))
def test_a_first_loop_without_free_descriptors_is_an_oserror(
    loop_name: str, free: int, forks: bool
) -> None:
    name = "a_first_loop_without_free_descriptors_is_an_oserror"
    passes(name, loop_name, free, forks, NEEDED[loop_name])


def test_a_loop_runs_where_no_memory_may_be_locked(loop_name: str) -> None:
    passes("a_loop_runs_where_no_memory_may_be_locked", loop_name)


@pytest.mark.parametrize("threads", range(1, 12))
def test_too_few_threads_are_met_by_an_exception(threads: int) -> None:
    if os.geteuid() != 0:
        pytest.skip("the limit counts all threads of a user: only root can be another user")
    output = passes("too_few_threads_are_met_by_an_exception", "goloop", threads)
    assert threads < 11 or output == "fine\n", output


# ---- descriptors of a loop that another closes ----------------------------------------


@pytest.mark.parametrize("kind", ["anon_inode:[eventpoll]", "anon_inode:[eventfd]"])
def test_a_loop_closes_no_number_that_is_somebody_elses(kind: str) -> None:
    passes("a_loop_closes_no_number_that_is_somebody_elses", "goloop", kind)
