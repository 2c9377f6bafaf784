"""Which of the tasks that are ready goes next: the policies of a simulation.

asyncio runs tasks in the order in which they became ready, and the policy "io" leaves that as it
is.  The others choose.  Only steps of tasks are chosen among: a protocol's callbacks, and all else
that goes to call_soon(), keep the order that asyncio promises for them.
"""

from __future__ import annotations

import asyncio
import functools
import math
import random
import re
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..simulated import callback_times
from ..simulated.loop import Simulated, stepped

TYPE_CHECKING = False
if TYPE_CHECKING:
    import contextvars
    from typing import TypeVarTuple

    from ..simulated.randomness import Drawn, Seeded

    _Ts = TypeVarTuple("_Ts")

# Of a task that goes on without a pause, the steps until it counts as one that waits for another.
_SPINS = 100
# Change points are among so many first steps: the nearer to the begin the more probable.
_STEPS = 4096

Task = Any


class Scheduler(Protocol):
    """Chooses steps of tasks for one run."""

    def choose(self, ready: Sequence[Task]) -> int:
        """The index of the task that goes next; they are in asyncio's order."""


class InOrder:
    """As asyncio."""

    def choose(self, ready: Sequence[Task]) -> int:
        return 0


class Shuffle:
    """Any order."""

    def __init__(self, generator: random.Random) -> None:
        self._random = generator

    def choose(self, ready: Sequence[Task]) -> int:
        return self._random.randrange(len(ready))


class Priorities:
    """Probabilistic concurrency testing (Burckhardt et al., 2010).

    Each task has a random priority, and the highest one goes; at `changes` random steps, or fewer,
    the one that would go gets the lowest.  So does a task that takes `_SPINS` steps in a row while
    others are ready: it waits for one of them.
    """

    def __init__(self, generator: random.Random, changes: int) -> None:
        self._random = generator
        most = math.log2(_STEPS)
        # The least number is a step that never comes, and the highest priority: asyncio's order.
        self._changes = {int(2 ** self._random.uniform(0, most)) - 1 for _ in range(changes)}
        self._priority: weakref.WeakKeyDictionary[Task, float] = weakref.WeakKeyDictionary()
        self._lowest = 0
        self._steps = self._spins = 0
        self._last: weakref.ref[Task] | None = None

    def choose(self, ready: Sequence[Task]) -> int:
        self._steps += 1
        for task in ready:
            if task not in self._priority:
                self._priority[task] = 1 - self._random.random()
        chosen = self._highest(ready)
        if self._steps in self._changes or (self._spins >= _SPINS and len(ready) > 1):
            self._lowest -= 1
            self._priority[ready[chosen]] = self._lowest
            chosen = self._highest(ready)
        again = self._last is not None and self._last() is ready[chosen]
        self._spins = self._spins + 1 if again else 0
        self._last = weakref.ref(ready[chosen])
        return chosen

    def _highest(self, ready: Sequence[Task]) -> int:
        return max(range(len(ready)), key=lambda index: self._priority[ready[index]])


class Delays:
    """asyncio's order, but for the steps of a set, each of which is put off.

    A step is numbered where another one is ready, too, and an iteration where a timer may come due
    in it: so the numbers are those of the decisions (delay-bounded scheduling, Emmi et al., 2011).
    A task that is put off goes behind those that are ready.
    """

    def __init__(self, index: int, bound: int) -> None:
        self._index, self._bound = index, bound
        self._delayed = delays(index, bound)
        self._decisions = 0
        self._came: weakref.WeakKeyDictionary[Task, int] = weakref.WeakKeyDictionary()
        self._count = 0

    def choose(self, ready: Sequence[Task]) -> int:
        for task in ready:
            if task not in self._came:
                self._comes(task)
        order = sorted(range(len(ready)), key=lambda index: self._came[ready[index]])
        chosen, *others = order
        while others and self._decides():
            self._comes(ready[chosen])
            chosen, *others = others
        del self._came[ready[chosen]]
        return chosen

    def pause(self) -> int:
        """No time passes but by a decision."""
        return 0

    def lasts(self, ns: int) -> bool:
        """Whether an iteration goes on until the next timer is due: a decision, too."""
        return self._decides()

    def _decides(self) -> bool:
        self._decisions += 1
        return self._decisions - 1 in self._delayed

    def _comes(self, task: Task) -> None:
        self._count += 1
        self._came[task] = self._count

    @property
    def row(self) -> tuple[int, bool]:
        """The greatest number of the set, and whether the run has come to that decision."""
        if not self._bound:  # each set is empty
            return self._index - 1, not self._index
        greatest = max(self._delayed, default=-1)
        return greatest, greatest < self._decisions


