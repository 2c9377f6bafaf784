"""Nothing of goloop's stays lazy where a program makes all imports lazy (PEP 810, from 3.15 on).

goloop imports early what it may need late: when there are no files left, when the watchdog's
thread looks at a loop that an import blocks, within what a simulation has replaced.
"""

from __future__ import annotations

import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def load() -> None:
    """Import what the modules of goloop that are loaded have imported lazily, and so on."""
    if sys.version_info < (3, 15) or sys.get_lazy_imports() != "all":
        return
    lazy: Any = vars(types)["LazyImportType"]
    done: set[Any] = {None}  # which stands for a module that may not be imported
    while (
        new := {
            module for name, module in list(sys.modules.items()) if name.split(".")[0] == "goloop"
        }
        - done
    ):
        for module in new:
            for name, value in list(vars(module).items()):
                if isinstance(value, lazy):
                    getattr(module, name)  # which is then what the name stands for
        done |= new
