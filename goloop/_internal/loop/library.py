"""Loads the Go library, and registers the hooks for forks and for the exit.

The package calls prepare() when it is imported; that loads the library and runs no Go.  What
happens at a fork stands in docs/internals/fork.md.
"""

from __future__ import annotations

import atexit
import importlib.util
import os

FOLDER = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))

try:
    from ... import _core
except ImportError as error:
    if importlib.util.find_spec("goloop._core") is not None:
        raise
    raise ImportError(
        f"goloop's C extension is not built for this Python in {FOLDER}. Install goloop with this "
        "Python's pip, or run `make build` in its source tree, or start Python in another folder"
    ) from error

LIBRARY = os.path.join(FOLDER, "libgoloop.so.1")


def _flush_all() -> None:
    """Sends what must leave before something ends it: what all loops' transports have queued.

    asyncio's transports send within write().  Here small writes wait for the next turn, so what may
    keep that turn from coming, or lets others look at the connection first, sends them before it: a
    fork (of any thread), and the exit of the interpreter.  What ends a process without a word
    (os._exit, execv, a fatal signal) can't be helped; docs/compatibility.md says so.
    """
    for loop in _core._open_loops():
        for transport in loop._all_transports():
            flush = getattr(transport, "_flush", None)
            if flush is not None:
                flush()


def prepare() -> None:
    """Load the library, and have called what forks and the exit need; once."""
    _core.set_library_path(LIBRARY)
    os.register_at_fork(before=_flush_all)
    if hasattr(_core, "_in_child"):  # a free-threaded Python
        os.register_at_fork(after_in_child=_core._in_child)
    # What a loop of a daemon thread has written last leaves, and the door for threads of C is shut.
    atexit.register(_core._shut_door)
    atexit.register(_flush_all)
