"""The watchdog: an iteration of a loop that lasts too long is reported while it lasts.

A thread of C sees it (pybridge/golib/watchdog.c) and notes the Python stack of the loop's thread,
without the GIL.  The rest, here, needs the GIL:

    Loop._blocked()      on a separate thread, while the loop is blocked; if something keeps the
                         GIL, C writes the stack to stderr meanwhile
    Loop._block_ended()  on the loop's thread, after the iteration

Each makes a `Blocked`, which goes to the log ("goloop", as a warning) and to the subscribers.
Both come once for each such iteration, in this order.
"""

from __future__ import annotations

import asyncio
import collections
import logging
import os
import threading
import time

from ._internal.tasks import looking

# Each program on goloop imports this module, so nothing here makes its classes by exec(), as
# dataclasses and typing.NamedTuple do: these took as long as a loop.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NamedTuple

    Subscriber = Callable[["Blocked"], object]

__all__ = ("Blocked", "Frame", "subscribe")

logger = logging.getLogger("goloop")

# Beyond, looking for the awaiters of one task would take long itself.
_TASKS_MAX = 20_000
_AWAITERS_MAX = 16

# A block in the same calls, of which the stack was shown in so many seconds before, has one line.
_REPEATS_SECONDS = 10.0
_PLACES_MAX = 100


if TYPE_CHECKING:

    class _Frame(NamedTuple):
        function: str
        file: str
        line: int
else:
    _Frame = collections.namedtuple("_Frame", "function file line")


class Frame(_Frame):
    """One call on a Python stack.  Since 0.2.0."""

    __slots__ = ()

    function: str
    """Its qualified name."""
    file: str
    """The file of its code, as Python names it."""
    line: int
    """The line that runs; 0 where it is not known."""


class Blocked:
    """An iteration of a loop that lasts, or has lasted, longer than the loop's limit.

    As a string it is the sentence that the log has.  Its attributes can't be changed.  Since 0.2.0.
    """

    __slots__ = (
        *("loop", "serial", "thread_id", "started", "duration", "ended", "gc", "stack"),
        *("gil_holder", "task", "awaiters"),
    )

    loop: Any
    """The loop."""
    serial: int
    """The number of this blocked iteration among those of its loop, from 1."""
    thread_id: int
    """threading.get_ident() of the loop's thread."""
    started: float
    """When the iteration began, as time.time()."""
    duration: float
    """Seconds: up to now, or in all if it has ended."""
    ended: bool
    """Whether it has ended."""
    gc: float
    """Seconds of it in Python's garbage collector."""
    stack: tuple[Frame, ...]
    """What the loop's thread did when it reached the limit, innermost last.  Empty if it is not
    known."""
    gil_holder: tuple[Frame, ...]
    """What another thread did that kept the GIL half a limit later.  Empty if the GIL was free or
    the loop's thread kept it, and always on Python 3.12, which doesn't tell."""
    task: str | None
    """The name of the task that ran, if one did."""
    awaiters: tuple[str, ...]
    """The names of the tasks that await it, directly or indirectly, nearest first."""

    def __init__(self, **fields: Any) -> None:
        for name in self.__slots__:
            object.__setattr__(self, name, fields[name])

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"cannot delete field {name!r}")

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Blocked):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(tuple(self._fields().values()))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._fields().items())
        return f"Blocked({fields})"

    def __str__(self) -> str:
        what = "was blocked for" if self.ended else "has been blocked for"
        parts = [f"the event loop {what} {self.duration:.3f} s"]
        if self.gc >= 0.001:
            parts.append(f"of it {self.gc:.3f} s in the garbage collector")
        if self.task is not None:
            parts.append(f"in task {self.task!r}")
        if self.awaiters:
            parts.append("awaited by " + ", ".join(map(repr, self.awaiters)))
        return ", ".join(parts)

    def format_stack(self) -> str:
        """The stack in the words of a traceback, or a sentence that there is none.

        It begins below the call that runs the loop, where the stack has that.

        Returns:
            Several lines, without a line feed at the end.
        """
        text = _format(_below_the_loop(self.stack)) or "  (its Python stack can't be told)"
        if self.gil_holder:
            text += "\nanother thread keeps the GIL:\n" + _format(self.gil_holder)
        return text


