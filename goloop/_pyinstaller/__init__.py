"""PyInstaller's hooks for goloop, which it finds by the package's entry point."""

from __future__ import annotations

import os


def get_hook_dirs() -> list[str]:
    """Return the folders with hooks."""
    return [os.path.dirname(os.path.abspath(__file__))]
