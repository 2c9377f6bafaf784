"""The threads in which a loop resolves host names.

A lookup can take seconds and blocks a thread for that time. In the default executor it would
queue with all other work of the program; these threads only resolve names. Each loop has its own,
at most as many as asyncio's default executor. A thread is started when a lookup finds none idle.
It ends after 5 idle seconds, with the loop, or when Python ends, and is a daemon, so that a lookup
that hangs does not keep the process alive.

When a thread that has resolved a name ends, it takes glibc's lock of resolv.conf, which fork(3)
does not reset. A child that is forked in that moment would block forever in its first lookup. So
os.fork() waits for the threads that are ending, and meanwhile no thread begins to end.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import threading
import time
from _queue import Empty, SimpleQueue  # importing `queue` costs as much again as this module

from ... import _core
from ..helper_threads import NativeThread, RLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Any

    # The future, the time of the request in monotonic nanoseconds, the function, its arguments.
    Question = tuple[asyncio.Future[Any], int, Callable[..., Any], tuple[Any, ...]]
    # Called in the loop's thread with the question, the answer, and the exception or None.
    Settle = Callable[[Question, Any, BaseException | None], None]

# socket.getaddrinfo() looks up these codecs of host names, of which Python imports each once. In a
# resolver thread, which the end of the interpreter may stop, the import's lock could stay locked.
for _codec in ("idna", "punycode"):
    codecs.lookup(_codec)

NAME = b"goloop-resolve"
_IDLE_SECONDS = 5.0
_THREADS_MAX = min(32, (os.cpu_count() or 1) + 4)

# Guards the counters of every ResolverThreads, and is locked during a fork. It is reentrant: a
# signal handler or a garbage collection that runs under the lock may fork or close a loop.
_lock = RLock()
# Native ids of the threads that were ending at the last check.
_ending: list[int] = []


def _has_ended(thread: int) -> bool:
    """Return true if the thread no longer exists in the system, which is later than in Python."""
    try:
        with open(f"/proc/self/task/{thread}/comm", "rb", 0) as file:
            return file.read().strip() != NAME
    except OSError:
        return True


class ResolverThreads:
    """The lookups of one loop: a queue of questions and the threads that answer them."""

    def __init__(self, settle: Settle) -> None:
        """Create the queue; `settle` sets a lookup's future, in the loop's thread."""
        self._settle = settle
        self._process = os.getpid()
        self._questions: SimpleQueue[Question | None] = SimpleQueue()
        self._threads = 0
        self._closed = False
        self._unanswered = 0

    def ask(self, future: asyncio.Future[Any], function: Callable[..., Any], *args: Any) -> None:
        """Call `function(*args)` in a thread; the loop sets the future to the outcome.

        Raises:
            RuntimeError: No thread exists and none can be started, or the loop was closed.
        """
        with _lock:
            self._unanswered += 1
            if self._unanswered > self._threads and self._threads < _THREADS_MAX:
                self._start_thread()
            if self._closed:  # by a garbage collection or a signal handler during this call
                self._unanswered -= 1
                raise RuntimeError("Event loop is closed")
            self._questions.put((future, time.monotonic_ns(), function, args))

    def close(self) -> None:
        """End the threads, and drop the questions that no thread has begun to answer."""
        with _lock:
            self._closed = True
            # A forked child has none of these threads. A fork by C leaves their waits in the queue,
            # with addresses on their stacks, which CPython 3.13 would use.
            for _ in range(self._threads if self._process == os.getpid() else 0):
                self._questions.put(None)

    def _start_thread(self) -> None:
        """Start a thread for a question that the caller has counted; needs the lock.

        If that fails and there is no other thread, the question is not counted any more and the
        exception is raised.
        """
        self._threads += 1
        _ending[:] = [each for each in _ending if not _has_ended(each)]
        try:
            NativeThread(self._work).begin(self.close)
        except BaseException:
            self._threads -= 1
            if self._threads == 0:
                self._unanswered -= 1
                raise

    def _work(self, thread: NativeThread) -> None:
        """Answer questions until the thread is to end: the body of a thread."""
        with contextlib.suppress(OSError), open("/proc/thread-self/comm", "wb", 0) as file:
            file.write(NAME)
        while self._work_once(thread):
            pass

    def _work_once(self, thread: NativeThread) -> bool:
        """Wait for a question and answer it; return false if the thread must end."""
        try:
            question = self._questions.get(timeout=_IDLE_SECONDS)
        except Empty:
            question = None
        if question is not None:
            self._answer(question, thread)
            return True
        with _lock:
            if not self._closed and self._unanswered >= self._threads:
                return True  # a question was added meanwhile
            self._threads -= 1
            _ending.append(threading.get_native_id())
        return False

    def _answer(self, question: Question, thread: NativeThread) -> None:
        """Call the question's function and pass the outcome to the loop.

        A question is dropped if its future was cancelled or the loop was closed.
        """
        future, _, function, args = question
        answer = failed = None
        is_wanted = not self._closed and not future.cancelled()
        if is_wanted:
            thread.is_away = True
            try:
                answer = function(*args)
            except BaseException as error:
                failed = error
            thread.is_away = False
        with _lock:
            self._unanswered -= 1
        if is_wanted:
            # The loop may have been closed meanwhile.
            with contextlib.suppress(RuntimeError):
                future.get_loop().call_soon_threadsafe(self._settle, question, answer, failed)
        del question, future, failed  # the exception's traceback refers to this frame


# The thread that has the lock for a fork. A fork that began before this module was imported calls
# only the hook for its end.
_forking: int | None = None


def _before_fork() -> None:
    """Take the lock, which the fork's hooks release, and wait for the threads that are ending."""
    global _forking
    _lock.acquire()
    _forking = _core._thread_ident()
    while not all(map(_has_ended, _ending)):
        with contextlib.suppress(Empty):  # a sleep that also eventlet leaves as it is
            SimpleQueue().get(timeout=0.0002)
    _ending.clear()


def _after_fork_in_parent() -> None:
    """Release the lock that _before_fork() has taken."""
    global _forking
    if _forking == _core._thread_ident():
        _forking = None
        _lock.release()


def _after_fork_in_child() -> None:
    """Replace the lock, which another thread may have had at the moment of the fork."""
    global _lock, _forking
    _lock, _forking = RLock(), None


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
