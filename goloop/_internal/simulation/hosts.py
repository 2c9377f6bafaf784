"""Hosts of a simulation: what runs where, and how it ends and begins anew.

All hosts run in one loop.  The context of a callback names its host (kernel.host_here); callbacks,
tasks and transports inherit it.  Once there are hosts, the loop's class has Hosted before it: it
drops what a killed host still had to run, and keeps what a paused one has.  Sockets belong to the
host that made them; packets are the kernel's (netloop/simulated/hosts.go).
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import ctypes
import enum
import errno
import fcntl
import functools
import gc
import signal
import sys
import types
import weakref
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from ..simulated.descriptors import is_socket
from ..simulated.kernel import FIRST, Ask, ask, host_here
from ..simulated.loop import Simulated
from .faults import Faults

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVarTuple

    from .life import Life

    _Ts = TypeVarTuple("_Ts")

_T = TypeVar("_T")


class _Change(enum.IntEnum):
    """What the kernel can do with a host, see hosts.go."""

    KILL = 0
    CRASH = 1
    START = 2
    PAUSE = 3
    RESUME = 4


class Boot:
    """What a host is between a start and its end; what its callbacks have in their context."""

    __slots__ = ("dead", "ended", "handlers", "host", "kept", "number", "paused", "tasks")

    def __init__(self, host: Host, number: int) -> None:
        self.host = host
        self.number = number
        self.dead = self.paused = False
        self.kept: list[_Gated] = []
        self.ended: set[int] = set()  # transports that may still close their sockets
        self.handlers: dict[int, asyncio.Handle] = {}
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()


class _Gated:
    """A callback of a host, which runs while the host does."""

    __slots__ = ("args", "boot", "callback", "context", "handle")
    handle: Any

    def __init__(
        self, boot: Boot, callback: Any, args: tuple[Any, ...], context: contextvars.Context
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
    """What a simulation's loop does otherwise on which several hosts run."""

    def _call_again(self, kept: _Gated) -> None:
        super().call_soon(kept, context=kept.context)

    def create_task(self, coro: Any, **options: Any) -> Any:
        """As asyncio's."""
        context = options.get("context")
        boot = host_here.get() if context is None else context.get(host_here)
        task = super().create_task(coro, **options)
        if boot is not None:
            boot.tasks.add(task)
        return task

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
    if boot is None or type(callback) is _Gated:  # asyncio's call_later() calls call_at()
        return schedule(callback, *args, context=context)
    made = _Gated(boot, callback, args, contextvars.copy_context() if context is None else context)
    handle = made.handle = schedule(made, context=made.context)
    return handle


class _Program:
    """What a host runs, each time that it starts, until it has returned."""

    def __init__(self, call: Callable[[], Coroutine[Any, Any, Any]], result: Any) -> None:
        self.call = call
        self.result = result
        self.task: asyncio.Task[Any] | None = None

    def start(self, loop: Any, boot: Boot) -> None:
        context = contextvars.Context()
        context.run(host_here.set, boot)
        coroutine = context.run(self.call)
        task = self.task = loop.create_task(coroutine, context=context)
        # In a context of no host: a paused one has its result known.
        task.add_done_callback(self._returned, context=contextvars.Context())

    def _returned(self, task: asyncio.Task[Any]) -> None:
        if task is not self.task or self.result.done():
            return
        if task.cancelled():
            self.result.cancel()
        elif (exc := task.exception()) is not None:
            self.result.set_exception(exc)
        else:
            self.result.set_result(task.result())

    def given_up(self, result: Any) -> None:
        """Who cancels the result wants the task cancelled."""
        if result.cancelled() and self.task is not None:
            self.task.cancel()


# What a signal does to a program without a handler, where that is not its end.
_IGNORED = {signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGCONT}


