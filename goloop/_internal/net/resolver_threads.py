"""The threads on which a loop looks names up.

A look-up can take seconds, and blocks a thread for as long.  In the default executor it would
wait behind whatever the program does there; these threads do nothing else.  Each loop has its
own, at most as many as asyncio's default executor.  One is made when a look-up finds none idle.
It ends after some idle seconds, or with the loop, and is a daemon: a look-up that hangs keeps
no process alive.

The end of a thread that has looked up a name takes glibc's lock of resolv.conf, which fork(3)
does not look after: a child that was made at that moment would wait for ever when it looks up
a name.  So os.fork() waits for the threads that are ending, and none begins to end meanwhile.
"""

from __future__ import annotations

import _thread
import codecs
import contextlib
import os
import signal
import threading
import time
from _queue import Empty, SimpleQueue  # what `queue` has more costs as much as this module

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Any

    # Its waiter, when it was asked, and what to call.
    Question = tuple[asyncio.Future[Any], int, Callable[..., Any], tuple[Any, ...]]
    # Called in the loop's thread: the question, the answer, and the error or None.
    Settle = Callable[[Question, Any, BaseException | None], None]

NAME = b"goloop-resolve"
_IDLE_SECONDS = 5.0
_THREADS_MAX = min(32, (os.cpu_count() or 1) + 4)

_FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS", "SIGABRT")

# Guards the figures of every LookUps, and is held over a fork.  It can be taken twice: a signal's
# handler or a collection under it may fork, or close a loop.
_lock = threading.RLock()
# The native ids of threads that were ending when it was last looked.
_ending: list[int] = []


def _has_ended(thread: int) -> bool:
    """Whether the system has no such thread any more, which is later than Python says."""
    try:
        with open(f"/proc/self/task/{thread}/comm", "rb", 0) as file:
            return file.read().strip() != NAME
    except OSError:
        return True


class LookUps:
    """The look-ups of one loop."""

    def __init__(self, settle: Settle) -> None:
        self._settle = settle
        self._questions: SimpleQueue[Question | None] = SimpleQueue()
        self._threads = 0
        self._closed = False
        self._unanswered = 0

    def ask(self, future: asyncio.Future[Any], function: Callable[..., Any], *args: Any) -> None:
        """Have a thread call the function, and the loop settle the future.

        Raises:
            RuntimeError: There is no thread, and none can be made; or the loop was closed.
        """
        # socket.getaddrinfo() imports it at its first name: not in a thread that the end of Python
        # stops amid the import, whose locks Python would then wait for.
        codecs.lookup("idna")
        with _lock:
            self._unanswered += 1
            if self._unanswered > self._threads and self._threads < _THREADS_MAX:
                self._start_thread()
            if self._closed:  # by a collection, or a signal's handler
                self._unanswered -= 1
                raise RuntimeError("Event loop is closed")
            self._questions.put((future, time.monotonic_ns(), function, args))

    def close(self) -> None:
        """End the threads, and drop what none has begun with."""
        with _lock:
            self._closed = True
            for _ in range(self._threads):
                self._questions.put(None)

    def _start_thread(self) -> None:
        self._threads += 1
        _ending[:] = [each for each in _ending if not _has_ended(each)]
        try:
            _thread.start_new_thread(self._work, ())
        except BaseException:
            self._threads -= 1
            if self._threads == 0:
                self._unanswered -= 1
                raise

    def _work(self) -> None:
        faults = {getattr(signal, name) for name in _FAULTS}
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals() - faults)
        with contextlib.suppress(OSError), open("/proc/thread-self/comm", "wb", 0) as file:
            file.write(NAME)
        while self._work_once():
            pass

    def _work_once(self) -> bool:
        """Answer a question; False where the thread is to end."""
        try:
            question = self._questions.get(timeout=_IDLE_SECONDS)
        except Empty:
            question = None
        if question is not None:
            self._answer(question)
            return True
        with _lock:
            if not self._closed and self._unanswered >= self._threads:
                return True  # a question has come meanwhile
            self._threads -= 1
            _ending.append(threading.get_native_id())
        return False

    def _answer(self, question: Question) -> None:
        future, _, function, args = question
        answer = failed = None
        is_wanted = not self._closed and not future.cancelled()
        if is_wanted:
            try:
                answer = function(*args)
            except BaseException as error:
                failed = error
        with _lock:
            self._unanswered -= 1
        if is_wanted:
            # The loop may have been closed meanwhile.
            with contextlib.suppress(RuntimeError):
                future.get_loop().call_soon_threadsafe(self._settle, question, answer, failed)
        del question, future, failed  # the error knows this frame


def _before_fork() -> None:
    _lock.acquire()
    while not all(map(_has_ended, _ending)):
        time.sleep(0.0002)
    _ending.clear()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=lambda: _lock.release(),
    after_in_child=_after_fork_in_child,
)
