"""Threads that a simulation has in its own thread: those of executors, and anyio's workers.

So nothing of the simulation can end a wait for a lock there, nor one that is made of locks.

A job runs alone, at a moment of the seed's choice; what it sleeps is its own time.  Of an executor
jobs are taken in their order, at most as many at once as it has threads.

A worker of anyio's takes jobs from its queue and calls in with each result.  Here `start()` begins
no thread: what is put into the queue is a job of a thread, which runs the worker's loop for one
job.  Starlette and FastAPI run functions that are no coroutines so.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import queue
import threading
import weakref
from asyncio import events
from collections import deque
from collections.abc import Callable
from concurrent import futures
from concurrent.futures.thread import BrokenThreadPool

from .errors import EscapedSimulation
from .kernel import here, host_here, worlds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_Executor = futures.ThreadPoolExecutor
_start: Any = threading.Thread.start
_result: Any = futures.Future.result
_new_executor: Any = _Executor.__init__
_submit: Any = _Executor.submit
_shutdown: Any = _Executor.shutdown
LOCK = type(threading.Lock())
_acquire: Any = LOCK.acquire
_enter: Any = LOCK.__enter__
_get: Any = queue.SimpleQueue.get
_LOGGER: Any = futures._base.LOGGER
# Threads of an executor that is not told a number: the most that asyncio's has on any machine.
_MOST = 32
_BROKEN = "A thread initializer failed, the thread pool is not usable anymore"


# ---- executors -----------------------------------------------------------------------------------


class _Job:
    """What an executor has been given.  Who has taken it can't be told to cancel it any more."""

    __slots__ = ("call", "context", "delay", "future", "is_taken")

    def __init__(self, call: Callable[[], Any], delay: float) -> None:
        self.call, self.delay = call, delay
        self.context = _context()
        self.future: futures.Future[Any] = futures.Future()
        self.is_taken: bool | None = None  # None: not yet; False: it was cancelled before


class _Step:
    """What a thread of a pool does next; a pool has it until then."""

    __slots__ = ("args", "context", "handle", "pool", "step")
    handle: asyncio.TimerHandle

    def __init__(self, pool: Pool, context: contextvars.Context, step: Any, args: Any) -> None:
        self.pool, self.context, self.step, self.args = pool, context, step, args

    def __call__(self) -> None:
        if self in self.pool.steps:
            self.pool.steps.remove(self)
            self.step(*self.args)