class Host:
    """A machine of a simulation, with an address, a name, a clock and programs of its own.

    `Simulation.host()` makes them.  Since 0.3.0.
    """

    __module__ = "goloop.testing"

    def __init__(self, life: Life, name: str) -> None:
        self._life = life
        self._name = name
        self._number = ask(Ask.MAKE_HOST, life.kernel.number)[0]
        life.note(f"* host {self._number} {name}")
        self._faults = Faults(life.kernel, self._number)
        self._boot = Boot(self, self._number)
        self._programs: list[_Program] = []
        self._skew = 0
        self._up = self._powered = True

    def __repr__(self) -> str:
        return f"<Host {self._name} {self.address}>"

    @property
    def name(self) -> str:
        """Its name, which `getaddrinfo` knows on all hosts."""
        return self._name

    @property
    def address(self) -> str:
        """Its address, of IPv4."""
        n = self._number
        return f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}"

    @property
    def faults(self) -> Faults:
        """What the kernel does wrong here, instead of `Simulation.faults`; restarts leave it."""
        return self._faults

    @property
    def is_up(self) -> bool:
        """Whether it runs: it was not killed since its last start."""
        return self._up

    def spawn(
        self, program: Callable[..., Coroutine[Any, Any, _T]], *args: Any, **options: Any
    ) -> asyncio.Future[_T]:
        """Run a program here: `program(*args, **options)`, now and after each restart.

        What it makes, tasks, callbacks, sockets, belongs to this host.

        Args:
            program: A coroutine function.
            *args: What it is called with.
            **options: What it is called with by name.

        Returns:
            A future of what it returns or raises, over all restarts until then.  To cancel it is to
            cancel the program.

        Raises:
            RuntimeError: The host is down.
        """
        if not self._up:
            raise RuntimeError(f"{self!r} is down")
        result = contextvars.Context().run(self._life.loop.create_future)
        made = _Program(functools.partial(program, *args, **options), result)
        result.add_done_callback(made.given_up, context=contextvars.Context())
        self._programs.append(made)
        made.start(self._life.loop, self._boot)
        future: asyncio.Future[_T] = result
        return future

    def kill(self) -> None:
        """End its programs at once, as SIGKILL does: no `except` and no `finally` of theirs runs.

        The machine lives on, closes their sockets and refuses connections: a peer reads the end of
        the stream, or a reset where bytes were left unread, and gets a reset when it sends.
        """
        self._end(_Change.KILL)

    def crash(self) -> None:
        """Take its power: as `kill()`, but the network hears nothing of it.

        Peers notice by their timeouts, or when they send: after 15 minutes of retransmissions, or
        by a reset once the host has been restarted.
        """
        self._end(_Change.CRASH)
        self._powered = False

    def restart(self) -> None:
        """Start it, killing it first if it is up; its programs that have not returned run anew."""
        self.kill()
        self._change(_Change.START)
        self._boot = Boot(self, self._number)
        self._up = self._powered = True
        self._programs = [each for each in self._programs if not each.result.done()]
        for each in self._programs:
            each.start(self._life.loop, self._boot)

    def pause(self) -> None:
        """Stop it: until `resume()` its callbacks do not run, and what is sent to it waits."""
        if self._up and not self._boot.paused:
            self._boot.paused = True
            self._change(_Change.PAUSE)

    def resume(self) -> None:
        """Let it go on after `pause()`; what was due meanwhile runs now."""
        boot = self._boot
        if not boot.paused:
            return
        boot.paused = False
        if self._up:
            self._change(_Change.RESUME)
        kept, boot.kept = boot.kept, []
        for each in kept:
            if not each.handle.cancelled():
                self._life.loop._call_again(each)

    def clock_skew(self, seconds: float) -> None:
        """Set its calendar's clock, what `time.time()` and `datetime.now()` go by, ahead or behind.

        Args:
            seconds: What it says more than the simulation's; the monotonic clock stays.
        """
        self._skew = round(seconds * 1e9)

    def signal(self, sig: int) -> None:
        """Send a signal to its programs.

        It runs the handler that they have set by `loop.add_signal_handler()`.  Without one it does
        what Linux does: most kill.
        """
        handle: Any = self._boot.handlers.get(sig)
        if handle is not None:
            self._life.loop.call_soon(handle._callback, *handle._args, context=handle._context)
        elif sig not in _IGNORED:
            self.kill()

    def _change(self, change: _Change) -> None:
        ask(Ask.CHANGE_HOST, self._life.kernel.number, self._number, change)

    def _end(self, change: _Change) -> None:
        if not self._up:
            if change == _Change.CRASH and self._powered:
                self._change(change)
            return
        boot, loop = self._boot, self._life.loop
        self._up = False
        boot.dead, boot.paused = True, False
        boot.kept.clear()
        for program in self._programs:
            program.task = None
        self._change(change)
        for sock in [each for each in loop._serving if _is_gone(each.fileno())]:
            loop._stop_serving(sock)
        for transport in loop._all_transports():
            if _is_gone(getattr(transport, "_sock_fd", -1)):
                boot.ended.add(id(transport))
                transport.set_protocol(_Nothing())
                abort(transport)
        for task in boot.tasks:
            _drop(task, loop)


class _Nothing(asyncio.Protocol, asyncio.DatagramProtocol):
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


class Hosts:
    """The hosts of one simulation."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._by_name: dict[str, Host] = {}

    def make(self, name: str) -> Host:
        """A new host."""
        if not name or name in self._by_name or name == "localhost":
            raise ValueError(f"{name!r} is no name for a host, or is taken")
        if not self._by_name:
            loop = self._life.loop
            loop.__class__ = _hosted(loop.__class__)
        made = self._by_name[name] = Host(self._life, name)
        return made

    def name_of(self, task: Any) -> str | None:
        """The host of a task."""
        return next((n for n, each in self._by_name.items() if task in each._boot.tasks), None)

    def by_name(self) -> Mapping[str, Host]:
        """The hosts."""
        return self._by_name

    def end(self) -> None:
        """The main function has returned: nothing of them runs any more."""
        for each in self._by_name.values():
            each.kill()
