"""EventLoopPolicy, for programs that choose their loop by policy.

asyncio deprecates policies from Python 3.14 on, and so are these from there on.  Where
it has none any more (3.16 is to be the first) there is no EventLoopPolicy here.
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

# Whether asyncio has policies.
AVAILABLE = _DefaultPolicy is not None

if TYPE_CHECKING or AVAILABLE:

    class EventLoopPolicy(_DefaultPolicy):
        """asyncio's default policy, whose new loops are goloop's.

        Child watchers are asyncio's.  Deprecated from Python 3.14 on, as policies are, and absent
        where asyncio has none any more: use `goloop.run()`, or
        `loop_factory=goloop.new_event_loop`.  Since 0.3.0.
        """

        _loop_factory = Loop


def set_policy() -> None:
    """Makes the policy the process's, without the deprecation warning."""
    if not AVAILABLE:
        raise RuntimeError(
            "asyncio of this Python has no event loop policies: "
            "use goloop.run(), or loop_factory=goloop.new_event_loop"
        )
    setter: Any = getattr(asyncio.events, "_set_event_loop_policy", None)
    if setter is None:
        setter = asyncio.set_event_loop_policy
    setter(EventLoopPolicy())


def warn_deprecated(name: str) -> None:
    """DeprecationWarning in CPython's words, at the caller's caller."""
    warnings.warn(
        f"{name!r} is deprecated and slated for removal in Python 3.16",
        DeprecationWarning,
        stacklevel=3,
    )
