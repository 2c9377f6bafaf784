"""What a program tells of itself to `python -m goloop ps`, `pstree` and `top`.

With GOLOOP_INTROSPECT=1 in its environment, or after goloop.introspect(), a thread answers at a
Unix socket, to the program's own user and to root.  Nothing is opened unless asked for.  A forked
child answers too, by a thread and a socket of its own.

On Linux the socket has an abstract name (unix(7)): no file is left behind, no setting of either
side moves it, and the client looks whether it is really the process that answers.  A process of
another PID namespace (another container) is neither asked nor answered.  Elsewhere it
lies in a folder of the user's own.

The protocol, version 1.  A client sends one line of JSON, and reads one JSON document to the end:

    {"ask": "tasks"}    all unfinished tasks: "tasks" is a list of rows
    {"ask": "top"}      the process, its loops, their figures, tasks and connections; "tasks" and
                        "connections" in the question say of how many at most each loop tells
    {"ask": "profile"}  who has had the loops' time: "profile" is what profiling.from_raw() reads
    {"ask": "trace"}    what the loops do from now on: a line of JSON with "trace", and then the
                        frames of pybridge/golib/trace.go, until the client ends its side

A row has the task's id, name and stack (innermost first; each frame is [function, file, line]),
and the tasks that await it.  Each answer has "protocol" and "pid", and where the question was not
understood, "error".

Somebody may close the socket (os.closerange in a program that makes itself a daemon), and its
number is another file's then: that is left alone, and nobody answers until introspect() is called
again.

While something holds the GIL, no Python thread can answer.  Then the monitor does
(pybridge/golib/introspection_answer.go), at the same socket and whatever it is asked: it says
{"partial": true}, and of each loop what is known without the GIL: its "number" in reports, its
"metrics", "blocked_for" (seconds) and the "stack" of its thread, innermost last.  It has the
"profile" too.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import select
import socket
import struct
import sys
import tempfile
import threading
import time
import warnings

from .._internal import backend
from .._internal.loop.descriptors import close_own_socket, file_of
from .._internal.version import __version__
from .snapshot import CONNECTIONS, TASKS, describe_process, describe_tasks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._internal.loop.descriptors import File
    from .snapshot import Row

PROTOCOL = 1
ABSTRACT = sys.platform == "linux"

# Abstract names belong to the network, which containers may share; processes' ids do not, and the
# first of each container is 1.  So the name of such a set of ids stands before the id.
NAME = "goloop-introspect-"

_QUESTION_BYTES = 4096
_QUESTION_SECONDS = 1
_ANSWER_SECONDS = 10

_serving: socket.socket | None = None
# Which file it is, as fstat(2) says: whoever closes all descriptors closes it too.
_serving_file: File = (0, 0)
_forks_watched = False


def address(pid: int) -> str:
    """Where the program with that id answers."""
    return f"\0{prefix()}{pid}" if ABSTRACT else os.path.join(folder(), f"{pid}.sock")


def prefix() -> str:
    """What stands before the ids of the processes that this one can see, in an abstract name."""
    try:
        return f"{NAME}{os.stat('/proc/self/ns/pid').st_ino}-"
    except OSError:
        return f"{NAME}0-"  # there is no /proc


def folder() -> str:
    """Where the sockets lie that are files."""
    return os.path.join(tempfile.gettempdir(), f"goloop-{os.getuid()}")


def peer(sock: socket.socket) -> tuple[int | None, int]:
    """The process and the user at the other end.

    The process is 0 where it is in another PID namespace, and None where the system tells none.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return None, os.geteuid()  # the folder's mode keeps others out
    size = struct.calcsize("3i")
    facts = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid, uid, _ = struct.unpack("3i", facts)
    return pid, uid


# ---- the socket -------------------------------------------------------------------------


def introspect() -> None:
    """Let `python -m goloop ps` and its kin look at this process and its forked children.

    Idempotent, but that it makes a socket anew where somebody has closed it.  Raises OSError where
    the socket can't be had.
    """
    global _serving, _serving_file, _forks_watched
    if _serving is not None:
        if file_of(_serving.fileno()) == _serving_file:
            return
        _stop()
    server = socket.socket(socket.AF_UNIX)
    try:
        _bind(server)
        # A client that gives up while the GIL is held stays in the queue until it is let go.
        server.listen(64)
        # What accepts must not wait for it: the monitor does so too, while the GIL is held.
        server.setblocking(False)
    except OSError:
        server.close()
        raise
    _serving, _serving_file = server, file_of(server.fileno())
    _tell_core(server.fileno())
    if not _forks_watched:
        os.register_at_fork(after_in_child=_in_child)
        _forks_watched = True
    threading.Thread(
        target=_serve, args=(server, _serving_file), name="goloop-introspect", daemon=True
    ).start()


def introspect_if_asked() -> None:
    """introspect() for GOLOOP_INTROSPECT=1, which must not keep a program from starting."""
    try:
        introspect()
    except OSError as error:
        warnings.warn(f"`goloop ps` won't be answered: {error}", RuntimeWarning, stacklevel=2)


def _in_child() -> None:
    if _serving is not None:
        _stop()
        introspect_if_asked()


def _stop() -> None:
    """Forget the socket, and close it unless its number is somebody else's by now."""
    global _serving
    _tell_core(-1)
    if _serving is not None:
        close_own_socket(_serving, _serving_file)
    _serving = None


