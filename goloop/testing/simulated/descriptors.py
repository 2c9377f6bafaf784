"""Descriptors of a simulated kernel in functions of os, fcntl, io and select; pipes and paths.

A number tells whose a descriptor is (kernel.FIRST), so the functions that take one ask no thread.
`os.pipe()` makes pipes of the simulation in its thread, and the path of a Unix socket is one that
the simulated kernel has; all other paths are the host's.
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
from .kernel import FIRST, Ask, ask, here, host_number

_NONBLOCK = os.O_NONBLOCK
_AT_ONCE = 1 << 18  # bytes that sendfile moves in one call

_pipe, _read, _write = os.pipe, os.read, os.write
_pipe2: Any = getattr(os, "pipe2", None)
_close, _dup, _fstat, _isatty = os.close, os.dup, os.fstat, os.isatty
_get_blocking, _set_blocking = os.get_blocking, os.set_blocking
_get_inheritable, _set_inheritable = os.get_inheritable, os.set_inheritable
_sendfile, _open, _fcntl = os.sendfile, io.open, fcntl.fcntl
_stat, _unlink, _remove, _chmod = os.stat, os.unlink, os.remove, os.chmod
_poll: Any = getattr(select, "poll", None)
_select: Any = select.select
ADD = 1  # EPOLL_CTL_ADD
_EVENT = struct.Struct("=Q")
_EVERYTHING: int = getattr(select, "POLLIN", 1) | getattr(select, "POLLOUT", 4)


def number_of(file: Any) -> int:
    """The descriptor of a file, or the number itself."""
    number: int = file if isinstance(file, int) else file.fileno()
    return number


def is_simulated(number: object) -> bool:
    """Whether a descriptor is a simulated kernel's."""
    return isinstance(number, int) and number >= FIRST


# ---- pipes ---------------------------------------------------------------------------------------


def pipe_for(reader: int, writer: int, flags: int = os.O_CLOEXEC) -> tuple[int, int]:
    """The ends of a pipe, each for an owner (kernel.host_number)."""
    kernel = here[threading.get_ident()]
    reads, writes, _ = ask(Ask.PIPE, kernel.number, flags, reader, writer)
    return reads, writes


def pipe() -> tuple[int, int]:
    """os.pipe."""
    if threading.get_ident() not in here:
        return _pipe()
    return pipe_for(host_number(), host_number())


def pipe2(flags: int) -> tuple[int, int]:
    """os.pipe2."""
    if threading.get_ident() not in here:
        made: tuple[int, int] = _pipe2(flags)
        return made
    return pipe_for(host_number(), host_number(), flags)


class PipeFile(io.RawIOBase):
    """What `open()` makes of a simulated descriptor."""

    def __init__(self, number: int, mode: str, closefd: bool = True) -> None:
        super().__init__()
        self._number, self._closefd = number, closefd
        self._kernel = here.get(threading.get_ident())
        self.mode, self.name = mode, number

    def __repr__(self) -> str:
        return f"<simulated file name={self.name} mode={self.mode!r}>"

    def fileno(self) -> int:
        """Its descriptor."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return self._number

    def readable(self) -> bool:
        """Whether it reads."""
        return "r" in self.mode or "+" in self.mode

    def writable(self) -> bool:
        """Whether it writes."""
        return not self.readable() or "+" in self.mode

    def readinto(self, buffer: Any) -> int | None:
        """Read what there is; None where that would block."""
        view = memoryview(buffer).cast("B")
        try:
            data = read(self.fileno(), len(view))
        except BlockingIOError:
            return None
        view[: len(data)] = data
        return len(data)

    def write(self, data: Any) -> int | None:
        """Write what there is room for; None where that would block."""
        try:
            return write(self.fileno(), data)
        except BlockingIOError:
            return None

    def close(self) -> None:
        """Close it, and its descriptor."""
        was_open = not self.closed
        super().close()
        # A later kernel has the numbers of one that is closed.
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
    """open, of the simulation's descriptors, too."""
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
    """os.read."""
    if not is_simulated(fd):
        return _read(fd, length)
    n, _, data = ask(Ask.READ, fd, length, room=length)
    return bytes(data[:n])


def write(fd: int, data: Any, /) -> int:
    """os.write."""
    if not is_simulated(fd):
        return _write(fd, data)
    raw = bytes(data)
    return ask(Ask.WRITE, fd, len(raw), data=raw)[0]


def close(fd: int) -> None:
    """os.close."""
    if is_simulated(fd):
        ask(Ask.CLOSE, fd)
    else:
        _close(fd)


def dup(fd: int, /) -> int:
    """os.dup."""
    return ask(Ask.DUP, fd)[0] if is_simulated(fd) else _dup(fd)


def get_blocking(fd: int, /) -> bool:
    """os.get_blocking."""
    if not is_simulated(fd):
        return _get_blocking(fd)
    return not ask(Ask.CONTROL, fd, fcntl.F_GETFL)[0] & _NONBLOCK


def set_blocking(fd: int, blocking: bool, /) -> None:
    """os.set_blocking."""
    if not is_simulated(fd):
        _set_blocking(fd, blocking)
        return
    flags = ask(Ask.CONTROL, fd, fcntl.F_GETFL)[0]
    ask(Ask.CONTROL, fd, fcntl.F_SETFL, flags & ~_NONBLOCK if blocking else flags | _NONBLOCK)


