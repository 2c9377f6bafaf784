"""goloop.Loop: the class that combines all parts of a loop; its construction and its close().

__init__ opens a reactor, and for the first loop of a process also the Go library. The loop then
runs any number of times (running.py). close() ends the executor, the reactor with all
registrations, and the signal handlers.
"""

from __future__ import annotations

import asyncio.base_events
import gc
import sys
import warnings

from ... import _core
from .. import system
from ..net.resolver import Resolver
from ..net.sendfile import Sendfile
from ..net.streams import OtherTransports, UnixSockets
from ..observe import metrics as metrics_module
from ..process import compat
from ..process.subprocesses import Subprocesses
from . import arg_errors
from . import debugging as debugging  # imported for C, which uses its functions
from .base import CpuTime
from .busy_poll import BusyPolling
from .running import Running, closed_loop_metrics, pack_final_metrics
from .watchdog_settings import WatchdogSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _NestPatched:
    """The attribute `_nest_patched`, which nest_asyncio reads: see compat.py."""

    def __get__(self, loop: object, owner: type) -> bool:
        """Raise the error of refuse_patching() for the code that reads the attribute."""
        return compat.refuse_patching(loop, owner, sys._getframe(1))


class Loop(
    Running,
    Sendfile,
    Resolver,
    UnixSockets,
    OtherTransports,
    Subprocesses,
    WatchdogSettings,
    BusyPolling,
):
    """An asyncio event loop with a reactor written in Go.

    It has every method of asyncio's loops for Unix, and those below. It takes no arguments and can
    be subclassed. The first loop of a process starts the Go library. Since 0.3.0.

    Raises:
        ImportError: The Go library cannot be started; the message has the reason.
        OSError: The process has no descriptors left.
    """

    __module__ = "goloop"

    _final_metrics: bytearray | None = None
    _nest_patched = _NestPatched()

    def __init__(self) -> None:
        """Create the loop's two halves and the state of its mixins; `Loop` names the exceptions."""
        # First, because from then on other threads may read metrics.
        self._python_counters = {}
        self._cpu_time = CpuTime()
        self._system = system.of_thread()
        _core.Loop.__init__(self)
        asyncio.base_events.BaseEventLoop.__init__(self)
        self._init_watchdog()
        self._init_busy_poll()
        self._init_signals()
        self._init_streams()
        self._init_unix_sockets()
        self._init_datagrams()
        self._init_processes()
        compat.patch_aiohttp()

    def __del__(self, _warn: Any = warnings.warn) -> None:
        """Issue a ResourceWarning and close the loop if it is still open, as asyncio does."""
        # After an __init__ that failed, or was never called, there is nothing to close.
        if hasattr(self, "_transports"):
            super().__del__(_warn)

    def __repr__(self) -> str:
        # asyncio's repr has the bare name of the class; the module is added.
        text = super().__repr__()
        name = type(self).__name__
        if text.startswith(f"<{name} "):
            text = f"<{type(self).__module__}.{name} " + text[len(name) + 2 :]
        return text

    def _write_to_self(self) -> None:
        """Wake the loop if it sleeps: asyncio's name, which some programs call."""
        self._wake()

    @property
    def _scheduled(self) -> list[asyncio.TimerHandle]:
        """The armed timers, by time: asyncio's heap, for tests that run due timers early.

        A copy, for which all objects of the process are searched; goloop does not use it.
        """
        if self.is_closed():  # BaseEventLoop.close() calls clear() on the list
            return []
        kind: Any = _core.TimerHandle
        return sorted(
            handle
            for handle in gc.get_objects()
            if type(handle) is kind and handle._loop is self and handle._scheduled
        )

    @_scheduled.setter
    def _scheduled(self, timers: list[asyncio.TimerHandle]) -> None:
        """Ignore the empty list that BaseEventLoop sets at first."""

    def metrics(self) -> metrics_module.Metrics:
        """Return a snapshot of the loop's metrics: counters, gauges and histograms.

        May be called from any thread, and does not stop the loop. For a closed loop it returns the
        final values. Since 0.3.0.

        Returns:
            The snapshot; times are in seconds, sizes in bytes.
        """
        return metrics_module.of_loop(self)

    def close(self) -> None:
        """Close the loop; raises RuntimeError if it is running, does nothing if it is closed.

        The final metrics remain in metrics() of this loop and in goloop.metrics().
        In a forked child, closing the parent's loop frees its memory and the child's copies of
        its descriptors, and does not change anything that both processes share.
        """
        if self.is_running():
            raise RuntimeError("Cannot close a running event loop")
        if self.is_closed():
            return
        last = pack_final_metrics(self._metrics())
        closed_loop_metrics.append(last)
        self._final_metrics = last
        # A single store makes the loop a closed one in the metrics: never both or neither.
        last[0] = 1
        if len(closed_loop_metrics) >= 64:
            metrics_module.add_closed_loops()
        self._discard_handshake_tasks()
        asyncio.base_events.BaseEventLoop.close(self)
        self._discard_listeners()
        self._end_resolver_threads()
        self._close_core()
        self._close_pidfds()
        self._close_signals()


for _part in Loop.__mro__:
    if _part.__module__.startswith("goloop"):
        arg_errors.use_asyncio_names(_part, arg_errors.LOOP)


def new_event_loop() -> Loop:
    """Return a new event loop; asyncio.Runner and asyncio.run accept it as loop_factory.

    Since 0.3.0.

    Returns:
        A loop that is not running and not set as the thread's loop.

    Raises:
        ImportError: The Go library cannot be opened; the message has the reason.
        OSError: The process has no descriptors left.
    """
    return Loop()
