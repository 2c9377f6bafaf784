"""Loads goloop's lazy imports if the program makes all imports lazy (PEP 810, from 3.15 on).

goloop imports modules early that it may need in situations in which an import fails: without free
descriptors, in the watchdog's thread while an import blocks the loop, or while a tool has replaced
functions that an import calls.
"""

from __future__ import annotations

import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def load() -> None:
    """Import all names that goloop's loaded modules import lazily, until none is left.

    Does nothing unless the program makes all imports lazy.
    """
    if sys.version_info < (3, 15) or sys.get_lazy_imports() != "all":
        return
    lazy: Any = vars(types)["LazyImportType"]
    done: set[Any] = {None}  # sys.modules has None for a module that must not be imported
    while (
        new := {
            module for name, module in list(sys.modules.items()) if name.split(".")[0] == "goloop"
        }
        - done
    ):
        for module in new:
            for name, value in list(vars(module).items()):
                if isinstance(value, lazy):
                    getattr(module, name)  # replaces the lazy object by the imported one
        done |= new
