"""Handshakes of TLS take turns, so that many at once hold up nobody else.

A handshake computes for a few hundred microseconds. Where two hundred clients come at once, doing
all that there is to do in one iteration makes every timer and every other connection wait for all
of them. So the handshakes of an iteration get BUDGET; those that come later in it wait, in
the order in which they came, for the next iterations. A crowd gets one in each iteration.
That holds the others up least, but an iteration has a cost of its own: with ten clients at a
time it would make a handshake a tenth dearer.

Accepting is bounded likewise, for what a connection needs before its handshake costs as much.
"""

from __future__ import annotations

import time
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Seconds of an iteration; one handshake is always done.
BUDGET = 0.0005
# So many that wait are a crowd.
CROWD = 16
# Connections that a TLS listener accepts in one iteration.
ACCEPTS = 2


class Handshakes:
    """What shares out a loop's iterations; used by the loop's thread."""

    def __init__(self) -> None:
        self._waiting: deque[Any] = deque()
        self._spent = 0.0
        # Whether the next iteration begins with _begin_iteration().
        self._scheduled = False

    def step(self, tls: Any) -> None:
        """Does what a connection's handshake can do now, in this iteration or a later one."""
        if self._waiting or self._spent > BUDGET:
            tls._handshake_waits = True
            self._waiting.append(tls)
        else:
            self._do(tls)
        if not self._scheduled:
            self._schedule(tls._loop)

    def _do(self, tls: Any) -> None:
        began = time.perf_counter()
        try:
            tls._do_handshake()
        finally:
            self._spent += time.perf_counter() - began

    def _schedule(self, loop: Any) -> None:
        self._scheduled = True
        loop.call_soon(self._begin_iteration, loop)

    def _begin_iteration(self, loop: Any) -> None:
        self._scheduled = False
        self._spent = 0.0
        try:
            budget = BUDGET if len(self._waiting) < CROWD else 0.0
            while self._waiting and self._spent <= budget:
                tls = self._waiting.popleft()
                if tls._handshake_waits:
                    tls._resume_handshake(self._do)
        finally:
            # A protocol's callback may have raised.
            if self._waiting and not self._scheduled:
                self._schedule(loop)
