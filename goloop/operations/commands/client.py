"""The client of the introspection protocol, and the commands `goloop ps PID` and `pstree PID`.

The server and the protocol are in introspection.py.

From Python 3.14 on CPython can read the tasks from another process's memory, if this user may trace
that process.  ps and pstree fall back to that if the program does not answer, or answers only
partly because its GIL is held.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import select
import socket
import sys
import time

from .. import introspection, proc_stat
from ..introspection import address, is_alive, peer
from .terminal import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..._internal.tasks.call_graph import Frame
    from ..snapshot import Row

# Timeout and maximum size of an answer.
ANSWER_SECONDS = 10.0
_BYTES = 256 << 20
# A younger process may be about to open its socket, although it has loaded goloop's library.
_STARTING_SECONDS = 2.0
# Timeout of the requests to child processes, which are only asked whether they have a loop.
_CHILD_SECONDS = 1.0
# A text about child processes has at most this number of names.
_NAMED_CHILDREN = 5

HINT = "start the program with GOLOOP_INTROSPECT=1, or call goloop.introspect() in it"


class NoAnswer(Exception):
    """The program has given no usable answer.  The text has the reason and often the remedy."""


class NoSocketYet(NoAnswer):
    """The program was started with GOLOOP_INTROSPECT=1, and may still be importing goloop."""


class Question:
    """A non-blocking request to a program.

    The caller waits until `fileno()` is readable and calls `advance()`, until that returns the
    answer.  The constructor, `advance()` and `parse_answer()` raise NoAnswer.
    """

    def __init__(self, pid: int, *, seconds: float = ANSWER_SECONDS, **question: Any) -> None:
        """Connect to a process and send a request; NoAnswer if that fails.

        `seconds` is the time limit for the answer, `question` the fields of the request.
        """
        self.pid = pid
        self._seconds = seconds
        self.deadline = time.monotonic() + seconds
        self.data = bytearray()
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.setblocking(False)
            self._socket.connect(address(pid))
            if peer(self._socket)[0] not in (pid, None):
                raise NoAnswer(f"process {pid}: another process has bound its introspection socket")
            self._socket.sendall(json.dumps(question).encode() + b"\n")
        except BaseException as error:
            self._socket.close()
            if not isinstance(error, OSError):
                raise
            raise _no_answer(pid, error, seconds) from None

    def fileno(self) -> int:
        """Return the socket's descriptor, for select()."""
        return self._socket.fileno()

    def advance(self) -> Row | None:
        """Receive data; return the complete answer, or None if it is not complete yet.

        Raises NoAnswer if the answer is too long or too late, and for the reasons of
        parse_answer().
        """
        if self.receive():
            if len(self.data) > _BYTES:
                raise NoAnswer(f"process {self.pid}: its answer is longer than {_BYTES >> 20} MiB")
            if time.monotonic() < self.deadline:
                return None
            raise NoAnswer(_timeout_reason(self.pid, self._seconds))
        return self.parse_answer()

    def receive(self) -> bool:
        """Append received bytes to `data`.

        Returns False at the end of the answer, also if the connection fails; True if more may come
        or if `data` is longer than _BYTES.
        """
        try:
            while len(self.data) <= _BYTES and (part := self._socket.recv(1 << 20)):
                self.data += part
            if len(self.data) > _BYTES:
                return True
        except BlockingIOError:
            return True
        except OSError:
            pass  # the process has closed the connection without reading the request
        return False

    def request_trace_end(self) -> None:
        """Ask the program to end a trace: the data that it has sent can still be received."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def parse_answer(self) -> Row:
        """Decode and check `data`, the complete answer, and return it.

        In a partial answer the stacks are reversed, so that all stacks begin with the innermost
        frame.

        Raises:
            NoAnswer: `data` is empty or not valid JSON, another version of the protocol, or an
                error that the program reports.
        """
        if not self.data:
            raise _no_answer(self.pid, None)
        try:
            answer = json.loads(self.data)
        except (ValueError, RecursionError) as error:
            raise NoAnswer(f"process {self.pid} has sent an incomplete answer ({error})") from None
        if not isinstance(answer, dict) or answer.get("protocol", 1) != introspection.PROTOCOL:
            raise NoAnswer(
                f"process {self.pid} runs an incompatible version of goloop: use the goloop "
                "command of the environment that the program runs in"
            )
        if "error" in answer:
            raise NoAnswer(f"process {self.pid} reports an error: {printable(answer['error'])}")
        if answer.get("partial"):
            for loop in answer.get("loops") or ():
                # The monitor sends the innermost frame last; all other answers have it first.
                loop["stack"] = (loop.get("stack") or [])[::-1]
        return answer


def ask(pid: int, kind: str, **fields: int) -> Row:
    """Return the answer of another process to a request with these fields; raises NoAnswer."""
    return _wait_for_answer(Question(pid, ask=kind, **fields))


def _wait_for_answer(question: Question) -> Row:
    """Return the answer to a request, and close it; raises NoAnswer."""
    with contextlib.closing(question):
        while True:
            answer = question.advance()
            if answer is not None:
                return answer
            left = max(0.0, question.deadline - time.monotonic())
            select.select([question], [], [], left)


def _no_answer(pid: int, error: OSError | None, seconds: float = ANSWER_SECONDS) -> NoAnswer:
    """Return the exception for a process that does not answer, with the reason.

    `error` is the error of the connection, or None if there was no error.
    """
    if isinstance(error, BlockingIOError):  # the queue of its socket is full
        return NoAnswer(_timeout_reason(pid, seconds))
    if not is_alive(pid):
        return NoAnswer(f"there is no process {pid}")
    if belongs_to_other_user(pid):
        return NoAnswer(f"process {pid} belongs to another user: run this as that user or as root")
    if error is None:
        return NoAnswer(f"process {pid} has closed the connection without an answer")
    silent = f"process {pid} does not answer ({error.strerror or error})"
    asked_to_serve = _proc_file_contains(pid, "environ", b"GOLOOP_INTROSPECT=1\0")
    has_imported = _proc_file_contains(pid, "maps", b"/goloop/_core")
    if not (asked_to_serve and has_imported) and (children := children_with_loops(pid)):
        verb = "do" if len(children) > 1 else "does"
        return NoAnswer(
            f"process {pid} does not answer; its {_named_children(children)} {verb}: give the id "
            f"{children[0]}"
        )
    if not asked_to_serve:
        return NoAnswer(f"{silent}: {HINT}")
    if not has_imported or _age(pid) < _STARTING_SECONDS:
        return NoSocketYet(
            f"process {pid} was started with GOLOOP_INTROSPECT=1, but does not answer: it has not "
            "imported goloop yet, or it only starts other processes; then give the id of a worker "
            "process"
        )
    return NoAnswer(
        f"{silent}: the program has closed its introspection socket, as a daemon does that closes "
        "all descriptors. Call goloop.introspect() in the program afterwards"
    )


def _proc_file_contains(pid: int, name: str, text: bytes) -> bool:
    """Return true if a file of a process in /proc contains the text; false if it is unreadable."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:
        return text in file.read()
    return False


