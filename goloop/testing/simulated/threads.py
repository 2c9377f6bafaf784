"""Simulated threads of executors and of anyio's workers, which run in the simulation's thread.

There is only one thread.  So while a job blocks on a lock, or on an object made of locks, no other
code of the simulation can run and release it.

A job runs alone, at a time that the seed chooses; its sleeps do not delay the loop.  An executor
starts jobs in the order of submission, and runs as many at once as it has threads.

A worker of anyio takes jobs from its queue and passes each result to the loop's thread.  Here
`start()` starts no thread: an item of the queue becomes a job of a simulated thread, which runs the
worker's loop for one job.  Starlette and FastAPI run plain functions in these workers.

The functions named "Replacement of" are installed by patches.py.  Each has the parameters and the
result of its original, and calls the original outside of a simulation's thread.
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
from .kernel import current_host_run, kernel_of_thread, session_of_thread

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
# Default number of threads of an executor: the largest default of ThreadPoolExecutor.
_MOST = 32
_BROKEN = "A thread initializer failed, the thread pool is not usable anymore"


# ---- executors -----------------------------------------------------------------------------------


class _Job:
    """A function submitted to an executor.  A job that a thread has taken can't be cancelled."""

    __slots__ = ("call", "context", "delay", "future", "is_taken")

    def __init__(self, call: Callable[[], Any], delay: float) -> None:
        """Store the function; it starts `delay` seconds after a thread has taken it."""
        self.call, self.delay = call, delay
        self.context = _context()
        self.future: futures.Future[Any] = futures.Future()
        self.is_taken: bool | None = None  # None: not yet; False: the job was cancelled before


class _Step:
    """The scheduled next action of a thread; the pool lists it until it runs."""

    __slots__ = ("args", "context", "handle", "pool", "step")
    handle: asyncio.TimerHandle

    def __init__(self, pool: Pool, context: contextvars.Context, step: Any, args: Any) -> None:
        """Store the action `step(*args)` and its context."""
        self.pool, self.context, self.step, self.args = pool, context, step, args

    def __call__(self) -> None:
        """Run the action, unless the pool has dropped it."""
        if self in self.pool.steps:
            self.pool.steps.remove(self)
            self.step(*self.args)


