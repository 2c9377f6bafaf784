"""Policies of a simulation: the order in which ready tasks run.

asyncio runs tasks in the order in which they became ready, and the policy "io" does not change it.
The other policies choose the next task.  They order only steps of tasks: a protocol's callbacks and
other callbacks of call_soon() keep the order that asyncio guarantees.
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
from ..simulated.loop import SimulatedLoopMixin, task_of_step

TYPE_CHECKING = False
if TYPE_CHECKING:
    import contextvars
    from typing import TypeVarTuple

    from ..simulated.randomness import DrawnRandomness, SeededRandomness

    _Ts = TypeVarTuple("_Ts")

# Consecutive steps after which a task is assumed to wait, in a loop, for another task.
_SPINS = 100
# Change points of priorities are among the first _STEPS steps; earlier steps are more probable.
_STEPS = 4096

Task = Any


class Scheduler(Protocol):
    """Chooses the order of tasks' steps in one run."""

    def choose(self, ready: Sequence[Task]) -> int:
        """Return the index of the task to run next; `ready` is in asyncio's order."""


class InOrder:
    """asyncio's order."""

    def choose(self, ready: Sequence[Task]) -> int:
        """Return the index of the first task."""
        return 0


class Shuffle:
    """A random order."""

    def __init__(self, generator: random.Random) -> None:
        """Take the order from a generator."""
        self._random = generator

    def choose(self, ready: Sequence[Task]) -> int:
        """Return a random index."""
        return self._random.randrange(len(ready))


class Priorities:
    """Probabilistic concurrency testing (Burckhardt et al., 2010).

    Each task has a random priority, and the ready task with the highest priority runs.  At up to
    `changes` random steps the task that would run gets the lowest priority.  So does a task that
    runs `_SPINS` steps in a row while other tasks are ready: it may wait for one of them.
    """

    def __init__(self, generator: random.Random, changes: int) -> None:
        """Choose the numbers of the steps at which a priority changes: `changes` of them."""
        self._random = generator
        most = math.log2(_STEPS)
        # The lowest random numbers mean no change point and the highest priority: asyncio's order.
        self._changes = {int(2 ** self._random.uniform(0, most)) - 1 for _ in range(changes)}
        self._priority: weakref.WeakKeyDictionary[Task, float] = weakref.WeakKeyDictionary()
        self._lowest = 0
        self._steps = self._spins = 0
        self._last: weakref.ref[Task] | None = None

    def choose(self, ready: Sequence[Task]) -> int:
        """Return the index of the task with the highest priority.

        At randomly chosen steps, and when one task runs too often in a row, that task first gets
        the lowest priority.
        """
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
        """Return the index of the task with the highest priority."""
        return max(range(len(ready)), key=lambda index: self._priority[ready[index]])


class Delays:
    """Delay-bounded scheduling (Emmi et al., 2011): asyncio's order with a set of delayed steps.

    The decisions of a run are numbered: each step at which another task is ready, too, and each
    iteration in which a timer may come due.  The set has the numbers of the decisions that differ
    from asyncio's.  A delayed task is queued after all ready tasks.
    """

    def __init__(self, index: int, bound: int) -> None:
        """Choose the set of delayed steps with this index, of at most `bound` steps."""
        self._index, self._bound = index, bound
        self._delayed = delays(index, bound)
        self._decisions = 0
        self._queued_at: weakref.WeakKeyDictionary[Task, int] = weakref.WeakKeyDictionary()
        self._count = 0

    def choose(self, ready: Sequence[Task]) -> int:
        """Return the index of the task that was queued first, after delaying some tasks.

        The chosen task leaves the queue.
        """
        for task in ready:
            if task not in self._queued_at:
                self._queue(task)
        order = sorted(range(len(ready)), key=lambda index: self._queued_at[ready[index]])
        chosen, *others = order
        while others and self._take_decision():
            self._queue(ready[chosen])
            chosen, *others = others
        del self._queued_at[ready[chosen]]
        return chosen

    def pause_after_timer(self) -> int:
        """Return 0: virtual time passes only by numbered decisions."""
        return 0

    def reaches_next_timer(self, ns: int) -> bool:
        """Return true if an iteration lasts until the next timer; counts as a decision."""
        return self._take_decision()

    def _take_decision(self) -> bool:
        """Count a decision; return true if it differs from asyncio's: its number is in the set."""
        self._decisions += 1
        return self._decisions - 1 in self._delayed

    def _queue(self, task: Task) -> None:
        """Queue a task after all other tasks."""
        self._count += 1
        self._queued_at[task] = self._count

    @property
    def position(self) -> tuple[int, bool]:
        """Return the largest number of the set, and whether the run has reached that decision.

        The number is -1 for the empty set, which each run reaches. With the bound 0 a second run
        reports a decision that no run reaches, so that the exploration ends.
        """
        if not self._bound:  # each set is empty
            return self._index - 1, not self._index
        greatest = max(self._delayed, default=-1)
        return greatest, greatest < self._decisions


