"""Checks that a descriptor still belongs to goloop, for the few that Python code opens.

A program may close these descriptors (os.closerange() when it becomes a daemon), and their numbers
may then belong to other files. So before a descriptor is written to or closed, its file is compared
with the file that it had at first. docs/internals/descriptors.md has the table of all descriptors.
"""

from __future__ import annotations

import contextlib
import os
import socket

from ..version import native

TYPE_CHECKING = False
if native or TYPE_CHECKING:
    from ... import _core
if TYPE_CHECKING:
    from typing import Any

FileIdentity = tuple[int, int]


def file_identity(fd: int) -> FileIdentity:
    """Return the device and inode of a descriptor; (0, 0) if it is not open."""
    try:
        status = os.fstat(fd)
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def close_own(fd: int, file: FileIdentity) -> None:
    """Close a descriptor if it still refers to `file`."""
    if file_identity(fd) == file:
        os.close(fd)


def close_own_socket(sock: socket.socket, file: FileIdentity) -> None:
    """Close a socket if it still refers to `file`, else only detach its number."""
    if file_identity(sock.fileno()) == file:
        sock.close()
    else:
        sock.detach()


# ---- sockets for which a sock_* call waits -------------------------------------------------------
#
# How a waiting sock_* call notices that its socket is closed:
#
# The kernel does not report it: epoll silently removes a closed descriptor, and in asyncio the
# call waits forever. But socket.close() first compares the count of the socket's users with 0
# (`_io_refs`, which makefile() increments), and closes the descriptor if it is <= 0. So the count
# of a socket with waiting calls is replaced by a subclass of int. Its comparison ends the waits
# just before the close. Each call then resumes and fails with EBADF, like any use of a closed
# socket.
#
# A socket that became ready is not closed until the calls that waited for it have run.


class ObservedRefCount(int):
    """A socket's count of users besides its owner; it notices the comparison in close()."""

    fd: int

    @staticmethod
    def notice(sock: socket.socket) -> None:
        """Replace the socket's count of users by an ObservedRefCount, if the socket is open.

        From then on its close() ends the waits of sock_* calls for it.
        """
        socket_object: Any = sock
        number = sock.fileno()
        while (
            number >= 0
        ):  # if another thread has closed the socket, the next call fails with EBADF
            before = socket_object._io_refs
            count_object = make_observed_ref_count(before, number)
            if socket_object._io_refs is before:  # no other thread has changed it meanwhile
                socket_object._io_refs = count_object
                break

    def __le__(self, other: object) -> bool:
        """Compare; socket.close() compares with 0, and closes the descriptor if this returns true.

        In that case first end the waits of all loops for the socket. If a loop has calls for it
        that are ready and have not run yet, return false: that loop closes the socket later.
        """
        below = int.__le__(self, other)  # type: ignore[operator]
        if below is True and type(other) is int and other == 0:
            loops = [(loop, loop._before_close(self, self.fd)) for loop in _core._open_loops()]
            if any(waits is None for _, waits in loops):
                return False  # a ready socket is closed later, by the loop
            for loop, waits in loops:
                if waits:
                    self._end_waits(loop)
        return below

    def _end_waits(self, loop: Any) -> None:
        """End the waits of one loop: now if it does not run or runs in this thread, else soon.

        Does nothing if the loop was closed.
        """
        from ... import _core

        if loop._thread_id is None or loop._running_thread == _core._thread_ident():
            loop._end_waits(self, self.fd)
        else:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(loop._end_waits, self, self.fd)

    # socket.makefile() increments the count, and the close of that file decrements it.
    def __add__(self, other: int) -> ObservedRefCount:
        """Return the sum as an ObservedRefCount, so that close() is still observed."""
        return make_observed_ref_count(int.__add__(self, other), self.fd)

    def __sub__(self, other: int) -> ObservedRefCount:
        """Return the decremented count, as an ObservedRefCount."""
        return make_observed_ref_count(int.__sub__(self, other), self.fd)

    def __reduce__(self) -> Any:
        """Pickle as a plain int, without the descriptor."""
        return int, (int(self),)


def make_observed_ref_count(count: int, fd: int) -> ObservedRefCount:
    """Return a count of users for the socket with this descriptor."""
    count_object = ObservedRefCount(count)
    count_object.fd = fd
    return count_object
