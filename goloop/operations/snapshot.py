"""Descriptions of this process for introspection.py: tasks, loops with metrics, connections.

The introspection thread reads while other threads run.  So containers are copied before iteration,
and a task or connection that ends at this moment, and so cannot be described, is omitted.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import heapq
import os
import sys
import threading
import time
import weakref

from .._internal.observe import profiling
from .._internal.observe.metric_registry import METRICS, unpack_metrics
from .._internal.tasks.call_graph import (
    attribute,
    await_stack,
    awaiters,
    completion_dependents,
    thread_stack,
    waiting_tasks,
)
from .._internal.version import __version__, native
from . import proc_stat

TYPE_CHECKING = False
if native or TYPE_CHECKING:
    from .. import _core
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    Row = dict[str, Any]

# Default limits of rows for each loop.
TASKS = 200
CONNECTIONS = 50

_AWAITERS = 8

_imported = time.monotonic()

# ---- tasks -----------------------------------------------------------------------------------


def describe_tasks() -> list[Row]:
    """Return rows of all unfinished tasks of all loops of this process."""
    found = [task for _, tasks in _tasks_by_loop() for task in tasks]
    waiting = waiting_tasks(found)
    threads = _threads()
    rows: list[Row] = []
    for task in found:
        with contextlib.suppress(Exception):
            row = _task_row(task)
            row["tid"] = threads.get(_thread_of(task.get_loop()), ("", 0))[1]
            code = getattr(task.get_coro(), "cr_code", None)
            row["code"] = code and (code.co_qualname, code.co_filename, code.co_firstlineno)
            row["awaiters"] = [_task_row(each) for each in awaiters(task, waiting)]
            rows.append(row)
    return rows


def _task_row(task: Any) -> Row:
    """Return a task's id, name and stack of awaits."""
    return {"id": id(task), "name": task.get_name(), "stack": await_stack(task.get_coro())}


def _tasks_by_loop() -> list[tuple[Any, list[Any]]]:
    """Return each loop with its unfinished tasks, in creation order if Python has that order."""
    by_loop: dict[int, tuple[Any, list[Any]]] = {id(loop): (loop, []) for loop in _open_loops()}
    ours = set(by_loop)
    for task in _all_tasks([loop for loop, _ in by_loop.values()]):
        if not task.done():
            loop = task.get_loop()
            kept = by_loop.get(id(loop))
            if kept is None:
                kept = by_loop[id(loop)] = loop, []
            kept[1].append(task)
    return [kept for key, kept in by_loop.items() if key in ours or not _is_inherited(kept[0])]


def _all_tasks(loops: list[Any]) -> Iterator[Any]:
    """Yield asyncio's tasks; before Python 3.14 they are those of all loops."""
    tasks: Any = asyncio.tasks
    if sys.version_info >= (3, 14):
        for loop in loops:
            yield from asyncio.all_tasks(loop)
    else:
        scheduled = getattr(tasks, "_scheduled_tasks", None)
        yield from _copy_items(tasks._all_tasks if scheduled is None else scheduled)
        yield from _copy_items(getattr(tasks, "_eager_tasks", ()))


def _is_inherited(loop: Any) -> bool:
    """Return true if an open loop that this process does not list was inherited by fork()."""
    if not native:
        return False
    return isinstance(loop, _core.Loop) and not loop._closed


def _open_loops() -> list[Any]:
    """Return the open loops that can be found without their tasks."""
    if native:
        return list(_core._open_loops())
    # asyncio has no list of its loops.
    loops = [each for each in gc.get_objects() if isinstance(each, asyncio.BaseEventLoop)]
    return [loop for loop in loops if not loop.is_closed()]


def _copy_items(things: Iterable[Any]) -> list[Any]:
    """Return a list of a container's items; retry if another thread changes the container.

    After 1000 failures the list is empty.
    """
    for _ in range(1000):
        try:
            return list(things)
        except RuntimeError:
            continue
    return []


# ---- the process -------------------------------------------------------------------------


def describe_process(tasks: int = TASKS, connections: int = CONNECTIONS) -> Row:
    """Return the description of the process and its loops, for the answer to "top".

    Each loop has at most `tasks` and `connections` rows.  A loop that cannot be described, because
    it is being closed, is omitted.
    """
    by_loop = _tasks_by_loop()
    threads = _threads()
    described: list[Row] = []
    for loop, found in by_loop:
        with contextlib.suppress(Exception):
            if not loop.is_closed():
                described.append(_describe_loop(loop, found, threads, tasks, connections))
    _object_numbers.remove_freed()
    return {
        "program": _program_name(),
        "python": sys.version.split()[0],
        "goloop": __version__,
        "uptime": _uptime(),
        "loops": described,
    }


