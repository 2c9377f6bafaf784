"""Uses that asyncio forbids do not crash; misuse_storm.py describes its threads.

GOLOOP_TEST_MISUSE_SECONDS sets the duration (5 seconds by default).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import ended
import pytest

import goloop

SCENARIOS = Path(__file__).with_name("misuse_scenarios.py")

STORM = Path(__file__).parent / "misuse_storm.py"
SECONDS = float(os.environ.get("GOLOOP_TEST_MISUSE_SECONDS", "5"))
LIMIT = SECONDS + 150

pytestmark = pytest.mark.skipif(
    os.environ.get("GOLOOP_TEST_LOOP") == "asyncio", reason="it is about goloop's loops"
)


@pytest.mark.timeout(LIMIT + 30)
def test_misuse_by_threads_does_not_crash() -> None:
    done = ended.python(str(STORM), "--seconds", str(SECONDS), limit=LIMIT)
    assert done.returncode == 0, done.stdout


@pytest.mark.timeout(LIMIT + 30)
def test_introspection_of_a_busy_loop_does_not_crash() -> None:
    """As `goloop top` and the watchdog do, but all the time."""
    done = ended.python(SCENARIOS, "introspection", str(SECONDS), limit=LIMIT)
    assert (done.returncode, done.stdout) == (0, "[None] ['child', 'main', 'parent', 'steps']\n")


def in_thread(function: Any) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def test_waiting_callback_releases_the_owner_lock() -> None:
    """The thread needs the loop that waits for it."""
    told: list[Any] = []

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, ("127.0.0.1", 0)
        )
        handle, future = loop.call_later(60, print), loop.create_future()

        def uses() -> None:
            told.extend((transport.is_closing(), repr(handle), loop.metrics().turns > 0))
            future.add_done_callback(lambda _: told.append("done"))
            handle.cancel()
            transport.close()
            future.cancel()

        in_thread(uses).join()
        assert transport.is_closing()
        assert handle.cancelled()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    goloop.run(main())
    assert told[0] is False
    assert "TimerHandle" in told[1]
    assert told[2:] == [True, "done"]


def test_a_callback_that_computes_gives_way() -> None:
    """As with the GIL: the callback goes on until the other thread has had its turn."""
    seen: list[int] = []

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()

        def looks() -> None:
            for _ in range(3):
                seen.append(len(asyncio.all_tasks(loop)))
                loop.metrics()

        thread = in_thread(looks)
        while thread.is_alive():
            sum(range(1000))

    goloop.run(main())
    assert seen == [1, 1, 1]


@pytest.mark.parametrize("what", ["future", "sock_recv"])
def test_new_objects_are_fully_visible_to_other_threads(what: str) -> None:
    """Nothing but the object itself tells them of its loop; ThreadSanitizer looks, too."""
    looks = [0, 0]

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        near, far = socket.socketpair()
        near.setblocking(False)
        over = threading.Event()

        def make() -> Any:
            return loop.create_future() if what == "future" else loop.sock_recv(near, 1)

        def use(made: Any) -> None:
            if what == "future":
                iter(made)
                return
            with contextlib.suppress(TypeError, RuntimeError):  # not begun, or closed
                made.send("")

        newest = [make()]
        old = newest[:]

        def look(number: int) -> None:
            while not over.is_set():
                looks[number] += 1
                use(newest[0])

        threads = [in_thread(functools.partial(look, number)) for number in range(2)]
        for _ in range(300):
            for _ in range(300):
                newest[0] = make()
                old.append(newest[0])
            await asyncio.sleep(0)
            if what == "sock_recv":
                for made in old[:-1]:
                    made.close()
            del old[:-1]
        over.set()
        for thread in threads:
            thread.join()
        if what == "sock_recv":
            old[0].close()
        near.close()
        far.close()

    goloop.run(main())
    assert min(looks) > 0


def test_loop_that_never_sleeps_releases_the_owner_lock() -> None:
    """Each look takes the lock of a loop whose next iteration is always due."""
    turns: list[int] = []

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        spinning = threading.Event()

        def looks() -> None:
            assert spinning.wait(60)
            turns.extend(loop.metrics().turns for _ in range(20))

        thread = in_thread(looks)
        while thread.is_alive():
            await asyncio.sleep(0)
            spinning.set()

    goloop.run(main())
    assert len(turns) == 20
    assert turns == sorted(turns)


def test_posted_callback_runs_before_a_later_call_soon() -> None:
    """A thread posts, and signals this; callbacks that the loop schedules later run after it."""
    order: list[str] = []

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        for _ in range(50):
            posted = threading.Event()

            def posts(posted: threading.Event = posted) -> None:
                loop.call_soon_threadsafe(order.append, "posted")
                posted.set()

            thread = in_thread(posts)
            while not posted.is_set():
                time.sleep(0)
            loop.call_soon(order.append, "own")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            thread.join()

    goloop.run(main())
    assert order == ["posted", "own"] * 50


def test_thread_that_claims_to_run_the_loop_does_not_corrupt_counts() -> None:
    """_thread_id can be written; the owner thread is not read from it."""
    done = ended.python(
        "-X", "faulthandler", SCENARIOS, "a_thread_that_claims_to_run_the_loop", limit=100
    )
    assert (done.returncode, done.stdout) == (0, "True\n")


def test_the_running_task_is_seen_from_everywhere() -> None:
    """The table of running tasks, which is only written when it is read, is right for all."""

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        me: Any = asyncio.current_task()
        assert asyncio.current_task(loop) is me
        seen: list[Any] = []
        in_thread(lambda: seen.append(asyncio.current_task(loop))).join()
        assert seen == [me]
        from_callback: list[Any] = []
        loop.call_soon(lambda: from_callback.append(asyncio.current_task()))
        other = asyncio.create_task(asyncio.sleep(0))
        await other
        assert from_callback == [None]
        assert asyncio.current_task() is me
        with pytest.raises(RuntimeError, match="while another task"):
            asyncio.tasks._enter_task(loop, other)  # type: ignore[attr-defined]
        asyncio.tasks._leave_task(loop, me)  # type: ignore[attr-defined]
        assert asyncio.current_task() is None
        asyncio.tasks._enter_task(loop, me)  # type: ignore[attr-defined]
        assert asyncio.current_task() is me

    goloop.run(main())


def passes(name: str) -> str:
    options = ("-W", "ignore", "-X", "faulthandler")
    # At the end daemon threads stand still, and so do their loops.
    return ended.passes(SCENARIOS, name, options=options, GOLOOP_WATCHDOG="0")


def test_the_process_may_end_while_loops_run_in_daemon_threads() -> None:
    assert passes("a_process_ends_while_loops_run_in_daemon_threads") == "end\n"


@pytest.mark.forks
def test_a_child_that_is_forked_while_loops_run_has_loops_of_its_own() -> None:
    """The other threads, which the child does not have, may have been in any state."""
    assert passes("a_child_that_is_forked_while_loops_run_has_loops_of_its_own") == "end\n"
