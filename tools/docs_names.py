"""griffe extension: resolves goloop's public names to their definitions on Linux.

`goloop.Loop` is goloop's own class or asyncio's, decided at the import.  griffe reads the source
without running it, so it would use the last definition in the file.
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
    """Replaces these names by aliases of goloop's own definitions."""

    def on_package(self, *, pkg: Any, **_: Any) -> None:
        """Adds the aliases; griffe calls it for each package that it has read."""
        if pkg.path == "goloop":
            for name, target in CHOSEN.items():
                pkg.set_member(name, _griffe.Alias(name, target, parent=pkg))
