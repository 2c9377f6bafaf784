"""Listening sockets that several loops of a process share, and which loop gets a connection.

Each loop that serves has a duplicate of the listening socket, a SharedSocket, and its reactor
accepts by it.  So no loop needs another one: one that is busy accepts nothing meanwhile, and
the first gives the connection to the loop that has the fewest open ones, unless that one is
known to be blocked.  What a loop has not begun after PATIENCE is taken back by its giver:

    loop 0  accept ─┐              ┌─► assigned ─► call_soon_threadsafe ─► loop 0 starts it
    loop 1  accept ─┼─► Address ───┼─► assigned ─► ...                     loop 1
    loop 2  accept ─┘   ▲    │     └─► ...
                        │    └─► left over: no loop serves just now; the next one gets them
                        └── a loop leaves, or is blocked: what it was assigned and has not started

This runs once per connection, so it is Python; Go accepts, and waits.

A loop knows a SharedSocket by its type (streams.py), so the `loop.create_server(sock=...)` of any
program will do.  Another loop than goloop's accepts for itself by it.
"""

from __future__ import annotations

import contextvars
import os
import socket
import threading
from collections import deque
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    Connection: TypeAlias = tuple[socket.socket, Any]
    Start: TypeAlias = Callable[[socket.socket, Any], object]


# Seconds.  A loop that has not begun a connection by then is blocked, until it begins one.
PATIENCE = 0.05


class SharedSocket(socket.socket):
    """A duplicate of a shared listening socket, for one loop."""

    __slots__ = ("address", "member")

    address: Address
    # While a loop serves by it.
    member: Member | None

    def join(self, loop: Any, server: Any, context: contextvars.Context, start: Start) -> Start:
        """The loop is about to accept by this socket.

        It begins connections by calling `start` with each and its peer's name, in a copy of the
        context.  Returns what is to be called so with those that it accepts.
        """
        self.member = member = Member(self.address, loop, server, context, start)
        return member.accepted

    def joined(self) -> None:
        """The loop accepts, and can be given connections."""
        if self.member is not None:
            self.address.add(self.member)

    def leave(self) -> None:
        """The loop accepts no more; others get what it has not started."""
        member, self.member = self.member, None
        if member is not None:
            self.address.remove(member)


class Member:
    """A loop that serves at a shared address."""

    def __init__(
        self, address: Address, loop: Any, server: Any, context: contextvars.Context, start: Start
    ) -> None:
        self.address = address
        self.loop = loop
        self.server = server
        self.context = context
        self.start = start
        # Accepted and meant for this loop, which has not started them yet.
        self.assigned: deque[Connection] = deque()
        # Something has been taken back from this loop, which has come to nothing since.
        self.blocked = False
        # How many the server has at least, while one of them is being started.
        self._at_least = 0
        # Accepted by this loop and given to others, at what time; none of it may have been begun.
        self._given: deque[tuple[float, Member, Connection]] = deque()

    def accepted(self, connection: socket.socket, peer: Any) -> None:
        """The loop has accepted a connection; in its thread."""
        self._give((connection, peer))

    def _give(self, connection: Connection) -> None:
        chosen = self.address.assign(connection, self)
        if chosen is None or chosen is self:
            return
        if not self._given:
            self.loop.call_later(PATIENCE, self._take_back)
        self._given.append((self.loop.time(), chosen, connection))

    def _take_back(self) -> None:
        """Gives to others what a loop has not begun; in the thread of the loop that accepted it."""
        late = self.loop.time() - PATIENCE
        again: list[Connection] = []
        while self._given and self._given[0][0] <= late:
            _, member, connection = self._given.popleft()
            if self.address.take_back(member, connection):
                again.append(connection)
        if self._given:
            self.loop.call_at(self._given[0][0] + PATIENCE, self._take_back)
        for connection in again:
            self._give(connection)

    def open(self) -> int:
        """How many connections the loop's server has or is about to have."""
        return max(self._served(), self._at_least) + len(self.assigned)

    def _served(self) -> int:
        clients = getattr(self.server, "_clients", None)  # since Python 3.13
        return int(getattr(self.server, "_active_count", 0)) if clients is None else len(clients)

    def start_next(self) -> None:
        """Starts one of the assigned connections; in the loop's thread."""
        with self.address.lock:
            self.blocked = False
            if not self.assigned:  # it has gone to another loop
                return
            connection, peer = self.assigned.popleft()
            self._at_least = self._served() + 1
        try:
            self.context.copy().run(self.start, connection, peer)
        finally:
            self._at_least = 0


class Address:
    """One listening socket and those who serve by it; any thread may call its methods."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        # A collection of garbage may close a loop while this thread has the lock.
        self.lock = threading.RLock()
        self._members: list[Member] = []
        self._left_over: deque[Connection] = deque()
        self._closed = False

    def share(self) -> SharedSocket:
        """A duplicate for one more loop."""
        if self._process != os.getpid():
            self._begin()  # the loops are the parent's, and the lock's holder is not here
        sock = SharedSocket(
            self.sock.family, self.sock.type, self.sock.proto, os.dup(self.sock.fileno())
        )
        sock.address, sock.member = self, None
        return sock

    def add(self, member: Member) -> None:
        with self.lock:
            self._members.append(member)
            left_over = list(self._left_over)
            self._left_over.clear()
        for connection in left_over:
            self.assign(connection)

    def remove(self, member: Member) -> None:
        if self._process != os.getpid():
            return
        with self.lock:
            if member in self._members:
                self._members.remove(member)
            left = list(member.assigned)
            member.assigned.clear()
        for connection in left:
            self.assign(connection)

    def take_back(self, member: Member, connection: Connection) -> bool:
        """Whether a loop has not begun what it was assigned, which it now has no longer."""
        with self.lock:
            if connection not in member.assigned:
                return False
            member.assigned.remove(connection)
            member.blocked = True
            return True

    def assign(self, connection: Connection, accepted_by: Member | None = None) -> Member | None:
        """Gives a connection to the loop with the fewest; of equals, to the one that accepted it.

        That one is not blocked, for it has just accepted.
        """
        with self.lock:
            chosen = min(
                self._members,
                key=lambda m: (
                    not m.loop.is_running(),
                    m.blocked and m is not accepted_by,
                    m.open(),
                    m is not accepted_by,
                ),
                default=None,
            )
            if chosen is not None:
                chosen.assigned.append(connection)
            elif not self._closed:
                self._left_over.append(connection)
            else:
                connection[0].close()
        if chosen is not None:
            try:
                chosen.loop.call_soon_threadsafe(chosen.start_next)
            except RuntimeError:  # it has been closed
                self.remove(chosen)
        return chosen

    def close(self) -> None:
        """No further loop may join."""
        with self.lock:
            self._closed = True
            left_over = list(self._left_over)
            self._left_over.clear()
        for connection, _ in left_over:
            connection.close()
        self.sock.close()
