"""SimulationRun: one simulation with its kernel, loop, hosts, signals, and error handling."""

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
from ...operations.commands.client import task_tree
from ..hosts.hosts import Hosts
from ..hosts.lifecycle import abort, run_handler
from ..hosts.programs import Programs
from ..simulated import callback_times, randomness
from ..simulated.errors import EscapedSimulation, SimulationDeadlock, SimulationTimeout
from ..simulated.kernel import Kernel, current_host_run, session_of_thread
from ..simulated.loop import SimulatedLoop
from ..simulated.patches import fresh_counters, replacements
from . import leaks, policies
from .faults import Faults
from .invariants import Invariants
from .network import Network

# The first values of the clocks: the monotonic clock in seconds and in ns, the wall clock in ns.
_START = 1.0
_START_NS = 1_000_000_000
_WALL = 1_767_225_600 * 1_000_000_000  # 2026-01-01 00:00:00 UTC
_LATENCY = (0.000_05, 0.005)
_EXECUTOR = (0.000_01, 0.02)
# The end of time, 123 years after the start; later timers never come due.
_END_NS = 3_900_000_000 * 1_000_000_000
# Seconds of virtual time in which cancelled tasks may end after an error.
_CLEAN_UP = 60.0


def loop_class(name: str) -> Any:
    """Return the class of a simulation's loop by name; ValueError if it does not exist."""
    if name == "goloop":
        return SimulatedLoop
    if name == "asyncio":
        from ..simulated.oracle import OracleLoop  # imported only on Linux, because it needs epoll

        return OracleLoop
    raise ValueError(f"loop must be 'goloop' or 'asyncio', got {name!r}")


