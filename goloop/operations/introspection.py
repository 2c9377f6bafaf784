"""The introspection server in a program, for `python -m goloop ps`, `pstree`, `top` and others.

With GOLOOP_INTROSPECT=1 in the environment, or after goloop.introspect(), a thread answers requests
at a Unix socket, from the program's own user and from root only.  Otherwise no socket is opened.  A
forked child has a thread and a socket of its own.

On Linux the socket has an abstract name (unix(7)).  It leaves no file, its name does not depend on
settings of either side, and the client checks the process id of the server.  Processes of another
PID namespace (another container) neither send nor get requests.  On other systems the socket is a
file in a private folder of the user.

The protocol, version 1.  A client sends one line of JSON, and reads one JSON document until EOF:

    {"ask": "tasks"}    all unfinished tasks: "tasks" is a list of rows
    {"ask": "top"}      the process, its loops, and their metrics, tasks and connections; "tasks"
                        and "connections" in the request limit the number of rows of each loop
    {"ask": "profile"}  the sampling profile: "profile" is the input of profiling.from_raw()
    {"ask": "trace"}    the events of the loops from now on: a line of JSON with "trace", then the
                        frames of pybridge/golib/trace.go, until the client shuts down its side

A row has the task's id, name and stack (innermost first; each frame is [function, file, line]),
and the tasks that await it.  Each answer has "protocol" and "pid".  The answer to an invalid
request has "error".

The program may close the socket (for example by os.closerange() when it becomes a daemon), and its
number may then belong to another file.  The server does not use that file, and requests remain
unanswered until introspect() is called again.

While other code owns the GIL, no Python thread can answer.  Then the monitor answers at the same
socket (pybridge/golib/introspection_answer.go).  It gives the same answer to all requests:
{"partial": true}, and for each loop the facts that are known without the GIL: its "number" in
reports, its "metrics", "blocked_for" (seconds) and the "stack" of its thread, innermost last.  The
answer includes the "profile".
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import re
import select
import socket
import struct
import sys
import tempfile
import time
import warnings

from .._internal import backend
from .._internal.helper_threads import HelperThread
from .._internal.loop.descriptors import close_own_socket, file_identity
from .._internal.observe import profiling
from .._internal.version import __version__
from . import proc_stat
from .snapshot import CONNECTIONS, TASKS, describe_process, describe_tasks

TYPE_CHECKING = False
if backend.native or TYPE_CHECKING:
    from .. import _core
if TYPE_CHECKING:
    from .._internal.loop.descriptors import FileIdentity
    from .snapshot import Row

PROTOCOL = 1
ABSTRACT = sys.platform == "linux"

# Abstract names belong to the network namespace, which containers may share.  Process ids belong to
# the PID namespace, and each container has a process 1.  So the name includes the PID namespace.
NAME = "goloop-introspect-"

_REQUEST_BYTES = 4096
_REQUEST_SECONDS = 1
_ANSWER_SECONDS = 10

_serving: socket.socket | None = None
# Device and inode of the socket (fstat(2)), which show whether the program has closed it.
_serving_file: FileIdentity = (0, 0)
_fork_hook_registered = False


def address(pid: int) -> str:
    """Return the address of the introspection socket of a process."""
    return f"\0{prefix()}{pid}" if ABSTRACT else os.path.join(folder(), f"{pid}.sock")


def prefix() -> str:
    """Return the prefix of abstract names for the processes of this PID namespace."""
    try:
        return f"{NAME}{os.stat('/proc/self/ns/pid').st_ino}-"
    except OSError:
        return f"{NAME}0-"  # /proc is not mounted


def folder() -> str:
    """Return the folder of the socket files, for systems without abstract names."""
    return os.path.join(tempfile.gettempdir(), f"goloop-{os.getuid()}")


def peer(sock: socket.socket) -> tuple[int | None, int]:
    """Return the process id and the user id of the peer; raises OSError.

    The process id is 0 if the peer is in another PID namespace.  On a system without SO_PEERCRED
    the result is (None, this process's effective user id), because the mode of the socket's folder
    excludes all other users.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return None, os.geteuid()
    size = struct.calcsize("3i")
    facts = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid, uid, _ = struct.unpack("3i", facts)
    return pid, uid


# ---- the socket -------------------------------------------------------------------------


def introspect() -> None:
    """Start the introspection server in this process and in its forked children.

    Further calls do nothing, unless the program has closed the socket: then a new one is opened.
    Raises OSError if the socket cannot be opened, RuntimeError if no thread can be started. After
    that error the socket stays open, but only the monitor answers there.
    """
    global _serving, _serving_file, _fork_hook_registered
    if _serving is not None:
        if file_identity(_serving.fileno()) == _serving_file:
            return
        _stop()
    server = socket.socket(socket.AF_UNIX)
    try:
        _bind(server)
        # While another thread owns the GIL, clients that time out stay in this queue.
        server.listen(64)
        # Non-blocking, because the monitor accepts clients too while another thread owns the GIL.
        server.setblocking(False)
    except OSError:
        server.close()
        raise
    _serving, _serving_file = server, file_identity(server.fileno())
    _set_core_listener(server.fileno())
    if not _fork_hook_registered:
        os.register_at_fork(after_in_child=_in_child)
        _fork_hook_registered = True
    thread = HelperThread("goloop-introspect", _serve, server, _serving_file)
    thread.begin(functools.partial(_end_serving, thread, server, _serving_file))


def introspect_or_warn() -> None:
    """Call introspect(), and issue a RuntimeWarning if that raises OSError.

    For GOLOOP_INTROSPECT=1, which the caller has checked, and for forked children.
    """
    try:
        introspect()
    except OSError as error:
        message = f"goloop cannot open its introspection socket: {error}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)


def _in_child() -> None:
    """Serve in a forked child, too, with a socket of its own, if the parent served."""
    if _serving is not None:
        _stop()
        introspect_or_warn()


def _stop() -> None:
    """Stop serving; close the socket unless its descriptor belongs to another file now."""
    global _serving
    _set_core_listener(-1)
    if _serving is not None:
        close_own_socket(_serving, _serving_file)
    _serving = None


def _set_core_listener(fd: int) -> None:
    """Pass the listening socket to the monitor; -1: none."""
    if backend.native:
        _core._set_introspection_socket(fd)


def _bind(server: socket.socket) -> None:
    """Bind the server's socket; raises OSError.

    On a system without abstract names this also creates the folder, removes the socket files of
    ended processes, and has the own file removed at exit.  PermissionError: other users can access
    the folder.
    """
    path = address(os.getpid())
    if ABSTRACT:
        server.bind(path)
        return
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder(), 0o700)
    facts = os.lstat(folder())
    if facts.st_uid != os.getuid() or facts.st_mode & 0o077 or not os.path.isdir(folder()):
        raise PermissionError(f"{folder()} must be a folder that only this user can access")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    for pid in pids_with_socket_file():
        if not is_alive(pid):
            _remove(address(pid))
    server.bind(path)
    os.chmod(path, 0o600)
    atexit.register(_remove_own, path, os.getpid())


