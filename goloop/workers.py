"""A gunicorn worker for ASGI applications, on goloop:

    gunicorn --worker-class goloop.workers.GoloopWorker package.module:app

It is gunicorn's own ASGI worker with another loop, so all of gunicorn's settings for that worker
apply. The loop is created after the fork; with `--preload` the master may import, and even run,
goloop before. Importing this module needs gunicorn 25 or later.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

from ._internal.backend import Loop, new_event_loop

__all__ = ("GoloopWorker",)

_ASGIWorker: Any = importlib.import_module("gunicorn.workers.gasgi").ASGIWorker


class GoloopWorker(_ASGIWorker):  # type: ignore[misc]
    """gunicorn's ASGI worker with a goloop loop. Since 0.3.0."""

    loop: Loop
    """The worker's loop, created after the fork."""

    def _setup_event_loop(self) -> None:
        """Create the loop; gunicorn's method chooses between asyncio and uvloop."""
        self.loop = new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.log.debug("Using goloop event loop")
