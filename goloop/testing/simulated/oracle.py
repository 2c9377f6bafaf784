"""CPython's own loop on a simulated kernel, as the reference for goloop's behaviour.

The loop, its transports and its TLS are those of the running Python, unchanged.  Only the selector
is replaced by one of the simulated kernel, and loop.py's SimulatedLoopMixin is in front.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import threading

from ..._internal.loop.running import on_exception
from .descriptors import ADD, epoll_wait
from .kernel import Request, kernel_of_thread, request
from .loop import SimulatedLoopMixin, hashed_by_number, nanosecond

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

_DELETE, _MODIFY = 2, 3  # EPOLL_CTL_...
_MOST = 24 * 3600  # longest wait in seconds, as in asyncio.base_events


class _Epoll:
    """Replacement of select.epoll on a simulated kernel, with the methods that selectors call."""

    nanoseconds = -1  # timeout of the next poll; -1: no limit

    def __init__(self) -> None:
        """Create an epoll instance in this thread's simulated kernel."""
        self._number = request(Request.EPOLL, kernel_of_thread[threading.get_ident()].number)[0]

    def fileno(self) -> int:
        """Return the epoll's simulated descriptor."""
        return self._number

    def close(self) -> None:
        """Close the epoll's descriptor."""
        request(Request.CLOSE, self._number)

    def register(self, number: int, events: int) -> None:
        """Add a descriptor with its events."""
        request(Request.EPOLL_CONTROL, self._number, ADD, number, events)

    def modify(self, number: int, events: int) -> None:
        """Change the events of a descriptor; add it if the kernel has removed it."""
        try:
            request(Request.EPOLL_CONTROL, self._number, _MODIFY, number, events)
        except FileNotFoundError:  # the kernel closed the socket with its host
            self.register(number, events)

    def unregister(self, number: int) -> None:
        """Remove a descriptor."""
        request(Request.EPOLL_CONTROL, self._number, _DELETE, number)

    def poll(self, _timeout: float, most: int) -> list[tuple[int, int]]:
        """Wait for events; the timeout is `nanoseconds`, which _Selector.select() sets."""
        return epoll_wait(self._number, self.nanoseconds, most)


class _Selector(selectors.EpollSelector):
    """A selector on a simulated kernel.

    select() takes seconds, as usual; epoll_wait() gets the exact nanoseconds until the first timer.
    """

    _selector_cls = _Epoll
    _selector: _Epoll

    def __init__(self, loop: OracleLoop) -> None:
        """Create a selector that takes the time of the next timer from `loop`."""
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait up to `timeout` seconds of virtual time; return the ready keys with their events."""
        self._selector.nanoseconds = self._until(timeout)
        return super().select(timeout)

    def _until(self, timeout: float | None) -> int:
        """Return the nanoseconds until the first timer, with goloop's rounding of deadlines."""
        if not timeout:
            return -1 if timeout is None else 0
        now = kernel_of_thread[threading.get_ident()].now_ns()
        when: float = now / 1e9 + timeout
        if self._loop._scheduled and timeout < _MOST:
            when = self._loop._scheduled[0]._when
        return max(nanosecond(when) - now, 1)


class OracleLoop(SimulatedLoopMixin, asyncio.SelectorEventLoop):
    """asyncio's loop in virtual time."""

    __module__ = "goloop.testing"

    _serving: Any
    _scheduled: Any
    _task, _future = hashed_by_number(asyncio.Task), hashed_by_number(asyncio.Future)

    def __init__(self, simulation: Any) -> None:
        """Create the loop with a selector of its own on the simulated kernel."""
        self._serving = set()
        super().__init__(simulation, _Selector(self))

    def _now(self) -> float:
        """Return the kernel's clock in seconds."""
        now: float = self._simulation.kernel.now()
        return now

    def has_ready(self) -> bool:
        """Return true if the ready queue is not empty."""
        return bool(self._ready)  # type: ignore[attr-defined]

    def _run_once(self) -> None:
        """Run one iteration of asyncio's loop, then the simulation's work after it."""
        # Timers before time() + _clock_resolution are due; the sum must differ from time().
        self._clock_resolution = math.ulp(self._now())
        super()._run_once()  # type: ignore[misc]
        self._simulation.after_iteration()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Notify the simulation of an unhandled exception; then call the handler."""
        for observe in tuple(on_exception):
            observe(self, context)
        super().call_exception_handler(context)

    # ---- open transports and listeners, with the names of goloop's loop

    def _all_transports(self) -> list[Any]:
        """Return the open transports."""
        return [each for each in self._transports.values() if each._sock is not None]

    def _start_serving(  # type: ignore[override]
        self, factory: Any, sock: socket.socket, *args: Any, **options: Any
    ) -> None:
        """Accept connections on a socket as asyncio does, and record the socket."""
        self._serving.add(sock)
        super()._start_serving(factory, sock, *args, **options)

    def _stop_serving(self, sock: socket.socket) -> None:
        """Close a listening socket as asyncio does, and forget it."""
        self._serving.discard(sock)
        super()._stop_serving(sock)
