"""A queue of calls that other threads and signal handlers submit to one waiting thread.

The waiting thread waits for a socket and not for a lock: a signal that arrives just before a thread
waits for a lock, or that the kernel delivers to another thread, would not end that wait. With
`signal.set_wakeup_fd` every signal ends a wait for a socket.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable

from ..loop.descriptors import close_own_socket, file_identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class CallQueue:
    """The queue; the thread that creates it enters it as a context manager and makes the calls."""

    def __init__(self) -> None:
        """Create an empty queue without sockets."""
        self._pending: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        # Reentrant, because a signal handler may run while its thread has the lock.
        self._lock = threading.RLock()
        self._open = False
        self._is_wakeup_fd_set = False
        self._previous_wakeup_fd = -1

    def __enter__(self) -> CallQueue:
        """Open the queue and its sockets; wake_on_signals() sets the wakeup fd."""
        self._read_socket, self._write_socket = socket.socketpair()
        self._files = (
            file_identity(self._read_socket.fileno()),
            file_identity(self._write_socket.fileno()),
        )
        self._write_socket.setblocking(False)
        self._open = True
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the queue and its sockets, and restore the wakeup fd."""
        with self._lock:
            # Threads that still run must not write to a descriptor that gets this number next.
            self._open = False
        if self._is_wakeup_fd_set:
            signal.set_wakeup_fd(self._previous_wakeup_fd)
        close_own_socket(self._read_socket, self._files[0])
        close_own_socket(self._write_socket, self._files[1])

    def wake_on_signals(self) -> None:
        """Let every signal end the wait, until the context manager's end; in the main thread only.

        Does nothing in an interpreter without signals.
        """
        with contextlib.suppress(ValueError):  # an interpreter without signals
            number = self._write_socket.fileno()
            self._previous_wakeup_fd = signal.set_wakeup_fd(number, warn_on_full_buffer=False)
            self._is_wakeup_fd_set = True

    def add(self, call: Callable[..., object], *args: Any) -> None:
        """Submit a call; may be called in any thread and in a signal handler."""
        self._pending.append((call, args))
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._open and file_identity(self._write_socket.fileno()) == self._files[1]:
                self._write_socket.send(b"\0")

    def make_calls(self, timeout: float | None) -> bool:
        """Make all submitted calls; if there are none, wait for one or for a signal.

        Returns false if there was none within `timeout` seconds. Signals are passed on to the
        program's own wakeup fd. An exception of a call is raised; later calls stay submitted.
        """
        if not self._pending:
            # settimeout(0) would make the socket non-blocking.
            self._read_socket.settimeout(timeout if timeout is None else max(timeout, 1e-6))
            try:
                received = self._read_socket.recv(4096)
            except TimeoutError:
                return bool(self._pending)
            numbers = received.replace(b"\0", b"")
            if numbers and self._previous_wakeup_fd >= 0:
                # Pass the numbers on to the program's own wakeup fd.
                with contextlib.suppress(OSError):
                    os.write(self._previous_wakeup_fd, numbers)
        while self._pending:
            call, args = self._pending.popleft()
            call(*args)
        return True