class Pool:
    """The threads of an executor, or one that has none: jobs are taken in their order."""

    def __init__(self, life: Any, most: int, initialize: Callable[[], object] | None) -> None:
        self._life, self._most, self._initialize = life, most, initialize
        self._begun = self._idle = 0  # threads
        self._queue: deque[_Job] = deque()  # for which there is no thread
        self._next: deque[_Job] = deque()  # for which there is one, which has not taken them
        self._waiting: list[asyncio.Future[None]] = []
        self.steps: list[_Step] = []
        self.jobs = 0  # that are not done
        self.is_broken = False

    def submit(self, call: Callable[[], Any]) -> futures.Future[Any]:
        """A new job."""
        if self.is_broken:
            raise BrokenThreadPool(_BROKEN)
        job = _Job(call, self._life.executor_delay())
        job.future._simulated = self  # type: ignore[attr-defined]
        self.jobs += 1
        self._queue.append(job)
        if self._idle:
            self._idle -= 1
            self._go_on()
        elif self._begun < self._most:
            self._begun += 1
            if self._initialize is None:
                self._go_on()
            else:
                self._after(self._life.executor_delay(), _context(), self._begin)
        return job.future

    def cancel(self) -> None:
        """No job that is not taken runs."""
        for job in (*self._queue, *self._next):
            job.future.cancel()

    def when_done(self, future: asyncio.Future[None]) -> None:
        """The future's result comes when no job is left."""
        self._waiting.append(future)
        self._tell()

    def wait(self, over: Callable[[], bool], timeout: float | None = None) -> None:
        """Lets time pass, and in it what these threads do, until that is so."""
        life = self._life
        end = None if timeout is None else life.monotonic_ns() + round(timeout * 1e9)
        while not over():
            if not self.steps:
                life.escaped(
                    "a job waits for a job of the executor that it runs in, or for that "
                    "executor's end, and would for ever"
                )
            step = min(self.steps, key=lambda each: each.handle.when())
            at = max(round(step.handle.when() * 1e9), now := life.monotonic_ns())
            if end is not None and at > end:
                life.sleep(max(0, end - now) / 1e9)
                return
            life.sleep((at - now) / 1e9)
            step.handle.cancel()
            step.context.run(step)

    def _after(self, delay: float, context: contextvars.Context, step: Any, *args: Any) -> None:
        made = _Step(self, context, step, args)
        self.steps.append(made)
        delay += self._life.job_slept()
        made.handle = self._life.loop.call_later(delay, made, context=context)

    def _begin(self) -> None:
        """A new thread, which may take jobs when it is initialized."""
        assert self._initialize is not None
        _, failed, slept = self._run(self._initialize)
        self._after(slept, _context(), self._begun_with, failed)

    def _begun_with(self, failed: BaseException | None) -> None:
        if failed is None:
            self._go_on()
            return
        _LOGGER.critical("Exception in initializer:", exc_info=failed)
        self.is_broken = True
        for job in [*self._next, *self._queue]:
            self._take(job)
            if job.is_taken:
                job.is_taken = False
                job.future.set_exception(BrokenThreadPool(_BROKEN))
        self._next.clear()
        self.jobs -= len(self._queue)  # those for which there is a thread are its own to end
        self._queue.clear()
        self._tell()

    def _go_on(self) -> None:
        """A thread has nothing to do."""
        if self._queue:
            job = self._queue.popleft()
            self._next.append(job)
            self._after(job.delay, job.context, self._run_job, job)
        else:
            self._idle += 1

    def _take(self, job: _Job) -> None:
        if job.is_taken is None:
            job.is_taken = job.future.set_running_or_notify_cancel()

    def _run_job(self, job: _Job) -> None:
        while job.is_taken is None:  # those before it have been taken before
            self._take(self._next.popleft())
        if job.is_taken:
            result, failed, slept = self._run(job.call)
            self._after(slept, job.context, self._end, job, result, failed)
        else:
            self._ended()

    def _run(self, call: Callable[[], Any]) -> tuple[Any, BaseException | None, float]:
        """As in a thread: what it returns or raises, and how long it slept."""
        life, result = self._life, None
        failed: BaseException | None = None
        running = events._get_running_loop()
        events._set_running_loop(None)
        before = life.job_begins()
        try:
            result = call()
        except KeyboardInterrupt:
            raise  # it is whose who runs the simulation
        except EscapedSimulation as exc:
            failed = exc
            life.has_escaped(exc)
        except BaseException as exc:
            failed = exc
        finally:
            slept = life.job_ends(before)
            events._set_running_loop(running)
        return result, failed, slept

    def _end(self, job: _Job, result: Any, failed: BaseException | None) -> None:
        if failed is None:
            job.future.set_result(result)
        else:
            job.future.set_exception(failed)
        self._ended()

    def _ended(self) -> None:
        self.jobs -= 1
        self._go_on()
        self._tell()

    def _tell(self) -> None:
        while self._waiting and not self.jobs:
            future = self._waiting.pop()
            if not future.done():
                future.set_result(None)


def _context() -> contextvars.Context:
    """A thread's, of the host that runs."""
    context = contextvars.Context()
    context.run(host_here.set, host_here.get())
    return context


class Crew:
    """The executors of one host: what they run ends with it."""

    def __init__(self) -> None:
        self.default: Any = None
        self.is_shut = False
        self._pools: weakref.WeakKeyDictionary[Any, Pool] = weakref.WeakKeyDictionary()

    def take_default(self) -> Any:
        """The default executor, which asyncio makes when it is first needed."""
        if self.is_shut:
            raise RuntimeError("Executor shutdown has been called")
        if self.default is None:
            self.default = _Executor(_MOST, thread_name_prefix="asyncio")
        return self.default

    def has_jobs(self) -> bool:
        """Whether the default executor has jobs that are not done."""
        return self.default is not None and self.pool(self.default).jobs > 0

    def pool(self, executor: Any) -> Pool:
        """The threads of an executor."""
        pool = self._pools.get(executor)
        if pool is None:
            life = worlds[threading.get_ident()]
            pool = self._pools[executor] = Pool(life, executor._max_workers, _initializer(executor))
        return pool


def _initializer(executor: Any) -> Callable[[], object] | None:
    # From 3.14 on a closure has it.
    make = getattr(executor, "_create_worker_context", None)
    of = executor if make is None else make()
    names = ("_initializer", "_initargs") if make is None else ("initializer", "initargs")
    call, args = (getattr(of, name, None) for name in names)
    return None if call is None else functools.partial(call, *(args or ()))


def _pool_here(executor: Any) -> Pool | None:
    """The simulated threads of an executor; None: this thread is in no simulation."""
    life = worlds.get(threading.get_ident())
    if life is None or life.loop is None:
        return None
    pool: Pool = life.loop._crew().pool(executor)
    return pool