def _age(pid: int) -> float:
    """Return the seconds since a process was started; infinity if that is unknown."""
    age = proc_stat.age(pid)
    return math.inf if age is None else age


def _timeout_reason(pid: int, seconds: float) -> str:
    """Return the reason for an answer that did not come within `seconds`."""
    return (
        f"process {pid} has not answered for {seconds:g} seconds: a call of C code in it does not "
        "release the GIL, or the process is stopped"
    )


def belongs_to_other_user(pid: int) -> bool:
    """Return true if another user owns the process, and this one is not root; false if unknown."""
    with contextlib.suppress(OSError):
        return os.geteuid() not in (0, os.stat(f"/proc/{pid}").st_uid)
    return False


def process_id(text: str) -> int:
    """Return a process id from text; raises ValueError if it is not one."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and 0 < int(text) < 1 << 31):
        raise ValueError(f"{text[:20]!r} is not a process id")
    return int(text)


def introspectable_pids() -> list[int]:
    """Return the ids of the processes with an introspection socket, of all users.

    Socket files of ended processes are removed.
    """
    if not introspection.ABSTRACT:
        found = []
        for pid in introspection.pids_with_socket_file():
            if is_alive(pid):
                found.append(pid)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(address(pid))
        return found
    prefix = "@" + introspection.prefix()
    pids = set()
    with contextlib.suppress(OSError), open("/proc/net/unix", "rb") as file:
        for line in file:
            name = line.rpartition(b" ")[2].strip().decode(errors="replace")
            if name.startswith(prefix):
                with contextlib.suppress(ValueError):
                    pids.add(process_id(name.removeprefix(prefix)))
    return sorted(pids)


# ---- child processes


def children_with_loops(pid: int) -> list[int]:
    """Return the ids of the child processes, and of theirs, that answer and have an open loop.

    A process that does not answer within _CHILD_SECONDS is missing, as are all processes on a
    system without /proc.
    """
    questions = []
    for each in introspectable_pids():
        if _descends_from(each, pid):
            with contextlib.suppress(NoAnswer):
                question = Question(each, seconds=_CHILD_SECONDS, ask="top", tasks=0, connections=0)
                questions.append(question)
    found = []
    for question in questions:
        with contextlib.suppress(NoAnswer):
            if _wait_for_answer(question).get("loops"):
                found.append(question.pid)
    return found


def _descends_from(pid: int, ancestor: int) -> bool:
    """Return true if `ancestor` is the parent of a process, or the parent's parent, and so on."""
    while pid > 1:
        pid = proc_stat.parent(pid) or 0  # 0: the process has ended, or there is no /proc
        if pid == ancestor:
            return True
    return False


