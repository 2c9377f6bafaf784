"""Threads that call any method of another thread's loop, which asyncio forbids.

    python misuse_storm.py --seconds 60 --seed 7

The main thread's loop serves and connects, arms timers, runs tasks. Other threads take its objects
(the loop, transports, a server, handles, futures, tasks, coroutines of sock_*) and call their
methods, read and write their attributes, at random, and drop the last reference. Errors, bytes in
any order and broken connections are allowed. But the interpreter lives, the loop continues, and
callbacks posted by call_soon_threadsafe run.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import contextvars
import faulthandler
import gc
import logging
import random
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import goloop

THREADS = 3
# Seconds beyond those of the storm, after which it counts as hanging.
HANG = 120

Chance = random.Random
Act = tuple[str, Callable[[Any, Chance], object]]


def attributes(*names: str) -> list[Act]:
    """Reads of them."""
    return [(name, lambda o, chance, name=name: getattr(o, name)) for name in names]


def calls(*names: str) -> list[Act]:
    """Calls of methods without arguments."""
    return [(name, lambda o, chance, name=name: getattr(o, name)()) for name in names]


def swallow(o: object) -> None:
    pass


TRANSPORT: list[Act] = [
    *calls("abort", "close", "is_closing", "is_reading", "pause_reading", "resume_reading",
           "get_protocol", "get_write_buffer_size", "get_write_buffer_limits", "write_eof",
           "can_write_eof", "__repr__", "_flush", "_sync", "_deliver_paused_data"),
    *attributes("_loop", "_protocol", "_context", "_extra", "_paused", "_sock_fd", "_fd",
                "_receives", "_high_water", "_conn_lost", "_empty_waiter", "__dict__"),
    ("write", lambda t, chance: t.write(bytes(chance.randrange(200_000)))),
    ("writelines", lambda t, chance: t.writelines([b"a", bytearray(b"b"), memoryview(b"c")])),
    ("set_write_buffer_limits", lambda t, chance: t.set_write_buffer_limits(chance.randrange(9))),
    ("set_protocol", lambda t, chance: t.set_protocol(asyncio.Protocol())),
    ("get_extra_info", lambda t, chance: t.get_extra_info(chance.choice(("socket", "peername")))),
    ("_extra =", lambda t, chance: setattr(t, "_extra", {})),
    ("_empty_waiter =", lambda t, chance: setattr(t, "_empty_waiter", None)),
    ("new =", lambda t, chance: setattr(t, "new", object())),
    ("_force_close", lambda t, chance: t._force_close(None)),
]  # fmt: skip
HANDLE: list[Act] = [
    *calls("cancel", "cancelled", "_run", "__repr__", "get_context"),
    *attributes("_args", "_callback", "_cancelled", "_context", "_loop", "_repr",
                "_source_traceback"),
    # A callback that asyncio could not run and report would end the loop.
    ("_callback =", lambda h, chance: setattr(h, "_callback", int)),
    ("_args =", lambda h, chance: setattr(h, "_args", ())),
    ("_context =", lambda h, chance: setattr(h, "_context", contextvars.copy_context())),
    ("_cancelled =", lambda h, chance: setattr(h, "_cancelled", chance.random() < 0.5)),
]  # fmt: skip


def step_by_two(future: Any, _chance: random.Random) -> None:
    """Step the iterator of one `await` from two threads."""
    iterator = future.__await__()

    def step() -> None:
        with contextlib.suppress(BaseException):
            next(iterator)

    thread = threading.Thread(target=step)
    thread.start()
    try:
        iterator.throw(ValueError())
    finally:
        thread.join()


FUTURE: list[Act] = [
    ("step by two", step_by_two),
    *calls("cancel", "cancelled", "done", "__repr__", "get_loop", "exception", "result",
           "_make_cancelled_error", "__iter__", "__await__"),
    *attributes("_state", "_callbacks", "_result", "_exception", "_loop", "_log_traceback",
                "_asyncio_future_blocking", "_source_traceback", "_cancel_message"),
    ("next", lambda f, chance: next(iter(f))),
    ("blocking", lambda f, chance: setattr(f, "_asyncio_future_blocking", False)),
    ("set_result", lambda f, chance: f.set_result(None)),
    ("set_exception", lambda f, chance: f.set_exception(ValueError())),
    ("add_done_callback", lambda f, chance: f.add_done_callback(swallow)),
    ("remove_done_callback", lambda f, chance: f.remove_done_callback(swallow)),
    ("__init__", lambda f, chance: chance.random() < 0.1 and f.__init__(loop=f.get_loop())),
]  # fmt: skip
TASK: list[Act] = [
    *(act for act in FUTURE if act[0] not in ("__init__", "set_result", "set_exception")),
    *calls("get_coro", "get_name", "get_stack", "cancelling", "uncancel", "get_context"),
    *attributes("_coro", "_fut_waiter", "_must_cancel", "_log_destroy_pending"),
    ("set_name", lambda t, chance: t.set_name(str(chance.random()))),
]  # fmt: skip
LOOP: list[Act] = [
    *calls("time", "is_running", "is_closed", "get_debug", "metrics", "diagnostics", "__repr__",
           "__hash__", "get_task_factory", "create_future", "get_exception_handler", "_wake",
           "_diagnostics", "_metrics"),
    *attributes("_thread_id", "_debug", "_stopping", "_closed", "_current_handle", "_task_factory"),
    ("run", lambda loop, chance: loop.run_forever()),
    ("close", lambda loop, chance: loop.close()),
    ("_run", lambda loop, chance: loop._run()),
    ("_close_core", lambda loop, chance: loop._close_core()),
    ("call_soon", lambda loop, chance: loop.call_soon(int)),
    ("call_later", lambda loop, chance: loop.call_later(chance.random() / 100, int)),
    ("call_at", lambda loop, chance: loop.call_at(0, int).cancel()),
    ("all_tasks", lambda loop, chance: asyncio.all_tasks(loop)),
    ("current_task", lambda loop, chance: asyncio.current_task(loop)),
    ("set_task_factory", lambda loop, chance: loop.set_task_factory(None)),
    ("create_task", lambda loop, chance: loop.create_task(asyncio.sleep(0))),
    ("collect", lambda loop, chance: chance.random() < 0.01 and gc.collect(chance.randrange(3))),
]  # fmt: skip


def act_of(o: object) -> list[Act]:
    if isinstance(o, asyncio.AbstractEventLoop):
        return LOOP
    if isinstance(o, asyncio.Task):
        return TASK
    if isinstance(o, asyncio.Future):
        return FUTURE
    if isinstance(o, asyncio.Handle):
        return HANDLE
    return TRANSPORT


class Echo(asyncio.Protocol):
    def __init__(self, storm: Storm) -> None:
        self.storm = storm

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.storm.show(transport)

    def data_received(self, data: bytes) -> None:
        with contextlib.suppress(Exception):
            self.transport.write(data[:100])


class Storm:
    def __init__(self, seconds: float, seed: int) -> None:
        self.seconds, self.chance = seconds, Chance(seed)
        # The objects that other threads may take: the newest are kept.
        self.shown: collections.deque[Any] = collections.deque(maxlen=60)
        self.over = threading.Event()
        self.acts = [0] * THREADS
        self.posted = self.ran = 0

    def show(self, *objects: Any) -> None:
        self.shown.extend(objects)

    def ran_one(self) -> None:
        self.ran += 1

    def misuse(self, number: int, seed: float) -> None:
        chance = Chance(seed)
        while not self.over.is_set():
            with contextlib.suppress(IndexError):
                o = self.shown[chance.randrange(len(self.shown) or 1)]
                _, act = chance.choice(act_of(o))
                with contextlib.suppress(Exception, asyncio.CancelledError, StopIteration):
                    act(o, chance)
                self.acts[number] += 1
                o = None
            if number == 0 and self.posted < 1_000_000:
                self.loop.call_soon_threadsafe(self.ran_one)
                self.posted += 1

    async def connects(self, address: Any) -> None:
        while not self.over.is_set():
            with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(0.05):
                    transport, _ = await self.loop.create_connection(lambda: Echo(self), *address)
                    transport.write(b"hello")
            await asyncio.sleep(0)

    async def waits(self) -> None:
        while not self.over.is_set():
            future = self.loop.create_future()
            self.show(future, self.loop.call_later(0.001, swallow, None), self.loop.call_soon(int))

            async def awaits(future: Any = future) -> None:
                with contextlib.suppress(ValueError):
                    await future

            task = asyncio.create_task(awaits())
            self.show(task)
            await asyncio.sleep(0.0005)
            task.cancel()
            # A task whose future was re-initialised is never woken.
            await asyncio.wait([task], timeout=0.01)
            task = future = None  # type: ignore[assignment]

    async def receives(self) -> None:
        near, far = socket.socketpair()
        with near, far:
            near.setblocking(False)
            while not self.over.is_set():
                with contextlib.suppress(TimeoutError, OSError, RuntimeError):
                    async with asyncio.timeout(0.001):
                        await self.loop.sock_recv(near, 100)

    async def main(self) -> None:
        self.loop: Any = asyncio.get_running_loop()
        self.loop.set_exception_handler(lambda loop, context: None)
        server = await self.loop.create_server(lambda: Echo(self), "127.0.0.1", 0)
        threads = [
            threading.Thread(target=self.misuse, args=(number, self.chance.random()))
            for number in range(THREADS)
        ]
        jobs = [self.connects(server.sockets[0].getsockname()), self.waits(), self.receives()]
        tasks = [asyncio.create_task(job) for job in jobs]
        for thread in threads:
            thread.start()
        end = self.loop.time() + self.seconds
        while self.loop.time() < end:
            self.show(self.loop)
            await asyncio.sleep(0.01)
        self.over.set()
        # Not by asyncio.to_thread: the calls may block the executor.
        while any(thread.is_alive() for thread in threads):
            await asyncio.sleep(0.01)
        self.shown.clear()
        await asyncio.wait(tasks, timeout=5)
        server.close()
        await asyncio.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print("seed", options.seed, flush=True)
    warnings.simplefilter("ignore")
    logging.disable()
    sys.unraisablehook = lambda unraisable: None
    threading.excepthook = lambda args: None
    faulthandler.dump_traceback_later(options.seconds + HANG, exit=True)
    storm = Storm(options.seconds, options.seed)
    loop = goloop.new_event_loop()
    loop.run_until_complete(storm.main())
    loop.close()
    print("calls", storm.acts, "posted", storm.posted, "ran", storm.ran)
    if storm.ran != storm.posted:
        sys.exit("callbacks were lost")
    if not min(storm.acts):
        sys.exit("a thread did nothing")


if __name__ == "__main__":
    main()