def pids_with_socket_file() -> list[int]:
    """Return the ids of all processes with a socket file, ended ones too; [] for abstract names."""
    if ABSTRACT:
        return []
    try:
        names = os.listdir(folder())
    except OSError:
        return []
    found = [re.fullmatch(r"(\d+)\.sock", name) for name in names]
    return sorted(int(match[1]) for match in found if match)


def is_alive(pid: int) -> bool:
    """Return true if a process with that id is running, of any user; false for a zombie."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # another user's process
    return proc_stat.state(pid) not in ("Z", "X")  # kill() succeeds for a zombie, too


def _remove(path: str) -> None:
    """Remove a socket file, if it exists."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def _remove_own(path: str, pid: int) -> None:
    """Remove the socket file of this process at its exit, but not in a forked child."""
    if os.getpid() == pid:  # not in a forked child
        _remove(path)


# ---- request and answer --------------------------------------------------------------------


# After this number of refused clients, or after a failure, the server sleeps this time in seconds.
_MAX_REFUSED = 16
_PAUSE = 0.02

# Epoll objects that must stay alive, because their destructor would close a descriptor that belongs
# to another file now.
_leaked_epolls: list[select.epoll] = []


# The connection that is being answered.
_client: socket.socket | None = None


def _end_serving(thread: HelperThread, server: socket.socket, file: FileIdentity) -> None:
    """End the server's thread when Python ends."""
    if file_identity(server.fileno()) != file:
        thread.is_away = True  # waits for ever: the program has closed the socket
        return
    for sock in (server, _client):
        with contextlib.suppress(OSError):
            if sock is not None:
                sock.shutdown(socket.SHUT_RDWR)  # wakes the thread


