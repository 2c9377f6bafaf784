"""asyncio's own loop in a simulation: `loop="asyncio"`.

Simulations of asyncio keep the promises that other modules test, and a program's outcome can be
compared with asyncio's.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tls_tools

from goloop import testing
from goloop.testing.simulation import session

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")

if sys.platform == "linux":
    import test_hosts
    import test_network
    import test_policies
    import test_testing

# ---- the tests of simulations, on asyncio's loop -----------------------------------------------

# Programs in which asyncio differs: goloop hears of a reset when it comes, asyncio when it sends
# the next time.
_OTHERS = {"test_peers_of_a_host_that_ends"}


def _simulations(module: Any) -> dict[str, Callable[..., None]]:
    """Return the tests of a module that run in simulations."""
    every = {name: each for name, each in vars(module).items() if name.startswith("test_")}
    if module.__name__ == "test_testing":
        marked = {each: getattr(each, "pytestmark", ()) for each in every.values()}
        linux = test_testing.linux.mark
        every = {name: each for name, each in every.items() if linux in marked[each]}
    return {name: each for name, each in every.items() if name not in _OTHERS}


if sys.platform == "linux":
    for _module in (test_hosts, test_network, test_policies, test_testing):
        globals().update(_simulations(_module))


@pytest.fixture(autouse=True)
def _default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulations that name no loop have asyncio's."""
    real = session.loop_class
    names = {"goloop": "asyncio", "goloop's": "goloop"}
    monkeypatch.setattr(session, "loop_class", lambda name: real(names.get(name, name)))


BOTH = ("goloop's", "asyncio")

# ---- asyncio's part ----------------------------------------------------------------------------


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100_000):
        writer.write(data)
        await writer.drain()
    writer.close()


async def talk(server_side: Any = None, client_side: Any = None) -> tuple[bytes, list[type]]:
    """Return a server's answer, and the classes of a loop, a task and a transport."""
    async with await asyncio.start_server(echo, "localhost", 80, ssl=server_side):
        reader, writer = await asyncio.open_connection("localhost", 80, ssl=client_side)
        writer.write(bytes(range(256)) * 2000)
        answer = await reader.readexactly(512_000)
        task = asyncio.current_task()
        classes = [type(each) for each in (asyncio.get_running_loop(), task, writer.transport)]
        writer.close()
        await writer.wait_closed()
        return answer, classes


def test_loop_tasks_and_transports_are_asyncios() -> None:
    answer, classes = testing.run(talk, loop="asyncio").value
    assert answer == bytes(range(256)) * 2000
    assert issubclass(classes[0], asyncio.SelectorEventLoop)
    assert classes[1].__base__ is asyncio.Task
    assert classes[2] is asyncio.selector_events._SelectorSocketTransport  # type: ignore[attr-defined]


def test_tls_is_asyncios() -> None:
    made = tls_tools.identity()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(made.certificate, made.key)
    client = ssl.create_default_context(cafile=made.certificate)

    async def main() -> tuple[bytes, list[type]]:
        return await talk(server, client)

    answer, classes = testing.run(main, loop="asyncio").value
    assert answer == bytes(range(256)) * 2000
    assert classes[2] is asyncio.sslproto._SSLProtocolTransport


def test_a_seed_gives_the_same_trace_again() -> None:
    one, other = (testing.run(talk, seed=7, loop="asyncio").trace for _ in range(2))
    assert one == other
    assert one != testing.run(talk, seed=8, loop="asyncio").trace


def packets(trace: str) -> list[str]:
    """Return the arrivals by time and place, without the path: the seed decides its time."""
    return re.findall(r"^(.* \* (?:syn|data|fin) .*)$", trace, re.MULTILINE)


def test_both_loops_send_the_same_at_the_same_time_where_the_network_decides_nothing() -> None:
    async def client() -> bytes:
        reader, writer = await asyncio.open_connection("a", 80)
        writer.write(b"hello")
        writer.write_eof()
        answer = await reader.read()
        await asyncio.sleep(0.0123)
        writer.close()
        return answer

    async def serve() -> None:
        async with await asyncio.start_server(echo, None, 80) as server:
            await server.serve_forever()

    async def main(sim: testing.Simulation) -> bytes:
        a, b = sim.host("a"), sim.host("b")
        sim.net.set_link("a", "b", latency=0.0012345)
        a.spawn(serve)
        return await b.spawn(client)

    ran = [testing.run(main, loop=loop) for loop in BOTH]
    assert [each.value for each in ran] == [b"hello", b"hello"]
    assert ran[0].time == ran[1].time
    assert packets(ran[0].trace) == packets(ran[1].trace)
    assert len(packets(ran[0].trace)) >= 4


