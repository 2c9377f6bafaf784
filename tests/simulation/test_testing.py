"""goloop.testing: a clock that tests move, and programs in virtual time from one seed."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import contextvars
import datetime
import math
import multiprocessing
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import ended
import pytest

import goloop
from goloop import testing

SCENARIOS = Path(__file__).with_name("testing_scenarios.py")

linux = pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")


def on_clock(clock: testing.MockClock, main: Coroutine[Any, Any, Any]) -> Any:
    loop = testing.new_event_loop(clock=clock)
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


# ---- the clock ---------------------------------------------------------------------------------


def test_a_clock_jumps_to_the_next_timer_when_nothing_else_can_run() -> None:
    clock = testing.MockClock()
    order = []

    async def sleeper(seconds: float) -> None:
        await asyncio.sleep(seconds)
        order.append((seconds, asyncio.get_running_loop().time()))

    async def main() -> None:
        await asyncio.gather(*map(sleeper, (3600, 1, 60)))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 100)

    on_clock(clock, main())
    assert order == [(1, 1.0), (60, 60.0), (3600, 3600.0)]
    assert clock.current_time() == 3700


def test_a_clock_that_does_not_jump_is_moved_by_the_test() -> None:
    clock = testing.MockClock(autojump_threshold=math.inf)
    ran = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(60, ran.append, "timer")
        loop.call_later(60, ran.append, "never").cancel()
        loop.call_later(61, ran.append, "later")
        await testing.wait_all_tasks_blocked()
        clock.jump(59)
        await testing.wait_all_tasks_blocked()
        assert ran == []
        clock.jump(1)
        await testing.wait_all_tasks_blocked()
        assert ran == ["timer"]

    on_clock(clock, main())


def test_a_jump_from_another_thread_wakes_the_loop() -> None:
    clock = testing.MockClock(autojump_threshold=math.inf)

    async def main() -> None:
        sleeping = asyncio.ensure_future(asyncio.sleep(60))
        await testing.wait_all_tasks_blocked()
        thread = threading.Thread(target=clock.jump, args=(60,))
        thread.start()
        await sleeping
        thread.join()

    on_clock(clock, main())


def test_clock_with_a_rate_advances_by_itself() -> None:
    clock = testing.MockClock(rate=100_000.0, autojump_threshold=math.inf)
    on_clock(clock, asyncio.sleep(1000))
    assert clock.current_time() >= 1000
    clock.rate = 0
    stopped = clock.current_time()
    assert clock.current_time() == stopped
    assert clock.rate == 0
    assert f"time={stopped:.7f}s" in repr(clock)


def test_clock_with_a_long_threshold_waits_for_other_threads() -> None:
    clock = testing.MockClock(autojump_threshold=60.0)

    async def main() -> float:
        await asyncio.wait_for(asyncio.to_thread(time.sleep, 0.01), 1000)
        return asyncio.get_running_loop().time()

    assert on_clock(clock, main()) == 0


def test_a_clock_jumps_when_its_threshold_is_over() -> None:
    clock = testing.MockClock(autojump_threshold=0.01)
    on_clock(clock, asyncio.sleep(1000))
    assert clock.current_time() == 1000
    clock.autojump_threshold = 0.02
    assert clock.autojump_threshold == 0.02


def test_a_clock_has_real_io() -> None:
    async def main() -> bytes:
        a, b = socket.socketpair()
        assert a.fileno() < 1 << 24
        reader, writer = await asyncio.open_connection(sock=a)
        asyncio.get_running_loop().call_later(5, b.send, b"real")
        came = await reader.read(10)
        writer.close()
        b.close()
        return came

    assert on_clock(testing.MockClock(), main()) == b"real"


def test_timers_of_a_clock_keep_their_context_and_report_errors() -> None:
    variable = contextvars.ContextVar("variable", default=0)
    contexts: list[Any] = []
    seen: list[int] = []

    def callback() -> None:
        seen.append(variable.get())
        raise ValueError("of a timer")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: contexts.append(context["exception"]))
        variable.set(7)
        loop.call_at(10, callback)
        with pytest.raises(TypeError):
            loop.call_at(None, callback)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            loop.call_later(None, callback)  # type: ignore[arg-type]
        variable.set(8)
        await asyncio.sleep(20)

    on_clock(testing.MockClock(), main())
    assert seen == [7]
    assert [str(each) for each in contexts] == ["of a timer"]


@pytest.mark.parametrize("wrong", [-1, math.nan])
def test_clock_refuses_invalid_numbers(wrong: float) -> None:
    for call in (
        lambda: testing.MockClock(rate=wrong),
        lambda: testing.MockClock(autojump_threshold=wrong),
        lambda: testing.MockClock().jump(wrong),
    ):
        with pytest.raises(ValueError, match="must be >= 0 seconds, got"):
            call()


def test_waiting_for_blocked_tasks_lets_all_others_run_first() -> None:
    async def main() -> list[object]:
        order: list[object] = []

        async def busy(n: int) -> None:
            for i in range(n):
                await asyncio.sleep(0)
                order.append(i)

        async def waits(name: str, cushion: float) -> None:
            await testing.wait_all_tasks_blocked(cushion)
            order.append(name)

        tasks = [asyncio.ensure_future(waits("second", 0.001))]
        tasks += [asyncio.ensure_future(waits("first", 0)), asyncio.ensure_future(busy(300))]
        await asyncio.gather(*tasks)
        return order

    assert goloop.run(main()) == [*range(300), "first", "second"]


def test_waiting_for_blocked_tasks_needs_a_loop_of_goloop() -> None:
    loop = asyncio.SelectorEventLoop()
    with pytest.raises(RuntimeError, match="needs a goloop loop"):
        loop.run_until_complete(testing.wait_all_tasks_blocked())
    loop.close()


# ---- timers are never early ----------------------------------------------------------------------


@linux
def test_no_timer_fires_before_its_time() -> None:
    """A product of seconds and 1e9 is rounded, and so is the result of time()."""
    source = random.Random(1)
    late = []
    rounded: list[bool] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(3000):
            when = (1 + source.random()) * source.choice((1, 1e3, 4e6, 1e7))
            rounded.append(math.ceil(when * 1e9) / 1e9 < when)
            loop.call_at(when, lambda when=when: late.append(loop.time() - when))
        await asyncio.sleep(2e7 + 10)

    testing.run(main)
    assert len(late) == 3000
    assert sum(rounded) > 20  # times that would be too early if rounded to the nearest nanosecond
    assert min(late) >= 0
    assert max(late) < 1e-3  # the reactor lets timers of a crowd share a turn


# ---- a simulation --------------------------------------------------------------------------------


@linux
def test_an_hour_passes_at_once_on_every_clock() -> None:
    import time as later
    from time import monotonic

    def clocks(default: Callable[[], float] = monotonic) -> list[float]:
        return [
            default(),
            later.monotonic(),
            time.monotonic_ns() / 1e9,
            time.perf_counter(),
            time.perf_counter_ns() / 1e9,
            time.time() - 1_767_225_599,
            time.time_ns() / 1e9 - 1_767_225_599,
            datetime.datetime.now(datetime.UTC).timestamp() - 1_767_225_599,
            time.mktime(time.localtime()) - 1_767_225_599,
            asyncio.get_running_loop().time(),
        ]

    async def main() -> None:
        assert clocks() == [1.0] * 10
        await asyncio.sleep(3600)
        assert clocks() == [3601.0] * 10
        time.sleep(10)
        assert clocks() == [3611.0] * 10
        assert datetime.date.today().year == 2026

    before = time.monotonic()
    assert testing.run(main).time == 3610
    assert time.monotonic() - before < 600  # the host's again
    assert type(time.sleep) is type(time.time)
    assert abs(datetime.datetime.now().timestamp() - time.time()) < 600


def chance() -> list[object]:
    return [
        random.random(),
        random.randint(0, 10**9),
        random.gauss(0, 1),
        random.getrandbits(64),
        random.sample(range(1000), 3),
        random.Random().random(),
        random.SystemRandom().random(),
        os.urandom(8),
        secrets.token_hex(8),
        uuid.uuid4(),
        uuid.uuid1(),
    ]


@linux
def test_chance_comes_from_the_seed() -> None:
    async def main() -> list[object]:
        random.gauss(0, 1)  # keeps a second number
        return chance() + chance()

    state = random.getstate()
    first = testing.run(main, seed=7).value
    assert random.getstate() == state
    random.seed(5)
    assert testing.run(main, seed=7).value == first
    other = testing.run(main, seed=8).value
    assert all(a != b for a, b in zip(first, other, strict=True))
    random.seed(5)
    again = random.random()
    random.seed(5)
    assert again == random.random()
    assert type(random._inst) is random.Random  # type: ignore[attr-defined]


@linux
@testing.simulate(seeds=1)
async def test_a_seed_can_be_set_and_the_state_kept_within() -> None:
    random.seed(1)
    state = random.getstate()
    first = random.random(), random.getrandbits(10)
    random.setstate(state)
    assert (random.random(), random.getrandbits(10)) == first
    assert random.Random(1).random() == first[0]


@linux
def test_other_threads_keep_the_host() -> None:
    begun, done = threading.Event(), threading.Event()
    seen: list[Any] = []

    def other() -> None:
        begun.wait()
        with socket.socket() as sock:
            seen.append((sock.fileno() < 1 << 24, time.time(), type(sock)))
        seen.append(os.urandom(8) != os.urandom(8))
        seen.append(datetime.datetime.now().timestamp())
        seen.append(random.random())
        done.set()

    async def main() -> None:
        begun.set()
        done.wait()
        assert time.time() == 1_767_225_600

    thread = threading.Thread(target=other)
    thread.start()
    testing.run(main)
    thread.join()
    assert (seen[0][0], seen[0][2], seen[1]) == (True, socket.socket, True)
    assert abs(seen[0][1] - time.time()) < 600
    assert abs(seen[2] - time.time()) < 600


async def echo() -> bytes:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            await asyncio.sleep(random.random())
            writer.write(data)
        writer.close()

    async with await asyncio.start_server(serve, "localhost", 8080):
        reader, writer = await asyncio.open_connection("localhost", 8080)
        writer.write(b"x" * 10_000)
        writer.write_eof()
        came = await reader.read()
        writer.close()
        await asyncio.sleep(10)
    return came


@linux
def test_a_program_with_streams_runs_unmodified() -> None:
    result = testing.run(echo, seed=3)
    assert result.value == b"x" * 10_000
    assert (result.seed, result.time > 10) == (3, True)
    assert " connect(" in result.trace
    assert testing.run(echo, seed=3) == result
    assert testing.run(echo, seed=4).trace != result.trace


@linux
def test_sockets_and_names_are_simulated() -> None:
    async def main() -> None:
        a, b = socket.socketpair()
        assert isinstance(a, socket.socket)
        assert a.fileno() >= 1 << 24
        a.settimeout(5)
        assert a.gettimeout() == 5
        a.send(b"pair")
        assert b.recv(10) == b"pair"
        with a.dup() as copy:
            assert (copy.family, copy.type) == (a.family, a.type)
        assert not a.get_inheritable()
        a.close()
        b.close()
        listener = socket.create_server(("localhost", 0))
        client = socket.create_connection(listener.getsockname())
        server, address = listener.accept()
        assert address == client.getsockname()
        client.sendall(b"blocking")
        assert server.makefile("rb").read(8) == b"blocking"
        for each in (listener, client, server):
            each.close()
        assert socket.gethostbyname("localhost") == "127.0.0.1"
        assert socket.gethostname() == socket.getfqdn() == "localhost"
        loop = asyncio.get_running_loop()
        with pytest.raises(socket.gaierror):
            await loop.getaddrinfo("nowhere.example", 80)
        with pytest.raises(socket.gaierror):
            socket.getaddrinfo("nowhere.example", 80)
        assert await loop.getnameinfo(("127.0.0.1", 80)) == socket.getnameinfo(("127.0.0.1", 80), 0)

    testing.run(main)
    with socket.socket() as sock:
        assert sock.fileno() < 1 << 24


@linux
def test_jobs_run_one_at_a_time_at_a_moment_of_the_seed() -> None:
    variable = contextvars.ContextVar("variable", default=0)

    async def main() -> list[object]:
        seen: list[object] = []
        thread = threading.get_ident()

        def job(name: str, slept: float) -> str:
            before = time.monotonic()
            time.sleep(slept)
            assert time.monotonic() - before == pytest.approx(slept)
            assert threading.get_ident() == thread
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()
            seen.append((name, variable.get()))
            return name

        variable.set(5)
        loop = asyncio.get_running_loop()
        before = loop.time()
        jobs = [asyncio.to_thread(job, name, 10) for name in "abcd"]
        jobs.append(loop.run_in_executor(None, job, "bare", 20))
        assert await asyncio.gather(*jobs) == ["a", "b", "c", "d", "bare"]
        assert 20 < loop.time() - before < 21
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        await asyncio.wait([asyncio.ensure_future(asyncio.to_thread(job, "e", 0))], timeout=0)
        return seen

    orders = [testing.run(main, seed=seed).value for seed in range(5)]
    assert orders == [testing.run(main, seed=seed).value for seed in range(5)]
    assert len({str(order) for order in orders}) > 1
    assert {*orders[0]} >= {("a", 5), ("b", 5), ("bare", 0)}


@linux
def test_deadlock_error_lists_awaiting_tasks() -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(waits_for_ever(), name="left")

    with pytest.raises(testing.SimulationDeadlock) as info:
        testing.run(main, seed=11)
    text = str(info.value)
    assert "seed 11" in text
    assert text.index("main") < text.index("(T) left") < text.index("waits_for_ever")
    assert "Event.wait" in text


@linux
def test_time_that_ends() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(1)

    with pytest.raises(testing.SimulationTimeout, match="not done after 50 s"):
        testing.run(main, max_time=50)

    async def blocks() -> None:
        time.sleep(100)

    with pytest.raises(testing.SimulationTimeout):
        testing.run(blocks, max_time=50)
    assert testing.run(lambda: asyncio.sleep(50), max_time=50).time == 50


@linux
def test_tasks_that_are_left_are_cancelled() -> None:
    ended = []

    async def left() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1)
            ended.append(asyncio.get_running_loop().time())

    async def main() -> asyncio.Task[None]:
        task = asyncio.ensure_future(left())
        await asyncio.sleep(1)
        return task

    assert testing.run(main).value.cancelled()
    assert ended == [3.0]


@linux
def test_exception_of_the_program_is_raised() -> None:
    async def main() -> None:
        raise OSError(35, "the program's own")

    with pytest.raises(OSError, match="the program's own"):
        testing.run(main)


async def thread_calls_in(real: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    woken = loop.create_future()

    def call() -> None:
        with contextlib.suppress(testing.EscapedSimulation):
            loop.call_soon_threadsafe(woken.set_result, None)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    await woken


async def child(real: socket.socket) -> None:
    await asyncio.create_subprocess_exec("true")


async def shell(real: socket.socket) -> None:
    await asyncio.create_subprocess_shell("true")


async def blocking_child(real: socket.socket) -> None:
    subprocess.run(["true"], check=True)


async def forks(real: socket.socket) -> None:
    os.fork()


async def systems(real: socket.socket) -> None:
    os.system("true")


async def spawns(real: socket.socket) -> None:
    os.waitpid(os.posix_spawn("/bin/true", ["true"], os.environ), 0)


async def spawns_by_path(real: socket.socket) -> None:
    os.waitpid(os.posix_spawnp("true", ["true"], os.environ), 0)


async def begins_process(real: socket.socket) -> None:
    process = multiprocessing.get_context("spawn").Process(target=int)
    process.start()
    process.join()


async def watches(real: socket.socket) -> None:
    asyncio.get_running_loop().add_reader(real, print)


async def receives(real: socket.socket) -> None:
    await asyncio.get_running_loop().sock_recv(real, 10)


async def connects(real: socket.socket) -> None:
    await asyncio.open_connection(sock=real)


async def adopts(real: socket.socket) -> None:
    socket.socket(fileno=real.fileno())


async def derives(real: socket.socket) -> None:
    class Own(socket.socket):
        pass

    Own()


async def pipes(real: socket.socket) -> None:
    with open(os.devnull, "rb") as file:
        await asyncio.get_running_loop().connect_read_pipe(asyncio.Protocol, file)


async def pipes_out(real: socket.socket) -> None:
    with open(os.devnull, "wb") as file:
        await asyncio.get_running_loop().connect_write_pipe(asyncio.Protocol, file)


async def sends_descriptors(real: socket.socket) -> None:
    a, _ = socket.socketpair()
    socket.send_fds(a, [b"x"], [real.fileno()])


async def inherits(real: socket.socket) -> None:
    os.set_inheritable(os.pipe()[0], True)


async def job_runs_a_loop(real: socket.socket) -> None:
    await asyncio.to_thread(lambda: asyncio.run(asyncio.Event().wait()))


async def job_runs_goloop(real: socket.socket) -> None:
    await asyncio.to_thread(lambda: goloop.run(asyncio.Event().wait()))


async def makes_a_loop(real: socket.socket) -> None:
    asyncio.new_event_loop().close()


async def job_waits_for_the_loop(real: socket.socket) -> None:
    loop = asyncio.get_running_loop()

    def job() -> None:
        asyncio.run_coroutine_threadsafe(asyncio.sleep(1), loop).result()

    with contextlib.suppress(Exception):  # the simulation ends with it all the same
        await asyncio.to_thread(job)


@linux
@pytest.mark.forks
@pytest.mark.parametrize(
    "escape",
    [
        *(thread_calls_in, child, shell, blocking_child, forks, watches, receives, connects),
        *(systems, spawns, spawns_by_path, begins_process),
        *(job_runs_a_loop, job_runs_goloop, makes_a_loop),
        *(adopts, derives, pipes, pipes_out, sends_descriptors, inherits, job_waits_for_the_loop),
    ],
    ids=lambda each: each.__name__,
)
def test_escape_error_names_the_remedy(escape: Any) -> None:
    a, b = socket.socketpair()
    a.setblocking(False)
    with a, b, pytest.raises(testing.EscapedSimulation) as info:
        testing.run(lambda: escape(a))
    assert str(info.value)


async def sleeps_for_ever() -> None:
    await asyncio.sleep(math.inf)


async def sleeps_for_centuries() -> None:
    await asyncio.sleep(1e10)


async def sleeps_again() -> None:
    for _ in range(3):
        await asyncio.sleep(2e9)


async def sleeps_in_the_callback() -> None:
    time.sleep(1e9)
    time.sleep(9e9)


async def sleeps_in_a_job() -> None:
    await asyncio.to_thread(time.sleep, 9e9)


@linux
@pytest.mark.parametrize("loop", ["goloop", "asyncio"])
@pytest.mark.parametrize(
    "sleeps",
    [
        *(sleeps_for_ever, sleeps_for_centuries, sleeps_again),
        *(sleeps_in_the_callback, sleeps_in_a_job),
    ],
)
def test_timer_after_the_end_of_time_never_fires(sleeps: Any, loop: str) -> None:
    with pytest.raises(testing.SimulationDeadlock, match="no timer within 123 years"):
        testing.run(sleeps, loop=loop)
    if loop == "goloop":  # asyncio's looks at the time once a day
        with pytest.raises(testing.SimulationDeadlock, match="no timer within 123 years"):
            testing.run(sleeps, loop=loop, max_time=math.inf)
    with pytest.raises(testing.SimulationTimeout):
        testing.run(sleeps, loop=loop, max_time=60)


@linux
def test_timer_that_never_fires_does_not_stop_the_clock() -> None:
    async def main() -> int:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sleeps_for_ever(), 5)
        with pytest.raises(OverflowError):
            time.sleep(1e10)
        left = asyncio.create_task(sleeps_for_ever())
        await asyncio.sleep(100 * 365 * 86400)
        assert not left.done()
        return datetime.datetime.now().year

    assert testing.run(main).value == 2125


@linux
def test_handlers_of_signals_are_the_simulations() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, print)
        assert loop.remove_signal_handler(signal.SIGTERM)
        assert not loop.remove_signal_handler(signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    testing.run(main)
    assert signal.getsignal(signal.SIGTERM) is before


@linux
def test_a_simulation_does_not_begin_in_a_loop_or_another_one() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="can't start"):
            testing.run(lambda: asyncio.sleep(0))

    testing.run(main)
    goloop.run(main())
    with pytest.raises(TypeError, match="expected a coroutine function"):
        testing.run(lambda: None)  # type: ignore[arg-type, return-value]


@linux
def test_main_may_take_the_simulation() -> None:
    async def main(sim: testing.Simulation) -> float:
        await asyncio.sleep(5)
        assert sim.seed == 9
        assert sim.random.random() < 1
        return sim.time()

    assert testing.run(main, seed=9).value == 5


def trace_of_echo(seed: int) -> str:
    return testing.run(echo, seed=seed).trace


@linux
@pytest.mark.parametrize("loop", ["goloop", "asyncio"])
def test_the_order_of_asyncios_sets_does_not_depend_on_addresses(loop: str) -> None:
    """Orders of a group's cancelled tasks, of wait()'s sets, all tasks, and a server's clients."""
    told = {ended.passes(SCENARIOS, "order_of_sets", size, loop) for size in (0, 1000, 33333)}
    assert len(told) == 1
    orders = ast.literal_eval(told.pop())
    assert [sorted(order) for order in orders[:4]] == [list(range(12))] * 4
    assert len(orders[4]) == 12