def new_executor(self: Any, max_workers: int | None = None, *args: Any, **options: Any) -> None:
    """concurrent.futures.ThreadPoolExecutor.__init__."""
    if max_workers is None and threading.get_ident() in here:
        max_workers = _MOST  # not what this machine has processors for
    _new_executor(self, max_workers, *args, **options)


def submit(self: Any, fn: Callable[..., Any], /, *args: Any, **options: Any) -> futures.Future[Any]:
    """concurrent.futures.ThreadPoolExecutor.submit."""
    pool = _pool_here(self)
    if pool is None:
        future: futures.Future[Any] = _submit(self, fn, *args, **options)
        return future
    # Of a pool of processes it is _shutdown_thread.
    if getattr(self, "_shutdown", False) or getattr(self, "_shutdown_thread", False):
        raise RuntimeError("cannot schedule new futures after shutdown")
    return pool.submit(functools.partial(fn, *args, **options))


def submit_of(executor: Any) -> Callable[..., futures.Future[Any]]:
    """How an executor is given a job; that of processes, too, has its jobs in this thread."""
    if type(executor).__module__ == "concurrent.futures.process":
        return functools.partial(submit, executor)
    made: Callable[..., futures.Future[Any]] = executor.submit
    return made


def shutdown(self: Any, wait: bool = True, **options: Any) -> None:
    """concurrent.futures.ThreadPoolExecutor.shutdown."""
    _shutdown(self, wait, **options)
    pool = _pool_here(self)
    if pool is not None:
        if options.get("cancel_futures"):
            pool.cancel()
        if wait:
            pool.wait(lambda: not pool.jobs)


def result(self: Any, timeout: float | None = None) -> Any:
    """concurrent.futures.Future.result."""
    if threading.get_ident() in here and not self.done():
        pool: Pool | None = vars(self).get("_simulated")
        if pool is None:
            raise EscapedSimulation(
                "a job of an executor waits for the loop, which runs in the same thread in a "
                "simulation; let the coroutine that began the job do what it waits for"
            )
        pool.wait(self.done, timeout)
        timeout = 0
    return _result(self, timeout)


# ---- locks, and what waits by them ---------------------------------------------------------------

# Seconds of the host's within which a thread outside of the simulation may end a wait.
PATIENCE = 5.0


def _waits_for_ever() -> None:
    worlds[threading.get_ident()].escaped(
        "the simulation's thread waits for a lock, an event, a condition or a queue of threads, "
        "and jobs and callbacks, which run in the same thread, can't end the wait; let a "
        "coroutine wait, by asyncio.Lock, Event, Condition or Queue, before or instead of the job"
    )


def acquire(self: Any, blocking: bool = True, timeout: float = -1) -> bool:
    """threading.Lock.acquire, by which conditions, events and queues wait, too."""
    waits = blocking and (timeout > 0 or timeout == -1)
    if not waits or threading.get_ident() not in worlds:
        got: bool = _acquire(self, blocking, timeout)
        return got
    if not _acquire(self, True, PATIENCE):
        _waits_for_ever()
    return True


def enter(self: Any) -> bool:
    """threading.Lock.__enter__."""
    if threading.get_ident() in worlds:
        return acquire(self)
    got: bool = _enter(self)
    return got


def get(self: Any, block: bool = True, timeout: float | None = None) -> Any:
    """queue.SimpleQueue.get."""
    waits = block and (timeout is None or timeout > 0)
    if not waits or threading.get_ident() not in worlds:
        return _get(self, block, timeout)
    try:
        return _get(self, True, PATIENCE)
    except queue.Empty:
        _waits_for_ever()


# ---- anyio ---------------------------------------------------------------------------------------


class _Jobs:
    """A worker's queue."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._items: deque[Any] = deque()
        self._thread = Pool(worlds[threading.get_ident()], 1, None)

    def put_nowait(self, item: Any) -> None:
        if item is not None:  # else the worker is to end
            self._thread.submit(functools.partial(self._run, item))

    def _run(self, item: Any) -> None:
        self._items += (item, None)
        self._worker.run()

    def get(self) -> Any:
        return self._items.popleft()

    def task_done(self) -> None:
        """Nobody waits for that."""


def start(self: Any) -> None:
    """threading.Thread.start."""
    is_worker = type(self).__module__ == "anyio._backends._asyncio" and hasattr(self, "queue")
    if is_worker and threading.get_ident() in worlds:
        self.queue = _Jobs(self)
    else:
        _start(self)
