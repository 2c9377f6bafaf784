"""Private modules of goloop, which may change with any release.

The public names are in goloop itself, and in goloop.guest, goloop.otel, goloop.prometheus,
goloop.watchdog, goloop.workers, goloop.web_worker and goloop.uvicorn_worker.
"""

from __future__ import annotations

import importlib
import os
import sys


def _wait_for_import() -> None:
    """Wait, before a fork, until an import of goloop in another thread has ended.

    CPython locks a module while it is imported, and the lock of another thread is never released
    in the child.
    """
    if getattr(_spec, "_initializing", False):
        importlib.import_module("goloop")  # waits for the lock; the importing thread has it already


_spec = sys.modules["goloop"].__spec__
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_wait_for_import)
