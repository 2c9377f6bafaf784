"""Functions of os, fcntl, io and select for simulated descriptors, pipes and socket paths.

Each replacement has the parameters and the result of its original, and calls the original for a
real descriptor or path. A descriptor >= kernel.FIRST is simulated, so functions with a descriptor
work in every thread. In the thread of a simulation `os.pipe()` makes simulated pipes, and paths of
Unix sockets are looked up in the simulated kernel; all other paths belong to the real system.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import select
import socket
import stat
import struct
import threading
from typing import Any

from .errors import EscapedSimulation
from .kernel import FIRST, Request, kernel_of_thread, owner_number, request

_NONBLOCK = os.O_NONBLOCK
_AT_ONCE = 1 << 18  # bytes that sendfile moves in one call

_pipe, _read, _write = os.pipe, os.read, os.write
_pipe2: Any = getattr(os, "pipe2", None)
_close, _dup, _fstat, _isatty = os.close, os.dup, os.fstat, os.isatty
_get_blocking, _set_blocking = os.get_blocking, os.set_blocking
_get_inheritable, _set_inheritable = os.get_inheritable, os.set_inheritable
_open = io.open  # on its own: Nuitka 4.3 fails on a tuple with io.open
_sendfile, _fcntl = os.sendfile, fcntl.fcntl
_stat, _unlink, _remove, _chmod = os.stat, os.unlink, os.remove, os.chmod
_poll: Any = getattr(select, "poll", None)
_select: Any = select.select
ADD = 1  # EPOLL_CTL_ADD
_EVENT = struct.Struct("=Q")
_EVERYTHING: int = getattr(select, "POLLIN", 1) | getattr(select, "POLLOUT", 4)


def number_of(file: Any) -> int:
    """Return the descriptor of a file; a number is returned unchanged."""
    number: int = file if isinstance(file, int) else file.fileno()
    return number


def is_simulated(number: object) -> bool:
    """Return true if a descriptor belongs to a simulated kernel."""
    return isinstance(number, int) and number >= FIRST


# ---- pipes ---------------------------------------------------------------------------------------


def pipe_for(reader: int, writer: int, flags: int = os.O_CLOEXEC) -> tuple[int, int]:
    """Make a simulated pipe and return its two ends, the reading one first.

    `reader` and `writer` are the owner_number() of the hosts or child programs that own the ends.
    """
    kernel = kernel_of_thread[threading.get_ident()]
    reads, writes, _ = request(Request.PIPE, kernel.number, flags, reader, writer)
    return reads, writes


def pipe() -> tuple[int, int]:
    """Replacement of os.pipe: in a simulation the pipe is simulated, and not inheritable."""
    if threading.get_ident() not in kernel_of_thread:
        return _pipe()
    return pipe_for(owner_number(), owner_number())


def pipe2(flags: int) -> tuple[int, int]:
    """Replacement of os.pipe2: in a simulation the pipe is simulated, with these flags."""
    if threading.get_ident() not in kernel_of_thread:
        made: tuple[int, int] = _pipe2(flags)
        return made
    return pipe_for(owner_number(), owner_number(), flags)


class PipeFile(io.RawIOBase):
    """A raw file over a simulated descriptor, for `open()`."""

    def __init__(self, number: int, mode: str, closefd: bool = True) -> None:
        """Wrap descriptor `number` of this thread's kernel; `closefd` is as in open()."""
        super().__init__()
        self._number, self._closefd = number, closefd
        self._kernel = kernel_of_thread.get(threading.get_ident())
        self.mode, self.name = mode, number

    def __repr__(self) -> str:
        return f"<simulated file name={self.name} mode={self.mode!r}>"

    def fileno(self) -> int:
        """Return the descriptor."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return self._number

    def readable(self) -> bool:
        """Return true if the mode allows reading."""
        return "r" in self.mode or "+" in self.mode

    def writable(self) -> bool:
        """Return true if the mode allows writing."""
        return not self.readable() or "+" in self.mode

    def readinto(self, buffer: Any) -> int | None:
        """Read the available bytes; return their number, or None if the read would block."""
        view = memoryview(buffer).cast("B")
        try:
            data = read(self.fileno(), len(view))
        except BlockingIOError:
            return None
        view[: len(data)] = data
        return len(data)

    def write(self, data: Any) -> int | None:
        """Write as many bytes as fit; return their number, or None if the write would block."""
        try:
            return write(self.fileno(), data)
        except BlockingIOError:
            return None

    def close(self) -> None:
        """Close the file and its descriptor."""
        was_open = not self.closed
        super().close()
        # A later kernel reuses the numbers of a closed kernel.
        gone = self._kernel is not None and self._kernel.closed
        if was_open and self._closefd and not gone:
            with contextlib.suppress(OSError):
                close(self._number)


def open_(
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
) -> Any:
    """Replacement of open(): a number may be a simulated descriptor, which becomes a PipeFile.

    The result is the PipeFile itself without buffering, else a file over it. ValueError for text
    without buffering.
    """
    if not is_simulated(file):
        return _open(file, mode, buffering, encoding, errors, newline, closefd, opener)
    raw = PipeFile(file, mode.replace("b", "").replace("t", ""), closefd)
    if buffering == 0:
        if "b" not in mode:
            raise ValueError("can't have unbuffered text I/O")
        return raw
    size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
    made: Any = io.BufferedReader(raw, size) if raw.readable() else io.BufferedWriter(raw, size)
    if "b" in mode:
        return made
    return io.TextIOWrapper(made, encoding, errors, newline, line_buffering=buffering == 1)


# ---- descriptors ---------------------------------------------------------------------------------


def read(fd: int, length: int, /) -> bytes:
    """Replacement of os.read: read from a simulated pipe or socket."""
    if not is_simulated(fd):
        return _read(fd, length)
    n, _, data = request(Request.READ, fd, length, room=length)
    return bytes(data[:n])


def write(fd: int, data: Any, /) -> int:
    """Replacement of os.write: write to a simulated pipe or socket; return the number of bytes."""
    if not is_simulated(fd):
        return _write(fd, data)
    raw = bytes(data)
    return request(Request.WRITE, fd, len(raw), data=raw)[0]


def close(fd: int) -> None:
    """Replacement of os.close: close a simulated descriptor."""
    if is_simulated(fd):
        request(Request.CLOSE, fd)
    else:
        _close(fd)


def dup(fd: int, /) -> int:
    """Replacement of os.dup: return a new simulated descriptor for the same file."""
    return request(Request.DUP, fd)[0] if is_simulated(fd) else _dup(fd)


def get_blocking(fd: int, /) -> bool:
    """Replacement of os.get_blocking: return false if a simulated file is in non-blocking mode."""
    if not is_simulated(fd):
        return _get_blocking(fd)
    return not request(Request.CONTROL, fd, fcntl.F_GETFL)[0] & _NONBLOCK


def set_blocking(fd: int, blocking: bool, /) -> None:
    """Replacement of os.set_blocking: set or clear O_NONBLOCK of a simulated file."""
    if not is_simulated(fd):
        _set_blocking(fd, blocking)
        return
    flags = request(Request.CONTROL, fd, fcntl.F_GETFL)[0]
    request(
        Request.CONTROL, fd, fcntl.F_SETFL, flags & ~_NONBLOCK if blocking else flags | _NONBLOCK
    )


def get_inheritable(fd: int, /) -> bool:
    """Replacement of os.get_inheritable: false for a simulated descriptor."""
    return False if is_simulated(fd) else _get_inheritable(fd)


def set_inheritable(fd: int, inheritable: bool, /) -> None:
    """Replacement of os.set_inheritable: EscapedSimulation for True and a simulated descriptor."""
    if not is_simulated(fd):
        _set_inheritable(fd, inheritable)
    elif inheritable:
        raise EscapedSimulation("a child process can't inherit a simulated descriptor")


def isatty(fd: int, /) -> bool:
    """Replacement of os.isatty: false for a simulated descriptor."""
    return False if is_simulated(fd) else _isatty(fd)


def fstat(fd: int) -> os.stat_result:
    """Replacement of os.fstat: the result has only the type, pipe or socket, and an inode.

    The inode of a simulated descriptor is its number.
    """
    if not is_simulated(fd):
        return _fstat(fd)
    return _stat_result(stat.S_IFSOCK if is_socket(fd) else stat.S_IFIFO, fd)


def is_socket(fd: int) -> bool:
    """Return true if a simulated descriptor is a socket, false if it is a pipe."""
    try:
        request(Request.GET_OPTION, fd, socket.SOL_SOCKET, socket.SO_TYPE)
    except OSError as exc:
        if exc.errno != errno.ENOTSOCK:
            raise
        return False
    return True


def _stat_result(kind: int, inode: int) -> os.stat_result:
    """Return the stat result of a simulated file; `kind` is S_IFSOCK or S_IFIFO."""
    return os.stat_result((kind | 0o700, inode, 0, 1, 0, 0, 0, 0, 0, 0))


def fcntl_(fd: Any, cmd: int, arg: Any = 0, /) -> Any:
    """Replacement of fcntl.fcntl: control a simulated descriptor; `arg` must be an integer."""
    number = number_of(fd)
    if not is_simulated(number):
        return _fcntl(fd, cmd, arg)
    return request(Request.CONTROL, number, cmd, int(arg))[0]


def sendfile(
    out_fd: int, in_fd: int, offset: int | None, count: int, *args: Any, **options: Any
) -> int:
    """Replacement of os.sendfile: send a part of a real file to a simulated descriptor.

    Returns the number of bytes sent. As in Linux, `offset` None means the file's own position.
    """
    if not is_simulated(out_fd):
        return _sendfile(out_fd, in_fd, offset, count, *args, **options)
    size = min(count, _AT_ONCE)
    data = _read(in_fd, size) if offset is None else os.pread(in_fd, size, offset)
    sent = write(out_fd, data) if data else 0
    if offset is None and sent < len(data):
        os.lseek(in_fd, sent - len(data), os.SEEK_CUR)
    return sent


# ---- readiness -----------------------------------------------------------------------------------


def epoll_wait(epoll: int, ns: int, most: int) -> list[tuple[int, int]]:
    """Wait for a simulated epoll; return at most `most` pairs of descriptor and events.

    `ns` is the timeout in nanoseconds of virtual time, -1 for none.
    """
    n, _, data = request(Request.EPOLL_WAIT, epoll, ns, room=most * _EVENT.size)
    found = _EVENT.iter_unpack(data[: n * _EVENT.size])
    return [(event >> 32, event & 0xFFFF_FFFF) for (event,) in found]


class Poll:
    """Replacement of a poll object of select.poll(), for simulated and real descriptors."""

    def __init__(self) -> None:
        """Create an object without registered descriptors."""
        self._real_poll: Any = _poll()
        self._wanted: dict[int, int] = {}

    def register(self, fd: Any, eventmask: int = _EVERYTHING, /) -> None:
        """Register a descriptor or change its events; `eventmask` has POLLIN, POLLOUT and so on."""
        number = number_of(fd)
        if is_simulated(number):
            self._wanted[number] = eventmask
        else:
            self._real_poll.register(number, eventmask)

    modify = register

    def unregister(self, fd: Any, /) -> None:
        """Deregister a descriptor; KeyError if it is not registered."""
        number = number_of(fd)
        if is_simulated(number):
            del self._wanted[number]
        else:
            self._real_poll.unregister(number)

    def poll(self, timeout: float | None = None, /) -> list[tuple[int, int]]:
        """Wait up to `timeout` milliseconds; return the ready descriptors and their events.

        Only simulated descriptors are waited for; real ones are polled once. None means no timeout.
        """
        found: list[tuple[int, int]] = self._real_poll.poll(0)
        if not self._wanted:
            return found
        if found:
            ns = 0
        elif timeout is None or timeout < 0:
            ns = -1
        else:
            ns = round(timeout * 1e6)
        number = request(Request.EPOLL, kernel_of_thread[threading.get_ident()].number)[0]
        try:
            for fd, events in self._wanted.items():
                request(Request.EPOLL_CONTROL, number, ADD, fd, events)
            ready = epoll_wait(number, ns, len(self._wanted))
        finally:
            request(Request.CLOSE, number)
        return found + [(fd, events & 0xFFFF) for fd, events in ready]


def poll() -> Any:
    """Replacement of select.poll: return a Poll in a simulation."""
    return Poll() if threading.get_ident() in kernel_of_thread else _poll()


def select_(rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None, /) -> Any:
    """Replacement of select.select: accepts simulated and real descriptors.

    With a simulated one, `timeout` is in seconds of virtual time, and real ones are polled once.
    """
    lists = [list(rlist), list(wlist), list(xlist)]
    masks = select.POLLIN, select.POLLOUT, select.POLLPRI
    wanted: dict[int, int] = {}
    for each, mask in zip(lists, masks, strict=True):
        for fd in each:
            number = number_of(fd)
            wanted[number] = wanted.get(number, 0) | mask
    if not any(map(is_simulated, wanted)):
        return _select(*lists, timeout)
    asked = Poll()
    for number, mask in wanted.items():
        asked.register(number, mask)
    ready = dict(asked.poll(None if timeout is None else timeout * 1000))
    broken = select.POLLERR | select.POLLHUP

    def ready_of(files: Any, mask: int) -> list[Any]:
        """Return the files with one of the events of `mask`."""
        return [each for each in files if ready.get(number_of(each), 0) & mask]

    return (
        ready_of(lists[0], masks[0] | broken),
        ready_of(lists[1], masks[1] | broken),
        ready_of(lists[2], masks[2]),
    )


# ---- the paths of Unix sockets -------------------------------------------------------------------


def _inode(path: Any) -> int:
    """Return the inode of a simulated Unix socket's path; 0 if the path is not simulated."""
    kernel = kernel_of_thread.get(threading.get_ident())
    if kernel is None or isinstance(path, int):
        return 0
    name = os.fsencode(path)
    try:
        return request(Request.INODE, kernel.number, len(name), owner_number(), data=name)[0]
    except OSError:
        return 0


