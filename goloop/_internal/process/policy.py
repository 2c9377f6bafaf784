"""EventLoopPolicy, for programs that choose their loop by asyncio's policy.

asyncio deprecates policies from Python 3.14 on, and goloop does the same. If asyncio has none
(planned for 3.16), this module does not define EventLoopPolicy.
"""

from __future__ import annotations

import asyncio
import sys
import warnings

from ..backend import Loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

if TYPE_CHECKING:
    _DefaultPolicy = asyncio.DefaultEventLoopPolicy
elif sys.version_info >= (3, 14):
    if sys.platform == "win32":
        from asyncio import windows_events as _events
    else:
        from asyncio import unix_events as _events

    _DefaultPolicy = getattr(_events, "_DefaultEventLoopPolicy", None)
else:
    from asyncio import DefaultEventLoopPolicy as _DefaultPolicy

# True if asyncio has policies.
AVAILABLE = _DefaultPolicy is not None

if TYPE_CHECKING or AVAILABLE:

    class EventLoopPolicy(_DefaultPolicy):
        """asyncio's default policy with goloop's loops.

        Child watchers are asyncio's. Deprecated from Python 3.14 on like all policies, and absent
        if asyncio has no policies: use `goloop.run()`, or `loop_factory=goloop.new_event_loop`.
        Since 0.3.0.
        """

        _loop_factory = Loop


def set_policy() -> None:
    """Set goloop's policy for the process, without asyncio's deprecation warning.

    Raises RuntimeError if this Python's asyncio has no policies.
    """
    if not AVAILABLE:
        raise RuntimeError(
            "asyncio of this Python version has no event loop policies: "
            "use goloop.run(), or loop_factory=goloop.new_event_loop"
        )
    setter: Any = getattr(asyncio.events, "_set_event_loop_policy", None)
    if setter is None:
        setter = asyncio.set_event_loop_policy
    setter(EventLoopPolicy())


def warn_deprecated(name: str) -> None:
    """Issue a DeprecationWarning with CPython's text, for the caller of the caller."""
    warnings.warn(
        f"{name!r} is deprecated and slated for removal in Python 3.16",
        DeprecationWarning,
        stacklevel=3,
    )
