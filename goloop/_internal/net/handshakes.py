"""Handshakes of TLS take turns, so that many at once hold up nobody else.

A handshake computes for a few hundred microseconds. Where two hundred clients come at once, doing
all that there is to do in one iteration makes every timer and every other connection wait for all
of them. So the handshakes of an iteration get a share of time: LEAST, and while one waits twice
what the iteration before took outside of them (SHARE), where that is more. While none waits nothing
is scheduled, so a few clients cost a loop no callback. A loop whose iterations are long thus gives
them more, and they wait for no more iterations than elsewhere. One is always done.

Those for which no time is left wait for the next iterations, in three lines:

    ANSWERED   the connection has had an answer: what it sends may end its handshake
    FRESH      it has not: most of the computing is still to be done
    SLOW       its last step has brought nothing to send: a message that comes in many records

A line gets what the one before it leaves, the last one at least a step of each iteration. Within
a line they are served as they came. What is less than a whole record waits in no line (below).

    a step's turn:   line[0] ── step ── its flag is cleared ── out of the line

An interrupt (KeyboardInterrupt) may come between any two of these: what has not left the line is
looked at again, and a second step finds nothing to do. begin() goes on where a run was left so.

`Records` follows the records of TLS in what a peer sends, without looking into them.

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

import time
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Of the time that an iteration takes otherwise, and in seconds.
SHARE = 2.0
LEAST = 0.0005

ANSWERED, FRESH, SLOW = range(3)


class Handshakes:
    """What shares out a loop's iterations; used by the loop's thread."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._lines: tuple[deque[Any], ...] = (deque(), deque(), deque())
        # Of this iteration, since _began: what they have taken, and what they may.
        self._iteration = -1
        self._began = clock()
        self._spent = 0.0
        self._budget = LEAST
        # Of the next iteration's _begin_iteration(), where somebody waits, or the running one's.
        self._handle: Any = None

    def step(self, tls: Any) -> None:
        """Does what a connection's handshake can do now, in this iteration or a later one."""
        if tls._handshake_waits:
            return
        if tls._loop._iterations != self._iteration:
            self._first_of_an_iteration(tls._loop)
        if self._handle is not None or self._spent > self._budget:
            tls._handshake_waits = True
            self._lines[tls._handshake_line].append(tls)
            if self._handle is None:
                self._schedule(tls._loop)
        else:
            self.do(tls)

    def do(self, tls: Any) -> None:
        """Does a step now; its time counts."""
        began = self._clock()
        try:
            tls._step_handshake()
        finally:
            self._spent += self._clock() - began

    def begin(self, loop: Any) -> None:
        """The loop is about to run."""
        if any(self._lines):
            if self._handle is not None:
                self._handle.cancel()  # if an interrupt has not made the loop forget it
            self._schedule(loop)

    def _first_of_an_iteration(self, loop: Any) -> None:
        # None has waited, so the length of the iteration before was not taken.
        self._iteration = loop._iterations
        self._began, self._spent, self._budget = self._clock(), 0.0, LEAST

    def _schedule(self, loop: Any) -> None:
        self._handle = loop.call_soon(self._begin_iteration, loop)

    def _begin_iteration(self, loop: Any) -> None:
        answered, fresh, slow = self._lines
        try:
            self._iteration = loop._iterations
            now = self._clock()
            others = now - self._began - self._spent
            self._began, self._spent, self._budget = now, 0.0, max(SHARE * others, LEAST)
            first = slow[0] if slow else None
            while self._spent <= self._budget and (line := answered or fresh or slow):
                self._serve(line)
            if first is not None and slow and slow[0] is first:
                self._serve(slow)
        finally:
            # A protocol's callback may have raised.
            self._handle = None
            if answered or fresh or slow:
                self._schedule(loop)

    def _serve(self, line: deque[Any]) -> None:
        tls = line[0]
        over = True
        try:
            if tls._handshake_waits:
                tls._resume_handshake(self.do)
        except (SystemExit, KeyboardInterrupt):
            over = False
            raise
        finally:
            if over and line and line[0] is tls:
                tls._handshake_waits = False
                line.popleft()


# ---- records -------------------------------------------------------------------------------------

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
