"""Signals: add_signal_handler(), and how a signal wakes a sleeping loop.

Python runs signal handlers in the main thread, between two bytecodes. A loop that sleeps in the
kernel runs none, and EINTR does not always end the sleep: another thread may receive the signal,
or it may arrive just before the sleep. So each loop of the main thread has a pipe. CPython's
C-level handler writes the signal's number into it (signal.set_wakeup_fd), and the loop watches
the other end.

The process has one wakeup fd. Its owner is one of

* none (-1): run_forever() installs the loop's pipe, and removes it at its end;
* other code: run_forever() leaves it unchanged;
* the loop, as long as it has a signal handler, even while it does not run, so that a signal
  between two runs is delivered in the next run, as in asyncio.

A full pipe loses numbers. So the Python-level handler of a signal, which CPython never loses,
records the number. A loop that finds its pipe full also delivers the recorded numbers that it has
not read.

A KeyboardInterrupt, which SIGINT's default handler raises between two bytecodes, must not lose a
signal either. It cannot interrupt a single call of C code: so the pipe is read into a deque, and
the Python-level handler is pop() of a dict, which removes the number from those that have not
been seen. (CPython then keeps that dict alive, and not the loop.) An interrupted drain resumes
when the loop runs again. A signal may be delivered twice, but is never lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import itertools
import os
import posix
import signal
import sys
import threading
import warnings
import weakref
from asyncio import coroutines
from asyncio.log import logger
from collections import deque
from collections.abc import Callable

from ... import _core
from .base import CoreLoop
from .descriptors import close_own, file_identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVarTuple

    from .descriptors import FileIdentity

    _Ts = TypeVarTuple("_Ts")

# asyncio.iscoroutinefunction is deprecated from 3.14 on and warns.
_is_coroutine_function: Callable[[object], bool] = (
    getattr(coroutines, "_iscoroutinefunction", None) or coroutines.iscoroutinefunction
)

# eventlet replaces os.read() by one that cannot be called in the callback of a loop.
_read = posix.read
# The minimal capacity of a pipe: a read of fewer bytes means that the pipe was not full.
_PIPE_MIN_CAPACITY = 4096

# Loops that may own the wakeup fd; a forked child resets them.
_armed_loops: weakref.WeakSet[Signals] = weakref.WeakSet()


def _swap_wakeup_fd(fd: int, own_pipe: bool = False) -> int:
    """Set the process's wakeup fd and return the previous one; -1 means none.

    CPython 3.13 and later export a C function for that. Before, signal.set_wakeup_fd is used, which
    checks the number, and resets the previous owner's choice of warnings about a full buffer to the
    default. `own_pipe`: `fd` is goloop's pipe, so CPython does not warn if it is full.
    """
    swap: Callable[[int], int] | None = getattr(_core, "swap_wakeup_fd", None)
    if swap is not None:
        return swap(fd)
    return signal.set_wakeup_fd(fd, warn_on_full_buffer=not own_pipe)


class Signals(CoreLoop):
    """Implements add_signal_handler() and remove_signal_handler()."""

    _signal_handlers: dict[int, asyncio.Handle]
    _signals_unseen: dict[int, None]  # numbers with a handler, until CPython calls it
    _signals_read: deque[int]  # numbers that are read and not delivered yet
    # The read end and the write end; None until they are needed.
    _signal_pipe: tuple[int, int] | None
    _signal_file: FileIdentity  # device and inode of the pipe
    _wakeup_armed: bool

    def _gets_signals(self) -> bool:
        """Return true in Python's main thread, if the loop's system has signals."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        return in_main_thread and self._system.has_signals

    def _init_signals(self) -> None:
        """Initialize the signal state of a new loop; in the main thread also create its pipe."""
        self._signal_handlers = {}
        self._signals_unseen = {}
        self._signals_read = deque()
        self._signal_pipe = None
        self._wakeup_armed = False
        # Created early for loops that will need it: a process without free descriptors must still
        # be able to run its existing loops.
        if self._gets_signals():
            self._signal_fd()

    # ---- the wakeup fd ------------------------------------------------------

    def _signal_fd(self) -> int:
        """Return the write end of the pipe; create and watch the pipe if necessary (OSError).

        If a program has closed the pipe, its number must not become the wakeup fd again: signals
        would be written into another file.
        """
        if (
            self._signal_pipe is not None
            and file_identity(self._signal_pipe[1]) != self._signal_file
        ):
            self._remove_reader(self._signal_pipe[0])
            self._close_pipe()
        if self._signal_pipe is None:
            reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                self._add_reader(reading, self._drain_signals)
            except BaseException:
                os.close(reading)
                os.close(writing)
                raise
            self._signal_pipe, self._signal_file = (reading, writing), file_identity(writing)
            self._internal_fds += 1
        return self._signal_pipe[1]

    def _close_pipe(self) -> None:
        """Close both ends, unless their numbers belong to other files by now."""
        assert self._signal_pipe is not None
        for fd in self._signal_pipe:
            close_own(fd, self._signal_file)
        self._signal_pipe = None
        self._internal_fds -= 1

    def _drain_signals(self) -> None:
        """Schedule the handlers of the signals that were written to the pipe.

        If the pipe was full, also of the signals that only their Python-level handlers recorded.
        """
        if self._signal_pipe is None:  # closed after this call was scheduled
            return
        fd = self._signal_pipe[0]
        again = self.call_soon(self._drain_signals)  # runs if an exception ends this call
        read = self._signals_read
        with contextlib.suppress(OSError):
            chunks = iter(functools.partial(_read, fd, _PIPE_MIN_CAPACITY), b"")
            read.extend(itertools.chain.from_iterable(chunks))
        if len(read) >= _PIPE_MIN_CAPACITY:
            # The pipe was full. CPython has run its handlers by now, between two bytecodes.
            read.extend(self._signal_handlers.keys() - self._signals_unseen.keys() - set(read))
        self._signals_unseen.update(dict.fromkeys(self._signal_handlers))
        while read:
            self._schedule_handler(read[0])
            read.popleft()
        again.cancel()

    def _schedule_handler(self, sig: int) -> None:
        """Schedule the handler of one signal, if it has one; remove a cancelled handler."""
        handle: Any = self._signal_handlers.get(sig)
        if handle is not None and handle.cancelled():
            self.call_soon(self.remove_signal_handler, sig)
        elif handle is not None:
            # Not handle._run(), which an interrupt could end before the callback runs.
            scheduled: Any = self.call_soon(
                handle._callback, *handle._args, context=handle._context
            )
            if self._debug:
                scheduled._source_traceback = handle._source_traceback

    def _arm_wakeup(self) -> None:
        """Make the pipe the wakeup fd if the process has none; see the head of this file.

        Does nothing if the loop gets no signals, or if the loop's poller was closed. Raises OSError
        if there is no descriptor for a pipe.
        """
        if not self._gets_signals():
            return
        try:
            own_pipe = self._signal_fd()
        except OSError as exc:
            if exc.errno not in (errno.EBADF, errno.EINVAL):
                raise
            return  # the poller was closed, too; the first turn reports it
        if self._signals_read:  # an earlier drain was interrupted
            self.call_soon(self._drain_signals)
        _armed_loops.add(self)
        self._wakeup_armed = True
        previous = _swap_wakeup_fd(own_pipe, own_pipe=True)
        if previous not in (-1, own_pipe):
            # An invalid number means that the previous owner has closed it.
            with contextlib.suppress(ValueError, OSError):
                _swap_wakeup_fd(previous)
                self._wakeup_armed = False

    def _disarm_wakeup(self) -> None:
        """Remove the pipe as wakeup fd, if run_forever() installed it and no handler needs it."""
        if not self._wakeup_armed:
            return
        self._wakeup_armed = False
        if not self._signal_handlers:
            self._remove_wakeup_fd()

    def _remove_wakeup_fd(self) -> None:
        """Remove the pipe as wakeup fd, unless other code has replaced it."""
        if self._signal_pipe is None:
            return
        try:
            previous = _swap_wakeup_fd(-1)
        except ValueError:
            # Before 3.13 only the main thread may do this. Another thread only closes or collects
            # loops that do not run and have no handlers, and their pipe is removed already.
            return
        if previous not in (-1, self._signal_pipe[1]):
            with contextlib.suppress(ValueError, OSError):
                _swap_wakeup_fd(previous)

    def _close_signals(self) -> None:
        """Remove the handlers and close the pipe, as the last step of close().

        While the interpreter shuts down, the handlers stay installed, with a ResourceWarning.
        """
        if not sys.is_finalizing():
            for sig in list(self._signal_handlers):
                self.remove_signal_handler(sig)
        elif self._signal_handlers:
            warnings.warn(
                f"Closing the loop {self!r} on interpreter shutdown "
                f"stage, skipping signal handlers removal",
                ResourceWarning,
                source=self,
                stacklevel=3,
            )
            self._signal_handlers.clear()
        if self._signal_pipe is not None:
            # CPython must not keep a number that another file may get.
            self._remove_wakeup_fd()
            self._close_pipe()

    # ---- the public methods ---------------------------------------------------

    def add_signal_handler(self, sig: int, callback: Callable[[*_Ts], object], *args: *_Ts) -> None:
        """Call `callback(*args)` in the loop when the signal `sig` arrives.

        This replaces an earlier handler of the signal, also if the signal then cannot be caught.
        Raises ValueError for an invalid number, TypeError for a coroutine or a coroutine function,
        and RuntimeError if the signal cannot be caught, if the loop is closed, or if the current
        thread is not the main thread.
        """
        if coroutines.iscoroutine(callback) or _is_coroutine_function(callback):
            raise TypeError("coroutines cannot be used with add_signal_handler()")
        self._check_signal(sig)
        self._check_closed()
        try:
            # First, because it raises ValueError in any thread except the main thread.
            signal.set_wakeup_fd(self._signal_fd(), warn_on_full_buffer=False)
        except (ValueError, OSError) as exc:
            raise RuntimeError(str(exc))  # noqa: B904  (as asyncio: __cause__ is not set)
        _armed_loops.add(self)
        self._signal_handlers[sig] = asyncio.Handle(callback, args, self, None)
        self._signals_unseen[sig] = None
        try:
            signal.signal(sig, self._signals_unseen.pop)
            # The signal must not interrupt system calls of this process with EINTR.
            signal.siginterrupt(sig, False)
        except OSError as exc:
            del self._signal_handlers[sig]
            self._remove_unused_wakeup_fd()
            if exc.errno == errno.EINVAL:
                raise RuntimeError(f"sig {sig} cannot be caught")  # noqa: B904
            raise

    def remove_signal_handler(self, sig: int) -> bool:
        """Remove the handler of a signal and set Python's default; return true if there was one.

        Raises TypeError or ValueError for an invalid number, ValueError outside the main thread,
        and RuntimeError if the signal cannot be caught. In the last two cases the loop's handler
        is removed nevertheless.
        """
        self._check_signal(sig)
        if self._signal_handlers.pop(sig, None) is None:
            return False
        default = signal.default_int_handler if sig == signal.SIGINT else signal.SIG_DFL
        try:
            signal.signal(sig, default)
        except OSError as exc:
            if exc.errno == errno.EINVAL:
                raise RuntimeError(f"sig {sig} cannot be caught")  # noqa: B904
            raise
        self._remove_unused_wakeup_fd()
        return True

    def _remove_unused_wakeup_fd(self) -> None:
        """Remove the wakeup fd after the last handler, unless run_forever() uses it.

        A failure is only logged.
        """
        if self._signal_handlers or self._wakeup_armed:
            return
        try:
            signal.set_wakeup_fd(-1)
        except (ValueError, OSError) as exc:
            logger.info("set_wakeup_fd(-1) failed: %s", exc)

    def _check_signal(self, sig: object) -> None:
        """Raise TypeError or ValueError if `sig` is not the number of a valid signal."""
        if not isinstance(sig, int):
            raise TypeError(f"sig must be an int, not {sig!r}")
        if sig not in signal.valid_signals():
            raise ValueError(f"invalid signal number {sig}")


def _after_fork_in_child() -> None:
    """Remove the parent's pipes as wakeup fd: the parent must not get the child's signals."""
    for loop in list(_armed_loops):
        loop._remove_wakeup_fd()
    _armed_loops.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
