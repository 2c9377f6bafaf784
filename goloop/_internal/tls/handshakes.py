"""TLS handshakes are scheduled, so that many of them do not delay other work.

A handshake computes for a few hundred microseconds. If two hundred clients connect together and
all their handshakes ran in one iteration, every timer and every other connection would wait for
all of them. So the handshakes of an iteration have a share of its time: MIN_TIME seconds, and while
one is queued SHARE times the time that the previous iteration spent on other work, if that is
more. While none is queued, no callback is scheduled, so a few clients cost nothing. A loop with
long iterations thus gives handshakes more time, and they end after as few iterations as in other
loops. At least one step runs per iteration.

Handshakes for which no time is left are queued for the next iterations, in three queues:

    ANSWERED   the peer has had a response: its next message may complete the handshake
    FRESH      the peer has had no response: most of the computing is still to be done
    SLOW       the last step produced no output: the message is spread over many records

Queues are served in this order, and SLOW gets at least one step per iteration. Within a queue the
order is first in, first out. An incomplete record is not queued (see below).

    a queued step:   queue[0] ── step ── its flag is cleared ── removed from the queue

An interrupt (KeyboardInterrupt) may come between any two of these actions. An entry that is still
in the queue is served again, and a second step finds nothing to do. After an interrupted run,
begin() schedules the queues again when the loop runs next.

`Records` tracks the boundaries of TLS records in the received bytes, without decoding them.

OpenSSL can act on the head of a record (and reject it), and on a complete record. On a part of a
body it would only copy bytes and ask for more. So a peer that sends single bytes does not cost
the loop a step for each of them.

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

# The share relative to the time of other work, and the minimum in seconds.
SHARE = 2.0
MIN_TIME = 0.0005

ANSWERED, FRESH, SLOW = range(3)


class Handshakes:
    """Schedules the steps of a loop's handshakes; used by the loop's thread only."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Create the queues of one loop; `clock` returns seconds."""
        self._clock = clock
        self._queues: tuple[deque[Any], ...] = (deque(), deque(), deque())
        # For this iteration, which began at _began: the seconds used, and the seconds allowed.
        self._iteration = -1
        self._began = clock()
        self._used = 0.0
        self._budget = MIN_TIME
        # The handle of _begin_iteration(), while handshakes are queued or it runs.
        self._handle: Any = None

    def step_if_allowed(self, tls: Any) -> None:
        """Run the next step of a connection's handshake if the share of time allows it.

        Otherwise the step is queued for a later iteration. Does nothing if a step of this
        handshake is queued already.
        """
        if tls._handshake_queued:
            return
        if tls._loop._iterations != self._iteration:
            self._start_accounting(tls._loop)
        if self._handle is not None or self._used > self._budget:
            tls._handshake_queued = True
            self._queues[tls._handshake_queue].append(tls)
            if self._handle is None:
                self._schedule(tls._loop)
        else:
            self.run_step(tls)

    def run_step(self, tls: Any) -> None:
        """Run one step of the handshake of `tls`, and add its duration to the used time."""
        began = self._clock()
        try:
            tls._step_handshake()
        finally:
            self._used += self._clock() - began

    def begin(self, loop: Any) -> None:
        """Schedule queued handshakes again when the loop starts to run; does nothing if none is."""
        if any(self._queues):
            if self._handle is not None:
                self._handle.cancel()  # an interrupt may have made the loop drop the handle
            self._schedule(loop)

    def _start_accounting(self, loop: Any) -> None:
        """Start the accounting of an iteration in which no handshake is queued."""
        # Nothing was queued, so the length of the previous iteration was not measured.
        self._iteration = loop._iterations
        self._began, self._used, self._budget = self._clock(), 0.0, MIN_TIME

    def _schedule(self, loop: Any) -> None:
        """Schedule _begin_iteration() for the loop's next iteration."""
        self._handle = loop.call_soon(self._begin_iteration, loop)

    def _begin_iteration(self, loop: Any) -> None:
        """Compute the iteration's share of time and run queued steps until it is used.

        If SLOW had an entry and got no step, its first entry gets one. While steps are queued,
        schedule this method for the next iteration.
        """
        answered, fresh, slow = self._queues
        try:
            self._iteration = loop._iterations
            now = self._clock()
            other_work = now - self._began - self._used
            self._began, self._used, self._budget = now, 0.0, max(SHARE * other_work, MIN_TIME)
            first = slow[0] if slow else None
            while self._used <= self._budget and (queue := answered or fresh or slow):
                self._serve(queue)
            if first is not None and slow and slow[0] is first:
                self._serve(slow)
        finally:
            # A protocol's callback may have raised an exception.
            self._handle = None
            if answered or fresh or slow:
                self._schedule(loop)

    def _serve(self, queue: deque[Any]) -> None:
        """Run a step of the first handshake of a queue, and remove the entry.

        If SystemExit or KeyboardInterrupt is raised, the entry stays in the queue.
        """
        tls = queue[0]
        over = True
        try:
            if tls._handshake_queued:
                tls._resume_handshake(self.run_step)
        except (SystemExit, KeyboardInterrupt):
            over = False
            raise
        finally:
            if over and queue and queue[0] is tls:
                tls._handshake_queued = False
                queue.popleft()


# ---- records -------------------------------------------------------------------------------------

_HEAD_SIZE = 5

# The results of feed(): the received bytes completed no part, a head, or a whole record.
NOTHING, HEAD, WHOLE = range(3)


class Records:
    """The position of one direction of a connection within its TLS records."""

    _head = b""  # the bytes of an incomplete head
    _missing_body = 0  # number of missing bytes of the body
    _unknown_protocol = False

    def feed(self, data: Any) -> int:
        """Process the next bytes; return the greatest part that they completed.

        That is NOTHING, HEAD (of a record whose body is incomplete) or WHOLE. From the first bytes
        on that are not a TLS 1.x record, the result is always WHOLE.
        """
        if self._unknown_protocol:
            return WHOLE
        if self._head:
            data = self._head + data
        size, end = len(data), self._missing_body
        found = WHOLE if 0 < end <= size else NOTHING
        while (at := end) + _HEAD_SIZE <= size:
            if data[at + 1] != 3 or not 20 <= data[at] <= 23:
                # Not a TLS 1.x record, so the position of its length is unknown: always step.
                self._unknown_protocol = True
                return WHOLE
            end = at + _HEAD_SIZE + (data[at + 3] << 8 | data[at + 4])
            if end <= size:
                found = WHOLE
            elif not found:
                found = HEAD
        self._missing_body = end - size if end > size else 0
        self._head = bytes(data[end:])
        return found
