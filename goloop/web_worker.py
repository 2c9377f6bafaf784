"""A gunicorn worker for aiohttp.web applications, on goloop:

    gunicorn --worker-class goloop.web_worker.GoloopWebWorker package.module:app

It is aiohttp's own worker with another loop. Importing this module needs aiohttp and gunicorn.
"""

from __future__ import annotations

import importlib
from typing import Any

from ._internal.process.policy import set_policy

__all__ = ("GoloopWebWorker",)

_GunicornWebWorker: Any = importlib.import_module("aiohttp.worker").GunicornWebWorker


class GoloopWebWorker(_GunicornWebWorker):  # type: ignore[misc]
    """aiohttp's gunicorn worker with a goloop loop. Since 0.3.0."""

    def init_process(self) -> None:
        """Set goloop's policy, because aiohttp's worker gets its loop from asyncio."""
        set_policy()
        super().init_process()