def _serve(thread: HelperThread, server: socket.socket, file: FileIdentity) -> None:
    """Accept and answer clients until the socket is closed; the body of the server's thread."""
    global _client
    refused = 0
    while _wait(server, file) and not thread.is_ending:
        try:
            client = server.accept()[0]
        except BlockingIOError:
            continue  # the monitor was first
        except OSError:
            time.sleep(_PAUSE)  # the client disconnected, or no descriptors are left
            continue
        _client = client
        refused += not handle(client)
        _client = None
        if refused == _MAX_REFUSED:
            refused = 0
            time.sleep(_PAUSE)


def _wait(server: socket.socket, file: FileIdentity) -> bool:
    """Wait for a client; return False if the socket is closed or its number is another file's.

    True may also be returned without a client.  On Linux poll(2) would keep a closed socket and its
    name alive, so this uses an epoll.
    """
    if not ABSTRACT:
        waiting = select.poll()
        waiting.register(server, select.POLLIN)
        waiting.poll()
        return file_identity(server.fileno()) == file
    try:
        epoll = select.epoll()
    except OSError:
        time.sleep(_PAUSE)
        return file_identity(server.fileno()) == file
    with contextlib.suppress(OSError, ValueError):
        epoll.register(server, select.EPOLLIN)
        epoll.poll()
        if file_identity(server.fileno()) == file:
            epoll.modify(server, 0)  # fails if the epoll's descriptor is another file's
            epoll.close()
            return True
    _leaked_epolls.append(epoll)
    return False


def handle(client: socket.socket) -> bool:
    """Answer the request of an accepted connection, and close the connection.

    Returns False, without an answer, if the client is neither this process's user nor root, or is
    in another container.  Raises no exception.
    """
    with client, contextlib.suppress(Exception):
        pid, uid = peer(client)
        if pid == 0 or uid not in (os.geteuid(), 0):
            return False
        client.settimeout(_REQUEST_SECONDS)
        request = _read_line(client)
        response = respond(request)
        if response.pop("trace", False):
            _trace(client)
            return True
        answer = json.dumps(response).encode()
        client.settimeout(_ANSWER_SECONDS)
        client.sendall(answer)
        # shutdown(), because a child forked meanwhile has a copy of this descriptor.
        client.shutdown(socket.SHUT_WR)
    return True


def _trace(client: socket.socket) -> None:
    """Start the thread that sends the trace, with a duplicate of the connection, and return.

    The caller still closes its own descriptor.  Raises ImportError or OSError if the thread cannot
    be started; the duplicate is then closed.
    """
    number = os.dup(client.fileno())
    try:
        _core._trace(number)
    except BaseException:
        os.close(number)
        raise


def _read_line(client: socket.socket) -> bytes:
    """Return the client's request line, cut at _REQUEST_BYTES; b"" if it sends nothing."""
    line = b""
    while b"\n" not in line and len(line) < _REQUEST_BYTES:
        part = client.recv(_REQUEST_BYTES)
        if not part:
            break
        line += part
    return line


def respond(request: bytes) -> Row:
    """Return the answer to a request line, as a dict for json.dumps(); raises no Exception.

    An invalid or failed request is answered with "error".
    """
    answer: Row = {"protocol": PROTOCOL, "pid": os.getpid()}
    try:
        fields = json.loads(request)
        kind = fields.get("ask")
        if kind == "tasks":
            answer["tasks"] = describe_tasks()
        elif kind == "top":
            limits = fields.get("tasks", TASKS), fields.get("connections", CONNECTIONS)
            answer.update(describe_process(*(max(0, int(limit)) for limit in limits)))
        elif kind == "profile":
            answer["profile"] = profiling.snapshot()
        elif kind == "trace":
            answer["trace"] = profiling.counts_here()
            if not answer["trace"]:
                answer["error"] = "no goloop loop has run in this process"
        else:
            answer["error"] = (
                f"goloop {__version__} of the program does not know the request {kind!r}: update it"
            )
    except Exception as error:
        # A failing request must not end the thread.
        answer["error"] = f"{type(error).__name__}: {error}"
    return answer
