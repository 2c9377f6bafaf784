"""What runs together and ends at once: a host from a start to its end, or a program on it.

The context of a callback names its boot (kernel.host_here); callbacks, tasks and transports inherit
it.  Once there are boots, the loop's class has Hosted before it: it drops what one that has ended
still had to run, and keeps what a paused one has.
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
from ..simulated.kernel import FIRST, Ask, ask, host_here
from ..simulated.loop import Simulated, stepped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVarTuple

    from .hosts import Host

    _Ts = TypeVarTuple("_Ts")

_T = TypeVar("_T")

# What a signal does to a program without a handler, where that is not its end.
_IGNORED = {signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGCONT}


def run_handler(handlers: Mapping[int, asyncio.Handle], sig: int, loop: Any) -> bool:
    """Has the handler of a signal run; whether there is one."""
    handle: Any = handlers.get(sig)
    if handle is not None:
        loop.call_soon(handle._callback, *handle._args, context=handle._context)
    return handle is not None


class HostRun:
    """What is in the context of its callbacks.

    `host` is None of a program that no host has, and `number` is what the kernel calls it.
    """

    __slots__ = (
        *("children", "dead", "ended", "handlers", "host", "kept", "number", "paused", "started"),
        "__weakref__",
    )

    def __init__(self, host: Host | None, number: int) -> None:
        self.host = host
        self.number = number
        self.dead = self.paused = False
        self.kept: list[GatedCallback] = []
        self.ended: set[int] = set()  # transports that may still close their sockets
        self.handlers: dict[int, asyncio.Handle] = {}
        self.children: list[HostRun] = []  # programs that run on this host
        self.started: weakref.WeakSet[Any] = weakref.WeakSet()  # transports of its own children

    def family(self) -> Iterator[HostRun]:
        """It and the programs on it."""
        yield self
        yield from self.children

    def signal(self, sig: int, loop: Any) -> bool:
        """Runs the handler of a signal; whether there is none, and the signal kills."""
        return not run_handler(self.handlers, sig, loop) and sig not in _IGNORED


class GatedCallback:
    """A callback of a host, which runs while the host does."""

    __slots__ = ("args", "boot", "callback", "context", "handle")
    handle: Any

    def __init__(
        self, boot: HostRun, callback: Any, args: tuple[Any, ...], context: contextvars.Context
    ) -> None:
        self.boot, self.callback, self.args, self.context = boot, callback, args, context

    def __call__(self) -> None:
        boot = self.boot
        if boot.dead:
            if id(getattr(self.callback, "__self__", None)) not in boot.ended:
                return
        elif boot.paused:
            boot.kept.append(self)
            return
        self.callback(*self.args)

    # As those of the callback: policies.py knows the steps of tasks by them.
    @property
    def __self__(self) -> Any:
        return getattr(self.callback, "__self__", None)

    @property
    def __name__(self) -> str:
        return getattr(self.callback, "__name__", type(self.callback).__name__)

    def __repr__(self) -> str:
        return f"{self.callback!r} of {self.boot.host!r}"


class Hosted(Simulated):
    """What a simulation's loop does otherwise on which several hosts or programs run."""

    def _call_again(self, kept: GatedCallback) -> None:
        super().call_soon(kept, context=kept.context)

    def call_soon(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """As asyncio's."""
        return _scheduled(super().call_soon, callback, args, context)

    def call_soon_threadsafe(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """As asyncio's, from the simulation's own thread."""
        return _scheduled(super().call_soon_threadsafe, callback, args, context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """As asyncio's."""
        return _scheduled(functools.partial(super().call_at, when), callback, args, context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """As asyncio's."""
        return _scheduled(functools.partial(super().call_later, delay), callback, args, context)


@functools.cache
def _hosted(loop: type) -> type:
    """The class of loops for hosts, instead of another one."""
    return type("HostedLoop", (Hosted, loop), {"__module__": "goloop.testing"})


def _scheduled(
    schedule: Callable[..., _T],
    callback: Any,
    args: tuple[Any, ...],
    context: contextvars.Context | None,
) -> _T:
    """The handle of a callback, which runs while its host does."""
    boot = host_here.get() if context is None else context.get(host_here)
    if boot is None or type(callback) is GatedCallback:  # asyncio's call_later() calls call_at()
        return schedule(callback, *args, context=context)
    if sys.version_info < (3, 12) and (task := stepped(callback)) is not None:
        _boots.setdefault(task, weakref.ref(boot))
    made = GatedCallback(
        boot, callback, args, contextvars.copy_context() if context is None else context
    )
    handle = made.handle = schedule(made, context=made.context)
    return handle


# By task, where a task does not show its context.
_boots: weakref.WeakKeyDictionary[Any, weakref.ref[HostRun]] = weakref.WeakKeyDictionary()


def boot_of(task: Any) -> HostRun | None:
    """What a task is part of; None of the main function's."""
    if sys.version_info < (3, 12):
        found = _boots.get(task)
        return None if found is None else found()
    boot: HostRun | None = task.get_context().get(host_here)
    return boot


def have_boots(loop: Any) -> None:
    """From now on what the loop runs may be of boots."""
    if not isinstance(loop, Hosted):
        loop.__class__ = _hosted(loop.__class__)


def end(boots: Iterable[HostRun], loop: Any) -> None:
    """Nothing of these runs any more; the kernel has closed what they had."""
    boots = list(boots)
    for boot in boots:
        boot.dead, boot.paused = True, False
        boot.kept.clear()
    for sock in [each for each in loop._serving if _is_gone(each.fileno())]:
        # From 3.13 on the path is removed, which nobody does after a kill.
        getattr(loop, "_unix_server_sockets", {}).pop(sock, None)
        loop._stop_serving(sock)
    for transport in loop._all_transports():
        if _is_gone(getattr(transport, "_sock_fd", -1)):
            end_transport(transport, boots)
    for boot in boots:
        for transport in boot.started:
            transport._closed = True  # nobody is left that would have closed it
    for task in asyncio.all_tasks(loop):
        if boot_of(task) in boots:
            _drop(task, loop)


def end_transport(transport: Any, boots: Iterable[HostRun]) -> None:
    """It may still close its socket, and its protocol hears nothing."""
    for boot in boots:
        boot.ended.add(id(transport))
    transport.set_protocol(NullProtocol())
    abort(transport)


def resume(boot: HostRun, loop: Any) -> None:
    """What a paused one has kept runs."""
    boot.paused = False
    kept, boot.kept = boot.kept, []
    for each in kept:
        if not each.handle.cancelled():
            loop._call_again(each)


class NullProtocol(asyncio.Protocol, asyncio.DatagramProtocol):
    """The protocol of a connection of a host that has ended."""


def abort(transport: Any) -> None:
    """End a connection, or a pipe: what is read has no abort()."""
    getattr(transport, "abort", transport.close)()


def _is_gone(number: int) -> bool:
    """The kernel has closed it, with its host."""
    try:
        if not is_socket(number):
            ask(Ask.CONTROL, number, fcntl.F_GETPIPE_SZ)
    except OSError as exc:
        return exc.errno == errno.EBADF and number >= FIRST
    return False


# ---- the end of a task ---------------------------------------------------------------------------


def _drop(task: Any, loop: Any) -> None:
    """Nothing of a task runs any more, also when its memory is freed."""
    asyncio.tasks._unregister_task(task)
    task._log_destroy_pending = False
    _set_finalized(task)  # before CPython 3.14 all_tasks() leaves out what was finalized
    _unwound(task.get_coro(), loop)


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


def _unwound(coroutine: Any, loop: Any) -> None:
    """A coroutine, and what it awaits or has entered, runs no `finally` when it is freed."""
    left, seen = [coroutine], set()
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, _GENERATORS):
            _set_finalized(each)
            loop._asyncgens.discard(each)
            left += gc.get_referents(each)
        elif isinstance(each, (types.MethodType, types.BuiltinMethodType)):
            if isinstance(each.__self__, (*_MANAGERS, *_GENERATORS)):
                left.append(each.__self__)
        elif isinstance(each, _MANAGERS):
            for value in vars(each).values():
                left += value if isinstance(value, collections.deque) else [value]
        elif type(each).__name__ in _AWAITABLES or type(each) is tuple:
            left += gc.get_referents(each)


_is_finalized = ctypes.pythonapi.PyObject_GC_IsFinalized
_is_finalized.argtypes = [ctypes.py_object]
_FREE_THREADED = hasattr(sys, "_is_gil_enabled") and "free-threading" in sys.version


def _set_finalized(generator: Any) -> None:
    """CPython finalizes an object once, and does not when the object has it that it was so.

    The bit is in the word before the object (_gc_prev); in free-threaded builds in its head
    (ob_gc_bits).
    """
    if _FREE_THREADED:
        ctypes.c_uint8.from_address(id(generator) + 11).value |= 2
    else:
        ctypes.c_size_t.from_address(id(generator) - ctypes.sizeof(ctypes.c_size_t)).value |= 1
    if not _is_finalized(generator):
        raise RuntimeError("this CPython keeps what was finalized in another place")
