"""The watchdog reports an iteration of a loop that lasts too long, while it lasts.

A C thread, the monitor, detects such an iteration (pybridge/golib/watchdog.go) and records the
Python stack of the loop's thread, without the GIL. All further work needs the GIL and is done here:

    Loop._blocked()      on a separate thread, while the loop is blocked: at the limit, and at two,
                         four and eight times the limit
    Loop._block_ended()  on the loop's thread, after the iteration

The first and the last create a `Blocked`, which is logged ("goloop", as a warning; at INFO if the
loop imports modules before its first event) and passed to the subscribers, once for each such
iteration and in this order. Later stacks are logged if their calls differ. Loop._set_report_state()
reports the progress of the log: if the GIL is never released, or the log does not accept the
report, C writes the stack to stderr.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import os
import sys
import threading
import time

from ._internal.frames import Frame, read_frames
from ._internal.helper_threads import HelperThread
from ._internal.observe import profiling
from ._internal.records import Record
from ._internal.tasks import call_graph

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Subscriber = Callable[["Blocked"], object]

__all__ = ("Blocked", "Frame", "subscribe")

logger = logging.getLogger("goloop")

# With more tasks the search for the awaiters of a task would itself take long.
_TASKS_MAX = 20_000
_AWAITERS_MAX = 16

# The progress of the log, for Loop._set_report_state().
_LOG_WAITS, _LOGGED = 1, 2

# The maximum of own frames in a record, innermost; Blocked.stack and `goloop_stack` have all.
_SHARES_MAX = 3
_FRAMES_MAX = 12
_CALLERS_MAX = 2

# Repeated blocks in the same calls are logged in one line for this many seconds, without the stack.
_REPEATS_SECONDS = 10.0
_PLACES_MAX = 100


class Blocked(Record):
    """An iteration of a loop that lasts, or has lasted, longer than the loop's limit.

    str() returns the sentence in the log. The attributes are read-only. Since 0.3.0.
    """

    loop: Any
    """The loop."""
    serial: int
    """The number of this blocked iteration among those of its loop, from 1."""
    thread_id: int
    """threading.get_ident() of the loop's thread."""
    thread_name: str
    """The name of the loop's thread; "" if the threading module does not know it."""
    started: float
    """The time when the iteration began, as time.time()."""
    duration: float
    """Seconds up to now, or in total if it has ended."""
    ended: bool
    """True if the iteration has ended."""
    cpu: float | None
    """CPU seconds of the loop's thread in the iteration, without the first hundredth of the limit;
    None if the system does not report them."""
    gc: float
    """Seconds in Python's garbage collector."""
    callbacks: int
    """Number of callbacks that the iteration has begun so far, or ran in total if it has ended."""
    callback_time: float
    """Seconds of the last callback up to now, or up to the last sample of the stack."""
    stack: tuple[Frame, ...]
    """The stack of the loop's thread when the limit was reached, innermost last. Empty if it is
    unknown."""
    later: tuple[tuple[float, tuple[Frame, ...]], ...]
    """The stacks at two, four and eight times the limit: (seconds since `started`, stack)."""
    gil_holder: tuple[Frame, ...]
    """The stack of another thread that held the GIL half a limit later. Empty if the GIL was free
    or the loop's thread held it, and always on Python 3.12, which has no record of it."""
    task: str | None
    """The name of the running task, or None."""
    awaiters: tuple[str, ...]
    """The names of the tasks that await this task, directly or indirectly, nearest first."""
    shares: tuple[tuple[float, Frame], ...]
    """The time by function: (seconds, innermost frame of the program's own code), descending, from
    the samples of the monitor. Empty without samples, and until the block has ended."""
    importing: bool
    """True if the loop imported modules before its first event, like a server that loads the
    application in the loop. No client waits yet, so the block is logged at the level INFO only."""

    def __str__(self) -> str:
        """Return the sentence of the log about the first stack."""
        template, values = _message(self, self.stack)
        return template % values

    def format_stack(self) -> str:
        """Return the stack in the format of a traceback, or a sentence that it is unknown.

        It begins below the call that runs the loop, if the stack has that call.

        Returns:
            Several lines, without a line feed at the end.
        """
        text = _format(_below_the_loop(self.stack)) or "  (its Python stack is not available)"
        if self.gil_holder:
            text += "\nanother thread holds the GIL:\n" + _format(self.gil_holder)
        return text


