"""A gunicorn worker for ASGI applications, on goloop:

    gunicorn --worker-class goloop.workers.GoloopWorker package.module:app

It is gunicorn's own ASGI worker with another loop, so all of gunicorn's settings for that worker
apply. The loop is created after the fork. With `--preload` the master may import goloop before, and
may even run a loop. Importing this module needs gunicorn 25 or later.
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
        """Create goloop's loop and set it as the thread's; gunicorn's option is not read."""
        self.loop = new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.log.debug("Using goloop event loop")

    async def _shutdown(self) -> None:
        """Close the servers, and let connections begin that goloop has already accepted.

        gunicorn waits for connections that have begun only. In asyncio the others are still in the
        kernel's queue, for the next worker.
        """
        for server in self.servers:
            server.close()
        for _ in range(3):
            await asyncio.sleep(0)
        await super()._shutdown()
