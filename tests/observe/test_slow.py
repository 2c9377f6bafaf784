"""The flight recorder: long iterations, with the monitor's samples of them."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import re
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from observed_programs import Program, goloop, running, until

import goloop as package
from goloop._internal.observe import flight_recorder

pytestmark = [
    pytest.mark.goloop_only("asyncio's loop records nothing"),
    pytest.mark.skipif(sys.platform != "linux", reason="memory is read by a call of Linux"),
]


FREE = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def spin(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def innocent() -> None:
    spin(0.03)


def culprit() -> None:
    spin(0.4)


def recorded(main: Any, limit: float = 0.05) -> list[Any]:
    """Return the iterations that the loop has recorded of a coroutine function's run."""
    loop: Any = package.new_event_loop()
    try:
        loop.set_slow_limit(limit)
        loop.run_until_complete(main())
        return list(loop.slow_iterations())
    finally:
        loop.close()


async def work() -> None:
    culprit()


async def an_iteration_with_a_culprit() -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(0.01)
    for _ in range(2):
        loop.call_soon(innocent)
    task = loop.create_task(work())
    for _ in range(2):
        loop.call_soon(innocent)
    await task
    await asyncio.sleep(0.01)


def test_the_longest_callback_is_named_with_its_task_and_line() -> None:
    began = time.time()
    iteration = max(recorded(an_iteration_with_a_culprit), key=lambda each: each.seconds)
    assert began <= iteration.started <= time.time()
    assert iteration.seconds >= 0.4 + 4 * 0.03
    # Perhaps also the timer and the task that have scheduled these five.
    assert 5 <= iteration.callbacks <= 8
    longest = iteration.longest_stack
    assert longest.task == "work"
    assert [frame.function for frame in longest.frames] == ["work", "culprit", "spin"]
    assert longest.frames[1].file == __file__
    assert 0.2 < iteration.longest <= iteration.seconds
    assert "work" in str(iteration)
    assert f'File "{__file__}"' in str(iteration)


def test_there_are_stacks_at_1_2_and_4_times_the_limit() -> None:
    iteration = max(recorded(an_iteration_with_a_culprit), key=lambda each: each.seconds)
    first, second, third = iteration.stacks
    assert first.after >= 0.05
    assert second.after >= 0.1
    assert third.after >= 0.2
    assert third.after > second.after
    assert third.frames[-2].function == "culprit"


def test_many_short_callbacks_are_not_mistaken_for_a_long_one() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0.01)
        for _ in range(400):
            loop.call_soon(spin, 0.001)
        await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)

    iteration = max(recorded(main), key=lambda each: each.callbacks)
    assert iteration.callbacks >= 400
    assert iteration.seconds >= 0.4
    assert iteration.longest < iteration.seconds / 2


