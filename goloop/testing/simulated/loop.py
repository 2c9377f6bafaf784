"""The loop of a simulation: goloop's loop on a simulated kernel, which refuses real descriptors.

SimulatedLoopMixin has the overrides for goloop's and for asyncio's loop (oracle.py).
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import math
import socket
import threading
import warnings
import weakref
import zlib

from ... import _core
from ..._internal.loop.loop import Loop
from ..._internal.tasks.tasks import Future, Task
from . import patches, threads
from .clock import ready
from .descriptors import number_of
from .errors import EscapedSimulation
from .kernel import FIRST, current_host_run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVarTuple

    _Ts = TypeVarTuple("_Ts")
    _Base = Loop
else:
    _Base = object


def nanosecond(when: float) -> int:
    """Return `when` in nanoseconds, rounded up as goloop rounds deadlines (call_soon.c)."""
    at = math.floor(when * 1e9)
    while at / 1e9 < when:
        at += 1
    return at


def hashed_by_number(base: Any) -> Any:
    """Return a subclass of a future or task class with serial numbers as hashes.

    Hashes by address would change the order of sets from run to run.
    """

    class Numbered(base):  # type: ignore[misc]
        """The subclass: its objects have serial numbers as hashes."""

        __slots__ = ("_number",)

        def __init__(self, *args: Any, loop: Any, **options: Any) -> None:
            """Take the loop's next number; the arguments are those of the base class."""
            self._number = next(loop._numbers)
            super().__init__(*args, loop=loop, **options)

        def __hash__(self) -> int:
            """Return the serial number."""
            number: int = self._number
            return number

        def cancel(self, *args: Any, **options: Any) -> bool:
            """Cancel as the base class does, and add the cancellation of a task to the trace."""
            asked: bool = super().cancel(*args, **options)
            if asked and hasattr(self, "get_coro"):
                self.get_loop()._simulation.task_cancelled(self)
            return asked

    Numbered.__name__, Numbered.__qualname__ = base.__name__, base.__qualname__
    Numbered.__module__ = base.__module__
    return Numbered


