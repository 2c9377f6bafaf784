"""Distributions of durations and sizes: the type `goloop.Histogram`, and its packed form."""

from __future__ import annotations

import dataclasses
import itertools
import operator
import struct

from ..buckets import BUCKETS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# As gl_histogram of pybridge/abi.h: count, sum, most, and the buckets.
HISTOGRAM = struct.Struct(f"={3 + BUCKETS}Q")


def _upper(index: int) -> int:
    """The first value beyond a bucket: eight buckets for each power of two."""
    if index < 8:
        return index + 1
    return (index % 8 + 9) << (index // 8 - 1)


BOUNDS = tuple(_upper(index) for index in range(BUCKETS))
# Of the whole numbers in each bucket.
MIDDLES = tuple((low + high - 1) / 2 for low, high in itertools.pairwise((0, *BOUNDS)))


@dataclasses.dataclass(frozen=True, slots=True)
class Histogram:
    """A distribution: how many values of each size, in eight buckets for each power of two.

    The values are seconds, but for `Metrics.events_per_turn`, which has numbers.  Histograms can be
    added.  They come with `Metrics`; a program makes none itself.  Since 0.3.0.
    """

    count: int = 0
    """The number of values."""
    sum: float = 0.0
    """The sum of all values."""
    max: float = 0.0
    """The greatest value."""
    buckets: tuple[int, ...] = dataclasses.field(default=(), repr=False)
    """The number of values in each bucket; empty if there are no values."""
    scale: float = 1e-9
    """What a value of 1 in `bounds` stands for."""

    @property
    def mean(self) -> float:
        """The values' mean, 0.0 without values."""
        return self.sum / self.count if self.count else 0.0

    def percentile(self, percent: float) -> float:
        """The value that `percent` percent of the values do not exceed, 0.0 without values.

        It is the middle of a bucket, and so at most a sixteenth too high or too low; and never
        higher than `max`.

        Args:
            percent: From 0 to 100; 50 is the median.

        Returns:
            The value, in seconds as the values are.

        Raises:
            ValueError: The percentage is none.
        """
        if not 0 <= percent <= 100:
            raise ValueError(f"a percentage lies between 0 and 100, not at {percent!r}")
        if not self.count:
            return 0.0  # a difference keeps the maximum of all times
        wanted = max(1, -(-self.count * percent // 100))
        seen = 0
        for index, count in enumerate(self.buckets):
            seen += count
            if count and seen >= wanted:
                return min(MIDDLES[index] * self.scale, self.max)
        return self.max

    def cumulative(self, bounds: Iterable[float]) -> Iterator[tuple[float, int]]:
        """For each bound how many values are known to be less.

        What lies in the same bucket as the bound counts as more.

        Args:
            bounds: In the unit of the values, ascending.

        Yields:
            A bound, and how many values are less.
        """
        index = seen = 0
        for bound in bounds:
            while index < len(self.buckets) and BOUNDS[index] * self.scale <= bound * (1 + 1e-9):
                seen += self.buckets[index]
                index += 1
            yield bound, seen

    def __add__(self, other: Histogram) -> Histogram:
        """The values of both."""
        if not isinstance(other, Histogram):
            return NotImplemented
        if not self.count or not other.count:
            return self if self.count else other
        return Histogram(
            self.count + other.count,
            self.sum + other.sum,
            max(self.max, other.max),
            tuple(map(operator.add, self.buckets, other.buckets)),
            self.scale,
        )

    @classmethod
    def _from_raw(cls, raw: bytes, scale: float) -> Histogram:
        if not raw:
            return cls(scale=scale)
        count, total, most, *buckets = HISTOGRAM.unpack(raw)
        return cls(count, total * scale, most * scale, tuple(buckets), scale)
