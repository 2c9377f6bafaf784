"""The life of one simulation: its kernel, its loop, and what its thread sees."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import signal
import socket
import sys
import threading
from collections.abc import Callable, Collection, Coroutine, Iterator
from typing import Any, NoReturn

from ..._internal.loop import running
from ..._internal.tasks.call_graph import await_stack, awaiters, waiting_tasks
from ...operations.commands.client import tree
from ..hosts.hosts import Hosts
from ..hosts.lifecycle import abort, run_handler
from ..hosts.programs import Programs
from ..simulated import callback_times, randomness
from ..simulated.errors import EscapedSimulation, SimulationDeadlock, SimulationTimeout
from ..simulated.kernel import Kernel, host_here, worlds
from ..simulated.loop import SimulatedLoop
from ..simulated.patches import fresh_counters, replacements
from . import leaks, policies
from .faults import Faults
from .invariants import Invariants
from .network import Network

# What clocks say first: the monotonic one in seconds, and at the same moment the calendar.
_START = 1.0
_START_NS = 1_000_000_000
_WALL = 1_767_225_600 * 1_000_000_000  # 2026-01-01 00:00:00 UTC
_LATENCY = (0.000_05, 0.005)
_EXECUTOR = (0.000_01, 0.02)
# The last moment that there is, 123 years later; a timer behind it never comes.
_END_NS = 3_900_000_000 * 1_000_000_000
# Seconds of virtual time that are left for tasks to end after an error.
_CLEAN_UP = 60.0


def loop_class(name: str) -> Any:
    """The class of a simulation's loop; ValueError where there is none of that name."""
    if name == "goloop":
        return SimulatedLoop
    if name == "asyncio":
        from ..simulated.oracle import OracleLoop  # Linux's alone, as its selector

        return OracleLoop
    raise ValueError(f"loop is 'goloop' or 'asyncio', not {name!r}")


