"""Host runs: a host from a start to its end, or one child program on a host.

The context of a callback names its host run (kernel.current_host_run); callbacks, tasks and
transports inherit it.  After the first host run was made, the loop's class is derived from
HostedLoopMixin, which discards callbacks of an ended host run and queues those of a paused one.

A HostRun has its Host, for its name and address, and hosts.py starts and ends host runs: the two
files form a circle. This one imports the other for its types only.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import ctypes
import errno
import fcntl
import functools
import gc
import signal
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from ..simulated.descriptors import is_socket
from ..simulated.kernel import FIRST, Request, current_host_run, request
from ..simulated.loop import SimulatedLoopMixin, task_of_step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVarTuple

    from .hosts import Host

    _Ts = TypeVarTuple("_Ts")

_T = TypeVar("_T")

# Signals that do not kill a program without a handler.
_IGNORED = {signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGCONT}


def run_handler(handlers: Mapping[int, asyncio.Handle], sig: int, loop: Any) -> bool:
    """Schedule the handler of the signal `sig` in the loop; return false if it has none."""
    handle: Any = handlers.get(sig)
    if handle is not None:
        loop.call_soon(handle._callback, *handle._args, context=handle._context)
    return handle is not None


class HostRun:
    """The run of a host or of a child program; the context of its callbacks refers to it.

    `host` is None for a child program that was started outside of hosts.  `number` is the owner's
    number in the kernel (owners.go).
    """

    __slots__ = (
        "__weakref__",
        "child_transports",
        "children",
        "closing_transports",
        "handlers",
        "has_ended",
        "host",
        "number",
        "paused",
        "pending",
    )

    def __init__(self, host: Host | None, number: int) -> None:
        """Begin a run that is neither paused nor ended."""
        self.host = host
        self.number = number
        self.has_ended = self.paused = False
        self.pending: list[GatedCallback] = []
        # The id()s of transports that may still run callbacks to close their sockets.
        self.closing_transports: set[int] = set()
        self.handlers: dict[int, asyncio.Handle] = {}
        self.children: list[HostRun] = []  # programs that run on this host
        # The subprocess transports of the programs that this host run has started.
        self.child_transports: weakref.WeakSet[Any] = weakref.WeakSet()

    def family(self) -> Iterator[HostRun]:
        """Yield this host run and the host runs of its child programs."""
        yield self
        yield from self.children

    def signal(self, sig: int, loop: Any) -> bool:
        """Schedule the handler of a signal; return true if there is none and the signal kills.

        The caller then ends the run.
        """
        return not run_handler(self.handlers, sig, loop) and sig not in _IGNORED


class GatedCallback:
    """A callback that runs only while its host run is neither paused nor ended."""

    __slots__ = ("args", "callback", "context", "handle", "host_run")
    handle: Any

    def __init__(
        self, host_run: HostRun, callback: Any, args: tuple[Any, ...], context: contextvars.Context
    ) -> None:
        """Store the callback with its arguments, its context and its host run."""
        self.host_run, self.callback, self.args, self.context = host_run, callback, args, context

    def __call__(self) -> None:
        """Run the callback, queue it if the host run is paused, or drop it if the run has ended.

        The callbacks of transports that an ended run is closing still run.
        """
        host_run = self.host_run
        if host_run.has_ended:
            if id(getattr(self.callback, "__self__", None)) not in host_run.closing_transports:
                return
        elif host_run.paused:
            host_run.pending.append(self)
            return
        self.callback(*self.args)

    # Both attributes are the callback's own: task_of_step() recognizes steps of tasks by them.
    @property
    def __self__(self) -> Any:
        """The object to which the callback is bound, or None."""
        return getattr(self.callback, "__self__", None)

    @property
    def __name__(self) -> str:
        """The name of the callback, or of its class."""
        return getattr(self.callback, "__name__", type(self.callback).__name__)

    def __repr__(self) -> str:
        return f"{self.callback!r} of {self.host_run.host!r}"


class HostedLoopMixin(SimulatedLoopMixin):
    """Overrides of a simulation's loop on which several hosts or child programs run."""

    def _reschedule(self, pending: GatedCallback) -> None:
        """Schedule a callback that was queued while its host was paused."""
        super().call_soon(pending, context=pending.context)

    def call_soon(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Schedule a callback for the next iteration, gated by its host run."""
        return _schedule_gated(super().call_soon, callback, args, context)

    def call_soon_threadsafe(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Schedule a callback for the next iteration, gated by its host run.

        Is delayed for a job, and refused for another thread, as in the simulated loop.
        """
        return _schedule_gated(super().call_soon_threadsafe, callback, args, context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a callback at a time of the loop's clock, gated by its host run."""
        return _schedule_gated(functools.partial(super().call_at, when), callback, args, context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a callback after a delay in seconds, gated by its host run."""
        return _schedule_gated(
            functools.partial(super().call_later, delay), callback, args, context
        )


@functools.cache
def _with_hosts(loop: type) -> type:
    """Return a subclass of a loop class that gates callbacks by host runs."""
    return type("HostedLoop", (HostedLoopMixin, loop), {"__module__": "goloop.testing"})


def _schedule_gated(
    schedule: Callable[..., _T],
    callback: Any,
    args: tuple[Any, ...],
    context: contextvars.Context | None,
) -> _T:
    """Schedule a callback by `schedule` and return the handle.

    If its context has a host run, the callback is wrapped in a GatedCallback.
    """
    host_run = current_host_run.get() if context is None else context.get(current_host_run)
    # A callback may be wrapped already: asyncio's call_later() calls call_at().
    if host_run is None or type(callback) is GatedCallback:
        return schedule(callback, *args, context=context)
    if sys.version_info < (3, 12) and (task := task_of_step(callback)) is not None:
        _host_run_of.setdefault(task, weakref.ref(host_run))
    made = GatedCallback(
        host_run, callback, args, contextvars.copy_context() if context is None else context
    )
    handle = made.handle = schedule(made, context=made.context)
    return handle


# Host runs by task, for Python before 3.12, where a task does not show its context.
_host_run_of: weakref.WeakKeyDictionary[Any, weakref.ref[HostRun]] = weakref.WeakKeyDictionary()


def host_run_of(task: Any) -> HostRun | None:
    """Return the host run of a task; None for tasks of the main function."""
    if sys.version_info < (3, 12):
        found = _host_run_of.get(task)
        return None if found is None else found()
    host_run: HostRun | None = task.get_context().get(current_host_run)
    return host_run


def enable_hosts(loop: Any) -> None:
    """Gate the loop's callbacks by host runs from now on, by changing the loop's class."""
    if not isinstance(loop, HostedLoopMixin):
        loop.__class__ = _with_hosts(loop.__class__)


def end_host_runs(host_runs: Iterable[HostRun], loop: Any) -> None:
    """End host runs: discard their callbacks and tasks, close their transports and listeners.

    No `finally` block of a task runs. The caller must have closed the descriptors in the kernel
    before: a transport or listener belongs to an ended run if its descriptor is closed there.
    """
    host_runs = list(host_runs)
    for host_run in host_runs:
        host_run.has_ended, host_run.paused = True, False
        host_run.pending.clear()
    for sock in [each for each in loop._serving if _is_gone(each.fileno())]:
        # From 3.13 on asyncio removes the path of a Unix server, which a killed process does not.
        getattr(loop, "_unix_server_sockets", {}).pop(sock, None)
        loop._stop_serving(sock)
    for transport in loop._all_transports():
        if _is_gone(getattr(transport, "_sock_fd", -1)):
            end_transport(transport, host_runs)
    for host_run in host_runs:
        for transport in host_run.child_transports:
            transport._closed = True  # the owner has ended and can't close it
    for task in asyncio.all_tasks(loop):
        if host_run_of(task) in host_runs:
            _drop_task(task, loop)


def end_transport(transport: Any, host_runs: Iterable[HostRun]) -> None:
    """Replace the protocol of a transport of ended host runs, and abort the transport.

    The transport's own callbacks may still run, to close its socket.
    """
    for host_run in host_runs:
        host_run.closing_transports.add(id(transport))
    transport.set_protocol(NullProtocol())
    abort(transport)


def resume(host_run: HostRun, loop: Any) -> None:
    """Resume a paused host run: schedule the callbacks that were queued in the pause."""
    host_run.paused = False
    pending, host_run.pending = host_run.pending, []
    for each in pending:
        if not each.handle.cancelled():
            loop._reschedule(each)


class NullProtocol(asyncio.Protocol, asyncio.DatagramProtocol):
    """A protocol without behaviour, for transports of a host that has ended."""


def abort(transport: Any) -> None:
    """Abort a transport; a transport for reading a pipe has no abort() and is closed."""
    getattr(transport, "abort", transport.close)()


def _is_gone(number: int) -> bool:
    """Return true if a simulated descriptor is closed, because the kernel has ended its host."""
    try:
        if not is_socket(number):
            request(Request.CONTROL, number, fcntl.F_GETPIPE_SZ)
    except OSError as exc:
        return exc.errno == errno.EBADF and number >= FIRST
    return False


# ---- the end of a task ---------------------------------------------------------------------------


def _drop_task(task: Any, loop: Any) -> None:
    """Discard a task: no code of it runs any more, not even when it is deallocated."""
    asyncio.tasks._unregister_task(task)
    task._log_destroy_pending = False
    _set_finalized(task)  # before CPython 3.14 all_tasks() leaves out finalized tasks
    _skip_finally(task.get_coro(), loop)


_GENERATORS = (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType)
_MANAGERS: tuple[type, ...] = (
    contextlib._GeneratorContextManager,
    contextlib._AsyncGeneratorContextManager,
    contextlib.ExitStack,
    contextlib.AsyncExitStack,
)
_AWAITABLES = {
    "async_generator_asend",
    "async_generator_athrow",
    "coroutine_wrapper",
    "anext_awaitable",
}


def _skip_finally(coroutine: Any, loop: Any) -> None:
    """Prevent that `finally` blocks run when a coroutine is deallocated.

    This includes the `finally` blocks of coroutines that it awaits and of context managers that it
    has entered.
    """
    stack, seen = [coroutine], set()
    while stack:
        each = stack.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, _GENERATORS):
            _set_finalized(each)
            loop._asyncgens.discard(each)
            stack += gc.get_referents(each)
        elif isinstance(each, (types.MethodType, types.BuiltinMethodType)):
            if isinstance(each.__self__, (*_MANAGERS, *_GENERATORS)):
                stack.append(each.__self__)
        elif isinstance(each, _MANAGERS):
            for value in vars(each).values():
                stack += value if isinstance(value, collections.deque) else [value]
        elif type(each).__name__ in _AWAITABLES or type(each) is tuple:
            stack += gc.get_referents(each)


_is_finalized = ctypes.pythonapi.PyObject_GC_IsFinalized
_is_finalized.argtypes = [ctypes.py_object]
_FREE_THREADED = hasattr(sys, "_is_gil_enabled") and "free-threading" in sys.version


def _set_finalized(generator: Any) -> None:
    """Mark an object as finalized, so that CPython does not finalize it.

    RuntimeError if this version of CPython stores the mark in another place.

    The bit is in the word before the object (_gc_prev); in free-threaded builds it is in the
    object's header (ob_gc_bits).
    """
    if _FREE_THREADED:
        ctypes.c_uint8.from_address(id(generator) + 11).value |= 2
    else:
        ctypes.c_size_t.from_address(id(generator) - ctypes.sizeof(ctypes.c_size_t)).value |= 1
    if not _is_finalized(generator):
        raise RuntimeError(
            "can't mark a generator as finalized: this version of CPython stores the bit elsewhere"
        )
