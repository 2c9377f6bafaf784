"""The shares of time that handshakes get, with a clock that the test turns.

goloop._internal.tls.handshakes alone decides the order of turns, so no loop runs here: the
test is the loop, and says how long each iteration takes otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from goloop._internal.tls import handshakes
from goloop._internal.tls.handshakes import (
    ANSWERED,
    FRESH,
    HEAD,
    NOTHING,
    SLOW,
    WHOLE,
    Handshakes,
    Records,
)


@pytest.fixture(autouse=True)
def _half(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers of these tests are for a share of half of an iteration's other time."""
    monkeypatch.setattr(handshakes, "SHARE", 0.5)


class Handle:
    def __init__(self, callback: Callable[..., None], *args: Any) -> None:
        self.callback, self.args, self.cancelled = callback, args, False

    def cancel(self) -> None:
        self.cancelled = True


class Stage:
    """A loop, a clock, and handshakes whose steps take a given time."""

    def __init__(self) -> None:
        self.now = 100.0
        self._iterations = 0
        self.ready: list[Handle] = []
        self.turns: list[list[Any]] = []
        self.handshakes = Handshakes(lambda: self.now)

    def call_soon(self, callback: Callable[..., None], *args: Any) -> Handle:
        self.ready.append(Handle(callback, *args))
        return self.ready[-1]

    def iteration(self, others: float, came: tuple[Step, ...] = ()) -> list[str]:
        """Run an iteration with `others` seconds of other work; return the names of its steps."""
        self.turns.append([])
        self._iterations += 1
        ready, self.ready = self.ready, []
        self.now += others
        for handle in ready:
            if not handle.cancelled:
                handle.callback(*handle.args)
        for step in came:
            self.handshakes.step_if_allowed(step)
        return self.turns[-1]


class Step:
    """The next step of a handshake, with the interface that the scheduler uses."""

    def __init__(self, stage: Stage, name: str, takes: float = 0.0004, queue: int = FRESH) -> None:
        self._loop = stage
        self._handshake_queued = False
        self._handshake_queue = queue
        self.name, self.takes = name, takes
        self.interrupt: BaseException | None = None

    def _step_handshake(self) -> None:
        self._loop.turns[-1].append(self.name)
        self._loop.now += self.takes
        if self.interrupt is not None:
            raise self.interrupt

    def _resume_handshake(self, do: Callable[[Any], None]) -> None:
        do(self)
        self._handshake_queued = False


def crowd(stage: Stage, count: int, **known: Any) -> tuple[Step, ...]:
    return tuple(Step(stage, f"{number}", **known) for number in range(count))


def test_single_handshake_is_served_at_once() -> None:
    stage = Stage()
    assert stage.iteration(0.050, crowd(stage, 1)) == ["0"]


def test_minimum_share_is_half_a_millisecond_and_the_current_step() -> None:
    stage = Stage()
    # 0.4, 0.8: the second begins before half a millisecond is over.
    assert stage.iteration(0.0, crowd(stage, 40)) == ["0", "1"]
    assert stage.iteration(0.0) == ["2", "3"]
    assert stage.iteration(0.0001) == ["4", "5"]


def test_each_iteration_makes_at_least_one_step() -> None:
    stage = Stage()
    assert stage.iteration(0.0, crowd(stage, 3, takes=5.0)) == ["0"]
    assert [stage.iteration(0.0), stage.iteration(0.0)] == [["1"], ["2"]]


@pytest.mark.parametrize(("others", "served"), [(0.010, 13), (0.050, 63), (0.002, 3)])
def test_handshakes_get_half_of_an_iterations_other_time(others: float, served: int) -> None:
    """The handshakes' own time does not count, so the share doesn't grow in a crowd."""
    stage = Stage()
    stage.iteration(others, crowd(stage, 1000))
    assert [len(stage.iteration(others)) for _ in range(5)] == [served] * 5


def test_share_shrinks_with_the_time_of_iterations() -> None:
    stage = Stage()
    stage.iteration(0.020, crowd(stage, 400))
    assert len(stage.iteration(0.020)) == 26  # half of the 20 ms before
    assert len(stage.iteration(0.0)) == 2
    assert len(stage.iteration(0.0)) == 2


def test_sleeping_time_of_the_loop_is_not_shared() -> None:
    stage = Stage()
    stage.iteration(0.0, crowd(stage, 1))
    stage.iteration(0.0)
    # Nothing is scheduled: the poll sleeps.
    assert not stage.ready
    assert stage.iteration(3600.0, crowd(stage, 40)) == ["0", "1"]
    assert stage.iteration(0.0) == ["2", "3"]


def test_handshakes_within_the_share_are_served_at_once() -> None:
    stage = Stage()
    stage.iteration(0.010, crowd(stage, 3))  # a single handshake waits
    assert len(stage.iteration(0.010, crowd(stage, 40))) == 13
    assert len(stage.iteration(0.100)) == 28
    assert len(stage.iteration(0.001, crowd(stage, 200))) == 2


