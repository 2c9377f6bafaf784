"""`python -m goloop ps PID` and `pstree PID`: the tasks of a running program.

From Python 3.14 on CPython's own `python -m asyncio ps PID` reads them out of the
process, and these commands just call it.  Before, the program has to take part: with
GOLOOP_INTROSPECT=1 in its environment, or after goloop.introspect(), a thread answers
at a Unix socket, to the program's own user and to root.  Nothing is opened unless asked for.
A forked child answers too, by a thread and a socket of its own.

On Linux the socket has an abstract name (unix(7)): no file is left behind, no setting of either
side moves it, and who asks looks whether it is really the process that answers.  Elsewhere it
lies in a folder of the user's own.

The answer is one JSON document: a list of tasks, each with its thread, name, stack and
the tasks that await it.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import socket
import struct
import sys
import tempfile
import threading
import warnings
from typing import Any

Row = dict[str, Any]

# A function, its file and line.
Frame = tuple[str, str, int]

_serving: socket.socket | None = None
_forks_watched = False

ABSTRACT = sys.platform == "linux"


def address(pid: int) -> str:
    """Where the program with that id answers."""
    if ABSTRACT:
        return f"\0goloop-introspect-{pid}"
    return os.path.join(tempfile.gettempdir(), f"goloop-{os.getuid()}", f"{pid}.sock")


# ---- in the program ---------------------------------------------------------------


def introspect() -> None:
    """Let `python -m goloop ps` look at this process and its forked children.  Idempotent.

    Raises OSError where the socket can't be had.
    """
    global _serving, _forks_watched
    if _serving is not None or sys.version_info >= (3, 14):
        return
    server = socket.socket(socket.AF_UNIX)
    try:
        _bind(server)
        server.listen(4)
    except OSError:
        server.close()
        raise
    _serving = server
    if not _forks_watched:
        os.register_at_fork(after_in_child=_in_child)
        _forks_watched = True
    threading.Thread(target=_serve, args=(server,), name="goloop-introspect", daemon=True).start()


def introspect_if_asked() -> None:
    """introspect() for GOLOOP_INTROSPECT=1, which must not keep a program from starting."""
    try:
        introspect()
    except OSError as error:
        warnings.warn(f"`goloop ps` won't be answered: {error}", RuntimeWarning, stacklevel=2)


def _in_child() -> None:
    global _serving
    if _serving is not None:
        _serving.close()
        _serving = None
        introspect_if_asked()


def _bind(server: socket.socket) -> None:
    path = address(os.getpid())
    if ABSTRACT:
        server.bind(path)
        return
    folder = os.path.dirname(path)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    facts = os.lstat(folder)
    if facts.st_uid != os.getuid() or facts.st_mode & 0o077 or not os.path.isdir(folder):
        raise PermissionError(f"{folder} is not a folder of this user alone")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    server.bind(path)
    os.chmod(path, 0o600)
    atexit.register(_remove, path, os.getpid())


def _remove(path: str, pid: int) -> None:
    if os.getpid() == pid:  # not in a forked child
        with contextlib.suppress(OSError):
            os.unlink(path)


def _serve(server: socket.socket) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        with client, contextlib.suppress(OSError):
            client.settimeout(10)
            if _peer(client)[1] in (os.geteuid(), 0):
                client.sendall(json.dumps(describe_tasks()).encode())


def _peer(sock: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0, os.geteuid()  # the folder's mode keeps others out
    size = struct.calcsize("3i")
    facts = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid, uid, _ = struct.unpack("3i", facts)
    return pid, uid


def describe_tasks() -> list[Row]:
    """All unfinished tasks of all loops of this process."""
    tasks: Any = asyncio.tasks
    known: list[Any] = [
        tasks._scheduled_tasks if hasattr(tasks, "_scheduled_tasks") else tasks._all_tasks,
        getattr(tasks, "_eager_tasks", ()),
    ]
    found = [task for each in known for task in list(each) if not task.done()]
    natives = {thread.ident: thread.native_id for thread in threading.enumerate()}
    if sys.platform == "linux":
        # In a forked child Python still tells its parent's.
        natives[threading.main_thread().ident] = os.getpid()
    waiting: dict[int, list[Any]] = {}
    for task in found:
        waiter = getattr(task, "_fut_waiter", None)
        if waiter is not None:
            waiting.setdefault(id(waiter), []).append(task)
    rows: list[Row] = []
    for task in found:
        loop = task.get_loop()
        awaiters = {id(each): each for each in _awaiters(task, waiting)}
        rows.append(
            {
                "tid": natives.get(getattr(loop, "_thread_id", None)) or 0,
                "id": id(task),
                "name": task.get_name(),
                "stack": _stack(task.get_coro()),
                "awaiters": [
                    {"id": key, "name": each.get_name(), "stack": _stack(each.get_coro())}
                    for key, each in awaiters.items()
                ],
            }
        )
    return rows


def _awaiters(task: Any, waiting: dict[int, list[Any]]) -> list[Any]:
    """Who awaits it: directly, or through gather, wait, shield or a TaskGroup."""
    found = list(waiting.get(id(task), ()))
    for callback, _ in task._callbacks or ():
        owner = getattr(callback, "__self__", None)
        parent = getattr(owner, "_parent_task", None)
        if parent is not None:
            found.append(parent)
        for cell in getattr(callback, "__closure__", None) or ():
            with contextlib.suppress(ValueError):
                found.extend(waiting.get(id(cell.cell_contents), ()))
    return found


def _stack(coroutine: Any) -> list[Frame]:
    """What is being awaited, innermost first."""
    frames: list[Frame] = []
    while coroutine is not None and len(frames) < 64:
        name = getattr(coroutine, "__qualname__", None)
        if name is None:
            break
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        where = (frame.f_code.co_filename, frame.f_lineno or 0) if frame else ("", 0)
        frames.append((name, *where))
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return frames[::-1]


# ---- in the tool ----------------------------------------------------------------------


def ask(pid: int) -> list[Row]:
    """The rows of another process."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(address(pid))
        if _peer(client)[0] not in (pid, 0):
            raise PermissionError("another process answers in its name")
        data = b""
        while part := client.recv(65536):
            data += part
    rows: list[Row] = json.loads(data)
    return rows


