"""Guest mode: a loop's iterations inside another loop, of which a queue is the simplest."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import logging
import queue
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import ended
import pytest

import goloop
import goloop.guest
from goloop import _core

SCENARIOS = Path(__file__).with_name("guest_scenarios.py")

pytestmark = [
    pytest.mark.skipif(not goloop.native, reason="asyncio's loops have no guest mode"),
    pytest.mark.usefixtures("no_leaks"),
]


class Host:
    """A loop that runs the calls in its queue."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self.thread = threading.get_ident()

    def post(self, call: Callable[[], object]) -> None:
        """From any thread."""
        self.calls.put(call)

    def post_here(self, call: Callable[[], object]) -> None:
        assert threading.get_ident() == self.thread
        self.calls.put(call)

    def stop(self, outcome: object = None) -> None:
        self.calls.put(None)

    def step(self) -> bool:
        """Run one call; return False at the end."""
        call = self.calls.get(timeout=60)
        if call is not None:
            call()
        return call is not None

    def run(self) -> None:
        while self.step():
            pass

    def start(self, main: Coroutine[Any, Any, Any], **options: Any) -> goloop.guest.Guest[Any]:
        options.setdefault("done_callback", self.stop)
        return goloop.guest.start(
            main,
            run_sync_soon_threadsafe=self.post,
            run_sync_soon_not_threadsafe=self.post_here,
            **options,
        )

    def result_of(self, main: Coroutine[Any, Any, Any], **options: Any) -> Any:
        """The outcome of a run, from its start to its end."""
        guest = self.start(main, **options)
        self.run()
        return guest.outcome.result()

    def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            assert self.step(), "all is over"


@pytest.fixture
def host() -> Host:
    return Host()


def test_main_runs_in_the_hosts_thread_and_its_result_is_the_outcome(host: Host) -> None:
    threads = set()

    async def main() -> str:
        for delay in (0, 0.001, 0):
            await asyncio.sleep(delay)
            threads.add(threading.get_ident())
        return "result"

    outcomes: list[Any] = []

    def done(outcome: Any) -> None:
        threads.add(threading.get_ident())
        outcomes.append(outcome)
        host.stop()

    guest = host.start(main(), done_callback=done)
    assert not threads, "nothing runs before the host's loop"
    host.run()
    assert outcomes == [guest.outcome]
    assert guest.outcome.result() == "result"
    assert threads == {host.thread}
    assert guest.loop.is_closed()


def test_asyncios_features_work_in_guest_mode(host: Host) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()
        await writer.wait_closed()

    async def main() -> dict[str, object]:
        loop = asyncio.get_running_loop()
        server = await asyncio.start_server(echo, "localhost", 0, family=socket.AF_INET)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hello\n")
        found: dict[str, object] = {"stream": await reader.read()}
        writer.close()
        server.close()
        await server.wait_closed()
        one, other = socket.socketpair()
        with one, other:
            one.setblocking(False)
            other.setblocking(False)
            received = asyncio.create_task(loop.sock_recv(other, 10))
            await asyncio.sleep(0)
            await loop.sock_sendall(one, b"sock")
            found["sock"] = await received
        found["thread"] = await asyncio.to_thread(threading.get_ident) != host.thread
        process = await asyncio.create_subprocess_exec("echo", "child", stdout=-1)
        found["child"] = (await process.communicate())[0]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await loop.create_future()
        return found

    assert host.result_of(main()) == {
        "stream": b"hello\n",
        "sock": b"sock",
        "thread": True,
        "child": b"child\n",
    }


def test_the_loop_is_the_running_one_in_its_iterations_only(host: Host) -> None:
    seen = []

    async def main() -> None:
        for _ in range(3):
            seen.append(asyncio.get_running_loop())
            await asyncio.sleep(0.001)

    hooks = sys.get_asyncgen_hooks()
    guest = host.start(main(), debug=True)

    def between() -> bool:
        assert asyncio._get_running_loop() is None
        assert sys.get_asyncgen_hooks() == hooks
        assert sys.get_coroutine_origin_tracking_depth() == 0
        return guest.outcome.done()

    host.until(between)
    assert seen == [guest.loop] * 3
    guest.outcome.result()