def _below_the_loop(stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Return the stack without the frames of the program's start, which are always the same."""
    for index in range(len(stack) - 1, 0, -1):
        if stack[index - 1].function == "Running.run_forever":
            return stack[index:]
    return stack


def _is_importing(stack: tuple[Frame, ...]) -> bool:
    """Return true if the iteration of the loop is inside an import.

    An import that has called the loop does not count; IsImporting in pybridge/golib/blockreport
    has the same rule.
    """
    return any(
        frame.function == "_find_and_load" and frame.file == "<frozen importlib._bootstrap>"
        for frame in _below_the_loop(stack)
    )


def _call_path(stack: tuple[Frame, ...]) -> tuple[tuple[str, str], ...]:
    """Return the functions and files of a stack, without lines, to compare places by."""
    return tuple((frame.function, frame.file) for frame in _below_the_loop(stack))


def _format(stack: tuple[Frame, ...]) -> str:
    """Return a stack in the format of a traceback."""
    return "\n".join(
        f'  File "{frame.file}", line {frame.line}, in {frame.function}' for frame in stack
    )


# ---- texts of the log ------------------------------------------------------------------------


def _innermost_own_call(stack: tuple[Frame, ...]) -> tuple[str, int, str]:
    """Return the innermost call of the program's own code, or of any code, as three parts.

    These are its name and file, the line, and the closing parenthesis with the callers.
    """
    stack = _below_the_loop(stack)
    own = [frame for frame in reversed(stack) if call_graph.library_of(frame.file) is None]
    at, *callers = own or [stack[-1]]
    rest = "".join(f" < {frame.function}:{frame.line}" for frame in callers[:_CALLERS_MAX])
    return f"{at.function} ({'/'.join(at.file.split('/')[-2:])}", at.line, ")" + rest


def _format_own_frames(stack: tuple[Frame, ...]) -> str:
    """Return the frames of the program's own code and the innermost frame, as a traceback.

    The other frames are only counted.
    """
    stack = _below_the_loop(stack)
    lines: list[str] = []
    skipped: list[str] = []
    for index, frame in enumerate(stack):
        library = call_graph.library_of(frame.file)
        if library is not None and index < len(stack) - 1:
            skipped.append(library)
            continue
        if skipped:
            lines.append(_skipped_line(skipped))
            skipped = []
        lines.append(_format((frame,)))
    if len(lines) > _FRAMES_MAX:
        lines = ["  ...", *lines[-_FRAMES_MAX:]]
    return "\n".join(lines)


def _skipped_line(libraries: list[str]) -> str:
    """Return the line for skipped frames of libraries."""
    calls = "1 call" if len(libraries) == 1 else f"{len(libraries)} calls"
    return f"  ... {calls} in {', '.join(dict.fromkeys(libraries))}"


def _message(blocked: Blocked, stack: tuple[Frame, ...]) -> tuple[str, tuple[Any, ...]]:
    """Return the log's format and its arguments.

    The format has the name of the function that blocks the loop, so that services, which group
    records by their format, put the blocks of one function into one group.
    """
    text = "the event loop of process %d " + ("was" if blocked.ended else "has been")
    text += " importing modules" if blocked.importing else " blocked"
    parts = [] if blocked.cpu is None else [f"{blocked.cpu:.3f} s of CPU"]
    if blocked.gc >= 0.001:
        parts.append(f"{blocked.gc:.3f} s in the garbage collector")
    values: list[Any] = [os.getpid(), blocked.duration, f" ({', '.join(parts)})" if parts else ""]
    text += " for %.3f s%s"
    if stack:
        name, line, rest = _innermost_own_call(stack)
        text += f" in {name.replace('%', '%%')}:%d%s"
        values += line, rest
    more = []
    if blocked.importing:
        more.append("before its first event")
    elif _is_importing(stack):
        more.append("in an import")
    before = blocked.stack
    shown = _innermost_own_call(before) if before else None
    for seconds, later in blocked.later if blocked.ended else ():
        call = _innermost_own_call(later) if later else shown
        # If only calls of libraries differ, the text would be the same.
        if call and call != shown and _call_path(later) != _call_path(before):
            name, line, rest = shown = call
            more.append(f"after {seconds:.3f} s in {name}:{line}{rest}")
        before = later
    if blocked.ended and len(blocked.shares) > 1 and blocked.duration > 0:
        several = [
            f"{min(1.0, spent / blocked.duration):.0%} {frame.function} (line {frame.line})"
            for spent, frame in blocked.shares[:_SHARES_MAX]
            if spent >= blocked.duration / 20 and frame.file
        ]
        if len(several) > 1:
            more.append("time: " + ", ".join(several))
    # A single long callback is not mentioned.
    if blocked.callbacks > 1 and blocked.callback_time < blocked.duration / 2:
        more.append(f"{blocked.callbacks} callbacks in this iteration")
        if not blocked.ended:
            more[-1] += f", this one {max(1, round(blocked.callback_time * 1000))} ms"
    if blocked.task is not None:
        more.append(f"task {blocked.task!r}")
    if blocked.awaiters:
        more.append("awaited by " + ", ".join(map(repr, blocked.awaiters)))
    values.append("".join(f", {each}" for each in more))
    values += _loop_number_of(blocked.loop), blocked.thread_name or "?", blocked.serial
    return text + "%s [loop %d, %s, block %d]", tuple(values)


def _loop_number_of(loop: Any) -> int:
    """Return the loop's number in this process, 0 if it is not goloop's."""
    number: int = getattr(loop, "_loop_number", 0)
    return number


def _record_attributes(blocked: Blocked, stack: tuple[Frame, ...]) -> dict[str, Any]:
    """Return the attributes of a log record, for formatters and services that read them."""
    at = stack[-1] if stack else Frame("", "", 0)
    return {
        "goloop_block": blocked.serial,
        "goloop_loop": _loop_number_of(blocked.loop),
        "goloop_thread": blocked.thread_id,
        "goloop_thread_name": blocked.thread_name,
        "goloop_task": blocked.task,
        "goloop_function": at.function,
        "goloop_file": at.file,
        "goloop_line": at.line,
        "goloop_stack": _format(_below_the_loop(stack)),
        "goloop_seconds": blocked.duration,
        "goloop_cpu": blocked.cpu,
        "goloop_gc": blocked.gc,
        "goloop_callbacks": blocked.callbacks,
        "goloop_shares": [(frame.function, spent) for spent, frame in blocked.shares],
        "goloop_ended": blocked.ended,
        "goloop_importing": blocked.importing,
    }


def _log(blocked: Blocked, look: int) -> None:
    """Log a block as a warning, or at INFO if `blocked.importing` is true.

    `look` selects the stack: 0 is `blocked.stack`, n is number n of `blocked.later` (from 1). While
    the block lasts, and not during an import, the stack follows the line, with the stack of the
    thread that holds the GIL, if known; for a repeated stack the line has the number of repeats
    instead. Does nothing, and counts no repeat, if the logger is not enabled for the level.
    """
    level = logging.INFO if blocked.importing else logging.WARNING
    if not logger.isEnabledFor(level):
        return
    stack = blocked.later[look - 1][1] if look else blocked.stack
    text, values = _message(blocked, stack)
    shown = None
    if not blocked.ended and not blocked.importing:
        if (times := _count_repeats(stack)) > 1:
            text += ", %d times in %d s"
            values = *values, times, int(_REPEATS_SECONDS)
        else:
            shown = _format_own_frames(stack) or "  (its Python stack is not available)"
            if blocked.gil_holder:
                shown += "\nanother thread holds the GIL:\n" + _format_own_frames(
                    blocked.gil_holder
                )
    record = logger.makeRecord(
        logger.name,
        level,
        __file__,
        0,
        text,
        values,
        None,
        extra=_record_attributes(blocked, stack),
    )
    # Formatters append this text below the line.
    record.exc_text = shown
    logger.handle(record)


# ---- subscribers -----------------------------------------------------------------------------


_lock = threading.Lock()
_subscribers: dict[object, Subscriber] = {}
# Reports to deliver, with the index of the later stack, or 0.
_unpublished: collections.deque[tuple[Blocked, int]] = collections.deque()
_publishing = False
# By calls: the time when the stack of a block was shown, and the number of blocks since then. Used
# only by the publishing thread.
_shown: dict[tuple[Any, ...], tuple[float, int]] = {}


def _reset_in_child() -> None:
    """Reset the state after a fork: publishing threads exist in the parent only."""
    global _lock, _publishing
    _lock, _publishing = threading.Lock(), False
    _unpublished.clear()


os.register_at_fork(after_in_child=_reset_in_child)


def subscribe(callback: Subscriber) -> Callable[[], None]:
    """Call a function for each blocked iteration of any loop.

    It is called twice, on a thread of goloop or on the loop's own: while the loop is blocked, and
    after the end; if the GIL was not available meanwhile, both times after the end. Exceptions of
    the function are logged. goloop's thread blocks all signals, and so do the threads and child
    processes that the function starts there. `Loop.set_watchdog()` sets the limit. Since 0.3.0.

    Args:
        callback: Called with a `Blocked`; its result is ignored.

    Returns:
        A function that ends the subscription; a second call does nothing.
    """
    this = object()
    _subscribers[this] = callback

    def unsubscribe() -> None:
        """Remove the subscription; a second call does nothing."""
        _subscribers.pop(this, None)

    return unsubscribe


def report(loop: Any) -> None:
    """Report the blocked loop on a new thread, because subscribers may take long.

    If no thread can be started, C writes the report to stderr, as for a GIL that is not released.
    """
    with contextlib.suppress(RuntimeError):
        HelperThread("goloop-watchdog", _report_block, loop).begin()


def report_end(loop: Any, seconds: float) -> None:
    """Report that a block of the loop has ended after `seconds`.

    If its begin was not reported yet, that is reported first.
    """
    with _lock:
        new = [(blocked, look) for blocked, look in _collect_reports(loop, seconds) if look == 0]
        known = loop._last_block
        loop._last_block = None
    if known is not None:
        ended = known._replace(
            duration=seconds,
            gc=min(known.gc, seconds),
            shares=_shares(loop, seconds),
            ended=True,
        )
        _publish(*new, (ended, 0))


def _report_block(thread: HelperThread, loop: Any) -> None:
    """Report the current block of a loop; the body of the watchdog's thread."""
    with _lock:
        try:
            new = _collect_reports(loop)
        except RuntimeError:
            if not loop.is_closed():
                raise
            return  # closed before this thread ran; report_end() has reported the block
        waits = loop._report_in_progress or any(each.loop is loop for each, _ in _unpublished)
        known = loop._last_block
    if new:
        thread.is_away = True  # in log handlers and subscribers
        _publish(*new)
        thread.is_away = False
    elif known is not None and not waits:
        _set_log_progress(known, _LOGGED)  # the later stack does not differ


def _collect_reports(loop: Any, ended: float | None = None) -> list[tuple[Blocked, int]]:
    """Return the new reports about a block that continues or has just ended; needs the lock.

    A report has the block, and the position of its new later stack or 0. The loop's block is
    updated. `ended` is the duration of a block that has ended. RuntimeError: the loop is closed.
    """
    text, seconds, gc, starting = loop._block()
    head, *looks = text.split("\x1e")
    if not looks:
        return []
    serial, callbacks, callback_ns, cpu_ns = map(int, head.split())
    if ended is None and (seconds == 0.0 or serial < loop._reported_block):
        return []
    seconds = ended or seconds
    stacks: list[tuple[float, tuple[Frame, ...]]] = []
    for look in looks:
        ns, _, frames = look.partition("\n")
        stacks.append((int(ns) / 1e9, tuple(Frame(*entry) for entry in read_frames(frames))))
    _, holder = stacks.pop()
    if stacks and not stacks[-1][1] and ended is None:
        # Without a GIL, C cannot read the stack.
        read = call_graph.thread_stack(loop._running_thread)[0][::-1]
        stacks[-1] = stacks[-1][0], tuple(Frame(*entry) for entry in read)
    now = {
        "duration": seconds,
        "cpu": None if cpu_ns < 0 else min(cpu_ns / 1e9, seconds),
        "gc": min(gc, seconds),
        "callbacks": callbacks,
        "callback_time": min(callback_ns / 1e9, seconds),
    }
    new = []
    last = loop._last_block
    if serial > loop._reported_block:
        loop._reported_block = serial
        task, awaiters = _task_and_awaiters(loop)
        last = Blocked(
            loop=loop,
            serial=serial,
            thread_id=loop._thread_id or 0,
            thread_name=_thread_name(loop._running_thread),
            started=time.time() - seconds,
            ended=False,
            stack=stacks[0][1] if stacks else (),
            later=(),
            gil_holder=holder,
            task=task,
            awaiters=awaiters,
            shares=(),
            importing=starting and bool(stacks) and _is_importing(stacks[0][1]),
            **now,
        )
        new.append((last, 0))
    if last is None:
        return []
    last = last._replace(**now)
    for each in stacks[1 + len(last.later) :]:
        before = last.later[-1][1] if last.later else last.stack
        importing = last.importing and (not each[1] or _is_importing(each[1]))
        last = last._replace(later=(*last.later, each), importing=importing)
        if each[1] and _call_path(each[1]) != _call_path(before):
            new.append((last, len(last.later)))
    loop._last_block = last
    return new


def _shares(loop: Any, seconds: float) -> tuple[tuple[float, Frame], ...]:
    """Return the time by function in the iteration that has just ended; () if that fails."""
    try:
        return profiling.shares(profiling.snapshot(), loop._loop_number, seconds)
    except Exception:  # the report is more important
        return ()


def _thread_name(ident: int) -> str:
    """Return the name of a thread; "" if the threading module does not know it."""
    names = (thread.name for thread in threading.enumerate() if thread.ident == ident)
    return next(names, "")


def _task_and_awaiters(loop: Any) -> tuple[str | None, tuple[str, ...]]:
    """Return the names of the running task and of the tasks that await it; None, () without one.

    The search ends at _AWAITERS_MAX names; in a loop with more than _TASKS_MAX tasks there is none.
    """
    task: Any = asyncio.current_task(loop)
    if task is None:
        return None, ()
    try:
        all_tasks = asyncio.all_tasks(loop)
    except RuntimeError:  # the set of tasks changes too fast
        return task.get_name(), ()
    names: list[str] = []
    if len(all_tasks) <= _TASKS_MAX:
        waiting = call_graph.waiting_tasks(all_tasks)
        seen, found = {id(task)}, [task]
        while found and len(names) < _AWAITERS_MAX:
            for each in call_graph.awaiters(found.pop(0), waiting):
                if id(each) not in seen:
                    seen.add(id(each))
                    names.append(each.get_name())
                    found.append(each)
    return task.get_name(), tuple(names)


def _publish(*several: tuple[Blocked, int]) -> None:
    """Deliver reports in the order of the calls, and one at a time.

    If another thread is already delivering, that thread delivers these reports, too, so that the
    loop does not wait for subscribers.
    """
    global _publishing
    mine = False
    try:
        with _lock:
            _unpublished.extend(several)
            if _publishing:
                return
            _publishing = mine = True
        while True:
            with _lock:
                if not _unpublished:
                    _publishing = mine = False
                    return
                blocked, look = _unpublished.popleft()
            _deliver(blocked, look)
    finally:
        if mine:  # after an interrupt the next caller delivers the remaining reports
            _publishing = False


def _count_repeats(stack: tuple[Frame, ...]) -> int:
    """Count a block in these calls; return their number since the stack was shown.

    1 means that the stack must be shown now.
    """
    if not stack:
        return 1
    calls, now = _call_path(stack), time.monotonic()
    since, times = _shown.get(calls, (now, 0))
    if now - since > _REPEATS_SECONDS:
        since, times = now, 0
    if len(_shown) >= _PLACES_MAX and calls not in _shown:
        _shown.clear()
    _shown[calls] = since, times + 1
    return times + 1


def _set_log_progress(blocked: Blocked, how: int) -> None:
    """Report the progress of a block's log message to C; `how` is _LOG_WAITS or _LOGGED."""
    with contextlib.suppress(RuntimeError, AttributeError):  # closed, or not goloop's loop
        blocked.loop._report_in_progress = how == _LOG_WAITS
        blocked.loop._set_report_state(blocked.serial, how)


def _deliver(blocked: Blocked, look: int) -> None:
    """Log a report, and if `look` is 0 also pass it to the subscribers.

    `look` is the argument of _log(). Exceptions of log handlers and subscribers are only reported.
    """
    # A log handler may wait forever, for the lock of another one that blocks the loop.
    _set_log_progress(blocked, _LOG_WAITS)
    try:
        _log(blocked, look)
    except Exception:
        sys.excepthook(*sys.exc_info())
    _set_log_progress(blocked, _LOGGED)
    if look:
        return
    # On free-threaded Python list() copies the values under the dict's lock; tuple() would not.
    for callback in list(_subscribers.values()):
        try:
            try:
                callback(blocked)
            except BaseException:  # even after SystemExit the other subscribers are called
                logger.exception("a subscriber of the watchdog raised an exception")
        except Exception:
            sys.excepthook(*sys.exc_info())