class SimulationRun:
    """A simulation from its start to its end.

    Decisions are made by `drawn` if it is passed, else by the seed.  `policy` is the order of ready
    callbacks, and `loop` names the loop's class.  With `record` the trace includes the steps of
    tasks.  If `allow` is not None, leaks are errors, except the kinds in `allow`.
    """

    def __init__(
        self,
        seed: int,
        policy: str = "io",
        *,
        loop: str = "goloop",
        record: bool = False,
        allow: Collection[str] | None = None,
        drawn: randomness.DrawnRandomness | None = None,
    ) -> None:
        """Create the kernel and the parts of the simulation; the class describes the arguments."""
        self._loop_class = loop_class(loop)
        self._randomness = drawn or randomness.SeededRandomness(policies.outer_seed(policy, seed))
        self._scheduler = policies.scheduler(policy, seed, self._randomness)
        self._callback_times = policies.callback_times_for(
            self._scheduler, seed, self._randomness, drawn is not None
        )
        self._record, self._allow = record, allow
        self.seed = seed
        self._drawn = drawn is not None
        self._seed_note = "" if drawn else f"; seed {seed}"
        self.kernel = Kernel(self._randomness.seed, start=_START, latency=_LATENCY, trace=True)
        self.hosts = Hosts(self)
        self.net = Network(self.kernel, self.hosts, _LATENCY)
        self.programs = Programs(self)
        self.faults = Faults(self.kernel)
        self.random = self._randomness.generator("decisions")
        self.program_random = self._randomness.generator("program")
        self._buggy_random = self._randomness.generator("buggify")
        self.invariants = Invariants()
        self._broken: BaseException | None = None
        self._names = policies.Names()
        self._trace: list[str] = []
        self.trace = self.events = ""  # the whole trace; the trace until the program ended
        self._ended: float | None = None
        self.stopped = 0.0  # time of the last event
        self._handlers: dict[int, asyncio.Handle] = {}
        self._slept = 0
        self._in_job = False
        self._escape: EscapedSimulation | None = None
        self._monotonic: Callable[[], float] = self.kernel.now
        self._max_time: float | None = None
        self._unhandled: list[dict[str, Any]] = []
        self.loop: Any = None

    def time(self) -> float:
        """Return the seconds of virtual time since the start."""
        return (self.monotonic_ns() - _START_NS) / 1e9

    @property
    def ended(self) -> float:
        """Return the time at which the program returned or failed; until then the current time."""
        return self.time() if self._ended is None else self._ended

    def time_and_seed(self) -> str:
        """Return the current time and the seed, for messages."""
        return f"{self.time():.6f} s of virtual time{self._seed_note}"

    @property
    def position(self) -> tuple[int, bool] | None:
        """Return the run's position in the policy "dfs" (policies.Delays); else None."""
        return getattr(self._scheduler, "position", None)

    # ---- the interface for the replaced functions and the loop

    def monotonic_ns(self) -> int:
        """Return the monotonic clock in nanoseconds, with the time that the current job slept."""
        return round(self._monotonic() * 1e9) + self._slept

    def wall_ns(self) -> int:
        """Return the current host's wall clock in nanoseconds since 1970."""
        host_run = current_host_run.get()
        skew: int = 0 if host_run is None or host_run.host is None else host_run.host._skew
        return _WALL - _START_NS + self.monotonic_ns() + skew

    def timer_was_set(self) -> None:
        """Advance the clock after a timer was set, if callbacks take time; never in a job."""
        if self._callback_times is not None and not self._in_job:
            self._advance_clock(self._callback_times.pause_after_timer())

    def _advance_after_iteration(self) -> None:
        """Advance the clock after an iteration to the next timer.

        This happens only if callbacks take time, the timer is near, and callbacks are ready; then
        the source of callback times decides.
        """
        if self._callback_times is None or (due := self.loop.next_timer()) is None:
            return
        remaining = due - self.kernel.now_ns()
        if (
            remaining <= callback_times.LONGEST
            and self.loop.has_ready()
            and self._callback_times.reaches_next_timer(remaining)
        ):
            self._advance_clock(remaining)

    def _advance_clock(self, ns: int) -> None:
        """Let virtual time pass during callbacks, and add a line to the trace.

        The simulation's end of time is ignored here, because the loop's next wait fails with it,
        too.
        """
        if ns > 0:
            try:
                self.kernel.sleep(ns / 1e9)
            except OSError as exc:
                if exc.errno != errno.ETIME:
                    raise
            self.note(f"callbacks take {ns} ns")

    def sleep(self, seconds: float) -> None:
        """Sleep in virtual time; a job's sleep does not delay the loop.

        Raises SimulationDeadlock or SimulationTimeout if the sleep exceeds the end of time.
        """
        if self._in_job:
            self._slept += round(seconds * 1e9)
            return
        try:
            self.kernel.sleep(seconds)
        except OSError as exc:
            self._explain(exc)
            raise

    def resolve(self, name: str, family: int) -> list[str]:
        """Return the addresses of a host name, as getaddrinfo orders them; [] for another name.

        `family` 0 means IPv4, and IPv6 too if the host was made with `ipv6`; for localhost the
        current host decides.
        """
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
        # The order of RFC 6724, as in glibc: private IPv6 addresses are last.
        return [address for each, address in found.items() if family in (0, each)]

    def has_ipv6(self) -> bool:
        """Return true if lookups without a family find IPv6 addresses on the current host."""
        host_run = current_host_run.get()
        return host_run is not None and host_run.host is not None and host_run.host.ipv6

    def hostname(self) -> str:
        """Return the name of the current host."""
        host_run = current_host_run.get()
        name: str = "localhost" if host_run is None or host_run.host is None else host_run.host.name
        return name

    def executor_delay(self) -> float:
        """Return random seconds until a job of an executor runs."""
        return self.random.uniform(*_EXECUTOR)

    def buggify(self, probability: float) -> bool:
        """Return true with a given probability."""
        return randomness.happens(self._buggy_random, probability)

    def enter_job(self) -> tuple[bool, int]:
        """Start a job; its sleeps do not delay the loop.  Return the state for leave_job()."""
        before = self._in_job, self._slept
        self._in_job = True
        return before

    def job_slept(self) -> float:
        """Return the seconds that the current job has slept; 0.0 outside a job."""
        return self._slept / 1e9 if self._in_job else 0.0

    def leave_job(self, before: tuple[bool, int]) -> float:
        """End a job and restore the state before it; return the seconds that it slept."""
        slept = self._slept - before[1]
        self._in_job, self._slept = before
        return slept / 1e9

    def signal_handlers(self) -> dict[int, asyncio.Handle]:
        """Return the signal handlers, by number, of the current host or child program.

        The main function, which is on no host, has its own.
        """
        host_run = current_host_run.get()
        handlers: dict[int, asyncio.Handle] = (
            self._handlers if host_run is None else host_run.handlers
        )
        return handlers

    def get_signal(self, sig: int) -> Any:
        """Return the handler that set_signal() has set.

        Without one, also if add_signal_handler() has registered one, it is the default handler.
        The function _ignore stands for SIG_IGN.
        """
        handle: Any = self.signal_handlers().get(sig)
        if handle is None or handle._args != (sig, None):
            return signal.default_int_handler if sig == signal.SIGINT else signal.SIG_DFL
        return handle._callback

    def set_signal(self, sig: int, handler: Any) -> Any:
        """Set a handler of a simulated signal, as signal.signal() does; return the old one.

        It also replaces a handler of add_signal_handler(), which is not returned.
        TypeError for a handler that is neither callable, SIG_IGN nor SIG_DFL.
        """
        before = self.get_signal(sig)
        if handler == signal.SIG_IGN:
            self.signal_handlers()[sig] = asyncio.Handle(_ignore, (sig, None), self.loop)
        elif handler in (signal.SIG_DFL, signal.default_int_handler):
            self.signal_handlers().pop(sig, None)
        elif callable(handler):
            self.signal_handlers()[sig] = asyncio.Handle(handler, (sig, None), self.loop)
        else:
            raise TypeError(f"a handler must be a function, SIG_IGN or SIG_DFL, got {handler!r}")
        return signal.SIG_IGN if before is _ignore else before

    def raise_signal(self, sig: int) -> None:
        """Send a signal to the current host or child program, as signal.raise_signal() does.

        If a child program has no handler, the signal goes to its host.
        EscapedSimulation if it would kill the main function, which is on no host.
        """
        host_run = current_host_run.get()
        if run_handler(self.signal_handlers(), sig, self.loop):
            return
        if host_run is None or host_run.host is None:
            self.raise_escape(
                f"signal {sig} would end the main function: set a handler before, or send the "
                "signal in a program of a host"
            )
        host_run.host.signal(sig)

    def raise_escape(self, message: str) -> NoReturn:
        """Raise EscapedSimulation, in any thread, and end the simulation with it."""
        escape = EscapedSimulation(message)
        self.record_escape(escape)
        raise escape

    def record_escape(self, exc: EscapedSimulation) -> None:
        """Record the exception with which the simulation ends, even if the program catches it.

        A later exception replaces an earlier one.
        """
        self._escape = exc

    @property
    def needs_checks(self) -> bool:
        """Return true if after_iteration() must be called after each iteration."""
        return self._drawn or self._callback_times is not None or bool(self.invariants)

    def after_iteration(self) -> None:
        """Do the work that follows each iteration of the loop.

        This supplies the kernel with digits for its next decisions (`DrawnRandomness.supply()`;
        nothing with a seed), raises an exception that check_after_step() has stored, checks the
        invariants, and perhaps advances the clock to the next timer. Also raises the exceptions of
        `supply()` and of invariants.
        """
        self._randomness.supply(self.kernel)
        if self._broken is not None:
            broken, self._broken = self._broken, None
            raise broken
        if self.invariants:
            self.invariants.check(self)
        self._advance_after_iteration()

    def check_after_step(self) -> None:
        """Check the invariants after a step of a task; after_iteration() raises the exception.

        A failure removes all invariants.
        """
        if self.invariants:
            try:
                self.invariants.check(self)
            except BaseException as exc:
                self._broken = self._broken or exc
                self.invariants.clear()

    def _note_step(self, task: Any) -> None:
        """Add a step of a task to the trace."""
        self.note(f"step {self._names.of(task, self.hosts.name_of)}")

    def task_cancelled(self, task: Any) -> None:
        """Add the cancellation of a task to the trace, if steps are recorded."""
        if self._record and self._ended is None:
            self.note(f"cancel {self._names.of(task, self.hosts.name_of)}")

    def note(self, text: str) -> None:
        """Append a line with the current time to the trace."""
        self._trace.append(self.kernel.trace())
        self._trace.append(f"{self.kernel.now_ns()} {text}\n")

    def _new_loop(self) -> Any:
        """Return the new loop, with the mixins for callbacks' times and a scheduler if needed."""
        scheduler = self._scheduler
        base = (
            self._loop_class
            if self._callback_times is None
            else callback_times.with_callback_times(self._loop_class)
        )
        if scheduler is None and not self._record:
            return base(self)
        note = self._note_step if self._record else None
        scheduled = policies.with_scheduler(base)
        return scheduled(self, scheduler or policies.InOrder(), note)

    # ---- start, run and end

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Switch this thread to the simulation for the time of the block.

        In it the functions of the standard library are replaced, the garbage collector is off, and
        `loop` is the new loop.  At the end the loop and the kernel are closed, and `trace` is set.
        """
        thread = threading.get_ident()
        collecting = gc.isenabled()
        gc.disable()  # a collection at a random time would make runs differ
        own = leaks.only_new_objects if self._allow is not None else contextlib.nullcontext
        try:
            with own(), replacements(), fresh_counters(), self.kernel:
                session_of_thread[thread] = self
                try:
                    self._randomness.supply(self.kernel)
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
                    del session_of_thread[thread]
        finally:
            self.kernel.close()
            if collecting:
                gc.enable()

    def _note_unhandled(self, loop: Any, context: dict[str, Any]) -> None:
        """Record the context of an exception that no code has handled."""
        if loop is self.loop:
            self._unhandled.append(context)

    def run(self, main: Coroutine[Any, Any, Any], max_time: float | None) -> Any:
        """Run the program's coroutine, clean up, and check for leaks; return its result.

        Raises the program's exception, SimulationDeadlock, SimulationTimeout, LeftBehind, the
        exception of an invariant, or EscapedSimulation, even if the program has caught that.
        """
        loop = self.loop
        asyncio.set_event_loop(loop)
        try:
            end = _END_NS
            if max_time is not None and max_time < _END_NS / 1e9:
                end = min(end, _START_NS + round(max_time * 1e9))
            self.kernel.end_time_at(end)
            self._max_time = max_time
            task = loop.create_task(main)
            findings: list[str] = []
            try:
                with self._record_dropped_transports(findings):
                    value = loop.run_until_complete(task)
                    self._ended = self.time()
                    self._callback_times = None
                    self._let_settle(findings)
            except OSError as exc:
                if not task.done():
                    self._explain(exc)
                raise
            finally:
                self._ended, self._callback_times = self.ended, None
                self.stopped = self.time()
                self._trace.append(self.kernel.trace())
                self.events = "".join(self._trace)
                self.invariants.clear()
                self._randomness.end(self.kernel)
                if self._drawn and sys.exc_info()[1] is not None:
                    # Hypothesis repeats a failing run, so errors of its clean-up are not reported.
                    loop.set_exception_handler(_ignore_context)
                if sys.exc_info()[1] is not None:
                    # The callback that ends run_until_complete() may still be queued.
                    loop.stop()
                    loop.run_forever()
                self._clean_up()
                if self._escape is not None and not isinstance(
                    sys.exc_info()[1], EscapedSimulation
                ):
                    raise self._escape
            if self._allow is not None:
                del task
                gc.collect()  # finalizers report exceptions that were never retrieved
                when = f"{self.ended:.6f} s of virtual time{self._seed_note}"
                leaks.raise_leaks(findings, self._unhandled, self._allow, when)
            return value
        finally:
            asyncio.set_event_loop(None)

    def _run_own(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine of the simulation itself, without the program's task factory."""
        task = self.loop.create_own_task(coroutine)
        task._log_destroy_pending = False  # as run_until_complete() does for a coroutine
        self.loop.run_until_complete(task)

    def _record_dropped_transports(
        self, findings: list[str]
    ) -> contextlib.AbstractContextManager[None]:
        """Return a context that records transports deallocated open, unless they are allowed."""
        if self._allow is None or "transports" in self._allow:
            return contextlib.nullcontext()
        return leaks.dropped_transports(findings)

    def _let_settle(self, findings: list[str]) -> None:
        """Wait for `eventually()` predicates after the program's return, and kill all hosts.

        If leaks are errors, then wait until tasks and transports may have ended, and append the
        leaks to `findings`.
        """
        loop = self.loop
        self.kernel.end_time_at(_END_NS)
        while (due := self.invariants.next_deadline()) is not None:
            self._run_own(asyncio.sleep(max(0.0, due - loop.time())))
        self.hosts.end()
        if self._allow is None:
            return
        self._run_own(asyncio.sleep(leaks.SETTLE))
        if "tasks" not in self._allow and asyncio.all_tasks(loop):
            findings.append(f"tasks run:\n{describe(loop)}")
        if "transports" not in self._allow:
            findings += (
                leaks.open_transports(loop, self.programs.own_transports) + self.programs.leaks()
            )

    def _explain(self, exc: OSError) -> None:
        """Raise the simulation's error for EDEADLK or ETIME of the kernel; return for others."""
        if exc.errno == errno.EDEADLK:
            raise SimulationDeadlock(
                f"the program waits for ever (nothing is ready, no timer, no packet), at "
                f"{self.time():.6f} s{self._seed_note}\n{describe(self.loop)}"
            ) from None
        if exc.errno == errno.ETIME and self.kernel.now_ns() >= _END_NS:
            raise SimulationDeadlock(
                f"the program waits for ever (nothing is ready, no timer within 123 years, no "
                f"packet){self._seed_note}\n{describe(self.loop)}"
            ) from None
        if exc.errno == errno.ETIME:
            raise SimulationTimeout(
                f"not done after {self._max_time} s of virtual time{self._seed_note}\n"
                f"{describe(self.loop)}"
            ) from None

    def _clean_up(self) -> None:
        """Kill all hosts, cancel the remaining tasks and shut the loop down, as asyncio.run() does.

        Tasks that do not end within _CLEAN_UP seconds of virtual time are left.  Exceptions of
        the cancelled tasks go to the loop's exception handler.
        """
        loop = self.loop
        self.hosts.end()
        self.kernel.end_time_at(self.kernel.now_ns() + round(_CLEAN_UP * 1e9))
        remaining = sorted(asyncio.all_tasks(loop), key=_by_number)
        for task in remaining:
            task.cancel()
        with contextlib.suppress(OSError):  # of the kernel, if tasks do not end
            if remaining:
                loop.run_until_complete(asyncio.gather(*remaining, return_exceptions=True))
            self._run_own(loop.shutdown_asyncgens())
            if loop.has_jobs():
                self._run_own(loop.shutdown_default_executor())
        for task in remaining:
            if task.done() and not task.cancelled() and task.exception() is not None:
                loop.call_exception_handler(
                    {
                        "message": "unhandled exception during the end of a simulation",
                        "exception": task.exception(),
                        "task": task,
                    }
                )

    def _close_loop(self) -> None:
        """Abort all transports and close the loop: the next simulation reuses descriptors."""
        for transport in self.loop._all_transports():
            abort(transport)
        with contextlib.suppress(OSError):
            self._run_own(asyncio.sleep(0))
        self.programs.mark_transports_closed()
        self.loop.close()


def _ignore(sig: int, frame: None) -> None:
    """Ignore a signal; the handler for SIG_IGN."""


def _ignore_context(_loop: Any, _context: dict[str, Any]) -> None:
    """Ignore an unhandled exception; an exception handler of a loop."""


def _by_number(task: asyncio.Task[Any]) -> tuple[int, str]:
    """Return a sort key that orders `Task-9` before `Task-10`."""
    name = task.get_name()
    return len(name), name


def describe(loop: Any) -> str:
    """Return the tree of a loop's tasks as `goloop pstree` prints it."""
    tasks = sorted(asyncio.all_tasks(loop), key=_by_number)
    waiting = waiting_tasks(tasks)
    rows = [
        {**_row(task), "awaiters": [_row(each) for each in awaiters(task, waiting)]}
        for task in tasks
    ]
    return task_tree(rows) or "(no task is left)"


def _row(task: Any) -> dict[str, Any]:
    """Return a task's id, name and stack of awaits, in the form for task_tree()."""
    return {"id": id(task), "name": task.get_name(), "stack": await_stack(task.get_coro())}
