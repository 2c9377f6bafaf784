"""Simulations whose decisions Hypothesis makes, so that what fails shrinks, and is kept."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, TypeVar

from ..._internal.coroutine_check import refuse_coroutine
from ..simulated.randomness import Drawn
from . import leaks, policies
from .run import Result
from .simulate import Plan, told

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_T = TypeVar("_T")

_KINDS = {
    "buggify": "buggify()",
    "bytes": "long numbers",
    "decisions": "the test's and the executor's",
    "kernel": "the kernel's",
    "moments": "the time that callbacks take",
    "order": "the order of tasks",
    "program": "the program's",
}


class DrawnSimulation:
    """What `simulations()` gives a test: a simulation that can begin.  Since 0.3.0."""

    __module__ = "goloop.testing"

    def __init__(self, draw: Callable[[int, int], Sequence[int]], plan: Plan) -> None:
        self._draw, self._plan = draw, plan

    def __repr__(self) -> str:
        return f"<a simulation, policy {self._plan.policy}>"

    def run(self, main: Callable[..., Coroutine[Any, Any, _T]]) -> Result[_T]:
        """Run a program as `testing.run()` does, with decisions that Hypothesis makes.

        May be called again: the next run goes on with other decisions.

        Args:
            main: A coroutine function that takes the `Simulation`, or nothing.

        Returns:
            What it has returned, how long it took, and the trace.

        Raises:
            LeftBehind: The program returns and has left something behind.
            SimulationDeadlock: Nothing can run any more; and the others of `run()`.
        """
        __tracebackhide__ = True
        refuse_coroutine(main, "simulation.run")
        chance = Drawn(self._draw)
        ran = self._plan.run(main, 0, record=True, drawn=chance)
        if chance.failed is not None:
            raise chance.failed
        if ran.exc is not None:
            ran.exc.add_note(
                f"Simulation: decided by Hypothesis, policy {self._plan.policy}, ended at "
                f"{ran.stopped:.6f} s of virtual time.\n"
                f"Decisions: {_decisions(chance)}.\n{told(main, 'hypothesis', ran.events)}"
            )
            raise ran.exc
        return Result(ran.value, ran.time, 0, ran.trace)


def _decisions(chance: Drawn) -> str:
    """Of each kind, how many there were, and how many were not the least."""
    kinds = sorted(chance.taken)
    return ", ".join(
        f"{chance.chosen[kind]} of {chance.taken[kind]} of {_KINDS[kind]}" for kind in kinds
    )


def simulations(
    *, policy: str = "io", max_time: float | None = 3600.0, allow: Collection[str] = ()
) -> SearchStrategy[DrawnSimulation]:
    """A strategy of Hypothesis's, which makes the decisions of a test's simulations.

    What is left to chance, in which order tasks go, what packets meet, faults, random numbers, is
    drawn when it is needed.  So a failure shrinks to a run with few events, in which packets take
    the shortest time and nothing fails that need not, and Hypothesis's database keeps it.  The
    first 1500 decisions of a run are drawn; the rest follows from a seed that is.  Since 0.3.0.

    Args:
        policy: Which of the tasks that are ready goes next, as in `simulate()`; not "dfs".
        max_time: Seconds of virtual time that a run may take; None: any number.
        allow: What may be left behind, as in `simulate()`.

    Returns:
        A strategy of `DrawnSimulation`.

    Raises:
        ImportError: Hypothesis is not installed.
        ValueError: There is no such policy, or kind in `allow`.
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
            f"Hypothesis decides itself what it tries; 'shuffle' is for it, not {policy!r}"
        )
    plan = Plan(max_time, policy, leaks.check(allow))

    @functools.cache
    def below(n: int) -> SearchStrategy[int]:
        return strategies.integers(0, n - 1)

    @functools.cache
    def digits(count: int) -> SearchStrategy[bytes]:
        return strategies.binary(min_size=count, max_size=count)

    @strategies.composite
    def drawn(draw: Any) -> DrawnSimulation:
        def numbers(n: int, count: int) -> Sequence[int]:
            if count == 1:
                return [draw(below(n))]
            return [each % n for each in draw(digits(count))]

        return DrawnSimulation(numbers, plan)

    return drawn()