def stat_(path: Any, *args: Any, **options: Any) -> os.stat_result:
    """Replacement of os.stat: accepts simulated descriptors and paths of simulated sockets."""
    if is_simulated(path):
        return fstat(path)
    if inode := _inode(path):
        return _stat_result(stat.S_IFSOCK, inode)
    return _stat(path, *args, **options)


def _replace_unlink(original: Any) -> Any:
    """Return the replacement of `original`, which is os.unlink or os.remove."""

    def unlink(path: Any, *args: Any, **options: Any) -> None:
        """Remove the path of a simulated Unix socket, or else a real file."""
        if not _inode(path):
            original(path, *args, **options)
            return
        name = os.fsencode(path)
        kernel = kernel_of_thread[threading.get_ident()]
        request(Request.UNLINK, kernel.number, len(name), owner_number(), data=name)

    return unlink


def chmod(path: Any, mode: int, *args: Any, **options: Any) -> None:
    """Replacement of os.chmod: does nothing for the path of a simulated socket."""
    if not _inode(path):
        _chmod(path, mode, *args, **options)


FUNCTIONS: tuple[tuple[Any, Any], ...] = (
    (_pipe, pipe),
    *(((_pipe2, pipe2),) if _pipe2 is not None else ()),
    (_read, read),
    (_write, write),
    (_close, close),
    (_dup, dup),
    (_fstat, fstat),
    (_isatty, isatty),
    (_get_blocking, get_blocking),
    (_set_blocking, set_blocking),
    (_get_inheritable, get_inheritable),
    (_set_inheritable, set_inheritable),
    (_sendfile, sendfile),
    (_fcntl, fcntl_),
    (_open, open_),
    (_stat, stat_),
    (_unlink, _replace_unlink(_unlink)),
    (_remove, _replace_unlink(_remove)),
    (_chmod, chmod),
    (_poll, poll),
    (_select, select_),
)
