"""Whose a descriptor's number is, for the few that goloop opens for itself in Python.

Somebody may close them (os.closerange in a program that makes itself a daemon), and the numbers are
other files' then.  So each is compared with what it named at first before it is written to or
closed: docs/internals/descriptors.md has the table of all.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

File = tuple[int, int]


def file_of(fd: int) -> File:
    """Which file a number names: its device and inode; (0, 0) where it names none."""
    try:
        facts = os.fstat(fd)
    except OSError:
        return 0, 0
    return facts.st_dev, facts.st_ino


def close_own(fd: int, file: File) -> None:
    """Close a descriptor if it still is that file."""
    if file_of(fd) == file:
        os.close(fd)


def close_own_socket(sock: socket.socket, file: File) -> None:
    """Close a socket if its number still is that file; else it has no number any more."""
    if file_of(sock.fileno()) == file:
        sock.close()
    else:
        sock.detach()


# ---- sockets that a sock_* call waits for --------------------------------------------------------
#
# How a socket's close() is noticed while a sock_* call waits for the socket.
#
# The kernel tells nobody: a closed descriptor leaves the poller without a word, and in asyncio the
# call waits for ever. But socket.close() looks at the count of the socket's users first
# (`_io_refs`, which its makefile() counts up), and closes where that is <= 0. So the count of a
# socket that somebody waits for is a ObservedRefCount, which ends the waits just before: each call
# goes on, and fails with EBADF as any use of a closed socket does.
#
# A socket that turned ready stays open until those that waited for it run.


class ObservedRefCount(int):
    """The number of a socket's users beside its owner; asked by close()."""

    fd: int

    @staticmethod
    def notice(sock: socket.socket) -> None:
        """Has the socket's close() end what waits for it."""
        counted: Any = sock
        number = sock.fileno()
        while number >= 0:  # else another thread has closed it, and whoever tries next finds that
            before = counted._io_refs
            made = users(before, number)
            if counted._io_refs is before:  # no other thread has counted meanwhile
                counted._io_refs = made
                break

    def __le__(self, other: object) -> bool:
        below = int.__le__(self, other)  # type: ignore[operator]
        if below is True and type(other) is int and other == 0:
            from ... import _core  # which has been loaded, or nothing waits

            loops = [(loop, loop._waits(self, self.fd)) for loop in _core._open_loops()]
            if any(waits is None for _, waits in loops):
                return False  # not yet: whoever holds it closes it
            for loop, waits in loops:
                if waits:
                    self._end_waits(loop)
        return below

    def _end_waits(self, loop: Any) -> None:
        if loop._thread_id in (None, threading.get_ident()):
            loop._end_waits(self, self.fd)
        else:
            with contextlib.suppress(RuntimeError):  # closed meanwhile
                loop.call_soon_threadsafe(loop._end_waits, self, self.fd)

    # socket.makefile() counts up and the file's close() down.
    def __add__(self, other: int) -> ObservedRefCount:
        return users(int.__add__(self, other), self.fd)

    def __sub__(self, other: int) -> ObservedRefCount:
        return users(int.__sub__(self, other), self.fd)

    def __reduce__(self) -> Any:
        return int, (int(self),)


def users(count: int, fd: int) -> ObservedRefCount:
    """A count of users of the socket that has this descriptor."""
    made = ObservedRefCount(count)
    made.fd = fd
    return made
