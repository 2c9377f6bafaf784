"""goloop.run_threads: threads with an asyncio.Runner and a loop each, and their supervisor.

The caller's thread runs no loop. It waits for calls that the threads and the signal handlers
submit to it, so that all decisions are made in one thread:
    thread 0   runner, loop, main(0) ──┐  failed, ended
    thread 1   runner, loop, main(1) ──┼──────────────────► mailbox.py ──► the caller's thread
    SIGINT, SIGTERM ───────────────────┘                                   │
         ▲                                                                 │
         └──────────── cancel every main task (call_soon_threadsafe) ──────┘
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import operator
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator

from ..backend import new_event_loop
from ..coroutine_check import refuse_coroutine
from ..tasks.stacks import format_stacks
from .mailbox import CallQueue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, TypeVar

    _T = TypeVar("_T")
    _LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def run_threads(
    main: Callable[[int], Coroutine[Any, Any, _T]],
    *,
    threads: int | None = None,
    debug: bool | None = None,
    loop_factory: _LoopFactory | None = new_event_loop,
    shutdown_timeout: float | None = 60.0,
    thread_name_prefix: str = "goloop",
) -> list[_T]:
    """Run `main(index)` in several threads, each on an event loop of its own.

    With the GIL only one thread at a time runs Python code, so the threads get no more CPU time
    than one loop: use them for loops that must not wait for each other. For more CPU time start
    processes. "Many cores" in the documentation compares the two.

    The calling thread runs no loop; it waits for the new threads. Each thread begins in a copy of
    the caller's context. The first exception that a `main` raises cancels the main tasks of all
    other threads. When all threads have ended, that exception is raised, and all further exceptions
    are in its notes.

    In the main thread, SIGINT and SIGTERM cancel all main tasks, unless the program has handlers
    for them. When all threads have ended, KeyboardInterrupt or SystemExit(143) is raised; but if
    each `main` returns normally, the results are returned, as with asyncio.run(). A second signal
    raises the exception immediately, and the threads go on. Since 0.3.0.

    Args:
        main: Called in each thread with its index, from 0 on; returns a coroutine.
        threads: The number of threads; None is the number of usable CPUs.
        debug: Debug mode of the loops; None uses `PYTHONASYNCIODEBUG` and `-X dev`.
        loop_factory: Returns a new loop; None uses asyncio's policy.
        shutdown_timeout: Seconds that the threads have to end after they were cancelled; None is
            no limit.
        thread_name_prefix: Prefix of the threads' names; the index follows: `goloop-0`.

    Returns:
        The results of the coroutines, by index.

    Raises:
        RuntimeError: A loop is already running in this thread, or a thread cannot be started.
        ValueError: `threads` is less than 1, `shutdown_timeout` is negative or NaN, or
            `main(index)` is not a coroutine (TypeError from Python 3.14 on).
        TypeError: `main` is a coroutine instead of a function.
        TimeoutError: Threads were cancelled but did not end in `shutdown_timeout` seconds. The
            message has their indexes and stacks. They are daemon threads: they end with the
            process.
        KeyboardInterrupt: SIGINT was received.
        SystemExit: SIGTERM was received; the code is 143.
    """
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("goloop.run_threads() cannot be called from a running event loop")
    refuse_coroutine(main, "goloop.run_threads")
    count = _processors() if threads is None else operator.index(threads)
    if count < 1:
        raise ValueError(f"threads must be at least 1, got {count}")
    if shutdown_timeout is not None and not shutdown_timeout >= 0:  # NaN, too
        raise ValueError(f"shutdown_timeout must be at least 0, got {shutdown_timeout!r}")
    group = _Group(main, debug, loop_factory, shutdown_timeout)
    for index in range(count):
        group.workers.append(_Worker(group, index, f"{thread_name_prefix}-{index}"))
    with group.calls, group.handlers():
        group.run()
    return group.results()


def _processors() -> int:
    """Return the number of CPUs that this process may use."""
    if sys.version_info >= (3, 13):
        return os.process_cpu_count() or 1
    with contextlib.suppress(AttributeError, OSError):  # not on every system, or not permitted
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Worker:
    """A thread of the group, with its loop and its main task."""

    def __init__(self, group: _Group, index: int, name: str) -> None:
        """Create thread `index` of a group, with a copy of the current context; do not start it."""
        context = contextvars.copy_context()
        self.group = group
        self.index = index
        # A daemon thread, so that one that does not end cannot prevent the process's exit.
        self.thread = threading.Thread(
            target=context.run, args=(self._run,), name=name, daemon=True
        )
        self.loop: asyncio.AbstractEventLoop | None = None
        self.task: asyncio.Task[Any] | None = None
        self.result: Any = None
        # Exceptions of main(index), and then of closing the runner.
        self.exceptions: list[BaseException] = []

    def _run(self) -> None:
        """Run the thread's main in a runner; the body of the thread."""
        group = self.group
        try:
            with asyncio.Runner(debug=group.debug, loop_factory=group.loop_factory) as runner:
                try:
                    self._run_main(runner)
                except BaseException as exc:
                    # Reported now, because closing the runner may take long.
                    self._report_failure(exc)
        except BaseException as exc:
            self._report_failure(exc)
        finally:
            group.calls.add(self._record_end)

    def _run_main(self, runner: asyncio.Runner) -> None:
        """Run the coroutine of main(index); CancelledError if the group was cancelled before."""
        self.loop = runner.get_loop()
        if self.group.cancelled:
            raise asyncio.CancelledError
        main: Any = self.group.main(self.index)
        # Only values that Runner.run() accepts are wrapped, so that it raises its own errors.
        if asyncio.iscoroutine(main) or (sys.version_info >= (3, 14) and inspect.isawaitable(main)):
            main = self._await_main(main)
        self.result = runner.run(main)

    async def _await_main(self, main: Any) -> Any:
        """Await `main` and return its result, in a task that cancel() can find.

        Raises CancelledError instead if the group was cancelled before.
        """
        self.task = asyncio.current_task()
        # Either this check sees the cancellation, or cancel() sees the task.
        if self.group.cancelled:
            if asyncio.iscoroutine(main):
                main.close()
            raise asyncio.CancelledError
        return await main

    def _report_failure(self, exc: BaseException) -> None:
        """Store an exception of this thread, and report it to the caller's thread."""
        self.exceptions.append(exc)
        self.group.calls.add(self.group.cancel_after_failure, self, exc)

    def _record_end(self) -> None:
        """Record the end of this thread; called in the caller's thread."""
        self.group.running.discard(self)

    def cancel(self) -> bool:
        """Cancel the main task; return false if it does not exist yet or has ended."""
        task = self.task
        if task is None or task.done():
            return False
        try:
            task.get_loop().call_soon_threadsafe(task.cancel)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def __str__(self) -> str:
        """Return the thread's name and index, for notes and errors."""
        return f"{self.thread.name} (index {self.index})"


