"""The alarms: a timer of each loop wakes the monitor only when the loop makes no turns."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import ended
import pytest

SCENARIOS = Path(__file__).with_name("alarms_scenarios.py")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="POSIX timers, and /proc")


def passes(name: str, *arguments: object, profile: str = "25") -> None:
    options = ("-X", "faulthandler")
    ended.passes(SCENARIOS, name, *arguments, options=options, GOLOOP_PROFILE=profile)


@pytest.mark.forks
@pytest.mark.parametrize(
    ("load", "most", "late"),
    [
        ("echo", 100, 0),
        ("each_10_ms", 35, 0),
        ("iterations_of_3_ms", 200, 0),  # each may need an alarm: 333
        ("late_writes_each_5_ms", 300, 80),
    ],
)
def test_helper_threads_rarely_wake_under_a_steady_load(load: str, most: int, late: int) -> None:
    """All threads together have at most `most` wake-ups a second in one of many short windows.

    A window takes half a second.  Wake-ups that send a late write do not count: there are `late` of
    them or more.
    """
    passes("helper_threads_rarely_wake", load, most, late)


@pytest.mark.parametrize("call", ["timer_create", "timer_settime"])
@pytest.mark.parametrize("when", ["at the start", "later on"])
def test_late_writes_leave_without_timers(call: str, when: str) -> None:
    passes("late_writes_leave_without_timers", when, call, profile="0")


def test_late_writes_leave_without_room_for_a_timer() -> None:
    """Each timer counts towards the limit of the user's signals."""
    passes("late_writes_leave_without_room_for_a_timer", profile="0")


needs_list_of_timers = pytest.mark.skipif(
    not os.path.exists("/proc/self/timers"), reason="a kernel without this file"
)


@needs_list_of_timers
def test_a_forked_child_makes_its_own_timers() -> None:
    passes("a_forked_child_makes_its_own_timers", profile="0")


def test_signals_of_another_process_keep_their_sender_and_order() -> None:
    """Real-time signals with values, while the monitor waits for an alarm."""
    passes("signals_of_another_process_keep_their_sender_and_order", profile="0")


def test_change_of_user_does_not_wait_for_the_monitor() -> None:
    """setuid() waits until each thread has handled a signal of libc, which the alarms send too."""
    passes("change_of_user_does_not_wait_for_the_monitor", profile="0")


@needs_list_of_timers
def test_closed_loops_leave_no_timer() -> None:
    passes("closed_loops_leave_no_timer")


@needs_list_of_timers
def test_the_alarm_follows_the_turns_and_the_writes_of_a_loop() -> None:
    """To set a timer that expires before the kernel's next tick is dear.

    A loop that never sleeps gets a later one. A loop that rarely turns gets one that is too late
    for a write, until it defers a write.
    """
    passes("the_alarm_follows_the_turns_and_the_writes_of_a_loop", profile="0")
