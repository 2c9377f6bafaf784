"""What has to be true in a simulation: always, or in time."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

from ..simulated.errors import InvariantBroken, NeverHappened


@dataclasses.dataclass
class _Promise:
    name: str
    predicate: Callable[[], object]
    within: float
    begun: float
    deadline: float  # of the loop's clock
    timer: asyncio.TimerHandle
    line: str  # of the program, that has asked for it


class Invariants:
    """The predicates of one simulation, in the order in which they were given."""

    def __init__(self) -> None:
        self._always: list[tuple[str, Callable[[], object], str]] = []
        self._promised: list[_Promise] = []

    def always(self, name: str, predicate: Callable[[], object], line: str) -> None:
        """The predicate is true from now on."""
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
        """The predicate is true once, at the latest so many seconds from now."""
        deadline = loop.time() + within
        timer = loop.call_at(deadline, _nothing)  # there is a look then
        self._promised.append(_Promise(name, predicate, within, begun, deadline, timer, line))

    def left(self) -> float | None:
        """When the next promise is due, by the loop's clock."""
        return min((each.deadline for each in self._promised), default=None)

    def look(self, life: Any) -> None:
        """Raises what is broken."""
        for name, predicate, line in self._always:
            if not predicate():
                self.forget()
                raise _asked_for(InvariantBroken(f"{name!r} is broken at {life.when()}"), line)
        for promise in tuple(self._promised):
            if promise.predicate():
                promise.timer.cancel()
                self._promised.remove(promise)
            elif life.loop.time() >= promise.deadline:
                self.forget()
                missed = NeverHappened(
                    f"{promise.name!r} was not true within {promise.within:g} s from "
                    f"{promise.begun:.6f} s on, at {life.when()}"
                )
                raise _asked_for(missed, promise.line)

    def forget(self) -> None:
        """Nothing has to be true any more."""
        for promise in self._promised:
            promise.timer.cancel()
        self._always.clear()
        self._promised.clear()

    def __bool__(self) -> bool:
        return bool(self._always or self._promised)


def _asked_for(exc: BaseException, line: str) -> BaseException:
    if line:
        exc.add_note(f"Asked for in {line}")
    return exc


def _nothing() -> None:
    pass
