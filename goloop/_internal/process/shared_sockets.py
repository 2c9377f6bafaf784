"""Listening sockets that several loops of a process share, and the choice of a connection's loop.

Each serving loop has a duplicate of the listening socket, a SharedSocket, on which its reactor
accepts. So no loop depends on another: a busy loop accepts nothing meanwhile. The loop that accepts
a connection assigns it to the loop with the fewest open connections that is not known to be
blocked. A connection that its loop has not started after PATIENCE seconds is reassigned:

    loop 0  accept ─┐              ┌─► assigned ─► call_soon_threadsafe ─► loop 0 starts it
    loop 1  accept ─┼─► Address ───┼─► assigned ─► ...                     loop 1
    loop 2  accept ─┘   ▲    │     └─► ...
                        │    └─► unassigned: no loop serves; the next one that serves gets them
                        └── a loop stops or is blocked: its assigned, unstarted connections

This code runs once per connection, so it is Python; Go accepts and polls.

A goloop loop recognizes a SharedSocket by its type (streams.py), so it can be passed to the
`loop.create_server(sock=...)` of any program. Another loop accepts connections on it for itself.
"""

from __future__ import annotations

import contextvars
import os
import socket
import threading
from collections import deque
from collections.abc import Callable

from ..version import native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    Connection: TypeAlias = tuple[socket.socket, Any]
    Start: TypeAlias = Callable[[socket.socket, Any], object]


# Seconds after which a loop that has not started a connection counts as blocked, until it does.
PATIENCE = 0.05


class SharedSocket(socket.socket):
    """A duplicate of a shared listening socket, used by one loop."""

    __slots__ = ("address", "member")

    address: Address
    # The serving loop; None while no loop serves on this socket.
    member: ServingLoop | None

    def register_loop(
        self, loop: Any, server: Any, context: contextvars.Context, start: Start
    ) -> Start:
        """Register a loop that is about to accept connections on this socket.

        The loop starts a connection by calling `start` with it and its peer's address, in a copy of
        the context. Returns the function to call with the connections that the loop accepts.
        """
        self.member = member = ServingLoop(self.address, loop, server, context, start)
        return member.on_accepted

    def start_assigning(self) -> None:
        """Mark the loop as serving, so that connections can be assigned to it."""
        if self.member is not None:
            self.address.add(self.member)

    def deregister_loop(self) -> None:
        """Deregister the loop; its assigned, unstarted connections go to other loops."""
        member, self.member = self.member, None
        if member is not None:
            self.address.remove(member)


class ServingLoop:
    """A loop that serves on a shared address."""

    def __init__(
        self, address: Address, loop: Any, server: Any, context: contextvars.Context, start: Start
    ) -> None:
        """Create the state of a loop that serves at `address`; `start` serves one connection."""
        self.address = address
        self.loop = loop
        self.server = server
        self.context = context
        self.start = start
        # Connections assigned to this loop, which it has not started yet.
        self.assigned: deque[Connection] = deque()
        # True if a connection was reassigned from this loop and it has started none since then.
        self.blocked = False
        # Minimum of the server's connection count, while one of them is being started.
        self._min_connections = 0
        # Connections that this loop accepted and assigned to others, with the time of assignment.
        self._assigned_elsewhere: deque[tuple[float, ServingLoop, Connection]] = deque()

    def on_accepted(self, connection: socket.socket, peer: Any) -> None:
        """Assign a connection that this loop has accepted; called in its thread."""
        self._assign((connection, peer))

    def _assign(self, connection: Connection) -> None:
        """Assign a connection to a loop.

        If that is another loop, check after PATIENCE seconds that it has started the connection.
        """
        chosen = self.address.assign(connection, self)
        if chosen is None or chosen is self:
            return
        if not self._assigned_elsewhere:
            self.loop.call_later(PATIENCE, self._reassign_unstarted)
        self._assigned_elsewhere.append((self.loop.time(), chosen, connection))

    def _reassign_unstarted(self) -> None:
        """Take back the connections that were not started in time, and assign each again.

        These are the connections that this loop accepted and assigned to other loops, which have
        not started them within PATIENCE seconds. A timer callback of this loop; schedules itself
        again while assignments are pending.
        """
        late = self.loop.time() - PATIENCE
        reassigned: list[Connection] = []
        while self._assigned_elsewhere and self._assigned_elsewhere[0][0] <= late:
            _, member, connection = self._assigned_elsewhere.popleft()
            if self.address.withdraw(member, connection):
                reassigned.append(connection)
        if self._assigned_elsewhere:
            self.loop.call_at(self._assigned_elsewhere[0][0] + PATIENCE, self._reassign_unstarted)
        for connection in reassigned:
            self._assign(connection)

    def connection_count(self) -> int:
        """Return the number of connections that the server has or is about to have."""
        return max(self._server_connections(), self._min_connections) + len(self.assigned)

    def _server_connections(self) -> int:
        """Return the number of the server's open connections."""
        clients = getattr(self.server, "_clients", None)  # since Python 3.13
        return int(getattr(self.server, "_active_count", 0)) if clients is None else len(clients)

    def start_next(self) -> None:
        """Start the oldest assigned connection, if there is one; called in the loop's thread.

        The loop counts as not blocked from then on.
        """
        with self.address.lock:
            self.blocked = False
            if not self.assigned:  # the connection was reassigned to another loop
                return
            connection, peer = self.assigned.popleft()
            self._min_connections = self._server_connections() + 1
        try:
            self.context.copy().run(self.start, connection, peer)
        finally:
            self._min_connections = 0


