"""The version of the package, as in pyproject.toml (a test compares them)."""

from __future__ import annotations

__version__ = "0.1.0"
