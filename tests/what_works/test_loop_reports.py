"""Public bug reports about loops, timers and watches: each program ends as on asyncio."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import math
import os
import socket
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from protocols import turns, until


@pytest.mark.report("MagicStack/uvloop#29")
def test_time_goes_on_within_a_callback(loop: asyncio.AbstractEventLoop) -> None:
    def look() -> None:
        before = loop.time()
        end = time.monotonic() + 0.005
        while time.monotonic() < end:
            pass
        seen.append(loop.time() - before)
        loop.stop()

    seen: list[float] = []
    loop.call_soon(look)
    loop.run_forever()
    assert seen[0] >= 0.004


@pytest.mark.report("MagicStack/uvloop#33")
def test_slow_callback_duration_is_settable(loop: asyncio.AbstractEventLoop) -> None:
    assert loop.slow_callback_duration == 0.1
    loop.slow_callback_duration = 0.5
    assert loop.slow_callback_duration == 0.5


@pytest.mark.report("MagicStack/uvloop#34")
async def test_reader_that_raises_is_reported_and_goes_on(
    loop: asyncio.AbstractEventLoop, errors: Any
) -> None:
    near, far = socket.socketpair()
    with near, far:
        seen: list[bytes] = []

        def read() -> None:
            seen.append(near.recv(1))
            raise ZeroDivisionError

        loop.add_reader(near, read)
        for number in (b"1", b"2"):
            far.send(number)
            await until(lambda: errors.contexts)
            errors.expect(ZeroDivisionError)
        loop.remove_reader(near)
    assert seen == [b"1", b"2"]


@pytest.mark.report("MagicStack/uvloop#61")
async def test_removed_writer_is_gone_at_once(loop: asyncio.AbstractEventLoop) -> None:
    near, far = socket.socketpair()
    seen: list[int] = []
    copy = os.dup(near.fileno())
    loop.add_writer(copy, seen.append, copy)
    await until(lambda: seen)
    loop.remove_writer(copy)
    os.close(copy)
    seen.clear()
    reused = os.dup(near.fileno())
    assert reused == copy
    await turns(5)
    assert not seen
    assert not loop.remove_writer(reused)
    os.close(reused)
    near.close()
    far.close()


@pytest.mark.report("MagicStack/uvloop#97")
async def test_objects_with_fileno_can_be_watched(loop: asyncio.AbstractEventLoop) -> None:
    reading, writing = os.pipe()
    seen: list[str] = []
    with os.fdopen(reading, "rb", 0) as reader, os.fdopen(writing, "wb", 0) as writer:
        loop.add_reader(reader, seen.append, "r")
        writer.write(b"x")
        await until(lambda: seen)
        assert loop.remove_reader(reader)
        loop.add_writer(writer, seen.append, "w")
        await until(lambda: "w" in seen)
        assert loop.remove_writer(writer.fileno())


@pytest.mark.report("MagicStack/uvloop#102")
async def test_infinite_delay_disturbs_no_timer(loop: asyncio.AbstractEventLoop) -> None:
    never = loop.call_later(math.inf, print)
    await asyncio.wait_for(asyncio.sleep(0.001), math.inf)
    assert never.when() == math.inf
    never.cancel()


@pytest.mark.report("MagicStack/uvloop#103")
async def test_slow_step_of_a_task_is_logged_with_the_tasks_name(
    loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def slow() -> None:
        time.sleep(0.01)

    loop.set_debug(True)
    loop.slow_callback_duration = 0.001
    with caplog.at_level(logging.WARNING, "asyncio"):
        await loop.create_task(slow(), name="the slow one")
    loop.set_debug(False)
    assert any("the slow one" in text and "took" in text for text in caplog.messages)


@pytest.mark.report("MagicStack/uvloop#145")
async def test_executor_of_the_program_can_take_coroutine_functions(
    loop: asyncio.AbstractEventLoop,
) -> None:
    class Running(concurrent.futures.Executor):
        def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            future: concurrent.futures.Future[Any] = concurrent.futures.Future()
            coroutine = function(*args)
            with pytest.raises(StopIteration) as ended:
                coroutine.send(None)
            future.set_result(ended.value.value)
            return future

    async def double(number: int) -> int:
        return 2 * number

    assert await loop.run_in_executor(Running(), double, 21) == 42  # type: ignore[arg-type]


@pytest.mark.report("MagicStack/uvloop#200")
def test_dropped_generator_is_finished_in_debug_mode(loop: asyncio.AbstractEventLoop) -> None:
    ended: list[str] = []

    async def generate() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            ended.append("finally")

    async def main() -> None:
        async for _ in generate():
            break
        await until(lambda: ended)

    loop.set_debug(True)
    loop.run_until_complete(main())
    loop.set_debug(False)


@pytest.mark.report("MagicStack/uvloop#259")
async def test_delay_of_years_is_not_due(loop: asyncio.AbstractEventLoop) -> None:
    seen: list[int] = []
    handles = [loop.call_later(delay, seen.append, 0) for delay in (2**31, 2**33, 1e12)]
    await asyncio.sleep(0.005)
    assert not seen
    for each in handles:
        each.cancel()


@pytest.mark.report("MagicStack/uvloop#309")
async def test_task_has_the_given_name(loop: asyncio.AbstractEventLoop) -> None:
    task = loop.create_task(asyncio.sleep(0), name="given")
    assert task.get_name() == "given"
    await task


@pytest.mark.report("MagicStack/uvloop#378")
async def test_cancelled_sock_connect_leaves_no_writer(loop: asyncio.AbstractEventLoop) -> None:
    with socket.socket() as listening, socket.socket() as filling, socket.socket() as client:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        filling.connect(listening.getsockname())
        client.setblocking(False)
        connecting = loop.create_task(loop.sock_connect(client, listening.getsockname()))
        await asyncio.sleep(0)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        assert not loop.remove_writer(client)


@pytest.mark.report("MagicStack/uvloop#408")
async def test_loop_runs_on_while_threads_call_soon(loop: asyncio.AbstractEventLoop) -> None:
    seen: list[int] = []

    def call() -> None:
        for number in range(2000):
            loop.call_soon_threadsafe(seen.append, number)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for each in threads:
        each.start()
    await until(lambda: len(seen) == 8000)
    for each in threads:
        each.join()


@pytest.mark.report("MagicStack/uvloop#469")
async def test_when_of_a_timer_that_ran_or_was_cancelled(loop: asyncio.AbstractEventLoop) -> None:
    before = loop.time()
    ran = loop.call_later(0.001, int)
    cancelled = loop.call_later(0.001, int)
    cancelled.cancel()
    await asyncio.sleep(0.005)
    assert before < ran.when() <= cancelled.when() < before + 60


@pytest.mark.report("MagicStack/uvloop#494")
@pytest.mark.parametrize("flags", [socket.AI_CANONNAME, socket.AI_CANONNAME | socket.AI_PASSIVE])
async def test_canonical_name_of_an_address(loop: asyncio.AbstractEventLoop, flags: int) -> None:
    options: Any = {"type": socket.SOCK_STREAM, "flags": flags}
    expected = socket.getaddrinfo("127.0.0.1", 80, **options)
    assert await loop.getaddrinfo("127.0.0.1", 80, **options) == expected


@pytest.mark.report("MagicStack/uvloop#636")
async def test_threads_of_the_default_executor_have_asyncios_name(
    loop: asyncio.AbstractEventLoop,
) -> None:
    found = await loop.run_in_executor(None, threading.current_thread)
    assert found.name.startswith("asyncio_")
