"""Follows the records of TLS in what a peer sends, without looking into them.

OpenSSL can do something where the head of a record has come (it may refuse it), and where a whole
record has. Between the two it would copy bytes and ask for more. So whoever sends a byte at a time
costs a loop no handshake's step for each of them.

     type   version   length      body
    +-----+---------+-----------+--------...--------+
    |  1  |    2    |     2     |  `length` bytes   |
    +-----+---------+-----------+--------...--------+
                                ^                   ^
                               HEAD               WHOLE
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_HEAD_SIZE = 5

# What has become complete; the greatest of a piece's counts.
NOTHING, HEAD, WHOLE = range(3)


class Records:
    """Where in its records one direction of a connection is."""

    _head = b""  # less than a whole one
    _left = 0  # of the body
    _strange = False

    def feed(self, data: Any) -> int:
        """Takes the next piece, and tells what has become complete by it."""
        if self._strange:
            return WHOLE
        if self._head:
            data = self._head + data
        size, end = len(data), self._left
        found = WHOLE if 0 < end <= size else NOTHING
        while (at := end) + _HEAD_SIZE <= size:
            if data[at + 1] != 3 or not 20 <= data[at] <= 23:
                # What is not of TLS 1 may be another protocol's, whose lengths are elsewhere.
                self._strange = True
                return WHOLE
            end = at + _HEAD_SIZE + (data[at + 3] << 8 | data[at + 4])
            if end <= size:
                found = WHOLE
            elif not found:
                found = HEAD
        self._left = end - size if end > size else 0
        self._head = bytes(data[end:])
        return found
