"""testing.simulations: Hypothesis makes the decisions of a simulation, and failures shrink."""

from __future__ import annotations

import asyncio
import os
import random
import re
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import database, given, settings, strategies

from goloop import testing
from goloop.testing.simulated.randomness import DrawnRandomness
from goloop.testing.simulation.run import new_session, run_to_end

sys.path.append(str(Path(__file__).resolve().parent / "corpus"))

from cases import CASES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")
SETTINGS = settings(
    deadline=None,
    derandomize=True,
    database=None,
    phases=[each for each in hypothesis.Phase if each is not hypothesis.Phase.explain],
)


def smallest(main: Callable[..., Any], examples: int = 300, **options: Any) -> BaseException:
    """Return a test's final failure, which must be of one kind."""

    @settings(SETTINGS, max_examples=examples)
    @given(testing.simulations(**options))
    def test(simulation: testing.DrawnSimulation) -> None:
        simulation.run(main)

    with pytest.raises(BaseException) as info:  # noqa: PT011
        test()
    assert not isinstance(info.value, (BaseExceptionGroup, hypothesis.errors.HypothesisException))
    return info.value


def note(exc: BaseException) -> str:
    """Ours."""
    [text] = [each for each in exc.__notes__ if each.startswith("Simulation:")]
    return str(text)


def decisions(exc: BaseException) -> dict[str, tuple[int, int]]:
    """For each kind: draws above the minimum, and all draws."""
    [line] = [
        each
        for each in note(exc).splitlines()
        if each.startswith("Decisions with another than their simplest value: ")
    ]
    found = re.findall(r"(\d+) of (\d+) about ([^,]+?)(?:,|\.$)", line)
    return {kind: (int(chosen), int(taken)) for chosen, taken, kind in found}


def case(name: str) -> Callable[[Any], Any]:
    """A program of the corpus, the wrong version."""
    [found] = [each for each in CASES if each.main.__name__ == name]

    async def main(sim: testing.Simulation) -> None:
        await found.main(sim, False)

    return main


# ---- findings and their size -------------------------------------------------------------------


def test_a_lost_wakeup_shrinks_to_one_task_that_goes_before_another() -> None:
    exc = smallest(case("condition"), 2000, policy="shuffle")
    assert isinstance(exc, testing.NeverHappened)
    found = decisions(exc)
    assert found["the order of tasks"][0] == 1
    assert found["the program's random numbers"] == (0, 2)  # the least times, one second each
    assert "ended at 11.000000 s" in note(exc)


async def needs_a_late_packet(sim: testing.Simulation) -> None:
    """Fails where one answer takes more than three ms; it is to be the only one."""
    a, b = sim.host("a"), sim.host("b")
    sim.net.set_link("a", "b", latency=(0.001, 0.1), loss=0.05, duplicate=0.1)
    sim.faults.set(short_reads=0.1, short_writes=0.1, interrupted=0.1, late_readiness=0.1)
    loop = asyncio.get_running_loop()

    class Echo(asyncio.DatagramProtocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, address: Any) -> None:
            self.transport.sendto(data, address)

    class Ask(asyncio.DatagramProtocol):
        def connection_made(self, transport: Any) -> None:
            self.came: asyncio.Queue[bytes] = asyncio.Queue()

        def datagram_received(self, data: bytes, address: Any) -> None:
            self.came.put_nowait(data)

    async def serve() -> None:
        transport, _ = await loop.create_datagram_endpoint(Echo, ("0.0.0.0", 7))
        try:
            await asyncio.sleep(100)
        finally:
            transport.close()

    async def ask() -> None:
        transport, asked = await loop.create_datagram_endpoint(Ask, remote_addr=("a", 7))
        try:
            for number in range(3):
                sent = loop.time()
                transport.sendto(b"%d" % number)
                try:
                    await asyncio.wait_for(asked.came.get(), 1)
                except TimeoutError:
                    continue
                assert loop.time() - sent < 0.003
        finally:
            transport.close()

    a.spawn(serve)
    await asyncio.sleep(1)
    await b.spawn(ask)


def test_a_slow_answer_shrinks_to_one_packet_that_is_late_without_any_fault() -> None:
    exc = smallest(needs_a_late_packet)
    assert isinstance(exc, AssertionError)
    found = decisions(exc)
    assert found["the network and the faults"][0] == 1
    packets = re.findall(r"\* datagram .* in ([0-9]+) ns", note(exc))
    *quick, late = sorted(map(int, packets))
    assert set(quick) == {1_000_000}
    # Within one of the 127 steps after the three ms.
    assert 2_000_000 <= late < 2_000_000 + 2 * 99_000_000 // 127
    assert "EINTR" not in note(exc)
    assert "* late" not in note(exc)
    assert "* lost" not in note(exc)


