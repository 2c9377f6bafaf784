"""Asking running programs about themselves: `python -m goloop ps PID` and `pstree PID`.

The programs' side, and the protocol, are in introspection.py.

From Python 3.14 on CPython reads the tasks out of another process's memory, and ps and pstree call
that first, which every program allows that this user may trace; where it can't be done, they ask
the program as before 3.14.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import socket
import sys
import time

from .. import introspection
from ..introspection import address, is_alive, peer
from .terminal import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..._internal.tasks.call_graph import Frame
    from ..snapshot import Row

# How long an answer may take, and how many bytes it may have.
SECONDS = 10.0
_BYTES = 256 << 20

HINT = "start it with GOLOOP_INTROSPECT=1, or have it call goloop.introspect()"


class NoAnswer(Exception):
    """A program has not answered; the text says why, and what to do."""


class Question:
    """A question to a program, on its way; nothing here blocks.

    Whoever asks waits till `fileno()` is readable and calls `advance()`, until that returns the
    answer.  Raises NoAnswer where none is to be had.
    """

    def __init__(self, pid: int, *, seconds: float = SECONDS, **question: Any) -> None:
        self.pid = pid
        self._seconds = seconds
        self.deadline = time.monotonic() + seconds
        self.data = bytearray()
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.setblocking(False)
            try:
                self._socket.connect(address(pid))
            except ConnectionRefusedError:
                if not introspection.ABSTRACT:
                    raise
                self._socket.connect(f"\0{introspection.NAME}{pid}")  # up to goloop 0.2.0
            if peer(self._socket)[0] not in (pid, None):
                raise NoAnswer(f"process {pid}: another process answers in its name")
            self._socket.sendall(json.dumps(question).encode() + b"\n")
        except BaseException as error:
            self._socket.close()
            if not isinstance(error, OSError):
                raise
            raise NoAnswer(_why_not(pid, error, seconds)) from None

    def fileno(self) -> int:
        """For select()."""
        return self._socket.fileno()

    def advance(self) -> Row | None:
        """The whole answer, or None while more of it is to come."""
        if self.receive():
            if len(self.data) > _BYTES:
                raise NoAnswer(f"process {self.pid} does not end its answer")
            if time.monotonic() < self.deadline:
                return None
            raise NoAnswer(_too_late(self.pid, self._seconds))
        return self.whole()

    def receive(self) -> bool:
        """Adds what has come to `data`; False: it was the end."""
        try:
            while len(self.data) <= _BYTES and (part := self._socket.recv(1 << 20)):
                self.data += part
            if len(self.data) > _BYTES:
                return True
        except BlockingIOError:
            return True
        except OSError:
            pass  # goloop 0.2.0 ends without having read the question, which looks like this
        return False

    def end(self) -> None:
        """Have a trace end."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Give up."""
        self._socket.close()

    def whole(self) -> Row:
        """The answer that `data` has."""
        if not self.data:
            raise NoAnswer(_why_not(self.pid, None))
        try:
            answer = json.loads(self.data)
        except (ValueError, RecursionError) as error:
            raise NoAnswer(f"process {self.pid} has broken off its answer ({error})") from None
        if isinstance(answer, list):  # 0.2.0
            return {"tasks": answer}
        if not isinstance(answer, dict) or answer.get("protocol", 1) != introspection.PROTOCOL:
            raise NoAnswer(
                f"process {self.pid} runs another version of goloop, whose answer is not known here"
            )
        if "error" in answer:
            raise NoAnswer(f"process {self.pid} answers: {printable(answer['error'])}")
        if answer.get("partial"):
            for loop in answer.get("loops") or ():
                # As in all other answers: innermost first.
                loop["stack"] = (loop.get("stack") or [])[::-1]
        return answer


def ask(pid: int, what: str) -> Row:
    """The answer of another process; raises NoAnswer."""
    question = Question(pid, ask=what)
    with contextlib.closing(question):
        while True:
            answer = question.advance()
            if answer is not None:
                return answer
            left = max(0.0, question.deadline - time.monotonic())
            select.select([question], [], [], left)


def _why_not(pid: int, error: OSError | None, seconds: float = SECONDS) -> str:
    if isinstance(error, BlockingIOError):  # the queue of its socket is full
        return _too_late(pid, seconds)
    if not is_alive(pid):
        return f"there is no process {pid}"
    if is_anothers(pid):
        return f"process {pid} is another user's: only that user and root are answered"
    if error is None:
        return f"process {pid} has hung up without an answer"
    return f"process {pid} does not answer ({error.strerror or error}): {HINT}"


def _too_late(pid: int, seconds: float) -> str:
    return (
        f"process {pid} has given no answer for {seconds:g} seconds: something in it holds the "
        "GIL (a call of C code), or it is stopped"
    )


def is_anothers(pid: int) -> bool:
    """Whether it is another user's process, which answers root and that user only."""
    with contextlib.suppress(OSError):
        return os.geteuid() not in (0, os.stat(f"/proc/{pid}").st_uid)
    return False


