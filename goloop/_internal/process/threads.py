"""goloop.run_threads: a runner and a loop in each of several threads, and who watches over them.

The caller's thread runs no loop.  It waits for calls, which the threads and the signal handlers
leave for it, so everything is decided in one place:

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
from ..tasks.stacks import what_runs
from .mailbox import Calls

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

    With the GIL, threads take turns at running Python, so this brings no more processor time than
    one loop: it is for loops that must not wait for each other.  For more processor time start
    processes.  "Many cores" in the documentation tells which to choose.

    The calling thread runs no loop; it waits for the others.  Each of these begins in a copy of
    the caller's context.  The first exception that leaves a `main` cancels the main tasks of all
    other threads; when these have ended, it is raised, and what else was raised then stands in its
    notes.

    In the main thread, SIGINT and SIGTERM cancel all main tasks, unless the program has handlers
    of its own for them.  When all threads have ended, KeyboardInterrupt or SystemExit(143) is
    raised; if each `main` returns all the same, its results are returned, as asyncio.run() does.
    A second signal raises at once, and leaves the threads as they are.  Since 0.3.0.

    Args:
        main: Called with the index of the thread, from 0 on, in that thread; returns a coroutine.
        threads: How many; None is as many as there are processors that this process may use.
        debug: Whether the loops are in debug mode; None leaves that to `PYTHONASYNCIODEBUG` and
            `-X dev`.
        loop_factory: What makes each loop; None lets asyncio's policy choose.
        shutdown_timeout: How many seconds the threads have to end, once they were cancelled; None
            waits for ever.
        thread_name_prefix: The threads are named by it and their index: `goloop-0`.

    Returns:
        What each coroutine returned, in the order of the indexes.

    Raises:
        RuntimeError: A loop is running in this thread already, or a thread can't be started.
        ValueError: `threads` is less than 1, `shutdown_timeout` is negative or NaN, or
            `main(index)` is no coroutine (a TypeError from Python 3.14 on).
        TypeError: `main` is a coroutine.
        TimeoutError: Threads were cancelled, and have not ended in `shutdown_timeout` seconds.  Its
            text has their indexes and what they run.  They are daemon threads: they end with the
            process.
        KeyboardInterrupt: SIGINT came.
        SystemExit: SIGTERM came; the code is 143.
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
    """How many this process may use."""
    if sys.version_info >= (3, 13):
        return os.process_cpu_count() or 1
    with contextlib.suppress(AttributeError, OSError):  # not every system has it, or permits it
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Worker:
    """One of the threads."""

    def __init__(self, group: _Group, index: int, name: str) -> None:
        context = contextvars.copy_context()
        self.group = group
        self.index = index
        # A daemon, so that one that does not end can't keep the process from ending.
        self.thread = threading.Thread(
            target=context.run, args=(self._run,), name=name, daemon=True
        )
        self.loop: asyncio.AbstractEventLoop | None = None
        self.task: asyncio.Task[Any] | None = None
        self.result: Any = None
        # What left main(index), and then what the end of the runner has raised.
        self.exceptions: list[BaseException] = []

    def _run(self) -> None:
        group = self.group
        try:
            with asyncio.Runner(debug=group.debug, loop_factory=group.loop_factory) as runner:
                try:
                    self._run_main(runner)
                except BaseException as exc:
                    # At once: the end of the runner may take its time.
                    self._failed(exc)
        except BaseException as exc:
            self._failed(exc)
        finally:
            group.calls.add(self._ended)

    def _run_main(self, runner: asyncio.Runner) -> None:
        self.loop = runner.get_loop()
        if self.group.cancelled:
            raise asyncio.CancelledError
        main: Any = self.group.main(self.index)
        # What Runner.run() takes, its own words refuse what it does not.
        if asyncio.iscoroutine(main) or (sys.version_info >= (3, 14) and inspect.isawaitable(main)):
            main = self._awaits(main)
        self.result = runner.run(main)

    async def _awaits(self, main: Any) -> Any:
        self.task = asyncio.current_task()
        # Either this sees that the group is cancelled, or its cancel() sees the task.
        if self.group.cancelled:
            if asyncio.iscoroutine(main):
                main.close()
            raise asyncio.CancelledError
        return await main

    def _failed(self, exc: BaseException) -> None:
        self.exceptions.append(exc)
        self.group.calls.add(self.group.failed, self, exc)

    def _ended(self) -> None:
        self.group.running.discard(self)

    def cancel(self) -> bool:
        """Cancels the main task; False where there is none, or none any more."""
        task = self.task
        if task is None or task.done():
            return False
        try:
            task.get_loop().call_soon_threadsafe(task.cancel)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def __str__(self) -> str:
        return f"{self.thread.name} (index {self.index})"


class _Group:
    """All of the threads; but for `calls`, of the caller's thread alone."""

    def __init__(
        self,
        main: Callable[[int], Coroutine[Any, Any, Any]],
        debug: bool | None,
        loop_factory: _LoopFactory | None,
        shutdown_timeout: float | None,
    ) -> None:
        self.main = main
        self.debug = debug
        self.loop_factory = loop_factory
        self.shutdown_timeout = shutdown_timeout
        self.workers: list[_Worker] = []
        self.running: set[_Worker] = set()
        self.calls = Calls()
        self.cancelled = False
        # Whether there was a main task to be cancelled.
        self.heard = False
        self.deadline: float | None = None
        self.signals: list[int] = []
        self.first: BaseException | None = None
        self.first_worker: _Worker | None = None
        # What else was raised in the caller's thread.
        self.others: list[BaseException] = []
        self.late: TimeoutError | None = None

    # ---- signals

    @contextlib.contextmanager
    def handlers(self) -> Iterator[None]:
        """SIGINT and SIGTERM cancel, where asyncio.Runner would take them, too."""
        ours: list[tuple[int, Any]] = []
        handler = self._on_signal
        if threading.current_thread() is threading.main_thread():
            self.calls.hear_signals()
            defaults: list[tuple[int, Any]] = [
                (signal.SIGINT, signal.default_int_handler),
                (signal.SIGTERM, signal.SIG_DFL),
            ]
            for number, default in defaults:
                # An interpreter that is embedded may have no signals.
                with contextlib.suppress(ValueError):
                    if signal.getsignal(number) is default:
                        signal.signal(number, handler)
                        ours.append((number, default))
        try:
            yield
        finally:
            for number, default in ours:
                if signal.getsignal(number) == handler:
                    signal.signal(number, default)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.signals.append(number)
        if len(self.signals) > 1:
            raise self._of_signal(number)
        self.calls.add(self.cancel)

    def _of_signal(self, number: int) -> BaseException:
        interrupted = number == signal.SIGINT
        exc = KeyboardInterrupt() if interrupted else SystemExit(128 + number)
        if self.running:
            left = ", ".join(map(str, self._still_running()))
            exc.add_note(f"goloop.run_threads() has left running: {left}")
        return exc

    # ---- from the first thread to the last

    def run(self) -> None:
        """Starts the threads, and returns when all have ended."""
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
            # No thread can be started, or a signal handler of the program's has raised.
            if self.late is not None or len(self.signals) > 1:
                raise
            if self.first is None:
                self.first = exc
            else:
                self.others.append(exc)
            self.cancel()
            self._wait()

    def _wait(self) -> None:
        while self.running:
            left = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
            if not self.calls.make(left):
                self.late = self._too_late()
                self._add_notes(self.late)
                raise self.late from self.first
        for worker in self.workers:
            if worker.thread.ident is not None:
                worker.thread.join()

    def cancel(self) -> None:
        """Cancels the main tasks of all threads, those that start meanwhile as well."""
        if self.cancelled:
            return
        if self.shutdown_timeout is not None:
            self.deadline = time.monotonic() + self.shutdown_timeout
        self.cancelled = True
        for worker in self.workers:
            self.heard |= worker.cancel()

    def failed(self, worker: _Worker, exc: BaseException) -> None:
        """An exception has left that worker's main, or its runner's end."""
        if self.cancelled and isinstance(exc, asyncio.CancelledError):
            return
        if self.first is None:
            self.first, self.first_worker = exc, worker
        self.cancel()

    def _still_running(self) -> list[_Worker]:
        return sorted(self.running, key=lambda worker: worker.index)

    def _too_late(self) -> TimeoutError:
        late = self._still_running()
        text = ", ".join(map(str, late))
        return TimeoutError(
            f"cancelled {self.shutdown_timeout} s ago, and still running: {text}\n"
            + "\n".join(f"{each}:\n{what_runs(each.thread, each.loop)}" for each in late)
        )

    # ---- the end

    def results(self) -> list[Any]:
        """What run_threads() returns or raises."""
        if self.first is not None:
            try:
                self._add_notes(self.first)
                raise self.first
            finally:
                # Its traceback has this frame.
                self.first = None
                self.workers.clear()
        # Where no main task could take notice of a signal, it must not be lost.
        unheard = self.signals and not self.heard
        if unheard or any(worker.exceptions for worker in self.workers):
            raise self._of_signal(self.signals[0])
        return [worker.result for worker in self.workers]

    def _add_notes(self, first: BaseException) -> None:
        """Says where the exception comes from, and adds all others."""
        notes = []
        if first is self.first and self.first_worker is not None:
            notes.append(f"in thread {self.first_worker} of goloop.run_threads()")
        for worker in self.workers:
            for exc in worker.exceptions:
                if exc is first or exc is self.first or isinstance(exc, asyncio.CancelledError):
                    continue
                text = "".join(traceback.format_exception(exc)).rstrip()
                notes.append(f"also raised in thread {worker}:\n{text}")
        notes += [
            "also raised:\n" + "".join(traceback.format_exception(exc)).rstrip()
            for exc in self.others
        ]
        for note in notes:
            # Not every class of exceptions can be added to: a frozen dataclass can't.
            with contextlib.suppress(Exception):
                first.add_note(note)
