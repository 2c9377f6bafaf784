"""The system under a loop: its sockets, clock and signals.

A loop runs on the system of the thread that makes it: on the operating system, unless other code
has put a system of its own under the thread, as goloop.testing does. Each descriptor belongs to one
system, which its number shows. The other code of goloop asks the system of the loop or of the
descriptor, and does not know which one it is.

C and Go have the same seam below them, as tables of calls: `G.calls` and gl_thread_clock in C
(pybridge/core/fds/calls.c), Calls in Go (netloop/calls.go).
"""

from __future__ import annotations

import socket

from .. import _core


class System:
    """The operating system; a subclass describes another one."""

    # Signals of the process wake the loops of the main thread.
    has_signals = True
    # Time passes while a thread polls or blocks, and the monitor has the same clock.
    has_real_clock = True
    # Unix sockets can pass descriptors.
    passes_fds = True
    # The class of a socket object over a descriptor of the system.
    socket_class: type[socket.socket] = socket.socket


OPERATING_SYSTEM = System()

# The descriptors of `other` begin here: the operating system never returns such a number.
FIRST_OTHER_FD = 1 << 24
# The only system that can be beside the operating system, and the threads that it is under.
other = OPERATING_SYSTEM
threads_on_other: set[int] = set()


def of_thread() -> System:
    """Return the system under the current thread."""
    return other if _core._thread_ident() in threads_on_other else OPERATING_SYSTEM


def of_fd(number: int) -> System:
    """Return the system to which a descriptor belongs; the operating system for -1."""
    return OPERATING_SYSTEM if number < FIRST_OTHER_FD else other
