"""run_forever(): the set-up and the clean-up of a run, and the reports of failed callbacks.

From CPython 3.13 on the set-up and the clean-up are methods of `BaseEventLoop`, which subclasses
may call. For 3.11 and 3.12 they are written here, with the same steps in the same order.
"""

from __future__ import annotations

import asyncio.base_events
import asyncio.format_helpers
import errno
import functools
import marshal
import os
import sys
import threading
from asyncio.log import logger

from ..tasks.slow_path import TaskStepMethWrapper
from .debugging import as_handled
from .signals import Signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..tls.handshakes import Handshakes

# Observers: called with the loop and the context of each call of its exception handler.
on_exception: list[Callable[[Any, dict[str, Any]], object]] = []


# The final metrics of closed loops, until metrics.py adds them up, which takes longer than to close
# a loop. Each entry is a byte that is 1 once the loop counts as closed, and
# the marshalled process id and Loop._metrics(). The garbage collector does not track a bytearray,
# so leak tests, which compare gc.get_objects(), find nothing after a loop was closed. A forked
# child has its own list, because its parent's loops are not its own.
closed_loop_metrics: list[bytearray] = []
os.register_at_fork(after_in_child=closed_loop_metrics.clear)


def pack_final_metrics(figures: dict[str, Any]) -> bytearray:
    """Return an entry of `closed_loop_metrics` for a loop that does not count as closed yet."""
    return bytearray(b"\0" + marshal.dumps((os.getpid(), figures)))


def unpack_final_metrics(packed: bytearray | None) -> tuple[int, dict[str, Any]] | None:
    """Return the process id and the metrics of an entry, or None if its loop is not closed."""
    if packed is None or packed[0] == 0:
        return None
    last: tuple[int, dict[str, Any]] = marshal.loads(memoryview(packed)[1:])
    return last


_base_events: Any = asyncio.base_events
_format_helpers: Any = asyncio.format_helpers
_format_callback_source: Any = _format_helpers._format_callback_source
_takes_debug = "debug" in (_format_callback_source.__kwdefaults__ or ())  # since late 3.12

if sys.version_info < (3, 13):

    class _RunSetup(Signals):
        """The two methods that BaseEventLoop has from 3.13 on."""

        _old_agen_hooks: Any = None

        def _run_forever_setup(self) -> None:
            """Prepare a run as BaseEventLoop does: check the loop's state, set the running loop."""
            self._check_closed()
            self._check_running()
            self._set_coroutine_origin_tracking(self._debug)
            self._old_agen_hooks = sys.get_asyncgen_hooks()
            self._thread = threading.get_ident()
            sys.set_asyncgen_hooks(
                firstiter=self._asyncgen_firstiter_hook,
                finalizer=self._asyncgen_finalizer_hook,
            )
            asyncio._set_running_loop(self)

        def _run_forever_cleanup(self) -> None:
            """Undo _run_forever_setup() at the end of a run, as BaseEventLoop does."""
            self._stopping = False
            self._thread = 0
            asyncio._set_running_loop(None)
            self._set_coroutine_origin_tracking(False)
            if self._old_agen_hooks is not None:
                sys.set_asyncgen_hooks(*self._old_agen_hooks)
                self._old_agen_hooks = None

else:

    class _RunSetup(Signals):
        """Inherits the two methods from BaseEventLoop."""

        _run_forever_setup: Any
        _run_forever_cleanup: Any


_inherited = asyncio.base_events.BaseEventLoop.call_exception_handler


class _CallExceptionHandler:
    """asyncio's method, which also counts the call and notifies the observers of on_exception.

    If the program has replaced BaseEventLoop's method, only the replacement is called.
    """

    def __get__(self, loop: Any, owner: object = None) -> Any:
        """Return the bound method: the program's replacement in BaseEventLoop, or goloop's own."""
        current: Any = asyncio.base_events.BaseEventLoop.call_exception_handler
        if loop is None:
            return current
        if current is not _inherited:
            return current.__get__(loop) if hasattr(current, "__get__") else current
        return functools.partial(_call_exception_handler, loop)


