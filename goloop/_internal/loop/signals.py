"""Signals: add_signal_handler, and how a signal ends the loop's sleep.

Python runs signal handlers in the main thread, between two bytecodes.  A loop that
sleeps in the kernel runs none, and an EINTR does not always come to its help: the
signal may be taken by another thread, or arrive just before the sleep.  So each loop
that runs in the main thread has a pipe; CPython's C-level handler writes the signal's
number into it (signal.set_wakeup_fd), and the loop watches the other end.

Who holds the process's one wakeup fd:

* nobody (-1): run_forever puts the loop's pipe in, and takes it out at its end;
* somebody else: run_forever leaves it alone;
* the loop, as long as it has a signal handler, also while it does not run, so
  that what arrives between two runs is delivered in the next: as asyncio does.

A full pipe loses numbers.  So the Python-level handler of a signal notes its kind, which CPython
never loses, and a loop that finds its pipe full delivers the noted kinds that it has not read.

A KeyboardInterrupt, which SIGINT's usual handler raises between two bytecodes, must lose none
either.  What it may not come between is one call of C's: the pipe is read into a deque, and
the Python-level handler is a dict's own pop(), which takes the kind out of those that were not
seen.  (CPython keeps that dict alive by it, and not the loop.)  A drain that was interrupted
goes on when the loop runs again.  Rather is a signal delivered twice than not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import itertools
import os
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
from .descriptors import close_own, file_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVarTuple

    from .descriptors import File

    _Ts = TypeVarTuple("_Ts")

# asyncio.iscoroutinefunction is deprecated from 3.14 on and warns.
_is_coroutine_function: Callable[[object], bool] = (
    getattr(coroutines, "_iscoroutinefunction", None) or coroutines.iscoroutinefunction
)

# The least that a pipe holds: who has read less has not found it full.
_PIPE_LEAST = 4096

# Loops that may hold the wakeup fd; a forked child looks through them.
_armed_loops: weakref.WeakSet[Signals] = weakref.WeakSet()


def _swap_wakeup_fd(fd: int, ours: bool = False) -> int:
    """Sets the process's wakeup fd and returns the previous one.

    CPython 3.13 and later export the function for that.  signal.set_wakeup_fd, which is
    left before, checks the number, and replaces what its owner has said about warnings
    of a full buffer by the default.
    """
    swap: Callable[[int], int] | None = getattr(_core, "swap_wakeup_fd", None)
    if swap is not None:
        return swap(fd)
    return signal.set_wakeup_fd(fd, warn_on_full_buffer=not ours)


# Threads on a simulated kernel, which signals do not reach: the pipe is the host's.
simulated: set[int] = set()


def _in_main_thread() -> bool:
    main = threading.main_thread()
    return threading.current_thread() is main and main.ident not in simulated


class Signals(CoreLoop):
    """The part of the loop that deals with signals."""

    _signal_handlers: dict[int, asyncio.Handle]
    _signals_unseen: dict[int, None]  # those with a handler, until CPython calls that
    _signals_read: deque[int]  # and not delivered yet
    # The reading and the writing end; None until they are needed.
    _signal_pipe: tuple[int, int] | None
    _signal_file: File  # which both are
    _wakeup_armed: bool

    def _init_signals(self) -> None:
        self._signal_handlers = {}
        self._signals_unseen = {}
        self._signals_read = deque()
        self._signal_pipe = None
        self._wakeup_armed = False
        # Made early where it is going to be wanted: a process that has run out of
        # file descriptors must still be able to run the loops that it has.
        if _in_main_thread():
            self._signal_fd()

    # ---- the wakeup fd ------------------------------------------------------

    def _signal_fd(self) -> int:
        """The writing end of the pipe, which is made and watched if need be.

        A number that somebody has closed must not become CPython's: a signal would be written into
        another's file.
        """
        if self._signal_pipe is not None and file_of(self._signal_pipe[1]) != self._signal_file:
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
            self._signal_pipe, self._signal_file = (reading, writing), file_of(writing)
            self._internal_fds += 1
        return self._signal_pipe[1]

    def _close_pipe(self) -> None:
        """Leaves alone what is somebody else's by now."""
        assert self._signal_pipe is not None
        for fd in self._signal_pipe:
            close_own(fd, self._signal_file)
        self._signal_pipe = None
        self._internal_fds -= 1

    def _drain_signals(self) -> None:
        """Schedules the handlers of the signals whose numbers the pipe has."""
        if self._signal_pipe is None:  # closed since it was asked for
            return
        fd = self._signal_pipe[0]
        again = self.call_soon(self._drain_signals)  # where an exception ends this
        read = self._signals_read
        with contextlib.suppress(OSError):
            chunks = iter(functools.partial(os.read, fd, _PIPE_LEAST), b"")
            read.extend(itertools.chain.from_iterable(chunks))
        if len(read) >= _PIPE_LEAST:
            # CPython has called its handlers by now, as it does between two bytecodes.
            read.extend(self._signal_handlers.keys() - self._signals_unseen.keys() - set(read))
        self._signals_unseen.update(dict.fromkeys(self._signal_handlers))
        while read:
            self._signal_came(read[0])
            read.popleft()
        again.cancel()

    def _signal_came(self, sig: int) -> None:
        handle: Any = self._signal_handlers.get(sig)
        if handle is not None and handle.cancelled():
            self.call_soon(self.remove_signal_handler, sig)
        elif handle is not None:
            # Not by its _run(), which an interrupt could end before the callback.
            made: Any = self.call_soon(handle._callback, *handle._args, context=handle._context)
            if self._debug:
                made._source_traceback = handle._source_traceback

    def _arm_wakeup(self) -> None:
        """Puts the pipe in as wakeup fd if the main thread has none; see the head."""
        if not _in_main_thread():
            return
        try:
            ours = self._signal_fd()
        except OSError as exc:
            if exc.errno not in (errno.EBADF, errno.EINVAL):
                raise
            return  # somebody has closed the poller as well, as the first turn says
        if self._signals_read:  # a drain was interrupted
            self.call_soon(self._drain_signals)
        _armed_loops.add(self)
        self._wakeup_armed = True
        previous = _swap_wakeup_fd(ours, ours=True)
        if previous not in (-1, ours):
            # A number that is refused belongs to nobody any more.
            with contextlib.suppress(ValueError, OSError):
                _swap_wakeup_fd(previous)
                self._wakeup_armed = False

    def _disarm_wakeup(self) -> None:
        """Takes the pipe out again, if it is still in and no handler needs it."""
        if not self._wakeup_armed:
            return
        self._wakeup_armed = False
        if not self._signal_handlers:
            self._take_wakeup_out()

    def _take_wakeup_out(self) -> None:
        if self._signal_pipe is None:
            return
        try:
            previous = _swap_wakeup_fd(-1)
        except ValueError:
            # Before 3.13 only the main thread may do this.  Another one closes or collects a
            # loop that does not run and has no handlers, and so has its pipe out already.
            return
        if previous not in (-1, self._signal_pipe[1]):
            with contextlib.suppress(ValueError, OSError):
                _swap_wakeup_fd(previous)

    def _close_signals(self) -> None:
        """The last act of close(): handlers off, pipe closed."""
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
            # CPython must not be left with a number that another file may get.
            self._take_wakeup_out()
            self._close_pipe()

    # ---- the public methods ---------------------------------------------------

    def add_signal_handler(self, sig: int, callback: Callable[[*_Ts], object], *args: *_Ts) -> None:
        """Add a handler for a signal.

        ValueError: the number is invalid.  RuntimeError: the signal can't be caught,
        or this is not the main thread.
        """
        if coroutines.iscoroutine(callback) or _is_coroutine_function(callback):
            raise TypeError("coroutines cannot be used with add_signal_handler()")
        self._check_signal(sig)
        self._check_closed()
        try:
            # This refuses every thread but the main one, before anything is changed.
            signal.set_wakeup_fd(self._signal_fd(), warn_on_full_buffer=False)
        except (ValueError, OSError) as exc:
            raise RuntimeError(str(exc))  # noqa: B904  (as asyncio: __cause__ is not set)
        _armed_loops.add(self)
        self._signal_handlers[sig] = asyncio.Handle(callback, args, self, None)
        self._signals_unseen[sig] = None
        try:
            signal.signal(sig, self._signals_unseen.pop)
            # System calls of this process go on after the signal.
            signal.siginterrupt(sig, False)
        except OSError as exc:
            del self._signal_handlers[sig]
            self._release_wakeup()
            if exc.errno == errno.EINVAL:
                raise RuntimeError(f"sig {sig} cannot be caught")  # noqa: B904
            raise

    def remove_signal_handler(self, sig: int) -> bool:
        """Remove a handler for a signal; True if there was one."""
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
        self._release_wakeup()
        return True

    def _release_wakeup(self) -> None:
        """After the last handler went: the wakeup fd too, unless run_forever uses it."""
        if self._signal_handlers or self._wakeup_armed:
            return
        try:
            signal.set_wakeup_fd(-1)
        except (ValueError, OSError) as exc:
            logger.info("set_wakeup_fd(-1) failed: %s", exc)

    def _check_signal(self, sig: object) -> None:
        if not isinstance(sig, int):
            raise TypeError(f"sig must be an int, not {sig!r}")
        if sig not in signal.valid_signals():
            raise ValueError(f"invalid signal number {sig}")


def _after_fork_in_child() -> None:
    """The pipe is shared with the parent, which must not see the child's signals."""
    for loop in list(_armed_loops):
        loop._take_wakeup_out()
    _armed_loops.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