def test_numbers_shrink() -> None:
    async def main(sim: testing.Simulation) -> None:
        numbers = sim.random.randrange(1000), random.random(), sim.random.choice("abc")
        if numbers[0] >= 500 and numbers[1] >= 0.25 and numbers[2] != "a":
            raise KeyError(numbers)

    exc = smallest(main)
    assert exc.args == ((500, 0.25, "b"),)
    found = decisions(exc)
    assert found == {
        "sim.random and the jobs of executors": (2, 2),
        "the time that callbacks take": (0, 1),
        "the program's random numbers": (1, 1),
    }


def test_buggify_is_false_where_it_may_be() -> None:
    async def main(sim: testing.Simulation) -> None:
        taken = [sim.buggify(0.5) if number % 2 else testing.buggify(0.5) for number in range(10)]
        assert taken.count(True) < 2

    found = decisions(smallest(main))
    assert found == {"buggify()": (2, 10), "the time that callbacks take": (0, 1)}


def test_an_executor_is_as_quick_as_can_be() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.to_thread(int)
        first = loop.time() - began
        await asyncio.to_thread(int)
        if first > 0.01:
            raise KeyError(loop.time() - began - first)

    assert smallest(main).args[0] == pytest.approx(0.000_01, rel=1e-4)


async def order() -> str:
    """In which order tasks took their steps."""
    order: list[str] = []

    async def task(name: str) -> None:
        for _ in range(3):
            order.append(name)
            await asyncio.sleep(0)

    others = [asyncio.create_task(task(name)) for name in "abc"]
    await task("m")
    await asyncio.wait(others)
    return "".join(order)


@pytest.mark.parametrize("policy", ["shuffle", "pct:3"])
def test_the_least_order_is_asyncios(policy: str) -> None:
    async def main() -> None:
        raise KeyError(await order())

    exc = smallest(main, policy=policy)
    assert exc.args == ("mabcmabcmabc",)
    assert decisions(exc)["the order of tasks"][0] == 0


@pytest.mark.parametrize(("policy", "few"), [("shuffle", 2), ("pct:3", 1)])
def test_another_order_takes_few_decisions(policy: str, few: int) -> None:
    """Two are chosen before one, or its priority is lowered."""

    async def main() -> None:
        found = await order()
        if found.index("a") > max(found.index("b"), found.index("c")):
            raise KeyError(found)

    exc = smallest(main, policy=policy)
    assert decisions(exc)["the order of tasks"][0] == few


async def breaks_an_invariant(sim: testing.Simulation) -> None:
    value = [0]
    sim.always("it is small", lambda: value[0] < 2)
    for _ in range(5):
        await asyncio.sleep(sim.random.random())
        value[0] += sim.buggify(0.3)


async def leaves_a_task(sim: testing.Simulation) -> None:
    task = asyncio.create_task(asyncio.sleep(1000))
    if not sim.buggify(0.3):
        task.cancel()


async def leaves_an_exception(sim: testing.Simulation) -> None:
    async def fail() -> None:
        raise KeyError(sim.random.random())

    task = asyncio.create_task(fail())
    await asyncio.wait([task])
    if not sim.buggify(0.3):
        task.exception()


async def waits_for_ever(sim: testing.Simulation) -> None:
    await asyncio.sleep(1)
    if sim.buggify(0.3):
        await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize(
    ("main", "policy", "error"),
    [
        (breaks_an_invariant, "io", testing.InvariantBroken),
        (leaves_a_task, "io", testing.LeftBehind),
        (leaves_an_exception, "io", testing.LeftBehind),
        (waits_for_ever, "shuffle", testing.SimulationDeadlock),
        (case("starttls"), "io", AssertionError),
    ],
    ids=["invariant", "task", "exception", "deadlock", "starttls"],
)
def test_an_example_always_fails_in_the_same_way(main: Any, policy: str, error: Any) -> None:
    assert isinstance(smallest(main, 1000, policy=policy), error)


# ---- how it works with Hypothesis ----------------------------------------------------------------


@settings(SETTINGS, max_examples=20)
@given(testing.simulations(), strategies.integers(0, 5))
def test_a_test_of_pytest(simulation: testing.DrawnSimulation, number: int) -> None:
    async def main(sim: testing.Simulation) -> int:
        await asyncio.sleep(number)
        return number + sim.seed

    result, again = simulation.run(main), simulation.run(main)
    assert (result.value, result.time) == (number, number)
    # Nothing is decided but the time of callbacks, which the timer of the sleep may add to.
    traces = [
        [line for line in each.trace.splitlines() if "callbacks take" not in line]
        for each in (result, again)
    ]
    assert traces[0] == traces[1]