def test_guest_loop_can_be_neither_run_nor_closed_between_iterations(host: Host) -> None:
    ends = asyncio.Event()
    guest = host.start(ends.wait())
    host.step()
    assert guest.loop.is_running()
    with pytest.raises(RuntimeError, match="already running"):
        guest.loop.run_forever()
    with pytest.raises(RuntimeError, match="Cannot close a running event loop"):
        guest.loop.close()
    assert goloop.run(asyncio.sleep(0, "another loop")) == "another loop"
    ends.set()
    host.run()
    assert guest.outcome.result() is True


def test_calls_of_the_host_between_iterations_end_the_poll(host: Host) -> None:
    """The loop polls without a timeout when each of these comes."""
    done: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await asyncio.start_server(lambda r, w: writers.append(w), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        while not writers:
            await asyncio.sleep(0)
        for act in actions(loop):
            future = loop.create_future()
            host.post(lambda act=act, future=future: act(future))
            await future
            done.append(act.__name__)
        host.post(lambda: writers[0].write(b"line\n"))
        done.append((await reader.readline()).decode())
        for each in (writer, *writers):
            each.close()
        server.close()

    writers: list[Any] = []

    def actions(loop: Any) -> list[Callable[[Any], object]]:
        def set_result(future: Any) -> None:
            future.set_result(None)

        def call_soon(future: Any) -> None:
            loop.call_soon(future.set_result, None)

        def call_later(future: Any) -> None:
            loop.call_later(0.001, future.set_result, None)

        def call_soon_threadsafe(future: Any) -> None:
            thread = threading.Thread(
                target=loop.call_soon_threadsafe, args=(future.set_result, None)
            )
            thread.start()
            thread.join()

        def create_task(future: Any) -> None:
            async def task() -> None:
                future.set_result(None)

            future.task = loop.create_task(task())

        return [set_result, call_soon, call_later, call_soon_threadsafe, create_task] * 3

    host.result_of(main())
    assert done[-1] == "line\n"
    assert len(done) == 16


def test_a_call_of_the_host_ends_a_poll_after_many_calls(host: Host) -> None:
    """The waiting times of few calls are measured after a burst, but each call ends a poll."""

    async def main() -> int:
        loop = asyncio.get_running_loop()
        for _ in range(10):
            future = loop.create_future()
            for _ in range(5000):
                loop.call_soon(int)
            loop.call_soon(host.post, lambda: time.sleep(0.005))  # meanwhile the poll begins
            loop.call_soon(host.post, functools.partial(future.set_result, 1))
            await future
        return 1

    assert host.result_of(main()) == 1


def test_an_iteration_sends_and_does_not_wait(host: Host) -> None:
    """Written bytes are sent in the host's thread, by a poll."""
    one, other = socket.socketpair()

    async def main() -> bytes:
        future = asyncio.get_running_loop().create_future()
        _, writer = await asyncio.open_connection(sock=one)
        writer.write(b"sent")
        host.post(lambda: future.set_result(other.recv(100)))
        try:
            return bytes(await future)
        finally:
            writer.close()

    with other:
        assert host.result_of(main()) == b"sent"


def test_busy_loop_leaves_time_for_the_host(host: Host) -> None:
    ends = False
    turns = 0

    async def main() -> None:
        nonlocal turns
        while not ends:
            turns += 1
            await asyncio.sleep(0)

    guest = host.start(main(), time_share=0)
    host.step()
    host.step()
    assert turns == 2, "no time: one iteration, and the host has its turn"
    ends = True
    host.run()
    guest.outcome.result()


class Wrong(Exception):
    pass


async def fail(exc: BaseException) -> None:
    raise exc


@pytest.mark.parametrize("kind", [Wrong, KeyboardInterrupt, SystemExit])
def test_exception_of_main_is_the_outcome(host: Host, kind: type[BaseException]) -> None:
    with pytest.raises(kind):
        host.result_of(fail(kind()))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_exit_exception_of_a_callback_cancels_main(host: Host, kind: type[BaseException]) -> None:
    steps = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(asyncio.create_task, fail(kind()))
        try:
            await loop.create_future()
        except asyncio.CancelledError:
            steps.append("cancelled")
            await asyncio.sleep(0.001)
            steps.append("cleaned up")
            raise

    with pytest.raises(kind):
        host.result_of(main())
    assert steps == ["cancelled", "cleaned up"]


def test_second_exit_exception_ends_the_run(host: Host) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(asyncio.create_task, fail(SystemExit(1)))
        try:
            await loop.create_future()
        finally:
            raise SystemExit(2)

    guest = host.start(main())
    host.run()
    with pytest.raises(SystemExit) as caught:
        guest.outcome.result()
    assert caught.value.code == 1
    assert guest.loop.is_closed()


def test_a_loop_that_is_stopped_is_an_error(host: Host) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.stop()
        await loop.create_future()

    with pytest.raises(RuntimeError, match="stopped before Future completed"):
        host.result_of(main())


def test_a_poller_that_is_lost_is_an_error() -> None:
    result = ended.python(SCENARIOS, "a_poller_that_is_lost_is_an_error")
    assert result.stdout.startswith("OSError(9"), result.stdout
    assert " True\n" in result.stdout


def test_cancel_from_another_thread(host: Host) -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    guest = host.start(main())
    host.step()
    thread = threading.Thread(target=guest.cancel)
    thread.start()
    host.run()
    thread.join()
    with pytest.raises(asyncio.CancelledError):
        guest.outcome.result()


def test_end_of_run_matches_asyncio_run(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    ended_by: list[str] = []
    kept: list[Any] = []

    async def left() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            ended_by.append("cancelled")
            raise Wrong from None

    async def generator() -> Any:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            ended_by.append("closed")

    async def main() -> None:
        kept.append(asyncio.create_task(left()))
        kept.append(generator())
        await kept[-1].__anext__()
        await asyncio.to_thread(int)

    guest = host.start(main())
    host.run()
    guest.outcome.result()
    assert ended_by == ["cancelled", "closed"]
    assert "unhandled exception during the end of a guest run" in caplog.text


def test_finish_runs_the_rest_without_the_host(host: Host) -> None:
    steps = []

    async def main() -> str:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            await asyncio.sleep(0.001)
            steps.append(threading.get_ident())
        return "saved"

    guest = host.start(main())
    host.step()
    assert guest.finish() == "saved"
    assert steps == [host.thread]
    assert guest.finish() == "saved"
    assert guest.loop.is_closed()
    host.run()  # the remaining calls do nothing


def test_finish_before_the_host_has_begun(host: Host) -> None:
    async def main() -> None:
        raise AssertionError

    guest = host.start(main())
    with pytest.raises(asyncio.CancelledError):
        guest.finish()


def test_finish_is_refused_in_an_iteration_and_in_another_thread(host: Host) -> None:
    ends = asyncio.Event()

    async def main() -> None:
        with pytest.raises(RuntimeError, match="between two iterations"):
            guest.finish()
        with pytest.raises(RuntimeError, match="between two iterations"):
            await asyncio.to_thread(guest.finish)
        await ends.wait()

    guest = host.start(main())
    host.calls.put(ends.set)
    host.run()
    guest.outcome.result()


def test_finish_after_an_interrupt(host: Host) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_future()
        finally:
            loop.call_soon(asyncio.create_task, fail(KeyboardInterrupt()))
            await asyncio.sleep(0.001)

    guest = host.start(main())
    host.step()
    with pytest.raises(KeyboardInterrupt):
        guest.finish()
    assert guest.loop.is_closed()


def test_host_that_refuses_calls_is_logged_and_finished(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    refused = threading.Event()

    def post(call: Callable[[], object]) -> None:
        if threading.get_ident() != host.thread:
            refused.set()
            raise Wrong("gone")
        host.post(call)

    async def main() -> None:
        await asyncio.sleep(0.001)
        await asyncio.get_running_loop().create_future()

    with caplog.at_level(logging.WARNING):
        guest = goloop.guest.start(main(), run_sync_soon_threadsafe=post)
        host.step()
        assert refused.wait(60)
        with pytest.raises(asyncio.CancelledError):
            guest.finish()
    assert "run_sync_soon_threadsafe() of a guest run raised" in caplog.text


def test_a_process_ends_though_its_host_left_the_run() -> None:
    result = ended.python(SCENARIOS, "a_process_ends_though_its_host_left_the_run")
    assert result.returncode == 0, result.stdout
    assert "host ends" in result.stdout


def test_an_iteration_may_run_the_hosts_loop(host: Host) -> None:
    """A modal dialog does: no iteration comes within another."""
    depth = 0

    async def main() -> None:
        nonlocal depth
        for _ in range(3):
            depth += 1
            assert depth == 1
            host.post(int)
            guest._tick()
            host.step()
            depth -= 1
            await asyncio.sleep(0.001)

    guest = host.start(main())
    host.run()
    guest.outcome.result()


def test_a_loop_of_asyncio_may_be_the_host() -> None:
    async def main() -> list[bool]:
        other = asyncio.open_connection  # any name; the following needs the running loop
        assert other is not None
        tasks = [asyncio.create_task(asyncio.sleep(0.001, True)) for _ in range(10)]
        assert asyncio.current_task() is not None
        return await asyncio.gather(*tasks)

    async def hosting() -> Any:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        goloop.guest.start(
            main(),
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            run_sync_soon_not_threadsafe=loop.call_soon,
            done_callback=done.set_result,
        )
        while not done.done():
            assert asyncio.get_running_loop() is loop
            await asyncio.sleep(0)
        return done.result().result()

    for factory in (asyncio.SelectorEventLoop, goloop.new_event_loop):
        with asyncio.Runner(loop_factory=factory) as runner:
            assert runner.run(hosting()) == [True] * 10


LOOPS = pytest.mark.parametrize("factory", [asyncio.SelectorEventLoop, goloop.new_event_loop])
Factory = Callable[[], asyncio.AbstractEventLoop]


@LOOPS
@pytest.mark.parametrize("by", ["task", "eager task", "callback"])
def test_finish_in_a_running_host(
    factory: Factory, by: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An asyncio loop that calls finish() waits, and goes on with its own task."""
    if by == "eager task" and sys.version_info < (3, 12):
        pytest.skip("there are no eager tasks")
    steps: list[object] = []

    async def main() -> str:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_future()
        except asyncio.CancelledError:
            with pytest.raises(RuntimeError, match="between two iterations"):
                guest.finish()
            with pytest.raises(RuntimeError, match="between two iterations"):
                await asyncio.to_thread(guest.finish)
            async with asyncio.timeout(60):
                await asyncio.gather(*(asyncio.sleep(0.001) for _ in range(3)))
            assert asyncio.get_running_loop() is loop is guest.loop
            steps.append("cleaned up")
        return "saved"

    async def finishing() -> None:
        task = asyncio.current_task()
        assert guest.finish() == "saved"
        assert asyncio.current_task() is task
        await asyncio.sleep(0)
        assert guest.finish() == "saved"

    async def hosting() -> None:
        nonlocal guest
        host = asyncio.get_running_loop()
        guest = goloop.guest.start(
            main(),
            run_sync_soon_threadsafe=host.call_soon_threadsafe,
            run_sync_soon_not_threadsafe=host.call_soon,
        )
        for _ in range(5):
            await asyncio.sleep(0)
        if by == "task":
            await finishing()
        elif by == "eager task":
            host.set_task_factory(asyncio.eager_task_factory)
            await asyncio.create_task(finishing())
        else:
            done = host.create_future()
            host.call_soon(lambda: done.set_result(guest.finish()))
            assert await done == "saved"
        assert asyncio.get_running_loop() is host
        assert guest.loop.is_closed()
        await asyncio.sleep(0.001)

    guest: Any = None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(hosting())
    gc.collect()
    assert steps == ["cleaned up"]
    assert [each.getMessage() for each in caplog.records if each.name == "asyncio"] == []


@LOOPS
def test_finish_in_a_running_host_raises_the_exception_of_main(factory: Factory) -> None:
    async def main(failing: bool) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_future()
        finally:
            if failing:
                raise Wrong
            loop.stop()

    async def hosting() -> None:
        post = asyncio.get_running_loop().call_soon_threadsafe
        failing = goloop.guest.start(main(True), run_sync_soon_threadsafe=post)
        stopping = goloop.guest.start(main(False), run_sync_soon_threadsafe=post)
        unbegun = goloop.guest.start(main(True), run_sync_soon_threadsafe=lambda call: None)
        for _ in range(5):
            await asyncio.sleep(0)
        with pytest.raises(Wrong):
            failing.finish()
        with pytest.raises(RuntimeError, match="stopped before Future completed"):
            stopping.finish()
        with pytest.raises(asyncio.CancelledError):
            unbegun.finish()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(hosting())


@LOOPS
def test_a_task_of_the_host_may_run_the_iterations(factory: Factory) -> None:
    """As a game's loop that is a coroutine: the queue's calls are made in its task."""
    calls: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()

    async def main() -> list[bool]:
        assert asyncio.current_task() is not None
        return await asyncio.gather(*(asyncio.sleep(0.001, True) for _ in range(3)))

    async def hosting() -> Any:
        task = asyncio.current_task()
        guest = goloop.guest.start(main(), run_sync_soon_threadsafe=calls.put)
        while not guest.outcome.done():
            calls.get()()
            assert asyncio.current_task() is task
            await asyncio.sleep(0)
        return guest.outcome.result()

    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(hosting()) == [True] * 3


def test_a_guest_may_finish_another() -> None:
    """Their iterations nest: each loop's task is the current one in its own."""
    calls: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()

    async def inner() -> str:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            await asyncio.sleep(0.001)
        return "inner"

    async def outer() -> str:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        other = goloop.guest.start(inner(), run_sync_soon_threadsafe=calls.put)
        await asyncio.sleep(0.001)
        assert other.finish() == "inner"
        assert asyncio.current_task() is task
        assert asyncio.get_running_loop() is loop
        await asyncio.sleep(0.001)
        return "outer"

    guest = goloop.guest.start(outer(), run_sync_soon_threadsafe=calls.put)
    while not guest.outcome.done():
        calls.get()()
    assert guest.outcome.result() == "outer"


def test_cancelled_wait_for_the_outcome_changes_nothing() -> None:
    async def hosting() -> None:
        loop = asyncio.get_running_loop()
        done, ends = loop.create_future(), asyncio.Event()

        async def main() -> str:
            await ends.wait()
            return "result"

        guest = goloop.guest.start(
            main(),
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=done.set_result,
        )
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(guest.outcome), 0.001)
        assert not guest.outcome.cancel()
        ends.set()
        assert await asyncio.wrap_future(guest.outcome) == "result"
        assert (await done) is guest.outcome

    failures: list[Any] = []
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.get_loop().set_exception_handler(lambda loop, context: failures.append(context))
        runner.run(hosting())
    assert failures == []


def test_current_is_the_run_of_the_thread(host: Host) -> None:
    with pytest.raises(RuntimeError, match="no guest run is active in this thread"):
        goloop.guest.current()
    found: list[object] = []

    async def main() -> None:
        found.append(goloop.guest.current())
        with pytest.raises(RuntimeError, match="no guest run is active in this thread"):
            await asyncio.to_thread(goloop.guest.current)

    guest = host.start(main())
    assert goloop.guest.current() is guest
    task = goloop.guest.current().loop.create_task(asyncio.sleep(0, "of a handler"))
    host.run()
    assert found == [guest]
    assert task.result() == "of a handler"
    with pytest.raises(RuntimeError, match="no guest run is active in this thread"):
        goloop.guest.current()


def test_current_of_two_runs_is_known_in_iterations_only(host: Host) -> None:
    found: list[object] = []

    async def main(number: int) -> int:
        found.append(goloop.guest.current())
        await asyncio.sleep(0.001)
        return number

    guests = [host.start(main(n), done_callback=None) for n in range(2)]
    with pytest.raises(RuntimeError, match="this thread has 2 guest runs"):
        goloop.guest.current()
    host.until(lambda: all(guest.outcome.done() for guest in guests))
    assert found == guests
    assert [guest.outcome.result() for guest in guests] == [0, 1]


def test_current_forgets_a_run_whose_start_failed() -> None:
    def refuse(call: object) -> None:
        raise Wrong

    with pytest.raises(Wrong):
        goloop.guest.start(asyncio.sleep(0), run_sync_soon_threadsafe=refuse)
    with pytest.raises(RuntimeError, match="no guest run"):
        goloop.guest.current()


def leave_in_a_thread(guests: list[goloop.guest.Guest[Any]]) -> int:
    """Begin a run in a thread that ends without finish(); return the thread's identity."""
    idents: list[int] = []

    def body() -> None:
        host = Host()
        guest = host.start(asyncio.sleep(60), done_callback=None)
        host.step()  # an iteration, after which the other thread polls
        guests.append(guest)
        assert goloop.guest.current() is guest
        idents.append(threading.get_ident())

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return idents[0]


@pytest.mark.filterwarnings("ignore:unclosed event loop:ResourceWarning")
def test_current_is_not_the_run_of_an_ended_thread_with_the_same_identity() -> None:
    guests: list[goloop.guest.Guest[Any]] = []
    left = leave_in_a_thread(guests)
    found: list[object] = []

    def ask() -> None:
        if threading.get_ident() != left:
            return
        try:
            found.append(goloop.guest.current())
        except RuntimeError as error:
            found.append(str(error))
        host = Host()
        guest = host.start(asyncio.sleep(0))
        found.append(goloop.guest.current() is guest)
        host.run()

    for _ in range(100):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        if found:
            break
    else:
        pytest.skip("the system gives no thread the identity of an ended one")
    said, its_own = found
    assert its_own
    assert str(said).startswith("no guest run is active in this thread")
    guests[0]._thread.join()


@pytest.mark.filterwarnings("ignore:unclosed event loop:ResourceWarning")
def test_run_of_an_ended_thread_keeps_neither_its_thread_nor_its_loop() -> None:
    guests: list[goloop.guest.Guest[Any]] = []
    leave_in_a_thread(guests)
    guest = guests.pop()
    with pytest.raises(RuntimeError, match="the host's thread has ended"):
        guest.outcome.result(60)
    guest._thread.join()
    with pytest.raises(RuntimeError, match="the host's thread has ended"):
        guest.finish()
    assert not guest.loop.is_running()
    kept = weakref.ref(guest), weakref.ref(guest.loop)
    del guest
    with pytest.warns(ResourceWarning, match="unclosed event loop"):
        gc.collect()
    assert [each() for each in kept] == [None, None]


def test_the_context_is_mains(host: Host) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    context = contextvars.copy_context()
    context.run(variable.set, "given")

    async def main() -> str:
        return variable.get()

    assert host.result_of(main(), context=context) == "given"


def test_ctrl_c_cancels_main_and_is_the_outcome() -> None:
    result = ended.python(SCENARIOS, "ctrl_c_cancels_main_and_is_the_outcome")
    assert result.stdout == "cleaned up\ninterrupted\n"


def test_ctrl_c_is_for_the_guest_that_is_left() -> None:
    result = ended.python(SCENARIOS, "ctrl_c_is_for_the_guest_that_is_left")
    assert result.stdout == ("KeyboardInterrupt\nFalse False\nKeyboardInterrupt\nTrue True\n"), (
        result.stdout
    )


def test_signal_handlers_run_while_the_host_sleeps() -> None:
    assert ended.python(SCENARIOS, "signal_handlers_run_while_the_host_sleeps").stdout == "caught\n"


def test_the_programs_own_handler_of_sigint_stays(host: Host) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        guest = host.start(asyncio.sleep(0))
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        host.run()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        guest.outcome.result()
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("name", "function", "error"),
    [("qt", "_binding", ImportError("no binding")), ("tk", "_Poster", OSError("no descriptors"))],
)
def test_error_before_the_start_is_reported_for_an_object_that_is_no_coroutine(
    name: str, function: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = pytest.importorskip(f"goloop.guest.{name}", exc_type=ImportError)

    def fails(*ignored: object) -> None:
        raise error

    monkeypatch.setattr(module, function, fails)
    arguments: tuple[Any, ...] = (object(), None) if name == "tk" else (object(),)
    with pytest.raises(type(error), match=str(error)):
        module.start(*arguments)


def test_wrong_arguments(host: Host) -> None:
    with pytest.raises(TypeError, match="a coroutine was expected"):
        goloop.guest.start(1, run_sync_soon_threadsafe=host.post)  # type: ignore[arg-type]


@pytest.mark.parametrize("begun", [False, True])
def test_a_host_that_refuses_the_first_call(begun: bool, caplog: pytest.LogCaptureFixture) -> None:
    steps: list[str] = []

    async def main() -> None:
        steps.append("begun")
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0.001)
            steps.append("cleaned up")

    def post(call: Callable[[], object]) -> None:
        if begun and threading.current_thread() is threading.main_thread():
            call()
        raise Wrong

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(Wrong):
        goloop.guest.start(main(), run_sync_soon_threadsafe=post)
    gc.collect()  # of a task that waits for ever, it would be told
    assert steps == ["begun", "cleaned up"] * begun
    assert [each.getMessage() for each in caplog.records if each.name == "asyncio"] == []
    assert signal.getsignal(signal.SIGINT) is handler


@LOOPS
def test_a_host_that_refuses_in_its_own_task(
    factory: Factory, caplog: pytest.LogCaptureFixture
) -> None:
    def post(call: Callable[[], object]) -> None:
        raise Wrong

    async def hosting() -> None:
        task = asyncio.current_task()
        with pytest.raises(Wrong):
            goloop.guest.start(asyncio.sleep(0), run_sync_soon_threadsafe=post)
        assert asyncio.current_task() is task
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(hosting())
    gc.collect()
    assert [each.getMessage() for each in caplog.records if each.name == "asyncio"] == []


def test_ordinary_loop_is_polled_only_by_its_run() -> None:
    loop = goloop.new_event_loop()

    def inside() -> None:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="requires guest mode"):
                loop._poll()
            loop._hosted = True  # too late for this run
        loop.stop()

    try:
        loop.call_soon(inside)
        loop.run_forever()
        assert loop._hosted is False
        with pytest.raises(RuntimeError, match="requires guest mode"):
            loop._poll()
    finally:
        loop.close()
    assert isinstance(loop, _core.Loop)