class SimulationRun:
    """A simulation from its beginning to its end.

    `drawn` makes its decisions, and without it the seed.
    With `record` the trace has the steps of tasks, too.  With `allow` what the program leaves
    behind is an error, but for these kinds of it.
    """

    def __init__(
        self,
        seed: int,
        policy: str = "io",
        *,
        loop: str = "goloop",
        record: bool = False,
        allow: Collection[str] | None = None,
        drawn: randomness.Drawn | None = None,
    ) -> None:
        self._loop_class = loop_class(loop)
        self._chance = drawn or randomness.Seeded(policies.outer_seed(policy, seed))
        self._scheduler = policies.scheduler(policy, seed, self._chance)
        self._moments = policies.moments(self._scheduler, seed, self._chance, drawn is not None)
        self._record, self._allow = record, allow
        self.seed = seed
        self._drawn = drawn is not None
        self._whence = "" if drawn else f"; seed {seed}"
        self.kernel = Kernel(self._chance.seed, start=_START, latency=_LATENCY, trace=True)
        self.hosts = Hosts(self)
        self.net = Network(self.kernel, self.hosts, _LATENCY)
        self.programs = Programs(self)
        self.faults = Faults(self.kernel)
        self.random = self._chance.generator("decisions")
        self.program_random = self._chance.generator("program")
        self._buggy_random = self._chance.generator("buggify")
        self.invariants = Invariants()
        self._broken: BaseException | None = None
        self._names = policies.Names()
        self._trace: list[str] = []
        self.trace = self.events = ""  # all of it; and until the program ended
        self._ended: float | None = None
        self.stopped = 0.0  # when its last event was
        self._handlers: dict[int, asyncio.Handle] = {}
        self._slept = 0
        self._in_job = False
        self._escape: EscapedSimulation | None = None
        self._monotonic: Callable[[], float] = self.kernel.now
        self._max_time: float | None = None
        self._unhandled: list[dict[str, Any]] = []
        self.loop: Any = None

    def time(self) -> float:
        """Seconds of virtual time since the beginning."""
        return (self.monotonic_ns() - _START_NS) / 1e9

    @property
    def ended(self) -> float:
        """When the program returned, or failed."""
        return self.time() if self._ended is None else self._ended

    def when(self) -> str:
        """For messages."""
        return f"{self.time():.6f} s of virtual time{self._whence}"

    @property
    def row(self) -> tuple[int, bool] | None:
        """Where the run is among all, with a policy that goes through them."""
        return getattr(self._scheduler, "row", None)

    # ---- for the replaced functions, and the loop

    def monotonic_ns(self) -> int:
        """What the monotonic clock says."""
        return round(self._monotonic() * 1e9) + self._slept

    def wall_ns(self) -> int:
        """What the calendar's clock says."""
        boot = host_here.get()
        skew: int = 0 if boot is None or boot.host is None else boot.host._skew
        return _WALL - _START_NS + self.monotonic_ns() + skew

    def timer_was_set(self) -> None:
        """Where callbacks take time, some may pass."""
        if self._moments is not None and not self._in_job:
            self._callbacks_take(self._moments.pause())

    def _iteration_ends(self) -> None:
        """Where something is ready, the next timer may come due before it has run."""
        if self._moments is None or (due := self.loop.next_timer()) is None:
            return
        left = due - self.kernel.now_ns()
        if left <= callback_times.LONGEST and self.loop.has_ready() and self._moments.lasts(left):
            self._callbacks_take(left)

    def _callbacks_take(self, ns: int) -> None:
        if ns > 0:
            with contextlib.suppress(OSError):  # time is over, which the next wait tells
                self.kernel.sleep(ns / 1e9)
            self.note(f"callbacks take {ns} ns")

    def sleep(self, seconds: float) -> None:
        """time.sleep."""
        if self._in_job:
            self._slept += round(seconds * 1e9)
            return
        try:
            self.kernel.sleep(seconds)
        except OSError as exc:
            self._explain(exc)
            raise

    def resolve(self, name: str, family: int) -> list[str]:
        """The addresses of a name."""
        host = self.hosts.by_name().get(name)
        if name.rstrip(".").lower() == "localhost":
            found = {socket.AF_INET6: "::1", socket.AF_INET: "127.0.0.1"}
            both = self.has_ipv6()
        elif host is None:
            return []
        else:
            found = {socket.AF_INET: host.address, socket.AF_INET6: host.address6}
            both = host.ipv6
        if family == 0 and not both:
            family = socket.AF_INET
        # In the order of RFC 6724, as glibc has it: private addresses of IPv6 come last.
        return [address for each, address in found.items() if family in (0, each)]

    def has_ipv6(self) -> bool:
        """Whether names have addresses of IPv6 on this host, where no family is asked for."""
        boot = host_here.get()
        return boot is not None and boot.host is not None and boot.host.ipv6

    def hostname(self) -> str:
        """The name of this host."""
        boot = host_here.get()
        name: str = "localhost" if boot is None or boot.host is None else boot.host.name
        return name

    def executor_delay(self) -> float:
        """Seconds until an executor's job runs."""
        return self.random.uniform(*_EXECUTOR)

    def buggify(self, probability: float) -> bool:
        """Whether a rare thing happens."""
        return randomness.happens(self._buggy_random, probability)

    def job_begins(self) -> tuple[bool, int]:
        """Until it ends, time that it sleeps is its own; what job_ends() is to be given."""
        before = self._in_job, self._slept
        self._in_job = True
        return before

    def job_slept(self) -> float:
        """How long the job that runs has slept until now."""
        return self._slept / 1e9 if self._in_job else 0.0

    def job_ends(self, before: tuple[bool, int]) -> float:
        """How long the job has slept; one that waited for it goes on where it was."""
        slept = self._slept - before[1]
        self._in_job, self._slept = before
        return slept / 1e9

    def signal_handlers(self) -> dict[int, asyncio.Handle]:
        """By signal."""
        boot = host_here.get()
        handlers: dict[int, asyncio.Handle] = self._handlers if boot is None else boot.handlers
        return handlers

    def get_signal(self, sig: int) -> Any:
        """signal.getsignal: what set_signal() has set."""
        handle: Any = self.signal_handlers().get(sig)
        if handle is None or handle._args != (sig, None):
            return signal.default_int_handler if sig == signal.SIGINT else signal.SIG_DFL
        return handle._callback

    def set_signal(self, sig: int, handler: Any) -> Any:
        """signal.signal, for signals of the simulation."""
        before = self.get_signal(sig)
        if handler == signal.SIG_IGN:
            self.signal_handlers()[sig] = asyncio.Handle(_ignore, (sig, None), self.loop)
        elif handler in (signal.SIG_DFL, signal.default_int_handler):
            self.signal_handlers().pop(sig, None)
        elif callable(handler):
            self.signal_handlers()[sig] = asyncio.Handle(handler, (sig, None), self.loop)
        else:
            raise TypeError("a handler is a function, SIG_IGN or SIG_DFL")
        return signal.SIG_IGN if before is _ignore else before

    def raise_signal(self, sig: int) -> None:
        """signal.raise_signal, to the host that runs."""
        boot = host_here.get()
        if run_handler(self.signal_handlers(), sig, self.loop):
            return
        if boot is None or boot.host is None:
            self.escaped(f"signal {sig} would end the main function, which has no handler of it")
        boot.host.signal(sig)

    def escaped(self, message: str) -> NoReturn:
        """Raises, and the simulation ends with it, in whatever thread that is."""
        escape = EscapedSimulation(message)
        self.has_escaped(escape)
        raise escape

    def has_escaped(self, exc: EscapedSimulation) -> None:
        """The simulation ends with it, whatever the program makes of it."""
        self._escape = exc

    @property
    def looks(self) -> bool:
        """Whether there is something to do behind each iteration."""
        return self._drawn or self._moments is not None or bool(self.invariants)

    def look(self) -> None:
        """Behind each iteration: raises what invariant is broken, and lets time pass."""
        self._chance.supply(self.kernel)
        if self._broken is not None:
            broken, self._broken = self._broken, None
            raise broken
        if self.invariants:
            self.invariants.look(self)
        self._iteration_ends()

    def look_between(self) -> None:
        """Behind a step of a task, within an iteration, whose end raises what is broken."""
        if self.invariants:
            try:
                self.invariants.look(self)
            except BaseException as exc:
                self._broken = self._broken or exc
                self.invariants.forget()

    def _note_step(self, task: Any) -> None:
        self.note(f"step {self._names.of(task, self.hosts.name_of)}")

    def task_cancelled(self, task: Any) -> None:
        """Where steps are noted, what ends a task is, too."""
        if self._record and self._ended is None:
            self.note(f"cancel {self._names.of(task, self.hosts.name_of)}")

    def note(self, what: str) -> None:
        """A line of the trace."""
        self._trace.append(self.kernel.trace())
        self._trace.append(f"{self.kernel.now_ns()} {what}\n")

    def _new_loop(self) -> Any:
        scheduler = self._scheduler
        base = self._loop_class if self._moments is None else callback_times.busy(self._loop_class)
        if scheduler is None and not self._record:
            return base(self)
        note = self._note_step if self._record else None
        scheduled = policies.scheduled(base)
        return scheduled(self, scheduler or policies.InOrder(), note)

    # ---- its life

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        thread = threading.get_ident()
        collecting = gc.isenabled()
        gc.disable()  # what finalizers do must not depend on when it runs
        own = leaks.only_new_objects if self._allow is not None else contextlib.nullcontext
        try:
            with own(), replacements(), fresh_counters(), self.kernel:
                worlds[thread] = self
                try:
                    self._chance.supply(self.kernel)
                    self.loop = self._new_loop()
                    self._monotonic = self.loop._now
                    running.on_exception.append(self._note_unhandled)
                    try:
                        yield
                    finally:
                        self.trace = "".join(self._trace) + self.kernel.trace()
                        running.on_exception.remove(self._note_unhandled)
                        self._monotonic = self.kernel.now
                        self._close_loop()
                        self.loop = None
                finally:
                    del worlds[thread]
        finally:
            self.kernel.close()
            if collecting:
                gc.enable()

    def _note_unhandled(self, loop: Any, context: dict[str, Any]) -> None:
        if loop is self.loop:
            self._unhandled.append(context)

    def run(self, main: Coroutine[Any, Any, Any], max_time: float | None) -> Any:
        """What the coroutine returns; meanwhile, and with what it leaves, time passes."""
        loop = self.loop
        asyncio.set_event_loop(loop)
        try:
            end = _END_NS
            if max_time is not None and max_time < _END_NS / 1e9:
                end = min(end, _START_NS + round(max_time * 1e9))
            self.kernel.end_time_at(end)
            self._max_time = max_time
            task = loop.create_task(main)
            left: list[str] = []
            try:
                with self._watched(left):
                    value = loop.run_until_complete(task)
                    self._ended = self.time()
                    self._moments = None
                    self._let_settle(left)
            except OSError as exc:
                if not task.done():
                    self._explain(exc)
                raise
            finally:
                self._ended, self._moments = self.ended, None
                self.stopped = self.time()
                self._trace.append(self.kernel.trace())
                self.events = "".join(self._trace)
                self.invariants.forget()
                self._chance.end(self.kernel)
                if self._drawn and sys.exc_info()[1] is not None:
                    # It fails again and again, and how it is cleaned up is not what is wrong.
                    loop.set_exception_handler(_not_told)
                if sys.exc_info()[1] is not None:
                    # The callback by which run_until_complete() would have ended may be queued.
                    loop.stop()
                    loop.run_forever()
                self._clean_up()
                if self._escape is not None and not isinstance(
                    sys.exc_info()[1], EscapedSimulation
                ):
                    raise self._escape
            if self._allow is not None:
                del task
                gc.collect()  # what was never retrieved is reported by finalizers
                when = f"{self.ended:.6f} s of virtual time{self._whence}"
                leaks.raise_what_is_left(left, self._unhandled, self._allow, when)
            return value
        finally:
            asyncio.set_event_loop(None)

    def _run_own(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine of the simulation's, which no task factory of the program's sees."""
        task = self.loop.create_own_task(coroutine)
        task._log_destroy_pending = False  # as run_until_complete() does for a coroutine
        self.loop.run_until_complete(task)

    def _watched(self, left: list[str]) -> contextlib.AbstractContextManager[None]:
        if self._allow is None or "transports" in self._allow:
            return contextlib.nullcontext()
        return leaks.dropped_transports(left)

    def _let_settle(self, left: list[str]) -> None:
        """When `main` is done: promises are waited for; then what goes on is `left`."""
        loop = self.loop
        self.kernel.end_time_at(_END_NS)
        while (due := self.invariants.left()) is not None:
            self._run_own(asyncio.sleep(max(0.0, due - loop.time())))
        self.hosts.end()
        if self._allow is None:
            return
        self._run_own(asyncio.sleep(leaks.SETTLE))
        if "tasks" not in self._allow and asyncio.all_tasks(loop):
            left.append(f"tasks run:\n{describe(loop)}")
        if "transports" not in self._allow:
            left += leaks.open_transports(loop, self.programs.own) + self.programs.left()

    def _explain(self, exc: OSError) -> None:
        """Raises what an error of the kernel's means."""
        if exc.errno == errno.EDEADLK:
            raise SimulationDeadlock(
                f"nothing can run, no timer is set, and nothing is on its way, at "
                f"{self.time():.6f} s{self._whence}\n{describe(self.loop)}"
            ) from None
        if exc.errno == errno.ETIME and self.kernel.now_ns() >= _END_NS:
            raise SimulationDeadlock(
                f"nothing can run, no timer is set that ever comes (within 123 years), and nothing "
                f"is on its way{self._whence}\n{describe(self.loop)}"
            ) from None
        if exc.errno == errno.ETIME:
            raise SimulationTimeout(
                f"not done after {self._max_time} s of virtual time{self._whence}\n"
                f"{describe(self.loop)}"
            ) from None

    def _clean_up(self) -> None:
        """As asyncio.run: what is left is cancelled."""
        loop = self.loop
        self.hosts.end()
        self.kernel.end_time_at(self.kernel.now_ns() + round(_CLEAN_UP * 1e9))
        left = sorted(asyncio.all_tasks(loop), key=_by_number)
        for task in left:
            task.cancel()
        with contextlib.suppress(OSError):  # of the kernel: they do not end
            if left:
                loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._run_own(loop.shutdown_asyncgens())
            if loop.has_jobs():
                self._run_own(loop.shutdown_default_executor())
        for task in left:
            if task.done() and not task.cancelled() and task.exception() is not None:
                loop.call_exception_handler(
                    {
                        "message": "unhandled exception during the end of a simulation",
                        "exception": task.exception(),
                        "task": task,
                    }
                )

    def _close_loop(self) -> None:
        """Transports end with it: their descriptors would be those of the next simulation."""
        for transport in self.loop._all_transports():
            abort(transport)
        with contextlib.suppress(OSError):
            self._run_own(asyncio.sleep(0))
        self.programs.end()
        self.loop.close()


def _ignore(sig: int, frame: None) -> None:
    """SIG_IGN."""


def _not_told(_loop: Any, _context: dict[str, Any]) -> None:
    """An exception handler."""


def _by_number(task: asyncio.Task[Any]) -> tuple[int, str]:
    name = task.get_name()
    return len(name), name


def describe(loop: Any) -> str:
    """The tasks of a loop as `goloop pstree` shows them."""
    tasks = sorted(asyncio.all_tasks(loop), key=_by_number)
    waiting = waiting_tasks(tasks)
    rows = [
        {**_row(task), "awaiters": [_row(each) for each in awaiters(task, waiting)]}
        for task in tasks
    ]
    return tree(rows) or "(no task is left)"


def _row(task: Any) -> dict[str, Any]:
    return {"id": id(task), "name": task.get_name(), "stack": await_stack(task.get_coro())}
