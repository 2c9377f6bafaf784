"""Simulations whose decisions Hypothesis draws, so that it shrinks and stores failures."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, TypeVar

from ..._internal.coroutine_check import refuse_coroutine
from ..simulated.randomness import DrawnRandomness
from . import leaks, policies
from .run import Result
from .simulate import Plan, failure_note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_T = TypeVar("_T")

# Names of the kinds of decisions in the note of a failure.
_KINDS = {
    "buggify": "buggify()",
    "bytes": "long random numbers",
    "decisions": "sim.random and the jobs of executors",
    "kernel": "the network and the faults",
    "moments": "the time that callbacks take",
    "order": "the order of tasks",
    "program": "the program's random numbers",
}


class DrawnSimulation:
    """A simulation that a test of `simulations()` can run.  Since 0.3.0."""

    __module__ = "goloop.testing"

    def __init__(self, draw: Callable[[int, int], Sequence[int]], plan: Plan) -> None:
        """Store the drawing function and the plan; run() starts the simulation."""
        self._draw, self._plan = draw, plan

    def __repr__(self) -> str:
        return f"<a simulation, policy {self._plan.policy}>"

    def run(self, main: Callable[..., Coroutine[Any, Any, _T]]) -> Result[_T]:
        """Run a program as `testing.run()` does, with decisions that Hypothesis draws.

        May be called several times; each run draws its own decisions.

        Args:
            main: A coroutine function that takes the `Simulation`, or nothing.

        Returns:
            The program's result, the virtual time that it took, and the trace.

        Raises:
            LeftBehind: The program has returned without ending its tasks, transports or servers.
            SimulationDeadlock: The program waits for ever; and the other errors of `run()`.
        """
        __tracebackhide__ = True
        refuse_coroutine(main, "simulation.run")
        randomness = DrawnRandomness(self._draw)
        result = self._plan.run(main, 0, record=True, drawn=randomness)
        if randomness.failed is not None:
            raise randomness.failed
        if result.exc is not None:
            result.exc.add_note(
                f"Simulation: decisions by Hypothesis, policy {self._plan.policy}, ended at "
                f"{result.stopped:.6f} s of virtual time.\n"
                f"Decisions with another than their simplest value: {_decisions(randomness)}.\n"
                + failure_note(main, "hypothesis", result.events)
            )
            raise result.exc
        return Result(result.value, result.time, 0, result.trace)


def _decisions(randomness: DrawnRandomness) -> str:
    """Return a text with the decisions of each kind: those that were not 0, and all."""
    kinds = sorted(randomness.taken)
    return ", ".join(
        f"{randomness.chosen[kind]} of {randomness.taken[kind]} about {_KINDS[kind]}"
        for kind in kinds
    )


def simulations(
    *, policy: str = "io", max_time: float | None = 3600.0, allow: Collection[str] = ()
) -> SearchStrategy[DrawnSimulation]:
    """Return a Hypothesis strategy that draws the decisions of a test's simulations.

    Hypothesis draws each decision when it is needed: the order of tasks, the delays of packets,
    faults, random numbers.  A failure shrinks to a run with few events, in which packets take the
    shortest time and only the necessary faults occur, and Hypothesis's database stores it.  The
    first 1500 digits of a run are drawn; further decisions follow from a drawn seed.  Since 0.3.0.

    Args:
        policy: The order of ready tasks, as in `simulate()`; not "dfs".
        max_time: Limit of a run in seconds of virtual time; None: no limit.
        allow: Kinds of leaks that are not errors, as in `simulate()`.

    Returns:
        A strategy of `DrawnSimulation`.

    Raises:
        ImportError: Hypothesis is not installed.
        ValueError: `policy` or a kind in `allow` does not exist.
    """
    try:
        from hypothesis import strategies
    except ImportError as exc:
        raise ImportError(
            "testing.simulations() needs Hypothesis, which is not installed: pip install hypothesis"
        ) from exc
    policies.check(policy)
    if policy.startswith("dfs"):
        raise ValueError(
            f"simulations() can't use {policy!r}, because Hypothesis chooses runs; use 'shuffle'"
        )
    plan = Plan(max_time, policy, leaks.check(allow))

    @functools.cache
    def numbers_below(n: int) -> SearchStrategy[int]:
        """Return the strategy of numbers below `n`, the same object in each call."""
        return strategies.integers(0, n - 1)

    @functools.cache
    def digits(count: int) -> SearchStrategy[bytes]:
        """Return the strategy of `count` bytes, the same object in each call."""
        return strategies.binary(min_size=count, max_size=count)

    @strategies.composite
    def draw_simulation(draw: Any) -> DrawnSimulation:
        """Return the simulation of one example, which draws its decisions while it runs."""

        def numbers(n: int, count: int) -> Sequence[int]:
            """Draw `count` numbers below `n`."""
            if count == 1:
                return [draw(numbers_below(n))]
            return [each % n for each in draw(digits(count))]

        return DrawnSimulation(numbers, plan)

    return draw_simulation()
