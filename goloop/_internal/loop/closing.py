"""How a socket's close() is noticed while a sock_* call waits for the socket.

The kernel tells nobody: a closed descriptor leaves the poller without a word, and in asyncio the
call waits for ever. But socket.close() looks at the count of the socket's users first (`_io_refs`,
which its makefile() counts up), and closes where that is <= 0. So the count of a socket that
somebody waits for is a Users, which ends the waits just before: each call goes on, and fails with
EBADF as any use of a closed socket does.

A socket that turned ready stays open until those that waited for it run.
"""

from __future__ import annotations

import contextlib
import threading

from ... import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any


class Users(int):
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
    def __add__(self, other: int) -> Users:
        return users(int.__add__(self, other), self.fd)

    def __sub__(self, other: int) -> Users:
        return users(int.__sub__(self, other), self.fd)

    def __reduce__(self) -> Any:
        return int, (int(self),)


def users(count: int, fd: int) -> Users:
    """A count of users of the socket that has this descriptor."""
    made = Users(count)
    made.fd = fd
    return made
