"""Random programs of tasks and futures.

A program is a pure function of its seed: a set of workers that each carry out a list
of operations on shared futures, primitives of asyncio's and each other.  Running it on a loop
writes a trace: the events that every worker saw, in order.  Two loops
agree if their traces are equal.

Nothing in a program depends on the clock: timeouts are either due at once or far away,
and endless waits are cancelled at the end.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import re
import sys
from collections.abc import Callable, Coroutine
from typing import Any

FAR = 3600.0
Operation = tuple[Any, ...]

# The number of the worker that this is, or that this is a child of.
owner: contextvars.ContextVar[int] = contextvars.ContextVar("owner", default=0)
variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)


class Failure(Exception):
    """The exception that workers raise on purpose."""


SIMPLE = [
    "sleep0", "await_future", "set_result", "set_exception", "cancel_future", "cancel_worker",
    "await_worker", "done_callback", "remove_callback", "call_soon", "uncancel", "event_wait",
    "event_set", "put", "get", "join", "lock", "semaphore", "condition_wait", "notify", "raise",
    "return", "yield_garbage", "context", "suppress_cancel",
]  # fmt: skip
# Of programs in which many want the same.
CROWDED = [
    [*words.split(), "sleep0", "cancel_worker"]
    for words in ("event_wait event_set", "put get join", "lock", "semaphore",
                  "condition_wait notify")
]  # fmt: skip
NESTED = ("gather", "shield", "timeout", "wait_for", "group", "wait", "child", "nested")


class Program:
    """The operations of all workers, made from a seed."""

    many = SIMPLE
    nested = NESTED

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.seed = seed
        self.futures = rng.randint(1, 4)
        crowded = rng.random() < 0.4
        self.simple = rng.choice(CROWDED) if crowded else self.many
        self.workers = [
            [self._operation(rng, depth=0) for _ in range(rng.randint(1, 6))]
            for _ in range(rng.randint(1, 12 if crowded else 5))
        ]

    def _operation(self, rng: random.Random, depth: int) -> Operation:
        kind = rng.choice(self.simple if depth > 2 or rng.random() < 0.6 else self.nested)
        number = rng.randrange(8)
        if kind in self.nested:
            inner = [self._operation(rng, depth + 1) for _ in range(rng.randint(1, 3))]
            return (kind, number, inner, rng.random() < 0.5)
        return (kind, number)


class Run:
    """An execution of a program on the running loop."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.loop = asyncio.get_running_loop()
        self.trace: list[str] = []
        self.futures = [self.loop.create_future() for _ in range(program.futures)]
        self.event = asyncio.Event()
        self.queue: asyncio.Queue[int] = asyncio.Queue(2)
        self.lock = asyncio.Lock()
        self.semaphore = asyncio.Semaphore(2)
        self.condition = asyncio.Condition()
        self.workers: list[asyncio.Task[Any]] = []
        self.callbacks: list[Callable[[Any], None]] = []
        self.children = 0
        self.coroutines: list[Any] = []  # in the order of their making

    def log(self, *words: object) -> None:
        current = asyncio.current_task()
        name = current.get_name() if current is not None else "-"
        self.trace.append(f"{name}: " + " ".join(map(str, words)))

    def future(self, number: int) -> asyncio.Future[Any]:
        return self.futures[number % len(self.futures)]

    def worker(self, number: int) -> asyncio.Task[Any]:
        return self.workers[number % len(self.workers)]

    def spawn(self, operations: list[Operation]) -> Coroutine[Any, Any, Any]:
        self.children += 1
        return self.started(self.body(f"c{self.children}", operations))

    def started(self, coroutine: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        self.coroutines.append(coroutine)
        return coroutine

    async def body(self, name: str, operations: list[Operation]) -> Any:
        task = asyncio.current_task()
        assert task is not None
        task.set_name(name)
        self.log("begins", len(asyncio.all_tasks()))
        try:
            for operation in operations:
                try:
                    value = await self.perform(operation)
                    if value is not None:
                        self.log(operation[0], "gave", describe(value))
                    if operation[0] == "return":
                        return operation[1]
                except (Failure, LookupError, RuntimeError, TypeError, TimeoutError) as error:
                    self.log(operation[0], "raised", type(error).__name__, error.args[:1] and 1)
                    if operation[1] == 5:
                        raise
                except asyncio.InvalidStateError as error:
                    self.log(operation[0], "invalid", error)
                except BaseExceptionGroup as error:
                    self.log(operation[0], "group", describe_group(error))
        except asyncio.CancelledError as error:
            self.log("cancelled", error.args, task.cancelling())
            raise
        finally:
            self.log("ends", task.cancelling())
        return None

    async def perform(self, operation: Operation) -> Any:
        kind, number = operation[0], operation[1]
        method: Any = getattr(self, "do_" + kind)
        return await method(number, *operation[2:])

    def no_time(self) -> float:
        """A timeout that is due at once."""
        return 0

    # ---- simple operations ------------------------------------------------------

    async def do_sleep0(self, number: int) -> None:
        for _ in range(1 + number % 3):
            await asyncio.sleep(0)

    async def do_await_future(self, number: int) -> Any:
        return await self.future(number)

    async def do_set_result(self, number: int) -> None:
        self.future(number).set_result(number)

    async def do_set_exception(self, number: int) -> None:
        self.future(number).set_exception(Failure(number))

    async def do_cancel_future(self, number: int) -> bool:
        return self.future(number).cancel(f"future {number}")

    async def do_cancel_worker(self, number: int) -> bool:
        return self.worker(number).cancel(f"worker {number}" if number % 2 else None)

    async def do_await_worker(self, number: int) -> Any:
        # Only earlier workers: a circle could not be cancelled.
        mine = owner.get()
        return await self.workers[number % mine] if mine else None

    async def do_done_callback(self, number: int) -> None:
        def callback(future: Any) -> None:
            self.log("callback", number, future.done(), future.cancelled())

        self.callbacks.append(callback)
        target: Any = self.worker(number) if number % 2 else self.future(number)
        target.add_done_callback(callback)

    async def do_remove_callback(self, number: int) -> Any:
        if not self.callbacks:
            return None
        callback = self.callbacks[number % len(self.callbacks)]
        target: Any = self.worker(number) if number % 2 else self.future(number)
        return target.remove_done_callback(callback)

    async def do_call_soon(self, number: int) -> None:
        self.loop.call_soon(self.log, "called", number)

    async def do_uncancel(self, number: int) -> Any:
        return self.worker(number).uncancel()

    async def do_event_wait(self, number: int) -> Any:
        return await self.event.wait()

    async def do_event_set(self, number: int) -> None:
        if number % 2:
            self.event.clear()
        else:
            self.event.set()

    async def do_put(self, number: int) -> None:
        await self.queue.put(number)

    async def do_get(self, number: int) -> int:
        taken = await self.queue.get()
        self.queue.task_done()
        return taken

    async def do_join(self, number: int) -> None:
        await self.queue.join()

    async def do_lock(self, number: int) -> None:
        async with self.lock:
            self.log(plain(self.lock))
            await self.do_sleep0(number)

    async def do_semaphore(self, number: int) -> None:
        async with self.semaphore:
            self.log(plain(self.semaphore))
            await self.do_sleep0(number)

    async def do_condition_wait(self, number: int) -> None:
        async with self.condition:
            await self.condition.wait()
            self.log("notified", self.condition.locked())

    async def do_notify(self, number: int) -> None:
        async with self.condition:
            self.condition.notify(1 + number % 3)

    async def do_raise(self, number: int) -> None:
        raise Failure(number)

    async def do_return(self, number: int) -> None:
        return None

    async def do_yield_garbage(self, number: int) -> Any:
        return await Yields((number, None, self.future(number), [])[number % 4])

    async def do_context(self, number: int) -> Any:
        variable.set(variable.get() + number)
        await asyncio.sleep(0)
        return variable.get()

    async def do_suppress_cancel(self, number: int) -> Any:
        try:
            await self.future(number)
        except asyncio.CancelledError as error:
            self.log("suppressed", error.args)
            task = asyncio.current_task()
            assert task is not None
            return task.uncancel() if number % 2 else task.cancelling()

    # ---- nested operations ----------------------------------------------------------

    async def do_child(self, number: int, inner: list[Operation], flag: bool) -> Any:
        task = self.loop.create_task(self.spawn(inner))
        if flag:
            await asyncio.sleep(0)
        if number % 3 == 0:
            task.cancel()
        return await task

    async def do_nested(self, number: int, inner: list[Operation], flag: bool) -> None:
        for operation in inner:
            await self.perform(operation)

    async def do_gather(self, number: int, inner: list[Operation], flag: bool) -> Any:
        return await asyncio.gather(*(self.spawn([each]) for each in inner), return_exceptions=flag)

    async def do_shield(self, number: int, inner: list[Operation], flag: bool) -> Any:
        return await asyncio.shield(self.spawn(inner))

    async def do_timeout(self, number: int, inner: list[Operation], flag: bool) -> None:
        async with asyncio.timeout(0 if flag else FAR):
            for operation in inner:
                await self.perform(operation)

    async def do_wait_for(self, number: int, inner: list[Operation], flag: bool) -> Any:
        return await asyncio.wait_for(self.spawn(inner), 0 if flag and number % 2 else FAR)

    async def do_group(self, number: int, inner: list[Operation], flag: bool) -> None:
        group: Any = asyncio.TaskGroup()
        group._tasks = InOrder()
        async with group:
            for operation in inner:
                group.create_task(self.spawn([operation]))
            if flag:
                await asyncio.sleep(0)
                if number == 3:
                    raise Failure("group body")

    async def do_wait(self, number: int, inner: list[Operation], flag: bool) -> Any:
        tasks = [self.loop.create_task(self.spawn([each])) for each in inner]
        done, pending = await asyncio.wait(
            tasks,
            timeout=None if flag else self.no_time(),
            return_when=(asyncio.FIRST_COMPLETED, asyncio.ALL_COMPLETED)[number % 2],
        )
        for task in sorted(pending, key=tasks.index):
            task.cancel()
        return len(done), len(pending)

    async def let_run(self) -> None:
        """Run the callbacks and tasks that need nothing further."""
        for _ in range(60):
            await asyncio.sleep(0)

    # ---- all of it ---------------------------------------------------------------------

    async def everything(self) -> list[str]:
        for number, operations in enumerate(self.program.workers):
            owner.set(number)
            body = self.started(self.body(f"w{number}", operations))
            self.workers.append(self.loop.create_task(body))
        await self.let_run()
        for round_ in range(50):
            left = [each for each in asyncio.all_tasks() if each.get_coro() in self.coroutines]
            if not left:
                break
            for task in sorted(left, key=lambda each: self.coroutines.index(each.get_coro())):
                task.cancel(f"end {round_}")
            for _ in range(5):
                await asyncio.sleep(0)
        for number, worker in enumerate(self.workers):
            self.trace.append(f"worker {number}: {outcome(worker)}")
        for number, future in enumerate(self.futures):
            self.trace.append(f"future {number}: {outcome(future)}")
        for each in (self.event, self.queue, self.lock, self.semaphore, self.condition):
            self.trace.append(plain(each))
        return self.trace


class InOrder(dict[Any, None]):
    """A group's set of tasks, without the chance in the order of a real set."""

    def add(self, task: Any) -> None:
        self[task] = None

    def discard(self, task: Any) -> None:
        self.pop(task, None)


class Yields:
    """An awaitable that yields one object to the task."""

    def __init__(self, what: object) -> None:
        self.what = what

    def __await__(self) -> Any:
        return (yield self.what)


def plain(primitive: object) -> str:
    """Return a primitive's state: the value, the number of waiters, and if it is locked."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(primitive))


def describe(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(describe, value)) + "]"
    if isinstance(value, BaseException):
        return f"{type(value).__name__}{value.args[:1] if isinstance(value, Failure) else ''}"
    return repr(value)


def describe_group(error: BaseExceptionGroup[BaseException]) -> str:
    return "+".join(
        describe_group(each) if isinstance(each, BaseExceptionGroup) else type(each).__name__
        for each in error.exceptions
    )


def outcome(future: asyncio.Future[Any]) -> str:
    if not future.done():
        return "pending"
    if future.cancelled():
        return "cancelled"
    error = future.exception()
    return describe(error) if error is not None else describe(future.result())


def run(
    program: Program,
    factory: Callable[[], asyncio.AbstractEventLoop],
    *,
    eager: bool = False,
    task_class: Any = None,
) -> list[str]:
    """The trace of the program on a new loop."""
    loop: Any = factory()
    reports: list[str] = []
    loop.set_exception_handler(lambda _, context: reports.append(context["message"]))
    if eager and sys.version_info >= (3, 12):
        loop.set_task_factory(asyncio.create_eager_task_factory(task_class or asyncio.Task))
    try:
        trace: list[str] = loop.run_until_complete(_main(program))
    finally:
        loop.close()
    return trace


async def _main(program: Program) -> list[str]:
    return await Run(program).everything()