def _describe_loop(
    loop: Any,
    found: list[Any],
    threads: dict[int, tuple[str, int]],
    tasks: int,
    connections: int,
) -> Row:
    """Return the description of a loop: its thread, metrics, tasks and connections.

    `found` are its tasks, `threads` the result of _threads(). `tasks` and `connections` limit the
    rows.
    """
    ident = _thread_of(loop)
    name, native_id = threads.get(ident, ("", 0))
    current = asyncio.current_task(loop) if ident else None
    return {
        "id": id(loop),
        "number": getattr(loop, "_loop_number", 0),
        "thread": name,
        "native_id": native_id,
        "running": bool(ident),
        "metrics": _raw_metrics(loop, len(found)),
        # The time of the metrics, in seconds; only differences are meaningful.
        "clock": time.monotonic(),
        "stack": thread_stack(ident)[0],
        "current": id(current) if current is not None else None,
        "task_count": len(found),
        "tasks": _task_rows(found, tasks, current, ident),
        "connections": _connections(loop, connections),
    }


# Metrics that Python counts are missing until they are counted for the first time.
_PYTHON_METRICS_AT_0: Row = {
    spec.field: b"" if spec.kind == "histogram" else 0
    for spec in METRICS
    if spec.source == "python" and spec.field != "loops"
}


def _raw_metrics(loop: Any, tasks: int) -> Row | None:
    """Return the loop's metrics by name for JSON; None for a loop without metrics.

    `tasks` is the number of the loop's tasks. Histograms are encoded as base64.
    """
    ask = getattr(loop, "_metrics", None)
    if ask is None:
        return None
    raw: Row = {
        **_PYTHON_METRICS_AT_0,
        **unpack_metrics(ask()),
        "tasks": tasks,
        "gc_time": int(_core._collected() * 1e9),
    }
    return {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for name, value in raw.items()
    }


def _task_rows(found: list[Any], limit: int, current: Any, ident: int) -> list[Row]:
    """Return rows of the `limit` oldest tasks, with marks that identify a task in later answers.

    `found` are the loop's tasks, `current` its current task, `ident` the id of its thread.
    """
    oldest = _oldest(found, limit)
    wanted = {id(future) for task in oldest for future in completion_dependents(task)[1]}
    waiting = waiting_tasks(found, wanted)
    busy = profiling.busy_coroutines()
    rows: list[Row] = []
    for task in oldest:
        with contextlib.suppress(Exception):
            row = _task_row(task)
            row["busy"] = busy.get(id(task.get_coro()), (0, 0))
            row["awaiters"] = [
                {"id": id(each), "name": each.get_name()}
                for each in awaiters(task, waiting)[:_AWAITERS]
            ]
            if task is current:
                frames, met = thread_stack(ident, task.get_coro())
                row["stack"] = frames if met else row["stack"]
            row["mark"] = _object_numbers.number_of(task)
            # The mark of the awaited future shows whether the task still waits for the same one.
            row["wait"] = _object_numbers.number_of(attribute(task, "_fut_waiter"))
            rows.append(row)
    return rows


def _oldest(found: list[Any], limit: int) -> list[Any]:
    """Return the `limit` oldest tasks, as far as their order of creation is known."""
    if sys.version_info < (3, 14):
        return found[:limit]  # already in creation order
    # Tasks with a mark are older than others.  asyncio's default names have numbers.
    known = [task for task in found if _object_numbers.number_if_assigned(task) is not None]
    known.sort(key=_object_numbers.number_of)
    if len(known) < limit:
        others = [task for task in found if _object_numbers.number_if_assigned(task) is None]
        known += heapq.nsmallest(limit - len(known), others, key=_creation_order)
    return known[:limit]


def _creation_order(task: Any) -> float:
    """Return a guess at a task's position in the order of creation, from its name."""
    with contextlib.suppress(Exception):
        return int(task.get_name().removeprefix("Task-"))
    return 1.5  # tasks with other names are mostly created at the start, by Task-1


class _ObjectNumbers:
    """Numbers that identify objects, although an id() may be reused."""

    def __init__(self) -> None:
        """Create the numbering without objects."""
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._last = 0

    def number_if_assigned(self, thing: Any) -> int | None:
        """Return the number of an object, or None if it has none yet."""
        found = self._known.get(id(thing))
        return found[1] if found is not None and found[0]() is thing else None

    def number_of(self, thing: Any) -> int:
        """Return the object's number, a new one if it has none.

        For None, and for an object that cannot be weakly referenced, return 0.
        """
        if thing is None:
            return 0
        number = self.number_if_assigned(thing)
        if number is None:
            try:
                reference = weakref.ref(thing)
            except TypeError:
                return 0
            number = self._last = self._last + 1
            self._known[id(thing)] = reference, number
        return number

    def remove_freed(self) -> None:
        """Remove the numbers of freed objects."""
        for key, kept in list(self._known.items()):  # a destructor here may run Python code
            if kept[0]() is None:
                self._known.pop(key, None)


