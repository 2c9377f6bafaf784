"""Calls that other threads and signal handlers leave for one thread, which waits for them.

It waits at a socket, not at a lock: a signal that comes just before a thread goes to sleep at a
lock, or that the kernel gives to another thread, would not end that sleep.  With
`signal.set_wakeup_fd` every signal ends a wait at a socket.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable

from ..loop.descriptors import close_own_socket, file_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Calls:
    """The thread that makes it enters it, and then alone makes the calls."""

    def __init__(self) -> None:
        self._left: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        # A signal handler may run while its thread has the lock.
        self._lock = threading.RLock()
        self._open = False
        self._hears = False
        self._others_fd = -1

    def __enter__(self) -> Calls:
        self._reads, self._writes = socket.socketpair()
        self._files = file_of(self._reads.fileno()), file_of(self._writes.fileno())
        self._writes.setblocking(False)
        self._open = True
        return self

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            # Threads that are still there can't wake what has the number next.
            self._open = False
        if self._hears:
            signal.set_wakeup_fd(self._others_fd)
        close_own_socket(self._reads, self._files[0])
        close_own_socket(self._writes, self._files[1])

    def hear_signals(self) -> None:
        """Lets every signal end the wait; in the main thread."""
        with contextlib.suppress(ValueError):  # an interpreter that has no signals
            number = self._writes.fileno()
            self._others_fd = signal.set_wakeup_fd(number, warn_on_full_buffer=False)
            self._hears = True

    def add(self, call: Callable[..., object], *args: Any) -> None:
        """Leaves a call; from any thread, or in a signal handler."""
        self._left.append((call, args))
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._open and file_of(self._writes.fileno()) == self._files[1]:
                self._writes.send(b"\0")

    def make(self, timeout: float | None) -> bool:
        """Makes the calls that are left, after a wait if there are none.

        Returns False where `timeout` seconds went by without any.
        """
        if not self._left:
            # 0 would make the socket a non-blocking one.
            self._reads.settimeout(timeout if timeout is None else max(timeout, 1e-6))
            try:
                heard = self._reads.recv(4096)
            except TimeoutError:
                return bool(self._left)
            numbers = heard.replace(b"\0", b"")
            if numbers and self._others_fd >= 0:
                # The program has a descriptor of its own for them.
                with contextlib.suppress(OSError):
                    os.write(self._others_fd, numbers)
        while self._left:
            call, args = self._left.popleft()
            call(*args)
        return True
