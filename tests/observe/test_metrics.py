"""Metrics equal the scripted load exactly; histograms equal an independent record."""

from __future__ import annotations

import asyncio
import bisect
import itertools
import os
import random
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import ended
import pytest
from protocols import Echo, close_all
from tls_tools import client_context, server_context

import goloop
from goloop import _core
from goloop._internal.loop import running
from goloop._internal.observe import histogram as histograms
from goloop._internal.observe import metric_registry, metrics
from goloop._internal.observe.histogram import BUCKETS, Histogram, bucket_of
from goloop._internal.observe.metrics import Metrics

PROGRAMS = Path(__file__).with_name("programs")

pytestmark = [
    pytest.mark.goloop_only("asyncio counts nothing"),
    pytest.mark.skipif(os.environ.get("GOLOOP_TEST_LOOP") == "asyncio", reason="of goloop alone"),
]

PATIENCE = 60.0
PYBRIDGE = Path(__file__).parents[2] / "pybridge"


class Counted:
    """The difference between two moments."""

    def __init__(self, loop: Any) -> None:
        self._loop, self._before = loop, loop.metrics()

    def __call__(self) -> Metrics:
        difference: Metrics = self._loop.metrics() - self._before
        return difference


def spin(seconds: float) -> None:
    """Keep the loop's thread busy."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


async def echo_server() -> asyncio.Server:
    return await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)


# ---- counters ------------------------------------------------------------------------------


async def test_bytes_and_connections_of_streams(loop: Any) -> None:
    server = await echo_server()
    counted = Counted(loop)
    for _ in range(3):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        for n in (1, 1000, 50_000):
            writer.write(b"x" * n)
            await reader.readexactly(n)
        assert loop.metrics().connections_open == 2
        await close_all(writer)
        while loop.metrics().connections_open:
            await asyncio.sleep(0)
    figures = counted()
    assert figures.bytes_sent == figures.bytes_received == 2 * 3 * 51_001
    assert figures.connections_accepted == 3
    # The small ones go as one; the large one may come in parts.
    assert figures.writes >= 2 * 3 * 3
    assert figures.reads >= 2 * 3 * 3
    assert figures.connections_open == figures.write_buffer_bytes == 0
    server.close()


async def test_many_streams_at_once_are_counted(loop: Any) -> None:
    # More streams than C receives in one turn.
    server = await echo_server()
    streams = [await asyncio.open_connection(*server.sockets[0].getsockname()) for _ in range(20)]
    counted = Counted(loop)
    for _ in range(10):
        for _, writer in streams:
            writer.write(b"y" * 100)
        for reader, _ in streams:
            await reader.readexactly(100)
    figures = counted()
    assert figures.bytes_sent == figures.bytes_received == 2 * 20 * 10 * 100
    assert figures.reads == figures.writes == 2 * 20 * 10
    assert loop.metrics().connections_open == 40
    for _, writer in streams:
        writer.close()
    server.close()


async def test_a_buffered_protocol_is_counted(loop: Any) -> None:
    class Sink(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.buffer, self.got = bytearray(100_000), 0

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.got += nbytes

    a, b = socket.socketpair()
    b.setblocking(False)
    transport, sink = await loop.create_connection(Sink, sock=a)
    counted = Counted(loop)
    sent = 0
    while sent < 1_000_000:
        try:
            sent += b.send(b"z" * 100_000)
        except BlockingIOError:
            await asyncio.sleep(0)
    while sink.got < sent:
        await asyncio.sleep(0)
    assert counted().bytes_received == sent
    transport.close()
    b.close()


async def test_the_sock_methods_are_counted(loop: Any) -> None:
    a, b = socket.socketpair()
    a.setblocking(False)
    b.setblocking(False)
    counted = Counted(loop)
    await loop.sock_sendall(a, b"x" * 500)
    assert len(await loop.sock_recv(b, 300)) == 300
    assert await loop.sock_recv_into(b, bytearray(1000)) == 200
    figures = counted()
    assert (figures.bytes_sent, figures.bytes_received) == (500, 500)
    assert (figures.writes, figures.reads) == (1, 2)
    with tempfile.TemporaryFile() as file:
        file.write(b"f" * 70)
        file.flush()
        assert await loop.sock_sendfile(a, file) == 70
        figures = counted()
        assert (figures.bytes_sent, figures.bytes_received) == (570, 500)
    a.close()
    b.close()


async def test_datagrams_of_the_sock_methods_are_counted(loop: Any) -> None:
    a, b = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    for each in (a, b):
        each.setblocking(False)
        each.bind(("127.0.0.1", 0))
    counted = Counted(loop)
    await loop.sock_sendto(a, b"d" * 30, b.getsockname())
    await loop.sock_sendto(a, b"d" * 40, b.getsockname())
    assert len((await loop.sock_recvfrom(b, 100))[0]) == 30
    assert (await loop.sock_recvfrom_into(b, bytearray(100)))[0] == 40
    figures = counted()
    assert (figures.bytes_sent, figures.bytes_received) == (70, 70)
    a.close()
    b.close()


async def test_datagrams_are_counted(loop: Any) -> None:
    got: list[bytes] = []

    class Sink(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            got.append(data)

    receiver, _ = await loop.create_datagram_endpoint(Sink, ("127.0.0.1", 0))
    address = receiver.get_extra_info("sockname")
    sender, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, None, address)
    counted = Counted(loop)
    for n in range(1, 11):
        sender.sendto(b"d" * n)
        while len(got) < n:
            await asyncio.sleep(0)
    figures = counted()
    assert figures.bytes_sent == figures.bytes_received == 55
    assert figures.writes == figures.reads == 10
    sender.close()
    receiver.close()


async def test_unsent_bytes_are_reported(loop: Any) -> None:
    a, b = socket.socketpair()
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=a)
    counted = Counted(loop)
    transport.write(b"w" * 5_000_000)
    await asyncio.sleep(0.01)
    figures = loop.metrics()
    assert figures.write_buffer_bytes == transport.get_write_buffer_size() > 0
    assert figures.write_buffer_bytes + counted().bytes_sent == 5_000_000
    b.close()
    transport.abort()
    await asyncio.sleep(0)


async def test_refused_connections_and_unhandled_exceptions(loop: Any) -> None:
    loop.set_exception_handler(lambda loop, context: None)

    def factory() -> asyncio.Protocol:
        raise ZeroDivisionError

    server = await loop.create_server(factory, "127.0.0.1", 0)
    counted = Counted(loop)
    for _ in range(2):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b""
        writer.close()
    figures = counted()
    assert figures.connections_accepted == figures.connections_refused == 2
    loop.call_soon(factory)
    await asyncio.sleep(0)
    assert counted().unhandled_exceptions == 1
    server.close()


async def test_accepts_that_fail_are_counted(loop: Any) -> None:
    import resource

    failed = asyncio.Event()
    loop.set_exception_handler(lambda loop, context: failed.set())
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    counted = Counted(loop)
    client = socket.socket()
    client.setblocking(False)
    low = os.dup(0)
    os.close(low)
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
    try:
        client.connect_ex(server.sockets[0].getsockname())
        await asyncio.wait_for(failed.wait(), PATIENCE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert counted().accept_failures == 1
    client.close()
    server.close()


async def test_pauses_of_accepting_are_counted(loop: Any) -> None:
    counted = Counted(loop)
    server: Any = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    paused: Any = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)

    def figures() -> tuple[int, int]:
        now = counted()
        return now.listeners_paused, now.accept_pauses

    server.max_connections = 2  # the server listens again, which is not a pause
    assert figures() == (0, 0)
    clients = [socket.create_connection(server.sockets[0].getsockname()) for _ in range(3)]
    while not figures()[0]:
        await asyncio.sleep(0)
    assert figures() == (1, 1)
    paused.pause_accepting()
    paused.pause_accepting()
    assert figures() == (2, 2)
    server.max_connections = None
    assert figures() == (1, 2)
    paused.resume_accepting()
    assert figures() == (0, 2)
    # A closed server does not wait to accept.
    paused.pause_accepting()
    paused.close()
    assert figures() == (0, 3)
    for client in clients:
        client.close()
    server.pause_accepting()
    server.close()
    assert figures() == (0, 4)


async def test_tls_handshakes_are_counted(loop: Any) -> None:
    loop.set_exception_handler(lambda loop, context: None)
    server = await asyncio.start_server(
        lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=server_context()
    )
    address = server.sockets[0].getsockname()
    counted = Counted(loop)
    _, writer = await asyncio.open_connection(
        *address, ssl=client_context(), server_hostname="localhost"
    )
    writer.close()
    # Both ends count.
    while counted().tls_handshakes < 2:
        await asyncio.sleep(0.001)
    assert counted().tls_handshake_failures == 0
    with pytest.raises(ssl.SSLError):  # the certificate is not trusted
        await asyncio.open_connection(*address, ssl=ssl.create_default_context())
    while counted().tls_handshake_failures < 2:  # the client's, and the server's
        await asyncio.sleep(0.001)
    assert counted().tls_handshakes == 2
    server.close()


async def test_look_ups_are_counted(loop: Any) -> None:
    counted = Counted(loop)
    asked = [asyncio.ensure_future(loop.getaddrinfo("localhost", port)) for port in (1, 2, 3)]
    while loop.metrics().dns_in_flight < 3:
        assert not any(each.done() for each in asked)
        await asyncio.sleep(0)
    await asyncio.gather(*asked)
    figures = counted()
    assert figures.dns_lookups == figures.dns_time.count == 3
    assert 0 < figures.dns_time.mean <= figures.dns_time.max
    assert loop.metrics().dns_in_flight == 0


async def test_look_ups_that_fail_are_counted(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(loop)
    await loop.getaddrinfo("localhost", 1)
    with pytest.raises(socket.gaierror):
        await loop.getaddrinfo("localhost", "no such service")
    with pytest.raises(socket.gaierror):
        await loop.getnameinfo(("no address", 1))
    figures = counted()
    assert (figures.dns_lookups, figures.dns_failures) == (3, 2)


async def test_children_are_counted(loop: Any) -> None:
    counted = Counted(loop)
    children = [
        await asyncio.create_subprocess_exec("cat", stdin=subprocess.PIPE) for _ in range(2)
    ]
    assert loop.metrics().children == 2
    for child in children:
        child.stdin.close()
        await child.wait()
    assert counted().children_started == 2
    assert loop.metrics().children == 0


async def test_calls_timers_and_tasks_are_counted(loop: Any) -> None:
    counted = Counted(loop)
    handles = [loop.call_later(1000, print) for _ in range(50)]
    assert (loop.metrics().timers, loop.metrics().tasks) == (50, 1)
    for handle in handles:
        handle.cancel()
    assert loop.metrics().timers == 0
    assert loop.metrics().timers_max >= 50
    for _ in range(200):
        loop.call_soon(int)
    assert loop.metrics().ready == 200
    await asyncio.sleep(0)
    assert loop.metrics().ready_max >= 200
    threads = [
        threading.Thread(target=lambda: [loop.call_soon_threadsafe(int) for _ in range(100)])
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        await asyncio.sleep(0.001)
    assert counted().threadsafe_calls == 300
    before = loop.metrics().iterations
    for _ in range(500):
        await asyncio.sleep(0)
    assert loop.metrics().iterations - before == 500


# ---- times ---------------------------------------------------------------------------------


async def test_busy_and_idle_are_the_time_that_has_passed(loop: Any) -> None:
    began, counted = time.monotonic(), Counted(loop)
    inner, spun = time.monotonic(), 0.0
    for _ in range(5):
        start = time.monotonic()
        while time.monotonic() - start < 0.01:
            pass
        spun += time.monotonic() - start
        await asyncio.sleep(0.01)
    passed = time.monotonic() - inner
    figures, all_passed = counted(), time.monotonic() - began
    # Exact to a nanosecond, except for the rounding of sums of floats.
    assert passed - 1e-6 <= figures.time_busy + figures.time_idle <= all_passed + 1e-6
    assert figures.time_idle >= 4 * 0.01
    assert figures.time_busy >= spun
    assert 0 < figures.utilization < 1
    assert figures.iteration_time.max >= 0.01
    assert figures.timer_lateness.count == 5
    assert figures.poll_time.count == figures.turns


def test_the_last_iteration_of_a_run_is_busy() -> None:
    loop = goloop.new_event_loop()

    async def ends() -> None:
        spin(0.05)

    loop.run_until_complete(ends())
    assert loop.metrics().time_busy >= 0.05
    loop.close()
    assert loop.metrics().time_busy >= 0.05


@pytest.mark.parametrize("what", ["time_busy", "time_idle"])
async def test_current_iteration_and_poll_are_counted(loop: Any, what: str) -> None:
    grown, failed = threading.Event(), []

    def looks() -> None:
        # Twice: the first increase may be of an iteration or a poll that has ended.
        for _ in range(2):
            before, end = getattr(loop.metrics(), what), time.monotonic() + PATIENCE
            while getattr(loop.metrics(), what) < before + 0.01:
                if time.monotonic() > end:
                    failed.append(before)
                    break
        grown.set()

    await asyncio.sleep(0.001)
    thread = threading.Thread(target=looks)
    thread.start()
    if what == "time_busy":
        grown.wait()
    else:
        await asyncio.to_thread(grown.wait)  # a poll that nothing else ends
    thread.join()
    assert not failed


async def test_busy_and_idle_time_never_decrease(loop: Any) -> None:
    backward, ended, reads = [], threading.Event(), 0

    def looks() -> None:
        nonlocal reads
        last = loop.metrics()
        while not ended.is_set():
            now = loop.metrics()
            for what in ("time_busy", "time_idle"):
                if getattr(now, what) < getattr(last, what):
                    backward.append((what, getattr(last, what), getattr(now, what)))
            last = now
            reads += 1

    threads = [threading.Thread(target=looks) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(400):
            if turn % 4 == 0:
                spin(0.001)
            await asyncio.sleep(0 if turn % 2 else 0.0005)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert reads > 100
    assert not backward


def test_time_outside_a_run_is_not_counted() -> None:
    with asyncio.Runner(loop_factory=goloop.new_event_loop) as runner:
        loop: Any = runner.get_loop()
        for _ in range(2):
            runner.run(asyncio.sleep(0))
            loop.call_soon(int)
            time.sleep(0.5)
        runner.run(asyncio.sleep(0))
        figures = loop.metrics()
        assert figures.iteration_time.max < 0.5
        assert figures.ready_wait.max < 0.5


async def test_cpu_time_is_the_loop_threads(loop: Any) -> None:
    outer, before, inner = time.thread_time(), loop.metrics(), time.thread_time()
    while time.thread_time() < inner + 0.03:
        pass
    time.sleep(0.05)  # busy, but on no processor
    least = time.thread_time() - inner
    since = loop.metrics() - before
    assert least <= since.time_cpu + 1e-6
    assert since.time_cpu <= time.thread_time() - outer + 1e-6
    assert since.time_busy >= least + 0.05


def test_cpu_time_is_available_during_a_run_and_after_its_thread() -> None:
    loop: Any = goloop.new_event_loop()
    seen = threading.Event()

    async def computes() -> None:
        until = time.monotonic() + PATIENCE
        while not seen.is_set():
            assert time.monotonic() < until

    for runs in (1, 2):
        seen.clear()
        before = loop.metrics().time_cpu
        thread = threading.Thread(target=loop.run_until_complete, args=(computes(),))
        thread.start()
        while loop.metrics().time_cpu < before + 0.01 * runs:
            assert thread.is_alive()
        seen.set()
        thread.join()
        ended = loop.metrics().time_cpu
        assert ended >= before + 0.01 * runs
        # Outside a run neither the time nor the thread's CPU time counts for the loop.
        spent = time.thread_time()
        while time.thread_time() < spent + 0.02:
            pass
        assert loop.metrics().time_cpu == ended
    loop.close()
    assert loop.metrics().time_cpu == ended


def test_no_metric_decreases_during_the_end_of_a_run_and_a_close() -> None:
    loop: Any = goloop.new_event_loop()
    seen = [goloop.metrics()]

    def looks(frame: Any, event: str, _: object) -> Any:
        """Take a snapshot between any two instructions, as another thread can."""
        if "/goloop/_internal/loop/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen.append(goloop.metrics())
        return looks

    async def ends() -> None:
        await asyncio.sleep(0)
        # settrace() does not trace frames that already run; Python 3.12 traces instructions only
        # of frames that asked for it before.
        at = sys._getframe(1)
        while at is not None:
            at.f_trace, at.f_trace_opcodes = looks, True
            at = at.f_back
        sys.settrace(looks)

    try:
        loop.run_until_complete(ends())
        loop.close()
    finally:
        sys.settrace(None)
    assert len(seen) > 100
    for before, after in itertools.pairwise(seen):
        assert before.time_cpu <= after.time_cpu
        assert before.iterations <= after.iterations
    # In no snapshot is the loop counted twice, as an open and as a closed one.
    assert {figures.loops - seen[-1].loops for figures in seen} == {0, 1}
    done = seen[-1].iterations - seen[0].iterations
    assert done == loop.metrics().iterations


def test_closing_loops_changes_no_sum_of_times_by_a_rounding_error() -> None:
    class Fixed:
        """Stands for a loop's CpuTime, with a constant time."""

        def __init__(self, ns: int) -> None:
            self.ns = ns

        def total_ns(self) -> int:
            return self.ns

    loops: list[Any] = [goloop.new_event_loop() for _ in range(20)]
    for number, loop in enumerate(loops, 1):
        loop._cpu_time = Fixed(123_456_789 * number)
    whole = goloop.metrics().time_cpu
    for loop in loops:
        loop.close()
        assert goloop.metrics().time_cpu == whole


