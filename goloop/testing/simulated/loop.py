"""The loop of a simulation: goloop's own, on a simulated kernel, fenced from the host.

Simulated has what a simulation needs of any loop; oracle.py puts it before asyncio's.
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
from . import patches as worlds
from . import threads
from .clock import ready
from .descriptors import number_of
from .errors import EscapedSimulation
from .kernel import FIRST, host_here

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVarTuple

    _Ts = TypeVarTuple("_Ts")
    _Base = Loop
else:
    _Base = object


def nanosecond(when: float) -> int:
    """The first one that is not before it, as goloop rounds deadlines (call_soon.c)."""
    at = math.floor(when * 1e9)
    while at / 1e9 < when:
        at += 1
    return at


def numbered(base: Any) -> Any:
    """The class, but hashed by a number in the order in which they are made, not by address."""

    class Numbered(base):  # type: ignore[misc]
        __slots__ = ("_number",)

        def __init__(self, *args: Any, loop: Any, **options: Any) -> None:
            self._number = next(loop._numbers)
            super().__init__(*args, loop=loop, **options)

        def __hash__(self) -> int:
            number: int = self._number
            return number

        def cancel(self, *args: Any, **options: Any) -> bool:
            asked: bool = super().cancel(*args, **options)
            if asked and hasattr(self, "get_coro"):
                self.get_loop()._simulation.task_cancelled(self)
            return asked

    Numbered.__name__, Numbered.__qualname__ = base.__name__, base.__qualname__
    Numbered.__module__ = base.__module__
    return Numbered


class Simulated(_Base):
    """What loops do otherwise in a simulation; before the class of a loop."""

    def __init__(self, simulation: Any, *args: Any) -> None:
        self._simulation = simulation
        self._home = threading.get_ident()
        self._numbers = itertools.count(1)
        # By host; of what is on none, by the loop.
        self._crews: weakref.WeakKeyDictionary[Any, threads.Crew] = weakref.WeakKeyDictionary()
        super().__init__(*args)

    def watch(self) -> None:
        """There are invariants from now on."""

    # ---- tasks and futures

    _task: type[asyncio.Task[Any]] = numbered(Task)
    _future: type[asyncio.Future[Any]] = numbered(Future)

    def create_task(self, coro: Any, **options: Any) -> Any:
        """As asyncio's; asyncio keeps tasks in sets, whose order is that of the hashes."""
        self._check_closed()
        if self.get_task_factory() is not None:
            return super().create_task(coro, **options)
        task: Any = self._task(coro, loop=self, **options)
        if task._source_traceback:
            del task._source_traceback[-2:]
        return task

    def create_own_task(self, coro: Any, **options: Any) -> Any:
        """Create a task of the simulation's: the task factory is for the program's own tasks."""
        return self._task(coro, loop=self, **options)

    def create_future(self) -> asyncio.Future[Any]:
        """Of the same kind."""
        return self._future(loop=self)

    # ---- threads

    def call_soon_threadsafe(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """As asyncio's, from the simulation's own thread."""
        if threading.get_ident() != self._home:
            self._simulation.escaped(
                f"thread {threading.current_thread().name!r} has called in; what a thread does "
                "has to go to asyncio.to_thread() or loop.run_in_executor(), which are simulated"
            )
        if slept := self._simulation.job_slept():
            return self.call_later(slept, callback, *args, context=context)
        return super().call_soon_threadsafe(callback, *args, context=context)

    def _crew(self) -> threads.Crew:
        """The executors of the host that runs."""
        return self._crews.setdefault(host_here.get() or self, threads.Crew())

    def has_jobs(self) -> bool:
        """Whether the default executor of the main function has jobs that are not done."""
        crew = self._crews.get(self)
        return crew is not None and crew.has_jobs()

    def set_default_executor(self, executor: Any) -> None:
        """Set that of the host that runs."""
        super().set_default_executor(executor)
        self._crew().default = executor

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """As asyncio's; its threads are simulated (threads.py)."""
        self._check_closed()
        if self._debug:
            self._check_callback(func, "run_in_executor")
        if executor is None:
            executor = self._crew().take_default()
        submit = threads.submit_of(executor)
        return asyncio.wrap_future(submit(func, *args), loop=self)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """As asyncio's, for the host that runs; its jobs are waited for in virtual time."""
        crew = self._crew()
        crew.is_shut = True
        if crew.default is None:
            return
        crew.default.shutdown(wait=False)
        done = self.create_future()
        crew.pool(crew.default).when_done(done)
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
        """Names of hosts are known; an answer takes a moment."""
        self._check_closed()
        try:
            numeric = flags | socket.AI_NUMERICHOST
            return worlds.getaddrinfo(host, port, family, type, proto, numeric)
        except socket.gaierror as exc:
            if exc.errno != socket.EAI_NONAME or flags & socket.AI_NUMERICHOST:
                raise
        await asyncio.sleep(self._simulation.executor_delay())
        return worlds.getaddrinfo(host, port, family, type, proto, flags)

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> tuple[str, str]:
        """Addresses have no names."""
        return worlds.getnameinfo(sockaddr, flags)

    async def _create_server_getaddrinfo(self, *args: Any, **options: Any) -> Any:
        """What asyncio makes a set of, in whose order it binds."""
        found: Any = await super()._create_server_getaddrinfo(*args, **options)  # type: ignore[misc]
        return [_Address(each) for each in found]

    # ---- what is the host's

    def _check_simulated(self, file: Any) -> None:
        number = number_of(file)
        if 0 <= number < FIRST:
            raise EscapedSimulation(
                f"descriptor {number} is the host's; make sockets and pipes within the simulation, "
                "by socket.socket(), socketpair(), os.pipe() or asyncio's functions"
            )

    async def _make_subprocess_transport(self, *args: Any, **options: Any) -> Any:
        """A program of the simulation instead of a child process."""
        return await self._simulation.programs.start(*args, **options)

    async def connect_read_pipe(self, protocol_factory: Any, pipe: Any) -> Any:
        """For pipes of the simulation."""
        self._check_simulated(pipe)
        return await super().connect_read_pipe(protocol_factory, pipe)

    async def connect_write_pipe(self, protocol_factory: Any, pipe: Any) -> Any:
        """For pipes of the simulation."""
        self._check_simulated(pipe)
        return await super().connect_write_pipe(protocol_factory, pipe)

    def add_signal_handler(self, sig: int, callback: Callable[[*_Ts], object], *args: *_Ts) -> None:
        """For signals of the simulation."""
        self._check_signal(sig)
        self._check_closed()
        handlers = self._simulation.signal_handlers()
        handlers[sig] = asyncio.Handle(callback, args, self)

    def remove_signal_handler(self, sig: int) -> bool:
        """Remove a handler for a signal; True if there was one."""
        self._check_signal(sig)
        return self._simulation.signal_handlers().pop(sig, None) is not None


class _Address(tuple):  # type: ignore[type-arg]
    """Something of getaddrinfo, with a hash that is the same in each process."""

    __slots__ = ()

    def __hash__(self) -> int:
        return zlib.crc32(repr(self).encode())


# asyncio's tasks in C, and goloop's; and asyncio's in Python.
_STEPS_ARE = frozenset({"TaskStepMethWrapper", "task_wakeup", "__step", "__wakeup"})


def stepped(callback: Any) -> Any:
    """The task of which a callback is a step, or None."""
    task = getattr(callback, "__self__", None)
    if not asyncio.isfuture(task):
        return None
    name = getattr(callback, "__name__", type(callback).__name__)
    return task if name in _STEPS_ARE else None


def _fence(name: str, is_coroutine: bool) -> None:
    """A method of the loop whose first argument must be simulated."""

    def method(self: Any, file: Any, *args: Any, **options: Any) -> Any:
        self._check_simulated(file)
        return getattr(super(Simulated, self), name)(file, *args, **options)

    async def coroutine(self: Any, file: Any, *args: Any, **options: Any) -> Any:
        self._check_simulated(file)
        return await getattr(super(Simulated, self), name)(file, *args, **options)

    inherited: Any = getattr(Loop, name)
    made = coroutine if is_coroutine else method
    made.__name__, made.__qualname__ = name, f"SimulatedLoop.{name}"
    made.__doc__ = inherited.__doc__
    setattr(Simulated, name, made)


for _name in ("add_reader", "add_writer"):
    _fence(_name, False)
for _name in ("socket", "ssl", "datagram"):
    _fence(f"_make_{_name}_transport", False)
for _name in ("recv", "recv_into", "recvfrom", "recvfrom_into", "sendall", "sendto", "accept"):
    _fence(f"sock_{_name}", True)
for _name in ("connect", "sendfile"):
    _fence(f"sock_{_name}", True)


class SimulatedLoop(Simulated, Loop):
    """A loop in virtual time."""

    __module__ = "goloop.testing"

    _now = _core.Loop.time

    # Whether _run() of now has been told to end, and by whom.
    _stops = _watch_begins = False

    def has_ready(self) -> bool:
        """Whether something runs in the next iteration, whatever comes."""
        return ready(self._counted()) > 0

    def stop(self) -> None:
        """As asyncio's."""
        self._stops = True
        super().stop()

    def watch(self) -> None:
        """There are invariants from now on, and iterations end with a look at them."""
        if not self._hosted:
            self._watch_begins = True
            super().stop()

    def _run(self) -> None:
        """Iterations until stop(); as long as that is wanted, with a look after each."""
        self._stops = False
        # Hosted, _run() returns after each iteration.
        while not self._simulation.looks:
            self._hosted = self._watch_begins = False
            super()._run()
            self._simulation.look()
            if self._stops or not self._watch_begins:
                return
        self._hosted = True
        while (busy := super()._run()) is not None:
            try:
                self._simulation.look()
                if not busy:
                    self._poll()
            except BaseException:
                self.stop()
                super()._run()
                raise
        self._simulation.look()