class Pool:
    """The simulated threads of an executor or of an anyio worker."""

    def __init__(
        self, session: Any, max_threads: int, initialize: Callable[[], object] | None
    ) -> None:
        """Create the pool; each thread calls `initialize()` first, if it is not None."""
        self._session, self._max_threads, self._initialize = session, max_threads, initialize
        self._threads_started = self._threads_idle = 0
        self._queue: deque[_Job] = deque()  # jobs that wait for a thread
        self._assigned: deque[_Job] = deque()  # jobs with a thread that has not taken them yet
        self._waiting: list[asyncio.Future[None]] = []
        self.steps: list[_Step] = []
        self.jobs = 0  # unfinished jobs
        self.is_broken = False

    def submit(self, call: Callable[[], Any]) -> futures.Future[Any]:
        """Submit a job; return its future.  BrokenThreadPool if an initializer has failed."""
        if self.is_broken:
            raise BrokenThreadPool(_BROKEN)
        job = _Job(call, self._session.executor_delay())
        job.future._simulated = self  # type: ignore[attr-defined]
        self.jobs += 1
        self._queue.append(job)
        if self._threads_idle:
            self._threads_idle -= 1
            self._take_next_job()
        elif self._threads_started < self._max_threads:
            self._threads_started += 1
            if self._initialize is None:
                self._take_next_job()
            else:
                self._schedule_step(self._session.executor_delay(), _context(), self._start_thread)
        return job.future

    def cancel(self) -> None:
        """Cancel all jobs that no thread has taken."""
        for job in (*self._queue, *self._assigned):
            job.future.cancel()

    def when_done(self, future: asyncio.Future[None]) -> None:
        """Set the future's result when all jobs are done."""
        self._waiting.append(future)
        self._notify_waiters()

    def wait(self, is_over: Callable[[], bool], timeout: float | None = None) -> None:
        """Advance virtual time and run this pool's threads until `is_over()` or the timeout.

        `timeout` is in seconds of virtual time; the caller cannot see which of the two has ended
        the wait.
        EscapedSimulation if no thread has an action left, so that the wait would never end.
        """
        session = self._session
        end = None if timeout is None else session.monotonic_ns() + round(timeout * 1e9)
        while not is_over():
            if not self.steps:
                session.raise_escape(
                    "a job waits for another job or the shutdown of its own executor, and the wait "
                    "would never end; wait in a coroutine, or use another executor"
                )
            step = min(self.steps, key=lambda each: each.handle.when())
            at = max(round(step.handle.when() * 1e9), now := session.monotonic_ns())
            if end is not None and at > end:
                session.sleep(max(0, end - now) / 1e9)
                return
            session.sleep((at - now) / 1e9)
            step.handle.cancel()
            step.context.run(step)

    def _schedule_step(
        self, delay: float, context: contextvars.Context, step: Any, *args: Any
    ) -> None:
        """Schedule the next action of a thread, after the time that the current job slept."""
        made = _Step(self, context, step, args)
        self.steps.append(made)
        delay += self._session.job_slept()
        made.handle = self._session.loop.call_later(delay, made, context=context)

    def _start_thread(self) -> None:
        """Run the initializer of a new thread, and schedule _thread_started()."""
        assert self._initialize is not None
        _, failed, slept = self._run(self._initialize)
        self._schedule_step(slept, _context(), self._thread_started, failed)

    def _thread_started(self, failed: BaseException | None) -> None:
        """Take the first job, or break the pool if the initializer has failed.

        All jobs of a broken pool get BrokenThreadPool, and the exception is logged.
        """
        if failed is None:
            self._take_next_job()
            return
        _LOGGER.critical("Exception in initializer:", exc_info=failed)
        self.is_broken = True
        for job in [*self._assigned, *self._queue]:
            self._mark_taken(job)
            if job.is_taken:
                job.is_taken = False
                job.future.set_exception(BrokenThreadPool(_BROKEN))
        self._assigned.clear()
        self.jobs -= len(self._queue)  # jobs with a thread are finished in _run_job()
        self._queue.clear()
        self._notify_waiters()

    def _take_next_job(self) -> None:
        """Assign the next job to a free thread, or count the thread as idle."""
        if self._queue:
            job = self._queue.popleft()
            self._assigned.append(job)
            self._schedule_step(job.delay, job.context, self._run_job, job)
        else:
            self._threads_idle += 1

    def _mark_taken(self, job: _Job) -> None:
        """Mark a job as taken, unless it was cancelled before."""
        if job.is_taken is None:
            job.is_taken = job.future.set_running_or_notify_cancel()

    def _run_job(self, job: _Job) -> None:
        """Run a job and schedule _finish_job(), or skip the job if it was cancelled."""
        while job.is_taken is None:  # earlier jobs are taken first
            self._mark_taken(self._assigned.popleft())
        if job.is_taken:
            result, failed, slept = self._run(job.call)
            self._schedule_step(slept, job.context, self._finish_job, job, result, failed)
        else:
            self._job_done()

    def _run(self, call: Callable[[], Any]) -> tuple[Any, BaseException | None, float]:
        """Call a function as in a thread; return its result, its exception or None, its sleep time.

        Only KeyboardInterrupt is raised.  EscapedSimulation is also recorded in the session.
        """
        session, result = self._session, None
        failed: BaseException | None = None
        running = events._get_running_loop()
        events._set_running_loop(None)
        before = session.enter_job()
        try:
            result = call()
        except KeyboardInterrupt:
            raise  # belongs to the caller of the simulation
        except EscapedSimulation as exc:
            failed = exc
            session.record_escape(exc)
        except BaseException as exc:
            failed = exc
        finally:
            slept = session.leave_job(before)
            events._set_running_loop(running)
        return result, failed, slept

    def _finish_job(self, job: _Job, result: Any, failed: BaseException | None) -> None:
        """Set the result of a job's future, after its sleep time, and finish the job."""
        if failed is None:
            job.future.set_result(result)
        else:
            job.future.set_exception(failed)
        self._job_done()

    def _job_done(self) -> None:
        """Count the end of a job, give its thread the next one, and notify the waiters."""
        self.jobs -= 1
        self._take_next_job()
        self._notify_waiters()

    def _notify_waiters(self) -> None:
        """Set the futures of when_done() if all jobs are done."""
        while self._waiting and not self.jobs:
            future = self._waiting.pop()
            if not future.done():
                future.set_result(None)


