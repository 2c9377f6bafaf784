"""The watchdog: an iteration of a loop that lasts too long is reported while it lasts.

A thread of C sees it (pybridge/golib/watchdog.go) and notes the Python stack of the loop's thread,
without the GIL.  The rest, here, needs the GIL:

    Loop._blocked()      on a separate thread, while the loop is blocked: at the limit, and at two,
                         four and eight times the limit
    Loop._block_ended()  on the loop's thread, after the iteration

The first and the last make a `Blocked`, which goes to the log ("goloop", as a warning) and to the
subscribers, once for each such iteration and in this order.  The later stacks go to the log where
their calls are others.  Loop._block_told() says how far the log is: where something keeps the
GIL, or the log does not take the report, C writes the stack to stderr.
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
from ._internal.tasks import call_graph

# Each program on goloop imports this module, so nothing here makes its classes by exec(), as
# dataclasses and typing.NamedTuple do: these took as long as a loop.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Subscriber = Callable[["Blocked"], object]

__all__ = ("Blocked", "Frame", "subscribe")

logger = logging.getLogger("goloop")

# Beyond, looking for the awaiters of one task would take long itself.
_TASKS_MAX = 20_000
_AWAITERS_MAX = 16

# How far the log is, for Loop._block_told().
_WAITS, _TOLD = 1, 2

# A record shows so many own frames, the innermost; Blocked.stack and `goloop_stack` have all.
_SHARES_MAX = 3
_FRAMES_MAX = 12
_CALLERS_MAX = 2

# A block in the same calls, of which the stack was shown in so many seconds before, has one line.
_REPEATS_SECONDS = 10.0
_PLACES_MAX = 100


class Blocked:
    """An iteration of a loop that lasts, or has lasted, longer than the loop's limit.

    As a string it is the sentence that the log has.  Its attributes can't be changed.  Since 0.3.0.
    """

    __slots__ = (
        *("loop", "serial", "thread_id", "thread_name", "started", "duration", "ended", "cpu"),
        *("gc", "callbacks", "callback_time", "stack", "later", "gil_holder", "task", "awaiters"),
        *("shares", "importing"),
    )

    loop: Any
    """The loop."""
    serial: int
    """The number of this blocked iteration among those of its loop, from 1."""
    thread_id: int
    """threading.get_ident() of the loop's thread."""
    thread_name: str
    """The name of the loop's thread; "" if Python doesn't know the thread."""
    started: float
    """When the iteration began, as time.time()."""
    duration: float
    """Seconds: up to now, or in all if it has ended."""
    ended: bool
    """Whether it has ended."""
    cpu: float | None
    """Seconds of processor time that the loop's thread has used of it; None where the system does
    not tell.  What the first hundredth of the limit took is left out."""
    gc: float
    """Seconds of it in Python's garbage collector."""
    callbacks: int
    """How many callbacks the iteration has begun, or had in all if it has ended."""
    callback_time: float
    """Seconds that the last of them has lasted, or had when the stack was last read."""
    stack: tuple[Frame, ...]
    """What the loop's thread did when it reached the limit, innermost last.  Empty if it is not
    known."""
    later: tuple[tuple[float, tuple[Frame, ...]], ...]
    """What it did at two, four and eight times the limit: seconds since `started`, the stack."""
    gil_holder: tuple[Frame, ...]
    """What another thread did that kept the GIL half a limit later.  Empty if the GIL was free or
    the loop's thread kept it, and always on Python 3.12, which doesn't tell."""
    task: str | None
    """The name of the task that ran, if one did."""
    awaiters: tuple[str, ...]
    """The names of the tasks that await it, directly or indirectly, nearest first."""
    shares: tuple[tuple[float, Frame], ...]
    """Whose the time was: seconds and the function of the program's own code that was innermost,
    the greatest first, by the looks of the monitor.  Empty if it did not look, and until the block
    has ended."""
    importing: bool
    """Whether the loop imported modules before its first event, as a server does that loads the
    application in the loop: no client waits yet, so the log has a line of information only."""

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
        template, values = _message(self, self.stack)
        return template % values

    def format_stack(self) -> str:
        """The stack in the words of a traceback, or a sentence that there is none.

        It begins below the call that runs the loop, where the stack has that.

        Returns:
            Several lines, without a line feed at the end.
        """
        text = _format(_below_the_loop(self.stack)) or "  (its Python stack is not available)"
        if self.gil_holder:
            text += "\nanother thread holds the GIL:\n" + _format(self.gil_holder)
        return text