class SimulatedLoopMixin(_Base):
    """Overrides of a loop's methods in a simulation; a mixin in front of the loop's class."""

    def __init__(self, simulation: Any, *args: Any) -> None:
        """Create the loop of a simulation, whose only real thread is the current one."""
        self._simulation = simulation
        self._own_thread = threading.get_ident()
        self._numbers = itertools.count(1)
        # By host run; the loop itself is the key for code on no host.
        self._executors_by_host: weakref.WeakKeyDictionary[Any, threads.HostExecutors] = (
            weakref.WeakKeyDictionary()
        )
        super().__init__(*args)

    def enable_checks(self) -> None:
        """Do nothing: asyncio's loop always checks. Goloop's loop overrides this method."""

    # ---- tasks and futures

    _task: type[asyncio.Task[Any]] = hashed_by_number(Task)
    _future: type[asyncio.Future[Any]] = hashed_by_number(Future)

    def create_task(self, coro: Any, **options: Any) -> Any:
        """Create a task, by the task factory if there is one.

        Otherwise its hash is a serial number, so that asyncio's sets of tasks have a fixed order.
        """
        self._check_closed()
        if self.get_task_factory() is not None:
            return super().create_task(coro, **options)
        task: Any = self._task(coro, loop=self, **options)
        if task._source_traceback:
            del task._source_traceback[-2:]
        return task

    def create_own_task(self, coro: Any, **options: Any) -> Any:
        """Create a task of the simulation itself, without the program's task factory."""
        return self._task(coro, loop=self, **options)

    def create_future(self) -> asyncio.Future[Any]:
        """Create a future with a serial number as its hash."""
        return self._future(loop=self)

    # ---- threads

    def call_soon_threadsafe(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Schedule a callback in the next iteration; return its handle.

        If a job (a function that runs in a simulated executor) calls this, the callback is delayed
        by the virtual time that the job has slept, and the result is a TimerHandle. Raises
        EscapedSimulation if a real thread other than the simulation's calls this.
        """
        if threading.get_ident() != self._own_thread:
            self._simulation.raise_escape(
                f"thread {threading.current_thread().name!r} has called call_soon_threadsafe(); "
                "use asyncio.to_thread() or loop.run_in_executor(), whose threads are simulated"
            )
        if slept := self._simulation.job_slept():
            return self.call_later(slept, callback, *args, context=context)
        return super().call_soon_threadsafe(callback, *args, context=context)

    def _executors(self) -> threads.HostExecutors:
        """Return the executors of the current host."""
        return self._executors_by_host.setdefault(
            current_host_run.get() or self, threads.HostExecutors()
        )

    def has_jobs(self) -> bool:
        """Return true if the main function's default executor has unfinished jobs."""
        executors = self._executors_by_host.get(self)
        return executors is not None and executors.has_jobs()

    def set_default_executor(self, executor: Any) -> None:
        """Set the default executor of the current host."""
        super().set_default_executor(executor)
        self._executors().default = executor

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run a function in a simulated thread of an executor (threads.py).

        RuntimeError after the executor's shutdown.
        """
        self._check_closed()
        if self._debug:
            self._check_callback(func, "run_in_executor")
        if executor is None:
            executor = self._executors().get_default()
        submit = threads.submit_of(executor)
        return asyncio.wrap_future(submit(func, *args), loop=self)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Shut the current host's default executor down and wait for its jobs in virtual time.

        After `timeout` seconds issue asyncio's RuntimeWarning instead of waiting on.
        """
        executors = self._executors()
        executors.is_shut = True
        if executors.default is None:
            return
        executors.default.shutdown(wait=False)
        done = self.create_future()
        executors.pool_of(executors.default).when_done(done)
        try:
            async with asyncio.timeout(timeout):
                await done
        except TimeoutError:
            warnings.warn(
                f"The executor did not finishing joining its threads within {timeout} seconds.",
                RuntimeWarning,
                stacklevel=2,
            )

    # ---- names

    async def getaddrinfo(
        self,
        host: Any,
        port: Any,
        *,
        family: int = 0,
        type: int = 0,
        proto: int = 0,
        flags: int = 0,
    ) -> Any:
        """Return the addresses of a host; the answer for a name takes virtual time.

        gaierror for a name that no simulated host has.
        """
        self._check_closed()
        try:
            numeric = flags | socket.AI_NUMERICHOST
            return patches.getaddrinfo(host, port, family, type, proto, numeric)
        except socket.gaierror as exc:
            if exc.errno != socket.EAI_NONAME or flags & socket.AI_NUMERICHOST:
                raise
        await asyncio.sleep(self._simulation.executor_delay())
        return patches.getaddrinfo(host, port, family, type, proto, flags)

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> tuple[str, str]:
        """Return the numeric address; simulated addresses have no names."""
        return patches.getnameinfo(sockaddr, flags)

    async def _create_server_getaddrinfo(self, *args: Any, **options: Any) -> Any:
        """Return addresses with stable hashes, because asyncio binds in the order of a set."""
        found: Any = await super()._create_server_getaddrinfo(*args, **options)  # type: ignore[misc]
        return [_Address(each) for each in found]

    # ---- descriptors, child processes and signals

    def _check_simulated(self, file: Any) -> None:
        """Raise EscapedSimulation if a file or descriptor is real."""
        number = number_of(file)
        if 0 <= number < FIRST:
            raise EscapedSimulation(
                f"descriptor {number} is not simulated; make sockets and pipes in the simulation, "
                "by socket.socket(), socketpair(), os.pipe() or asyncio's functions"
            )

    async def _make_subprocess_transport(self, *args: Any, **options: Any) -> Any:
        """Start a registered program (Simulation.program()) instead of a child process."""
        return await self._simulation.programs.start(*args, **options)

    async def connect_read_pipe(self, protocol_factory: Any, pipe: Any) -> Any:
        """Connect a simulated pipe for reading."""
        self._check_simulated(pipe)
        return await super().connect_read_pipe(protocol_factory, pipe)

    async def connect_write_pipe(self, protocol_factory: Any, pipe: Any) -> Any:
        """Connect a simulated pipe for writing."""
        self._check_simulated(pipe)
        return await super().connect_write_pipe(protocol_factory, pipe)

    def add_signal_handler(self, sig: int, callback: Callable[[*_Ts], object], *args: *_Ts) -> None:
        """Register a handler for a simulated signal (Host.signal(), os.kill() of a child)."""
        self._check_signal(sig)
        self._check_closed()
        handlers = self._simulation.signal_handlers()
        handlers[sig] = asyncio.Handle(callback, args, self)

    def remove_signal_handler(self, sig: int) -> bool:
        """Remove the handler of a signal; return true if there was one."""
        self._check_signal(sig)
        return self._simulation.signal_handlers().pop(sig, None) is not None


class _Address(tuple):  # type: ignore[type-arg]
    """An entry of getaddrinfo's result with a hash that is the same in each process."""

    __slots__ = ()

    def __hash__(self) -> int:
        """Return a checksum of the text, because hashes of strings differ in each process."""
        return zlib.crc32(repr(self).encode())


# Names of the steps of asyncio's C tasks, of goloop's tasks and of asyncio's Python tasks.
_STEP_NAMES = frozenset({"TaskStepMethWrapper", "task_wakeup", "__step", "__wakeup"})


def task_of_step(callback: Any) -> Any:
    """Return the task if a callback is a step of one, else None."""
    task = getattr(callback, "__self__", None)
    if not asyncio.isfuture(task):
        return None
    name = getattr(callback, "__name__", type(callback).__name__)
    return task if name in _STEP_NAMES else None


def _add_simulated_check(name: str, is_coroutine: bool) -> None:
    """Override a loop method with one that refuses a real descriptor as first argument."""

    def method(self: Any, file: Any, *args: Any, **options: Any) -> Any:
        """Check the file, then call the loop's method."""
        self._check_simulated(file)
        return getattr(super(SimulatedLoopMixin, self), name)(file, *args, **options)

    async def coroutine(self: Any, file: Any, *args: Any, **options: Any) -> Any:
        """Check the file, then await the loop's coroutine method."""
        self._check_simulated(file)
        return await getattr(super(SimulatedLoopMixin, self), name)(file, *args, **options)

    inherited: Any = getattr(Loop, name)
    made = coroutine if is_coroutine else method
    made.__name__, made.__qualname__ = name, f"SimulatedLoop.{name}"
    made.__doc__ = inherited.__doc__
    setattr(SimulatedLoopMixin, name, made)


for _name in ("add_reader", "add_writer"):
    _add_simulated_check(_name, False)
for _name in ("socket", "ssl", "datagram"):
    _add_simulated_check(f"_make_{_name}_transport", False)
for _name in ("recv", "recv_into", "recvfrom", "recvfrom_into", "sendall", "sendto", "accept"):
    _add_simulated_check(f"sock_{_name}", True)
for _name in ("connect", "sendfile"):
    _add_simulated_check(f"sock_{_name}", True)


class SimulatedLoop(SimulatedLoopMixin, Loop):
    """goloop's loop in virtual time."""

    __module__ = "goloop.testing"

    _now = _core.Loop.time

    # The reasons for which the current _run() ends: stop(), or enable_checks().
    _stop_requested = _checks_requested = False

    def has_ready(self) -> bool:
        """Return true if the ready queue is not empty."""
        return ready(self._counted()) > 0

    def stop(self) -> None:
        """Stop the loop after the current iteration."""
        self._stop_requested = True
        super().stop()

    def enable_checks(self) -> None:
        """Check the simulation after each iteration from now on.

        The loop leaves its current native run for that, and continues in guest mode.
        """
        if not self._hosted:
            self._checks_requested = True
            super().stop()

    def _run(self) -> None:
        """Run iterations until stop(); while checks are needed, with a check after each.

        A check that raises ends the run with its exception.
        """
        self._stop_requested = False
        # In guest mode _run() returns after each iteration.
        while not self._simulation.needs_checks:
            self._hosted = self._checks_requested = False
            super()._run()
            self._simulation.after_iteration()
            if self._stop_requested or not self._checks_requested:
                return
        self._hosted = True
        while (busy := super()._run()) is not None:
            try:
                self._simulation.after_iteration()
                if not busy:
                    self._poll()
            except BaseException:
                self.stop()
                super()._run()
                raise
        self._simulation.after_iteration()
