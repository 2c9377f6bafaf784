"""A case of the corpus: a bug, and the correct version beside it.

A case is a coroutine function that takes the simulation and whether it is the right version.
Times are whole seconds where a bug needs two things at once, as timeouts of programs are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

from goloop import testing


@dataclasses.dataclass(frozen=True)
class Case:
    """A bug."""

    name: str
    policy: str
    main: Callable[[testing.Simulation, bool], Awaitable[None]]
    errors: tuple[type[BaseException], ...]


CASES: list[Case] = []


def case(name: str, policy: str, *errors: type[BaseException]) -> Callable[[Any], Any]:
    def decorate(main: Any) -> Any:
        CASES.append(Case(name, policy, main, errors))
        return main

    return decorate