def get_inheritable(fd: int, /) -> bool:
    """os.get_inheritable."""
    return False if is_simulated(fd) else _get_inheritable(fd)


def set_inheritable(fd: int, inheritable: bool, /) -> None:
    """os.set_inheritable."""
    if not is_simulated(fd):
        _set_inheritable(fd, inheritable)
    elif inheritable:
        raise EscapedSimulation("a child process can't have a simulated descriptor")


def isatty(fd: int, /) -> bool:
    """os.isatty."""
    return False if is_simulated(fd) else _isatty(fd)


def fstat(fd: int) -> os.stat_result:
    """os.fstat: which kind it is, and nothing else."""
    if not is_simulated(fd):
        return _fstat(fd)
    return _facts(stat.S_IFSOCK if is_socket(fd) else stat.S_IFIFO, fd)


def is_socket(fd: int) -> bool:
    """Whether a simulated descriptor is a socket, or else a pipe."""
    try:
        ask(Ask.GET_OPTION, fd, socket.SOL_SOCKET, socket.SO_TYPE)
    except OSError as exc:
        if exc.errno != errno.ENOTSOCK:
            raise
        return False
    return True


def _facts(kind: int, inode: int) -> os.stat_result:
    return os.stat_result((kind | 0o700, inode, 0, 1, 0, 0, 0, 0, 0, 0))


def fcntl_(fd: Any, cmd: int, arg: Any = 0, /) -> Any:
    """fcntl.fcntl."""
    number = number_of(fd)
    if not is_simulated(number):
        return _fcntl(fd, cmd, arg)
    return ask(Ask.CONTROL, number, cmd, int(arg))[0]


def sendfile(
    out_fd: int, in_fd: int, offset: int | None, count: int, *args: Any, **options: Any
) -> int:
    """os.sendfile: a file of the host's to a socket of the simulation."""
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
    """What is ready, descriptors and events, after so many nanoseconds; with -1 without limit."""
    n, _, data = ask(Ask.EPOLL_WAIT, epoll, ns, room=most * _EVENT.size)
    found = _EVENT.iter_unpack(data[: n * _EVENT.size])
    return [(event >> 32, event & 0xFFFF_FFFF) for (event,) in found]


class Poll:
    """select.poll, of simulated descriptors and the host's."""

    def __init__(self) -> None:
        self._hosts: Any = _poll()
        self._wanted: dict[int, int] = {}

    def register(self, fd: Any, eventmask: int = _EVERYTHING, /) -> None:
        """Watch a descriptor."""
        number = number_of(fd)
        if is_simulated(number):
            self._wanted[number] = eventmask
        else:
            self._hosts.register(number, eventmask)

    modify = register

    def unregister(self, fd: Any, /) -> None:
        """Watch it no more."""
        number = number_of(fd)
        if is_simulated(number):
            del self._wanted[number]
        else:
            self._hosts.unregister(number)

    def poll(self, timeout: float | None = None, /) -> list[tuple[int, int]]:
        """What is ready, at the latest after so many milliseconds."""
        found: list[tuple[int, int]] = self._hosts.poll(0)
        if not self._wanted:
            return found
        waits = timeout is None or timeout < 0
        ns = 0 if found else -1 if waits else round((timeout or 0) * 1e6)
        number = ask(Ask.EPOLL, here[threading.get_ident()].number)[0]
        try:
            for fd, events in self._wanted.items():
                ask(Ask.EPOLL_CONTROL, number, ADD, fd, events)
            ready = epoll_wait(number, ns, len(self._wanted))
        finally:
            ask(Ask.CLOSE, number)
        return found + [(fd, events & 0xFFFF) for fd, events in ready]


def poll() -> Any:
    """select.poll."""
    return Poll() if threading.get_ident() in here else _poll()


def select_(rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None, /) -> Any:
    """select.select."""
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

    def of(files: Any, mask: int) -> list[Any]:
        return [each for each in files if ready.get(number_of(each), 0) & mask]

    return of(lists[0], masks[0] | broken), of(lists[1], masks[1] | broken), of(lists[2], masks[2])


# ---- the paths of Unix sockets -------------------------------------------------------------------


def _inode(path: Any) -> int:
    """That of a path which a Unix socket of this host has; 0: it is the file system's."""
    kernel = here.get(threading.get_ident())
    if kernel is None or isinstance(path, int):
        return 0
    name = os.fsencode(path)
    try:
        return ask(Ask.INODE, kernel.number, len(name), host_number(), data=name)[0]
    except OSError:
        return 0


def stat_(path: Any, *args: Any, **options: Any) -> os.stat_result:
    """os.stat."""
    if is_simulated(path):
        return fstat(path)
    if inode := _inode(path):
        return _facts(stat.S_IFSOCK, inode)
    return _stat(path, *args, **options)


def _unlinking(original: Any) -> Any:
    def unlink(path: Any, *args: Any, **options: Any) -> None:
        if not _inode(path):
            original(path, *args, **options)
            return
        name = os.fsencode(path)
        kernel = here[threading.get_ident()]
        ask(Ask.UNLINK, kernel.number, len(name), host_number(), data=name)

    return unlink


def chmod(path: Any, mode: int, *args: Any, **options: Any) -> None:
    """os.chmod, which changes nothing of a socket."""
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
    (_unlink, _unlinking(_unlink)),
    (_remove, _unlinking(_remove)),
    (_chmod, chmod),
    (_poll, poll),
    (_select, select_),
)
