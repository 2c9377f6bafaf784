"""testing.run(): one run of a program in a simulation, with Simulation and Result."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import os
import random
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from ..._internal.coroutine_check import refuse_coroutine
from ..hosts.hosts import Host
from ..hosts.programs import Process
from ..simulated.kernel import session_of_thread
from . import pictures
from .faults import Faults
from .network import Network
from .session import SimulationRun
from .tracebacks import line_of, without_own_frames

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class Result(Generic[_T]):
    """The result of one simulation.  Since 0.3.0."""

    value: _T
    """Return value of the main coroutine."""
    time: float
    """Seconds of virtual time that the main coroutine took."""
    seed: int
    """Seed of the run."""
    trace: str
    """Calls of the simulated kernel and its events, one per line: the time in nanoseconds, then a
    call with its result, or a star and an event.  Equal seeds give equal traces."""

    def write_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the trace for Perfetto or `chrome://tracing`, in virtual time.

        Hosts are shown as processes, tasks as their threads (with `steps=True` of `run()`), and
        packets as arrows.

        Args:
            path: Name of the JSON file, compressed if the name ends with `.gz`.

        Raises:
            OSError: The file can't be written.
        """
        pictures.write(path, self.trace)


Result.__module__ = "goloop.testing"  # set after dataclass(), which looks the module up


class Simulation:
    """The interface of a test to its simulation: the argument of a main function.  Since 0.3.0."""

    __module__ = "goloop.testing"

    def __init__(self, session: SimulationRun) -> None:
        """Wrap the run; the simulation passes the object to the main function."""
        self._session = session

    @property
    def seed(self) -> int:
        """Return the seed."""
        return self._session.seed

    @property
    def random(self) -> random.Random:
        """Return a random generator for the test, separate from the program's `random`."""
        return self._session.random

    def host(self, name: str, *, ipv6: bool = False) -> Host:
        """Make a host, a machine with its own programs.

        Args:
            name: Its name; `getaddrinfo` resolves it on all hosts.
            ipv6: If true, the name without a family resolves to the IPv4 and the IPv6 address, and
                so do `localhost` and servers without a host there.  The host has an IPv6 address in
                both cases.

        Raises:
            ValueError: A host with this name exists, or the name is empty or `localhost`.
        """
        return self._session.hosts.make(name, ipv6)

    def program(
        self, name: str, function: Callable[[Process], Coroutine[Any, Any, int | None]]
    ) -> None:
        """Register a coroutine function that runs instead of a child process.

        `asyncio.create_subprocess_exec(name, ...)` and `loop.subprocess_exec()` run it on the host
        where they are called, with the requested pipes.  The program is looked up by the whole
        name, then by the last part of its path.  Since 0.3.0.

        Args:
            name: Name of the program.
            function: Coroutine function that takes the `Process`.  Its result is the exit code, and
                None means 0.  If it raises, the traceback is written to its stderr, and the exit
                code is 1.
        """
        refuse_coroutine(function, "sim.program")
        self._session.programs.register(name, function)

    @property
    def net(self) -> Network:
        """Return the network between the hosts."""
        return self._session.net

    @property
    def faults(self) -> Faults:
        """Return the faults of all hosts that have no faults of their own."""
        return self._session.faults

    def time(self) -> float:
        """Return the seconds of virtual time since the start of the simulation."""
        return self._session.time()

    def always(self, name: str, predicate: Callable[[], object]) -> None:
        """Register a predicate that must be true after each iteration of the loop from now on.

        With a policy that orders tasks it is called after each step of a task.  An exception of the
        predicate ends the simulation, too.  Since 0.3.0.

        Args:
            name: Name of the predicate in the error message.
            predicate: A plain function without arguments.

        Raises:
            InvariantBroken: Raised by the simulation when the predicate is false.
        """
        line = line_of(sys._getframe(1))
        self._session.invariants.always(name, predicate, line)
        self._session.loop.enable_checks()

    def eventually(self, name: str, predicate: Callable[[], object], *, within: float) -> None:
        """Register a predicate that must be true once within a time; called as by `always()`.

        If the program returns earlier, the simulation continues until the end of the time.
        Since 0.3.0.

        Args:
            name: Name of the predicate in the error message.
            predicate: A plain function without arguments.
            within: Seconds of virtual time from now on.

        Raises:
            NeverHappened: Raised by the simulation if the predicate was false all the time.
        """
        session = self._session
        line = line_of(sys._getframe(1))
        session.invariants.eventually(session.loop, self.time(), name, predicate, within, line)
        session.loop.enable_checks()

    def buggify(self, probability: float = 0.1) -> bool:
        """Return true with a given probability; the seed decides.  Since 0.3.0.

        Args:
            probability: Probability of true, from 0 to 1.
        """
        return self._session.buggify(probability)


