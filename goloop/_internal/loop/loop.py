"""goloop.Loop: the parts put together, and a loop's beginning and end.

A loop begins in __init__, which opens a reactor (and the Go library where it is the
process's first), runs any number of times (running.py), and ends in close(), where
the executor, the reactor with all registrations, and the signal handlers go.
"""

from __future__ import annotations

import asyncio.base_events
import gc
import sys
import warnings

from ... import _core
from ..net.datagrams import Datagrams
from ..net.handshakes import Handshakes
from ..net.pipes import Pipes
from ..net.resolver import Resolver
from ..net.sendfile import Sendfile
from ..net.streams import UnixSockets
from ..net.tls import StartTLS
from ..process import aiofastnet_compat
from ..process.processes import Processes
from . import arg_errors
from . import debugging as debugging  # for C, when it is imported
from .cpu_time import CpuTime
from .running import Running, packed_figures, retired
from .watching import Watching

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..metrics.metrics import Metrics


class _NestPatched:
    """The attribute `_nest_patched`, for which nest_asyncio asks: see nest_asyncio_compat.py."""

    def __get__(self, loop: object, owner: type) -> bool:
        from . import nest_asyncio_compat

        return nest_asyncio_compat.asked(loop, owner, sys._getframe(1))


class Loop(
    Running, Sendfile, Resolver, UnixSockets, Datagrams, Pipes, Processes, StartTLS, Watching
):
    """An asyncio event loop whose reactor is written in Go.

    It takes no arguments, and can be subclassed.  The first one of a process starts the Go library.
    It has every method of asyncio's loops for Unix, and the two below.  Since 0.3.0.

    Raises:
        ImportError: The Go library can't be started; the message says why.
        OSError: The process has no descriptors left.
    """

    __module__ = "goloop"

    _last: bytearray | None = None
    _nest_patched = _NestPatched()

    def __init__(self) -> None:
        # First: from then on other threads may ask for metrics.
        self._tally = {}
        self._cpu_time = CpuTime()
        _core.Loop.__init__(self)
        asyncio.base_events.BaseEventLoop.__init__(self)
        self._init_watchdog()
        self._init_signals()
        self._init_streams()
        self._init_unix_sockets()
        self._init_datagrams()
        self._init_processes()
        self._handshakes = Handshakes()
        aiofastnet_compat.begin()

    def __del__(self, _warn: Any = warnings.warn) -> None:
        # An __init__ that failed, or was never called, leaves nothing to close.
        if hasattr(self, "_transports"):
            super().__del__(_warn)

    def __repr__(self) -> str:
        # asyncio's has the bare name of the class, which leaves open whose loop it is.
        text = super().__repr__()
        name = type(self).__name__
        if text.startswith(f"<{name} "):
            text = f"<{type(self).__module__}.{name} " + text[len(name) + 2 :]
        return text

    def _write_to_self(self) -> None:
        """asyncio's name for waking a loop that sleeps; some programs call it."""
        self._wake()

    @property
    def _scheduled(self) -> list[asyncio.TimerHandle]:
        """The armed timers, by time: asyncio's heap, for tests that run what is due early.

        A copy, made by looking at all objects of the process; nothing of goloop's asks for it.
        """
        if self.is_closed():  # BaseEventLoop.close() empties it
            return []
        kind: Any = _core.TimerHandle
        return sorted(
            handle
            for handle in gc.get_objects()
            if type(handle) is kind and handle._loop is self and handle._scheduled
        )

    @_scheduled.setter
    def _scheduled(self, timers: list[asyncio.TimerHandle]) -> None:
        """BaseEventLoop begins with an empty list."""

    def metrics(self) -> Metrics:
        """What the loop has done and what it has to do, in figures.

        May be called from any thread, and does not stop the loop.  Of a closed loop it is what
        the loop had done.  Since 0.3.0.

        Returns:
            A snapshot: times in seconds, sizes in bytes.
        """
        from ..metrics import metrics as metrics_module

        return metrics_module.of_loop(self)

    def close(self) -> None:
        """Close the loop; it must not be running.

        In a forked child, closing the parent's loop frees its memory and the child's copies
        of its descriptors, and leaves alone what the two processes share.
        """
        if self.is_running():
            raise RuntimeError("Cannot close a running event loop")
        if self.is_closed():
            return
        last = packed_figures(self._metrics())
        retired.append(last)
        self._last = last
        # One step, after which it is no open loop and one of the closed: never neither, nor both.
        last[0] = 1
        if len(retired) >= 64:
            from ..metrics import metrics as metrics_module

            metrics_module.add_retired()
        self._forget_handshakes()
        asyncio.base_events.BaseEventLoop.close(self)
        self._forget_listeners()
        self._end_look_ups()
        self._close_core()
        self._close_pidfds()
        self._close_signals()


for _part in Loop.__mro__:
    if _part.__module__.startswith("goloop"):
        arg_errors.named_as(_part, arg_errors.LOOP)


def new_event_loop() -> Loop:
    """Make a new event loop; asyncio.Runner and asyncio.run take it as loop_factory.

    Since 0.3.0.

    Returns:
        A loop that is neither running nor set as the thread's.

    Raises:
        ImportError: The Go library can't be opened; the message says why.
        OSError: The process has no descriptors left.
    """
    return Loop()