class Exploration:
    """The progress of the policy "dfs": whether more sets of delayed steps give new runs.

    Sets with the same largest number follow each other.  If no run of such a group has reached that
    decision, sets with a larger number can't give a new run.
    """

    def __init__(self) -> None:
        """Begin without runs."""
        self._greatest, self._reached = -1, True

    def add_run(self, position: tuple[int, bool] | None) -> bool:
        """Record the position of a run; return true if there are no more different runs.

        None, of another policy than "dfs", changes nothing and gives false.
        """
        if position is None:
            return False
        greatest, reached = position
        if greatest != self._greatest:
            if not self._reached:
                return True
            self._greatest, self._reached = greatest, False
        self._reached = self._reached or reached
        return False


def delays(index: int, bound: int) -> frozenset[int]:
    """Return the set with an index in the list of all sets of at most `bound` numbers.

    The sets are sorted by their largest number; index 0 is the empty set.
    """
    chosen = []
    while index and bound:
        most = 0
        while _count_sets(most + 1, bound) <= index:
            most += 1
        chosen.append(most)
        index -= _count_sets(most, bound)
        bound -= 1
    return frozenset(chosen)


def _count_sets(numbers: int, bound: int) -> int:
    """Return the count of sets of at most `bound` numbers that are all below `numbers`."""
    return sum(math.comb(numbers, size) for size in range(bound + 1))


_FORM = re.compile(r"(io|shuffle)|(pct|dfs):([0-9]{1,3})")


def check(policy: str) -> None:
    """Raise ValueError if a policy does not exist."""
    if not isinstance(policy, str) or not _FORM.fullmatch(policy):
        raise ValueError(f"policy must be 'io', 'shuffle', 'pct:D' or 'dfs:D', got {policy!r}")


def scheduler(
    policy: str, seed: int, randomness: SeededRandomness | DrawnRandomness
) -> Scheduler | None:
    """Return the scheduler for the run of a seed; None for the policy "io"."""
    check(policy)
    if policy == "io":
        return None
    if policy == "shuffle":
        return Shuffle(randomness.generator("order"))
    kind, _, number = policy.partition(":")
    if kind == "pct":
        return Priorities(randomness.generator("order"), int(number))
    return Delays(seed, int(number))


def callback_times_for(
    scheduler: Scheduler | None,
    seed: int,
    randomness: SeededRandomness | DrawnRandomness,
    drawn: bool,
) -> callback_times.CallbackTimes | None:
    """Return the source of callbacks' times for a run; None: callbacks take no time.

    For "dfs" it is the scheduler.  For other policies callbacks take random times in the runs of
    odd seeds; with `drawn` the first number of the generator decides this.
    """
    if isinstance(scheduler, Delays):
        return scheduler
    generator = randomness.generator("moments")
    takes_time = generator.randrange(2) if drawn else seed % 2
    return callback_times.RandomCallbackTimes(generator) if takes_time else None


def outer_seed(policy: str, seed: int) -> int:
    """Return the seed of all other decisions; "dfs" varies only the order, so it is 0 there."""
    return 0 if policy.startswith("dfs") else seed


class Names:
    """Names of tasks that are equal in each run; asyncio numbers tasks by process."""

    def __init__(self) -> None:
        """Begin without names."""
        self._names: weakref.WeakKeyDictionary[Task, str] = weakref.WeakKeyDictionary()
        self._count = 0

    def of(self, task: Task, host_of: Callable[[Task], str | None]) -> str:
        """Return the task's name: its number by first step, coroutine, own name, and host."""
        name = self._names.get(task)
        if name is None:
            self._count += 1
            given = task.get_name()
            coroutine_name = getattr(task.get_coro(), "__qualname__", "?")
            name = f"{self._count} {coroutine_name}"
            if not re.fullmatch(r"Task-[0-9]+", given):
                name += f" {given!r}"
            if (host := host_of(task)) is not None:
                name += f" on {host}"
            self._names[task] = name
        return name


# ---- the loop of a scheduler -----------------------------------------------------------------


class ScheduledLoopMixin(SimulatedLoopMixin):
    """A loop in which a scheduler chooses the order of tasks' steps.

    Because the class overrides call_soon(), goloop's tasks pass each step to it (the native rule),
    as asyncio's tasks always do.  The steps wait in a list here.  For each step the loop's queue
    gets a callback, which runs the step that the scheduler chooses at that time.
    """

    def __init__(
        self, simulation: Any, scheduler: Scheduler, note: Callable[[Task], object] | None
    ) -> None:
        """Create the loop; `note(task)` is called before each step of a task, if it is not None."""
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
        """Schedule callback(*args); a step of a task runs when the scheduler chooses it."""
        task = task_of_step(callback)
        if task is None:
            return super().call_soon(callback, *args, context=context)
        super().call_soon(self._step)
        step = asyncio.Handle(callback, args, self, context)
        self._tasks.append(task)
        self._steps.append(step)
        return step

    def _step(self) -> None:
        """Run the ready step that the scheduler chooses, if not cancelled; check the invariants.

        Scheduled once for each ready step.
        """
        chosen = self._scheduler.choose(self._tasks)
        task, step = self._tasks.pop(chosen), self._steps.pop(chosen)
        try:
            if self._note is not None:
                self._note(task)
            if not step.cancelled():
                step._run()
        finally:
            del task, step  # a traceback of the task may refer to this frame
        self._simulation.check_after_step()


@functools.cache
def with_scheduler(loop: type) -> type:
    """Return a subclass of a loop class, with a scheduler of tasks' steps."""
    return type("ScheduledLoop", (ScheduledLoopMixin, loop), {"__module__": "goloop.testing"})
