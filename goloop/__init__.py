"""goloop: a drop-in asyncio event loop with a reactor written in Go.

    import goloop

    goloop.run(main())

or, in a program that uses asyncio.Runner or asyncio.run (3.12 on), pass
`loop_factory=goloop.new_event_loop`.

Importing this package runs no Go code: the first loop starts the Go library. So servers may import
goloop and then fork.

If goloop's own loop is not available, `native` is False, and the names refer to the platform's
asyncio loop: see goloop/_internal/process/fallback.py.
"""

# ruff: noqa: E402
from __future__ import annotations

import importlib as _importlib
import os as _os
import sys

from ._internal.version import __version__, native

TYPE_CHECKING = False
if native or TYPE_CHECKING:
    from ._internal.loop import library as _library

    # Before the other imports, which then find the modules that this process has already.
    _library.restore_modules()

from ._internal.backend import Future, Loop, Task, new_event_loop
from ._internal.observe import flight_recorder as _flight_recorder
from ._internal.observe.diagnostics import diagnostics
from ._internal.process import policy as _policy
from ._internal.process.runner import install, run

# pytest rewrites the asserts of each package that has a plugin. It warns if the package was
# imported before, as by `python -m goloop -m pytest`, unless its docstring contains this word.
# With -OO there is no other docstring.
__doc__ = f"{__doc__ or ''}\nPYTEST_DONT_REWRITE\n"

if TYPE_CHECKING:
    from ._internal.process.shared_listener import SharedListener
    from ._internal.process.threads import run_threads

if native or TYPE_CHECKING:
    from ._internal.observe import metrics as _metrics
    from ._internal.observe import profiling as _profiling
    from ._internal.observe.flight_recorder import SlowIteration, SlowStack
    from ._internal.observe.histogram import Histogram
    from ._internal.observe.metrics import Metrics
    from ._internal.observe.profiling import Profile, ProfileEntry, ProfileStack
    from .watchdog import Blocked

if sys.version_info < (3, 14) or TYPE_CHECKING:
    # From 3.14 on asyncio deprecates policies, and warns when one is accessed.
    from ._internal.process.policy import EventLoopPolicy

# The end of an error of a function that needs goloop's own loop.
_NEEDS_OWN_LOOP = (
    "needs goloop's own loop, and this Python runs asyncio's; "
    "goloop.diagnostics()['reason'] has the cause"
)
# Names for programs with several loops, imported on first access. A loop needs none of them.
_LAZY = {
    "SharedListener": "goloop._internal.process.shared_listener",
    "run_threads": "goloop._internal.process.threads",
}


def __getattr__(name: str) -> object:
    """Import a name of _LAZY on first use; AttributeError for an unknown name."""
    if name == "EventLoopPolicy" and _policy.AVAILABLE:
        _policy.warn_deprecated("goloop.EventLoopPolicy")
        return _policy.EventLoopPolicy
    module = _LAZY.get(name)
    if module is not None:
        found = globals()[name] = getattr(_importlib.import_module(module), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def metrics() -> Metrics:
    """Return a snapshot of the metrics of all loops in this process.

    May be called from any thread, and does not stop any loop. Closed loops are included, so its
    counters never decrease; a forked child starts at 0. Since 0.3.0.

    Returns:
        The snapshot; times are in seconds, sizes in bytes. The difference of two snapshots is the
            change between them.

    Raises:
        RuntimeError: goloop's own loop is not available (`goloop.native` is False).
    """
    if not native:
        raise RuntimeError(f"goloop.metrics() {_NEEDS_OWN_LOOP}")
    return _metrics.metrics()


def profile() -> Profile:
    """Return the sampling profile of this process's loops, by task, function and line.

    goloop samples each loop that is not idle about 25 times a second (`GOLOOP_PROFILE`), without
    the GIL, and adds up the samples. May be called from any thread. A forked child starts without
    samples. Since 0.3.0.

    Returns:
        A snapshot. The difference of two snapshots is the profile of the time between them.

    Raises:
        RuntimeError: goloop's own loop is not available (`goloop.native` is False).
    """
    if not native:
        raise RuntimeError(f"goloop.profile() {_NEEDS_OWN_LOOP}")
    return _profiling.profile()


def dump() -> None:
    """Write the profile and the slow iterations of this process to stderr.

    Meant for signal handlers: `signal.signal(signal.SIGUSR2, lambda *args: goloop.dump())`. A
    process that is ended by `GOLOOP_WATCHDOG_ABORT` also writes most of this information. Since
    0.3.0.
    """
    _flight_recorder.dump()


def introspect() -> None:
    """Let `goloop top PID`, `ps PID` and `pstree PID` examine this process.

    A thread answers requests on a Unix socket, to which only the same user and root have access.
    Forked children have such a thread, too. `GOLOOP_INTROSPECT=1` in the environment has the same
    effect.
    From Python 3.14 on `ps` and `pstree` do not need it. Further calls do nothing, unless the
    program has closed the socket meanwhile, as daemons close all descriptors: then a new one is
    created. Since 0.3.0.

    Raises:
        OSError: The socket cannot be created.
    """
    from .operations.introspection import introspect as answer

    answer()


if not native:
    from ._internal.process import fallback as _fallback

    _fallback.warn()

if _os.environ.get("GOLOOP_INTROSPECT") == "1":
    from .operations.introspection import introspect_or_warn as _introspect_or_warn

    _introspect_or_warn()

__all__: tuple[str, ...] = (
    "Blocked",
    "EventLoopPolicy",
    "Future",
    "Histogram",
    "Loop",
    "Metrics",
    "Profile",
    "ProfileEntry",
    "ProfileStack",
    "SharedListener",
    "SlowIteration",
    "SlowStack",
    "Task",
    "__version__",
    "diagnostics",
    "dump",
    "install",
    "introspect",
    "metrics",
    "native",
    "new_event_loop",
    "profile",
    "run",
    "run_threads",
)

# Types of objects that goloop's own loop returns.
_NATIVE_TYPES = (
    *("Blocked", "Histogram", "Metrics", "Profile", "ProfileEntry", "ProfileStack"),
    *("SlowIteration", "SlowStack"),
)

if sys.version_info >= (3, 15):
    from ._internal import lazy_imports as _lazy_imports

    _lazy_imports.load()

if not _policy.AVAILABLE:
    __all__ = tuple(name for name in __all__ if name != "EventLoopPolicy")
if not native:
    __all__ = tuple(name for name in __all__ if name not in _NATIVE_TYPES)
else:
    _library.record_package(sys.modules[__name__])