def _tell_core(fd: int) -> None:
    """Where others ask, for the monitor; -1: nowhere."""
    if backend.native:
        from .. import _core

        _core._set_asker(fd)


def _bind(server: socket.socket) -> None:
    path = address(os.getpid())
    if ABSTRACT:
        server.bind(path)
        return
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder(), 0o700)
    facts = os.lstat(folder())
    if facts.st_uid != os.getuid() or facts.st_mode & 0o077 or not os.path.isdir(folder()):
        raise PermissionError(f"{folder()} is not a folder of this user alone")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    for pid in sockets():
        if not is_alive(pid):
            _remove(address(pid))
    server.bind(path)
    os.chmod(path, 0o600)
    atexit.register(_remove_own, path, os.getpid())


def sockets() -> list[int]:
    """The processes whose socket files there are, dead ones too; [] where there are no files."""
    if ABSTRACT:
        return []
    try:
        names = os.listdir(folder())
    except OSError:
        return []
    found = [re.fullmatch(r"(\d+)\.sock", name) for name in names]
    return sorted(int(match[1]) for match in found if match)


def is_alive(pid: int) -> bool:
    """Whether such a process runs, of whichever user."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # another user's
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        # One that has ended, and that its parent has not yet asked about, takes signals too.
        return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    return True


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _remove_own(path: str, pid: int) -> None:
    if os.getpid() == pid:  # not in a forked child
        _remove(path)


# ---- question and answer -------------------------------------------------------------------


# After so many that may not ask, or another failure, the next is kept waiting so long, in seconds.
_REFUSED_MOST = 16
_PAUSE = 0.02

# Whose numbers are somebody else's by now.  An epoll closes its number when it goes.
_lost: list[select.epoll] = []


def _serve(server: socket.socket, file: File) -> None:
    refused = 0
    while _wait(server, file):
        try:
            client = server.accept()[0]
        except BlockingIOError:
            continue  # the monitor was first
        except OSError:
            time.sleep(_PAUSE)  # the client has gone, or no descriptors are left
            continue
        refused += not handle(client)
        if refused == _REFUSED_MOST:
            refused = 0
            time.sleep(_PAUSE)


def _wait(server: socket.socket, file: File) -> bool:
    """Wait for a client; False once the socket is no more, or somebody else's.

    poll(2) would keep a socket that is closed, and its name, and go on with the number's next one.
    """
    if not ABSTRACT:
        waiting = select.poll()
        waiting.register(server, select.POLLIN)
        waiting.poll()
        return file_of(server.fileno()) == file
    try:
        epoll = select.epoll()
    except OSError:
        time.sleep(_PAUSE)
        return file_of(server.fileno()) == file
    with contextlib.suppress(OSError, ValueError):
        epoll.register(server, select.EPOLLIN)
        epoll.poll()
        if file_of(server.fileno()) == file:
            epoll.modify(server, 0)  # an epoll that knows our listener is ours
            epoll.close()
            return True
    _lost.append(epoll)
    return False


def handle(client: socket.socket) -> bool:
    """Answer the question that comes in by an accepted connection, and close it.

    Other users than the process's own and root get no answer, nor do other containers: False.
    Raises nothing.
    """
    with client, contextlib.suppress(Exception):
        pid, uid = peer(client)
        if pid == 0 or uid not in (os.geteuid(), 0):
            return False
        client.settimeout(_QUESTION_SECONDS)
        question = _read(client)
        response = respond(question)
        if response.pop("trace", False):
            _trace(client)
            return True
        answer = json.dumps(response).encode()
        client.settimeout(_ANSWER_SECONDS)
        client.sendall(answer)
        # A child that was forked meanwhile holds this connection too: close() is not its end.
        client.shutdown(socket.SHUT_WR)
    return True


def _trace(client: socket.socket) -> None:
    """Go tells of the loops by the connection from here on, on a thread of its own."""
    from .. import _core

    number = os.dup(client.fileno())
    try:
        _core._trace(number)
    except BaseException:
        os.close(number)
        raise


def _read(client: socket.socket) -> bytes:
    line = b""
    while b"\n" not in line and len(line) < _QUESTION_BYTES:
        part = client.recv(_QUESTION_BYTES)
        if not part:
            break
        line += part
    return line


def respond(question: bytes) -> Row:
    """The answer to a question as it came in, a dict for json.dumps()."""
    answer: Row = {"protocol": PROTOCOL, "pid": os.getpid()}
    try:
        asked = json.loads(question)
        what = asked.get("ask")
        if what == "tasks":
            answer["tasks"] = describe_tasks()
        elif what == "top":
            limits = asked.get("tasks", TASKS), asked.get("connections", CONNECTIONS)
            answer.update(describe_process(*(max(0, int(limit)) for limit in limits)))
        elif what == "profile":
            from .._internal.metrics import profiling

            answer["profile"] = profiling.snapshot()
        elif what == "trace":
            from .._internal.metrics import profiling

            answer["trace"] = profiling.counts_here()
            if not answer["trace"]:
                answer["error"] = "no loop of goloop has run here"
        else:
            answer["error"] = f"goloop {__version__} does not know the question {what!r}"
    except Exception as error:
        # One that fails must not end the thread.
        answer["error"] = f"{type(error).__name__}: {error}"
    return answer
