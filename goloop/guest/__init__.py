"""Guest mode: asyncio inside another event loop, its host.

The host is a GUI's loop, a game's, or any thread that calls what is put in its queue.  Iterations
of the asyncio loop run in the host's thread, where the host wants them.  Between two of them a
thread polls, which is Go's work and needs no GIL, so that the host has its thread to itself.

      host's thread                         the poller's thread
      iterations, until nothing is ready ->
      the host's own events                 Go waits for sockets and timers, and receives
                                         <- asks the host to call the next iterations

`goloop.guest.qt` and `goloop.guest.tk` are for those two; `start` is for any other.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import queue
import signal
import sys
import threading
import time
from asyncio.log import logger
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Generic, TypeVar

from .._internal.backend import native, new_event_loop

__all__ = ("Guest", "start")

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
    """Begin to run a coroutine on a new goloop loop, inside the loop of this thread.

    It returns at once; the host's loop runs the rest.  What follows the end of `main` is as in
    `goloop.run()`: tasks that are left are cancelled, asynchronous generators and the default
    executor are shut down, and the loop is closed.  In the main thread Ctrl-C cancels `main`, as in
    `goloop.run()`, unless the program handles SIGINT itself.  Since 0.3.0.

    Args:
        main: The coroutine.
        run_sync_soon_threadsafe: Lets the host call a function without arguments, soon and in this
            thread; may be called in any thread.
        run_sync_soon_not_threadsafe: The same, and is only called in this thread; by default it is
            the one above.
        done_callback: Called in the host's thread when all is over, with `Guest.outcome`.
        debug: Whether the loop is in debug mode; None leaves that to `PYTHONASYNCIODEBUG` and
            `-X dev`.
        context: The context that `main` runs in; by default a copy of this one.
        time_share: After so many seconds a loop that is still busy lets the host do its own work.

    Returns:
        The run.

    Raises:
        TypeError: `main` is no coroutine.
        ImportError: The Go library can't be opened; the message says why.
        RuntimeError: goloop's own loop can't be had here (`goloop.native` is False).
    """
    if not asyncio.iscoroutine(main):
        raise TypeError(f"a coroutine was expected, got {main!r}")
    if not native:
        main.close()
        raise RuntimeError(
            "guest mode needs goloop's own loop; goloop.diagnostics() has the reason"
        )
    guest = Guest(main, debug, context)
    guest._time_share, guest._done = time_share, done_callback
    guest._post = run_sync_soon_threadsafe
    guest._post_here = run_sync_soon_not_threadsafe or run_sync_soon_threadsafe
    guest._begin()
    return guest


class Guest(Generic[_T]):
    """A run in guest mode; `start()` makes it.  Since 0.3.0."""

    loop: asyncio.AbstractEventLoop
    """The loop. The host's callbacks may use it, and what belongs to it, also between iterations:
    they run in its thread. asyncio's functions that ask for the running loop find none there: use
    `guest.loop.create_task()` instead of `asyncio.create_task()`."""

    outcome: concurrent.futures.Future[_T]
    """What `main` returns or raises, once all is over. It can't be cancelled, so who stops waiting
    for it changes nothing; `cancel()` cancels `main`."""

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
        self.outcome = concurrent.futures.Future()
        self.outcome.set_running_or_notify_cancel()
        self._loop: Any = new_event_loop()
        self.loop = self._loop
        if debug is not None:
            self._loop.set_debug(debug)
        self._all_done = self._loop.create_future()
        self._all_done.add_done_callback(lambda _: self._loop.stop())
        self._main: asyncio.Task[_T] = self._loop.create_task(main, context=context)
        self._main.add_done_callback(self._main_is_done)
        self._inside = self._alone = self._over = False
        # What has left an iteration, and what has left a poll.
        self._failure: BaseException | None = None
        self._poll_failure: BaseException | None = None
        self._interrupts = 0
        # Each True is a poll, False the end of the thread.
        self._polls: queue.SimpleQueue[bool] = queue.SimpleQueue()
        # A daemon: a host that ends without finish() does not keep the process from ending.
        self._thread = threading.Thread(target=self._poll, name="goloop-guest", daemon=True)

    def cancel(self) -> None:
        """Cancel `main`, from any thread; the host's loop runs what follows."""
        self._loop.call_soon_threadsafe(self._main.cancel)

    def finish(self) -> _T:
        """Cancel `main`, and run the loop to its end here and now, without the host.

        For a host that has ended before, by a window that was closed.  It is called in the host's
        thread, and not from within an iteration.  A coroutine of a host that is an asyncio loop may
        call it; the host waits meanwhile.  Where all is over it only returns the outcome.

        Returns:
            What `main` returns.

        Raises:
            CancelledError: It was cancelled; or what else `main` raises.
            RuntimeError: This is another thread, or an iteration.
        """
        if not self._over:
            if self._inside or threading.get_ident() != self._loop._thread_id:
                raise RuntimeError("finish() is for the host's thread, between two iterations")
            self._alone = True
            self._main.cancel()
            self._end_thread()
            while not self._over:
                self._tick()
        return self.outcome.result()

    def _finish_after(self, host: Callable[[], object]) -> _T:
        try:
            host()
        except BaseException:
            with contextlib.suppress(BaseException):
                self.finish()
            raise
        return self.finish()

    # ---- in the host's thread --------------------------------------------------------

    def _begin(self) -> None:
        loop = self._loop
        loop._hosted, loop._thread_id = True, threading.get_ident()
        try:
            loop._arm_wakeup()
            self._catch_interrupts()
            self._thread.start()
            self._post_here(self._tick)
        except BaseException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """The host refuses the run: `main` ends here, by a cancellation, before the loop closes."""
        self._alone = True
        try:
            if self._thread.is_alive():
                self._end_thread()
            self._main.cancel()
            while (busy := self._iterate()) is not None:
                if not busy:
                    self._loop._poll()
        finally:
            self._leave_loop()

    def _tick(self) -> None:
        """What the host calls: iterations, as long as something is ready and time is left.

        finish() calls it as well, and the poll is in this thread then.
        """
        if self._over or self._inside:  # an iteration that runs the host's loop
            return
        self._inside = True
        busy: bool | None = True
        try:
            busy = self._iterate()
            if busy is False and self._alone:
                self._loop._poll()
        except BaseException as exc:
            self._failed(exc)
        finally:
            self._inside = False
        if self._over:
            return
        if busy is None:
            self._stopped()
        elif self._alone:
            pass  # finish() goes on
        elif busy:
            self._post_here(self._tick)
        else:
            self._polls.put(True)

    def _iterate(self) -> bool | None:
        """False: the loop has to poll; None: it was stopped."""
        loop: Any = self._loop
        until = time.perf_counter() + self._time_share
        host, hooks = _events._get_running_loop(), sys.get_asyncgen_hooks()
        # A task of the host may run this; from Python 3.14 on a thread has one current task.
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
            while busy and time.perf_counter() < until:
                busy = loop._run()
        finally:
            _events._set_running_loop(host)
            if task is not None:
                _events.tasks._enter_task(host, task)
            sys.set_asyncgen_hooks(*hooks)
            loop._set_coroutine_origin_tracking(False)
            loop._cpu_time.end()
        return busy

    def _stopped(self) -> None:
        if self._all_done.done():
            self._end()
            return
        self._failed(RuntimeError("Event loop stopped before Future completed."))
        if not self._over and not self._alone:
            self._post_here(self._tick)

    def _failed(self, exc: BaseException) -> None:
        """The first time `main` is cancelled, and the rest runs; the second time nothing does."""
        again = self._failure is not None
        self._failure = self._failure or exc
        self._poll_failure = None
        self._main.cancel()
        self._loop._handshakes.begin(self._loop)
        if again:
            self._end()

    def _main_is_done(self, main: asyncio.Task[_T]) -> None:
        # Not by create_task(): the run must end whatever the program's task factory does.
        rest = asyncio.Task(self._wind_down(), loop=self._loop)
        rest.add_done_callback(lambda _: self._all_done.set_result(None))

    async def _wind_down(self) -> None:
        """What asyncio.run does after its coroutine."""
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
        self._leave_loop()
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

    def _leave_loop(self) -> None:
        loop = self._loop
        self._over = True
        if self._thread.is_alive():
            self._end_thread()
        loop._hosted, loop._thread_id = False, None
        if self in _catching:
            _catching.remove(self)
            if not _catching and signal.getsignal(signal.SIGINT) is _interrupted:
                signal.signal(signal.SIGINT, signal.default_int_handler)
        loop._disarm_wakeup()
        loop.close()

    # ---- Ctrl-C ----------------------------------------------------------------------

    def _catch_interrupts(self) -> None:
        """As asyncio.run: the first cancels `main`."""
        if threading.current_thread() is not threading.main_thread():
            return
        with contextlib.suppress(ValueError):  # not the main interpreter
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                signal.signal(signal.SIGINT, _interrupted)
            if signal.getsignal(signal.SIGINT) is _interrupted:
                _catching.append(self)

    def _interrupt(self) -> None:
        self._interrupts += 1
        if self._interrupts > 1 or self._main.done():
            raise KeyboardInterrupt
        self._main.cancel()

    # ---- the thread that polls -------------------------------------------------------

    def _poll(self) -> None:
        while self._polls.get():
            try:
                self._loop._poll()
            except BaseException as exc:
                self._poll_failure = exc
            if self._alone:
                continue
            try:
                self._post(self._tick)
            except Exception:
                logger.warning("The host of a guest run takes no more calls", exc_info=True)

    def _end_thread(self) -> None:
        self._polls.put(False)
        self._loop.call_soon_threadsafe(int)  # ends a poll
        self._thread.join()


# Of the main thread: an interrupt is for the first, until that is over.
_catching: list[Guest[Any]] = []


def _interrupted(signum: int, frame: FrameType | None) -> None:
    if not _catching:
        raise KeyboardInterrupt
    _catching[0]._interrupt()
