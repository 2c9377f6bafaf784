"""What PyInstaller must know of goloop; it finds this by the package's entry point."""

from __future__ import annotations

import os


def get_hook_dirs() -> list[str]:
    """The folders with hooks."""
    return [os.path.dirname(os.path.abspath(__file__))]
