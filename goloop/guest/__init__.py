"""Guest mode: runs an asyncio loop within another event loop, the host loop.

The host loop belongs to a GUI or a game, or is any thread that calls functions from a queue.
Iterations of the asyncio loop run in the host's thread, scheduled by the host loop. Between two of
them another thread polls in Go code, which needs no GIL, so that the host's thread is free.

      host's thread                         the polling thread
      iterations, until nothing is ready ->
      the host's own events                 Go waits for sockets and timers, and receives
                                         <- schedules the next iterations in the host loop

`goloop.guest.qt` and `goloop.guest.tk` are for Qt and Tk; `start` is for any other host loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import os
import queue
import signal
import sys
import threading
from asyncio.log import logger
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Generic, TypeVar

from .._internal.backend import native, new_event_loop
from .._internal.helper_threads import HelperThread

if native:
    from .._core import _thread_number

__all__ = ("Guest", "current", "start")

_T = TypeVar("_T")
_Post = Callable[[Callable[[], object]], object]
_events: Any = asyncio


def start(
    main: Coroutine[Any, Any, _T],
    *,
    run_sync_soon_threadsafe: Callable[[Callable[[], object]], object],
    run_sync_soon_not_threadsafe: Callable[[Callable[[], object]], object] | None = None,
    done_callback: Callable[[concurrent.futures.Future[_T]], object] | None = None,
    debug: bool | None = None,
    context: contextvars.Context | None = None,
    time_share: float = 0.005,
) -> Guest[_T]:
    """Begin to run a coroutine on a new goloop loop, within the loop of this thread.

    The call returns immediately; the host loop then runs the iterations. After the end of `main`
    the steps are those of `goloop.run()`: remaining tasks are cancelled, asynchronous generators
    and the default executor are shut down, and the loop is closed. In the main thread Ctrl-C
    cancels `main`, as in `goloop.run()`, unless the program handles SIGINT itself. Since 0.3.0.

    Args:
        main: The coroutine.
        run_sync_soon_threadsafe: Schedules a call of a function without arguments in the host loop;
            may be called in any thread.
        run_sync_soon_not_threadsafe: Schedules such a call, too, but is only called in this
            thread; by default `run_sync_soon_threadsafe`.
        done_callback: Called in the host's thread with `Guest.outcome` when the loop is closed.
        debug: Debug mode of the loop; None uses `PYTHONASYNCIODEBUG` and `-X dev`.
        context: The context of `main`; by default a copy of the current one.
        time_share: Seconds after which a busy loop returns to the host loop.

    Returns:
        The run.

    Raises:
        TypeError: `main` is not a coroutine.
        ImportError: The Go library cannot be opened; the message has the reason.
        RuntimeError: goloop's own loop is not available (`goloop.native` is False).
    """
    if not asyncio.iscoroutine(main):
        raise TypeError(f"a coroutine was expected, got {main!r}")
    if not native:
        main.close()
        raise RuntimeError(
            "guest mode needs goloop's own loop, and this Python runs asyncio's; "
            "goloop.diagnostics()['reason'] has the cause"
        )
    guest = Guest(main, debug, context)
    guest._time_share, guest._done = time_share, done_callback
    guest._post = run_sync_soon_threadsafe
    guest._post_here = run_sync_soon_not_threadsafe or run_sync_soon_threadsafe
    guest._begin()
    return guest


def current() -> Guest[Any]:
    """Return the guest run of this thread, for example in a handler of a button.

    Within an iteration it is the run of the running loop; in callbacks of the host loop it is the
    run of the thread. Since 0.3.0.

    Raises:
        RuntimeError: No guest run has begun in this thread and not ended; or several have, and the
            call is in none of their iterations. Keep what `start()` has returned in that case.
    """
    running = _events._get_running_loop()
    guests = [guest for guest in list(_runs) if guest._host == _thread_number()]
    for guest in guests:
        if guest._loop is running:
            return guest
    if len(guests) == 1:
        return guests[0]
    if not guests:
        raise RuntimeError(
            "no guest run is active in this thread: call goloop.guest.start(), or the run() of "
            "goloop.guest.qt or goloop.guest.tk, before goloop.guest.current()"
        )
    raise RuntimeError(
        f"this thread has {len(guests)} guest runs, so goloop.guest.current() cannot choose one: "
        "use the Guest object that goloop.guest.start() returned"
    )


class Guest(Generic[_T]):
    """A run in guest mode, returned by `start()`. Since 0.3.0."""

    loop: asyncio.AbstractEventLoop
    """The loop. Callbacks of the host loop may use it and its objects, too, because they run in the
    same thread, between iterations. In these callbacks asyncio's functions find no running loop:
    use `goloop.guest.current().loop.create_task()` instead of `asyncio.create_task()`."""

    outcome: concurrent.futures.Future[_T]
    """The result or exception of `main`, set when the loop is closed. This future cannot be
    cancelled, not even by cancelling code that waits for it; `Guest.cancel()` cancels `main`."""

    _post: _Post
    _post_here: _Post
    _done: Callable[[concurrent.futures.Future[_T]], object] | None
    _time_share: float

    def __init__(
        self,
        main: Coroutine[Any, Any, _T],
        debug: bool | None = None,
        context: contextvars.Context | None = None,
    ) -> None:
        """Create the loop and the main task; the polling thread is not started yet."""
        self.outcome = concurrent.futures.Future()
        self.outcome.set_running_or_notify_cancel()
        self._loop: Any = new_event_loop()
        self.loop = self._loop
        if debug is not None:
            self._loop.set_debug(debug)
        self._all_done = self._loop.create_future()
        self._all_done.add_done_callback(lambda _: self._loop.stop())
        self._main: asyncio.Task[_T] = self._loop.create_task(main, context=context)
        self._main.add_done_callback(self._on_main_done)
        self._iterating = self._finishing = self._ended = self._abandoned = False
        # The exception of an iteration, and the exception of a poll.
        self._failure: BaseException | None = None
        self._poll_failure: BaseException | None = None
        self._interrupts = 0
        # Requests to the polling thread: True is a poll, False ends the thread.
        self._polls: queue.SimpleQueue[bool] = queue.SimpleQueue()
        # The number of the host's thread: its identity, threading.get_ident(), is given to another
        # thread after its end.
        self._host = 0
        # A daemon thread, so that a host that ends without finish() does not block the exit.
        self._thread = HelperThread("goloop-guest", self._poll)

    def cancel(self) -> None:
        """Cancel `main`; may be called in any thread before the loop is closed.

        The host loop then runs `main` to its end, including its clean-up.
        """
        self._loop.call_soon_threadsafe(self._main.cancel)

    def finish(self) -> _T:
        """Cancel `main` and run the loop to its end immediately, without the host loop.

        Call it if the host loop has ended first, for example because a window was closed, in the
        host's thread and not within an iteration. If the host loop is an asyncio loop, one of its
        coroutines may call it; the host loop is blocked meanwhile. If the run has ended already,
        finish() only returns the outcome.

        Returns:
            The result of `main`.

        Raises:
            CancelledError: `main` was cancelled; or any other exception of `main`.
            RuntimeError: Called in another thread, or within an iteration.
        """
        if not self._ended:
            if self._iterating or _thread_number() != self._host:
                raise RuntimeError(
                    "finish() must be called in the host's thread, between two iterations"
                )
            self._finishing = True
            self._main.cancel()
            self._end_thread()
            while not self._ended:
                self._tick()
        return self.outcome.result()

    def _finish_after(self, host: Callable[[], object]) -> _T:
        """Run the host loop by `host()`, then finish(); return the result of `main`.

        An exception of `host()` is raised after finish(), whose own result is then dropped.
        """
        try:
            host()
        except BaseException:
            with contextlib.suppress(BaseException):
                self.finish()
            raise
        return self.finish()

    # ---- in the host's thread --------------------------------------------------------

    def _begin(self) -> None:
        """Bind the loop to this thread, start the polling thread, and schedule the first tick.

        If that fails, `main` is run to its end, cancelled, and the exception is raised.
        """
        loop = self._loop
        loop._hosted, loop._thread_id = True, threading.get_ident()
        self._host = _thread_number()
        _runs.append(self)
        _runs_of_thread.add(self)
        try:
            loop._arm_wakeup()
            self._catch_interrupts()
            self._thread.begin(self._stop_polling)
            self._post_here(self._tick)
        except BaseException:
            self._abort_start()
            raise

    def _abort_start(self) -> None:
        """Cancel `main`, run the loop to its end in this thread, and close it."""
        self._finishing = True
        try:
            if self._thread.is_alive():
                self._end_thread()
            self._main.cancel()
            while (busy := self._iterate()) is not None:
                if not busy:
                    self._loop._poll()
        finally:
            self._close_loop()

    def _tick(self) -> None:
        """Run iterations while callbacks are ready and time is left; the host loop calls this.

        Afterwards it schedules itself in the host loop, has the other thread poll, or ends the
        run. finish() calls it, too; then it polls in this thread and schedules nothing. Does
        nothing within an iteration or after the end.
        """
        if self._ended or self._iterating:  # _iterating: the iteration has run the host loop
            return
        self._iterating = True
        busy: bool | None = True
        try:
            busy = self._iterate()
            if busy is False and self._finishing:
                self._loop._poll()
        except BaseException as exc:
            self._on_exception(exc)
        finally:
            self._iterating = False
        if self._ended:
            return
        if busy is None:
            self._on_stop()
        elif self._finishing:
            pass  # finish() calls _tick() again
        elif busy:
            self._post_here(self._tick)
        else:
            self._polls.put(True)

    def _iterate(self) -> bool | None:
        """Run iterations for `_time_share` seconds, as the running loop of this thread.

        Returns true if callbacks are ready, false if the loop must poll next, None if it was
        stopped. Raises exceptions of iterations, and an exception of the polling thread.
        """
        loop: Any = self._loop
        until = loop.time() + self._time_share
        host, hooks = _events._get_running_loop(), sys.get_asyncgen_hooks()
        # The caller may be a task of the host loop; since 3.14 a thread has one current task.
        task = None if host is None else asyncio.current_task(host)
        try:
            if task is not None:
                _events.tasks._leave_task(host, task)
            loop._cpu_time.begin()
            loop._set_coroutine_origin_tracking(loop._debug)
            sys.set_asyncgen_hooks(loop._asyncgen_firstiter_hook, loop._asyncgen_finalizer_hook)
            _events._set_running_loop(loop)
            if self._poll_failure is not None:
                loop.stop()
                loop._run()
                raise self._poll_failure
            busy: bool | None = loop._run()
            while busy and loop.time() < until:
                busy = loop._run()
        finally:
            _events._set_running_loop(host)
            if task is not None:
                _events.tasks._enter_task(host, task)
            sys.set_asyncgen_hooks(*hooks)
            loop._set_coroutine_origin_tracking(False)
            loop._cpu_time.end()
        return busy

    def _on_stop(self) -> None:
        """End the run, or report that the loop was stopped before `main` ended."""
        if self._all_done.done():
            self._end()
            return
        self._on_exception(RuntimeError("Event loop stopped before Future completed."))
        if not self._ended and not self._finishing:
            self._post_here(self._tick)

    def _on_exception(self, exc: BaseException) -> None:
        """Handle an exception of an iteration: cancel `main`; at the second one end the run."""
        again = self._failure is not None
        self._failure = self._failure or exc
        self._poll_failure = None
        self._main.cancel()
        if self._loop._handshakes is not None:
            self._loop._handshakes.begin(self._loop)
        if again:
            self._end()

    def _on_main_done(self, main: asyncio.Task[_T]) -> None:
        """Start the steps that follow the end of `main`."""
        # Not by create_task(): the run must end even if the program's task factory fails.
        shut_down = asyncio.Task(self._shut_down(), loop=self._loop)
        shut_down.add_done_callback(lambda _: self._all_done.set_result(None))

    async def _shut_down(self) -> None:
        """Do the steps of asyncio.run after its coroutine.

        Cancel all other tasks and wait for them, report their exceptions, and shut down
        asynchronous generators and the default executor.
        """
        loop = self._loop
        tasks = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled() and task.exception() is not None:
                loop.call_exception_handler(
                    {
                        "message": "unhandled exception during the end of a guest run",
                        "exception": task.exception(),
                        "task": task,
                    }
                )
        await loop.shutdown_asyncgens()
        await loop.shutdown_default_executor()

    def _end(self) -> None:
        """Close the loop, set the outcome, and call the done callback.

        The outcome is an exception of an iteration or a poll, or else the outcome of `main`;
        KeyboardInterrupt if SIGINT has cancelled it.
        """
        self._close_loop()
        outcome, main = self.outcome, self._main
        if self._failure is not None:
            outcome.set_exception(self._failure)
        elif main.cancelled():
            interrupted = self._interrupts > 0 and main.uncancel() == 0
            outcome.set_exception(KeyboardInterrupt() if interrupted else asyncio.CancelledError())
        elif (exc := main.exception()) is not None:
            outcome.set_exception(exc)
        else:
            outcome.set_result(main.result())
        if self._done is not None:
            self._done(outcome)

    def _close_loop(self) -> None:
        """End the polling thread and close the loop.

        After the last run that handles SIGINT, Python's default handler is restored.
        """
        loop = self._loop
        self._ended = True
        if self._thread.is_alive():
            self._end_thread()
        _runs.remove(self)
        _runs_of_thread.discard(self)
        loop._hosted, loop._thread_id = False, None
        if self in _sigint_runs:
            _sigint_runs.remove(self)
            if not _sigint_runs and signal.getsignal(signal.SIGINT) is _on_sigint:
                signal.signal(signal.SIGINT, signal.default_int_handler)
        loop._disarm_wakeup()
        loop.close()

    # ---- Ctrl-C ----------------------------------------------------------------------

    def _catch_interrupts(self) -> None:
        """Handle SIGINT as asyncio.run does: the first one cancels `main`.

        Does nothing outside the main thread, or if the program has its own handler.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        with contextlib.suppress(ValueError):  # not the main interpreter
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                signal.signal(signal.SIGINT, _on_sigint)
            if signal.getsignal(signal.SIGINT) is _on_sigint:
                _sigint_runs.append(self)

    def _cancel_or_raise(self) -> None:
        """Cancel `main` at the first SIGINT; raise KeyboardInterrupt at the second.

        KeyboardInterrupt is also raised if `main` has ended already.
        """
        self._interrupts += 1
        if self._interrupts > 1 or self._main.done():
            raise KeyboardInterrupt
        self._main.cancel()

    # ---- the polling thread ----------------------------------------------------------

    def _poll(self, thread: HelperThread) -> None:
        """Poll at each request, then schedule _tick() in the host loop; the thread's body."""
        while self._polls.get():
            try:
                self._loop._poll()
            except BaseException as exc:
                self._poll_failure = exc
            if self._finishing:
                continue
            thread.is_away = True
            try:
                self._post(self._tick)
            except Exception:
                logger.warning(
                    "run_sync_soon_threadsafe() of a guest run raised an exception, so the guest's "
                    "loop stands still: call finish() of the guest before the host loop ends",
                    exc_info=True,
                )
            thread.is_away = False
        if self._abandoned:
            self._end_abandoned_run()

    def _abandon(self) -> None:
        """Let the polling thread end the run, whose host's thread is ending without finish()."""
        self._ended = self._finishing = self._abandoned = True
        _runs.remove(self)
        self._stop_polling()

    def _end_abandoned_run(self) -> None:
        """End the run of a host's thread that has ended: nothing refers to the loop any more.

        Its main task and its loop remain unfinished and unclosed, with asyncio's warnings, as those
        of a thread that does not close its loop.
        """
        loop = self._loop
        loop._end_run()
        loop._thread_id = None
        self.outcome.set_exception(
            RuntimeError("the host's thread has ended without finish() of its guest run")
        )

    def _end_thread(self) -> None:
        """End the polling thread and wait for it."""
        self._stop_polling()
        self._thread.join()

    def _stop_polling(self) -> None:
        """Ask the polling thread to end."""
        self._polls.put(False)
        self._loop.call_soon_threadsafe(int)  # wakes a blocked poll