def test_a_step_that_makes_no_progress_costs_its_peer_its_place() -> None:
    stage = Stage()
    slow = Step(stage, "slow", queue=SLOW)
    fresh = Step(stage, "fresh")
    last = Step(stage, "last", queue=ANSWERED)
    late = Step(stage, "late")
    stage.iteration(0.0, crowd(stage, 2))  # time is over
    stage.iteration(0.0, (*crowd(stage, 2), slow, fresh, late, last))
    assert stage.iteration(0.0) == ["last", "fresh", "slow"]
    assert stage.iteration(0.0) == ["late"]


def test_slow_queue_gets_a_step_of_each_iteration_and_the_remaining_time() -> None:
    stage = Stage()
    slow = tuple(Step(stage, f"slow {number}", queue=SLOW) for number in range(5))
    stage.iteration(0.0, (*crowd(stage, 8), *slow))
    assert stage.iteration(0.0) == ["2", "3", "slow 0"]
    assert stage.iteration(0.0) == ["4", "5", "slow 1"]
    assert stage.iteration(0.0) == ["6", "7", "slow 2"]
    assert stage.iteration(0.0) == ["slow 3", "slow 4"]


def test_dequeued_handshakes_take_no_time() -> None:
    stage = Stage()
    steps = crowd(stage, 6)
    stage.iteration(0.0, steps)
    steps[2]._handshake_queued = steps[3]._handshake_queued = False
    assert stage.iteration(0.0) == ["4", "5"]


def test_an_error_ends_its_own_turn_only() -> None:
    stage = Stage()
    steps = crowd(stage, 5)
    stage.iteration(0.0, steps)
    steps[2].interrupt = ValueError("connection_made")
    with pytest.raises(ValueError, match="connection_made"):
        stage.iteration(0.0)
    assert stage.iteration(0.0) == ["3", "4"]
    assert stage.iteration(0.0) == []
    assert not stage.ready


@pytest.mark.parametrize("leaving", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_strands_no_handshake(leaving: type[BaseException]) -> None:
    """The interrupted turn is repeated; a new run continues with the waiting handshakes."""
    stage = Stage()
    steps = crowd(stage, 5)
    stage.iteration(0.0, steps)
    steps[2].interrupt = leaving()
    with pytest.raises(leaving):
        stage.iteration(0.0)
    steps[2].interrupt = None
    stage.ready.clear()  # the step that the interrupt has lost
    stage.handshakes.begin(stage)
    assert stage.iteration(0.0) == ["2", "3"]
    assert stage.iteration(0.0) == ["4"]


def test_a_run_that_begins_schedules_no_second_time() -> None:
    stage = Stage()
    stage.iteration(0.0, crowd(stage, 9))
    for _ in range(3):
        stage.handshakes.begin(stage)
    assert stage.iteration(0.0) == ["2", "3"]
    assert len(stage.ready) == 1
    idle = Stage()
    idle.handshakes.begin(idle)
    assert not idle.ready


def test_nested_iteration_keeps_the_order_of_the_queue() -> None:
    """connection_made() may run the loop itself (nest_asyncio)."""
    stage = Stage()
    steps = crowd(stage, 6)
    stage.iteration(0.0, steps)

    def nested(do: Callable[[Any], None]) -> None:
        Step._resume_handshake(steps[2], do)
        stage.handshakes._begin_iteration(stage)

    steps[2]._resume_handshake = nested  # type: ignore[method-assign]
    assert stage.iteration(0.0) == ["2", "3", "4"]
    assert stage.iteration(0.0) == ["5"]


# ---- records -----------------------------------------------------------------------------------

RECORD = b"\x16\x03\x01\x00\x04abcd"


def test_record_is_noticed_at_its_header_and_at_its_end() -> None:
    records = Records()
    found = [records.feed(bytes([byte])) for byte in RECORD * 2]
    once = [NOTHING] * 4 + [HEAD] + [NOTHING] * 3 + [WHOLE]
    assert found == once * 2


@pytest.mark.parametrize("size", [2, 3, 5, 7, 9, 10, 18, 40])
def test_each_complete_record_is_noticed_for_any_fragmentation(size: int) -> None:
    records, whole, fed = Records(), 0, 0
    stream = RECORD * 4
    for at in range(0, len(stream), size):
        before = fed // len(RECORD)
        piece = stream[at : at + size]
        fed += len(piece)
        ended = fed // len(RECORD) > before
        assert (records.feed(memoryview(piece)) == WHOLE) == ended
        whole += ended
    assert whole


def test_an_empty_record_is_whole_with_its_head() -> None:
    assert Records().feed(b"\x17\x03\x03\x00\x00") == WHOLE


@pytest.mark.parametrize(
    "start", [b"GET / HTTP/1.1", b"\x80\x2e\x01\x03\x01", b"\x16\x02\x00\x01\x00"]
)
def test_invalid_records_are_passed_to_openssl(start: bytes) -> None:
    records = Records()
    assert records.feed(start[:4]) == NOTHING
    assert records.feed(start[4:]) == WHOLE
    assert records.feed(b"a") == WHOLE
