"""Arguments and moments that close the loop under a call: an error, and never a crash."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import socket
from pathlib import Path
from typing import Any

import ended
import pytest
from conftest import LoopFactory

SCENARIOS = Path(__file__).with_name("loop_safety_scenarios.py")

Loop = asyncio.AbstractEventLoop


def callback(*args: Any) -> None: ...


class Closes:
    """Closes a loop whenever it is asked for anything."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop

    def __add__(self, other: float) -> float:
        self.loop.close()
        return other

    __radd__ = __add__

    def __float__(self) -> float:
        self.loop.close()
        return 1.0

    def __lt__(self, other: object) -> bool:
        return True

    def __str__(self) -> str:
        self.loop.close()
        return "name"


def test_a_delay_that_closes_the_loop_is_an_error(loop_factory: LoopFactory) -> None:
    loop: Any = loop_factory()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        loop.call_later(Closes(loop), callback)


def test_a_time_that_closes_the_loop_is_an_error() -> None:
    assert (
        ended.passes(SCENARIOS, "a_time_that_closes_the_loop_is_an_error")
        == "Event loop is closed\n"
    )


@pytest.mark.parametrize("method", ["call_soon", "call_soon_threadsafe", "call_later", "call_at"])
def test_debug_checks_that_close_the_loop_are_an_error(method: str) -> None:
    assert (
        ended.passes(SCENARIOS, "debug_checks_that_close_the_loop_are_an_error", method)
        == "Event loop is closed\n"
    )


ENTRIES: dict[str, str] = {
    "call_soon": "loop.call_soon(print)",
    "call_soon_threadsafe": "loop.call_soon_threadsafe(print)",
    "call_later": "loop.call_later(0, print)",
    "call_at": "loop.call_at(0, print)",
    "call_at, many": "loop.call_at(0, print, 1, 2, 3)",
    "create_task": "loop.create_task(coro)",
    "create_task, named": "loop.create_task(coro, name='x')",
    "create_future": "loop.create_future().add_done_callback(print)",
    "set_result": "waiting.set_result(None)",
    "cancel": "waiting.cancel()",
    "getaddrinfo": "loop.getaddrinfo('localhost', 80).send(None)",
    "step": "goloop.Task(coro, loop=loop)",
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("debug", [False, True])
def test_collection_that_closes_the_loop_does_not_crash(entry: str, debug: bool) -> None:
    """At each of the first collections within the call: some lie between check and use."""
    assert (
        ended.passes(
            SCENARIOS, "collection_that_closes_the_loop_does_not_crash", ENTRIES[entry], str(debug)
        )
        == "alive\n"
    )


def test_close_while_another_thread_schedules_does_not_crash() -> None:
    """Debug mode's checks run Python between a look at the loop and the use of it."""
    assert (
        ended.passes(SCENARIOS, "close_while_another_thread_schedules_does_not_crash") == "alive\n"
    )


def test_name_that_closes_the_loop_does_not_crash(loop_factory: LoopFactory) -> None:
    loop: Any = loop_factory()

    async def nothing() -> None: ...

    coro = nothing()
    # asyncio asks for the name once the first step is scheduled, on some versions.
    with contextlib.suppress(RuntimeError):
        task = loop.create_task(coro, name=Closes(loop))
        task._log_destroy_pending = False
    assert loop.is_closed()
    coro.close()
    del coro
    gc.collect()


def test_closed_loop_drops_its_queue(loop_factory: LoopFactory) -> None:
    """Callbacks that destructors of the queue schedule are refused."""
    loop = loop_factory()
    refused: list[str] = []

    class Schedules:
        def __call__(self) -> None: ...

        def __del__(self) -> None:
            try:
                loop.call_soon(callback)
            except RuntimeError as exc:
                refused.append(str(exc))

    for _ in range(3):
        loop.call_soon(Schedules())
    loop.close()
    gc.collect()
    assert refused == ["Event loop is closed"] * 3


# ---- values that are no time ------------------------------------------------------------


def test_nan_is_refused() -> None:
    """asyncio lets it fire at once, and lets it disturb the order of the others."""
    import goloop

    loop = goloop.new_event_loop()
    with pytest.raises(ValueError, match="Invalid delay: NaN"):
        loop.call_later(math.nan, callback)
    with pytest.raises(ValueError, match="Invalid when: NaN"):
        loop.call_at(math.nan, callback)

    class Odd(float):
        pass

    with pytest.raises(ValueError, match="Invalid delay: NaN"):
        loop.call_later(Odd("nan"), callback)

    async def main() -> None:
        with pytest.raises(ValueError, match="NaN"):
            async with asyncio.timeout(math.nan):
                await asyncio.sleep(0)
        with pytest.raises(ValueError, match="NaN"):
            await asyncio.sleep(math.nan)
        waited = loop.create_future()
        with pytest.raises(ValueError, match="NaN"):
            await asyncio.wait_for(waited, math.nan)

    loop.run_until_complete(main())
    loop.close()


def test_infinity_is_a_time(loop: Loop) -> None:
    ran: list[str] = []
    never = loop.call_later(math.inf, ran.append, "never")
    assert never.when() == math.inf
    loop.call_later(-math.inf, ran.append, "at once")
    loop.call_at(-math.inf, ran.append, "at once")
    loop.call_later(0.001, loop.stop)
    loop.run_forever()
    assert ran == ["at once", "at once"]
    never.cancel()

    async def main() -> str:
        async with asyncio.timeout(math.inf):
            return "done"

    assert loop.run_until_complete(main()) == "done"


# ---- names with a NUL ----------------------------------------------------------------------


@pytest.mark.parametrize("host", ["a\0b", b"a\0b"])
def test_host_with_a_nul_is_refused(loop: Loop, host: Any) -> None:
    async def main() -> None:
        with pytest.raises(socket.gaierror):
            await loop.getaddrinfo(host, 80)

    loop.run_until_complete(main())
    loop.run_until_complete(loop.shutdown_default_executor())


def test_host_with_a_nul_is_not_looked_up() -> None:
    import goloop

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(socket.gaierror) as raised:
            await loop.getaddrinfo("localhost\0x", 80)
        assert raised.value.errno == socket.EAI_NONAME
        with pytest.raises(socket.gaierror) as raised:
            await loop.getaddrinfo("localhost", "80\0x")
        assert raised.value.errno == socket.EAI_SERVICE

    goloop.run(main())