def test_block_report_divides_time_by_function(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []
    unsubscribe = package.watchdog.subscribe(told.append)

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        loop.set_watchdog(0.2)
        await asyncio.sleep(0.01)
        culprit()
        innocent_for(0.25)
        await asyncio.sleep(0.01)

    def innocent_for(seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            pass

    try:
        recorded(main)
        while not told or not told[-1].ended:
            time.sleep(0.01)
    finally:
        unsubscribe()
    end = told[-1]
    names = [frame.function.rpartition(".")[2] for _, frame in end.shares]
    assert names[:2] == ["spin", "innocent_for"]
    assert sum(spent for spent, _ in end.shares) == pytest.approx(end.duration, rel=0.1)
    assert end.shares[0][0] > end.shares[1][0] > 0.1 * end.duration
    assert "time: " in str(end)
    assert "% spin (line " in str(end)


def test_a_loop_has_one_number_in_the_log_the_recorder_and_the_profile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    package.new_event_loop().close()  # the next loop gets its place in the library

    def keeps_the_loop() -> None:
        spin(0.4)

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        loop.set_watchdog(0.2)
        await asyncio.sleep(0.01)
        keeps_the_loop()
        await asyncio.sleep(0.01)

    loops = {iteration.loop for iteration in recorded(main)}
    until(lambda: " was blocked for " in caplog.text)
    logged = {int(number) for number in re.findall(r"\[loop (\d+), ", caplog.text)}
    assert len(logged) == 1
    assert loops == logged
    stacks = package.profile().stacks
    assert logged == {
        stack.loop
        for stack in stacks
        for frame in stack.frames
        if frame.function == keeps_the_loop.__qualname__
    }


def test_events_of_transports_count_as_callbacks() -> None:
    class Slow(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            spin(0.2)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Slow, "127.0.0.1", 0)
        transport, _ = await loop.create_connection(
            asyncio.Protocol, *server.sockets[0].getsockname()[:2]
        )
        transport.write(b"x")
        await asyncio.sleep(0.05)
        transport.close()
        server.close()
        await asyncio.sleep(0.01)

    iteration = max(recorded(main), key=lambda each: each.seconds)
    assert iteration.callbacks >= 1
    assert iteration.longest_stack.task == f"callback {Slow.data_received.__qualname__}"


def test_garbage_collection_time_is_reported() -> None:
    async def main() -> None:
        cycles: list[Any] = []
        for _ in range(300_000):
            cycles.append([cycles])
        await asyncio.sleep(0.01)
        gc.collect()
        await asyncio.sleep(0.01)

    iterations = recorded(main, limit=0.001)
    with_collection = max(iterations, key=lambda each: each.gc)
    assert 0 < with_collection.gc <= with_collection.seconds


@pytest.mark.skipif(FREE, reason="there is no GIL to wait for")
def test_waiting_time_for_the_gil_is_recorded() -> None:
    def holds() -> None:
        time.sleep(0.1)
        ctypes.PyDLL(None).usleep(400_000)

    async def main() -> None:
        thread = threading.Thread(target=holds)
        await asyncio.sleep(0.01)
        thread.start()
        for _ in range(200):  # a poll ends while the GIL is held
            await asyncio.sleep(0.002)
        thread.join()
        await asyncio.sleep(0.01)

    longest = max(recorded(main), key=lambda each: each.gil_wait)
    assert 0.1 < longest.gil_wait <= longest.seconds
    assert "waiting for the GIL" in str(longest)


def test_the_last_256_are_kept_oldest_first() -> None:
    async def main() -> None:
        for _ in range(300):
            spin(0.002)
            await asyncio.sleep(0.0001)

    iterations = recorded(main, limit=0.002)
    assert len(iterations) == 256
    assert [each.started for each in iterations] == sorted(each.started for each in iterations)


def test_a_limit_of_0_records_none() -> None:
    assert recorded(an_iteration_with_a_culprit, limit=0) == []


def test_slow_iterations_belong_to_their_loop() -> None:
    loop: Any = package.new_event_loop()
    try:
        assert recorded(an_iteration_with_a_culprit) != []
        assert loop.slow_iterations() == []
    finally:
        loop.close()


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan"), 1e9])
def test_a_wrong_limit_is_refused(seconds: float) -> None:
    loop: Any = package.new_event_loop()
    try:
        with pytest.raises(ValueError, match="seconds must be >= 0"):
            loop.set_slow_limit(seconds)
        loop.set_watchdog(5)  # which leaves it as it was
    finally:
        loop.close()
    with pytest.raises(RuntimeError):
        loop.set_slow_limit(1)


def test_recorder_limit_is_independent_of_the_watchdogs() -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        loop.set_watchdog(30)
        await an_iteration_with_a_culprit()

    assert recorded(main, limit=0.05)


# ---- from outside ------------------------------------------------------------------------------

SCENARIOS = Path(__file__).with_name("slow_scenarios.py")


def line_of(code: str) -> int:
    """Return the number of a line of the scenarios."""
    return [line.strip() for line in SCENARIOS.read_text().splitlines()].index(code) + 1


WAITS = (SCENARIOS, "waits")
HOLDS_THE_GIL = (SCENARIOS, "holds_the_gil")
CULPRIT = f'File "{SCENARIOS}", line {line_of("time.sleep(0.2)")}, in culprit'


def test_slow_command_prints_slow_iterations() -> None:
    with running(WAITS) as process:
        done = goloop("slow", str(process.pid))
    assert done.returncode == 0, done.stderr
    assert re.search(r"loop 1: \d\.\d+ s, \d callback", done.stdout)
    assert CULPRIT in done.stdout


@pytest.mark.skipif(FREE, reason="there is no GIL to hold")
def test_slow_command_works_while_the_gil_is_held() -> None:
    with running(HOLDS_THE_GIL) as process:
        done = goloop("slow", str(process.pid))
    assert done.returncode == 0, done.stderr
    assert "the GIL is held" in done.stderr
    assert CULPRIT in done.stdout
    assert time.strftime("\n%Y-") in done.stdout


HANGS_IN = {"sleep": "sleeps", "python": "computes", "C": "holds_the_gil"}


@pytest.mark.parametrize("watchdog", ["1", "0"])
@pytest.mark.parametrize("where", HANGS_IN)
def test_slow_command_shows_the_iteration_that_blocks_a_loop_now(where: str, watchdog: str) -> None:
    if where == "C" and FREE:
        pytest.skip("the answering thread waits for a call of C that keeps its thread state")
    name = HANGS_IN[where]
    with running((SCENARIOS, name, "hangs"), GOLOOP_WATCHDOG=watchdog) as process:
        done = goloop("slow", str(process.pid))
    assert done.returncode == 0, done.stderr
    found = re.match(r"now  loop 1: blocked for (\d+\.\d+) s", done.stdout)
    assert found, done.stdout
    assert float(found[1]) >= 0.1
    assert re.search(rf'File "{SCENARIOS}", line \d+, in {name}\n', done.stdout)
    assert "no iteration" not in done.stdout


def test_slow_command_begins_with_the_iteration_that_blocks_now() -> None:
    with running((SCENARIOS, "sleeps")) as process:
        done = goloop("slow", str(process.pid))
    assert done.returncode == 0, done.stderr
    now, _, before = done.stdout.partition(time.strftime("%Y"))
    assert re.match(r"now  loop 1: blocked for \d", now), done.stdout
    assert "in sleeps\n" in now
    assert CULPRIT in before


def test_slow_command_does_not_call_a_busy_loop_blocked() -> None:
    with running((SCENARIOS, "turns")) as process:
        done = goloop("slow", str(process.pid))
    assert done.returncode == 0, done.stderr
    assert "blocked" not in done.stdout


def test_a_limit_of_the_environment() -> None:
    with running(WAITS, GOLOOP_SLOW="5") as process:
        done = goloop("slow", str(process.pid))
    assert done.stdout == "no iteration has taken longer than the limit\n"


def test_ended_process_is_an_error() -> None:
    done = goloop("slow", str(2**22 - 1))
    assert done.returncode == 1
    assert "there is no process" in done.stderr


def with_stderr(program: tuple[Path, str], **environ: str) -> Program:
    return Program(
        [sys.executable, *program],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_signal_dumps_slow_iterations() -> None:
    with with_stderr(WAITS) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGUSR2)
        lines = []
        while not lines or "in culprit" not in lines[-1]:
            lines.append(process.stderr.readline())
            assert lines[-1], lines
        process.kill()
    assert lines[0] == f"goloop: process {process.pid}\n"


def test_aborting_process_prints_slow_iterations() -> None:
    with with_stderr(HOLDS_THE_GIL, GOLOOP_WATCHDOG_ABORT="1") as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGABRT
    assert "aborting the process" in err
    assert "goloop: time by function\n" in err
    assert f"holds_the_gil {SCENARIOS}:" in err
    assert f"in culprit {SCENARIOS}:{line_of('time.sleep(0.2)')}" in err


# ---- output of the recorder ---------------------------------------------------------------------


def test_a_snapshot_becomes_objects() -> None:
    raw = {
        "time": 1000.0,
        "clock": 100.0,
        "frames": [["spin", "a.py", 1], ["work", "a.py", 9]],
        "slow": [[7, 90_000_000_000, 500_000_000, 3, 600_000_000, 0, 0, [0, 0, []], []],
                 [8, 91_000_000_000, 2_000_000_000, 1, 0, 0, 1_000_000_000, [5, 2, [1, 0]],
                  [[50_000_000, 3, [0]]]]],
    }  # fmt: skip
    first, second = flight_recorder.from_raw(raw)
    assert (first.loop, first.started, first.seconds, first.gc) == (7, 990.0, 0.5, 0.5)
    assert first.longest_stack is None
    assert second.longest_stack.task == "work"
    assert [frame.function for frame in second.longest_stack.frames] == ["work", "spin"]
    assert second.stacks[0].task == "callback spin"
    assert flight_recorder.from_raw(raw, 8) == [second]
    assert str(second).splitlines()[0].endswith("loop 8: 2.000 s, 1 callback")
    assert str(first).splitlines()[0].endswith("3 callbacks, 0.500 s in the garbage collector")
