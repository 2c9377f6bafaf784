"""goloop: a drop-in asyncio event loop whose reactor is written in Go.

    import goloop

    goloop.run(main())

or, in a program that uses asyncio.Runner or asyncio.run (3.12 on), pass
`loop_factory=goloop.new_event_loop`.

Importing this package loads no Go: the Go library is opened with the first loop, so
that servers may fork before.

Where goloop's own loop can't be had, `native` is False, and the names here stand for
asyncio's loop of the platform: see fallback.py.
"""

from __future__ import annotations

import os as _os
import sys

from . import policy as _policy
from .chosen import Future, Loop, Task, native, new_event_loop
from .diagnostics import diagnostics
from .runner import run
from .version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .metering import Metrics

if sys.version_info < (3, 14) or TYPE_CHECKING:
    from .policy import EventLoopPolicy, install
else:
    # asyncio deprecates policies, and from 3.14 on says so whenever one is named.
    from .policy import install

    def __getattr__(name: str) -> object:
        if name == "EventLoopPolicy" and _policy.AVAILABLE:
            _policy.warn_deprecated("goloop.EventLoopPolicy")
            return _policy.EventLoopPolicy
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def metrics() -> Metrics:
    """What all loops of this process have done, in figures; from any thread.

    Loops that were closed stay in it.  Raises RuntimeError where goloop's own loop can't be had.
    """
    if not native:
        raise RuntimeError(
            "asyncio's loop has no metrics; goloop.diagnostics() tells why it is used"
        )
    from .metering import metrics as ask

    return ask()


def introspect() -> None:
    """Let `python -m goloop ps PID` and `pstree PID` look at this process's tasks.

    Python 3.14 can always be looked at; before, this opens a Unix socket that answers the
    process's own user and root, here and in children that are forked later.
    GOLOOP_INTROSPECT=1 in the environment does the same.  Raises OSError where no socket can be
    had.
    """
    from .introspection import introspect as answer

    answer()


if not native:
    from . import fallback as _fallback

    _fallback.warn()

if _os.environ.get("GOLOOP_INTROSPECT") == "1":
    from .introspection import introspect_if_asked as _introspect_if_asked

    _introspect_if_asked()

__all__: tuple[str, ...] = (
    "EventLoopPolicy",
    "Future",
    "Loop",
    "Task",
    "__version__",
    "diagnostics",
    "install",
    "introspect",
    "metrics",
    "native",
    "new_event_loop",
    "run",
)

if not _policy.AVAILABLE:
    __all__ = tuple(name for name in __all__ if name != "EventLoopPolicy")