def process_id(text: str) -> int:
    """Raises ValueError for what can't be a process's id."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and 0 < int(text) < 1 << 31):
        raise ValueError(f"{text[:20]!r} is no process id")
    return int(text)


def answering() -> list[int]:
    """The processes that have a socket; those of other users too, which will not answer.

    Files of processes that are gone are removed.
    """
    if not introspection.ABSTRACT:
        found = []
        for pid in introspection.sockets():
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


# ---- ps and pstree --------------------------------------------------------------------


def table(rows: list[Row]) -> str:
    """The table of `python -m asyncio ps`."""
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
    return printable(" -> ".join(name for name, _, _ in stack))


def place(frame: Frame) -> str:
    """A frame in words: the function, its file and line."""
    name, file, line = frame
    return printable(f"{name} {file}:{line}" if file else name)


def tree(rows: list[Row]) -> str:
    """What awaits what, from those that nobody awaits down."""
    children: dict[int, list[Row]] = {}
    for row in rows:
        for awaiter in row["awaiters"]:
            children.setdefault(awaiter["id"], []).append(row)
    lines: list[str] = []
    shown: set[int] = set()

    def show(row: Row, depth: int, above: tuple[int, ...]) -> None:
        lines.append("    " * depth + f"└── (T) {printable(row['name'])}")
        if row["id"] in above:
            lines[-1] += " (a circle)"
            return
        shown.add(row["id"])
        for number, frame in enumerate(reversed(row["stack"])):
            lines.append("    " * (depth + 1) + " " * number + f"└── {place(frame)}")
        for child in children.get(row["id"], ()):
            show(child, depth + 2, (*above, row["id"]))

    # What only tasks of a circle await hangs from none that nobody awaits.
    for row in [*(row for row in rows if not row["awaiters"]), *rows]:
        if row["id"] not in shown:
            show(row, 0, ())
    return "\n".join(lines)


def _threads(answer: Row) -> str:
    """What is known while the GIL is held."""
    lines = []
    for number, loop in enumerate(answer.get("loops") or (), 1):
        lines.append(f"└── loop {number}, blocked for {loop.get('blocked_for') or 0:.1f} s")
        lines += [f"    └── {place(frame)}" for frame in loop.get("stack") or ()]
    return "\n".join(lines)


_ABOUT = {
    "ps": "List the tasks of a running program: where each one waits, and which tasks await it.",
    "pstree": "Show which tasks of a running program await which others, with files and lines.",
}
_ASKED = """\
The program has to answer: start it with GOLOOP_INTROSPECT=1, or have it call
goloop.introspect(). It answers its own user and root. From Python 3.14 on no such
agreement is needed for a program that you may trace."""
GIL_HELD = "the GIL is held; what follows is what the monitor knows"


def _show(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def main(command: str, arguments: list[str]) -> int:
    """`ps PID` or `pstree PID`; returns the exit status."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(f"usage: python -m goloop {command} PID\n\n{_ABOUT[command]}\n\n{_ASKED}")
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
    # CPython reads any program's memory, also while its GIL is held; but not all names.
    if answer.get("partial") and sys.version_info >= (3, 14):
        done, text = _read_remotely(command, pid)
        if done:
            _show(text)
            return 0
        reasons.append(text)
    if "tasks" not in answer and "loops" not in answer:
        print(*filter(None, reasons), sep="\n", file=sys.stderr)
        return 1
    if answer.get("partial"):
        print(f"process {pid}: {GIL_HELD}", file=sys.stderr)
        _show(_threads(answer))
    else:
        rows = answer["tasks"]
        _show(table(rows) if command == "ps" else tree(rows))
    return 0


def _read_remotely(command: str, pid: int) -> tuple[bool, str]:
    """Whether CPython's own reading has succeeded, and what it says."""
    tools: Any = __import__("asyncio.tools").tools
    read = tools.get_all_awaited_by
    tools.get_all_awaited_by = lambda *args, **options: _escaped(read(*args, **options))
    show: Any = (
        tools.display_awaited_by_tasks_table
        if command == "ps"
        else tools.display_awaited_by_tasks_tree
    )
    said = io.StringIO()
    done = True
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            show(pid)
        except SystemExit as status:
            done = not status.code
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
            done = False
        finally:
            tools.get_all_awaited_by = read
    return done, "\n".join(map(printable, said.getvalue().rstrip().split("\n")))


def _escaped(found: Any) -> Any:
    """What CPython has read, with the texts as they may be printed: a line feed breaks no table."""
    if isinstance(found, str):
        return printable(found)
    if not isinstance(found, (list, tuple)):
        return found
    several = [_escaped(each) for each in found]
    # A named tuple takes its fields, and a sequence of C's (PyStructSequence) all of them in one.
    make: Any = getattr(type(found), "_make", type(found))
    return make(several)
