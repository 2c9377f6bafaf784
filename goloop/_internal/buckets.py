"""The buckets of a histogram, as gl_histogram of pybridge/abi.h has them.

Loops count in them while they run, in processes that may import nothing any more: so this module
needs no other.
"""

BUCKETS = 320
"""How many a histogram has."""


def bucket_of(value: int) -> int:
    """As abi.h says: eight buckets share each power of two."""
    if value < 8:
        return max(value, 0)
    power = value.bit_length() - 1
    return min((power - 2) << 3 | value >> (power - 3) & 7, BUCKETS - 1)