def buggify(probability: float = 0.1) -> bool:
    """Return true with a given probability in a simulation; always false outside of simulations.

    Programs call it to take a rare path deliberately: a short read, a delay, a retry.  Since 0.3.0.

    Args:
        probability: Probability of true, from 0 to 1.
    """
    session = session_of_thread.get(threading.get_ident())
    return session is not None and session.buggify(probability)


def _call_main(main: Callable[..., Coroutine[Any, Any, _T]], simulation: Simulation) -> Any:
    """Call a main function and return its coroutine.

    It gets the simulation if it has a positional parameter without a default.
    TypeError if the result is not a coroutine.
    """
    takes = [
        each
        for each in inspect.signature(main).parameters.values()
        if each.kind is not each.KEYWORD_ONLY and each.default is each.empty
    ]
    coroutine = main(simulation) if takes else main()
    if not inspect.iscoroutine(coroutine):
        raise TypeError(f"expected a coroutine function (async def), got {main!r}")
    return coroutine


def run(
    main: Callable[..., Coroutine[Any, Any, _T]],
    *,
    seed: int = 0,
    max_time: float | None = None,
    policy: str = "io",
    loop: str = "goloop",
    steps: bool = False,
) -> Result[_T]:
    """Run a program in virtual time on a simulated kernel; the seed makes all random decisions.

    During the run sockets of this thread are simulated, and its clocks return the virtual time,
    which jumps to the next deadline when nothing can run.  Results of `random`, `os.urandom`,
    `secrets` and `uuid` are derived from the seed.  Other threads are not affected.  Since 0.3.0.

    Args:
        main: A coroutine function that takes the `Simulation`, or nothing.
        seed: A number from 0 to 2**63 - 1.
        max_time: Limit in seconds of virtual time; None: no limit.
        policy: The order of ready tasks, as in `simulate()`.
        loop: "goloop", or "asyncio" for CPython's own loop on the same simulated kernel.
        steps: If true, the trace includes the steps of tasks.

    Returns:
        The program's result, the virtual time that it took, and the trace.

    Raises:
        SimulationDeadlock: The program waits for ever.
        SimulationTimeout: The program was not done at `max_time`.
        InvariantBroken: A predicate of `Simulation.always()` was false.
        NeverHappened: A predicate of `Simulation.eventually()` was not true in time.
        EscapedSimulation: The program has used something that can't be simulated.
        RuntimeError: The thread runs a loop or a simulation already, or the system is not Linux.
        TypeError: `main` is a coroutine, or not a coroutine function.
        ValueError: `policy` or `loop` does not exist, or `seed` is out of range.
    """
    __tracebackhide__ = True
    refuse_coroutine(main, "testing.run")
    session = new_session(seed, policy, loop=loop, record=steps)
    try:
        value = run_to_end(session, main, max_time)
    except BaseException as exc:
        raise without_own_frames(exc)  # noqa: B904
    return Result(value, session.ended, seed, session.trace)


def new_session(seed: int, policy: str, **options: Any) -> SimulationRun:
    """Make a simulation for this thread.

    RuntimeError if the thread runs a loop or a simulation, or if the system is not Linux.
    ValueError if the policy or the loop does not exist, or the seed is out of range.
    """
    if sys.platform != "linux":
        raise RuntimeError(f"simulations run only on Linux, not on {sys.platform}")
    if threading.get_ident() in session_of_thread or asyncio._get_running_loop() is not None:
        raise RuntimeError(
            "a simulation can't start while this thread runs a loop; call it from synchronous code"
        )
    return SimulationRun(seed, policy, **options)


def run_to_end(session: SimulationRun, main: Callable[..., Any], max_time: float | None) -> Any:
    """Run a main function to its end; return its result or raise its exception.

    In both cases the session then has the trace.
    """
    with session.entered():
        return session.run(_call_main(main, Simulation(session)), max_time)