def test_no_counter_decreases_while_threads_with_loops_end() -> None:
    over, backward = threading.Event(), []

    def looks() -> None:
        last = goloop.metrics()
        while not over.is_set():
            now = goloop.metrics()
            for name in ("time_cpu", "threadsafe_calls", "iterations"):
                if getattr(now, name) < getattr(last, name):
                    backward.append((name, last, now))
            last = now

    async def main() -> None:
        asyncio.get_running_loop().call_soon_threadsafe(int)
        await asyncio.sleep(0)

    def runs() -> None:
        for _ in range(20):
            goloop.run(main())

    lookers = [threading.Thread(target=looks) for _ in range(2)]
    for thread in lookers:
        thread.start()
    for _ in range(20):
        runners = [threading.Thread(target=runs) for _ in range(2)]
        for thread in runners:
            thread.start()
        for thread in runners:
            thread.join()
    over.set()
    for thread in lookers:
        thread.join()
    assert not backward


async def test_lateness_is_how_late_a_timer_runs(loop: Any) -> None:
    counted = Counted(loop)
    due = loop.time() + 0.01
    ran = loop.create_future()
    loop.call_at(due, lambda: ran.set_result(loop.time()))
    while loop.time() < due + 0.05:  # the loop has no time for it
        pass
    late = await ran - due
    figures = counted()
    assert figures.timer_lateness.count == 1
    # The loop reads the clock just before the callback, and the callback reads it again.
    assert 0.05 <= figures.timer_lateness.max <= late


