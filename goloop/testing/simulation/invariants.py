"""Predicates that a simulation checks: `always()` and `eventually()`."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

from ..simulated.errors import InvariantBroken, NeverHappened


@dataclasses.dataclass
class _Promise:
    """A predicate of `eventually()`."""

    name: str
    predicate: Callable[[], object]
    within: float
    begun: float
    deadline: float  # on the loop's clock
    timer: asyncio.TimerHandle
    line: str  # of the program that called eventually()


class Invariants:
    """The predicates of one simulation, in the order of their registration."""

    def __init__(self) -> None:
        """Create the set without predicates."""
        self._always: list[tuple[str, Callable[[], object], str]] = []
        self._promised: list[_Promise] = []

    def always(self, name: str, predicate: Callable[[], object], line: str) -> None:
        """Register a predicate that must always be true."""
        self._always.append((name, predicate, line))

    def eventually(
        self,
        loop: Any,
        begun: float,
        name: str,
        predicate: Callable[[], object],
        within: float,
        line: str,
    ) -> None:
        """Register a predicate that must be true once within `within` seconds."""
        deadline = loop.time() + within
        timer = loop.call_at(deadline, _nothing)  # the iteration of the timer checks the predicate
        self._promised.append(_Promise(name, predicate, within, begun, deadline, timer, line))

    def next_deadline(self) -> float | None:
        """Return the next deadline of an `eventually()` predicate, on the loop's clock, or None."""
        return min((each.deadline for each in self._promised), default=None)

    def check(self, session: Any) -> None:
        """Call all predicates; raise InvariantBroken or NeverHappened and remove all predicates.

        A predicate of eventually() that is true is removed.  Exceptions of predicates are raised.
        """
        for name, predicate, line in self._always:
            if not predicate():
                self.clear()
                raise _with_source_line(
                    InvariantBroken(
                        f"the invariant {name!r} was false at {session.time_and_seed()}"
                    ),
                    line,
                )
        for promise in tuple(self._promised):
            if promise.predicate():
                promise.timer.cancel()
                self._promised.remove(promise)
            elif session.loop.time() >= promise.deadline:
                self.clear()
                missed = NeverHappened(
                    f"{promise.name!r} was not true within {promise.within:g} s from "
                    f"{promise.begun:.6f} s on, at {session.time_and_seed()}"
                )
                raise _with_source_line(missed, promise.line)

    def clear(self) -> None:
        """Remove all predicates."""
        for promise in self._promised:
            promise.timer.cancel()
        self._always.clear()
        self._promised.clear()

    def __bool__(self) -> bool:
        """Return true if any predicate is registered."""
        return bool(self._always or self._promised)


def _with_source_line(exc: BaseException, line: str) -> BaseException:
    """Add a note with the line that registered the predicate, if it is known; return `exc`."""
    if line:
        exc.add_note(f"Registered in {line}")
    return exc


def _nothing() -> None:
    """Do nothing; a timer's callback."""
