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

from __future__ import annotations

import os as _os
import sys

from ._internal.backend import Future, Loop, Task, new_event_loop
from ._internal.process import policy as _policy
from ._internal.process.runner import install, run
from ._internal.version import __version__, native

# pytest rewrites the asserts of each package that has a plugin. It warns if the package was
# imported before, as by `python -m goloop -m pytest`, unless its docstring contains this word.
# With -OO there is no other docstring.
__doc__ = f"{__doc__ or ''}\nPYTEST_DONT_REWRITE\n"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._internal.metrics.diagnostics import diagnostics
    from ._internal.metrics.flight_recorder import SlowIteration, SlowStack
    from ._internal.metrics.histogram import Histogram
    from ._internal.metrics.metrics import Metrics
    from ._internal.metrics.profiling import Profile, ProfileEntry, ProfileStack
    from ._internal.process.shared_listener import SharedListener
    from ._internal.process.threads import run_threads
    from .watchdog import Blocked

if sys.version_info < (3, 14) or TYPE_CHECKING:
    # From 3.14 on asyncio deprecates policies, and warns when one is accessed.
    from ._internal.process.policy import EventLoopPolicy

# The end of an error of a function that needs goloop's own loop.
_NEEDS_OWN_LOOP = (
    "needs goloop's own loop, and this Python runs asyncio's; "
    "goloop.diagnostics()['reason'] has the cause"
)
# Functions and classes that few programs use, imported on first access.
_LAZY_FUNCTIONS = {
    "SharedListener": "goloop._internal.process.shared_listener",
    "diagnostics": "goloop._internal.metrics.diagnostics",
    "run_threads": "goloop._internal.process.threads",
}
# Types of objects that goloop returns, imported on first access.
_LAZY_TYPES = {
    "Blocked": "goloop.watchdog",
    "Histogram": "goloop._internal.metrics.histogram",
    "Metrics": "goloop._internal.metrics.metrics",
    "Profile": "goloop._internal.metrics.profiling",
    "ProfileEntry": "goloop._internal.metrics.profiling",
    "ProfileStack": "goloop._internal.metrics.profiling",
    "SlowIteration": "goloop._internal.metrics.flight_recorder",
    "SlowStack": "goloop._internal.metrics.flight_recorder",
}


def __getattr__(name: str) -> object:
    """Import a public name of goloop on first use; AttributeError for an unknown name."""
    if name == "EventLoopPolicy" and _policy.AVAILABLE:
        _policy.warn_deprecated("goloop.EventLoopPolicy")
        return _policy.EventLoopPolicy
    module = _LAZY_FUNCTIONS.get(name) or _LAZY_TYPES.get(name)
    # For other names `native` is not read, because it may be undefined during the import.
    if module is not None and (native or name in _LAZY_FUNCTIONS):
        import importlib

        found = globals()[name] = getattr(importlib.import_module(module), name)
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
    from ._internal.metrics.metrics import metrics as ask

    return ask()


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
    from ._internal.metrics.profiling import profile as ask

    return ask()


def dump() -> None:
    """Write the profile and the slow iterations of this process to stderr.

    Meant for signal handlers: `signal.signal(signal.SIGUSR2, lambda *args: goloop.dump())`. A
    process that is ended by `GOLOOP_WATCHDOG_ABORT` also writes most of this information. Since
    0.3.0.
    """
    from ._internal.metrics.flight_recorder import dump as write

    write()


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

if native:
    from ._internal import module_preload as _module_preload

    _module_preload.preload()

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

if sys.version_info >= (3, 15):
    from ._internal import lazy_imports as _lazy_imports

    _lazy_imports.load()

if not _policy.AVAILABLE:
    __all__ = tuple(name for name in __all__ if name != "EventLoopPolicy")
if not native:
    __all__ = tuple(name for name in __all__ if name not in _LAZY_TYPES)
