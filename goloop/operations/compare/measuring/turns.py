"""Measurements in turns: all that are compared, in a random order, with their failures."""

from __future__ import annotations

import random

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    Entrant = TypeVar("Entrant")


class Failure(Exception):
    """Something cannot be measured; `output` has the last lines of the program."""

    def __init__(self, message: str, output: str = "") -> None:
        """Store message and output."""
        super().__init__(message)
        self.output = output


def take_turns(
    entrants: Sequence[Entrant],
    measure: Callable[[Entrant], None],
    failed: Callable[[Entrant, Failure], None],
    number: int | None = None,
) -> None:
    """Measure each of the entrants once, in a random order; `failed` gets a failure.

    The order of a `number` is always the same one.
    """
    for entrant in random.Random(number).sample(entrants, len(entrants)):
        try:
            measure(entrant)
        except Failure as failure:
            failed(entrant, failure)