def describe_no_loop(children: list[int]) -> list[str]:
    """Return the lines for a process without a loop; `children` are children_with_loops().

    A line has one process, so that the narrowest terminal shows the ids whole.
    """
    if not children:
        return ["no loop is open"]
    lines = ["no loop is open; child processes with one:"]
    lines += [f"  goloop top {child}" for child in children[:_NAMED_CHILDREN]]
    if len(children) > _NAMED_CHILDREN:
        lines.append(f"  and {len(children) - _NAMED_CHILDREN} more")
    return lines


def _named_children(children: list[int]) -> str:
    """Return "child process 4712", or "child processes 4712, 4713 and 2 others"."""
    if len(children) == 1:
        return f"child process {children[0]}"
    *names, last = map(str, children)
    if len(children) > _NAMED_CHILDREN:
        names = names[: _NAMED_CHILDREN - 1]
        last = f"{len(children) - len(names)} others"
    return f"child processes {', '.join(names)} and {last}"


# ---- ps and pstree --------------------------------------------------------------------


def task_table(rows: list[Row]) -> str:
    """Return a table of the tasks, as `python -m asyncio ps` prints it."""
    head = f"{'tid':<10} {'task id':<20} {'task name':<20} {'coroutine stack':<50} "
    head += f"{'awaiter chain':<50} {'awaiter name':<15} awaiter id"
    lines = [head, "-" * len(head)]
    for row in rows:
        for awaiter in row["awaiters"] or [{"id": 0, "name": "", "stack": []}]:
            lines.append(
                f"{row['tid']:<10} {row['id']:<#20x} {printable(row['name']):<20} "
                f"{_names(row['stack']):<50} {_names(awaiter['stack']):<50} "
                f"{printable(awaiter['name']):<15} {awaiter['id']:#x}"
            )
    return "\n".join(lines)


def _names(stack: list[Frame]) -> str:
    """Return the functions of a stack as text, innermost first."""
    return printable(" -> ".join(name for name, _, _ in stack))


def format_frame(frame: Frame) -> str:
    """Return a frame as text: the function, its file and line."""
    name, file, line = frame
    return printable(f"{name} {file}:{line}" if file else name)


def task_tree(rows: list[Row]) -> str:
    """Return the tree of awaiting tasks; the roots are the tasks that no other task awaits."""
    children: dict[int, list[Row]] = {}
    for row in rows:
        for awaiter in row["awaiters"]:
            children.setdefault(awaiter["id"], []).append(row)
    lines: list[str] = []
    shown: set[int] = set()

    def show(row: Row, depth: int, above: tuple[int, ...]) -> None:
        """Append the lines of a task and its children; `above` has the ids of its awaiters."""
        lines.append("    " * depth + f"└── (T) {printable(row['name'])}")
        if row["id"] in above:
            lines[-1] += " (cycle)"
            return
        shown.add(row["id"])
        for number, frame in enumerate(reversed(row["stack"])):
            lines.append("    " * (depth + 1) + " " * number + f"└── {format_frame(frame)}")
        for child in children.get(row["id"], ()):
            show(child, depth + 2, (*above, row["id"]))

    # Tasks in cycles, and tasks that only such tasks await, have no root.  They follow at the end.
    for row in [*(row for row in rows if not row["awaiters"]), *rows]:
        if row["id"] not in shown:
            show(row, 0, ())
    return "\n".join(lines)