class Explored:
    """Whether there is a set that gives another run.

    In the row of sets those with the same greatest number come together.  Where no run has come to
    that decision, none with a greater number does.
    """

    def __init__(self) -> None:
        self._greatest, self._reached = -1, True

    def all(self, row: tuple[int, bool] | None) -> bool:
        """After a run with this row: the runs so far were all that there are."""
        if row is None:
            return False
        greatest, reached = row
        if greatest != self._greatest:
            if not self._reached:
                return True
            self._greatest, self._reached = greatest, False
        self._reached = self._reached or reached
        return False


def delays(index: int, bound: int) -> frozenset[int]:
    """The set of that index among those of at most `bound` numbers, by their greatest number.

    0: the empty one; all sets of numbers below n come before one that has n.
    """
    chosen = []
    while index and bound:
        most = 0
        while _sets(most + 1, bound) <= index:
            most += 1
        chosen.append(most)
        index -= _sets(most, bound)
        bound -= 1
    return frozenset(chosen)


def _sets(numbers: int, bound: int) -> int:
    """How many sets of at most `bound` numbers there are below a number."""
    return sum(math.comb(numbers, size) for size in range(bound + 1))


_FORM = re.compile(r"(io|shuffle)|(pct|dfs):([0-9]{1,3})")


def check(policy: str) -> None:
    """ValueError where there is no such policy."""
    if not isinstance(policy, str) or not _FORM.fullmatch(policy):
        raise ValueError(f"a policy is 'io', 'shuffle', 'pct:D' or 'dfs:D', not {policy!r}")


def scheduler(policy: str, seed: int, chance: Seeded | Drawn) -> Scheduler | None:
    """Who chooses in the run of a seed; None: the loop itself."""
    check(policy)
    if policy == "io":
        return None
    if policy == "shuffle":
        return Shuffle(chance.generator("order"))
    kind, _, number = policy.partition(":")
    if kind == "pct":
        return Priorities(chance.generator("order"), int(number))
    return Delays(seed, int(number))


def moments(
    scheduler: Scheduler | None, seed: int, chance: Seeded | Drawn, drawn: bool
) -> callback_times.Moments | None:
    """What decides when time passes in callbacks; None: it never does."""
    if isinstance(scheduler, Delays):
        return scheduler
    generator = chance.generator("moments")
    takes_time = generator.randrange(2) if drawn else seed % 2
    return callback_times.Drawn(generator) if takes_time else None


def outer_seed(policy: str, seed: int) -> int:
    """The seed of all that is not order: "dfs" goes through orders of one and the same run."""
    return 0 if policy.startswith("dfs") else seed


class Names:
    """Names of tasks that are the same in each run: asyncio's have numbers of the process."""

    def __init__(self) -> None:
        self._names: weakref.WeakKeyDictionary[Task, str] = weakref.WeakKeyDictionary()
        self._count = 0

    def of(self, task: Task, host_of: Callable[[Task], str | None]) -> str:
        """By the order of first steps, with what the program has called it, and its host."""
        name = self._names.get(task)
        if name is None:
            self._count += 1
            given = task.get_name()
            what = getattr(task.get_coro(), "__qualname__", "?")
            name = f"{self._count} {what}"
            if not re.fullmatch(r"Task-[0-9]+", given):
                name += f" {given!r}"
            if (host := host_of(task)) is not None:
                name += f" on {host}"
            self._names[task] = name
        return name


# ---- the loop that asks them -----------------------------------------------------------------


class Scheduled(Simulated):
    """A loop whose tasks' steps a scheduler chooses.

    It has a call_soon() of its own, so C hands it each step of a task instead of queueing the task
    (pybridge/core/state/native.c), and asyncio's tasks always do.  A step waits here, and a
    callback in the loop's own queue has the place that it would have had; what is chosen then runs
    there.
    """

    def __init__(
        self, simulation: Any, scheduler: Scheduler, note: Callable[[Task], object] | None
    ) -> None:
        self._scheduler, self._note = scheduler, note
        self._tasks: list[Task] = []
        self._steps: list[asyncio.Handle] = []
        super().__init__(simulation)

    def call_soon(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Run callback(*args) in the next iteration; a task's step when the scheduler says."""
        task = stepped(callback)
        if task is None:
            return super().call_soon(callback, *args, context=context)
        super().call_soon(self._step)
        step = asyncio.Handle(callback, args, self, context)
        self._tasks.append(task)
        self._steps.append(step)
        return step

    def _step(self) -> None:
        chosen = self._scheduler.choose(self._tasks)
        task, step = self._tasks.pop(chosen), self._steps.pop(chosen)
        try:
            if self._note is not None:
                self._note(task)
            if not step.cancelled():
                step._run()
        finally:
            del task, step  # the task's exception may have this frame
        self._simulation.look_between()


@functools.cache
def scheduled(loop: type) -> type:
    """The class of loops that ask a scheduler, instead of another one."""
    return type("ScheduledLoop", (Scheduled, loop), {"__module__": "goloop.testing"})
