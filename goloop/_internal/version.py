"""The version of the package, and the one place for it: pyproject.toml reads this file."""

from __future__ import annotations

__version__ = "0.2.0"
"""The version of goloop that is installed.  Since 0.1.0."""