# The parameters have asyncio's names, because errors about arguments show them (arg_errors.py).
def _call_exception_handler(self: Any, context: dict[str, Any]) -> None:
    """Count the call, notify the observers, then call asyncio's exception handler."""
    self._count("unhandled_exceptions")
    for observe in tuple(on_exception):
        try:
            observe(self, context)
        except Exception:
            logger.exception(
                "a function that is called for each unhandled exception (goloop.otel) has failed"
            )
    _inherited(self, context)


_call_exception_handler.__qualname__ = _inherited.__qualname__


class Running(_RunSetup):
    """Implements run_forever(); run_until_complete() is inherited."""

    # The schedule of TLS handshakes, from the first one on.
    _handshakes: Handshakes | None = None

    def run_forever(self) -> None:
        """Run until stop() is called; RuntimeError if the loop is closed or a loop already runs."""
        # The set-up checks this, too. But if the loop is closed or running, nothing has been set up
        # yet, so the clean-up must not run.
        self._check_closed()
        self._check_running()
        # A signal handler may raise after any call, and at the beginning of any function.
        try:
            self._run_forever_setup()
            try:
                self._arm_wakeup()
                if self._handshakes is not None:
                    self._handshakes.begin(self)
                self._cpu_time.begin()
                try:
                    self._run()
                finally:
                    self._cpu_time.end()
            finally:
                self._disarm_wakeup()
        finally:
            self._thread = 0
            try:
                self._run_forever_cleanup()
            except BaseException:
                self._run_forever_cleanup()  # interrupted: repeating the finished steps is harmless
                raise

    if not TYPE_CHECKING:
        call_exception_handler = _CallExceptionHandler()

    def _count_handshake(self, succeeded: bool) -> None:
        """Count the handshake of a TLS connection, which succeeded or failed."""
        self._count("tls_handshakes" if succeeded else "tls_handshake_failures")

    # ---- called by the native turns ----------------------------------------------

    def _callback_failed(self, handle: Any, exc: BaseException) -> None:
        """Report a callback's exception to the exception handler, as Handle._run does."""
        debug = {"debug": self._debug} if _takes_debug else {}
        source = _format_callback_source(handle._callback, handle._args, **debug)
        context = {
            "message": f"Exception in callback {source}",
            "exception": exc,
            "handle": handle,
        }
        if handle._source_traceback:
            context["source_traceback"] = handle._source_traceback
        as_handled(exc, self.call_exception_handler, context)

    def _event_failed(
        self, message: str, exc: BaseException, transport: Any, protocol: Any
    ) -> None:
        """Report an exception of a transport's event, which has no handle."""
        context = {
            "message": message, "exception": exc, "transport": transport, "protocol": protocol,
        }  # fmt: skip
        as_handled(exc, self.call_exception_handler, context)

    def _step_failed(
        self, task: Any, wakeup: Any, waited_for: Any, exc: BaseException, context: Any
    ) -> None:
        """Report an exception of a task's step, as if asyncio's handle of the step had failed."""
        callback = TaskStepMethWrapper(task) if wakeup is None else wakeup
        args = () if wakeup is None else (waited_for,)
        self._callback_failed(asyncio.Handle(callback, args, self, context), exc)

    def _descriptors_lost(self, poller: int, wakeup: int) -> None:
        """Raise OSError with the numbers of the loop's epoll and eventfd; one of them is lost."""
        raise OSError(
            errno.EBADF,
            f"other code has closed descriptor {poller} or {wakeup}, which the event loop uses to "
            "wait for events and to be woken",
        )

    def _log_slow(self, what: object, seconds: float) -> None:
        """Log a callback, a task's step or a transport's event; C calls this in debug mode only.

        Does nothing if it took less than slow_callback_duration.
        """
        if seconds >= self.slow_callback_duration:
            is_handle = isinstance(what, asyncio.Handle)
            name = _base_events._format_handle(what) if is_handle else repr(what)
            logger.warning("Executing %s took %.3f seconds", name, seconds)

    def _watch_lost(self, fd: int) -> None:
        """Log that a watched descriptor was closed while a duplicate of it is open."""
        logger.warning(
            "descriptor %d was closed while add_reader() or add_writer() watched it, and a "
            "duplicate of it is ready: its callbacks are not called any more; call "
            "remove_reader() and remove_writer() before you close a descriptor",
            fd,
        )