def _context() -> contextvars.Context:
    """Return a new context of the current host, as a new thread has it."""
    context = contextvars.Context()
    context.run(current_host_run.set, current_host_run.get())
    return context


class HostExecutors:
    """The executors of one host run; their jobs end with the host."""

    def __init__(self) -> None:
        """Create the set without executors."""
        self.default: Any = None
        self.is_shut = False
        self._pools: weakref.WeakKeyDictionary[Any, Pool] = weakref.WeakKeyDictionary()

    def get_default(self) -> Any:
        """Return the default executor; make it on first use, as asyncio does.

        RuntimeError after the executor was shut down.
        """
        if self.is_shut:
            raise RuntimeError("Executor shutdown has been called")
        if self.default is None:
            self.default = _Executor(_MOST, thread_name_prefix="asyncio")
        return self.default

    def has_jobs(self) -> bool:
        """Return true if the default executor has unfinished jobs."""
        return self.default is not None and self.pool_of(self.default).jobs > 0

    def pool_of(self, executor: Any) -> Pool:
        """Return the simulated threads of an executor."""
        pool = self._pools.get(executor)
        if pool is None:
            session = session_of_thread[threading.get_ident()]
            pool = self._pools[executor] = Pool(
                session, executor._max_workers, _initializer(executor)
            )
        return pool


def _initializer(executor: Any) -> Callable[[], object] | None:
    """Return the initializer of an executor's threads; from 3.14 on a closure contains it."""
    make = getattr(executor, "_create_worker_context", None)
    of = executor if make is None else make()
    names = ("_initializer", "_initargs") if make is None else ("initializer", "initargs")
    call, args = (getattr(of, name, None) for name in names)
    return None if call is None else functools.partial(call, *(args or ()))


def _simulated_pool(executor: Any) -> Pool | None:
    """Return the simulated threads of an executor; None outside of a simulation."""
    session = session_of_thread.get(threading.get_ident())
    if session is None or session.loop is None:
        return None
    pool: Pool = session.loop._executors().pool_of(executor)
    return pool


def new_executor(self: Any, max_workers: int | None = None, *args: Any, **options: Any) -> None:
    """Replacement of ThreadPoolExecutor.__init__: in a simulation the default is _MOST threads."""
    if max_workers is None and threading.get_ident() in kernel_of_thread:
        max_workers = _MOST  # independent of the number of processors
    _new_executor(self, max_workers, *args, **options)


def submit(self: Any, fn: Callable[..., Any], /, *args: Any, **options: Any) -> futures.Future[Any]:
    """Replacement of ThreadPoolExecutor.submit: the job runs in a simulated thread.

    RuntimeError after shutdown(), also BrokenThreadPool after a failed initializer.
    """
    pool = _simulated_pool(self)
    if pool is None:
        future: futures.Future[Any] = _submit(self, fn, *args, **options)
        return future
    # The attribute of ProcessPoolExecutor is _shutdown_thread.
    if getattr(self, "_shutdown", False) or getattr(self, "_shutdown_thread", False):
        raise RuntimeError("cannot schedule new futures after shutdown")
    return pool.submit(functools.partial(fn, *args, **options))


def submit_of(executor: Any) -> Callable[..., futures.Future[Any]]:
    """Return the function that submits a job to an executor.

    A ProcessPoolExecutor's jobs run in simulated threads, too, so this is submit() for it.
    """
    if type(executor).__module__ == "concurrent.futures.process":
        return functools.partial(submit, executor)
    made: Callable[..., futures.Future[Any]] = executor.submit
    return made


def shutdown(self: Any, wait: bool = True, **options: Any) -> None:
    """Replacement of ThreadPoolExecutor.shutdown: the wait for the jobs takes virtual time.

    With `cancel_futures` the jobs that no thread has taken are cancelled first.
    """
    _shutdown(self, wait, **options)
    pool = _simulated_pool(self)
    if pool is not None:
        if options.get("cancel_futures"):
            pool.cancel()
        if wait:
            pool.wait(lambda: not pool.jobs)