class _Group:
    """The supervisor of all threads; used by the caller's thread, except `calls`."""

    def __init__(
        self,
        main: Callable[[int], Coroutine[Any, Any, Any]],
        debug: bool | None,
        loop_factory: _LoopFactory | None,
        shutdown_timeout: float | None,
    ) -> None:
        """Store the arguments of run_threads(); the caller adds the workers."""
        self.main = main
        self.debug = debug
        self.loop_factory = loop_factory
        self.shutdown_timeout = shutdown_timeout
        self.workers: list[_Worker] = []
        self.running: set[_Worker] = set()
        self.calls = CallQueue()
        self.cancelled = False
        # True if a main task was cancelled, so that it could react to a signal.
        self.main_task_cancelled = False
        self.deadline: float | None = None
        self.signals: list[int] = []
        self.first_exception: BaseException | None = None
        self.first_failed_worker: _Worker | None = None
        # Further exceptions of the caller's thread.
        self.other_exceptions: list[BaseException] = []
        self.late: TimeoutError | None = None

    # ---- signals

    @contextlib.contextmanager
    def handlers(self) -> Iterator[None]:
        """Install handlers of SIGINT and SIGTERM for the block, in the main thread only.

        As in asyncio.Runner a handler is installed only if the signal has its default handler, and
        removed only if the program has not replaced it meanwhile.
        """
        installed: list[tuple[int, Any]] = []
        handler = self._on_signal
        if threading.current_thread() is threading.main_thread():
            self.calls.wake_on_signals()
            defaults: list[tuple[int, Any]] = [
                (signal.SIGINT, signal.default_int_handler),
                (signal.SIGTERM, signal.SIG_DFL),
            ]
            for number, default in defaults:
                # An embedded interpreter may have no signals.
                with contextlib.suppress(ValueError):
                    if signal.getsignal(number) is default:
                        signal.signal(number, handler)
                        installed.append((number, default))
        try:
            yield
        finally:
            for number, default in installed:
                if signal.getsignal(number) == handler:
                    signal.signal(number, default)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Cancel all threads at the first signal; raise at the second."""
        self.signals.append(number)
        if len(self.signals) > 1:
            raise self._signal_exception(number)
        self.calls.add(self.cancel)

    def _signal_exception(self, number: int) -> BaseException:
        """Return the exception for a signal, with a note about the threads that still run."""
        interrupted = number == signal.SIGINT
        exc = KeyboardInterrupt() if interrupted else SystemExit(128 + number)
        if self.running:
            left = ", ".join(map(str, self._still_running()))
            exc.add_note(f"these threads of goloop.run_threads() were still running: {left}")
        return exc

    # ---- from the first thread to the last

    def run(self) -> None:
        """Start the threads, and return when all have ended; results() raises their exceptions.

        An exception in the caller's thread cancels all threads, and is stored for results(), too.
        Raises TimeoutError if cancelled threads do not end in time, and the exception of a second
        signal.
        """
        try:
            for worker in self.workers:
                self.running.add(worker)
                try:
                    worker.thread.start()
                except BaseException:
                    self.running.discard(worker)
                    raise
            self._wait()
        except BaseException as exc:
            # A thread cannot be started, or a signal handler of the program has raised.
            if self.late is not None or len(self.signals) > 1:
                raise
            if self.first_exception is None:
                self.first_exception = exc
            else:
                self.other_exceptions.append(exc)
            self.cancel()
            self._wait()

    def _wait(self) -> None:
        """Make submitted calls until all threads have ended, and join the threads.

        Raises TimeoutError if threads still run at `deadline`.
        """
        while self.running:
            left = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
            if not self.calls.make_calls(left):
                self.late = self._timeout_error()
                self._add_notes(self.late)
                raise self.late from self.first_exception
        for worker in self.workers:
            if worker.thread.ident is not None:
                worker.thread.join()

    def cancel(self) -> None:
        """Cancel the main tasks of all threads, also of threads that are just starting.

        Only the first call has an effect; it also starts the shutdown timeout.
        """
        if self.cancelled:
            return
        if self.shutdown_timeout is not None:
            self.deadline = time.monotonic() + self.shutdown_timeout
        self.cancelled = True
        for worker in self.workers:
            self.main_task_cancelled |= worker.cancel()

    def cancel_after_failure(self, worker: _Worker, exc: BaseException) -> None:
        """Cancel all threads because of an exception of a thread's main or of closing its runner.

        The first exception is stored for results(). A CancelledError after a cancellation is
        ignored.
        """
        if self.cancelled and isinstance(exc, asyncio.CancelledError):
            return
        if self.first_exception is None:
            self.first_exception, self.first_failed_worker = exc, worker
        self.cancel()

    def _still_running(self) -> list[_Worker]:
        """Return the threads that have not ended, by index."""
        return sorted(self.running, key=lambda worker: worker.index)

    def _timeout_error(self) -> TimeoutError:
        """Return the error about threads that run on, with their stacks."""
        late = self._still_running()
        text = ", ".join(map(str, late))
        return TimeoutError(
            f"threads that still run {self.shutdown_timeout} s after their cancellation: {text}\n"
            + "\n".join(f"{each}:\n{format_stacks(each.thread, each.loop)}" for each in late)
        )

    # ---- the end

    def results(self) -> list[Any]:
        """Return the results of all threads, or raise the first exception.

        Without an exception of a thread, a signal is raised that no main task has handled.
        """
        if self.first_exception is not None:
            try:
                self._add_notes(self.first_exception)
                raise self.first_exception
            finally:
                # The exception's traceback refers to this frame: avoid a reference cycle.
                self.first_exception = None
                self.workers.clear()
        # If no main task was running to be cancelled by the signal, it must be raised here.
        unhandled = self.signals and not self.main_task_cancelled
        if unhandled or any(worker.exceptions for worker in self.workers):
            raise self._signal_exception(self.signals[0])
        return [worker.result for worker in self.workers]

    def _add_notes(self, exception: BaseException) -> None:
        """Add notes to the exception that run_threads() will raise.

        For `self.first_exception`: the thread that raised it, if it was a thread. In all cases: the
        other exceptions, without CancelledErrors of threads and without `self.first_exception`
        (which is the cause of a timeout error). A note that the exception rejects is skipped.
        """
        notes = []
        if exception is self.first_exception and self.first_failed_worker is not None:
            notes.append(f"in thread {self.first_failed_worker} of goloop.run_threads()")
        for worker in self.workers:
            for exc in worker.exceptions:
                if (
                    exc is exception
                    or exc is self.first_exception
                    or isinstance(exc, asyncio.CancelledError)
                ):
                    continue
                text = "".join(traceback.format_exception(exc)).rstrip()
                notes.append(f"also raised in thread {worker}:\n{text}")
        notes += [
            "also raised:\n" + "".join(traceback.format_exception(exc)).rstrip()
            for exc in self.other_exceptions
        ]
        for note in notes:
            # Some exception classes reject attributes, such as frozen dataclasses.
            with contextlib.suppress(Exception):
                exception.add_note(note)