# The guest runs of all threads that have begun and not ended.
_runs: list[Guest[Any]] = []


class _EndOfHost:
    """An object in the thread-local data of a host's thread, which is dropped when it ends."""

    def __init__(self, guest: Guest[Any]) -> None:
        """Refer to the run in this process."""
        self._guest, self._process = guest, os.getpid()

    def __del__(self) -> None:
        """Abandon the run, unless it has ended or belongs to the parent of a forked child."""
        guest = self._guest
        if guest._thread.is_alive() and not guest._ended and self._process == os.getpid():
            guest._abandon()


class _RunsOfThread(threading.local):
    """The runs of this thread, to be abandoned if the thread ends before them."""

    def __init__(self) -> None:
        """Begin without runs, in each thread."""
        self._ends: dict[Guest[Any], _EndOfHost] = {}

    def add(self, guest: Guest[Any]) -> None:
        """Abandon the run at the end of this thread.

        Only if Python started the thread: Python drops its data of another one, such as a thread of
        C that calls into Python from time to time, after each call.
        """
        if not isinstance(threading.current_thread(), threading._DummyThread):
            self._ends[guest] = _EndOfHost(guest)

    def discard(self, guest: Guest[Any]) -> None:
        """Do nothing at the end of this thread: the run has ended."""
        self._ends.pop(guest, None)


_runs_of_thread = _RunsOfThread()

# The guest runs of the main thread that handle SIGINT, oldest first. The first run in the list gets
# each SIGINT until that run has ended.
_sigint_runs: list[Guest[Any]] = []


def _on_sigint(signum: int, frame: FrameType | None) -> None:
    """Pass SIGINT to the first of _sigint_runs; KeyboardInterrupt if there is none."""
    if not _sigint_runs:
        raise KeyboardInterrupt
    _sigint_runs[0]._cancel_or_raise()
