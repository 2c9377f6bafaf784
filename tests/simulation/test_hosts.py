"""Hosts of a simulation: their programs, their end, and their restart."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import datetime
import gc
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from goloop import testing

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.closing(writer), contextlib.suppress(OSError):
        while data := await reader.read(1000):
            writer.write(data)
            await writer.drain()


async def serve(port: int = 80) -> None:
    async with await asyncio.start_server(echo, None, port) as server:
        await server.serve_forever()


async def call(host: str, port: int = 80, data: bytes = b"hello") -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(data)
        return await reader.readexactly(len(data))
    finally:
        writer.close()


def test_hosts_have_names_addresses_and_ports_of_their_own() -> None:
    seen: list[object] = []

    async def names() -> None:
        loop = asyncio.get_running_loop()
        sock = socket.socket()
        sock.bind(("", 80))
        seen.append((socket.gethostname(), sock.getsockname()))
        found = await loop.getaddrinfo("b", 80, type=socket.SOCK_STREAM)
        assert {each[4] for each in found} == {("10.0.0.2", 80)}
        assert socket.gethostbyname("a") == "10.0.0.1"
        seen.append(await loop.run_in_executor(None, socket.gethostname))
        sock.close()

    async def main(sim: testing.Simulation) -> None:
        a, b = sim.host("a"), sim.host("b")
        assert (a.name, a.address, b.address, a.is_up) == ("a", "10.0.0.1", "10.0.0.2", True)
        assert repr(a) == "<Host a 10.0.0.1>"
        for wrong in ("a", "", "localhost"):
            with pytest.raises(ValueError, match="name of a host must be new"):
                sim.host(wrong)
        await asyncio.gather(a.spawn(names), b.spawn(names))
        assert socket.gethostname() == "localhost"
        with pytest.raises(socket.gaierror):
            socket.getaddrinfo("nobody", 80)

    testing.run(main)
    assert seen == [("a", ("0.0.0.0", 80)), ("b", ("0.0.0.0", 80)), "a", "b"] or seen == [
        *(("a", ("0.0.0.0", 80)), ("b", ("0.0.0.0", 80)), "b", "a")
    ]


@testing.simulate(seeds=1)
async def test_hosts_and_the_main_function_reach_each_other(sim: testing.Simulation) -> None:
    async def local() -> None:
        assert await call("localhost", 81) == b"hello"

    a, b = sim.host("a"), sim.host("b")
    a.spawn(serve)
    a.spawn(serve, port=81)
    await asyncio.sleep(1)
    assert await b.spawn(call, "a") == b"hello"
    assert await call("a") == b"hello"
    await a.spawn(local)
    with pytest.raises(ConnectionRefusedError):
        await b.spawn(local)
    with pytest.raises(ConnectionRefusedError):
        await local()


def test_program_ends_with_its_result_or_exception() -> None:
    cancelled: list[float] = []

    async def sleeps() -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            cancelled.append(round(asyncio.get_running_loop().time() - 1))
            raise

    async def fails() -> None:
        raise ZeroDivisionError

    async def main(sim: testing.Simulation) -> None:
        a = sim.host("a")
        assert await a.spawn(asyncio.sleep, 1, result=7) == 7
        with pytest.raises(ZeroDivisionError):
            await a.spawn(fails)
        left = a.spawn(sleeps)
        await asyncio.sleep(1)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        await asyncio.sleep(1)
        assert cancelled == [2]
        own = a.spawn(cancels_itself)
        with pytest.raises(asyncio.CancelledError):
            await own
        assert sim.time() < 10

    async def cancels_itself() -> None:
        task: Any = asyncio.current_task()
        task.cancel()
        await asyncio.sleep(1)

    testing.run(main)


def test_kill_runs_no_code_of_the_program() -> None:
    ran: list[str] = []

    @contextlib.contextmanager
    def entered() -> Iterator[None]:
        try:
            yield
        finally:
            ran.append("manager")

    async def generates() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.sleep(1000)
        finally:
            ran.append("generator")

    class Sees(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:
            ran.append("protocol")

    async def inner() -> None:
        try:
            with entered():
                async with contextlib.AsyncExitStack() as stack:
                    stack.enter_context(entered())
                    async for _ in generates():  # now at its yield; the next one sleeps
                        async for _ in generates():
                            pass
        finally:
            ran.append("inner")

    async def program(shared: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(1.5, ran.append, "timer")
        loop.call_soon(lambda: loop.call_later(1.6, ran.append, "timer of a callback"))
        pair = socket.socketpair()
        await loop.create_connection(Sees, sock=pair[0])
        subtask = asyncio.ensure_future(inner())
        job = asyncio.ensure_future(asyncio.to_thread(ran.append, "job"))
        await job
        try:
            await asyncio.gather(subtask, spins(), shared.wait())
        except BaseException as exc:
            ran.append(repr(exc))
            raise
        finally:
            ran.append("finally")

    async def spins() -> None:
        while True:
            await asyncio.sleep(0.001)

    async def main(sim: testing.Simulation) -> None:
        a, shared = sim.host("a"), asyncio.Event()
        result = a.spawn(program, shared)
        await asyncio.sleep(1)
        before = len(asyncio.all_tasks())
        a.kill()
        assert not a.is_up
        assert len(asyncio.all_tasks()) < before
        a.kill()
        with pytest.raises(RuntimeError, match="is down"):
            a.spawn(program, shared)
        shared.set()
        await asyncio.sleep(10)
        assert not result.done()

    assert testing.run(main).time == pytest.approx(11)
    gc.collect()
    assert ran == ["job"]


def test_task_of_any_class_ends_with_its_host() -> None:
    """aiohttp makes those of its connections eager, and not by the loop."""
    eager: dict[str, Any] = {} if sys.version_info < (3, 12) else {"eager_start": True}

    async def program() -> None:
        loop = asyncio.get_running_loop()
        made = [
            asyncio.Task(asyncio.sleep(1000), loop=loop, **eager),
            asyncio.Task(asyncio.sleep(1000), loop=loop),
            asyncio.create_task(asyncio.sleep(1000), context=contextvars.copy_context()),
        ]
        await asyncio.gather(*made)

    async def main(sim: testing.Simulation) -> None:
        a = sim.host("a")
        a.spawn(program)
        await asyncio.sleep(1)
        assert len(asyncio.all_tasks()) == 5
        a.kill()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    for loop in ("goloop", "asyncio"):
        testing.run(main, loop=loop)
    gc.collect()  # and does not report that they were pending


@testing.simulate(seeds=1)
async def test_a_task_that_a_host_only_calls_is_not_the_hosts(sim: testing.Simulation) -> None:
    async def program(task: asyncio.Task[None]) -> None:
        asyncio.get_running_loop().call_later(0.5, task.add_done_callback, print)
        await asyncio.sleep(1000)

    a = sim.host("a")
    task: Any = asyncio.current_task()
    a.spawn(program, task)
    await asyncio.sleep(1)
    task.remove_done_callback(print)
    a.kill()
    assert asyncio.all_tasks() == {task}


def test_a_kill_within_a_step_lets_that_step_end() -> None:
    ran: list[object] = []

    async def program(host: testing.Host) -> None:
        try:
            host.kill()
            ran.append("step")
            await asyncio.sleep(1)
            ran.append("next")
        finally:
            ran.append("finally")

    async def returns(host: testing.Host) -> None:
        host.kill()

    async def main(sim: testing.Simulation) -> None:
        a, b = sim.host("a"), sim.host("b")
        a.spawn(program, a)
        returned = b.spawn(returns, b)
        await asyncio.sleep(10)
        assert not returned.done()

    testing.run(main)
    gc.collect()
    assert ran == ["step"]


@pytest.mark.parametrize("way", ["kill", "crash"])
def test_peers_of_a_host_that_ends(way: str) -> None:
    async def watches(sim: testing.Simulation) -> list[object]:
        reader, writer = await asyncio.open_connection("a", 80)
        writer.write(b"1")
        seen: list[object] = [await reader.read(10)]
        ends.set()
        try:
            async with asyncio.timeout(60):
                seen.append(await reader.read(10))
        except TimeoutError:
            seen.append("silence")
        started.set()
        try:
            for _ in range(3):
                writer.write(b"2")
                await writer.drain()
                await asyncio.sleep(1)
        except OSError as exc:
            seen.append(type(exc))
        writer.close()
        return seen

    ends, started = asyncio.Event(), asyncio.Event()

    async def main(sim: testing.Simulation) -> list[object]:
        a, b = sim.host("a"), sim.host("b")
        a.spawn(serve)
        await asyncio.sleep(1)
        watching = b.spawn(watches, sim)
        await ends.wait()
        getattr(a, way)()
        await started.wait()
        a.restart()
        await asyncio.sleep(1)
        assert await call("a") == b"hello"
        return await watching

    expected: dict[str, list[object]] = {
        "kill": [b"1", b"", ConnectionResetError],
        "crash": [b"1", "silence", ConnectionResetError],
    }
    assert testing.run(main).value == expected[way]


def test_restart_runs_unfinished_programs() -> None:
    begun: list[str] = []

    async def program(name: str, seconds: float) -> str:
        begun.append(name)
        await asyncio.sleep(seconds)
        return name

    async def main(sim: testing.Simulation) -> None:
        a = sim.host("a")
        short, long = a.spawn(program, "short", 1), a.spawn(program, "long", 10)
        await asyncio.sleep(5)
        a.restart()
        assert await long == "long"
        assert sim.time() == pytest.approx(15)
        assert await short == "short"
        a.crash()
        a.crash()
        a.restart()
        assert await a.spawn(program, "new", 1) == "new"

    testing.run(main)
    assert begun == ["short", "long", "long", "new"]


def test_paused_host_continues_later() -> None:
    ticks: list[float] = []
    timers: list[asyncio.TimerHandle] = []

    async def tick() -> None:
        timers.append(asyncio.get_running_loop().call_later(4, ticks.append, -1))
        for _ in range(3):
            await asyncio.sleep(2)
            ticks.append(asyncio.get_running_loop().time() - 1)

    async def main(sim: testing.Simulation) -> None:
        a, b = sim.host("a"), sim.host("b")
        b.spawn(serve)
        ticking = b.spawn(tick)
        await asyncio.sleep(1)
        b.pause()
        b.pause()
        answer = a.spawn(call, "b")
        await asyncio.sleep(9)
        assert ticks == []
        timers[0].cancel()  # the timer was due
        assert not answer.done()
        b.resume()
        b.resume()
        assert await answer == b"hello"
        await ticking
        b.pause()
        assert len(ticks) == 3

        async def left() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                ticks.append(-3)

        a.spawn(left)  # until the end
        await asyncio.sleep(1)

    testing.run(main)
    assert [round(each) for each in ticks] == [10, 12, 14]


@testing.simulate(seeds=1)
async def test_a_clock_is_the_hosts(sim: testing.Simulation) -> None:
    async def clocks() -> tuple[float, float, float]:
        now = datetime.datetime.now(datetime.UTC).timestamp()
        return time.time() - 1_767_225_600, now - 1_767_225_600, time.monotonic() - 1

    a, b = sim.host("a"), sim.host("b")
    a.clock_skew(0.5)
    b.clock_skew(-100)
    assert await a.spawn(clocks) == (0.5, 0.5, 0)
    assert await b.spawn(clocks) == (-100, -100, 0)
    assert await clocks() == (0, 0, 0)


def test_a_signal_runs_the_hosts_handler() -> None:
    got: list[tuple[str, str]] = []

    async def program() -> str:
        stop = asyncio.Event()

        def handler(name: str) -> None:
            got.append((name, socket.gethostname()))
            stop.set()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, handler, "term")
        await stop.wait()
        return "stopped"

    async def main(sim: testing.Simulation) -> None:
        a, b, c = sim.host("a"), sim.host("b"), sim.host("c")
        first, second = a.spawn(program), b.spawn(program)
        c.spawn(asyncio.sleep, 100)
        await asyncio.sleep(1)
        b.signal(signal.SIGTERM)
        assert await second == "stopped"
        assert not first.done()
        c.signal(signal.SIGCHLD)
        assert c.is_up
        c.signal(signal.SIGTERM)
        assert not c.is_up

    testing.run(main)
    assert got == [("term", "b")]


@testing.simulate(seeds=1)
async def test_unix_sockets_and_datagrams_are_of_their_host(sim: testing.Simulation) -> None:
    async def owns() -> None:
        sock = socket.socket(socket.AF_UNIX)
        sock.bind("\0name")
        sock.listen()
        other = socket.socket(socket.AF_UNIX)
        other.connect("\0name")
        other.close()
        sock.close()

    class Answers(asyncio.DatagramProtocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, address: Any) -> None:
            self.transport.sendto(data + socket.gethostname().encode(), address)

    async def answers() -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(Answers, local_addr=("0.0.0.0", 53))
        with contextlib.closing(transport):
            await asyncio.sleep(1000)

    async def asks() -> tuple[bytes, Any]:
        loop = asyncio.get_running_loop()
        sock = socket.socket(type=socket.SOCK_DGRAM)
        sock.setblocking(False)
        await loop.sock_sendto(sock, b"to ", (socket.gethostbyname("a"), 53))
        answer = await loop.sock_recvfrom(sock, 100)
        sock.close()
        return answer

    a, b = sim.host("a"), sim.host("b")
    await asyncio.gather(a.spawn(owns), b.spawn(owns))
    a.spawn(answers)
    b.spawn(answers)
    await asyncio.sleep(1)
    assert await b.spawn(asks) == (b"to a", ("10.0.0.1", 53))
    a.kill()
    a.restart()
    await asyncio.sleep(1)
    assert await b.spawn(asks) == (b"to a", ("10.0.0.1", 53))


@pytest.mark.parametrize("policy", ["io", "shuffle", "pct:2"])
def test_policies_choose_among_the_tasks_of_hosts(policy: str) -> None:
    order: list[tuple[str, int]] = []

    async def steps(name: str) -> None:
        for n in range(5):
            order.append((name, n))
            await asyncio.sleep(0)

    async def main(sim: testing.Simulation) -> None:
        hosts = [sim.host(name) for name in "abc"]
        await asyncio.gather(*(host.spawn(steps, host.name) for host in hosts))

    testing.run(main, policy=policy, seed=3)
    in_order = [(name, n) for n in range(5) for name in "abc"]
    assert (order == in_order) == (policy == "io")
    assert sorted(order) == sorted(in_order)


@testing.simulate(seeds=2)
async def test_hosts_running_at_the_end_are_not_leftovers(sim: testing.Simulation) -> None:
    a, b = sim.host("a"), sim.host("b")
    a.spawn(serve)
    b.spawn(asyncio.sleep, 1000)
    await asyncio.sleep(1)
    sim.eventually("a served when the program had returned", lambda: len(seen) == 2, within=20)
    seen: list[bytes] = []

    async def asks() -> None:
        for _ in range(2):
            await asyncio.sleep(5)
            seen.append(await call("a"))

    b.spawn(asks)


async def cluster(sim: testing.Simulation) -> list[object]:
    """Everything at once, by decisions of the seed."""
    hosts = [sim.host(f"node{n}") for n in range(3)]
    seen: list[object] = []

    async def node(number: int) -> None:
        serving = asyncio.ensure_future(serve())
        while not serving.done():
            await asyncio.sleep(sim.random.random())
            peer = f"node{sim.random.randrange(3)}"
            try:
                async with asyncio.timeout(2):
                    seen.append((number, peer, await call(peer, data=b"x" * 5000)))
            except OSError as exc:
                seen.append((number, peer, repr(exc)))

    for number, host in enumerate(hosts):
        host.spawn(node, number)
    for a, b in ((0, 1), (1, 2)):
        sim.net.set_link(
            hosts[a], hosts[b], latency=(0.001, 0.05), loss=0.05, fragment=0.2, bandwidth=1e5
        )
    for _ in range(20):
        await asyncio.sleep(sim.random.random() * 5)
        host = sim.random.choice(hosts)
        sim.random.choice(
            [
                *(host.restart, host.pause, host.resume, sim.net.heal),
                lambda host=host: sim.net.partition({host}, {*hosts} - {host}),
            ]
        )()
    return seen


def trace_of_cluster(seed: int) -> str:
    result = testing.run(cluster, seed=seed)
    assert {type(each[2]) for each in result.value} == {bytes, str}  # type: ignore[index]
    return result.trace + repr(result.value)