def test_cleanup_after_a_failure_is_not_another_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def linger() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            raise OSError("it was cancelled")

    async def main() -> None:
        task = asyncio.create_task(linger())
        await asyncio.sleep(1)
        raise KeyError(task.done())

    assert isinstance(smallest(main, 10), KeyError)
    assert not caplog.records


def test_failing_example_is_kept() -> None:
    kept = database.InMemoryExampleDatabase()
    seen: list[str] = []

    @settings(SETTINGS, max_examples=300, derandomize=False, database=kept)
    @given(testing.simulations())
    def test(simulation: testing.DrawnSimulation) -> None:
        seen.append("run")
        simulation.run(waits_for_ever)

    for _ in range(2):
        seen.clear()
        with pytest.raises(testing.SimulationDeadlock):
            test()
    assert len(seen) < 10  # the first has failed, and there was nothing to shrink


def test_a_run_may_take_more_decisions_than_are_drawn() -> None:
    numbers: set[float] = set()
    latencies: set[str] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    async def main(sim: testing.Simulation) -> None:
        async with await asyncio.start_server(serve, "localhost", 80):
            reader, writer = await asyncio.open_connection("localhost", 80)
            drawn = [sim.random.random() for _ in range(3000)]
            numbers.add(drawn[-1])
            for _ in range(30):
                writer.write(b"hello")
                await reader.read(100)
            writer.close()

    @settings(SETTINGS, max_examples=20)
    @given(testing.simulations())
    def test(simulation: testing.DrawnSimulation) -> None:
        latencies.add(re.findall(r"in (\d+) ns", simulation.run(main).trace)[-1])

    test()
    assert len(numbers) > 5
    assert len(latencies) > 5  # the kernel's decisions, too, are not all the least


def test_run_ends_when_hypothesis_stops_drawing() -> None:
    def draw(n: int, count: int) -> list[int]:
        if n == 77:
            raise KeyError
        return [0] * count

    async def main(sim: testing.Simulation) -> None:
        await asyncio.sleep(1)
        sim.random.randrange(77)
        await asyncio.sleep(1000)

    session = new_session(0, "io", drawn=DrawnRandomness(draw))
    with pytest.raises(KeyError):
        run_to_end(session, main, None)
    assert session.ended == 1


def test_a_number_takes_one_decision() -> None:
    given = iter([2, 2, 0])

    def draw(n: int, count: int) -> list[int]:
        return [next(given)] if n == 3 else [0] * count

    async def main(sim: testing.Simulation) -> list[int]:
        return [sim.random.randrange(3), random.randint(0, 2)]

    assert run_to_end(new_session(0, "io", drawn=DrawnRandomness(draw)), main, None) == [2, 2]


def test_program_that_repeats_a_draw_gets_another_number() -> None:
    async def main() -> None:
        while random.random() < 0.9:
            pass
        raise KeyError

    @settings(SETTINGS, max_examples=3, phases=[hypothesis.Phase.generate])
    @given(testing.simulations())
    def test(simulation: testing.DrawnSimulation) -> None:
        simulation.run(main)

    with pytest.raises(KeyError):
        test()


def test_long_numbers_are_different_and_one_decision() -> None:
    async def main() -> None:
        names = {uuid.uuid4() for _ in range(10)} | {os.urandom(16) for _ in range(10)}
        raise KeyError(len(names), random.Random().random() != random.Random().random())

    exc = smallest(main, 10)
    assert exc.args == (20, True)
    assert decisions(exc)["long random numbers"] == (0, 1)


def test_programs_own_seed_is_used() -> None:
    expected = random.Random(7)
    numbers = [expected.random(), expected.randrange(1000), expected.getrandbits(20)]

    async def main() -> None:
        random.seed(7)
        assert numbers == [random.random(), random.randrange(1000), random.getrandbits(20)]
        raise KeyError

    assert isinstance(smallest(main, 10), KeyError)


def test_the_trace_of_the_smallest_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOLOOP_SIM_TRACES", str(tmp_path))
    exc = smallest(waits_for_ever, policy="shuffle")
    [path] = tmp_path.iterdir()
    assert f"Trace, for ui.perfetto.dev: {path}" in note(exc)


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="can't use 'dfs:2'"):
        testing.simulations(policy="dfs:2")
    with pytest.raises(ValueError, match="policy must be"):
        testing.simulations(policy="io:3")
    with pytest.raises(ValueError, match="allow= must be"):
        testing.simulations(allow=["files"])


def test_missing_hypothesis_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(ImportError, match="needs Hypothesis, which is not installed"):
        testing.simulations()
