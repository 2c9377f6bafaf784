"""A program in a simulation."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import random
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from .life import Life
from .world import worlds

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


Result.__module__ = "goloop.testing"  # dataclass() wants the module that there is


class Simulation:
    """What a test has of the simulation that it runs in.  Since 0.3.0.

    The argument of a main function that takes one.
    """

    __module__ = "goloop.testing"

    def __init__(self, life: Life) -> None:
        self._life = life

    @property
    def seed(self) -> int:
        """The seed."""
        return self._life.seed

    @property
    def random(self) -> random.Random:
        """For decisions of the test: a generator of the seed, apart from the program's."""
        return self._life.random

    def time(self) -> float:
        """Seconds of virtual time since the simulation began."""
        return self._life.time()


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
) -> Result[_T]:
    """Run a program in virtual time, on a simulated kernel; a seed decides what is left to chance.

    Meanwhile, in this thread, sockets are simulated, clocks tell the virtual time, which jumps to
    the next deadline when nothing can run, and what `random`, `os.urandom`, `secrets` and `uuid`
    give comes from the seed.  Other threads notice nothing.  Since 0.3.0.

    Args:
        main: A coroutine function that takes the `Simulation`, or nothing.
        seed: From 0 to 2**63 - 1.
        max_time: Seconds of virtual time that it may take; None: any number.

    Returns:
        What it has returned, how long it took, and the trace.

    Raises:
        SimulationDeadlock: Nothing can run any more.
        SimulationTimeout: `max_time` is over.
        EscapedSimulation: The program has asked for what can't be simulated.
        RuntimeError: The thread runs a loop or a simulation already, or the system is not Linux.
    """
    if sys.platform != "linux":
        raise RuntimeError("simulations need Linux")
    thread = threading.get_ident()
    if thread in worlds or asyncio._get_running_loop() is not None:
        raise RuntimeError("a simulation can't begin while this thread runs a loop")
    life = Life(seed)
    with life.entered():
        value = life.run(_called(main, Simulation(life)), max_time)
        time = life.time()
        trace = life.kernel.trace()
    return Result(value, time, seed, trace)