async def test_ready_wait_is_measured(loop: Any) -> None:
    await asyncio.sleep(0.001)
    counted = Counted(loop)

    def first() -> None:
        # Callbacks that are ready after this one wait for its end.
        spin(0.03)

    for _ in range(3):
        await asyncio.sleep(0.001)  # a turn, after which the next entry is measured
        loop.call_soon(first)
        loop.call_soon(int)
        await asyncio.sleep(0)
        loop.call_soon(int)
        loop.call_soon(first)
        await asyncio.sleep(0)
    assert counted().ready_wait.count >= 3


async def test_ready_wait_includes_a_long_callback_before_the_entry(loop: Any) -> None:
    ended = asyncio.Event()

    def from_reader() -> None:
        loop.remove_reader(a)
        # The first entry after the poll is the one that is measured.
        loop.call_soon(ended.set)
        spin(0.03)

    a, b = socket.socketpair()
    loop.add_reader(a, from_reader)
    counted = Counted(loop)
    b.send(b"x")
    await ended.wait()
    assert counted().ready_wait.max >= 0.03
    a.close()
    b.close()


# ---- histograms ------------------------------------------------------------------------------


def recorded(values: list[int]) -> Histogram:
    """A histogram of nanoseconds, as C and Go count."""
    counts = [0] * BUCKETS
    for value in values:
        counts[bisect.bisect_right(histograms.BOUNDS, value)] += 1
    raw = histograms.HISTOGRAM.pack(len(values), sum(values), max(values, default=0), *counts)
    return Histogram._from_raw(raw, 1e-9)


