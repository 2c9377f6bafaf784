"""The version, which pyproject.toml reads from this file, and whether this build has a loop.

The pure-Python wheel for all other platforms is marked by a module `_pure`. If just the extension
is missing, the build was forgotten.
"""

from __future__ import annotations

__version__ = "0.3.0.dev0"
"""The installed version of goloop. Since 0.3.0."""

TYPE_CHECKING = False

if TYPE_CHECKING:
    native: bool
    """True if goloop has its own loop. If false, goloop's names refer to asyncio's loop, and
    `goloop.diagnostics()["reason"]` has the reason. Since 0.3.0."""
else:
    try:
        from .. import _pure  # noqa: F401
    except ImportError:
        native = True
    else:
        native = False