def _below_the_loop(stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Without the frames of the program's start, which are the same in each report."""
    for index in range(len(stack) - 1, 0, -1):
        if stack[index - 1].function == "Running.run_forever":
            return stack[index:]
    return stack


def _imports(stack: tuple[Frame, ...]) -> bool:
    """Whether an import is in progress; pybridge/golib/block_text.go has the same rule."""
    return any(
        frame.function == "_find_and_load" and frame.file == "<frozen importlib._bootstrap>"
        for frame in _below_the_loop(stack)
    )


def _calls(stack: tuple[Frame, ...]) -> tuple[tuple[str, str], ...]:
    """What tells one place from another: a loop in a function has many lines."""
    return tuple((frame.function, frame.file) for frame in _below_the_loop(stack))


def _format(stack: tuple[Frame, ...]) -> str:
    return "\n".join(
        f'  File "{frame.file}", line {frame.line}, in {frame.function}' for frame in stack
    )


# ---- what the log has ------------------------------------------------------------------------


def _where(stack: tuple[Frame, ...]) -> tuple[str, int, str]:
    """The innermost call of the program's own code, or of any: its name and file, the line, and in
    words the closing parenthesis and what has called it."""
    stack = _below_the_loop(stack)
    own = [frame for frame in reversed(stack) if call_graph.library_of(frame.file) is None]
    at, *callers = own or [stack[-1]]
    rest = "".join(f" < {frame.function}:{frame.line}" for frame in callers[:_CALLERS_MAX])
    return f"{at.function} ({'/'.join(at.file.split('/')[-2:])}", at.line, ")" + rest


def _short(stack: tuple[Frame, ...]) -> str:
    """The frames of the program's own code, and the innermost; of libraries, how many."""
    stack = _below_the_loop(stack)
    lines: list[str] = []
    skipped: list[str] = []
    for index, frame in enumerate(stack):
        library = call_graph.library_of(frame.file)
        if library is not None and index < len(stack) - 1:
            skipped.append(library)
            continue
        if skipped:
            lines.append(_skipped(skipped))
            skipped = []
        lines.append(_format((frame,)))
    if len(lines) > _FRAMES_MAX:
        lines = ["  ...", *lines[-_FRAMES_MAX:]]
    return "\n".join(lines)


def _skipped(libraries: list[str]) -> str:
    calls = "1 call" if len(libraries) == 1 else f"{len(libraries)} calls"
    return f"  ... {calls} in {', '.join(dict.fromkeys(libraries))}"


def _message(blocked: Blocked, stack: tuple[Frame, ...]) -> tuple[str, tuple[Any, ...]]:
    """The log's format and its arguments.

    The format is the same for the blocks of one function, and for those alone: services that group
    records do so by it.
    """
    text = "the event loop of process %d " + ("was" if blocked.ended else "has been")
    text += " importing modules" if blocked.importing else " blocked"
    parts = [] if blocked.cpu is None else [f"{blocked.cpu:.3f} s of CPU"]
    if blocked.gc >= 0.001:
        parts.append(f"{blocked.gc:.3f} s in the garbage collector")
    values: list[Any] = [os.getpid(), blocked.duration, f" ({', '.join(parts)})" if parts else ""]
    text += " for %.3f s%s"
    if stack:
        name, line, rest = _where(stack)
        text += f" in {name.replace('%', '%%')}:%d%s"
        values += line, rest
    more = []
    if blocked.importing:
        more.append("before its first event")
    elif _imports(stack):
        more.append("in an import")
    before = blocked.stack
    for seconds, later in blocked.later if blocked.ended else ():
        if later and _calls(later) != _calls(before):
            name, line, rest = _where(later)
            more.append(f"after {seconds:.3f} s in {name}:{line}{rest}")
        before = later
    if blocked.ended and len(blocked.shares) > 1 and blocked.duration > 0:
        several = [
            f"{min(1.0, spent / blocked.duration):.0%} in {frame.function}:{frame.line}"
            for spent, frame in blocked.shares[:_SHARES_MAX]
            if spent >= blocked.duration / 20 and frame.file
        ]
        if len(several) > 1:
            more.append("of it " + " and ".join(several))
    # One long callback needs no word.
    if blocked.callbacks > 1 and blocked.callback_time < blocked.duration / 2:
        more.append(f"{blocked.callbacks} callbacks in this iteration")
        if not blocked.ended:
            more[-1] += f", this one {max(1, round(blocked.callback_time * 1000))} ms"
    if blocked.task is not None:
        more.append(f"task {blocked.task!r}")
    if blocked.awaiters:
        more.append("awaited by " + ", ".join(map(repr, blocked.awaiters)))
    values.append("".join(f", {each}" for each in more))
    values += _number(blocked.loop), blocked.thread_name or "?", blocked.serial
    return text + "%s [loop %d, %s, block %d]", tuple(values)


def _number(loop: Any) -> int:
    number: int = getattr(loop, "_loop_number", 0)
    return number


def _extra(blocked: Blocked, stack: tuple[Frame, ...]) -> dict[str, Any]:
    """What a record of the log has as attributes, for formatters and services that read those."""
    at = stack[-1] if stack else Frame("", "", 0)
    return {
        "goloop_block": blocked.serial,
        "goloop_loop": _number(blocked.loop),
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
    level = logging.INFO if blocked.importing else logging.WARNING
    if not logger.isEnabledFor(level):
        return
    stack = blocked.later[look - 1][1] if look else blocked.stack
    text, values = _message(blocked, stack)
    shown = None
    if not blocked.ended and not blocked.importing:
        if (times := _times_shown(stack)) > 1:
            text += ", %d times in %d s"
            values = *values, times, int(_REPEATS_SECONDS)
        else:
            shown = _short(stack) or "  (its Python stack is not available)"
            if blocked.gil_holder:
                shown += "\nanother thread holds the GIL:\n" + _short(blocked.gil_holder)
    record = logger.makeRecord(
        logger.name, level, __file__, 0, text, values, None, extra=_extra(blocked, stack)
    )
    # Formatters put it below the line.
    record.exc_text = shown
    logger.handle(record)


# ---- who is told -----------------------------------------------------------------------------


_lock = threading.Lock()
_subscribers: dict[object, Subscriber] = {}
# With the number of the later stack, or 0.
_unpublished: collections.deque[tuple[Blocked, int]] = collections.deque()
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
    raises is logged.  `Loop.set_watchdog()` says how long an iteration may last.  Since 0.3.0.

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


def report(loop: Any) -> None:
    """The loop is blocked: tells it on a thread that Python knows, for subscribers may take long.

    Where there are too many threads C writes the report, as it does where the GIL is kept.
    """
    thread = threading.Thread(target=_tell, args=(loop,), name="goloop-watchdog", daemon=True)
    with contextlib.suppress(RuntimeError):
        thread.start()


def report_end(loop: Any, seconds: float) -> None:
    """The loop was blocked."""
    with _lock:
        new = [(blocked, look) for blocked, look in _look(loop, seconds) if look == 0]
        known = loop._last_block
        loop._last_block = None
    if known is not None:
        fields = {**known._fields(), "duration": seconds, "gc": min(known.gc, seconds)}
        fields["shares"] = _shares(loop, seconds)
        _publish(*new, (Blocked(**{**fields, "ended": True}), 0))


def _tell(loop: Any) -> None:
    with _lock:
        try:
            new = _look(loop)
        except RuntimeError:
            if not loop.is_closed():
                raise
            return  # closed before this thread ran; report_end() has told of the block
        waits = loop._report_in_progress or any(each.loop is loop for each, _ in _unpublished)
        known = loop._last_block
    if new:
        _publish(*new)
    elif known is not None and not waits:
        _note(known, _TOLD)  # a later stack that is no news


def _look(loop: Any, ended: float | None = None) -> list[tuple[Blocked, int]]:
    """What is to be told of the block that goes on, or has just ended.  With the lock."""
    told, seconds, gc, starting = loop._block()
    head, *looks = told.split("\x1e")
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
        # C can't read it where there is no GIL.
        read = call_graph.thread_stack(loop._thread_id or 0)[0][::-1]
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
        task, awaiters = _who(loop)
        last = Blocked(
            loop=loop,
            serial=serial,
            thread_id=loop._thread_id or 0,
            thread_name=_thread_name(loop._thread_id),
            started=time.time() - seconds,
            ended=False,
            stack=stacks[0][1] if stacks else (),
            later=(),
            gil_holder=holder,
            task=task,
            awaiters=awaiters,
            shares=(),
            importing=starting and bool(stacks) and _imports(stacks[0][1]),
            **now,
        )
        new.append((last, 0))
    if last is None:
        return []
    last = Blocked(**{**last._fields(), **now})
    for each in stacks[1 + len(last.later) :]:
        before = last.later[-1][1] if last.later else last.stack
        importing = last.importing and (not each[1] or _imports(each[1]))
        fields = {"later": (*last.later, each), "importing": importing}
        last = Blocked(**{**last._fields(), **fields})
        if each[1] and _calls(each[1]) != _calls(before):
            new.append((last, len(last.later)))
    loop._last_block = last
    return new


def _shares(loop: Any, seconds: float) -> tuple[tuple[float, Frame], ...]:
    try:
        # On the loop's own thread: one that reports must import nothing.
        from ._internal.metrics import profiling

        return profiling.shares(profiling.snapshot(), loop._loop_number, seconds)
    except Exception:  # the report matters more
        return ()


def _thread_name(ident: int | None) -> str:
    names = (thread.name for thread in threading.enumerate() if thread.ident == ident)
    return next(names, "")


def _who(loop: Any) -> tuple[str | None, tuple[str, ...]]:
    """The task that runs, and the tasks that await it."""
    task: Any = asyncio.current_task(loop)
    if task is None:
        return None, ()
    try:
        everybody = asyncio.all_tasks(loop)
    except RuntimeError:  # too many begin and end meanwhile
        return task.get_name(), ()
    names: list[str] = []
    if len(everybody) <= _TASKS_MAX:
        waiting = call_graph.waiting_tasks(everybody)
        seen, found = {id(task)}, [task]
        while found and len(names) < _AWAITERS_MAX:
            for each in call_graph.awaiters(found.pop(0), waiting):
                if id(each) not in seen:
                    seen.add(id(each))
                    names.append(each.get_name())
                    found.append(each)
    return task.get_name(), tuple(names)


def _publish(*several: tuple[Blocked, int]) -> None:
    """Tells of them, in the order of the calls and one at a time.

    If another thread is doing so already, that thread goes on: the loop waits for no subscriber.
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
        if mine:  # an interrupt: the next one who comes tells what is left
            _publishing = False


def _times_shown(stack: tuple[Frame, ...]) -> int:
    """How often a block in these calls was shown since its stack was; 1: it is to be shown."""
    if not stack:
        return 1
    calls, now = _calls(stack), time.monotonic()
    since, times = _shown.get(calls, (now, 0))
    if now - since > _REPEATS_SECONDS:
        since, times = now, 0
    if len(_shown) >= _PLACES_MAX and calls not in _shown:
        _shown.clear()
    _shown[calls] = since, times + 1
    return times + 1


def _note(blocked: Blocked, how: int) -> None:
    with contextlib.suppress(RuntimeError, AttributeError):  # closed, or none of goloop's
        blocked.loop._report_in_progress = how == _WAITS
        blocked.loop._block_told(blocked.serial, how)


def _deliver(blocked: Blocked, look: int) -> None:
    # A handler may wait for ever, for the lock of one that blocks the loop.
    _note(blocked, _WAITS)
    try:
        _log(blocked, look)
    except Exception:
        sys.excepthook(*sys.exc_info())
    _note(blocked, _TOLD)
    if look:
        return
    # Without a GIL, list() copies the values under the dict's lock; tuple() would iterate.
    for callback in list(_subscribers.values()):
        try:
            try:
                callback(blocked)
            except BaseException:  # SystemExit, too, is no reason to leave out the others
                logger.exception("a subscriber of the watchdog has failed")
        except Exception:
            sys.excepthook(*sys.exc_info())
