"""Who makes the decisions of a simulation: a seed, or somebody who is asked for each.

Each kind of decision has a generator, and the kernel has its own (netloop/simulated/random.go).  Of
all that is asked for, zero is the least: no delay, no fault, asyncio's order.
"""

from __future__ import annotations

import collections
import random
from collections.abc import Callable, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .kernel import Kernel


def happens(generator: random.Random, probability: float) -> bool:
    """Whether a thing of that probability happens; with the least number it does not."""
    return generator.random() >= 1 - probability


class Seeded:
    """A seed makes all decisions."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def generator(self, kind: str) -> random.Random:
        """That of a kind of decisions."""
        return random.Random(f"{kind} {self.seed}")

    def supply(self, kernel: Kernel) -> None:
        """Nothing: a kernel has the seed."""

    def end(self, kernel: Kernel) -> None:
        """Nothing."""


_BASE = 128  # of a digit
# So many digits are asked for; from then on the last ones, which are asked for too, are a seed.
MOST = 1500
# How many digits a kernel has ahead at first, and at most: nobody can be asked in its calls.
_AHEAD, _AHEAD_MOST = 32, 256


class Drawn:
    """Digits that are asked for make the decisions.

    `draw(n, count)` gives numbers from 0 to n - 1.  Where it raises, the simulation ends with that
    behind the iteration: nothing may be raised in the place of `random.random` (builtins.py).
    """

    seed = 0

    def __init__(self, draw: Callable[[int, int], Sequence[int]]) -> None:
        self._draw = draw
        self.failed: BaseException | None = None
        self._left = MOST
        self._rest: random.Random | None = None
        self._kernel_has_seed = self._ended = False
        self._bytes: random.Random | None = None
        self._ahead = _AHEAD
        self._given: collections.deque[int] = collections.deque()
        # By kind, how many numbers it took, and how many of them were not the least.
        self.taken: collections.Counter[str] = collections.Counter()
        self.chosen: collections.Counter[str] = collections.Counter()

    def below(self, n: int, kind: str) -> int:
        """A number from 0 to n - 1.  Of one, too, it is asked: a run with fewer steps is less."""
        if n <= _BASE:
            [number] = self._ask(n, 1)
        else:
            number, count = 0, -(-(n - 1).bit_length() // 7)
            for digit in self._ask(_BASE, count):
                number = number * _BASE + digit
            number = number * n // _BASE**count
        self._count(kind, number)
        return number

    def _ask(self, n: int, count: int) -> Sequence[int]:
        if self._rest is None:
            try:
                if self._left >= count:
                    self._left -= count
                    return self._draw(n, count)
                self._rest = random.Random(f"rest {self._draw(_BASE, 2)}")
            except BaseException as exc:
                # Not zeros: a program may wait for another number.
                self.failed, self._rest = exc, random.Random(0)
        return [self._rest.randrange(n) for _ in range(count)]

    def _count(self, kind: str, number: int) -> None:
        if not self._ended:
            self.taken[kind] += 1
            self.chosen[kind] += number > 0

    def generator(self, kind: str) -> random.Random:
        """That of a kind of decisions."""
        return _Generator(self, kind)

    def bytes_of(self, bits: int) -> int:
        """A long number, for a key or a name: of a seed that is asked for once."""
        if self._bytes is None:
            self._bytes = random.Random(f"bytes {self.below(_BASE, 'bytes')}")
        return self._bytes.getrandbits(bits)

    def supply(self, kernel: Kernel) -> None:
        """Sees to it that a kernel has digits ahead; raises why there are none."""
        if self.failed is not None and not self._ended:
            raise self.failed
        if self._rest is not None:
            self._reseed(kernel)
            return
        left, missed = kernel.decide()
        while len(self._given) > left:
            self._count("kernel", self._given.popleft())
        for _ in range(missed):
            self._count("kernel", 0)
        if missed:
            self._ahead = min(2 * self._ahead, _AHEAD_MOST)
        if left > self._ahead // 2:
            return
        digits = self._ask(_BASE, self._ahead - left)
        self._given.extend(digits)
        kernel.decide(bytes(digits))

    def _reseed(self, kernel: Kernel) -> None:
        if not self._kernel_has_seed:
            self._kernel_has_seed = True
            assert self._rest is not None
            kernel.reseed(self._rest.getrandbits(63))

    def end(self, kernel: Kernel) -> None:
        """Nothing is asked for any more: how a simulation is cleaned up is no decision."""
        self._ended, self._rest = True, random.Random(0)
        self._reseed(kernel)


class _Generator(random.Random):
    """Asks for what it gives, until a program gives it a seed."""

    def __new__(cls, *_: Any) -> _Generator:
        return super().__new__(cls)

    def __init__(self, of: Drawn, kind: str) -> None:
        self._of, self._kind, self._own = of, kind, False
        self.gauss_next = None

    def random(self) -> float:
        if self._own:
            return super().random()
        return self._of.below(_BASE**2, self._kind) / (_BASE**2)

    def getrandbits(self, k: int, /) -> int:
        if self._own or k < 0:
            return super().getrandbits(k)
        return self._of.bytes_of(k) if k > 64 else self._of.below(1 << k, self._kind)

    def _randbelow(self, n: int) -> int:
        if self._own:
            own: int = self._randbelow_with_getrandbits(n)  # type: ignore[attr-defined]
            return own
        return self._of.below(n, self._kind)

    def randbytes(self, n: int) -> bytes:
        if self._own:
            return super().randbytes(n)
        return self._of.bytes_of(8 * n).to_bytes(n, "little")

    def seed(self, a: Any = None, version: int = 2) -> None:
        """A program wants the same numbers each time."""
        if a is not None:
            super().seed(a, version)
            self._own = True