def table(rows: list[Row]) -> str:
    """The table of `python -m asyncio ps`."""
    head = f"{'tid':<10} {'task id':<20} {'task name':<20} {'coroutine stack':<50} "
    head += f"{'awaiter chain':<50} {'awaiter name':<15} awaiter id"
    lines = [head, "-" * len(head)]
    for row in rows:
        for awaiter in row["awaiters"] or [{"id": 0, "name": "", "stack": []}]:
            lines.append(
                f"{row['tid']:<10} {row['id']:<#20x} {row['name']:<20} "
                f"{_names(row['stack']):<50} {_names(awaiter['stack']):<50} "
                f"{awaiter['name']:<15} {awaiter['id']:#x}"
            )
    return "\n".join(lines)


def _names(stack: list[Frame]) -> str:
    return " -> ".join(name for name, _, _ in stack)


def tree(rows: list[Row]) -> str:
    """What awaits what, from those that nobody awaits down."""
    children: dict[int, list[Row]] = {}
    for row in rows:
        for awaiter in row["awaiters"]:
            children.setdefault(awaiter["id"], []).append(row)
    lines: list[str] = []

    def show(row: Row, depth: int, above: tuple[int, ...]) -> None:
        lines.append("    " * depth + f"└── (T) {row['name']}")
        if row["id"] in above:
            lines[-1] += " (a circle)"
            return
        for number, (name, file, line) in enumerate(reversed(row["stack"])):
            where = f" {file}:{line}" if file else ""
            lines.append("    " * (depth + 1) + " " * number + f"└── {name}{where}")
        for child in children.get(row["id"], ()):
            show(child, depth + 2, (*above, row["id"]))

    roots = [row for row in rows if not row["awaiters"]] or rows[:1]
    for root in roots:
        show(root, 0, ())
    return "\n".join(lines)


def main(command: str, arguments: list[str]) -> int:
    """`ps PID` or `pstree PID`."""
    if len(arguments) != 1 or not arguments[0].isdigit():
        print(f"usage: python -m goloop {command} PID", file=sys.stderr)
        return 2
    pid = int(arguments[0])
    if sys.version_info >= (3, 14):
        from asyncio import tools

        show: Any = (
            tools.display_awaited_by_tasks_table
            if command == "ps"
            else tools.display_awaited_by_tasks_tree
        )
        show(pid)
        return 0
    try:
        rows = ask(pid)
    except OSError as error:
        print(
            f"process {pid} does not answer ({error}); it has to be started with "
            "GOLOOP_INTROSPECT=1, or to call goloop.introspect()",
            file=sys.stderr,
        )
        return 1
    print(table(rows) if command == "ps" else tree(rows))
    return 0
