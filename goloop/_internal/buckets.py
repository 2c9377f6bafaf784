"""The buckets of a histogram, with the layout of gl_histogram in pybridge/abi.h.

Loops count in them while they run, in processes that may be unable to import anything. So this
module imports nothing.
"""

BUCKETS = 320
"""The number of buckets of a histogram."""


def bucket_of(value: int) -> int:
    """Return the index of a value's bucket, as in abi.h: eight buckets for each power of two."""
    if value < 8:
        return max(value, 0)
    power = value.bit_length() - 1
    return min((power - 2) << 3 | value >> (power - 3) & 7, BUCKETS - 1)
