"""CPython's own loop on a simulated kernel: what asyncio does is what goloop has to do.

The loop, its transports and its TLS are the running version's, as they are; only the selector asks
another kernel, and what loop.py has for any loop of a simulation comes before.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import threading

from ..._internal.loop.running import on_exception
from .descriptors import ADD, epoll_wait
from .kernel import Ask, ask, here
from .loop import Simulated, nanosecond, numbered

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

_DELETE, _MODIFY = 2, 3  # EPOLL_CTL_...
_MOST = 24 * 3600  # seconds of a wait, as in asyncio.base_events


class _Epoll:
    """A select.epoll of a simulated kernel."""

    nanoseconds = -1  # of the next poll

    def __init__(self) -> None:
        self._number = ask(Ask.EPOLL, here[threading.get_ident()].number)[0]

    def fileno(self) -> int:
        return self._number

    def close(self) -> None:
        ask(Ask.CLOSE, self._number)

    def register(self, number: int, events: int) -> None:
        ask(Ask.EPOLL_CONTROL, self._number, ADD, number, events)

    def modify(self, number: int, events: int) -> None:
        try:
            ask(Ask.EPOLL_CONTROL, self._number, _MODIFY, number, events)
        except FileNotFoundError:  # its socket has ended with its host
            self.register(number, events)

    def unregister(self, number: int) -> None:
        ask(Ask.EPOLL_CONTROL, self._number, _DELETE, number)

    def poll(self, _timeout: float, most: int) -> list[tuple[int, int]]:
        return epoll_wait(self._number, self.nanoseconds, most)


class _Selector(selectors.EpollSelector):
    """A selector of a simulated kernel, whose timeouts need not be whole milliseconds."""

    _selector_cls = _Epoll
    _selector: _Epoll

    def __init__(self, loop: OracleLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._selector.nanoseconds = self._until(timeout)
        return super().select(timeout)

    def _until(self, timeout: float | None) -> int:
        """To the first timer, rounded as goloop's are; `timeout` is a difference."""
        if not timeout:
            return -1 if timeout is None else 0
        now = here[threading.get_ident()].now_ns()
        when: float = now / 1e9 + timeout
        if self._loop._scheduled and timeout < _MOST:
            when = self._loop._scheduled[0]._when
        return max(nanosecond(when) - now, 1)


class OracleLoop(Simulated, asyncio.SelectorEventLoop):
    """asyncio's loop in virtual time."""

    __module__ = "goloop.testing"

    _serving: Any
    _scheduled: Any
    _task, _future = numbered(asyncio.Task), numbered(asyncio.Future)

    def __init__(self, simulation: Any) -> None:
        self._serving = set()
        super().__init__(simulation, _Selector(self))

    def _now(self) -> float:
        now: float = self._simulation.kernel.now()
        return now

    def has_ready(self) -> bool:
        """Whether something runs in the next iteration, whatever comes."""
        return bool(self._ready)  # type: ignore[attr-defined]

    def _run_once(self) -> None:
        # A timer that is due is one of before time() + this, which has to be another number.
        self._clock_resolution = math.ulp(self._now())
        super()._run_once()  # type: ignore[misc]
        self._simulation.look()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """As asyncio's."""
        for observe in tuple(on_exception):
            observe(self, context)
        super().call_exception_handler(context)

    # ---- what is open, as goloop's loop tells it

    def _all_transports(self) -> list[Any]:
        return [each for each in self._transports.values() if each._sock is not None]

    def _start_serving(  # type: ignore[override]
        self, factory: Any, sock: socket.socket, *args: Any, **options: Any
    ) -> None:
        self._serving.add(sock)
        super()._start_serving(factory, sock, *args, **options)

    def _stop_serving(self, sock: socket.socket) -> None:
        self._serving.discard(sock)
        super()._stop_serving(sock)