def test_percentiles_equal_the_records() -> None:
    values = [int(random.Random(7).lognormvariate(10, 2)) for _ in range(5000)]
    random.Random(7).shuffle(values)
    histogram = recorded(values)
    assert histogram.count == 5000
    assert histogram.sum == pytest.approx(sum(values) * 1e-9)
    assert histogram.max == max(values) * 1e-9
    assert histogram.mean == pytest.approx(sum(values) / 5000 * 1e-9)
    values.sort()
    for percent in (1, 10, 50, 90, 99, 99.9, 100):
        truth = values[max(0, -int(-5000 * percent // 100) - 1)] * 1e-9
        assert histogram.percentile(percent) == pytest.approx(truth, rel=1 / 16)
    for percent in (-1, 101, float("nan")):
        with pytest.raises(ValueError, match="percent must be"):
            histogram.percentile(percent)


def test_bucket_contains_values_below_its_bound() -> None:
    for value in (*range(3000), 2**41, 2**42 - 1, 2**42, 2**63):
        found = min(bisect.bisect_right(histograms.BOUNDS, value), BUCKETS - 1)
        assert bucket_of(value) == found
    assert bucket_of(-5) == 0


def test_an_empty_histogram() -> None:
    empty = Histogram()
    assert (empty.mean, empty.percentile(50), empty.max) == (0.0, 0.0, 0.0)
    assert list(empty.cumulative([1.0])) == [(1.0, 0)]
    some = recorded([5, 6])
    assert empty + some == some + empty == some
    assert "buckets" not in repr(some)


def test_cumulative_counts_are_never_too_high() -> None:
    values = [3, 4, 5, 100, 1000, 1_000_000, 5_000_000_000]
    bounds = [1e-9, 5e-9, 1e-7, 2e-6, 1e-3, 1.0, 10.0]
    told = list(recorded(values).cumulative(bounds))
    assert [bound for bound, _ in told] == bounds
    for bound, count in told:
        assert count <= sum(value * 1e-9 <= bound for value in values)
    assert [count for _, count in told] == sorted(count for _, count in told)
    assert told[-1][1] == len(values)


async def test_gos_and_cs_buckets_are_pythons(loop: Any) -> None:
    for _ in range(50):
        await asyncio.sleep(0.001)
    figures = loop.metrics()
    for name in ("iteration_time", "poll_time", "timer_lateness", "events_per_turn"):
        histogram = getattr(figures, name)
        assert sum(histogram.buckets) == histogram.count > 0
        lowest = sum(
            n * (histograms.BOUNDS[i - 1] if i else 0) for i, n in enumerate(histogram.buckets)
        )
        highest = sum(n * histograms.BOUNDS[i] for i, n in enumerate(histogram.buckets))
        assert lowest * histogram.scale <= histogram.sum * (1 + 1e-9)
        assert histogram.sum <= highest * histogram.scale
        last = max(i for i, n in enumerate(histogram.buckets) if n)
        assert histogram.max <= histograms.BOUNDS[last] * histogram.scale


# ---- snapshots -------------------------------------------------------------------------------


def members(header: str, struct: str) -> list[tuple[str, bool]]:
    """The members of a struct in pybridge, and whether each is a histogram."""
    text = (PYBRIDGE / header).read_text()
    found = re.search(rf"typedef struct {struct} {{(.*?)}} {struct};", text, re.S)
    assert found
    body = re.sub(r"/\*.*?\*/", "", found[1], flags=re.S)
    declared = re.findall(r"\s*(uint64_t|gl_histogram) ([^;]+);", body)
    assert not re.sub(r"\s*(uint64_t|gl_histogram) ([^;]+);", "", body).strip()
    return [
        (name.strip(), kind == "gl_histogram")
        for kind, names in declared
        for name in names.split(",")
    ]


def test_the_blocks_of_c_are_the_rows_of_the_table() -> None:
    for header, struct in (("abi_observers.h", "gl_metrics"), ("core/state/state.h", "gl_counts")):
        assert members(header, struct) == [
            (spec.field, spec.kind == "histogram")
            for spec in metric_registry.METRICS
            if spec.source == struct
        ]


def test_every_figure_has_a_meaning_and_a_type() -> None:
    source = Path(metrics.__file__).read_text()
    body = source.split("class Metrics(Record):")[1].split("@property")[0]
    lines = [line.strip() for line in body.splitlines()]
    kinds = Metrics.__annotations__
    for field, spec in zip(kinds, metric_registry.METRICS, strict=True):
        assert field == spec.field
        kind = "float" if spec.unit == "s" else "int"
        assert kinds[field] == ("Histogram" if spec.kind == "histogram" else kind)
        at = next(i for i, line in enumerate(lines) if line.startswith(f"{field}:"))
        assert lines[at + 1].startswith('"""'), field


async def test_every_figure_has_a_value(loop: Any) -> None:
    sources = {spec.field: spec.source for spec in metric_registry.METRICS}
    raw = loop._metrics()
    told = metric_registry.unpack_metrics(raw)
    # Python's own counts appear only after their first change.
    assert told.keys() <= sources.keys()
    assert {sources[name] for name in sources.keys() - told.keys()} <= {"python", "process"}
    assert {sources[name] for name in raw.keys() - {"counted"}} <= {"python"}
    figures = loop.metrics()
    assert figures.loops == 1
    assert figures.go_heap_bytes > 0
    assert figures.goroutines > 0


def test_closed_loop_keeps_its_final_metrics() -> None:
    loop = goloop.new_event_loop()
    loop.run_until_complete(asyncio.sleep(0.001))
    loop.call_later(1000, print)
    before = loop.metrics()
    loop.close()
    after = loop.metrics()
    assert after.iterations == before.iterations > 0
    assert after.poll_time == before.poll_time
    assert (after.loops, after.timers, after.connections_open) == (0, 0, 0)


def test_the_process_has_the_figures_of_all_loops() -> None:
    before = goloop.metrics()
    loops = [goloop.new_event_loop() for _ in range(3)]
    for n, loop in enumerate(loops, 1):
        for _ in range(n):
            loop.call_soon_threadsafe(int)
        loop.run_until_complete(asyncio.sleep(0))
    during = goloop.metrics() - before
    assert during.threadsafe_calls == 6
    assert during.loops == before.loops + 3
    assert during.poll_time.count == during.turns
    for loop in loops:
        loop.close()
    after = goloop.metrics() - before
    assert (after.threadsafe_calls, after.loops) == (6, before.loops)
    # The sums remain exact after many more loops.
    for _ in range(200):
        loop = goloop.new_event_loop()
        loop.call_soon_threadsafe(int)
        loop.close()
    assert (goloop.metrics() - before).threadsafe_calls == 206


def test_metrics_while_other_threads_close_loops() -> None:
    """A storm in a process of its own: without a GIL, and a copy of the figures, it crashed."""
    done = ended.python(PROGRAMS / "closed_meanwhile.py", limit=110, GOLOOP_WATCHDOG="0")
    assert (done.returncode, done.stdout) == (0, "")


async def test_a_snapshot_from_another_thread_while_the_loop_sleeps(loop: Any) -> None:
    answers: list[Metrics] = []
    thread = threading.Thread(target=lambda: answers.append(loop.metrics()))
    loop.call_later(0.001, thread.start)
    while not answers:
        await asyncio.sleep(0.01)
    thread.join()
    assert answers[0].loops == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_metrics_of_a_forked_child_start_at_zero() -> None:
    done = ended.python(PROGRAMS / "forked_child.py")
    assert done.stdout == "well\n"


def test_repeated_metrics_calls_do_not_leak() -> None:
    loop = goloop.new_event_loop()
    for _ in range(100):
        loop.metrics()
    before = sys.getallocatedblocks()
    for _ in range(1000):
        loop.metrics()
        goloop.metrics()
    assert sys.getallocatedblocks() - before < 500
    loop.close()


def test_exception_observers_are_called(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    handled: list[Any] = []

    def observe(loop: Any, context: dict[str, Any]) -> None:
        seen.append((loop, context["message"]))
        raise RuntimeError("an observer must do no harm")

    monkeypatch.setattr(running, "on_exception", [observe])
    loop.set_exception_handler(lambda loop, context: handled.append(context))
    loop.call_exception_handler({"message": "of a test"})
    assert [context["message"] for context in handled] == ["of a test"]
    assert seen == [(loop, "of a test")]


def test_the_collection_counter_is_installed_once() -> None:
    import gc

    for _ in range(2):
        goloop.new_event_loop().close()
    assert gc.callbacks.count(_core._note_collection) == 1
    before = goloop.metrics().gc_time
    gc.collect()
    assert goloop.metrics().gc_time > before


def test_a_handler_that_somebody_put_in_asyncios_place_is_called(
    loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[Any] = []
    base = asyncio.base_events.BaseEventLoop
    monkeypatch.setattr(
        base, "call_exception_handler", lambda self, context: called.append(context)
    )
    assert goloop.Loop.call_exception_handler is base.call_exception_handler

    loop.call_exception_handler({"message": "of a test"})
    assert called == [{"message": "of a test"}]
