"""What this build is: the version, which pyproject.toml reads here, and whether it has a loop.

A wheel without compiled parts, the one for every other platform, has a module `_pure`
that says so.  The extension's mere absence does not: it is a build that was forgotten.
"""

from __future__ import annotations

__version__ = "0.3.0.dev0"
"""The version of goloop that is installed.  Since 0.3.0."""

TYPE_CHECKING = False

if TYPE_CHECKING:
    native: bool
    """Whether this is goloop's own loop.  Where it is False, goloop's names stand for asyncio's
    loop, and `goloop.diagnostics()["reason"]` says why.  Since 0.3.0."""
else:
    try:
        from .. import _pure  # noqa: F401
    except ImportError:
        native = True
    else:
        native = False
