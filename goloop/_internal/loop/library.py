"""Loads the Go library, and registers the hooks for forks and for the exit.

The package calls prepare() when it is imported. That loads the library but runs no Go code. The
steps of a fork are described in docs/internals/fork.md.
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


def _flush_all_loops() -> None:
    """Send the queued writes of all loops' transports, before a fork and before the exit.

    asyncio's transports send within write(). Here small writes wait for the next turn, so they
    are sent before an event that may prevent that turn, or let other code use the connection
    first: a fork by any thread, and the exit of the interpreter. The other ways to end a process
    (os._exit, execv, a fatal signal) cannot be handled; docs/compatibility.md says so.
    """
    for loop in _core._open_loops():
        for transport in loop._all_transports():
            flush = getattr(transport, "_flush", None)
            if flush is not None:
                flush()


def prepare() -> None:
    """Set the library's path, and register the hooks for forks and for the exit; call it once."""
    _core.set_library_path(LIBRARY)
    os.register_at_fork(before=_flush_all_loops)
    if hasattr(_core, "_in_child"):  # on free-threaded Python only
        os.register_at_fork(after_in_child=_core._in_child)
    # At exit the last writes of loops in daemon threads are sent, then foreign threads are refused.
    atexit.register(_core._refuse_foreign_threads)
    atexit.register(_flush_all_loops)