_object_numbers = _ObjectNumbers()


# ---- threads ---------------------------------------------------------------------------------


def _thread_of(loop: Any) -> int:
    """Return Python's id of the thread that runs the loop, or 0."""
    # eventlet and gevent let asyncio's `_thread_id` be the number of a greenlet.
    real: int = getattr(loop, "_running_thread", 0)
    return real or getattr(loop, "_thread_id", None) or 0


def _threads() -> dict[int, tuple[str, int]]:
    """Return the threads' names and native ids, by Python's id."""
    found = {
        thread.ident: (thread.name, thread.native_id or 0)
        for thread in threading.enumerate()
        if thread.ident is not None
    }
    main = threading.main_thread()
    if sys.platform == "linux" and main.ident is not None:
        # In a forked child Python still reports the native id of the parent.
        found[main.ident] = main.name, os.getpid()
    return found


# ---- connections -----------------------------------------------------------------------------


def _connections(loop: Any, limit: int) -> list[Row]:
    """Return rows of open streams and pipes, those with the most unsent bytes first."""
    found: list[tuple[int, Any]] = []
    for transport in _transports(loop):
        with contextlib.suppress(Exception):
            if not transport.is_closing():
                found.append((_unsent_bytes(transport), transport))
    found.sort(key=lambda pair: -pair[0])
    rows: list[Row] = []
    for unsent, transport in found[:limit]:
        with contextlib.suppress(Exception):
            below = transport.get_protocol()
            protocol = getattr(below, "_app_protocol", None) or below
            rows.append(
                {
                    "peer": _peer_name(transport),
                    "protocol": type(protocol).__qualname__,
                    "tls": protocol is not below,
                    "write_buffer": unsent,
                }
            )
    return rows


def _transports(loop: Any) -> list[Any]:
    """Return the loop's transports for streams and pipes, native ones and asyncio's own."""
    found: list[Any] = []
    with contextlib.suppress(Exception):
        found = _copy_items(loop._transports.values())  # asyncio's own
    if not native:
        return [each for each in found if isinstance(each, asyncio.Transport)]
    if isinstance(loop, _core.Loop):
        found += loop._registered()
    kinds = (_core.StreamTransport, _core.ReadPipeTransport)
    return [
        each
        for each in found
        if isinstance(each, (*kinds, asyncio.Transport))
        and not isinstance(each, asyncio.DatagramTransport)
    ]


def _unsent_bytes(transport: Any) -> int:
    """Return the number of bytes in a transport's write buffer, including its TLS layer's."""
    protocol = transport.get_protocol()
    over: Any = getattr(protocol, "_app_transport", None) or transport
    size = getattr(over, "get_write_buffer_size", None)
    return int(size()) if size is not None else 0


def _peer_name(transport: Any) -> str:
    """Return the peer's address as text; without one "pipe" for a pipe, else "unnamed"."""
    # An accepted transport formats its names on first use, which only the loop's thread may do.
    lazy = getattr(transport, "_lazy", False)
    name = transport._raw_name(True) if lazy else transport.get_extra_info("peername")
    if isinstance(name, tuple) and len(name) >= 2:
        host = str(name[0])
        return f"[{host}]:{name[1]}" if ":" in host else f"{host}:{name[1]}"
    if isinstance(name, bytes):
        name = name.decode(errors="replace")
    if name:
        return str(name).replace("\0", "@", 1)
    pipe = transport.get_extra_info("pipe")
    return "pipe" if pipe is not None else "unnamed"


# ---- the program -----------------------------------------------------------------------------


def _program_name() -> str:
    """Return the program's command line, or the process title if the program has set one."""
    words = [str(word) for word in sys.orig_argv or sys.argv]
    with contextlib.suppress(OSError), open("/proc/self/cmdline", "rb") as file:
        title = file.read().decode(errors="replace").rstrip("\0")
        if title and title.split("\0") != words:
            return " ".join(title.split("\0"))
    return " ".join([os.path.basename(word) for word in words[:1]] + words[1:])


def _uptime() -> float:
    """Return the seconds since the start of the process; without /proc since this import."""
    age = proc_stat.age("self")
    return time.monotonic() - _imported if age is None else age