def result(self: Any, timeout: float | None = None) -> Any:
    """Replacement of concurrent.futures.Future.result: run simulated threads until it is done.

    `timeout` is in seconds of virtual time; TimeoutError after it. EscapedSimulation for a future
    that no simulated thread can set.
    """
    if threading.get_ident() in kernel_of_thread and not self.done():
        pool: Pool | None = vars(self).get("_simulated")
        if pool is None:
            raise EscapedSimulation(
                "a job of an executor waits for the loop, which runs in the same thread in a "
                "simulation; do the waiting in the coroutine that submitted the job"
            )
        pool.wait(self.done, timeout)
        timeout = 0
    return _result(self, timeout)


# ---- locks and queues of threads ---------------------------------------------------------------

# Real seconds for which a wait may last until a thread outside of the simulation ends it.
PATIENCE = 5.0


def _raise_endless_wait() -> None:
    """Raise EscapedSimulation: the simulation's thread waits for a lock that no code releases."""
    session_of_thread[threading.get_ident()].raise_escape(
        "the simulation's thread waits for a lock, an event, a condition or a queue of threads, "
        "and jobs and callbacks, which run in the same thread, can't end the wait; let a "
        "coroutine wait, with asyncio.Lock, Event, Condition or Queue, before or instead of the job"
    )


def acquire(self: Any, blocking: bool = True, timeout: float = -1) -> bool:
    """Replacement of threading.Lock.acquire, which conditions, events and queues call, too.

    In a simulation every wait, also one with a timeout, lasts up to PATIENCE real seconds, in which
    a real thread may release the lock; then EscapedSimulation is raised.
    """
    waits = blocking and (timeout > 0 or timeout == -1)
    if not waits or threading.get_ident() not in session_of_thread:
        got: bool = _acquire(self, blocking, timeout)
        return got
    if not _acquire(self, True, PATIENCE):
        _raise_endless_wait()
    return True


def enter(self: Any) -> bool:
    """Replacement of threading.Lock.__enter__: acquire the lock as acquire() does."""
    if threading.get_ident() in session_of_thread:
        return acquire(self)
    got: bool = _enter(self)
    return got


def get(self: Any, block: bool = True, timeout: float | None = None) -> Any:
    """Replacement of queue.SimpleQueue.get: a wait lasts as long as in acquire()."""
    waits = block and (timeout is None or timeout > 0)
    if not waits or threading.get_ident() not in session_of_thread:
        return _get(self, block, timeout)
    try:
        return _get(self, True, PATIENCE)
    except queue.Empty:
        _raise_endless_wait()


# ---- anyio ---------------------------------------------------------------------------------------


class _WorkerQueue:
    """The queue of an anyio worker; an item becomes a job of a simulated thread."""

    def __init__(self, worker: Any) -> None:
        """Create the queue of an anyio worker, with a simulated thread."""
        self._worker = worker
        self._items: deque[Any] = deque()
        self._thread = Pool(session_of_thread[threading.get_ident()], 1, None)

    def put_nowait(self, item: Any) -> None:
        """Submit an item as a job; None, which ends a real worker, is ignored."""
        if item is not None:  # None ends the worker
            self._thread.submit(functools.partial(self._run, item))

    def _run(self, item: Any) -> None:
        """Run the worker's loop for one item: the None after it ends that loop."""
        self._items += (item, None)
        self._worker.run()

    def get(self) -> Any:
        """Return the next item to the worker's loop."""
        return self._items.popleft()

    def task_done(self) -> None:
        """Do nothing: no code waits for it."""


def start(self: Any) -> None:
    """Replacement of threading.Thread.start.

    An anyio worker of a simulation gets a queue whose items become simulated jobs, and no thread.
    Every other thread starts as usual.
    """
    is_worker = type(self).__module__ == "anyio._backends._asyncio" and hasattr(self, "queue")
    if is_worker and threading.get_ident() in session_of_thread:
        self.queue = _WorkerQueue(self)
    else:
        _start(self)