class Address:
    """A listening socket and the loops that serve on it; all methods are thread-safe."""

    def __init__(self, sock: socket.socket) -> None:
        """Take a listening socket, which no loop serves yet."""
        self.sock = sock
        self._reset()

    def _reset(self) -> None:
        """Initialize the state; again in a forked child, where no loop serves yet."""
        self._process = os.getpid()
        # Reentrant, because a garbage collection may close a loop while this thread has the lock.
        self.lock = threading.RLock()
        self._members: list[ServingLoop] = []
        self._unassigned: deque[Connection] = deque()
        self._closed = False

    def duplicate_socket(self) -> SharedSocket:
        """Return a duplicate of the socket for another loop; OSError if the socket is closed.

        In a forked child the first call initializes the state.
        """
        if self._process != os.getpid():
            self._reset()  # after a fork: the loops and the lock's owner exist in the parent only
        sock = SharedSocket(
            self.sock.family, self.sock.type, self.sock.proto, os.dup(self.sock.fileno())
        )
        sock.address, sock.member = self, None
        return sock

    def add(self, member: ServingLoop) -> None:
        """Add a serving loop, and assign the connections that no loop has got yet."""
        with self.lock:
            self._members.append(member)
            unassigned = list(self._unassigned)
            self._unassigned.clear()
        for connection in unassigned:
            self.assign(connection)

    def remove(self, member: ServingLoop) -> None:
        """Remove a loop, and reassign its connections that are not started.

        Does nothing in a forked child that has not called share().
        """
        if self._process != os.getpid():
            return
        with self.lock:
            if member in self._members:
                self._members.remove(member)
            unstarted = list(member.assigned)
            member.assigned.clear()
        for connection in unstarted:
            self.assign(connection)

    def withdraw(self, member: ServingLoop, connection: Connection) -> bool:
        """Take an unstarted connection back from a loop, which counts as blocked from then on.

        Returns false, and changes nothing, if the connection was started.
        """
        with self.lock:
            if connection not in member.assigned:
                return False
            member.assigned.remove(connection)
            member.blocked = True
            return True

    def assign(
        self, connection: Connection, accepted_by: ServingLoop | None = None
    ) -> ServingLoop | None:
        """Assign a connection to the loop with the fewest connections, and return that loop.

        The loop starts the connection in its own thread. A running loop that is not blocked is
        preferred, and among equals the accepting loop, which is never regarded as blocked, because
        it has just accepted. If the chosen loop turns out to be closed, its connections are
        reassigned. If no loop serves, return None: the connection is kept for the next loop that
        serves, or closed if this address is closed.
        """
        with self.lock:
            chosen = min(
                self._members,
                key=lambda m: (
                    not m.loop.is_running(),
                    m.blocked and m is not accepted_by,
                    m.connection_count(),
                    m is not accepted_by,
                ),
                default=None,
            )
            if chosen is not None:
                chosen.assigned.append(connection)
            elif not self._closed:
                self._unassigned.append(connection)
            else:
                connection[0].close()
        if chosen is not None:
            try:
                chosen.loop.call_soon_threadsafe(chosen.start_next)
            except RuntimeError:  # the loop was closed
                self.remove(chosen)
        return chosen

    def close(self) -> None:
        """Close the socket and the unassigned connections; no further loop can serve on it."""
        with self.lock:
            self._closed = True
            unassigned = list(self._unassigned)
            self._unassigned.clear()
        for connection, _ in unassigned:
            connection.close()
        self.sock.close()


if native:  # goloop's loops know these sockets by the class
    from ..net import stream_transport

    stream_transport.shared_socket_class = SharedSocket
