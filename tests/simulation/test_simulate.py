"""goloop.testing.simulate: many seeds, the report of a failing one, and leftovers."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import socket
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ended
import pytest
import tls_tools

from goloop import testing

PROGRAMS = Path(__file__).with_name("programs")

linux = pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")
pytestmark = linux


def failure(test: Callable[..., None], *args: Any, **options: Any) -> BaseException:
    """Return the exception that a test raises."""
    with pytest.raises(BaseException) as info:  # noqa: PT011
        test(*args, **options)
    return info.value


def note(exc: BaseException) -> str:
    """Return the only note of an exception."""
    [text] = exc.__notes__
    return str(text)


# ---- many seeds ----------------------------------------------------------------------------------


def test_each_seed_is_run_once_in_order() -> None:
    seen: list[int] = []

    @testing.simulate(seeds=20)
    async def many(sim: testing.Simulation) -> None:
        await asyncio.sleep(1)
        seen.append(sim.seed)

    many()
    assert seen == list(range(20))


def test_a_test_keeps_its_other_parameters() -> None:
    import inspect

    seen = []

    class Tests:
        @testing.simulate(seeds=1)
        async def call(self, a: int, sim: testing.Simulation, b: int = 5) -> None:
            seen.append((a, b, sim.seed))

    assert list(inspect.signature(Tests().call).parameters) == ["a", "b"]
    assert not inspect.iscoroutinefunction(Tests().call)
    Tests().call(1)
    Tests().call(1, b=2)
    assert seen == [(1, 5, 0), (1, 2, 0)]


@testing.simulate(seeds=50)
async def fails_late(sim: testing.Simulation) -> None:
    """Fails at the first seed with a small third number, which is not the seed 0."""
    await asyncio.sleep(3)
    task = asyncio.create_task(asyncio.sleep(1000), name="in the background")
    await asyncio.sleep(0.5)
    numbers = [random.random() for _ in range(3)]
    if numbers[2] > 0.8:
        raise OSError(5, f"numbers {numbers}")
    task.cancel()


def test_a_failure_is_the_original_with_a_note() -> None:
    exc = failure(fails_late)
    assert isinstance(exc, OSError)
    text = note(exc)
    seed = int(text.split("seed ")[1].split(",")[0])
    assert seed > 0
    assert f"policy io, ended at {3.5:.6f} s of virtual time" in text
    assert f"--goloop-replay=io/{seed}," in text
    assert f"GOLOOP_SIM_REPLAY=io/{seed}\n" in text
    assert "Two new processes gave the same run." in text
    events = text.split("The last events:\n")[1].splitlines()
    assert events[-2:] == [
        "      3.000000 s  step 2 sleep 'in the background'",
        "      3.500000 s  step 1 fails_late",
    ]  # and not how the background ended


def test_a_token_replays_the_failing_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    first = failure(fails_late)
    token = note(first).split("GOLOOP_SIM_REPLAY=")[1].split("\n")[0]
    seen = []

    @testing.simulate(policy="shuffle")
    async def other(sim: testing.Simulation) -> None:
        seen.append(sim.seed)

    monkeypatch.setenv("GOLOOP_SIM_REPLAY", token)
    again = failure(fails_late)
    assert str(again) == str(first)
    assert "processes" not in note(again)
    assert note(again).split("events")[1] == note(first).split("events")[1]
    other()
    assert seen == [int(token.split("/")[1])]
    monkeypatch.setenv("GOLOOP_SIM_REPLAY", "io7")
    with pytest.raises(ValueError, match="like 'io/7', got 'io7'"):
        other()


def test_local_function_is_not_run_again_and_the_note_has_the_reason() -> None:
    @testing.simulate()
    async def local() -> None:
        raise KeyError("local")

    exc = failure(local)
    assert isinstance(exc, KeyError)
    assert "The run was not repeated in a new process: test_local" in note(exc)
    assert "<locals>.local can't be imported" in note(exc)


@testing.simulate()
async def fails_with(argument: object) -> None:
    raise KeyError(argument)


def test_arguments_are_passed_or_the_note_has_the_reason() -> None:
    assert "Two new processes gave the same run." in note(failure(fails_with, (1, "two")))
    assert "its arguments can't be pickled" in note(failure(fails_with, lambda: 0))


def test_a_new_process_gets_the_entries_of_the_path_that_imports_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, Path("/nowhere"), b"/nowhere", None])
    assert "Two new processes gave the same run." in note(failure(fails_with, 1))


@testing.simulate()
async def prints_and_fails() -> None:
    print("what is printed is not the answer")
    raise KeyError


def test_a_test_may_print() -> None:
    assert "Two new processes gave the same run." in note(failure(prints_and_fails))


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda: testing.simulate(lambda: None), "with parentheses"),  # type: ignore[arg-type]
        (lambda: testing.simulate(seeds=0), "seeds must be >= 1, got 0"),
        (lambda: testing.simulate(policy="best"), "policy must be"),
        (lambda: testing.simulate(policy="pct"), "policy must be"),
        (lambda: testing.simulate(allow="sockets"), "allow= must be"),
        (lambda: testing.simulate()(lambda sim: None), "expected a coroutine function"),
    ],
)
def test_wrong_arguments(wrong: Callable[[], object], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        wrong()


# ---- runs that are not the same again ------------------------------------------------------------


@testing.simulate(seeds=1)
async def starts_in_the_order_of_a_set() -> None:
    for name in {f"task {number}" for number in range(20)}:
        asyncio.create_task(asyncio.sleep(0), name=name)  # noqa: RUF006
    await asyncio.sleep(1)
    raise KeyError


@testing.simulate(seeds=1)
async def sends_to_a_set() -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
    )
    for text in {"x" * size for size in range(1, 20)}:
        transport.sendto(text.encode(), ("127.0.0.1", 99))
    await asyncio.sleep(1)
    transport.close()
    raise KeyError


state = 0


@testing.simulate(seeds=2)
async def depends_on_the_runs_before() -> None:
    global state
    state += 1
    if state % 2 == 0:
        raise KeyError


@testing.simulate(seeds=1)
async def fails_here_only() -> None:
    if os.environ.get("PYTHONHASHSEED") not in ("1", "2"):
        raise KeyError


@pytest.mark.parametrize(
    ("test", "what"),
    [
        (starts_in_the_order_of_a_set, "step 2 sleep 'task "),
        (sends_to_a_set, " send"),
        (depends_on_the_runs_before, "ended with KeyError, then no error, then no error."),
        (fails_here_only, "ended with KeyError, then no error, then no error."),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_nondeterministic_runs_are_a_separate_error(
    test: Callable[..., None], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "state", 0)
    exc = failure(test)
    assert isinstance(exc, testing.NonDeterminism)
    assert isinstance(exc.__cause__, KeyError)
    assert what in str(exc)
    assert "the order of a set of strings" in str(exc)
    assert "The first event that differs is number" in str(exc)


# ---- invariants ----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["io", "shuffle"])
def test_always_condition_is_checked_after_each_iteration(policy: str) -> None:
    leaders: list[str] = []

    async def lead(name: str, begin: float, end: float) -> None:
        await asyncio.sleep(begin)
        leaders.append(name)
        await asyncio.sleep(end - begin)
        leaders.remove(name)

    async def main(sim: testing.Simulation) -> None:
        sim.always("one leader", lambda: len(leaders) <= 1)
        await asyncio.gather(lead("a", 1, 5), lead("b", 4.5, 6))

    with pytest.raises(
        testing.InvariantBroken,
        match=r"(?m)^the invariant 'one leader' was false at 4\.500000 s .*; seed 6$",
    ):
        testing.run(main, seed=6, policy=policy)


def test_ordering_policy_checks_always_conditions_after_each_step() -> None:
    async def main(sim: testing.Simulation) -> None:
        changed = []

        async def change() -> None:
            changed.append(1)

        async def change_back() -> None:
            changed.clear()

        sim.always("unchanged", lambda: not changed)
        await asyncio.gather(change(), change_back())

    testing.run(main)  # both in one iteration
    with pytest.raises(testing.InvariantBroken):
        testing.run(main, policy="dfs:0")


def test_a_predicate_that_raises_ends_the_simulation() -> None:
    async def main(sim: testing.Simulation) -> None:
        sim.always("sound", lambda: 1 / sim.time() if sim.time() < 2 else 1 // 0)
        await asyncio.sleep(5)

    async def begin(sim: testing.Simulation) -> None:
        await asyncio.sleep(1)
        await main(sim)

    for policy in ("io", "shuffle"):
        with pytest.raises(ZeroDivisionError):
            testing.run(begin, policy=policy)


def test_eventually_condition_fails_only_at_its_deadline() -> None:
    async def main(sim: testing.Simulation) -> None:
        elected: list[int] = []
        sim.eventually("elected", lambda: elected, within=30)
        asyncio.get_running_loop().call_later(20, elected.append, 1)
        asyncio.get_running_loop().call_later(21, elected.clear)
        await asyncio.sleep(40)
        sim.eventually("elected again", lambda: elected, within=30)
        await asyncio.sleep(100)

    with pytest.raises(
        testing.NeverHappened,
        match=r"(?m)^'elected again' was not true within 30 s from 40\.0+ s on, at 70\..*seed 0$",
    ):
        testing.run(main)


def test_a_promise_outlives_main() -> None:
    async def main(sim: testing.Simulation, when: float) -> None:
        done: list[int] = []
        asyncio.get_running_loop().call_later(when, done.append, 1)
        sim.eventually("done", lambda: done, within=10)

    assert testing.run(lambda sim: main(sim, 9)).time == 0
    with pytest.raises(testing.NeverHappened, match=r"at 10\.0"):
        testing.run(lambda sim: main(sim, 11))


def test_rare_things_happen_as_the_seed_decides() -> None:
    async def main(sim: testing.Simulation) -> list[bool]:
        return [sim.buggify() for _ in range(300)] + [testing.buggify(0.5) for _ in range(100)]

    first = testing.run(main, seed=1).value
    assert first == testing.run(main, seed=1).value != testing.run(main, seed=2).value
    assert 10 < sum(first[:300]) < 60
    assert 30 < sum(first[300:]) < 70
    assert not any(testing.buggify(1) for _ in range(100))


# ---- leftovers -----------------------------------------------------------------------------------


async def leaves_a_task() -> None:
    asyncio.create_task(asyncio.sleep(1000), name="left alone")  # noqa: RUF006


async def leaves_a_server() -> None:
    await asyncio.start_server(lambda reader, writer: None, "localhost", 80)


kept: list[Any] = []


async def leaves_a_transport() -> None:
    async with await asyncio.start_server(lambda reader, writer: writer.close(), "localhost", 80):
        kept.append(await asyncio.open_connection("localhost", 80))
        await asyncio.sleep(1)


async def drops_a_stream() -> None:
    async with await asyncio.start_server(lambda reader, writer: writer.close(), "localhost", 80):
        await asyncio.open_connection("localhost", 80)
        await asyncio.sleep(1)


async def drops_a_transport() -> None:
    loop = asyncio.get_running_loop()
    async with await asyncio.start_server(lambda reader, writer: writer.close(), "localhost", 80):
        transport, _ = await loop.create_connection(asyncio.Protocol, "localhost", 80)
        transport.pause_reading()  # so that the loop does not hold it
        del transport, _
        gc.collect()
        await asyncio.sleep(1)


async def leaves_an_exception() -> None:
    async def fail() -> None:
        raise KeyError("nobody looks")

    asyncio.create_task(fail())  # noqa: RUF006
    await asyncio.sleep(1)


async def leaves_an_exception_in_a_cycle() -> None:
    future = asyncio.get_running_loop().create_future()
    future.set_exception(KeyError("nobody looks"))
    cycle: list[Any] = [future]
    cycle.append(cycle)


async def fails_in_a_callback() -> None:
    asyncio.get_running_loop().call_soon(lambda: {}["nobody looks"])
    await asyncio.sleep(1)


LEFT = [
    (leaves_a_task, "tasks", "left alone"),
    (leaves_a_server, "transports", "a server listens"),
    (leaves_a_transport, "transports", "a transport is open: <StreamTransport"),
    (drops_a_stream, "transports", "deallocated without close(): <StreamWriter transport="),
    (drops_a_transport, "transports", "deallocated without close(): transport <StreamTransport"),
    (leaves_an_exception, "exceptions", "Task exception was never retrieved: KeyError"),
    (leaves_an_exception_in_a_cycle, "exceptions", "Future exception was never retrieved"),
    (fails_in_a_callback, "exceptions", "Exception in callback"),
]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(
    ("main", "kind", "what"), LEFT, ids=lambda each: getattr(each, "__name__", str(each)[:30])
)
def test_leftovers_are_errors_unless_allowed(main: Any, kind: str, what: str) -> None:
    exc = failure(testing.simulate(seeds=1)(main))
    kept.clear()
    assert isinstance(exc, testing.LeftBehind)
    [finding] = exc.findings
    assert what in finding
    assert finding in str(exc)
    assert "seed 0" in str(exc)
    assert isinstance(exc.__cause__, KeyError if kind == "exceptions" else type(None))
    testing.simulate(seeds=1, allow=[kind])(main)()
    testing.simulate(seeds=1, allow=kind)(main)()
    kept.clear()
    testing.run(main)  # which just cancels
    kept.clear()


def test_leftovers_do_not_affect_a_later_simulation() -> None:
    left: list[Any] = []

    async def leave() -> None:
        left.extend(socket.socketpair())
        await leaves_a_transport()
        left.extend(kept.pop())

    async def well() -> bytes:
        a, b = await asyncio.to_thread(socket.socketpair)
        c, d = socket.socketpair()
        left.clear()
        gc.collect()
        for each in (a, c):
            each.sendall(b"well")
        return b.recv(10) + d.recv(10)

    testing.run(leave)
    assert len(left) == 4
    assert testing.run(well).value == b"wellwell"


def test_failed_tls_leaves_no_leftovers() -> None:
    context = tls_tools.server_context()

    async def fail() -> None:
        server = await asyncio.start_server(
            lambda reader, writer: writer.close(), "localhost", 80, ssl=context
        )
        async with server:
            with pytest.raises(ssl.SSLError):  # a certificate that nothing vouches for
                await asyncio.open_connection("localhost", 80, ssl=ssl.create_default_context())
            await asyncio.sleep(1)

    testing.simulate(seeds=3)(fail)()


def test_ending_tasks_may_take_a_moment() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        await asyncio.sleep(1)
        writer.close()

    @testing.simulate(seeds=10)
    async def well() -> None:
        async with await asyncio.start_server(serve, "localhost", 80):
            _, writer = await asyncio.open_connection("localhost", 80)
            writer.close()
            ending = asyncio.create_task(asyncio.sleep(1000))
            asyncio.get_running_loop().call_later(1, ending.cancel)

    well()


def test_programs_failure_takes_precedence_over_leftovers() -> None:
    @testing.simulate(seeds=1)
    async def fails() -> None:
        await leaves_a_task()
        await leaves_an_exception()
        raise ZeroDivisionError

    assert isinstance(failure(fails), ZeroDivisionError)


@pytest.mark.parametrize("frozen", [False, True])
def test_earlier_garbage_is_not_collected_within_a_simulation(frozen: bool) -> None:
    told: list[bool] = []
    within = False
    loop = asyncio.new_event_loop()
    gc.disable()  # or it might be collected before
    gc.unfreeze()
    if frozen:
        gc.freeze()
    loop.set_exception_handler(lambda loop, context: told.append(within))
    future = loop.create_future()
    future.set_exception(KeyError("of another loop"))
    cycle: list[Any] = [future]
    cycle.append(cycle)
    del future, cycle

    @testing.simulate(seeds=1)
    async def well() -> None:
        nonlocal within
        within = True
        await asyncio.sleep(1)
        assert gc.get_freeze_count() > 0

    try:
        well()
        assert told == [False] * frozen
        assert (gc.get_freeze_count() > 0) == frozen
        within = False
        gc.collect()
        assert told == [False]
    finally:
        gc.enable()
        gc.freeze()  # as conftest.py does
        loop.close()


# ---- plainly -------------------------------------------------------------------------------------


def test_decorated_function_runs_as_a_program(tmp_path: Path) -> None:
    program = tmp_path / "simulated_sleep.py"
    program.write_text((PROGRAMS / "simulated_sleep.py").read_text())
    ran = ended.python(program, apart=True)
    assert ran.returncode == 1
    assert "GOLOOP_SIM_REPLAY=io/3" in ran.stderr
    assert "Two new processes gave the same run." in ran.stderr


def test_new_invariant_is_checked_after_its_own_iteration() -> None:
    went_on = []

    async def main(sim: Any) -> None:
        await asyncio.sleep(1)
        sim.always("never", lambda: False)
        await asyncio.sleep(0.001)
        went_on.append(True)

    with pytest.raises(testing.InvariantBroken, match=r"the invariant 'never' was false at 1\.000"):
        testing.run(main, seed=1)
    assert went_on == []


@pytest.mark.parametrize("stops", [True, False])
def test_a_new_invariant_beside_a_stop_of_the_loop(stops: bool) -> None:
    looks = []

    async def main(sim: Any) -> str:
        sim.always("looked at", lambda: looks.append(True) is None)
        if stops:
            asyncio.get_running_loop().stop()
        await asyncio.sleep(1)
        return "done"

    if stops:
        with pytest.raises(RuntimeError, match="stopped before Future completed"):
            testing.run(main, seed=1)
        assert len(looks) == 1
    else:
        assert testing.run(main, seed=1).value == "done"
        assert len(looks) > 2
