"""No thread that goloop has started runs when Python ends; each scenario is a program of its own.

CPython 3.13 without the GIL frees the states of threads that run then, which crashes now and then.
"""

from __future__ import annotations

from pathlib import Path

import ended
import pytest

import goloop

pytestmark = pytest.mark.skipif(not goloop.native, reason="asyncio's loop has no such threads")

SCENARIOS = Path(__file__).with_name("threads_at_exit_scenarios.py")


# Tools, and scenarios with a test of their own.
OTHERS = (
    "others",
    "exit_does_not_wait_for_the_end_of_a_child",
    "exit_does_not_wait_for_a_closed_introspection_socket",
    "lookup_after_the_end_of_all_threads_is_an_error",
)


@pytest.mark.parametrize("scenario", ended.scenarios(SCENARIOS, *OTHERS))
@pytest.mark.goloop_only("asyncio's loop has no such threads")
def test_no_thread_of_goloop_runs_when_python_ends(scenario: str) -> None:
    done = ended.python(SCENARIOS, scenario)
    assert set(done.stdout.split("\n")) == {"ended", ""}, done.stdout
    assert done.returncode == 0


@pytest.mark.forks
@pytest.mark.goloop_only("asyncio's loop has no such threads")
@pytest.mark.parametrize("fork", ["os.fork", "ctypes.PyDLL(None).fork"])
def test_forked_child_ends_its_own_threads_only(fork: str) -> None:
    done = ended.python(SCENARIOS, "forked_child_ends_its_own_threads_only", fork)
    assert (done.stdout, done.returncode) == ("ended\nended\n", 0), done.stdout


@pytest.mark.goloop_only("asyncio's loop has no such threads")
def test_thread_that_writes_metrics_ends_before_python(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    done = ended.python(SCENARIOS, "thread_that_writes_metrics_ends_before_python", tmp_path)
    assert (done.stdout.splitlines()[-1:], done.returncode) == (["ended"], 0), done.stdout


@pytest.mark.goloop_only("asyncio's loop has no such threads")
def test_exit_does_not_wait_for_the_end_of_a_child() -> None:
    done = ended.python(SCENARIOS, "exit_does_not_wait_for_the_end_of_a_child")
    assert (done.stdout, done.returncode) == ("ended\n", 0), done.stdout


@pytest.mark.goloop_only("asyncio's loop has no such threads")
def test_exit_does_not_wait_for_a_closed_introspection_socket() -> None:
    done = ended.python(SCENARIOS, "exit_does_not_wait_for_a_closed_introspection_socket")
    assert (done.stdout, done.returncode) == ("", 0), done.stdout


@pytest.mark.goloop_only("asyncio's loop has no such threads")
def test_lookup_after_the_end_of_all_threads_is_an_error() -> None:
    done = ended.python(SCENARIOS, "lookup_after_the_end_of_all_threads_is_an_error")
    refused = "can't start new thread at interpreter shutdown"
    assert (done.stdout, done.returncode) == (f"ended\n{refused}\n", 0), done.stdout
