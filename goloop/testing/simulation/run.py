"""A program in a simulation."""

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
from ..simulated.kernel import worlds
from . import pictures
from .faults import Faults
from .network import Network
from .session import SimulationRun
from .tracebacks import line_of, of_the_program

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class Result(Generic[_T]):
    """What a simulation was.  Since 0.3.0."""

    value: _T
    """What the main coroutine has returned."""
    time: float
    """Seconds of virtual time that it took."""
    seed: int
    """The seed."""
    trace: str
    """What the kernel was asked and what happened by itself, a line each: the time in nanoseconds,
    then a call with its result, or behind a star an event.  Equal seeds give equal traces."""

    def write_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the trace for Perfetto or `chrome://tracing`, in virtual time.

        Hosts are processes, tasks are their threads (with `steps` of `run()`), and packets go from
        one to another.

        Args:
            path: A file for JSON, compressed where the name ends with `.gz`.

        Raises:
            OSError: It can't be written.
        """
        pictures.write(path, self.trace)


Result.__module__ = "goloop.testing"  # dataclass() wants the module that there is


class Simulation:
    """What a test has of the simulation that it runs in.  Since 0.3.0.

    The argument of a main function that takes one.
    """

    __module__ = "goloop.testing"

    def __init__(self, life: SimulationRun) -> None:
        self._life = life

    @property
    def seed(self) -> int:
        """The seed."""
        return self._life.seed

    @property
    def random(self) -> random.Random:
        """For decisions of the test: a generator of the seed, apart from the program's."""
        return self._life.random

    def host(self, name: str, *, ipv6: bool = False) -> Host:
        """Make a host, on which programs run apart from those of other hosts.

        Args:
            name: Its name; `getaddrinfo` knows it everywhere in the simulation.
            ipv6: Whether the name is its addresses of IPv4 and IPv6 where no family is asked for,
                and `localhost` and servers without a host are of both there.  Its address of IPv6
                it has in any case.

        Raises:
            ValueError: There is one of that name.
        """
        return self._life.hosts.make(name, ipv6)

    def program(
        self, name: str, function: Callable[[Process], Coroutine[Any, Any, int | None]]
    ) -> None:
        """Let a coroutine function stand for a program that is started as a child process.

        `asyncio.create_subprocess_exec(name, ...)` and `loop.subprocess_exec()` run it on the host
        where they are called, with pipes for what they ask for.  It is found by the whole name, or
        by the last part of its path.  Since 0.3.0.

        Args:
            name: Of the program.
            function: Takes the `Process`.  What it returns is the exit code, None is 0; after an
                exception, which goes to its stderr, it is 1.
        """
        refuse_coroutine(function, "sim.program")
        self._life.programs.register(name, function)

    @property
    def net(self) -> Network:
        """The network between the hosts."""
        return self._life.net

    @property
    def faults(self) -> Faults:
        """What the kernel does wrong, on all hosts but those that have faults of their own."""
        return self._life.faults

    def time(self) -> float:
        """Seconds of virtual time since the simulation began."""
        return self._life.time()

    def always(self, name: str, predicate: Callable[[], object]) -> None:
        """The predicate has to be true from now on: it is called behind each iteration of the loop.

        With a policy that orders tasks, behind each step of a task.  What it raises ends the
        simulation, too.  Since 0.3.0.

        Args:
            name: For the message.
            predicate: Takes nothing, and does not wait.

        Raises:
            InvariantBroken: By the simulation, where the predicate is false.
        """
        line = line_of(sys._getframe(1))
        self._life.invariants.always(name, predicate, line)
        self._life.loop.watch()

    def eventually(self, name: str, predicate: Callable[[], object], *, within: float) -> None:
        """The predicate has to be true once, in time; it is called as `always()` calls it.

        Where the program returns before, time goes on until then.  Since 0.3.0.

        Args:
            name: For the message.
            predicate: Takes nothing, and does not wait.
            within: Seconds of virtual time from now on.

        Raises:
            NeverHappened: By the simulation, where it was false until then.
        """
        life = self._life
        line = line_of(sys._getframe(1))
        life.invariants.eventually(life.loop, self.time(), name, predicate, within, line)
        life.loop.watch()

    def buggify(self, probability: float = 0.1) -> bool:
        """Whether a rare thing is to happen now, by the seed.  Since 0.3.0.

        Args:
            probability: From 0 to 1.
        """
        return self._life.buggify(probability)


def buggify(probability: float = 0.1) -> bool:
    """`Simulation.buggify()` for programs: outside of a simulation it is False.

    It goes where a program may take a rare way: to give a short read, to be late, to try again.
    Since 0.3.0.

    Args:
        probability: From 0 to 1.
    """
    life = worlds.get(threading.get_ident())
    return life is not None and life.buggify(probability)


def _called(main: Callable[..., Coroutine[Any, Any, _T]], simulation: Simulation) -> Any:
    """The coroutine of a main function that takes the simulation, or nothing."""
    takes = [
        each
        for each in inspect.signature(main).parameters.values()
        if each.kind is not each.KEYWORD_ONLY and each.default is each.empty
    ]
    coroutine = main(simulation) if takes else main()
    if not inspect.iscoroutine(coroutine):
        raise TypeError(f"{main!r} is no coroutine function")
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
    """Run a program in virtual time, on a simulated kernel; a seed decides what is left to chance.

    Meanwhile, in this thread, sockets are simulated, clocks tell the virtual time, which jumps to
    the next deadline when nothing can run, and what `random`, `os.urandom`, `secrets` and `uuid`
    give comes from the seed.  Other threads notice nothing.  Since 0.3.0.

    Args:
        main: A coroutine function that takes the `Simulation`, or nothing.
        seed: From 0 to 2**63 - 1.
        max_time: Seconds of virtual time that it may take; None: any number.
        policy: Which of the tasks that are ready goes next, as in `simulate()`.
        loop: Whose loop runs: "goloop", or "asyncio": CPython's own, on the same kernel.
        steps: Whether the trace has the steps of tasks, too.

    Returns:
        What it has returned, how long it took, and the trace.

    Raises:
        SimulationDeadlock: Nothing can run any more.
        SimulationTimeout: `max_time` is over.
        InvariantBroken: Of `Simulation.always()`; and NeverHappened: of `eventually()`.
        EscapedSimulation: The program has asked for what can't be simulated.
        RuntimeError: The thread runs a loop or a simulation already, or the system is not Linux.
        TypeError: `main` is a coroutine, or no coroutine function.
        ValueError: There is no such policy or loop.
    """
    __tracebackhide__ = True
    refuse_coroutine(main, "testing.run")
    life = new_life(seed, policy, loop=loop, record=steps)
    try:
        value = live(life, main, max_time)
    except BaseException as exc:
        raise of_the_program(exc)  # noqa: B904
    return Result(value, life.ended, seed, life.trace)


def new_life(seed: int, policy: str, **options: Any) -> SimulationRun:
    """A simulation that can begin here; RuntimeError where none can."""
    if sys.platform != "linux":
        raise RuntimeError("simulations need Linux")
    if threading.get_ident() in worlds or asyncio._get_running_loop() is not None:
        raise RuntimeError("a simulation can't begin while this thread runs a loop")
    return SimulationRun(seed, policy, **options)


def live(life: SimulationRun, main: Callable[..., Any], max_time: float | None) -> Any:
    """What the main function returns; the simulation has its trace then, or when it has failed."""
    with life.entered():
        return life.run(_called(main, Simulation(life)), max_time)
