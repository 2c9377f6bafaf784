"""Busy polling: its settings, its counters, and the conditions under which it stops.

netloop/busy_poll_linux_test.go tests the policy with a made clock; here the kernel is real.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import socket
import threading
import time
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import ended
import pytest
from protocols import Echo

import goloop
from goloop import testing

SCENARIOS = Path(__file__).with_name("busy_poll_scenarios.py")

linux_only = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="pins threads to processors"
)


@pytest.mark.parametrize("seconds", [-1e-9, 0.0100001, float("nan"), float("inf")])
def test_time_out_of_range_is_refused(seconds: float) -> None:
    loop = goloop.new_event_loop()
    try:
        with pytest.raises(ValueError, match=r"seconds must be >= 0 and <= 0\.01, got "):
            loop.set_busy_poll(seconds)
    finally:
        loop.close()


def test_time_of_a_wrong_type_is_refused() -> None:
    loop = goloop.new_event_loop()
    try:
        with pytest.raises(TypeError):
            loop.set_busy_poll("50us")  # type: ignore[arg-type]
    finally:
        loop.close()


def test_closed_loop_refuses_the_setting() -> None:
    loop = goloop.new_event_loop()
    loop.close()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        loop.set_busy_poll(0)


async def nothing() -> None:
    pass


def test_run_refuses_busy_polling_of_another_loop() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # also for a coroutine that was never awaited
        with pytest.raises(TypeError, match="busy_poll needs a goloop loop, but loop_factory"):
            goloop.run(nothing(), loop_factory=asyncio.SelectorEventLoop, busy_poll=1e-5)
        with pytest.raises(ValueError, match=r"got 1\.0"):
            goloop.run(nothing(), busy_poll=1.0)
        gc.collect()


class Awaitable:
    def __await__(self) -> Generator[Any, None, str]:
        yield from asyncio.sleep(0).__await__()
        return "done"


def test_refused_busy_polling_is_reported_for_awaitables_and_other_objects() -> None:
    for main in (Awaitable(), 7, None):
        other: Any = main
        with pytest.raises(ValueError, match=r"got -1"):
            goloop.run(other, busy_poll=-1)
        with pytest.raises(TypeError, match="busy_poll needs a goloop loop, but loop_factory"):
            goloop.run(other, loop_factory=asyncio.SelectorEventLoop, busy_poll=1e-5)


@pytest.mark.parametrize("seconds", [None, 1e-5])
def test_run_takes_the_objects_that_asyncio_takes(seconds: float | None) -> None:
    def outcome(run: Callable[[Any], Any], main: object) -> tuple[Any, ...]:
        try:
            return (run(main),)
        except (TypeError, ValueError) as exc:
            return type(exc), str(exc)

    objects: list[Callable[[], object]] = [nothing, Awaitable, lambda: nothing, lambda: 7]
    for make in objects:
        main = make()
        repeated = make() if main is not nothing else main
        found = outcome(lambda main: goloop.run(main, busy_poll=seconds), main)
        expected = outcome(asyncio.run, repeated)
        addresses = re.compile("0x[0-9a-f]+")
        assert [addresses.sub("", str(each)) for each in found] == [
            addresses.sub("", str(each)) for each in expected
        ]


def answers(
    count: int,
    seconds: float | None,
    pinned: set[int] | None = None,
    hits: int = 0,
    delay: float = 0.0,
) -> goloop.Metrics:
    """Return the metrics of a loop that has answered `count` messages of a thread without a pause.

    The loop polls busily for `seconds`; `pinned` are the processors of both threads. The thread
    goes on until the loop has counted this number of hits: on a busy machine few attempts hit. It
    waits for `delay` seconds before each message.
    """
    here, there = socket.socketpair()

    def client() -> None:
        if pinned:
            os.sched_setaffinity(0, pinned)
        sent = 0
        while sent < count or not enough.is_set():
            time.sleep(delay)
            there.send(b"x")
            assert there.recv(1) == b"x"
            sent += 1
        there.close()

    class CountingEcho(Echo):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if loop.metrics().busy_poll_hits >= hits:
                enough.set()

        def connection_lost(self, exc: Exception | None) -> None:
            lost.set()

    enough = threading.Event()
    lost = asyncio.Event()
    loop = goloop.new_event_loop()

    async def main() -> goloop.Metrics:
        here.setblocking(False)
        await loop.create_connection(CountingEcho, sock=here)
        thread = threading.Thread(target=client)
        thread.start()
        await lost.wait()
        thread.join()
        return loop.metrics()

    before = os.sched_getaffinity(0) if pinned else set()
    try:
        if pinned:
            os.sched_setaffinity(0, pinned)
        return goloop.run(main(), loop_factory=lambda: loop, busy_poll=seconds)
    finally:
        if pinned:
            os.sched_setaffinity(0, before)


def test_busy_loop_polls_without_sleeping_and_counts_it() -> None:
    # The client needs the GIL for its answer, which the loop does not have while it polls.
    counted = answers(200, 0.01, hits=1)
    assert 0 < counted.busy_poll_hits <= counted.busy_polls
    assert 0 < counted.busy_poll_time <= counted.time_idle


@linux_only
def test_by_default_a_loop_polls_for_as_long_as_a_sleep_costs() -> None:
    counted = answers(100, None, delay=0.001)  # so the loop sleeps
    assert counted.busy_polls > 0
    # At most 24 us, and the time without the processor; a pause follows 32 attempts in vain.
    assert counted.busy_poll_time < 0.1


def test_the_default_can_be_set_again() -> None:
    loop = goloop.new_event_loop()
    try:
        loop.set_busy_poll(50e-6)
        loop.set_busy_poll(None)
    finally:
        loop.close()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        loop.set_busy_poll(None)


def test_no_busy_polling_with_zero() -> None:
    counted = answers(200, 0)
    assert (counted.busy_polls, counted.busy_poll_hits, counted.busy_poll_time) == (0, 0, 0)


@linux_only
@pytest.mark.parametrize("seconds", [50e-6, None])
def test_busy_polling_stops_on_one_processor_with_the_peer(seconds: float | None) -> None:
    counted = answers(3000, seconds, {min(os.sched_getaffinity(0))})
    # With None a loop whose peer always runs at once never sleeps, and so makes no attempt.
    assert seconds is None or counted.busy_polls > 0
    assert counted.busy_polls < 1500


def test_a_simulated_loop_does_not_poll_busily() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, goloop.Loop)
        loop.set_busy_poll(0.01)
        for _ in range(10):
            await asyncio.sleep(0.001)
        return loop.metrics().busy_polls

    assert testing.run(main).value == 0


@pytest.mark.parametrize(
    ("text", "warns"),
    [
        ("50us", False), ("50µs", False), ("0.05ms", False), ("0.00005", False), ("0", False),
        ("0.00005s", False), (None, False), ("50", True), ("-1us", True),
        ("fast", True), ("", True), ("us", True),
    ],
)  # fmt: skip
def test_variable_sets_the_time_or_warns(
    monkeypatch: pytest.MonkeyPatch, text: str | None, warns: bool
) -> None:
    if text is None:
        monkeypatch.delenv("GOLOOP_BUSY_POLL", raising=False)
    else:
        monkeypatch.setenv("GOLOOP_BUSY_POLL", text)
    times: list[float | None] = []
    monkeypatch.setattr(goloop.Loop, "_set_busy_poll", lambda self, seconds: times.append(seconds))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        goloop.new_event_loop().close()
    if warns or text is None:
        assert times == [None]
    else:
        assert times == [pytest.approx(0.0 if text == "0" else 50e-6)]
    messages = [str(each.message) for each in caught]
    if warns:
        [message] = messages
        assert message == (
            f"GOLOOP_BUSY_POLL={text!r} is not a time from 0 to 10ms, such as 50us; it is ignored"
        )
    else:
        assert messages == []


def test_the_variable_reaches_the_loops_of_a_program() -> None:
    done = ended.python(
        SCENARIOS, "the_variable_reaches_the_loops_of_a_program", GOLOOP_BUSY_POLL="10ms"
    )
    assert done.returncode == 0, done.stdout