def _blocked_loops(answer: Row) -> str:
    """Return the loops and their stacks of a partial answer, as text."""
    lines = []
    for number, loop in enumerate(answer.get("loops") or (), 1):
        lines.append(f"└── loop {number}, blocked for {loop.get('blocked_for') or 0:.1f} s")
        lines += [f"    └── {format_frame(frame)}" for frame in loop.get("stack") or ()]
    return "\n".join(lines)


_ABOUT = {
    "ps": "List the tasks of a running program: the line at which each task waits, and the tasks\n"
    "that await it.",
    "pstree": "Show the tasks of a running program as a tree, with functions, files and lines.\n"
    "A task stands below the task that awaits it.",
}
_REQUIREMENTS = """\
PID is the process id of a program that was started with GOLOOP_INTROSPECT=1 or has called
goloop.introspect(). Run this command as the program's user or as root. From Python 3.14 on,
the command also works for other programs, if you may attach a debugger to them."""
GIL_HELD = (
    "the GIL is held, so Python cannot answer: only values of goloop's monitor thread are shown"
)


def main(command: str, arguments: list[str]) -> int:
    """Run `ps PID` or `pstree PID`; return the exit status.

    If the process does not answer completely, read its memory instead (from Python 3.14 on); if
    that fails, too, print the blocked loops of a partial answer, or return 1. 2 is a wrong command
    line.
    """
    if arguments[:1] in (["-h"], ["--help"]):
        print(f"usage: python -m goloop {command} PID\n\n{_ABOUT[command]}\n\n{_REQUIREMENTS}")
        return 0
    try:
        [argument] = arguments
        pid = process_id(argument)
    except ValueError:
        print(f"usage: python -m goloop {command} PID", file=sys.stderr)
        return 2
    if not is_alive(pid):
        print(f"there is no process {pid}", file=sys.stderr)
        return 1
    reasons = []
    answer: Row = {"partial": True}
    try:
        answer = ask(pid, "tasks")
    except NoAnswer as reason:
        reasons.append(str(reason))
    # CPython reads the process's memory, even while its GIL is held, but not all names.
    if answer.get("partial") and sys.version_info >= (3, 14):
        succeeded, text = _read_remotely(command, pid)
        if succeeded:
            print(text)
            return 0
        reasons.append(text)
    if "tasks" not in answer and "loops" not in answer:
        print(*filter(None, reasons), sep="\n", file=sys.stderr)
        return 1
    if answer.get("partial"):
        print(f"process {pid}: {GIL_HELD}", file=sys.stderr)
        print(_blocked_loops(answer))
    else:
        rows = answer["tasks"]
        print(task_table(rows) if command == "ps" else task_tree(rows))
    return 0


def _read_remotely(command: str, pid: int) -> tuple[bool, str]:
    """Run the function of `python -m asyncio ps` or `pstree`, which reads the process's memory.

    Returns true and its output, or false and an error text.
    """
    tools: Any = __import__("asyncio.tools").tools
    read = tools.get_all_awaited_by
    tools.get_all_awaited_by = lambda *args, **options: _make_printable(read(*args, **options))
    show: Any = (
        tools.display_awaited_by_tasks_table
        if command == "ps"
        else tools.display_awaited_by_tasks_tree
    )
    output = io.StringIO()
    succeeded = True
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            show(pid)
        except SystemExit as status:
            succeeded = not status.code
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
            succeeded = False
        finally:
            tools.get_all_awaited_by = read
    return succeeded, "\n".join(map(printable, output.getvalue().rstrip().split("\n")))


def _make_printable(found: Any) -> Any:
    """Return a result of CPython with all texts made printable, so that none breaks the table."""
    if isinstance(found, str):
        return printable(found)
    if not isinstance(found, (list, tuple)):
        return found
    several = [_make_printable(each) for each in found]
    # A named tuple is built by _make(); a PyStructSequence takes one sequence of its fields.
    make: Any = getattr(type(found), "_make", type(found))
    return make(several)