def _below_the_loop(stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Without the frames of the program's start, which are the same in each report."""
    for index in range(len(stack) - 1, 0, -1):
        if stack[index - 1].function == "Running.run_forever":
            return stack[index:]
    return stack


def _format(stack: tuple[Frame, ...]) -> str:
    return "\n".join(
        f'  File "{frame.file}", line {frame.line}, in {frame.function}' for frame in stack
    )


_lock = threading.Lock()
_subscribers: dict[object, Subscriber] = {}
_unpublished: collections.deque[Blocked] = collections.deque()
_publishing = False
# When the stack of a block in these calls was shown, and how often it came since; for the thread
# that publishes.
_shown: dict[tuple[Any, ...], tuple[float, int]] = {}


def _in_child() -> None:
    # The threads that told something have stayed in the parent, with what they held.
    global _lock, _publishing
    _lock, _publishing = threading.Lock(), False
    _unpublished.clear()


os.register_at_fork(after_in_child=_in_child)


def subscribe(callback: Subscriber) -> Callable[[], None]:
    """Have a function called for each blocked iteration of any loop.

    It is called twice, on a thread of goloop's or on the loop's own: while the loop is blocked, and
    after the end; where the GIL was not to be had meanwhile, both times after the end.  What it
    raises is logged.  `Loop.set_watchdog()` says how long an iteration may last.  Since 0.2.0.

    Args:
        callback: Gets a `Blocked`; what it returns is ignored.

    Returns:
        A function that ends the subscription; calling it again changes nothing.
    """
    this = object()
    _subscribers[this] = callback

    def unsubscribe() -> None:
        _subscribers.pop(this, None)

    return unsubscribe


def report(loop: Any) -> bool:
    """The loop is blocked: tells it on a thread that Python knows.

    Returns:
        False if there are too many threads: then C has to tell it, for the caller may not wait for
        subscribers.
    """
    thread = threading.Thread(target=_tell, args=(loop,), name="goloop-watchdog", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return False
    return True


def report_end(loop: Any, seconds: float) -> None:
    """The loop was blocked."""
    with _lock:
        begin = _begin(loop, seconds)
        known = loop._last_block or begin
        loop._last_block = None
    if known is None:
        return
    gc = max(known.gc, loop._block()[2])
    fields = {**known._fields(), "duration": seconds, "gc": min(gc, seconds), "ended": True}
    end = Blocked(**fields)
    if begin is None:
        _publish(end)
    else:
        _publish(begin, end)


def _tell(loop: Any) -> None:
    with _lock:
        try:
            begin = _begin(loop)
        except RuntimeError:
            if not loop.is_closed():
                raise
            return  # closed before this thread ran; report_end() has told of the block
    if begin is not None:
        _publish(begin)


def _begin(loop: Any, ended: float | None = None) -> Blocked | None:
    """The block that goes on, unless it was told already.  With the lock."""
    serial, seconds, gc, stack, holder = loop._block()
    if serial <= loop._told_block or (seconds == 0.0 and ended is None):
        return None
    loop._told_block = serial
    if not stack and ended is None:
        # C can't read it where there is no GIL.
        stack = looking.thread_stack(loop._thread_id or 0)[0][::-1]
    seconds = ended or seconds
    task, awaiters = _who(loop)
    begin = Blocked(
        loop=loop,
        serial=serial,
        thread_id=loop._thread_id or 0,
        started=time.time() - seconds,
        duration=seconds,
        ended=False,
        gc=min(gc, seconds),
        stack=tuple(Frame(*entry) for entry in stack),
        gil_holder=tuple(Frame(*entry) for entry in holder),
        task=task,
        awaiters=awaiters,
    )
    loop._last_block = begin
    return begin


def _who(loop: Any) -> tuple[str | None, tuple[str, ...]]:
    """The task that runs, and the tasks that await it."""
    task: Any = asyncio.current_task(loop)
    if task is None:
        return None, ()
    everybody = asyncio.all_tasks(loop)
    names: list[str] = []
    if len(everybody) <= _TASKS_MAX:
        waiting = looking.waiting_tasks(everybody)
        seen, found = {id(task)}, [task]
        while found and len(names) < _AWAITERS_MAX:
            for each in looking.awaiters(found.pop(0), waiting):
                if id(each) not in seen:
                    seen.add(id(each))
                    names.append(each.get_name())
                    found.append(each)
    return task.get_name(), tuple(names)


def _publish(*several: Blocked) -> None:
    """Tells of them, in the order of the calls and one at a time.

    If another thread is doing so already, that thread goes on: the loop waits for no subscriber.
    """
    global _publishing
    with _lock:
        _unpublished.extend(several)
        if _publishing:
            return
        _publishing = True
    while True:
        with _lock:
            if not _unpublished:
                _publishing = False
                return
            blocked = _unpublished.popleft()
        _deliver(blocked)


def _times_shown(blocked: Blocked) -> int:
    """How often a block in these calls was shown since its stack was; 1: it is to be shown."""
    if not blocked.stack:
        return 1
    calls, now = tuple(frame[:2] for frame in blocked.stack), time.monotonic()
    since, times = _shown.get(calls, (now, 0))
    if now - since > _REPEATS_SECONDS:
        since, times = now, 0
    if len(_shown) >= _PLACES_MAX and calls not in _shown:
        _shown.clear()
    _shown[calls] = since, times + 1
    return times + 1


def _extra(blocked: Blocked) -> dict[str, Any]:
    """What a record of the log has as attributes, for formatters and services that read those."""
    at = blocked.stack[-1] if blocked.stack else Frame("", "", 0)
    return {
        "goloop_block": blocked.serial,
        "goloop_loop": hex(id(blocked.loop)),
        "goloop_thread": blocked.thread_id,
        "goloop_task": blocked.task,
        "goloop_function": at.function,
        "goloop_file": at.file,
        "goloop_line": at.line,
        "goloop_seconds": blocked.duration,
        "goloop_gc": blocked.gc,
        "goloop_ended": blocked.ended,
    }


def _deliver(blocked: Blocked) -> None:
    extra = _extra(blocked)
    if blocked.ended:
        logger.warning("%s", blocked, extra=extra)
    elif (times := _times_shown(blocked)) > 1:
        again = f"in {blocked.stack[-1].function} again: {times} times in {_REPEATS_SECONDS:.0f} s"
        logger.warning("%s, %s", blocked, again, extra=extra)
    else:
        logger.warning("%s:\n%s", blocked, blocked.format_stack(), extra=extra)
    for callback in tuple(_subscribers.values()):
        try:
            callback(blocked)
        except Exception:
            logger.exception("a subscriber of the watchdog has failed")
