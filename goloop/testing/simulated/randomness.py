"""Sources of a simulation's decisions: a seed, or a function that is called for each decision.

Each kind of decision has a generator, and the kernel has its own (netloop/simulated/random.go).
For every decision the number 0 is the simplest: no delay, no fault, asyncio's order.
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
    """Return true with a given probability; false if the generator gives its lowest number."""
    return generator.random() >= 1 - probability


class SeededRandomness:
    """Derives all decisions from a seed."""

    def __init__(self, seed: int) -> None:
        """Store the seed."""
        self.seed = seed

    def generator(self, kind: str) -> random.Random:
        """Return the generator for one kind of decisions."""
        return random.Random(f"{kind} {self.seed}")

    def supply(self, kernel: Kernel) -> None:
        """Do nothing: the kernel has the seed."""

    def end(self, kernel: Kernel) -> None:
        """Do nothing."""


_BASE = 128  # number of values of a digit
# Limit of drawn digits in a run; two more digits are drawn as the seed of all further decisions.
MOST = 1500
# Digits supplied to a kernel in advance, at first and at most: its calls can't draw any.
_AHEAD, _MAX_AHEAD = 32, 256


class DrawnRandomness:
    """Makes the decisions from digits that a function draws, such as Hypothesis's `draw`.

    `draw(n, count)` returns `count` numbers from 0 to n - 1.  If it raises, the simulation ends
    with the exception after the iteration: a patched `random.random` must not raise (builtins.py).
    """

    seed = 0

    def __init__(self, draw: Callable[[int, int], Sequence[int]]) -> None:
        """Store the source; `draw(n, count)` returns `count` numbers below `n`."""
        self._draw = draw
        self.failed: BaseException | None = None
        self._left = MOST
        self._after_limit: random.Random | None = None
        self._kernel_has_seed = self._ended = False
        self._bytes: random.Random | None = None
        self._ahead = _AHEAD
        self._supplied: collections.deque[int] = collections.deque()
        # The number of decisions of each kind (taken), and of those that were not the default 0
        # (chosen).
        self.taken: collections.Counter[str] = collections.Counter()
        self.chosen: collections.Counter[str] = collections.Counter()

    def below(self, n: int, kind: str) -> int:
        """Return a number from 0 to n - 1.

        A digit is drawn even for n = 1, because Hypothesis prefers runs with fewer digits, and so
        with fewer steps.
        """
        if n <= _BASE:
            [number] = self._draw_digits(n, 1)
        else:
            number, count = 0, -(-(n - 1).bit_length() // 7)
            for digit in self._draw_digits(_BASE, count):
                number = number * _BASE + digit
            number = number * n // _BASE**count
        self._count(kind, number)
        return number

    def _draw_digits(self, n: int, count: int) -> Sequence[int]:
        """Draw `count` numbers below n; after the limit derive them from a drawn seed.

        If drawing raises, store the exception in `failed`, and derive all numbers from now on from
        a fixed seed.
        """
        if self._after_limit is None:
            try:
                if self._left >= count:
                    self._left -= count
                    return self._draw(n, count)
                self._after_limit = random.Random(f"rest {self._draw(_BASE, 2)}")
            except BaseException as exc:
                # Random numbers and not zeros: a program may loop until it gets another number.
                self.failed, self._after_limit = exc, random.Random(0)
        return [self._after_limit.randrange(n) for _ in range(count)]

    def _count(self, kind: str, number: int) -> None:
        """Count a decision for the note of a failure."""
        if not self._ended:
            self.taken[kind] += 1
            self.chosen[kind] += number > 0

    def generator(self, kind: str) -> random.Random:
        """Return the generator for one kind of decisions."""
        return _Generator(self, kind)

    def bytes_of(self, bits: int) -> int:
        """Return a number with many bits, for a key or a name, from a seed that is drawn once."""
        if self._bytes is None:
            self._bytes = random.Random(f"bytes {self.below(_BASE, 'bytes')}")
        return self._bytes.getrandbits(bits)

    def supply(self, kernel: Kernel) -> None:
        """Supply digits to a kernel in advance, and count its decisions since the last call.

        Raises the exception of an earlier draw, except after end().  If a draw of this call fails,
        the next call raises.  After the limit of digits the kernel gets a seed instead, once, and
        its decisions are no longer counted.
        """
        if self.failed is not None and not self._ended:
            raise self.failed
        if self._after_limit is not None:
            self._reseed(kernel)
            return
        left, missed = kernel.decide()
        while len(self._supplied) > left:
            self._count("kernel", self._supplied.popleft())
        for _ in range(missed):
            self._count("kernel", 0)
        if missed:
            self._ahead = min(2 * self._ahead, _MAX_AHEAD)
        if left > self._ahead // 2:
            return
        digits = self._draw_digits(_BASE, self._ahead - left)
        self._supplied.extend(digits)
        kernel.decide(bytes(digits))

    def _reseed(self, kernel: Kernel) -> None:
        """Pass a seed to the kernel, once, for the decisions after the last digit."""
        if not self._kernel_has_seed:
            self._kernel_has_seed = True
            assert self._after_limit is not None
            kernel.reseed(self._after_limit.getrandbits(63))

    def end(self, kernel: Kernel) -> None:
        """Stop drawing: the clean-up of a simulation uses a fixed seed."""
        self._ended, self._after_limit = True, random.Random(0)
        self._reseed(kernel)


class _Generator(random.Random):
    """A generator of drawn numbers, until a program calls seed()."""

    def __new__(cls, *_: Any) -> _Generator:
        """Create the object without seeding it."""
        return super().__new__(cls)

    def __init__(self, source: DrawnRandomness, kind: str) -> None:
        """Draw the numbers from `source`, which counts them as decisions of a kind."""
        self._source, self._kind, self._is_seeded = source, kind, False
        self.gauss_next = None

    def random(self) -> float:
        """Return a drawn number from 0.0 to below 1.0."""
        if self._is_seeded:
            return super().random()
        return self._source.below(_BASE**2, self._kind) / (_BASE**2)

    def getrandbits(self, k: int, /) -> int:
        """Return `k` drawn bits; for more than 64 bits they derive from one drawn seed."""
        if self._is_seeded or k < 0:
            return super().getrandbits(k)
        if k > 64:
            return self._source.bytes_of(k)
        return self._source.below(1 << k, self._kind)

    def _randbelow(self, n: int) -> int:
        """Return a drawn number below `n`; random.Random's methods call this."""
        if self._is_seeded:
            own: int = self._randbelow_with_getrandbits(n)  # type: ignore[attr-defined]
            return own
        return self._source.below(n, self._kind)

    def randbytes(self, n: int) -> bytes:
        """Return `n` bytes that derive from one drawn seed."""
        if self._is_seeded:
            return super().randbytes(n)
        return self._source.bytes_of(8 * n).to_bytes(n, "little")

    def seed(self, a: Any = None, version: int = 2) -> None:
        """Use the numbers of the program's own seed from now on; without a seed do nothing."""
        if a is not None:
            super().seed(a, version)
            self._is_seeded = True
