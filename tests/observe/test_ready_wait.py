"""`ready_wait` measures how long callbacks were ready before they ran.

It is compared with a record that each callback writes of itself, for several shapes of load.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from protocols import until

from goloop._internal.observe.metrics import Metrics

PROGRAMS = Path(__file__).with_name("programs")

pytestmark = [
    pytest.mark.goloop_only("asyncio counts nothing"),
    pytest.mark.skipif(os.environ.get("GOLOOP_TEST_LOOP") == "asyncio", reason="of goloop alone"),
]

needs_gil = pytest.mark.skipif(
    not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="there is no GIL to wait for"
)

now = time.perf_counter
# A processor that is taken away between the record's stamp and the loop's own is in one of the two
# alone.  A bias would show each time.
ATTEMPTS = 5
# From the record's stamp to the loop's, when a callback is scheduled and when it runs.
STAMPS = 15e-6


def spin(seconds: float) -> None:
    end = now() + seconds
    while now() < end:
        pass


def nothing() -> None:
    pass


class Record:
    """Schedules callbacks that record how long they were ready."""

    def __init__(self, loop: Any) -> None:
        self.loop = loop
        self.begin()

    def begin(self) -> None:
        """Forget earlier waits."""
        self.waits: list[float] = []
        self.calls: list[float] = []
        self._before = self.loop.metrics()

    def end(self) -> Metrics:
        figures: Metrics = self.loop.metrics() - self._before
        return figures

    def _runs(self, ready: float, work: Callable[[], object]) -> None:
        self.waits.append(now() - ready)
        work()

    def soon(self, work: Callable[[], object]) -> None:
        self.loop.call_soon(self._runs, now(), work)

    def threadsafe(self, work: Callable[[], object]) -> None:
        ready = now()
        self.loop.call_soon_threadsafe(self._runs, ready, work)
        self.calls.append(now() - ready)

    def later(self, delay: float, work: Callable[[], object]) -> None:
        due = self.loop.time() + delay
        self.loop.call_at(due, lambda: self._runs(now() - (self.loop.time() - due), work))

    def percentile(self, percent: float) -> Any:
        """Return the expected percentile; a thread's call has its own time stamp."""
        truth, call = (_percentile(each, percent) for each in (self.waits, self.calls or [0.0]))
        return pytest.approx(truth, rel=0.1, abs=STAMPS + call)


def _percentile(values: list[float], percent: float) -> float:
    return sorted(values)[-int(-len(values) * percent // 100) - 1]


async def repeated(
    record: Record, times: int, pause: float, schedule: Callable[[], object]
) -> Metrics:
    ended = record.loop.create_future()

    def again(left: int) -> None:
        if left == 0:
            ended.set_result(record.end())
            return
        schedule()
        record.later(pause, lambda: again(left - 1))

    again(times)
    figures: Metrics = await ended
    return figures


async def burst(loop: Any, record: Record) -> Metrics:
    """Twenty callbacks of a millisecond at once, and then nothing for a while."""

    def schedule() -> None:
        for _ in range(20):
            record.soon(lambda: spin(0.001))

    return await repeated(record, 15, 0.03, schedule)


async def clients(loop: Any, record: Record) -> Metrics:
    """Fifty clients, each of which asks again when it has its answer."""
    answered = loop.create_future()
    made: list[Any] = []

    class Answers(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport
            made.append(transport)

        def data_received(self, data: bytes) -> None:
            record.soon(self.work)

        def work(self) -> None:
            spin(0.001)
            self.transport.write(b"y")
            if len(record.waits) == 500:
                answered.set_result(record.end())

    server = await loop.create_server(Answers, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, PROGRAMS / "clients.py", str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        await until(lambda: len(made) == 50)
        assert await loop.run_in_executor(None, process.stdout.readline) == b"\n"
        record.begin()  # the time of connecting does not count
        process.stdin.write(b"\n")
        process.stdin.flush()
        figures: Metrics = await answered
    assert process.returncode == 0
    await until(lambda: loop.metrics().connections_open == 0)
    server.close()
    return figures


async def starved(loop: Any, record: Record) -> Metrics:
    """A thread that computes keeps the GIL for whole intervals, and schedules callbacks."""
    ended = loop.create_future()

    def compute() -> None:
        while not ended.done():
            record.threadsafe(nothing)
            spin(0.012)

    thread = threading.Thread(target=compute)
    thread.start()
    figures = await repeated(record, 40, 0.001, nothing)
    ended.set_result(None)
    thread.join()
    return figures


async def timers(loop: Any, record: Record) -> Metrics:
    """A hundred timers that are due together."""

    def schedule() -> None:
        for _ in range(100):
            record.later(0.01, lambda: spin(0.0003))

    return await repeated(record, 5, 0.07, schedule)


async def trickle(loop: Any, record: Record) -> Metrics:
    """Schedule callbacks one by one, each of which finds an idle loop."""
    done = loop.create_future()

    def trickles() -> None:
        for _ in range(400):
            time.sleep(0.0005)
            record.threadsafe(nothing)
        loop.call_soon_threadsafe(done.set_result, None)

    thread = threading.Thread(target=trickles)
    thread.start()
    await done
    thread.join()
    return record.end()


async def crowds(loop: Any, record: Record) -> Metrics:
    """Many more callbacks at once than the loop measures."""

    def schedule() -> None:
        for _ in range(4000):
            record.soon(nothing)

    return await repeated(record, 40, 0.001, schedule)


@pytest.mark.parametrize(
    "load", [burst, clients, pytest.param(starved, marks=needs_gil), timers, trickle, crowds]
)
async def test_ready_wait_equals_an_independent_record(
    loop: Any, load: Callable[[Any, Record], Awaitable[Metrics]]
) -> None:
    for _ in range(ATTEMPTS):
        record = Record(loop)
        wait = (await load(loop, record)).ready_wait
        told = [wait.percentile(percent) for percent in (50, 90, 99)]
        truth = [record.percentile(percent) for percent in (50, 90, 99)]
        print(f"{wait.count} of {len(record.waits)}: {told} where the record has {truth}")
        if told == truth and wait.count == pytest.approx(len(record.waits), rel=0.05):
            return
    raise AssertionError(f"{told} where the record has {truth}")


@needs_gil
async def test_event_that_waited_for_the_gil_counts(loop: Any) -> None:
    ended = loop.create_future()

    class Sink(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:
            ended.set_result(None)

    def compute() -> None:
        while not ended.done():
            pass

    process = subprocess.Popen(
        [sys.executable, PROGRAMS / "ticks.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdin is not None
        await loop.connect_read_pipe(Sink, process.stdout)
        thread = threading.Thread(target=compute)
        before = loop.metrics()
        thread.start()
        process.stdin.close()
        await ended
        thread.join()
    figures = loop.metrics() - before
    # Little else was ready: this task, and the transport's end.
    events = figures.ready_wait.count - 4
    assert 0 < events <= figures.gil_wait.count
    assert figures.ready_wait.sum >= 0.001 * events
