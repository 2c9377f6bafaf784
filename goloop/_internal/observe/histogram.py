"""Distributions of durations and sizes: the type `goloop.Histogram`, and its packed form."""

from __future__ import annotations

import itertools
import operator
import struct

from ..records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BUCKETS = 320
"""The number of buckets of a histogram, as in gl_histogram of pybridge/abi.h."""

# The layout of gl_histogram: count, sum, maximum, and the buckets.
HISTOGRAM = struct.Struct(f"={3 + BUCKETS}Q")


def bucket_of(value: int) -> int:
    """Return the index of a value's bucket, as in abi.h: eight buckets for each power of two."""
    if value < 8:
        return max(value, 0)
    power = value.bit_length() - 1
    return min((power - 2) << 3 | value >> (power - 3) & 7, BUCKETS - 1)


def _upper(index: int) -> int:
    """Return the upper bound of a bucket (exclusive); each power of two has eight buckets."""
    if index < 8:
        return index + 1
    return (index % 8 + 9) << (index // 8 - 1)


BOUNDS = tuple(_upper(index) for index in range(BUCKETS))
# The mean of the integers in each bucket.
MIDDLES = tuple((low + high - 1) / 2 for low, high in itertools.pairwise((0, *BOUNDS)))


class Histogram(Record):
    """A distribution: the number of values by size, in eight buckets for each power of two.

    The values are seconds, except in `Metrics.events_per_turn`, where they are numbers. Histograms
    can be added. `Metrics` has them; programs do not create any. Since 0.3.0.
    """

    count: int = 0
    """The number of values."""
    sum: float = 0.0
    """The sum of all values."""
    max: float = 0.0
    """The greatest value."""
    buckets: tuple[int, ...] = ()
    """The number of values in each bucket; empty if there are no values."""
    scale: float = 1e-9
    """The value of one unit of the bucket bounds."""

    def __repr__(self) -> str:
        fields = (f"{name}={getattr(self, name)!r}" for name in ("count", "sum", "max", "scale"))
        return f"Histogram({', '.join(fields)})"

    @property
    def mean(self) -> float:
        """The mean of the values, 0.0 without values."""
        return self.sum / self.count if self.count else 0.0

    def percentile(self, percent: float) -> float:
        """Return the value that `percent` percent of the values do not exceed, 0.0 without values.

        The result is the middle of a bucket, so it is at most a sixteenth too high or too low, and
        never exceeds `max`.

        Args:
            percent: From 0 to 100; 50 is the median.

        Returns:
            The value, in the unit of the values (seconds).

        Raises:
            ValueError: `percent` is not between 0 and 100.
        """
        if not 0 <= percent <= 100:
            raise ValueError(f"percent must be >= 0 and <= 100, got {percent!r}")
        if not self.count:
            return 0.0  # a difference has the `max` of its later snapshot
        wanted = max(1, -(-self.count * percent // 100))
        seen = 0
        for index, count in enumerate(self.buckets):
            seen += count
            if count and seen >= wanted:
                return min(MIDDLES[index] * self.scale, self.max)
        return self.max

    def cumulative(self, bounds: Iterable[float]) -> Iterator[tuple[float, int]]:
        """Yield for each bound the number of values that are certainly less.

        Values in the bucket that contains the bound are not counted.

        Args:
            bounds: In the unit of the values, ascending.

        Yields:
            A bound, and the number of lower values.
        """
        index = seen = 0
        for bound in bounds:
            while index < len(self.buckets) and BOUNDS[index] * self.scale <= bound * (1 + 1e-9):
                seen += self.buckets[index]
                index += 1
            yield bound, seen

    def __add__(self, other: Histogram) -> Histogram:
        """Return the histogram of the values of both."""
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
        """Return the histogram of packed bytes; `scale` is the value of one unit."""
        if not raw:
            return cls(scale=scale)
        count, total, maximum, *buckets = HISTOGRAM.unpack(raw)
        return cls(count, total * scale, maximum * scale, tuple(buckets), scale)
