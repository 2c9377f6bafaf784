"""A program that has replaced Python's functions that wait, as gevent and eventlet do.

Their get_ident() returns the number of a greenlet, which no system call accepts, their
start_new_thread() starts a greenlet, which does not run while the loop waits, and their os.read()
cannot be called in a callback of the loop.  Each test is a program of its own.
"""

from __future__ import annotations

from pathlib import Path

import ended
import pytest

SCENARIOS = Path(__file__).with_name("replaced_thread_functions_scenarios.py")


@pytest.mark.goloop_only("asyncio's loop waits in Python's functions")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "name",
    [
        "cpu_time_is_measured",
        "thread_id_is_that_of_get_ident",
        "closed_socket_ends_a_wait_at_once",
        "host_name_is_looked_up",
        "signal_handler_is_called",
    ],
)
def test_replaced_functions_of_threads(name: str, when: str) -> None:
    done = ended.python(SCENARIOS, name, when, limit=60)
    assert done.stdout == "ran\n", done.stdout
    assert done.returncode == 0
