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

from enum import IntEnum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_HEAD_SIZE = 5


class Found(IntEnum):
    """What has become complete; the greatest of a piece's counts."""

    NOTHING = 0
    HEAD = 1
    WHOLE = 2


class Records:
    """Where in its records one direction of a connection is."""

    __slots__ = ("_head", "_left", "_strange")

    def __init__(self) -> None:
        self._head = b""
        self._left = 0  # of the body
        self._strange = False

    def feed(self, data: Any) -> Found:
        """Takes the next piece, and tells what has become complete by it."""
        found, at = Found.NOTHING, 0
        while at < len(data) and not self._strange:
            if self._left:
                taken = min(self._left, len(data) - at)
                self._left -= taken
                at += taken
            else:
                wanted = _HEAD_SIZE - len(self._head)
                self._head += data[at : at + wanted]
                at += wanted
                if len(self._head) < _HEAD_SIZE:
                    break
                found = max(found, Found.HEAD)
                self._begin_body()
            if not self._left:
                found = Found.WHOLE
        # What is not of TLS 1 may be another protocol's, whose lengths are elsewhere.
        return Found.WHOLE if self._strange else found

    def _begin_body(self) -> None:
        kind, major, _, high, low = self._head
        self._strange = not 20 <= kind <= 23 or major != 3
        self._left = high << 8 | low
        self._head = b""
