"""Task factories of programs: every task that the loop itself creates stands each of them."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from conftest import Errors
from ended import python
from protocols import until
from tls_tools import client_context, server_context

import goloop
import goloop.guest
from goloop import testing

SCENARIOS = Path(__file__).with_name("task_factories_scenarios.py")

Loop = asyncio.AbstractEventLoop
Factory = Callable[..., Any]

connection = contextvars.ContextVar("connection", default="none")


def two_arguments(loop: Loop, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A factory as documented up to Python 3.10."""
    return asyncio.Task(coroutine, loop=loop)


def plain_task(loop: Loop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    return asyncio.Task(coroutine, loop=loop, **options)


class OwnTask(asyncio.Task[Any]):
    """A class of the program's."""


def own_class(loop: Loop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    return OwnTask(coroutine, loop=loop, **options)


def wraps(loop: Loop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    async def wrapped() -> Any:
        return await coroutine

    return asyncio.Task(wrapped(), loop=loop, **options)


def refuses(loop: Loop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    coroutine.close()
    raise RuntimeError("no more tasks")


FACTORIES: dict[str, Factory] = {
    "two-arguments": two_arguments,
    "plain-task": plain_task,
    "own-class": own_class,
    "wraps": wraps,
}
if sys.version_info >= (3, 12):
    FACTORIES["eager"] = asyncio.eager_task_factory
    FACTORIES["eager-own-class"] = asyncio.create_eager_task_factory(OwnTask)
by_factory = pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)


@pytest.fixture(autouse=True)
def _asyncio_needs_more_arguments(request: pytest.FixtureRequest) -> None:
    """asyncio 3.15 passes context= for its servers' own tasks, and hangs or fails without."""
    given = getattr(request.node, "callspec", None)
    params = given.params if given is not None else {}
    if sys.version_info >= (3, 15) and params.get("loop_name") == "asyncio":
        if params.get("factory") is two_arguments:
            pytest.skip("asyncio 3.15 calls a factory of two arguments with context=")


async def upper(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write((await reader.readline()).upper())
    writer.close()
    await writer.wait_closed()


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: bytes = b"hello\n"
) -> bytes:
    writer.write(line)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def ask_tcp(context: ssl.SSLContext | None) -> bytes:
    serving = await asyncio.start_server(
        upper, "127.0.0.1", 0, ssl=server_context() if context else None
    )
    async with serving:
        port = serving.sockets[0].getsockname()[1]
        # A name has several addresses, which are tried side by side.  Early releases of 3.12 and
        # 3.13 fail with eager tasks there, on every loop (cpython#124309).
        delay = None if sys.version_info[:2] in ((3, 12), (3, 13)) else 0.25
        return await ask(
            *await asyncio.open_connection(
                "localhost", port, ssl=context, happy_eyeballs_delay=delay
            )
        )


async def ask_unix(path: Path, context: ssl.SSLContext | None) -> bytes:
    serving = await asyncio.start_unix_server(
        upper, path, ssl=server_context() if context else None
    )
    async with serving:
        server_hostname = "localhost" if context else None
        return await ask(
            *await asyncio.open_unix_connection(path, ssl=context, server_hostname=server_hostname)
        )


async def upgraded() -> bytes:
    async def upgrade(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await writer.start_tls(server_context())
        await upper(reader, writer)

    async with await asyncio.start_server(upgrade, "127.0.0.1", 0) as serving:
        reader, writer = await asyncio.open_connection(*serving.sockets[0].getsockname())
        await writer.start_tls(client_context(), server_hostname="localhost")
        return await ask(reader, writer)


async def accepted(loop: Loop, context: ssl.SSLContext) -> bytes:
    """Accept by a listener of the program's own, and give the connections to the loop."""
    near, far = socket.socketpair()

    def factory() -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(), upper)

    taking = asyncio.ensure_future(loop.connect_accepted_socket(factory, far, ssl=server_context()))
    answer = await ask(
        *await asyncio.open_connection(sock=near, ssl=context, server_hostname="localhost")
    )
    await taking
    return answer


async def child() -> bytes:
    program = "import sys; sys.stdout.write(sys.stdin.read().upper())"
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-S", "-c", program,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    answer, _ = await started.communicate(b"hello\n")
    assert started.returncode == 0
    for thread in threading.enumerate():
        if thread.name.startswith("asyncio-waitpid"):
            thread.join()
    return answer


@by_factory
async def test_the_networking_features(loop: Loop, factory: Factory, tmp_path: Path) -> None:
    loop.set_task_factory(factory)
    try:
        assert await ask_tcp(None) == b"HELLO\n"
        assert await ask_tcp(client_context()) == b"HELLO\n"
        assert await ask_unix(tmp_path / "a", None) == b"HELLO\n"
        assert await ask_unix(tmp_path / "b", client_context()) == b"HELLO\n"
        assert await upgraded() == b"HELLO\n"
        assert await accepted(loop, client_context()) == b"HELLO\n"
        assert await child() == b"HELLO\n"
        assert await loop.getaddrinfo("localhost", 80)
        assert await asyncio.to_thread(int, "7") == 7
    finally:
        loop.set_task_factory(None)


@by_factory
@pytest.mark.parametrize("debug", [False, True], ids=["", "debug"])
async def test_a_loop_serves_tls_in_the_context_of_each_connection(
    loop: Loop, factory: Factory, debug: bool
) -> None:
    """And its other tasks run on: an eager task that fails to start stops every other one."""
    seen: list[str] = []

    class Server(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            seen.append(connection.get())
            connection.set("changed")
            transport.write(b"hello")
            transport.close()

    loop.set_debug(debug)
    loop.set_task_factory(factory)
    try:
        connection.set("of the server")
        async with await loop.create_server(
            Server, "127.0.0.1", 0, ssl=server_context()
        ) as serving:
            for _ in range(2):
                reader, writer = await asyncio.open_connection(
                    *serving.sockets[0].getsockname(),
                    ssl=client_context(), server_hostname="localhost",
                )  # fmt: skip
                assert await asyncio.wait_for(reader.read(), 30) == b"hello"
                writer.close()
                await writer.wait_closed()
    finally:
        loop.set_task_factory(None)
        loop.set_debug(False)
    assert seen == ["of the server"] * 2


@pytest.mark.goloop_only("asyncio leaves the socket to the garbage collector")
@pytest.mark.parametrize("exc", [RuntimeError, asyncio.CancelledError])
async def test_a_connection_is_dropped_and_reported_where_the_factory_raises(
    loop: Loop, errors: Errors, exc: type[BaseException]
) -> None:
    def raises(loop: Loop, coroutine: Any, **options: Any) -> Any:
        coroutine.close()
        raise exc("no more tasks")

    serving = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=server_context())
    async with serving:
        loop.set_task_factory(raises)
        try:
            with pytest.raises(ConnectionError):
                await loop.create_connection(
                    asyncio.Protocol, *serving.sockets[0].getsockname(),
                    ssl=client_context(), server_hostname="localhost",
                )  # fmt: skip
        finally:
            loop.set_task_factory(None)
        errors.expect(exc, "Exception in callback")
        # The next one is served.
        transport, _ = await loop.create_connection(
            asyncio.Protocol, *serving.sockets[0].getsockname(),
            ssl=client_context(), server_hostname="localhost",
        )  # fmt: skip
        transport.close()


@by_factory
async def test_a_handshake_that_fails_is_reported_by_its_task(
    loop: Loop, errors: Errors, factory: Factory
) -> None:
    loop.set_debug(True)
    loop.set_task_factory(factory)
    try:
        async with await loop.create_server(
            asyncio.Protocol, "127.0.0.1", 0, ssl=server_context()
        ) as serving:
            _, writer = await asyncio.open_connection(*serving.sockets[0].getsockname())
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            await until(lambda: errors.contexts)
            writer.close()
    finally:
        loop.set_task_factory(None)
        loop.set_debug(False)
    errors.expect(ssl.SSLError, "Error on transport creation for incoming connection")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
def test_a_process_with_a_tls_server_and_eager_tasks_ends(loop_name: str) -> None:
    name = "a_process_with_a_tls_server_and_eager_tasks_ends"
    done = python("-W", "ignore", SCENARIOS, name, loop_name, limit=60)
    assert (done.returncode, done.stdout) == (0, "b'hello'\n")


# ---- tasks of goloop's own -----------------------------------------------------------------------

OWN = pytest.mark.skipif(not goloop.native, reason="asyncio has neither guests nor simulations")
by_any_factory = pytest.mark.parametrize(
    "factory", [*FACTORIES.values(), refuses], ids=[*FACTORIES, "refuses"]
)


@OWN
@by_any_factory
def test_a_guest_ends_with_its_tasks_cancelled(no_leaks: None, factory: Factory) -> None:
    calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
    ended = []

    async def main() -> str:
        async def waits() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                ended.append(threading.get_ident())

        loop = asyncio.get_running_loop()
        left = loop.create_task(waits())
        loop.set_task_factory(factory)
        await asyncio.sleep(0)
        assert not left.done()
        return "done"

    guest = goloop.guest.start(
        main(), run_sync_soon_threadsafe=calls.put, done_callback=lambda outcome: calls.put(None)
    )
    while (call := calls.get(timeout=60)) is not None:
        call()
    assert guest.outcome.result() == "done"
    assert ended == [threading.get_ident()]


@OWN
@pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")
@by_any_factory
def test_the_programs_of_a_simulation_run(factory: Factory) -> None:
    async def shouts(process: testing.Process) -> None:
        async for line in process.stdin:
            process.stdout.write(line.upper())

    async def returns() -> bytes:
        return b"HELLO\n"

    async def serve() -> None:
        async with await asyncio.start_server(upper, "0.0.0.0", 80) as serving:
            await serving.serve_forever()

    answers: list[bytes] = []

    @testing.simulate(seeds=1, allow={"tasks", "transports"})
    async def test(sim: testing.Simulation) -> None:
        host = sim.host("a")
        sim.program("shouts", shouts)
        loop = asyncio.get_running_loop()
        loop.set_task_factory(factory)
        if factory is refuses:  # programs have no tasks of their own then, but their callbacks end
            answers.append(await host.spawn(returns))
            return
        host.spawn(serve)
        await asyncio.sleep(1)
        answers.append(await ask(*await asyncio.open_connection("a", 80)))
        started = await asyncio.create_subprocess_exec(
            "shouts", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        answer, _ = await started.communicate(b"hello\n")
        answers.append(answer)

    test()
    assert set(answers) == {b"HELLO\n"}


@by_factory
def test_the_main_functions_of_threads(loop_name: str, no_leaks: None, factory: Factory) -> None:
    make = goloop.new_event_loop if loop_name == "goloop" else asyncio.new_event_loop

    def loop_factory() -> Loop:
        made = make()
        made.set_task_factory(factory)
        return made

    async def main(index: int) -> int:
        await asyncio.sleep(0)
        return index

    if factory is two_arguments:
        pytest.skip("asyncio.Runner passes a context on")
    assert goloop.run_threads(main, threads=2, loop_factory=loop_factory) == [0, 1]