# ---- findings of a simulation ------------------------------------------------------------------


async def transfer(sim: testing.Simulation) -> None:
    if sim.seed == 3:
        await asyncio.sleep(0.25)
        raise ValueError("it fails")


failing = testing.simulate(seeds=10, loop="asyncio")(transfer)
failing.__qualname__ = "failing"


def test_a_failure_is_the_same_in_new_processes() -> None:
    with pytest.raises(ValueError, match="it fails") as info:
        failing()
    [note] = info.value.__notes__
    assert "seed 3, policy io, ended at 0.250000 s" in note
    assert "Two new processes gave the same run." in note


def test_a_deadlock_is_found() -> None:
    async def waits() -> None:
        await asyncio.Event().wait()

    with pytest.raises(testing.SimulationDeadlock, match="waits"):
        testing.run(waits, loop="asyncio")
    with pytest.raises(testing.SimulationTimeout):
        testing.run(lambda: asyncio.sleep(100), max_time=99, loop="asyncio")


async def leaves_a_task() -> None:
    task = asyncio.create_task(asyncio.sleep(100), name="left")
    await asyncio.sleep(0)
    del task


async def leaves_a_server() -> None:
    await asyncio.start_server(echo, "localhost", 80)


async def leaves_a_connection() -> Any:
    server = await asyncio.start_server(echo, "localhost", 80)
    streams.append(await asyncio.open_connection("localhost", 80))
    await asyncio.sleep(1)
    server.close()


async def leaves_an_exception() -> None:
    asyncio.get_running_loop().create_future().set_exception(ValueError("nobody looks"))


streams: list[Any] = []


@pytest.mark.parametrize(
    ("program", "kind", "what"),
    [
        (leaves_a_task, "tasks", "left"),
        (leaves_a_server, "transports", "a server listens"),
        (leaves_a_connection, "transports", "a transport is open: <_SelectorSocketTransport"),
        (leaves_an_exception, "exceptions", "Future exception was never retrieved"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_leftovers_are_found(program: Any, kind: str, what: str) -> None:
    every = ("tasks", "transports", "exceptions")
    with pytest.raises(testing.LeftBehind) as info:
        testing.simulate(seeds=1, loop="asyncio", allow=set(every) - {kind})(program)()
    assert any(what in each for each in info.value.findings)
    testing.simulate(seeds=1, loop="asyncio", allow=every)(program)()
    streams.clear()


def test_invariant_is_checked_after_each_iteration() -> None:
    state = [True]

    async def main(sim: testing.Simulation) -> None:
        sim.always("it holds", lambda: state[0])
        asyncio.get_running_loop().call_soon(state.__setitem__, 0, False)
        asyncio.get_running_loop().call_later(1, state.__setitem__, 0, True)
        await asyncio.sleep(2)

    with pytest.raises(testing.InvariantBroken, match="it holds"):
        testing.run(main, loop="asyncio")


# ---- its selector --------------------------------------------------------------------------------


def test_a_file_is_sent(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc" * 100_000)

    async def main() -> bytes:
        loop = asyncio.get_running_loop()
        async with await asyncio.start_server(echo, "localhost", 80):
            reader, writer = await asyncio.open_connection("localhost", 80)
            with open(tmp_path / "file", "rb") as file:
                await loop.sendfile(writer.transport, file)
            writer.write_eof()
            answer = await reader.read()
            writer.close()
            return answer

    assert testing.run(main, loop="asyncio").value == b"abc" * 100_000


def test_readiness_ends_with_the_host_of_a_socket() -> None:
    """The kernel has closed it; a new one may have its number."""

    async def waits() -> None:
        reader, writer = await asyncio.open_connection("b", 80)
        writer.write(bytes(10_000_000))  # so that both directions are watched
        writer.transport.pause_reading()
        writer.transport.resume_reading()
        await reader.read()

    async def holds(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(1000)
        writer.close()

    async def serve() -> None:
        async with await asyncio.start_server(holds, None, 80) as server:
            await server.serve_forever()

    async def main(sim: testing.Simulation) -> int:
        a, b = sim.host("a"), sim.host("b")
        b.spawn(serve)
        result = a.spawn(waits)
        for _ in range(5):
            await asyncio.sleep(1)
            a.restart()
        await asyncio.sleep(1)
        assert not result.done()
        return sim.seed

    assert testing.run(main, seed=3, loop="asyncio").value == 3


def test_the_name_of_a_loop_is_one_of_two() -> None:
    with pytest.raises(ValueError, match="'goloop' or 'asyncio', got 'uvloop'"):
        testing.run(talk, loop="uvloop")
    with pytest.raises(ValueError, match="'goloop' or 'asyncio', got 'uvloop'"):
        testing.simulate(loop="uvloop")
