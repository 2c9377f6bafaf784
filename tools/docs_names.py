"""griffe extension: goloop's public names lead to what they stand for on Linux.

`goloop.Loop` is chosen when goloop is imported: its own, or asyncio's.  griffe reads the source and
runs nothing, so it would take the last one that it sees.
"""

from __future__ import annotations

import importlib
from typing import Any

_griffe: Any = importlib.import_module("griffe")

CHOSEN = {
    "Loop": "goloop._internal.loop.loop.Loop",
    "new_event_loop": "goloop._internal.loop.loop.new_event_loop",
}


class Chosen(_griffe.Extension):  # type: ignore[misc]
    """Points the chosen names to goloop's own."""

    def on_package(self, *, pkg: Any, **_: Any) -> None:
        """griffe calls this when it has read a package."""
        if pkg.path == "goloop":
            for name, target in CHOSEN.items():
                pkg.set_member(name, _griffe.Alias(name, target, parent=pkg))
