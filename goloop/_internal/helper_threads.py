"""The Python threads that goloop starts for itself, and their end before Python ends.

Python does not wait for daemon threads when it ends. CPython 3.13 without the GIL even frees their
thread states. A daemon thread that wakes up later uses its freed state, and the process crashes. So
each thread of goloop is started here, with a function that asks it to end:

    thread.begin(end)  a thread that has ended is forgotten
        |
    the exit hook      refuses further threads, asks all to end, and joins them

The hook is one of atexit, which run after the threads that keep the process alive, and their loops,
have ended: they may need these threads until then.  It is registered before those that flush the
loops and refuse foreign threads (library.py), and so runs after them.

The kernel may deliver a signal of the process to any thread that does not block it. A program that
blocks a signal in its threads, to collect it by `sigwait()` or a signalfd or to keep a handler out
of a section, does not know goloop's threads. So these block all signals from their first
instruction on. The signals of faults are no exception: a thread's own fault ends the process also
if its signal is blocked, but without a handler, such as faulthandler's.

A thread that calls code which may not return for long, such as a name look-up, is *away* meanwhile.
The exit waits for it only half a second, and only where its thread state is freed.
"""

from __future__ import annotations

import _thread
import atexit
import os
import signal
import sys
import threading
from types import BuiltinFunctionType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def _real_thread_functions() -> Any:
    """Return the module _thread; a copy of it if gevent or eventlet has replaced its functions."""
    names = ("start_joinable_thread", "start_new_thread", "allocate_lock", "RLock")
    present = [getattr(_thread, name) for name in names if hasattr(_thread, name)]
    if all(isinstance(each, (BuiltinFunctionType, type)) for each in present):
        return _thread
    import importlib.machinery
    import importlib.util

    spec = importlib.machinery.BuiltinImporter.find_spec("_thread")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_real: Any = _real_thread_functions()
# Locks that also work between greenlets and threads; for modules that use a NativeThread.
RLock: Callable[[], Any] = _real.RLock
if sys.version_info >= (3, 13):
    _start_joinable_thread, _make_handle = _real.start_joinable_thread, _real._ThreadHandle
else:
    _start_new_thread, _allocate_lock = _real.start_new_thread, _real.allocate_lock

# CPython without the GIL frees the state of each thread that has not ended.
THREADS_MUST_END = "t" in sys.abiflags
# The exit waits this often, for a hundredth of a second, for threads that are away.
_AWAY_WAITS = 50 if THREADS_MUST_END else 0

# The threads that were started and have not been joined, with the functions that ask them to end.
_threads: dict[_Startable, Callable[[], object] | None] = {}
# Locked while a thread is started. It is reentrant, because a signal handler may start one.
_lock = RLock()
_exiting = False
# The process that has started _threads, and the threads of its parents, which are never freed.
_process = os.getpid()
_of_parents: list[dict[_Startable, Callable[[], object] | None]] = []


def _forget_threads_of_parents() -> None:
    """Forget the threads of the parent in a forked child, also after a fork by C, without hooks."""
    global _process, _threads
    if _process != os.getpid():
        _of_parents.append(_threads)
        _process, _threads = os.getpid(), {}


class _Startable:
    """The methods that both classes of threads have in common."""

    # True while the thread is in a call that may not return for long.
    is_away = False
    # True once the exit has begun.
    is_ending = False

    def begin(self, end: Callable[[], object] | None = None) -> None:
        """Start the thread; the exit calls `end()`, which must not wait, to ask it to end.

        Raises RuntimeError if no thread can be started, or Python ends.
        """
        with _lock:
            _forget_threads_of_parents()
            if _exiting:
                raise RuntimeError("can't start new thread at interpreter shutdown")
            for each in [each for each in _threads if each.has_ended()]:
                del _threads[each]
            _threads[self] = end
            try:
                self._start_without_signals()
            except Exception:
                del _threads[self]
                raise

    def _start_without_signals(self) -> None:
        """Start the thread with all signals blocked, which it inherits.

        A thread that blocked signals itself could not do so before it gets the GIL.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            # Within `try`: it runs Python's handlers of earlier signals, which may raise.
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            self._start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _start(self) -> None:
        """Start the thread."""
        raise NotImplementedError

    def has_ended(self) -> bool:
        """Return true if the thread was started and has ended."""
        raise NotImplementedError

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread's end, at most `timeout` seconds."""
        raise NotImplementedError

    def _ends(self) -> None:
        """Drop the function that would ask the thread to end; the thread calls this at its end."""
        if self in _threads:
            _threads[self] = None


class HelperThread(_Startable, threading.Thread):
    """A daemon thread with a name, which threading.enumerate() lists."""

    def __init__(self, name: str, body: Callable[..., object], *args: Any) -> None:
        """Create the thread, which calls `body(thread, *args)`."""
        threading.Thread.__init__(self, name=name, target=body, args=(self, *args), daemon=True)

    def _start(self) -> None:
        """Start the thread."""
        threading.Thread.start(self)

    def run(self) -> None:
        """Call the body."""
        try:
            super().run()
        finally:
            self._ends()

    def has_ended(self) -> bool:
        """Return true if the thread was started and has ended."""
        return self.ident is not None and not self.is_alive()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread's end, at most `timeout` seconds."""
        threading.Thread.join(self, timeout)


class NativeThread(_Startable):
    """A daemon thread without an object of `threading`: its start waits for nothing.

    It is a thread of the system even if a program has replaced Python's functions for threads.
    """

    def __init__(self, body: Callable[[NativeThread], object]) -> None:
        """Create the thread, which calls `body(thread)`."""
        self._body: Callable[[NativeThread], object] | None = body
        if sys.version_info >= (3, 13):
            self._handle: Any = _make_handle()
        else:
            self._running: Any = _allocate_lock()
            self._running.acquire()

    def _start(self) -> None:
        """Start the thread."""
        if sys.version_info >= (3, 13):
            _start_joinable_thread(self._run, handle=self._handle, daemon=True)
        else:
            _start_new_thread(self._run, ())

    def _run(self) -> None:
        """Call the body; nothing refers to it afterwards."""
        body, self._body = self._body, None
        try:
            if body is not None:
                body(self)
        finally:
            del body
            self._ends()
            if sys.version_info < (3, 13):
                self._running.release()

    def has_ended(self) -> bool:
        """Return true if the thread was started and has ended."""
        if sys.version_info >= (3, 13):
            return bool(self._handle.is_done())
        return not self._running.locked()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread's end, at most `timeout` seconds."""
        if sys.version_info >= (3, 13):
            self._handle.join(timeout)
        elif self._running.acquire(timeout=-1 if timeout is None else timeout):
            self._running.release()


def _end_all() -> None:
    """Refuse further threads, ask all to end, and join those that are not away; the exit hook."""
    global _exiting
    with _lock:
        _forget_threads_of_parents()
        _exiting = True
        threads = list(_threads.items())
    for thread, end in threads:
        thread.is_ending = True
        if end is not None:
            try:
                end()
            except Exception:
                sys.excepthook(*sys.exc_info())
    waits = 0
    for thread, _ in threads:
        try:
            while not thread.has_ended() and not (thread.is_away and waits >= _AWAY_WAITS):
                waits += thread.is_away
                thread.join(0.01)
        except RuntimeError:
            pass  # the start was interrupted, or this is the thread


def _after_fork_in_child() -> None:
    """Replace the lock, which a thread of the parent may have had at the fork."""
    global _lock, _exiting
    _lock, _exiting = RLock(), False
    _forget_threads_of_parents()


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_end_all)
